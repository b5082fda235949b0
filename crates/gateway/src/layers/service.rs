//! The service type that layers wrap.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use pronghorn_engine::{Body, BodyError};
use tower_service::Service;

use super::context::{TOO_EARLY, WorkerContext};
use crate::responses::text;

/// A request through layers. Its extensions have a [`super::Client`], a [`super::OriginalTarget`]
/// and a [`pronghorn_engine::Peer`], and a [`pronghorn_engine::Upgrade`] if it is an upgrade
/// request.
pub type Request = http::Request<Body>;

/// A response through layers. Status 101 means that the upgrade is granted: the fields are sent to
/// the client with it.
pub type Response = http::Response<Body>;

/// The future of a [`LocalService`]'s response.
pub type LocalFuture = Pin<Box<dyn Future<Output = Result<Response, BodyError>>>>;

/// A layer as registered, shared by all workers.
pub trait Layer: Send + Sync + 'static {
    /// Wraps `inner` in the layer on one worker. Called once for each route that has the layer.
    fn around(&self, inner: LocalService, worker: &WorkerContext) -> LocalService;

    /// Returns whether the layer has state from earlier requests. Such a layer is kept over a
    /// reload that does not change its route and options.
    fn is_stateful(&self) -> bool {
        false
    }

    /// Returns whether the layer answers 425 to requests without a [`Client`].
    fn needs_client(&self) -> bool {
        false
    }
}

/// A boxed service on one worker. It need not be `Send`.
#[derive(Clone)]
pub struct LocalService(Box<dyn Boxed>);

trait Boxed {
    fn call(&mut self, request: Request) -> LocalFuture;

    fn clone_boxed(&self) -> Box<dyn Boxed>;
}

impl Clone for Box<dyn Boxed> {
    fn clone(&self) -> Self {
        (**self).clone_boxed()
    }
}

#[derive(Clone)]
struct Tower<S>(S);

impl<S, B> Boxed for Tower<S>
where
    S: Service<Request, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BodyError>,
    B: http_body::Body<Data = Bytes> + 'static,
    B::Error: Into<BodyError>,
{
    fn call(&mut self, request: Request) -> LocalFuture {
        let mut service = self.0.clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            let response = service.call(request).await.map_err(Into::into)?;
            Ok(response.map(to_body))
        })
    }

    fn clone_boxed(&self) -> Box<dyn Boxed> {
        Box::new(self.clone())
    }
}

impl LocalService {
    /// Boxes a service. Each request is served by a clone.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request, Response = http::Response<B>> + Clone + 'static,
        S::Error: Into<BodyError>,
        B: http_body::Body<Data = Bytes> + 'static,
        B::Error: Into<BodyError>,
    {
        Self(Box::new(Tower(service)))
    }

    /// Returns the response to a request, or 500 if the service fails.
    pub(crate) async fn answer(&mut self, request: Request) -> Response {
        let failed = || from_engine(text(StatusCode::INTERNAL_SERVER_ERROR, "a layer failed\n"));
        self.0.call(request).await.unwrap_or_else(|_| failed())
    }
}

impl Service<Request> for LocalService {
    type Response = Response;
    type Error = BodyError;
    type Future = LocalFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> LocalFuture {
        self.0.call(request)
    }
}

/// Converts a body; a [`Body`] stays as it is.
fn to_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + 'static,
    B::Error: Into<BodyError>,
{
    let mut body = Some(body);
    if let Some(own) = (&mut body as &mut dyn Any).downcast_mut::<Option<Body>>() {
        return own.take().unwrap_or_default();
    }
    body.map_or_else(Body::empty, Body::stream)
}

/// Converts a response of the engine.
pub(crate) fn from_engine(mut response: pronghorn_engine::Response) -> Response {
    let headers = std::mem::take(response.fields_mut());
    let mut converted = http::Response::new(response.body);
    *converted.status_mut() = response.status;
    *converted.headers_mut() = headers;
    converted
}

/// Returns the response to a request without a [`Client`], if the layer needs the address.
pub(crate) fn too_early() -> Response {
    from_engine(text(StatusCode::TOO_EARLY, TOO_EARLY))
}
