//! One request and its response, shared by JavaScript and the engine.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::Body as _;
use pronghorn_engine::{
    Body, Handle, Incoming, KeepAlive, Peer, Protocol, Request, Responder, Response, Sleep, Upgrade,
};

use crate::events::{Event, Events};
use crate::pipe::{Pipe, Reader, pipe};
use crate::router::Parameters;

/// Number of content bytes after which a chunk goes to JavaScript.
const CHUNK_BYTES: usize = 64 << 10;
/// How long content may be paused after the response is complete, before it is abandoned.
const PAUSE_AFTER_RESPONSE: Duration = Duration::from_secs(60);
/// Maximum capacity of a header map that is kept for the next response.
const KEPT_LINES: usize = 24;

/// A request, its response, and their progress.
pub(crate) struct Exchange {
    pub(crate) app: u32,
    pub(crate) listener: u32,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    /// The upgrade that the client asks for.
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) parameters: Parameters,
    /// Number of matching routes tried so far.
    pub(crate) matches_tried: usize,
    pub(crate) responder: Option<Responder>,
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) pipe: Option<Pipe>,
    /// Of the connection, once the response has begun.
    keep_alive: Option<KeepAlive>,
    /// Number of content bytes given to the pipe.
    pub(crate) written: u64,
    content: Content,
    /// Whether content is still read after the response.
    pub(crate) reads_on: bool,
    /// Timer while content is paused after the response.
    pause_timer: Option<Pin<Box<Sleep>>>,
    /// Whether a future watches the exchange.
    watched: bool,
    waker: Option<Waker>,
}

/// An upgrade request, with everything needed to accept it.
pub(crate) struct UpgradeRequest {
    pub(crate) responder: Responder,
    pub(crate) peer: Peer,
    pub(crate) upgrade: Upgrade,
    pub(crate) body: Incoming,
    /// Response fields that JavaScript has written.
    pub(crate) fields: HeaderMap,
    pub(crate) headers: HeaderMap,
    pub(crate) uri: Uri,
}

/// The request's content.
#[derive(Default)]
struct Content {
    incoming: Option<Incoming>,
    is_wanted: bool,
    is_paused: bool,
    /// Pieces that JavaScript has not taken.
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    has_ended: bool,
    /// Whether JavaScript has been notified of available content.
    announced: bool,
}

impl Exchange {
    /// Creates an exchange without a request, for [`Exchange::begin`].
    pub(crate) fn idle() -> Self {
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let peer = Peer {
            protocol: Protocol::Http1,
            remote: nobody,
            secure: false,
            early_data: false,
            tls: None,
            server_name: None,
            client_certificate: None,
        };
        Self {
            app: 0,
            listener: 0,
            method: Method::GET,
            uri: Uri::default(),
            headers: HeaderMap::new(),
            peer,
            upgrade: None,
            parameters: Parameters::new(),
            matches_tried: 1,
            responder: None,
            status: StatusCode::OK,
            fields: HeaderMap::new(),
            pipe: None,
            keep_alive: None,
            written: 0,
            content: Content::default(),
            reads_on: false,
            pause_timer: None,
            watched: false,
            waker: None,
        }
    }

    /// Starts a request in an idle exchange.
    // If it were inlined, the whole request would be moved once more.
    #[inline(never)]
    pub(crate) fn begin(
        &mut self,
        request: Request,
        responder: Responder,
        app: u32,
        listener: u32,
        parameters: Parameters,
    ) {
        self.app = app;
        self.listener = listener;
        self.method = request.method;
        self.uri = request.uri;
        self.headers = request.headers;
        self.peer = request.peer;
        // Bytes after an upgrade request are not content.
        self.content.has_ended = request.upgrade.is_some() || request.body.is_end_stream();
        self.content.incoming = Some(request.body);
        self.upgrade = request.upgrade;
        self.parameters = parameters;
        self.responder = Some(responder);
    }

    /// Resets the exchange to the state of [`Exchange::idle`]. The next response may reuse the
    /// memory of this request's field lines.
    pub(crate) fn clear(&mut self) {
        // The watching future finds the exchange gone, and ends.
        self.wake();
        // Over HTTP/3 the map is allocated for all lines at once, and over HTTP/1.1 no lines are
        // joined, so its capacity shows how much memory the client made it allocate. HTTP/1.1's
        // library reuses the map of the previous response for a request: 72 bytes for each line
        // that the application repeated there do not show.
        if self.fields.capacity() == 0 && self.peer.protocol != Protocol::Http2 {
            std::mem::swap(&mut self.fields, &mut self.headers);
        }
        // Destructured, so that a new field cannot be forgotten here.
        let Self {
            method,
            uri,
            headers,
            peer,
            upgrade,
            parameters,
            matches_tried,
            responder,
            status,
            fields,
            pipe,
            keep_alive,
            written,
            content,
            reads_on,
            pause_timer,
            watched,
            app: _,
            listener: _,
            waker: _,
        } = self;
        // Maps with repeated names have additional memory.
        if fields.capacity() > KEPT_LINES || fields.len() > fields.keys_len() {
            *fields = HeaderMap::new();
        } else {
            fields.clear();
        }
        *headers = HeaderMap::new();
        *method = Method::GET;
        *uri = Uri::default();
        (peer.server_name, peer.client_certificate) = (None, None);
        *upgrade = None;
        *parameters = Parameters::new();
        *matches_tried = 1;
        *responder = None;
        *status = StatusCode::OK;
        *pipe = None;
        *keep_alive = None;
        *written = 0;
        *content = Content::default();
        *pause_timer = None;
        (*reads_on, *watched) = (false, false);
    }

