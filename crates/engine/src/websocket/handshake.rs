//! The opening handshake over HTTP/1.1, HTTP/2 and HTTP/3.

use std::time::Duration;

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request as HttpRequest, StatusCode, Uri};
use pronghorn_websocket::handshake::{VERSION, accept, is_key, key, protocols};
use pronghorn_websocket::{Role, deflate};

use super::connection::{ConnectionLimits, WebSocket};
use crate::body::AbortHandle;
use crate::limits::Limits;
use crate::message::Protocol;
use crate::{Body, Connection, Error, Incoming, Request, Responder, Response, Upgrade};

const WEBSOCKET: &str = "websocket";

/// Options of one side of a WebSocket connection. Unset options come from [`Limits`]; a client uses
/// the defaults of [`Limits`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    protocols: Vec<String>,
    deflate: Option<deflate::Options>,
    message_bytes: Option<u64>,
    backlog_bytes: Option<u64>,
    timeout: Option<Duration>,
    without_pings: bool,
}

/// Longest timeout, ten years: it stands for "never".
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl Options {
    /// Adds a supported subprotocol. A server selects the first of the client's subprotocols that
    /// it supports. Default: none.
    #[must_use]
    pub fn with_protocol(mut self, name: &str) -> Self {
        self.protocols.push(name.to_owned());
        self
    }

    /// Compresses messages if the peer does, too. Default: no compression.
    #[must_use]
    pub fn with_deflate(self, deflate: deflate::Options) -> Self {
        Self { deflate: Some(deflate), ..self }
    }

    /// Sets the maximum size of a received message in bytes. Default:
    /// [`Limits::websocket_message_bytes`].
    #[must_use]
    pub fn with_message_bytes(self, bytes: u64) -> Self {
        Self { message_bytes: Some(bytes), ..self }
    }

    /// Sets how many bytes may be queued before [`Sender::send`](super::Sender::send) waits.
    /// Default: [`Limits::websocket_backlog_bytes`].
    #[must_use]
    pub fn with_backlog_bytes(self, bytes: u64) -> Self {
        Self { backlog_bytes: Some(bytes), ..self }
    }

    /// Sets how long the peer may be silent. It is sent a ping after half of that time. Default:
    /// [`Limits::websocket_timeout`]. With [`Duration::MAX`] there is no timeout; only the
    /// underlying connection then notices that a peer has vanished.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout.min(FOREVER)), ..self }
    }

    /// Sends no automatic pings: a peer that is silent for the timeout is disconnected. Default:
    /// pings are sent.
    #[must_use]
    pub fn without_pings(self) -> Self {
        Self { without_pings: true, ..self }
    }

    fn bounds(&self, limits: &Limits) -> ConnectionLimits {
        ConnectionLimits {
            message_bytes: self.message_bytes.unwrap_or(limits.websocket_message_bytes()),
            backlog_bytes: self.backlog_bytes.unwrap_or(limits.websocket_backlog_bytes()),
            timeout: self.timeout.unwrap_or(limits.websocket_timeout()),
            close_timeout: limits.websocket_close_timeout(),
            pings: !self.without_pings,
        }
    }
}

/// The reason why a request cannot start a WebSocket connection. It converts into the response to
/// send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The request is not a WebSocket upgrade: 426, or 400 over HTTP/2 and HTTP/3, which have no
    /// upgrade.
    #[error("the request is not a WebSocket upgrade")]
    NotAnUpgrade(Protocol),
    /// Unsupported version: 426 with the supported one.
    #[error("unsupported WebSocket version: only 13 is supported")]
    Version,
    /// Missing or invalid `sec-websocket-key`: 400.
    #[error("missing or invalid `sec-websocket-key`")]
    Key,
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotAnUpgrade(Protocol::Http1) => Response::new(StatusCode::UPGRADE_REQUIRED)
                .with_header(CONNECTION, HeaderValue::from_static("upgrade"))
                .with_header(UPGRADE, HeaderValue::from_static(WEBSOCKET)),
            //= RFC 6455 section 4.4
            //# If the server doesn't support the requested version, it MUST respond with a |Sec-WebSocket-Version| header field (or multiple
            //# |Sec-WebSocket-Version| header fields) containing all versions it is willing to use.
            Refusal::Version => Response::new(StatusCode::UPGRADE_REQUIRED)
                .with_header(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION)),
            Refusal::NotAnUpgrade(_) | Refusal::Key => Response::new(StatusCode::BAD_REQUEST),
        }
    }
}

