//! Converts a service's response to the engine's.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError, Response, announced_length};

use crate::failure::{FailedPart, FailureReporter};

/// Maximum size of a body that is polled immediately. Most such bodies are complete at once, and
/// then need no future to send.
const SMALL_BYTES: u64 = 64 << 10;

/// Converts head and body. The first piece of a small body is fetched immediately.
///
/// The waker of `cx` need not be valid later: a pending body is polled again.
pub(crate) fn convert<B>(
    response: http::Response<B>,
    reporter: FailureReporter,
    cx: &mut Context<'_>,
) -> Response
where
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    let (head, body) = response.into_parts();
    let mut converted = Response::new(head.status);
    let announced = announced_length(&head.headers);
    converted.headers = head.headers;
    converted.body = content(body, announced, reporter, cx);
    converted
}

/// `announced`: the length according to the response head.
fn content<B>(
    body: B,
    announced: Option<u64>,
    reporter: FailureReporter,
    cx: &mut Context<'_>,
) -> Body
where
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    if body.is_end_stream() {
        return Body::empty();
    }
    let exact = body.size_hint().exact();
    // The exact size of the body takes precedence over the length in the head.
    let expected = exact.or(announced);
    let mut body =
        Converted { first: None, body: Some(Box::pin(body)), sent: 0, expected, reporter };
    let Some(size) = exact.filter(|size| *size <= SMALL_BYTES) else { return Body::stream(body) };
    match body.poll_inner(cx) {
        Poll::Pending => Body::stream(body),
        Poll::Ready(None) => Body::empty(),
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) if data.len() as u64 == size && body.has_ended() => Body::from(data),
            Ok(data) => Body::stream(Converted { first: Some(Ok(Frame::data(data))), ..body }),
            Err(frame) => Body::stream(Converted { first: Some(Ok(frame)), ..body }),
        },
        Poll::Ready(Some(Err(error))) => {
            Body::stream(Converted { first: Some(Err(error)), ..body })
        }
    }
}

/// Converts to `Bytes`, without a copy if `data` already is `Bytes`.
fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

/// An application's body as a body of the engine.
struct Converted<B> {
    first: Option<Result<Frame<Bytes>, BodyError>>,
    /// `None` after the end or an error: many bodies must not be polled again.
    body: Option<Pin<Box<B>>>,
    /// Number of bytes that the body has produced.
    sent: u64,
    /// Announced total length, if any.
    expected: Option<u64>,
    reporter: FailureReporter,
}

impl<B> Converted<B>
where
    B: http_body::Body,
    B::Error: Into<BodyError>,
{
    fn poll_inner(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        // A body that has ended is polled again only if bytes are missing.
        let poll =
            || if body.is_end_stream() { Poll::Ready(None) } else { body.as_mut().poll_frame(cx) };
        let frame = ready!(self.reporter.catch_panic(FailedPart::Body, poll));
        let frame =
            frame.map(|frame| frame.map(|frame| frame.map_data(to_bytes)).map_err(Into::into));
        let frame = self.check_length(frame);
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        if let Some(Err(error)) = &frame {
            self.reporter.failed(FailedPart::Body, error);
        }
        Poll::Ready(frame)
    }

    /// Turns a body that is shorter or longer than announced into an error, so that the response
    /// does not look complete.
    fn check_length(
        &mut self,
        frame: Option<Result<Frame<Bytes>, BodyError>>,
    ) -> Option<Result<Frame<Bytes>, BodyError>> {
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
            format!("the body is longer than the {expected} announced bytes")
        } else if is_over && self.sent < expected {
            format!("the body ended after {} of {expected} announced bytes", self.sent)
        } else {
            return frame;
        };
        Some(Err(error.into()))
    }

    /// Returns whether the body can yield nothing more, not even an error.
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
        let first = self
            .first
            .as_ref()
            .and_then(|frame| frame.as_ref().ok()?.data_ref())
            .map_or(0, Bytes::len) as u64;
        let mut size = SizeHint::new();
        if matches!(self.first, Some(Err(_))) {
            // An error has no size to announce.
            return size;
        }
        size.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            size.set_upper(upper.saturating_add(first));
        }
        size
    }
}
