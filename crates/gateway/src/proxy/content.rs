//! Content on its way through.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};

use super::balance::Open;
use crate::fastcgi;

/// A request's content, which is lent to one attempt after the other until one has begun to read it.
pub(crate) struct Lent<B>(Rc<Shared<B>>);

struct Shared<B> {
    content: RefCell<B>,
    is_begun: Cell<bool>,
}

struct Loan<B>(Rc<Shared<B>>);

impl<B> Lent<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
{
    pub(crate) fn new(content: B) -> Self {
        Self(Rc::new(Shared { content: RefCell::new(content), is_begun: Cell::new(false) }))
    }

    /// The content for an attempt.
    pub(crate) fn lend(&self) -> Body {
        Body::stream(Loan(self.0.clone()))
    }

    /// Whether nothing of it has been read.
    pub(crate) fn is_whole(&self) -> bool {
        !self.0.is_begun.get()
    }
}

impl<B> http_body::Body for Loan<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut *self.0.content.borrow_mut()).poll_frame(cx);
        if frame.is_ready() {
            self.0.is_begun.set(true);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.0.content.borrow().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.content.borrow().size_hint()
    }
}

/// A response's content, by what it came over.
pub(crate) enum Content {
    Http(pronghorn_client::Content),
    FastCgi(Option<Box<fastcgi::Content>>),
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Http(content) => Pin::new(content).poll_frame(cx),
            Self::FastCgi(Some(content)) => Pin::new(content).poll_frame(cx),
            Self::FastCgi(None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(content) => content.is_end_stream(),
            Self::FastCgi(content) => content.as_ref().is_none_or(http_body::Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(content) => content.size_hint(),
            Self::FastCgi(_) => SizeHint::default(),
        }
    }
}

/// A response's content, at whose end the server counts as free.
pub(crate) struct Tracked {
    content: Content,
    open: Option<Open>,
}

impl Tracked {
    pub(crate) fn new(content: Content, open: Open) -> Self {
        Self { content, open: Some(open) }
    }
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.content).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.open = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