    pub(crate) fn has_content(&self) -> bool {
        !self.content.has_ended
    }

    /// Drops the data that is valid only while the handler runs.
    pub(crate) fn drop_head(&mut self) {
        // Needed again to accept an upgrade later.
        if self.upgrade.is_some() {
            return;
        }
        self.headers = HeaderMap::new();
        self.uri = Uri::default();
    }

    /// Returns the request, and the response written so far, for another handler, unless the
    /// response has begun.
    pub(crate) fn hand_over(&mut self) -> Option<(Request, Responder, Parameters, Response)> {
        let begun = self.head(self.status);
        let responder = self.responder.take()?;
        let request = Request {
            method: std::mem::take(&mut self.method),
            uri: std::mem::take(&mut self.uri),
            headers: std::mem::take(&mut self.headers),
            peer: self.peer.clone(),
            upgrade: self.upgrade.take(),
            body: self.content.incoming.take()?,
        };
        Some((request, responder, std::mem::take(&mut self.parameters), begun))
    }

    /// Takes the upgrade request, if there is one and it has not been answered.
    pub(crate) fn take_upgrade(&mut self) -> Option<UpgradeRequest> {
        let upgrade = self.upgrade.take()?;
        let (responder, body) = (self.responder.take()?, self.content.incoming.take()?);
        let fields = std::mem::take(&mut self.fields);
        // Copies, because the handler may continue to read them.
        let (headers, uri) = (self.headers.clone(), self.uri.clone());
        Some(UpgradeRequest {
            responder,
            peer: self.peer.clone(),
            upgrade,
            body,
            fields,
            headers,
            uri,
        })
    }

    /// Returns the status to send. A success status would accept a CONNECT upgrade that no handler
    /// serves, so it becomes 403.
    fn response_status(&self) -> StatusCode {
        let grants =
            self.method == Method::CONNECT && self.upgrade.is_some() && self.status.is_success();
        if grants { StatusCode::FORBIDDEN } else { self.status }
    }

    fn head(&mut self, status: StatusCode) -> Response {
        let mut response = Response::new(status);
        std::mem::swap(&mut response.headers, &mut self.fields);
        response
    }

    /// Responds with this content, or ends a begun response with it.
    ///
    /// Fills `response`. The caller sends it with the returned responder when nothing of the addon
    /// is borrowed.
    pub(crate) fn end(
        &mut self,
        content: Bytes,
        close: bool,
        response: &mut Response,
    ) -> Option<Responder> {
        if let Some(pipe) = self.pipe.take() {
            if let Some(keep_alive) = self.keep_alive.take().filter(|_| close) {
                keep_alive.disable();
            }
            pipe.push(content);
            pipe.end();
            return None;
        }
        self.close_connection(close);
        response.status = self.response_status();
        std::mem::swap(&mut response.headers, &mut self.fields);
        response.body = content.into();
        self.responder.take()
    }

    /// Ends a begun response with this content and trailers.
    pub(crate) fn end_with_trailers(&mut self, content: Bytes, trailers: HeaderMap) {
        if let Some(pipe) = self.pipe.take() {
            pipe.push(content);
            pipe.end_with(trailers);
        }
    }

