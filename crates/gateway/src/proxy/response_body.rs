//! Bodies of forwarded responses.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};

use super::balance::OpenRequest;
use super::failure::of_content;
use super::failure_log::{Outcome, RequestLine};
use super::replayable_body::Upload;
use super::worker_upstream::WorkerUpstream;
use crate::buffering::ResponseBuffering;
use crate::fastcgi;

/// A response body, by protocol.
pub(crate) enum Content {
    Http(pronghorn_client::Content),
    FastCgi(Option<Box<fastcgi::Content>>),
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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

/// Bodies up to this size are polled at once: usually they have arrived with the head and then need
/// no streaming.
const SMALL_BYTES: u64 = 16 << 10;

/// A response body. At its end the request to the server is no longer counted as open.
pub(crate) struct Tracked {
    content: Content,
    open: Option<OpenRequest>,
    context: Option<FailureContext>,
    /// The result of the first poll.
    first: Option<Result<Frame<Bytes>, BodyError>>,
}

/// Context for the log line if a response is cut off.
pub(super) struct FailureContext {
    pub(super) upstream: Rc<WorkerUpstream>,
    pub(super) request_line: RequestLine,
    pub(super) upload: Option<Rc<dyn Upload>>,
}

impl Tracked {
    pub(super) fn new(
        content: Content,
        open: OpenRequest,
        context: Option<FailureContext>,
    ) -> Self {
        Self { content, open: Some(open), context, first: None }
    }

    /// Returns the body for the client. With `buffering`, it is buffered if the client is slow.
    pub(super) fn into_body(mut self, buffering: Option<&ResponseBuffering>) -> Body {
        match (self.whole(), buffering) {
            (Some(whole), _) => Body::from(whole),
            (None, Some(buffering)) => buffering.body(self),
            (None, None) => Body::stream(self),
        }
    }

    /// Returns the whole body, if it is small and has arrived.
    fn whole(&mut self) -> Option<Bytes> {
        let size = self.content.size_hint().exact().filter(|size| *size <= SMALL_BYTES)?;
        // No waker is needed: the sender polls again.
        match Pin::new(&mut *self).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.len() as u64 == size && self.content.is_end_stream() => {
                    return Some(data);
                }
                Ok(data) => self.first = Some(Ok(Frame::data(data))),
                Err(frame) => self.first = Some(Ok(frame)),
            },
            Poll::Ready(Some(Err(error))) => self.first = Some(Err(error)),
            Poll::Ready(None) | Poll::Pending => {}
        }
        None
    }

    fn broke_off(&mut self, error: &BodyError) {
        if let (Some(FailureContext { upstream, request_line, upload }), Some(open)) =
            (self.context.take(), &self.open)
            && upload.is_none_or(|upload| !upload.is_broken())
        {
            upstream.log_failure(open, &request_line, &of_content(error), Outcome::CutOff);
        }
    }
}

impl http_body::Body for Tracked {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
            // A truncated body must be recognised as shorter than its content-length.
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
