//! Responses that are held back and written together with the next ones.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use tokio::io::AsyncWrite;

/// Maximum bytes of responses that a connection holds back. Larger ones gain nothing from it.
const HELD_BYTES: usize = 16 << 10;
/// Initial capacity: for the first response and some similar ones.
const FIRST_BYTES: usize = 2 << 10;

/// Responses to pipelined requests, copied and written in one piece. Each separate write costs a
/// system call, a packet, and over TLS a record.
#[derive(Default)]
pub(super) struct HeldResponses(Vec<u8>);

impl HeldResponses {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all of `pieces` and returns their size, or takes nothing if that would be too much.
    pub(super) fn take(&mut self, pieces: &[IoSlice<'_>]) -> Option<usize> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.0.len() + bytes > HELD_BYTES {
            return None;
        }
        if self.is_empty() {
            self.0.reserve_exact(bytes.max(FIRST_BYTES));
        }
        for piece in pieces {
            self.0.extend_from_slice(piece);
        }
        Some(bytes)
    }

    /// Ready when nothing is left.
    pub(super) fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut TaskContext<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.0.is_empty() {
            let written = ready!(Pin::new(&mut *io).poll_write(cx, &self.0))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.0.drain(..written);
        }
        // An idle connection keeps no memory for it.
        self.0 = Vec::new();
        Poll::Ready(Ok(()))
    }
}
