//! A request body in flight: its progress, and how to get it back if none of it was read.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError, Handle};

/// In-memory bodies up to this size are handed over whole. Larger ones are split into pieces of
/// this size, to track progress.
const PIECE_BYTES: usize = 64 << 10;

/// Progress of a body that was handed to a connection.
#[derive(Clone)]
pub(crate) struct UploadProgress(Rc<UploadState>);

struct UploadState {
    handle: Handle,
    stage: Cell<Stage>,
    returned: RefCell<Option<Body>>,
    waiting: Cell<Option<Waker>>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// No data has been read.
    Whole,
    /// The connection read data at this time and will ask for more once it is sent, or the server
    /// has all of it.
    Taken(Instant),
    /// The connection has been waiting for the producer since this time.
    Producing(Instant),
    /// The body was dropped.
    Gone(Instant),
}

impl UploadProgress {
    /// Wraps the body to track its progress. Returns `None` for a small in-memory body, which
    /// counts as sent.
    pub(crate) fn of(body: &mut Body, handle: &Handle) -> Option<Self> {
        use http_body::Body as _;
        let is_small = body.size_hint().exact().is_some_and(|size| size <= PIECE_BYTES as u64)
            && body.try_clone().is_some();
        if is_small {
            return None;
        }
        let (stage, returned, waiting) =
            (Cell::new(Stage::Whole), RefCell::default(), Cell::default());
        let shared = Rc::new(UploadState { handle: handle.clone(), stage, returned, waiting });
        let tracked = TrackedBody {
            body: Some(std::mem::take(body)),
            rest: Bytes::new(),
            shared: shared.clone(),
        };
        *body = Body::stream(tracked);
        Some(Self(shared))
    }

    /// Returns since when the client has waited for the server, not before `began`. `None` while it
    /// waits for the producer of the body.
    pub(crate) fn waits_since(&self, began: Instant) -> Option<Instant> {
        match self.0.stage.get() {
            Stage::Whole => Some(began),
            Stage::Taken(since) | Stage::Gone(since) => Some(since.max(began)),
            Stage::Producing(_) => None,
        }
    }

    /// Returns when data last moved, not before `began`, whichever side has been waiting since.
    pub(crate) fn last_progress(&self, began: Instant) -> Instant {
        match self.0.stage.get() {
            Stage::Whole => began,
            Stage::Taken(since) | Stage::Producing(since) | Stage::Gone(since) => since.max(began),
        }
    }

    /// Waits until the connection drops the abandoned request, and returns the body if none of it
    /// was read.
    pub(crate) async fn take_back(self) -> Option<Body> {
        poll_fn(|cx| match self.0.stage.get() {
            Stage::Whole => {
                self.0.waiting.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            Stage::Gone(_) | Stage::Taken(_) | Stage::Producing(_) => Poll::Ready(()),
        })
        .await;
        self.0.returned.take()
    }
}

/// A body that was handed to a connection.
struct TrackedBody {
    body: Option<Body>,
    /// Remainder of a large piece that the connection has not read yet.
    rest: Bytes,
    shared: Rc<UploadState>,
}

impl TrackedBody {
    fn is_over(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            let frame = std::task::ready!(http_body::Body::poll_frame(Pin::new(body), cx));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) if data.len() > PIECE_BYTES => self.rest = data,
                Some(Ok(Ok(data))) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let size = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(size)))))
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = self.poll_piece(cx);
        let now = self.shared.handle.now();
        self.shared.stage.set(match (&piece, self.shared.stage.get()) {
            (Poll::Ready(_), _) => Stage::Taken(now),
            (Poll::Pending, Stage::Producing(since)) => Stage::Producing(since),
            (Poll::Pending, _) => Stage::Producing(now),
        });
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(http_body::Body::size_hint).unwrap_or_default();
        match hint.exact() {
            Some(left) => SizeHint::with_exact(left + self.rest.len() as u64),
            None => hint,
        }
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if matches!(self.shared.stage.get(), Stage::Whole) {
            *self.shared.returned.borrow_mut() = self.body.take();
        }
        self.shared.stage.set(Stage::Gone(self.shared.handle.now()));
        if let Some(waiting) = self.shared.waiting.take() {
            waiting.wake();
        }
    }
}
