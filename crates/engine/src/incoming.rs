//! Message bodies that the peer sends.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use http_body::{Body as _, Frame, SizeHint};

use crate::BodyError;
use crate::body_limits::BodyMeter;
use crate::client::{ResponseContent, Slot};
use crate::http1::{Http1BodyLink, Tunnel};
use crate::http2::Http2BodyLink;
use crate::http3::Stream;

/// The body of an incoming message: data frames, then trailers if there are any.
///
/// Nothing beyond a small window is read ahead of the application, so not polling slows the peer
/// down. Dropping it discards the rest.
pub struct Incoming {
    content: Content,
    /// Set if the body is a request's.
    meter: Option<Rc<BodyMeter>>,
}

enum Content {
    Empty,
    Http1 {
        body: hyper::body::Incoming,
        server: Http1BodyLink,
    },
    Http1Response(ResponseContent),
    Http2 {
        body: h2::RecvStream,
        server: Http2BodyLink,
    },
    Http2Response {
        body: h2::RecvStream,
        slot: Option<Slot>,
    },
    Http3(Rc<Stream>),
    /// An HTTP/1.1 connection after an upgrade.
    Tunnel(Rc<Tunnel>),
}

impl Incoming {
    /// Creates an empty body. It replaces that of a request whose [`Upgrade`](crate::Upgrade) is
    /// not passed on: the next recipient would take the data behind the head for content.
    pub fn empty() -> Self {
        Self { content: Content::Empty, meter: None }
    }

    pub(crate) fn http1(body: hyper::body::Incoming, server: Http1BodyLink) -> Self {
        Self { content: Content::Http1 { body, server }, meter: None }
    }

    /// `content`: `None` if the response has no body.
    pub(crate) fn http1_response(content: Option<ResponseContent>) -> Self {
        Self { content: content.map_or(Content::Empty, Content::Http1Response), meter: None }
    }

    pub(crate) fn http2(body: h2::RecvStream, server: Http2BodyLink) -> Self {
        Self {
            content: if body.is_end_stream() {
                Content::Empty
            } else {
                Content::Http2 { body, server }
            },
            meter: None,
        }
    }

    pub(crate) fn http2_response(body: h2::RecvStream, slot: Slot) -> Self {
        let content = if body.is_end_stream() {
            slot.complete();
            Content::Empty
        } else {
            Content::Http2Response { body, slot: Some(slot) }
        };
        Self { content, meter: None }
    }

    pub(crate) fn http3(stream: Rc<Stream>) -> Self {
        Self { content: Content::Http3(stream), meter: None }
    }

    pub(crate) fn tunnel(tunnel: Rc<Tunnel>) -> Self {
        Self { content: Content::Tunnel(tunnel), meter: None }
    }

    /// Returns the request's stream if the body arrives over HTTP/3.
    pub(crate) fn http3_stream(&self) -> Option<Rc<Stream>> {
        match &self.content {
            Content::Http3(stream) => Some(stream.clone()),
            _ => None,
        }
    }

    pub(crate) fn measure(&mut self, meter: Option<Rc<BodyMeter>>) {
        self.meter = meter;
    }