    /// Responds without content; `reported`: the announced length, as for HEAD.
    pub(crate) fn end_without_content(
        &mut self,
        reported: Option<u64>,
        close: bool,
        response: &mut Response,
    ) -> Option<Responder> {
        if let Some(length) = reported.filter(|_| self.pipe.is_none()) {
            self.fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        self.end(Bytes::new(), close, response)
    }

    fn close_connection(&mut self, close: bool) {
        if close {
            self.fields.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Aborts the response: resets the stream, or closes the HTTP/1.1 connection. The caller aborts
    /// the returned responder when nothing of the addon is borrowed.
    pub(crate) fn abort(&mut self) -> Option<Responder> {
        if let Some(pipe) = self.pipe.take() {
            pipe.fail();
        }
        self.responder.take()
    }

    /// Begins a streamed response; `None` if it has begun already. `total`: its length in bytes.
    ///
    /// The caller sends the response when nothing of the addon is borrowed, because sending may
    /// drop it at once.
    pub(crate) fn begin_stream(
        &mut self,
        events: Rc<dyn Events>,
        slot: u32,
        total: Option<u64>,
    ) -> Option<(Responder, Response)> {
        let responder = self.responder.take()?;
        if let Some(total) = total {
            self.fields.insert(CONTENT_LENGTH, HeaderValue::from(total));
        }
        let is_head = self.method == Method::HEAD;
        let (listener, remote) = (self.listener, self.peer.remote);
        let reader = Reader { events, listener, remote, slot, is_head };
        let (pipe, body) = pipe(reader, self.expected_content());
        self.pipe = Some(pipe);
        self.keep_alive = Some(responder.keep_alive());
        Some((responder, self.head(self.response_status()).with_body(Body::stream(body))))
    }

    /// Returns the number of content bytes that the client takes, if known: 204 and 304 have none.
    fn expected_content(&self) -> Option<u64> {
        if matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Some(0);
        }
        self.fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    // ---- the request's content, and the peer leaving

    /// Reads the content, or pauses reading.
    pub(crate) fn read(&mut self, is_paused: bool) {
        self.content.is_wanted = true;
        self.content.is_paused = is_paused;
        self.pause_timer = None;
        self.wake();
    }

    /// Takes the received content.
    pub(crate) fn take_content(&mut self) -> Vec<Bytes> {
        self.content.announced = false;
        self.wake();
        std::mem::take(&mut self.content.pieces)
    }

    /// Returns the trailers, if any. They are available when the content has ended.
    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        self.content.trailers.as_ref()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Returns whether the caller has to spawn a watching future.
    pub(crate) fn begin_watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// Watches the exchange. Ready when there is nothing more to watch.
    pub(crate) fn poll(
        &mut self,
        slot: u32,
        events: &dyn Events,
        handle: &Handle,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if let Some(responder) = &mut self.responder
            && responder.poll_closed(cx).is_ready()
        {
            events.push(Event::Aborted { slot });
            return Poll::Ready(());
        }
        self.waker = Some(cx.waker().clone());
        if self.reads_on && self.content.is_paused {
            let pause_timer = self
                .pause_timer
                .get_or_insert_with(|| Box::pin(handle.sleep(PAUSE_AFTER_RESPONSE)));
            if pause_timer.as_mut().poll(cx).is_ready() {
                events.push(Event::Aborted { slot });
                return Poll::Ready(());
            }
        }
        let content = &mut self.content;
        if content.announced || content.is_paused || !content.is_wanted || content.has_ended {
            return Poll::Pending;
        }
        if content.poll(cx).is_err() {
            // The engine replaces this response by its own, or drops it if the peer has left.
            if let Some(responder) = self.responder.take() {
                responder.send(Response::new(StatusCode::BAD_REQUEST));
            }
            events.push(Event::Aborted { slot });
            return Poll::Ready(());
        }
        if content.has_ended || !content.pieces.is_empty() {
            content.announced = true;
            events.push(Event::Data { slot });
        }
        Poll::Pending
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The watching future finds the exchange gone, and ends.
        self.wake();
    }
}

impl Content {
    /// Takes the available frames.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), ()> {
        let mut bytes = 0;
        while let Some(incoming) = self.incoming.as_mut().filter(|_| bytes < CHUNK_BYTES) {
            match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.has_ended = true,
                Poll::Ready(Some(Err(_))) => {
                    self.incoming = None;
                    return Err(());
                }
                Poll::Ready(Some(Ok(frame))) => {
                    match frame.into_data() {
                        Ok(data) => {
                            bytes += data.len();
                            self.pieces.push(data);
                        }
                        Err(other) => self.trailers = other.into_trailers().ok(),
                    }
                    self.has_ended = incoming.is_end_stream();
                }
            }
            if self.has_ended {
                self.incoming = None;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use http::header::COOKIE;

    use super::*;

    const VALUE: HeaderValue = HeaderValue::from_static("value");

    fn kept(protocol: Protocol, headers: HeaderMap) -> HeaderMap {
        let mut exchange = Exchange::idle();
        exchange.peer.protocol = protocol;
        exchange.headers = headers;
        exchange.clear();
        assert!(exchange.headers.is_empty() && exchange.headers.capacity() == 0);
        std::mem::take(&mut exchange.fields)
    }

    #[test]
    fn lines_of_a_request_leave_an_empty_map() {
        for protocol in [Protocol::Http1, Protocol::Http3] {
            let fields = kept(protocol, HeaderMap::from_iter([(COOKIE, VALUE)]));
            assert!(fields.is_empty() && fields.capacity() > 0);
        }
    }

    #[test]
    fn map_whose_memory_has_grown_is_not_kept() {
        let name = |number: usize| HeaderName::try_from(format!("name-{number}")).unwrap();
        let many: HeaderMap = (0..=KEPT_LINES).map(|number| (name(number), VALUE)).collect();
        assert_eq!(kept(Protocol::Http3, many).capacity(), 0);
        let mut repeated = HeaderMap::new();
        for _ in 0..1000 {
            repeated.append(COOKIE, VALUE);
        }
        assert_eq!(kept(Protocol::Http3, repeated.clone()).capacity(), 0);
        // Joined cookie crumbs leave memory behind that the map does not show.
        repeated.insert(COOKIE, VALUE);
        assert_eq!(kept(Protocol::Http2, repeated).capacity(), 0);
    }
}
