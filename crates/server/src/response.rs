//! From a service's response to the engine's.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError, Response};

/// Content of no more bytes than these is looked at at once: mostly it is all there, and needs no future to be sent.
const SMALL_BYTES: u64 = 64 << 10;

/// Hands over head and content. The first piece of small content is fetched on the way.
///
/// Whom `cx` would wake need not be there later: what is not ready is polled again.
pub(crate) fn convert<B>(response: http::Response<B>, cx: &mut Context<'_>) -> Response
where
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    let (head, body) = response.into_parts();
    let mut converted = Response::new(head.status);
    converted.headers = head.headers;
    converted.body = content(body, cx);
    converted
}

fn content<B>(body: B, cx: &mut Context<'_>) -> Body
where
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    if body.is_end_stream() {
        return Body::empty();
    }
    let Some(size) = body.size_hint().exact().filter(|size| *size <= SMALL_BYTES) else {
        return Body::stream(Converted { first: None, body: Box::pin(body) });
    };
    let mut body = Box::pin(body);
    let first = match body.as_mut().poll_frame(cx) {
        Poll::Ready(Some(frame)) => Some(frame.map(|frame| frame.map_data(to_bytes)).map_err(Into::into)),
        Poll::Ready(None) | Poll::Pending => None,
    };
    match first {
        Some(Ok(frame)) => match frame.into_data() {
            Ok(data) if data.len() as u64 == size && body.is_end_stream() => Body::from(data),
            Ok(data) => Body::stream(Converted { first: Some(Ok(Frame::data(data))), body }),
            Err(frame) => Body::stream(Converted { first: Some(Ok(frame)), body }),
        },
        // Asked again a body that failed says the same, or that it has ended: what it said has to be kept.
        first => Body::stream(Converted { first, body }),
    }
}

/// Bytes without a copy where they are such already.
fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

/// A body of the application, in the engine's terms.
struct Converted<B> {
    first: Option<Result<Frame<Bytes>, BodyError>>,
    body: Pin<Box<B>>,
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
        let frame = ready!(self.body.as_mut().poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(to_bytes)).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let first = self.first.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len) as u64;
        let mut size = SizeHint::new();
        size.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            size.set_upper(upper.saturating_add(first));
        }
        size
    }
}
