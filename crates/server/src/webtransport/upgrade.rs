//! Session requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use pronghorn_engine::{Request, Responder, Response};

use super::WebTransport;
use crate::Body;
use crate::departure::unless_closed;

type Serve = Box<dyn FnOnce(WebTransport) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A request for a WebTransport session, as an extension of such requests if
/// [`Server::webtransport`](crate::Server::webtransport) is set.
///
/// The response of [`WebTransportUpgrade::on_session`] accepts the session; any other response,
/// such as 403 or 404, refuses it. Browsers let any page request a session: check the request's
/// `origin` before you accept.
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
/// With the feature `axum` it is also an extractor, which answers other requests with 400: `async
/// fn enter(upgrade: WebTransportUpgrade) -> …`. Register the route with `any(…)` or `connect(…)`.
#[derive(Clone, Default)]
pub struct WebTransportUpgrade(Arc<Mutex<Option<Serve>>>);

impl WebTransportUpgrade {
    /// Returns a 200 response that accepts the session. Header fields may be added to it.
    ///
    /// When the response is sent, `serve` runs with the session in a task on the worker's thread.
    /// Dropping the last clone of the session closes it with code 0. If another response is sent
    /// instead, `serve` is dropped.
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

/// Waits for `answer`. If the response accepts the session, begins it, otherwise sends the
/// response. The answer is dropped when the client leaves.
pub(crate) async fn run<F>(
    request: Request,
    mut responder: Responder,
    answer: impl FnOnce(WebTransportUpgrade) -> F,
) where
    F: Future<Output = Response>,
{
    let upgrade = WebTransportUpgrade::default();
    let Some(mut response) = unless_closed(&mut responder, answer(upgrade.clone())).await else {
        return;
    };
    let serve = upgrade.put(None);
    match serve.filter(|_| response.status.is_success()) {
        Some(serve) => {
            let handle = responder.handle().clone();
            if let Some(session) = pronghorn_engine::WebTransport::accept(
                request,
                responder,
                std::mem::take(&mut response.headers),
            ) {
                handle.spawn(serve(WebTransport::from_engine(&session)));
            }
        }
        // The client would take any success for a session that no task here serves. RFC 9220,
        // section 3: 501 says that the protocol is not supported.
        None if response.status.is_success() => {
            responder.send(Response::new(StatusCode::NOT_IMPLEMENTED));
        }
        None => responder.send(response),
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for WebTransportUpgrade {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        let other = "not a WebTransport session request: send CONNECT over HTTP/3, and enable \
            Server::webtransport\n";
        parts.extensions.get().cloned().ok_or((StatusCode::BAD_REQUEST, other))
    }
}