    /// Ends the body here. The sender learns that it is not read any more.
    fn cut_off(&mut self) {
        match std::mem::replace(&mut self.content, Content::Empty) {
            Content::Http1 { body, server } if !body.is_end_stream() => server.give_up(),
            Content::Http2 { body, server } => {
                server.guard.set_inbound_waiting(false);
                // A tunnel lasts as long as its other direction. Data that arrives now fills the
                // stream's window and stays there.
                if !self.meter.as_ref().is_some_and(|meter| meter.is_tunnel()) {
                    server.linger(body);
                }
            }
            Content::Http2Response { body, slot: Some(slot) } if body.is_end_stream() => {
                slot.complete();
            }
            Content::Http3(stream) => stream.discard_inbound(),
            Content::Tunnel(tunnel) => tunnel.discard(),
            _ => {}
        }
    }
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = self.poll_content(cx);
        let Some(meter) = &self.meter else { return frame };
        let reached = match &frame {
            Poll::Pending => Some(ready!(meter.poll_timeout(cx))),
            Poll::Ready(Some(Ok(frame))) => {
                meter.on_data(frame.data_ref().map_or(0, Bytes::len)).err()
            }
            Poll::Ready(_) => None,
        };
        let Some(reached) = reached else { return frame };
        self.cut_off();
        Poll::Ready(Some(Err(reached.into())))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Http1 { body, .. } => body.is_end_stream(),
            Content::Http1Response(content) => content.is_over(),
            Content::Http2 { body, .. } | Content::Http2Response { body, .. } => {
                body.is_end_stream()
            }
            Content::Http3(stream) => stream.inbound_is_over(),
            Content::Tunnel(tunnel) => tunnel.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Http1 { body, .. } => body.size_hint(),
            Content::Http1Response(content) => content.size_hint(),
            Content::Http2 { .. }
            | Content::Http2Response { .. }
            | Content::Http3(_)
            | Content::Tunnel(_) => SizeHint::default(),
        }
    }
}

impl Incoming {
    fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match &mut self.content {
            Content::Empty => None,
            Content::Http1 { body, server } => {
                let mut frame = Pin::new(&mut *body).poll_frame(cx);
                if let Poll::Ready(Some(Err(error))) = &frame
                    && error.is_incomplete_message()
                    && server.is_complete()
                {
                    // Trailers follow behind the incomplete content.
                    frame = Pin::new(&mut *body).poll_frame(cx);
                }
                server.on_read(frame.is_pending());
                let frame = ready!(frame).map(|frame| frame.map_err(Into::into));
                if body.is_end_stream() {
                    self.content = Content::Empty;
                }
                frame
            }
            Content::Http1Response(content) => ready!(content.poll_frame(cx)),
            Content::Http2 { body, server } => {
                let frame = poll_http2(body, cx);
                if let Some(answer) = server.expectation.take()
                    && frame.is_pending()
                {
                    answer.send_interim(StatusCode::CONTINUE, HeaderMap::new());
                }
                server.guard.set_inbound_waiting(frame.is_pending());
                let frame = ready!(frame);
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                {
                    server.on_read(data.len());
                }
                frame
            }
            Content::Http2Response { body, slot } => {
                let frame = ready!(poll_http2(body, cx));
                if frame.is_none()
                    && let Some(slot) = slot.take()
                {
                    slot.complete();
                }
                frame
            }
            Content::Http3(stream) => {
                ready!(stream.poll_inbound(cx)).map(|frame| frame.map_err(Into::into))
            }
            Content::Tunnel(tunnel) => ready!(tunnel.poll_inbound(cx)),
        };
        let frame = frame.map(|frame| frame.map(without_framing));
        if !matches!(frame, Some(Ok(_))) {
            // The content has ended, so dropping it does not notify the sender.
            self.content = Content::Empty;
        }
        Poll::Ready(frame)
    }
}

/// Removes fields on framing and routing from trailers, where they have no meaning (RFC 9110,
/// section 6.5.1).
fn without_framing(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            for name in [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING] {
                trailers.remove(name);
            }
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

fn poll_http2(
    body: &mut h2::RecvStream,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    match ready!(body.poll_data(cx)) {
        Some(Ok(data)) => {
            // The data goes to the application here, so the peer may send as much again.
            let released = body.flow_control().release_capacity(data.len());
            Poll::Ready(Some(released.map(|()| Frame::data(data)).map_err(Into::into)))
        }
        Some(Err(error)) => Poll::Ready(Some(Err(error.into()))),
        None => match ready!(body.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(Some(Err(error.into()))),
        },
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.cut_off();
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Empty => "empty",
            Content::Http1 { .. } | Content::Http1Response { .. } => "HTTP/1.1",
            Content::Http2 { .. } | Content::Http2Response { .. } => "HTTP/2",
            Content::Http3(_) => "HTTP/3",
            Content::Tunnel(_) => "tunnel over HTTP/1.1",
        };
        f.debug_tuple("Incoming").field(&content).finish()
    }
}
