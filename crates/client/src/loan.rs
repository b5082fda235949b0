//! Content of a request on its way: how far it is, and what comes back of it when nothing was sent.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError, Handle};

/// Content of up to this size in memory is handed over as a whole. The rest goes piece by piece, so that it is known how far it is.
const PIECE_BYTES: usize = 64 << 10;

/// What is known of content that a connection has.
#[derive(Clone)]
pub(crate) struct Loan(Rc<Shared>);

struct Shared {
    handle: Handle,
    stage: Cell<Stage>,
    returned: RefCell<Option<Body>>,
    waiting: Cell<Option<Waker>>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// Nobody has asked for it.
    Whole,
    /// The connection has taken what there was at this time, and wants more when it has sent that; or the server has all of it.
    Taken(Instant),
    /// Whoever produces it is waited for, since this time.
    Producing(Instant),
    /// It was dropped.
    Gone(Instant),
}

impl Loan {
    /// Makes the content that of a connection, and returns what is known of it. Of content that is as good as sent there is nothing to know.
    pub(crate) fn of(body: &mut Body, handle: &Handle) -> Option<Self> {
        use http_body::Body as _;
        let is_small = body.size_hint().exact().is_some_and(|size| size <= PIECE_BYTES as u64) && body.try_clone().is_some();
        if is_small {
            return None;
        }
        let (stage, returned, waiting) = (Cell::new(Stage::Whole), RefCell::default(), Cell::default());
        let shared = Rc::new(Shared { handle: handle.clone(), stage, returned, waiting });
        let lent = Lent { body: Some(std::mem::take(body)), rest: Bytes::new(), shared: shared.clone() };
        *body = Body::stream(lent);
        Some(Self(shared))
    }

    /// Since when the server is waited for, `began` at the earliest; `None` while whoever produces the content is.
    pub(crate) fn waits_since(&self, began: Instant) -> Option<Instant> {
        match self.0.stage.get() {
            Stage::Whole => Some(began),
            Stage::Taken(since) | Stage::Gone(since) => Some(since.max(began)),
            Stage::Producing(_) => None,
        }
    }

    /// When more of it has moved last, `began` at the earliest, whoever is waited for since.
    pub(crate) fn rests_since(&self, began: Instant) -> Instant {
        match self.0.stage.get() {
            Stage::Whole => began,
            Stage::Taken(since) | Stage::Producing(since) | Stage::Gone(since) => since.max(began),
        }
    }

    /// The content again, if nothing of it was taken. For when the connection has given the request up, and drops what it has of it.
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

/// Content that a connection has.
struct Lent {
    body: Option<Body>,
    /// What the connection does not have of a large piece.
    rest: Bytes,
    shared: Rc<Shared>,
}

impl Lent {
    fn is_over(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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

impl Drop for Lent {
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
