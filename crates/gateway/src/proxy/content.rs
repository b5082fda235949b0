//! Content on its way through.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};

use super::balance::Open;
use super::expecting::Gate;
use super::failure::of_content;
use super::{RequestLine, Then, WorkerUpstream};
use crate::buffering::Buffering;
use crate::fastcgi;

/// A request's content, which is lent to one attempt after the other until one has begun to read it.
pub(crate) struct Lent<B>(Rc<Shared<B>>);

struct Shared<B> {
    content: RefCell<B>,
    is_begun: Cell<bool>,
    is_broken: Cell<bool>,
}

/// A request's content, of whatever type.
pub(super) trait Upload {
    /// Whether it ended before its end, which is its client's doing.
    fn is_broken(&self) -> bool;
}

impl<B> Upload for Shared<B> {
    fn is_broken(&self) -> bool {
        self.is_broken.get()
    }
}

struct Loan<B> {
    shared: Rc<Shared<B>>,
    /// Before which nothing is read.
    gate: Option<Rc<Gate>>,
}

impl<B> Lent<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
{
    pub(crate) fn new(content: B) -> Self {
        Self(Rc::new(Shared { content: RefCell::new(content), is_begun: Cell::new(false), is_broken: Cell::new(false) }))
    }

    /// The content for an attempt.
    pub(crate) fn lend(&self) -> Body {
        self.lend_behind(None)
    }

    /// The same, of which nothing is read before the gate is open.
    pub(super) fn lend_behind(&self, gate: Option<Rc<Gate>>) -> Body {
        Body::stream(Loan { shared: self.0.clone(), gate })
    }

    /// Whether nothing of it has been read.
    pub(crate) fn is_whole(&self) -> bool {
        !self.0.is_begun.get()
    }

    /// Whether it broke off.
    pub(super) fn upload(&self) -> Rc<dyn Upload> {
        self.0.clone()
    }
}

impl<B> http_body::Body for Loan<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(gate) = &self.gate {
            ready!(gate.poll(cx));
        }
        let frame = Pin::new(&mut *self.shared.content.borrow_mut()).poll_frame(cx);
        // Trailers would be fields that no rule has seen, and some servers merge them into the header fields.
        let frame = frame.map(|frame| frame.filter(|frame| frame.as_ref().map_or(true, |frame| !frame.is_trailers())));
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

/// Content of no more bytes than these is looked at at once: mostly it has come with its head, and then takes no future to be sent.
const SMALL_BYTES: u64 = 16 << 10;

/// A response's content, at whose end the server counts as free.
pub(crate) struct Tracked {
    content: Content,
    open: Option<Open>,
    watch: Option<Watch>,
    /// What was found when it was looked at.
    first: Option<Result<Frame<Bytes>, BodyError>>,
}

/// Who tells if a response breaks off, and of what.
pub(super) struct Watch {
    pub(super) upstream: Rc<WorkerUpstream>,
    pub(super) asked: RequestLine,
    pub(super) upload: Option<Rc<dyn Upload>>,
}

impl Tracked {
    pub(super) fn new(content: Content, open: Open, watch: Option<Watch>) -> Self {
        Self { content, open: Some(open), watch, first: None }
    }

    /// The content for the client. `buffering`: it is held if the client is slow.
    pub(super) fn into_body(mut self, buffering: Option<&Buffering>) -> Body {
        match (self.whole(), buffering) {
            (Some(whole), _) => Body::from(whole),
            (None, Some(buffering)) => buffering.body(self),
            (None, None) => Body::stream(self),
        }
    }

    /// All of it, if it is small and there.
    fn whole(&mut self) -> Option<Bytes> {
        let size = self.content.size_hint().exact().filter(|size| *size <= SMALL_BYTES)?;
        // Nobody is to be woken: who sends it asks again.
        match Pin::new(&mut *self).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.len() as u64 == size && self.content.is_end_stream() => return Some(data),
                Ok(data) => self.first = Some(Ok(Frame::data(data))),
                Err(frame) => self.first = Some(Ok(frame)),
            },
            Poll::Ready(Some(Err(error))) => self.first = Some(Err(error)),
            Poll::Ready(None) | Poll::Pending => {}
        }
        None
    }

    fn broke_off(&mut self, error: &BodyError) {
        if let (Some(Watch { upstream, asked, upload }), Some(open)) = (self.watch.take(), &self.open)
            && upload.is_none_or(|upload| !upload.is_broken())
        {
            upstream.tell(open, &asked, &of_content(error), Then::BrokenOff);
        }
    }
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let frame = Pin::new(&mut self.content).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Err(error))) => {
                self.broke_off(error);
                self.open = None;
            }
            Poll::Ready(None) => self.open = None,
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = match &self.first {
            // What has broken off is shorter than its head says, and has to be seen as that.
            Some(Err(_)) => return SizeHint::default(),
            Some(Ok(first)) => first.data_ref().map_or(0, Bytes::len) as u64,
            None => 0,
        };
        match self.content.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest + first),
            None => SizeHint::default(),
        }
    }
}
