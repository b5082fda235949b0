//! One request and its answer, as JavaScript and the engine share it.

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
use pronghorn_engine::{Body, Handle, Incoming, KeepAlive, Peer, Protocol, Request, Responder, Response, Sleep, Upgrade};

use crate::addon::{Addon, Event};
use crate::pipe::{Pipe, Reader, pipe};
use crate::router::Parameters;

/// How many bytes of a request's content go to JavaScript at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How long content may rest in `pause` when the response is complete, before it is given up.
const REST: Duration = Duration::from_secs(60);
/// A map of more lines is not kept for the next response.
const KEPT_LINES: usize = 24;

pub(crate) struct Exchange {
    pub(crate) app: u32,
    pub(crate) listening: u32,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    /// What the client asks to speak instead.
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) parameters: Parameters,
    /// How many routes have had their turn.
    pub(crate) tried: usize,
    pub(crate) responder: Option<Responder>,
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) pipe: Option<Pipe>,
    /// Where the response was begun.
    keep_alive: Option<KeepAlive>,
    /// Bytes of content given to the pipe.
    pub(crate) written: u64,
    content: Content,
    /// Its content goes on being read when it is answered.
    pub(crate) reads_on: bool,
    /// Runs while it rests and is answered.
    rest: Option<Pin<Box<Sleep>>>,
    /// A future looks after it.
    watched: bool,
    waker: Option<Waker>,
}

/// A wish for another protocol.
pub(crate) struct Asked {
    pub(crate) responder: Responder,
    pub(crate) peer: Peer,
    pub(crate) upgrade: Upgrade,
    pub(crate) body: Incoming,
    /// What JavaScript has written of the answer.
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
    /// What JavaScript has not taken yet.
    pieces: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    has_ended: bool,
    /// JavaScript has been told that there is something.
    announced: bool,
}