/// A valid WebSocket upgrade request, ready to be accepted.
#[derive(Debug)]
pub struct WebSocketUpgrade {
    options: Options,
    headers: HeaderMap,
    protocol: Option<String>,
    agreed: Option<deflate::Negotiated>,
}

impl WebSocketUpgrade {
    /// Validates the request's head. Checking `origin` is left to the caller (RFC 6455 section
    /// 10.2).
    ///
    /// # Errors
    ///
    /// When the request is not a WebSocket upgrade, or an invalid one.
    pub fn from_request(request: &Request, options: &Options) -> Result<Self, Refusal> {
        let protocol = request.peer.protocol;
        if request.upgrade.as_ref().is_none_or(|upgrade| upgrade.protocol() != WEBSOCKET) {
            return Err(Refusal::NotAnUpgrade(protocol));
        }
        if only(&request.headers, &SEC_WEBSOCKET_VERSION) != Some(VERSION) {
            return Err(Refusal::Version);
        }
        let mut headers = HeaderMap::new();
        // RFC 8441, section 5: over HTTP/2 and HTTP/3, `:protocol` replaces the key and its
        // acceptance.
        if protocol == Protocol::Http1 {
            let key = only(&request.headers, &SEC_WEBSOCKET_KEY)
                .filter(|key| is_key(key))
                .ok_or(Refusal::Key)?;
            headers.insert(SEC_WEBSOCKET_ACCEPT, value(&accept(key)));
        }
        let subprotocol = protocols(lines(&request.headers, &SEC_WEBSOCKET_PROTOCOL))
            .find(|name| options.protocols.iter().any(|own| own == name))
            .map(str::to_owned);
        if let Some(name) = &subprotocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value(name));
        }
        let deflate = options
            .deflate
            .and_then(|deflate| deflate.answer(lines(&request.headers, &SEC_WEBSOCKET_EXTENSIONS)));
        let agreed = deflate.map(|(agreed, answer)| {
            headers.insert(SEC_WEBSOCKET_EXTENSIONS, value(&answer));
            agreed
        });
        Ok(Self { options: options.clone(), headers, protocol: subprotocol, agreed })
    }

    /// Returns the selected subprotocol, if both sides share one.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Returns the response's fields, to add others.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// Accepts the request. `body` must be the request's body.
    pub fn accept(self, responder: Responder, body: Incoming) -> WebSocket {
        let context = responder.context().clone();
        let bounds = self.options.bounds(&context.config.limits);
        let (finish, outgoing) = WebSocket::new(
            Role::Server,
            self.agreed,
            bounds,
            AbortHandle::default(),
            &context.handle,
            Some(context.stats.clone()),
        );
        responder.upgrade(self.headers, outgoing);
        finish(body, self.protocol)
    }
}

/// The reason why a client got no WebSocket connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The server answered with another response.
    #[error("the server refused the upgrade with {}", .0.status())]
    Refused(Box<http::Response<Incoming>>),
    /// The server accepted something that the client did not offer.
    #[error("invalid handshake response: {0}")]
    Invalid(&'static str),
}

