//! Content piece by piece, so that compressing it takes no worker for long.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};

use super::{Decision, TAKEN};

/// What is compressed at a time: a few milliseconds' worth.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Content on its way to be compressed, with a pause after each piece. Without that a body that is always ready would be read until something
/// comes out: Brotli takes 16 MiB before, a worker for as long, and five times the memory.
pub(super) struct Paced {
    body: Body,
    rest: Bytes,
    /// What may still come before the pause.
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

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
        // Asked for before the first frame.
        self.body.size_hint()
    }
}
