//! The opening handshake, over the three protocols.

use std::time::Duration;

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request as HttpRequest, StatusCode, Uri};
use pronghorn_websocket::handshake::{VERSION, accept, is_key, key, protocols};
use pronghorn_websocket::{Role, deflate};

use super::{Bounds, WebSocket};
use crate::body::Cut;
use crate::limits::Limits;
use crate::message::Protocol;
use crate::{Body, Connection, Error, Incoming, Request, Responder, Response, Upgrade};

const WEBSOCKET: &str = "websocket";

/// What one side wants of a WebSocket connection. What is not set comes from [`Limits`]: on the client's side from their default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    protocols: Vec<String>,
    deflate: Option<deflate::Options>,
    message_bytes: Option<u64>,
    backlog_bytes: Option<u64>,
    timeout: Option<Duration>,
    without_pings: bool,
}

/// A time-out that nobody lives to see, of ten years.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl Options {
    /// Another subprotocol that is spoken. A server takes the first of the client's that is among its own. Default: none.
    #[must_use]
    pub fn with_protocol(mut self, name: &str) -> Self {
        self.protocols.push(name.to_owned());
        self
    }

    /// Compresses messages where the peer does, too. Default: no.
    #[must_use]
    pub fn with_deflate(self, deflate: deflate::Options) -> Self {
        Self { deflate: Some(deflate), ..self }
    }

    /// Bytes of a message that is received. Default: [`Limits::websocket_message_bytes`].
    #[must_use]
    pub fn with_message_bytes(self, bytes: u64) -> Self {
        Self { message_bytes: Some(bytes), ..self }
    }

    /// Bytes that may wait to be sent before a sender has to wait. Default: [`Limits::websocket_backlog_bytes`].
    #[must_use]
    pub fn with_backlog_bytes(self, bytes: u64) -> Self {
        Self { backlog_bytes: Some(bytes), ..self }
    }

    /// How long the peer may be silent. It is asked when half of that has passed. Default: [`Limits::websocket_timeout`].
    /// [`Duration::MAX`] is for ever; that a peer has vanished is then noticed by the connection below alone.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout.min(FOREVER)), ..self }
    }

    /// The peer is not asked by itself: one that has nothing to say in time is given up. Default: it is asked.
    #[must_use]
    pub fn without_pings(self) -> Self {
        Self { without_pings: true, ..self }
    }

    fn bounds(&self, limits: &Limits) -> Bounds {
        Bounds {
            message_bytes: self.message_bytes.unwrap_or(limits.websocket_message_bytes()),
            backlog_bytes: self.backlog_bytes.unwrap_or(limits.websocket_backlog_bytes()),
            timeout: self.timeout.unwrap_or(limits.websocket_timeout()),
            close_timeout: limits.websocket_close_timeout(),
            pings: !self.without_pings,
        }
    }
}

/// Why a request begins no WebSocket connection. It turns into the response that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It does not ask for one: 426, or 400 over HTTP/2 and HTTP/3, which have no upgrade.
    #[error("the request asks for no WebSocket connection")]
    NotWebSocket(Protocol),
    /// It wants another version: 426 with the one that there is.
    #[error("the version is not 13")]
    Version,
    /// Its key is missing or none: 400.
    #[error("the key is not valid")]
    Key,
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotWebSocket(Protocol::Http1) => Response::new(StatusCode::UPGRADE_REQUIRED)
                .with_header(CONNECTION, HeaderValue::from_static("upgrade"))
                .with_header(UPGRADE, HeaderValue::from_static(WEBSOCKET)),
            //= RFC 6455 section 4.4
            //# If the server doesn't support the requested version, it MUST respond with a |Sec-WebSocket-Version| header field (or multiple
            //# |Sec-WebSocket-Version| header fields) containing all versions it is willing to use.
            Refusal::Version => {
                Response::new(StatusCode::UPGRADE_REQUIRED).with_header(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION))
            }
            Refusal::NotWebSocket(_) | Refusal::Key => Response::new(StatusCode::BAD_REQUEST),
        }
    }
}

/// A request that asks for a WebSocket connection and may be granted.
#[derive(Debug)]
pub struct WebSocketUpgrade {
    options: Options,
    headers: HeaderMap,
    protocol: Option<String>,
    agreed: Option<deflate::Agreed>,
}

impl WebSocketUpgrade {
    /// Looks at the request's head. Whether its `origin` is welcome is for the caller to say (RFC 6455 section 10.2).
    ///
    /// # Errors
    ///
    /// When the request asks for something else, or not as it should.
    pub fn from_request(request: &Request, options: &Options) -> Result<Self, Refusal> {
        let protocol = request.peer.protocol;
        if request.upgrade.as_ref().is_none_or(|upgrade| upgrade.protocol() != WEBSOCKET) {
            return Err(Refusal::NotWebSocket(protocol));
        }
        if only(&request.headers, &SEC_WEBSOCKET_VERSION) != Some(VERSION) {
            return Err(Refusal::Version);
        }
        let mut headers = HeaderMap::new();
        // RFC 8441, section 5: over the others `:protocol` says what the key and its acceptance say here.
        if protocol == Protocol::Http1 {
            let key = only(&request.headers, &SEC_WEBSOCKET_KEY).filter(|key| is_key(key)).ok_or(Refusal::Key)?;
            headers.insert(SEC_WEBSOCKET_ACCEPT, value(&accept(key)));
        }
        let subprotocol = protocols(lines(&request.headers, &SEC_WEBSOCKET_PROTOCOL))
            .find(|name| options.protocols.iter().any(|own| own == name))
            .map(str::to_owned);
        if let Some(name) = &subprotocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value(name));
        }
        let deflate = options.deflate.and_then(|deflate| deflate.answer(lines(&request.headers, &SEC_WEBSOCKET_EXTENSIONS)));
        let agreed = deflate.map(|(agreed, answer)| {
            headers.insert(SEC_WEBSOCKET_EXTENSIONS, value(&answer));
            agreed
        });
        Ok(Self { options: options.clone(), headers, protocol: subprotocol, agreed })
    }

    /// The subprotocol, if both sides speak one.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The fields of the response, to add others.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// Grants the request. `body` is its own.
    pub fn accept(self, responder: Responder, body: Incoming) -> WebSocket {
        let context = responder.context().clone();
        let bounds = self.options.bounds(&context.config.limits);
        let (finish, outgoing) =
            WebSocket::new(Role::Server, self.agreed, bounds, Cut::default(), &context.handle, Some(context.stats.clone()));
        responder.upgrade(self.headers, outgoing);
        finish(body, self.protocol)
    }
}

