//! WebTransport over HTTP/3: sessions with their own streams and datagrams, next to the requests of
//! a connection.
//!
//! [`Config::webtransport`](crate::Config::webtransport) enables it. A handler accepts a session
//! with [`WebTransport::accept`], a client opens one with [`WebTransport::connect`]. From there on
//! both sides have the same API.

mod streams;

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

pub use streams::{RecvStream, SendStream};

use crate::http3::{
    CapsuleQueue, DatagramError, DatagramSender, Session, SessionEnd, SessionStream,
    SessionStreamError, WEBTRANSPORT, WaitFor,
};
use crate::transport::Dir;
use crate::{Body, Connection, Error, Incoming, Request, Responder, Response, Upgrade};

/// Field with the draft version in use (draft-ietf-webtrans-http3-02 section 3.3 and before).
const DRAFT: HeaderName = HeaderName::from_static("sec-webtransport-http3-draft");
const DRAFT_02: HeaderName = HeaderName::from_static("sec-webtransport-http3-draft02");

/// A WebTransport session. Dropping the last handle closes it with code 0.
#[derive(Clone)]
pub struct WebTransport(Rc<Handle>);

struct Handle {
    session: Rc<Session>,
    runtime: crate::Handle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.close(0, "");
    }
}

/// The reason why a client got no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection does not speak HTTP/3, or the server does not support WebTransport.
    #[error("the server does not support WebTransport")]
    Unsupported,
    /// The server refused the session with this status.
    #[error("the server refused the session with {0}")]
    Refused(StatusCode),
    /// The request failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl WebTransport {
    /// Whether a request opens a session, which [`WebTransport::accept`] can accept.
    ///
    /// Any web page can open a session to this server unless the handler checks the `origin` field,
    /// which browsers send. Any response, such as 403 or 404, refuses the session.
    pub fn is_requested(request: &Request) -> bool {
        request.upgrade.as_ref().is_some_and(|upgrade| upgrade.protocol() == WEBTRANSPORT)
            && request.body.http3_stream().is_some()
    }

    /// Accepts a session: sends a 200 response with these fields. Returns `None` after answering
    /// 400 if the request does not open a session, or 405 if WebTransport is not enabled
    /// ([`Config::webtransport`](crate::Config::webtransport)).
    pub fn accept(request: Request, responder: Responder, mut headers: HeaderMap) -> Option<Self> {
        if !Self::is_requested(&request) {
            responder.send(Response::new(StatusCode::BAD_REQUEST));
            return None;
        }
        let stream = request.body.http3_stream()?;
        let context = responder.context().clone();
        if !context.config.webtransport {
            responder.send(Response::new(StatusCode::METHOD_NOT_ALLOWED));
            return None;
        }
        if request.headers.contains_key(DRAFT_02) {
            headers.insert(DRAFT, HeaderValue::from_static("draft02"));
        }
        let capsules = CapsuleQueue::default();
        let session = Session::new(stream, &context, capsules.clone());
        responder.upgrade(headers, Body::stream(capsules.content()));
        Some(Self::run(session, request.body, &context.handle))
    }

    /// Opens a session at `uri`, with these request fields.
    ///
    /// # Errors
    ///
    /// When the connection does not speak HTTP/3, the server does not support WebTransport, or it
    /// refuses the session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn connect(
        connection: &mut Connection,
        uri: Uri,
        mut headers: HeaderMap,
    ) -> Result<Self, ConnectError> {
        let context = connection.http3().ok_or(ConnectError::Unsupported)?.context();
        headers.insert(DRAFT_02, HeaderValue::from_static("1"));
        let capsules = CapsuleQueue::default();
        let mut request = http::Request::new(Body::stream(capsules.content()));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) =
            (Method::CONNECT, uri, headers);
        request.extensions_mut().insert(Upgrade::new(WEBTRANSPORT));
        let response = connection.send(request).await.map_err(|error| match error {
            Error::NoUpgrade(_) => ConnectError::Unsupported,
            error => ConnectError::Failed(error),
        })?;
        if !response.status().is_success() {
            return Err(ConnectError::Refused(response.status()));
        }
        let incoming = response.into_body();
        let stream = incoming.http3_stream().ok_or(ConnectError::Unsupported)?;
        Ok(Self::run(Session::new(stream, &context, capsules), incoming, &context.handle))
    }

    fn run(session: Rc<Session>, incoming: Incoming, runtime: &crate::Handle) -> Self {
        runtime.spawn(session.clone().run(incoming));
        Self(Rc::new(Handle { session, runtime: runtime.clone() }))
    }

    /// Returns the worker that the session is on, to spawn futures that serve it.
    pub fn handle(&self) -> &crate::Handle {
        &self.0.runtime
    }

    /// Waits for a bidirectional stream that the peer opens.
    ///
    /// # Errors
    ///
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), SessionEnd> {
        let stream = self.accept_stream(Dir::Bidi).await?;
        Ok((SendStream::new(stream.clone()), RecvStream::new(stream)))
    }

    /// Waits for a unidirectional stream that the peer opens.
    ///
    /// # Errors
    ///
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    pub async fn accept_uni(&self) -> Result<RecvStream, SessionEnd> {
        self.accept_stream(Dir::Uni).await.map(RecvStream::new)
    }

    async fn accept_stream(&self, dir: Dir) -> Result<Rc<SessionStream>, SessionEnd> {
        let mut ticket = self.0.session.ticket(WaitFor::Stream(dir));
        poll_fn(|cx| self.0.session.poll_accept(&mut ticket, cx, dir)).await
    }

    /// Opens a bidirectional stream as soon as the peer's stream limit allows.
    ///
    /// # Errors
    ///
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the stream, which may already be open.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), SessionStreamError> {
        let stream = self.0.session.open(Dir::Bidi);
        let (send, receive) = (SendStream::new(stream.clone()), RecvStream::new(stream.clone()));
        poll_fn(|cx| stream.poll_opened(cx)).await?;
        Ok((send, receive))
    }

    /// Opens a unidirectional stream as soon as the peer's stream limit allows.
    ///
    /// # Errors
    ///
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the stream, which may already be open.
    pub async fn open_uni(&self) -> Result<SendStream, SessionStreamError> {
        let stream = self.0.session.open(Dir::Uni);
        let send = SendStream::new(stream.clone());
        poll_fn(|cx| stream.poll_opened(cx)).await?;
        Ok(send)
    }

    /// Waits for a datagram from the peer.
    ///
    /// # Errors
    ///
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no datagram.
    pub async fn read_datagram(&self) -> Result<Bytes, SessionEnd> {
        let mut ticket = self.0.session.ticket(WaitFor::Datagram);
        poll_fn(|cx| self.0.session.poll_datagram(&mut ticket, cx)).await
    }

    /// Sends a datagram, which arrives once or not at all. If the send queue exceeds
    /// [`Limits::webtransport_datagram_bytes`](crate::Limits::webtransport_datagram_bytes), the
    /// oldest datagrams are dropped.
    ///
    /// # Errors
    ///
    /// When the datagram is too large, the peer does not support datagrams, or the session is over.
    pub fn send_datagram(&self, datagram: impl Into<Bytes>) -> Result<(), DatagramError> {
        self.0.session.send_datagram(datagram.into())
    }

    /// Returns the largest datagram that can be sent now, in bytes; it changes with the path.
    /// Returns `None` if the peer does not support datagrams, or while the connection has not
    /// registered the session yet; a datagram sent then is lost if it turns out to be too large.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.0.session.datagram_sender().max_size()
    }

    /// Returns a sender for datagrams that works on any thread; [`WebTransport::send_datagram`]
    /// works only on the worker's.
    pub fn datagram_sender(&self) -> DatagramSender {
        self.0.session.datagram_sender().clone()
    }

    /// Waits for the end of the session, and returns its cause.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn closed(&self) -> SessionEnd {
        let mut ticket = self.0.session.ticket(WaitFor::End);
        poll_fn(|cx| self.0.session.poll_end(&mut ticket, cx)).await
    }

    /// Closes the session. `reason` is truncated to 1024 bytes. Unfinished streams are reset on
    /// both sides.
    pub fn close(&self, code: u32, reason: &str) {
        self.0.session.close(code, reason);
    }

    /// Asks the peer to finish the session (drain). The session goes on until one side closes it.
    pub fn drain(&self) {
        self.0.session.drain();
    }

    /// Waits until the peer drains the session, the connection is going away, or the session has
    /// ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn draining(&self) {
        let mut ticket = self.0.session.ticket(WaitFor::End);
        poll_fn(|cx| self.0.session.poll_draining(&mut ticket, cx)).await;
    }
}

impl fmt::Debug for WebTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTransport").finish_non_exhaustive()
    }
}
