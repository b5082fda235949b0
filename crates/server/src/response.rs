//! From a service's response to the engine's.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError, Response, announced_length};

use crate::failure::{FailedPart, Watch};

/// Content of no more bytes than these is looked at at once: mostly it is all there, and needs no future to be sent.
const SMALL_BYTES: u64 = 64 << 10;

/// Hands over head and content. The first piece of small content is fetched on the way.
///
/// Whom `cx` would wake need not be there later: what is not ready is polled again.
pub(crate) fn convert<B>(response: http::Response<B>, watch: Watch, cx: &mut Context<'_>) -> Response
where
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    let (head, body) = response.into_parts();
    let mut converted = Response::new(head.status);
    let announced = announced_length(&head.headers);
    converted.headers = head.headers;
    converted.body = content(body, announced, watch, cx);
    converted
}

/// `announced`: what the head says of the length.
fn content<B>(body: B, announced: Option<u64>, watch: Watch, cx: &mut Context<'_>) -> Body
where
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    if body.is_end_stream() {
        return Body::empty();
    }
    let exact = body.size_hint().exact();
    // A head that says something else than the body is corrected.
    let expected = exact.or(announced);
    let mut body = Converted { first: None, body: Some(Box::pin(body)), sent: 0, expected, watch };
    let Some(size) = exact.filter(|size| *size <= SMALL_BYTES) else { return Body::stream(body) };
    match body.poll_inner(cx) {
        Poll::Pending => Body::stream(body),
        Poll::Ready(None) => Body::empty(),
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) if data.len() as u64 == size && body.has_ended() => Body::from(data),
            Ok(data) => Body::stream(Converted { first: Some(Ok(Frame::data(data))), ..body }),
            Err(frame) => Body::stream(Converted { first: Some(Ok(frame)), ..body }),
        },
        Poll::Ready(Some(Err(error))) => Body::stream(Converted { first: Some(Err(error)), ..body }),
    }
}

/// Bytes without a copy where they are such already.
fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

/// A body of the application, in the engine's terms.
struct Converted<B> {
    first: Option<Result<Frame<Bytes>, BodyError>>,
    /// `None` once it has ended or failed: many bodies may not be polled after that.
    body: Option<Pin<Box<B>>>,
    /// Bytes that came out of it.
    sent: u64,
    /// How many there have to be in all, where that was said.
    expected: Option<u64>,
    watch: Watch,
}

impl<B> Converted<B>
where
    B: http_body::Body,
    B::Error: Into<BodyError>,
{
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        // One that has ended is asked again only for what is missing.
        let poll = || if body.is_end_stream() { Poll::Ready(None) } else { body.as_mut().poll_frame(cx) };
        let frame = ready!(self.watch.during(FailedPart::Body, poll));
        let frame = frame.map(|frame| frame.map(|frame| frame.map_data(to_bytes)).map_err(Into::into));
        let frame = self.check_length(frame);
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        if let Some(Err(error)) = &frame {
            self.watch.failed(FailedPart::Body, error);
        }
        Poll::Ready(frame)
    }

    /// What was announced and does not come, or comes besides, must not look like a whole response.
    fn check_length(&mut self, frame: Option<Result<Frame<Bytes>, BodyError>>) -> Option<Result<Frame<Bytes>, BodyError>> {
        let Some(expected) = self.expected else { return frame };
        let is_over = match &frame {
            Some(Err(_)) => return frame,
            Some(Ok(frame)) => {
                self.sent = self.sent.saturating_add(frame.data_ref().map_or(0, Bytes::len) as u64);
                frame.is_trailers()
            }
            None => true,
        };
        let error = if self.sent > expected {
            format!("the body has more than the {expected} bytes that were announced")
        } else if is_over && self.sent < expected {
            format!("the body ended after {} of the {expected} bytes that were announced", self.sent)
        } else {
            return frame;
        };
        Some(Err(error.into()))
    }

    /// Nothing more comes of it, not even a failure.
    fn has_ended(&self) -> bool {
        let is_short = self.expected.is_some_and(|expected| self.sent < expected);
        self.body.as_ref().is_none_or(|body| body.is_end_stream() && !is_short)
    }
}

impl<B> http_body::Body for Converted<B>
where
    B: http_body::Body,
    B::Error: Into<BodyError>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        self.poll_inner(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.as_ref().map_or(SizeHint::with_exact(0), http_body::Body::size_hint);
        let first = self.first.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len) as u64;
        let mut size = SizeHint::new();
        if matches!(self.first, Some(Err(_))) {
            // Nothing that could be announced.
            return size;
        }
        size.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            size.set_upper(upper.saturating_add(first));
        }
        size
    }
}