/// Why a client got no WebSocket connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// The server answered something else.
    #[error("the server answered {}", .0.status())]
    Refused(Box<http::Response<Incoming>>),
    /// The server granted what was not asked for.
    #[error("the server's answer is not valid: {0}")]
    Invalid(&'static str),
}

/// Asks for a WebSocket connection at `uri`, whose scheme is `http` or `https`, over a connection to its server.
///
/// # Errors
///
/// When the server does not grant it, or not as it should.
///
/// # Cancel safety
///
/// Dropping the future cancels the request.
pub async fn connect(connection: &mut Connection, uri: Uri, mut headers: HeaderMap, options: &Options) -> Result<WebSocket, ConnectError> {
    let bounds = options.bounds(&Limits::default());
    let sent_key = key(rand::random());
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
    if connection.protocol() == Protocol::Http1 {
        headers.insert(SEC_WEBSOCKET_KEY, value(&sent_key));
    }
    if !options.protocols.is_empty() {
        let names = HeaderValue::from_str(&options.protocols.join(", ")).map_err(|_| ConnectError::Invalid("a subprotocol is no token"))?;
        headers.insert(SEC_WEBSOCKET_PROTOCOL, names);
    }
    if let Some(deflate) = &options.deflate {
        headers.insert(SEC_WEBSOCKET_EXTENSIONS, value(&deflate.offer()));
    }
    // What is agreed on is not known before the answer, and nothing is sent before that.
    let (mut tunnel, later) = later::later();
    let cut = Cut::default();
    tunnel.set_cut(cut.clone());
    let mut request = HttpRequest::new(tunnel);
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request.extensions_mut().insert(Upgrade::new(WEBSOCKET));
    let response = connection.send(request).await?;
    let granted = if connection.protocol() == Protocol::Http1 { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
    if response.status() != granted {
        // Nothing is wrong with the request, so its end is an ordinary one.
        later.set(Body::empty());
        return Err(ConnectError::Refused(Box::new(response)));
    }
    let answer = response.headers();
    if granted == StatusCode::SWITCHING_PROTOCOLS && only(answer, &SEC_WEBSOCKET_ACCEPT) != Some(&accept(&sent_key)) {
        return Err(ConnectError::Invalid("the key was not accepted"));
    }
    let protocol = match lines(answer, &SEC_WEBSOCKET_PROTOCOL).next() {
        None => None,
        Some(name) if options.protocols.iter().any(|own| own == name) => Some(name.to_owned()),
        Some(_) => return Err(ConnectError::Invalid("the subprotocol was not asked for")),
    };
    let extensions = || lines(answer, &SEC_WEBSOCKET_EXTENSIONS);
    let agreed = match &options.deflate {
        Some(deflate) => deflate.accept(extensions()).map_err(|_| ConnectError::Invalid("an extension was not asked for"))?,
        None if extensions().next().is_some() => return Err(ConnectError::Invalid("an extension was not asked for")),
        None => None,
    };
    let (finish, outgoing) = WebSocket::new(Role::Client { mask: rand::random }, agreed, bounds, cut, connection.handle(), None);
    later.set(outgoing);
    Ok(finish(response.into_body(), protocol))
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("invariant: made of visible ASCII")
}

fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().filter_map(|line| line.to_str().ok())
}

/// The value of a field that may occur once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    if lines.next().is_some() { None } else { line.to_str().ok() }
}

mod later {
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
        /// There will be none.
        Failed,
    }

    /// Gives the body. Dropped before, it fails it, so that the stream does not wait for ever.
    pub(super) struct Giver(Rc<RefCell<State>>);

    struct Later(Rc<RefCell<State>>);

    /// A body that is given later.
    pub(super) fn later() -> (Body, Giver) {
        let state = Rc::<RefCell<State>>::default();
        (Body::stream(Later(state.clone())), Giver(state))
    }

    impl Giver {
        pub(super) fn set(self, body: Body) {
            self.change(State::Given(body));
        }

        fn change(&self, state: State) {
            if let State::Polled(waker) = self.0.replace(state) {
                waker.wake();
            }
        }
    }

    impl Drop for Giver {
        fn drop(&mut self) {
            let is_given = matches!(*self.0.borrow(), State::Given(_));
            if !is_given {
                self.change(State::Failed);
            }
        }
    }

    impl http_body::Body for Later {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
