//! Request bodies that several attempts can send.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};

use super::expect_continue::Gate;

/// A request body that one attempt after the other borrows, until an attempt has begun to read it.
pub(crate) struct ReplayableBody<B>(Rc<SharedBody<B>>);

struct SharedBody<B> {
    content: RefCell<B>,
    is_begun: Cell<bool>,
    is_broken: Cell<bool>,
}

/// The state of a request body of any type.
pub(super) trait Upload {
    /// Returns whether the client cut the body off.
    fn is_broken(&self) -> bool;
}

impl<B> Upload for SharedBody<B> {
    fn is_broken(&self) -> bool {
        self.is_broken.get()
    }
}

struct BorrowedBody<B> {
    shared: Rc<SharedBody<B>>,
    /// Nothing is read until the gate opens.
    gate: Option<Rc<Gate>>,
}

impl<B> ReplayableBody<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
{
    pub(crate) fn new(content: B) -> Self {
        Self(Rc::new(SharedBody {
            content: RefCell::new(content),
            is_begun: Cell::new(false),
            is_broken: Cell::new(false),
        }))
    }

    /// Returns the body for an attempt.
    pub(crate) fn borrow(&self) -> Body {
        self.borrow_behind(None)
    }

    /// Returns the body for an attempt. Nothing is read until the gate opens.
    pub(super) fn borrow_behind(&self, gate: Option<Rc<Gate>>) -> Body {
        Body::stream(BorrowedBody { shared: self.0.clone(), gate })
    }

    /// Returns whether nothing has been read yet.
    pub(crate) fn is_whole(&self) -> bool {
        !self.0.is_begun.get()
    }

    /// Returns a handle to the state of the body.
    pub(super) fn upload(&self) -> Rc<dyn Upload> {
        self.0.clone()
    }
}

impl<B> http_body::Body for BorrowedBody<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(gate) = &self.gate {
            ready!(gate.poll(cx));
        }
        let frame = Pin::new(&mut *self.shared.content.borrow_mut()).poll_frame(cx);
        // Trailers are dropped: no rule has checked them, and some servers merge them into the
        // header fields.
        let frame = frame.map(|frame| {
            frame.filter(|frame| frame.as_ref().map_or(true, |frame| !frame.is_trailers()))
        });
        if let Poll::Ready(frame) = &frame {
            self.shared.is_begun.set(true);
            if matches!(frame, Some(Err(_))) {
                self.shared.is_broken.set(true);
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.shared.content.borrow().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.content.borrow().size_hint()
    }
}
