//! From a request for a session to the session.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use pronghorn_engine::{Request, Responder, Response};

use super::WebTransport;
use crate::Body;
use crate::handler::unless_closed;

type Serve = Box<dyn FnOnce(WebTransport) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A request for a WebTransport session: an extension of such requests, if [`Server::webtransport`](crate::Server::webtransport) offers
/// sessions.
///
/// It is accepted with the response of [`WebTransportUpgrade::on_session`], and refused with any other, such as 403 or 404. A browser lets
/// every page ask: look at the request's `origin` before you accept it.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use pronghorn_server::{Body, WebTransportUpgrade};
///
/// fn enter(request: &Request<Body>) -> Response<Body> {
///     let is_ours = request.headers().get("origin").is_some_and(|origin| origin == "https://example.org");
///     match request.extensions().get::<WebTransportUpgrade>() {
///         Some(upgrade) if is_ours => upgrade.on_session(async |session| {
///             let _ = session.send_datagram("hello");
///             session.closed().await;
///         }),
///         _ => {
///             let mut refusal = Response::new(Body::empty());
///             *refusal.status_mut() = StatusCode::FORBIDDEN;
///             refusal
///         }
///     }
/// }
/// # enter(&Request::new(Body::empty()));
/// ```
///
/// With the feature `axum` it is an extractor too, which answers 400 to other requests: `async fn enter(upgrade: WebTransportUpgrade) -> …`. The
/// route is one of `any(…)` or `connect(…)`.
#[derive(Clone, Default)]
pub struct WebTransportUpgrade(Arc<Mutex<Option<Serve>>>);

impl WebTransportUpgrade {
    /// The response that accepts the session: 200, to which fields may be added. Once it is sent, `serve` gets the session, in a task on the
    /// worker's thread; dropped at its end, and nowhere else, the session is closed with code 0.
    ///
    /// If another response is sent in the end, `serve` is dropped.
    ///
    /// ```
    /// use http::{HeaderValue, Response};
    /// use pronghorn_server::{Body, WebTransportUpgrade};
    ///
    /// fn enter(upgrade: WebTransportUpgrade) -> Response<Body> {
    ///     let mut accepted = upgrade.on_session(async |session| {
    ///         while let Ok(datagram) = session.read_datagram().await {
    ///             let _ = session.send_datagram(datagram);
    ///         }
    ///     });
    ///     accepted.headers_mut().insert("x-room", HeaderValue::from_static("7"));
    ///     accepted
    /// }
    /// # let _ = enter;
    /// ```
    pub fn on_session<F, T>(&self, serve: F) -> http::Response<Body>
    where
        F: FnOnce(WebTransport) -> T + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        self.put(Some(Box::new(move |session| Box::pin(serve(session)))));
        http::Response::new(Body::empty())
    }

    fn put(&self, serve: Option<Serve>) -> Option<Serve> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), serve)
    }
}

impl fmt::Debug for WebTransportUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTransportUpgrade").finish_non_exhaustive()
    }
}

/// Answers a request for a session with what `answer` says, and begins the session if it accepts that. It is dropped when the client leaves.
pub(crate) async fn run<F>(request: Request, mut responder: Responder, answer: impl FnOnce(WebTransportUpgrade) -> F)
where
    F: Future<Output = Response>,
{
    let upgrade = WebTransportUpgrade::default();
    let Some(mut response) = unless_closed(&mut responder, answer(upgrade.clone())).await else { return };
    let serve = upgrade.put(None);
    match serve.filter(|_| response.status.is_success()) {
        Some(serve) => {
            let handle = responder.handle().clone();
            if let Some(session) = pronghorn_engine::WebTransport::accept(request, responder, std::mem::take(&mut response.headers)) {
                handle.spawn(serve(WebTransport::carry(&session)));
            }
        }
        // To the client any success would be a session, and nobody here would serve it. RFC 9220, section 3: 501 says that.
        None if response.status.is_success() => {
            responder.send(Response::new(StatusCode::NOT_IMPLEMENTED));
        }
        None => responder.send(response),
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for WebTransportUpgrade {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        let other = "here are WebTransport sessions: they are asked for with CONNECT over HTTP/3, where Server::webtransport offers them\n";
        parts.extensions.get().cloned().ok_or((StatusCode::BAD_REQUEST, other))
    }
}
