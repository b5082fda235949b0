//! Pacing of compression, so that it does not block the worker for long.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};

use super::decision::{Decision, TAKEN};

/// Bytes compressed at a time: a few milliseconds of work.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// A body to be compressed, with a pause after each piece. Otherwise a body that is always ready
/// would be read until the encoder produces output: Brotli first consumes 16 MiB, which blocks the
/// worker and takes five times the memory.
pub(super) struct Paced {
    body: Body,
    rest: Bytes,
    /// Bytes left before the next pause.
    left: usize,
    decision: Decision,
}

impl Paced {
    pub(super) fn new(body: Body, decision: Decision) -> Self {
        Self { body, rest: Bytes::new(), left: PIECE_BYTES, decision }
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.decision.0.load(Ordering::Relaxed) != TAKEN {
            return Pin::new(&mut this.body).poll_frame(cx);
        }
        if this.left == 0 {
            this.left = PIECE_BYTES;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(this.left));
        this.left -= piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Only called before the first frame.
        self.body.size_hint()
    }
}