/// Opens a WebSocket connection to `uri`, whose scheme is `http` or `https`, over a connection to
/// its server.
///
/// # Errors
///
/// When the server refuses the upgrade, or its response is invalid.
///
/// # Cancel safety
///
/// Dropping the future cancels the request.
pub async fn connect(
    connection: &mut Connection,
    uri: Uri,
    mut headers: HeaderMap,
    options: &Options,
) -> Result<WebSocket, ConnectError> {
    let bounds = options.bounds(&Limits::default());
    let sent_key = key(rand::random());
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
    if connection.protocol() == Protocol::Http1 {
        headers.insert(SEC_WEBSOCKET_KEY, value(&sent_key));
    }
    if !options.protocols.is_empty() {
        let names = HeaderValue::from_str(&options.protocols.join(", "))
            .map_err(|_| ConnectError::Invalid("a subprotocol is not a token"))?;
        headers.insert(SEC_WEBSOCKET_PROTOCOL, names);
    }
    if let Some(deflate) = &options.deflate {
        headers.insert(SEC_WEBSOCKET_EXTENSIONS, value(&deflate.offer()));
    }
    // Extensions are known only after the response, and nothing is sent before it.
    let (mut tunnel, deferred_body) = deferred_body::deferred_body();
    let cut = AbortHandle::default();
    tunnel.set_abort_handle(cut.clone());
    let mut request = HttpRequest::new(tunnel);
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request.extensions_mut().insert(Upgrade::new(WEBSOCKET));
    let response = connection.send(request).await?;
    let granted = if connection.protocol() == Protocol::Http1 {
        StatusCode::SWITCHING_PROTOCOLS
    } else {
        StatusCode::OK
    };
    if response.status() != granted {
        // The request was valid, so its body ends normally.
        deferred_body.set(Body::empty());
        return Err(ConnectError::Refused(Box::new(response)));
    }
    let answer = response.headers();
    if granted == StatusCode::SWITCHING_PROTOCOLS
        && only(answer, &SEC_WEBSOCKET_ACCEPT) != Some(&accept(&sent_key))
    {
        return Err(ConnectError::Invalid("missing or wrong `sec-websocket-accept`"));
    }
    let protocol = match lines(answer, &SEC_WEBSOCKET_PROTOCOL).next() {
        None => None,
        Some(name) if options.protocols.iter().any(|own| own == name) => Some(name.to_owned()),
        Some(_) => return Err(ConnectError::Invalid("the subprotocol was not offered")),
    };
    let extensions = || lines(answer, &SEC_WEBSOCKET_EXTENSIONS);
    let agreed = match &options.deflate {
        Some(deflate) => deflate
            .accept(extensions())
            .map_err(|_| ConnectError::Invalid("an extension was not offered"))?,
        None if extensions().next().is_some() => {
            return Err(ConnectError::Invalid("an extension was not offered"));
        }
        None => None,
    };
    let (finish, outgoing) = WebSocket::new(
        Role::Client { mask: rand::random },
        agreed,
        bounds,
        cut,
        connection.handle(),
        None,
    );
    deferred_body.set(outgoing);
    Ok(finish(response.into_body(), protocol))
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("invariant: made of visible ASCII")
}

fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().filter_map(|line| line.to_str().ok())
}

/// Returns the value of a field, or `None` unless it occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    if lines.next().is_some() { None } else { line.to_str().ok() }
}

mod deferred_body {
    use std::cell::RefCell;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use http_body::Frame;

    use crate::websocket::Error;
    use crate::{Body, BodyError};

    #[derive(Default)]
    enum State {
        #[default]
        Awaited,
        Polled(Waker),
        Given(Body),
        /// The body will never be provided.
        Failed,
    }

    /// Provides the body. If it is dropped first, the body fails, so that the stream does not wait
    /// forever.
    pub(super) struct BodySlot(Rc<RefCell<State>>);

    struct DeferredBody(Rc<RefCell<State>>);

    /// Creates a body whose content is provided later.
    pub(super) fn deferred_body() -> (Body, BodySlot) {
        let state = Rc::<RefCell<State>>::default();
        (Body::stream(DeferredBody(state.clone())), BodySlot(state))
    }

    impl BodySlot {
        pub(super) fn set(self, body: Body) {
            self.change(State::Given(body));
        }

        fn change(&self, state: State) {
            if let State::Polled(waker) = self.0.replace(state) {
                waker.wake();
            }
        }
    }

    impl Drop for BodySlot {
        fn drop(&mut self) {
            let is_given = matches!(*self.0.borrow(), State::Given(_));
            if !is_given {
                self.change(State::Failed);
            }
        }
    }

    impl http_body::Body for DeferredBody {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let mut state = self.0.borrow_mut();
            match &mut *state {
                State::Given(body) => Pin::new(body).poll_frame(cx),
                State::Failed => Poll::Ready(Some(Err(Error::Aborted.into()))),
                waiting => {
                    *waiting = State::Polled(cx.waker().clone());
                    Poll::Pending
                }
            }
        }
    }
}