impl Exchange {
    /// One without a request, for [`Exchange::begin`].
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
            listening: 0,
            method: Method::GET,
            uri: Uri::default(),
            headers: HeaderMap::new(),
            peer,
            upgrade: None,
            parameters: Parameters::new(),
            tried: 1,
            responder: None,
            status: StatusCode::OK,
            fields: HeaderMap::new(),
            pipe: None,
            keep_alive: None,
            written: 0,
            content: Content::default(),
            reads_on: false,
            rest: None,
            watched: false,
            waker: None,
        }
    }

    /// Takes a request up, in one that is idle.
    // Inlined, all of the request would be moved once more.
    #[inline(never)]
    pub(crate) fn begin(&mut self, request: Request, responder: Responder, app: u32, listening: u32, parameters: Parameters) {
        self.app = app;
        self.listening = listening;
        self.method = request.method;
        self.uri = request.uri;
        self.headers = request.headers;
        self.peer = request.peer;
        // What follows the wish for another protocol is no content.
        self.content.has_ended = request.upgrade.is_some() || request.body.is_end_stream();
        self.content.incoming = Some(request.body);
        self.upgrade = request.upgrade;
        self.parameters = parameters;
        self.responder = Some(responder);
    }

    /// Lets go of all that it had, and is as [`Exchange::idle`] makes it. Lines of the next response may go where those of this request were.
    pub(crate) fn clear(&mut self) {
        // The future that looks after it finds it gone, and ends.
        self.wake();
        // Over HTTP/3 the map had room for all lines from the beginning, and over HTTP/1.1 none are joined, so that it can be told below how much
        // memory a client has made it take. HTTP/1.1's library in turn puts the lines of a request where those of the response before it were:
        // 72 bytes for each that the application repeated there do not show.
        if self.fields.capacity() == 0 && self.peer.protocol != Protocol::Http2 {
            std::mem::swap(&mut self.fields, &mut self.headers);
        }
        // Every one by its name, so that none that comes later is forgotten here.
        let Self {
            method,
            uri,
            headers,
            peer,
            upgrade,
            parameters,
            tried,
            responder,
            status,
            fields,
            pipe,
            keep_alive,
            written,
            content,
            reads_on,
            rest,
            watched,
            app: _,
            listening: _,
            waker: _,
        } = self;
        // Those with lines of the same name have memory besides.
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
        *tried = 1;
        *responder = None;
        *status = StatusCode::OK;
        *pipe = None;
        *keep_alive = None;
        *written = 0;
        *content = Content::default();
        *rest = None;
        (*reads_on, *watched) = (false, false);
    }

    pub(crate) fn has_content(&self) -> bool {
        !self.content.has_ended
    }

    /// Forgets what is valid only while its handler runs.
    pub(crate) fn forget_request(&mut self) {
        // To be granted later, it is looked at again.
        if self.upgrade.is_some() {
            return;
        }
        self.headers = HeaderMap::new();
        self.uri = Uri::default();
    }

    /// All of it, for somebody else to answer, if that has not begun: the request, and what was written of the response.
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

    /// The wish for another protocol, to grant it, if the request has one and is not answered.
    pub(crate) fn take_upgrade(&mut self) -> Option<Asked> {
        let upgrade = self.upgrade.take()?;
        let (responder, body) = (self.responder.take()?, self.content.incoming.take()?);
        let fields = std::mem::take(&mut self.fields);
        // Copies: the handler may read on.
        let (headers, uri) = (self.headers.clone(), self.uri.clone());
        Some(Asked { responder, peer: self.peer.clone(), upgrade, body, fields, headers, uri })
    }

    /// The status to answer with. Success would grant what CONNECT asks for, and there is nobody who speaks it.
    fn answered(&self) -> StatusCode {
        let grants = self.method == Method::CONNECT && self.upgrade.is_some() && self.status.is_success();
        if grants { StatusCode::FORBIDDEN } else { self.status }
    }

    fn head(&mut self, status: StatusCode) -> Response {
        let mut response = Response::new(status);
        std::mem::swap(&mut response.headers, &mut self.fields);
        response
    }

    /// Answers with this content, or ends what was begun with it.
    ///
    /// What it returns is to send `response`, which it fills, when nothing of the addon is borrowed.
    pub(crate) fn end(&mut self, content: Bytes, close: bool, response: &mut Response) -> Option<Responder> {
        if let Some(pipe) = self.pipe.take() {
            if let Some(keep_alive) = self.keep_alive.take().filter(|_| close) {
                keep_alive.disable();
            }
            pipe.push(content);
            pipe.end();
            return None;
        }
        self.close_connection(close);
        response.status = self.answered();
        std::mem::swap(&mut response.headers, &mut self.fields);
        response.body = content.into();
        self.responder.take()
    }

    /// Ends what was begun with this content, and trailers behind it.
    pub(crate) fn end_with_trailers(&mut self, content: Bytes, trailers: HeaderMap) {
        if let Some(pipe) = self.pipe.take() {
            pipe.push(content);
            pipe.end_with(trailers);
        }
    }

    /// Answers without content; `reported`: the length that is announced, as for HEAD.
    pub(crate) fn end_without_content(&mut self, reported: Option<u64>, close: bool, response: &mut Response) -> Option<Responder> {
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

    /// Gives up: resets the stream, or closes the connection of HTTP/1.1. What it returns is to be aborted when nothing of the addon is
    /// borrowed.
    pub(crate) fn abort(&mut self) -> Option<Responder> {
        if let Some(pipe) = self.pipe.take() {
            pipe.fail();
        }
        self.responder.take()
    }

    /// What begins a response whose content comes piece by piece; `None` if it has begun. `total`: how many bytes there will be.
    ///
    /// To be sent when nothing of the addon is borrowed, since that may drop it at once.
    pub(crate) fn begin_stream(&mut self, addon: &Rc<Addon>, slot: u32, total: Option<u64>) -> Option<(Responder, Response)> {
        let responder = self.responder.take()?;
        if let Some(total) = total {
            self.fields.insert(CONTENT_LENGTH, HeaderValue::from(total));
        }
        let is_head = self.method == Method::HEAD;
        let (listening, remote) = (self.listening, self.peer.remote);
        let reader = Reader { addon: addon.clone(), listening, remote, slot, is_head };
        let (pipe, body) = pipe(reader, self.expected_content());
        self.pipe = Some(pipe);
        self.keep_alive = Some(responder.keep_alive());
        Some((responder, self.head(self.answered()).with_body(Body::stream(body))))
    }

    /// How many bytes of content the client takes, if that is known before: 204 and 304 have none.
    fn expected_content(&self) -> Option<u64> {
        if matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Some(0);
        }
        self.fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    // ---- the request's content, and whether the peer is still there ----------------------------------------------------------

    /// Wants the content, or pauses it.
    pub(crate) fn read(&mut self, is_paused: bool) {
        self.content.is_wanted = true;
        self.content.is_paused = is_paused;
        self.rest = None;
        self.wake();
    }

    /// The content that has come.
    pub(crate) fn take_content(&mut self) -> Vec<Bytes> {
        self.content.announced = false;
        self.wake();
        std::mem::take(&mut self.content.pieces)
    }

    /// What came behind the content, if anything did. It is there when the content has ended.
    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        self.content.trailers.as_ref()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether a future has to be spawned to look after it.
    pub(crate) fn begin_watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// Ready when there is nothing more to look after.
    pub(crate) fn poll(&mut self, slot: u32, addon: &Addon, handle: &Handle, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(responder) = &mut self.responder
            && responder.poll_closed(cx).is_ready()
        {
            addon.push(Event::Aborted { slot });
            return Poll::Ready(());
        }
        self.waker = Some(cx.waker().clone());
        if self.reads_on && self.content.is_paused {
            let rest = self.rest.get_or_insert_with(|| Box::pin(handle.sleep(REST)));
            if rest.as_mut().poll(cx).is_ready() {
                addon.push(Event::Aborted { slot });
                return Poll::Ready(());
            }
        }
        let content = &mut self.content;
        if content.announced || content.is_paused || !content.is_wanted || content.has_ended {
            return Poll::Pending;
        }
        if content.poll(cx).is_err() {
            // The engine answers for what it does not take, and knows when there is nobody to answer.
            if let Some(responder) = self.responder.take() {
                responder.send(Response::new(StatusCode::BAD_REQUEST));
            }
            addon.push(Event::Aborted { slot });
            return Poll::Ready(());
        }
        if content.has_ended || !content.pieces.is_empty() {
            content.announced = true;
            addon.push(Event::Data { slot });
        }
        Poll::Pending
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The future that looks after it finds it gone, and ends.
        self.wake();
    }
}

impl Content {
    /// Takes what is there.
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
        // As crumbs of a cookie are joined: their memory is still there, and nothing shows it.
        repeated.insert(COOKIE, VALUE);
        assert_eq!(kept(Protocol::Http2, repeated).capacity(), 0);
    }
}
