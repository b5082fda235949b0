//! From a service's response to the engine's.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError, Response};

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
    converted.headers = head.headers;
    converted.body = content(body, watch, cx);
    converted
}

fn content<B>(body: B, watch: Watch, cx: &mut Context<'_>) -> Body
where
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    if body.is_end_stream() {
        return Body::empty();
    }
    let size = body.size_hint().exact().filter(|size| *size <= SMALL_BYTES);
    let mut body = Converted { first: None, body: Some(Box::pin(body)), watch };
    let Some(size) = size else { return Body::stream(body) };
    match body.poll_inner(cx) {
        Poll::Pending => Body::stream(body),
        // What was announced and did not come must not look like a whole response.
        Poll::Ready(None) if size > 0 => {
            let error: BodyError = format!("the body ended {size} bytes before its size hint said").into();
            body.watch.failed(FailedPart::Body, &error);
            body.first = Some(Err(error));
            Body::stream(body)
        }
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
    watch: Watch,
}

impl<B> Converted<B>
where
    B: http_body::Body,
    B::Error: Into<BodyError>,
{
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        let frame = frame.map(|frame| frame.map(|frame| frame.map_data(to_bytes)).map_err(Into::into));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        if let Some(Err(error)) = &frame {
            self.watch.failed(FailedPart::Body, error);
        }
        Poll::Ready(frame)
    }

    fn has_ended(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
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
