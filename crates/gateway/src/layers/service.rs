//! The type of service that layers are around.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use pronghorn_engine::{Body, BodyError};
use tower_service::Service;

use super::OnWorker;
use crate::plan::text;

/// A request on its way through layers. Its extensions have a [`super::Client`], a [`super::Asked`] and a [`pronghorn_engine::Peer`], and a
/// [`pronghorn_engine::Upgrade`] if it asks for another protocol.
pub type Request = http::Request<Body>;

/// A response on its way back. One of status 101 stands for the other protocol that was asked for and can be had: its fields go to the
/// client with it.
pub type Response = http::Response<Body>;

/// What a [`LocalService`] answers with.
pub type LocalFuture = Pin<Box<dyn Future<Output = Result<Response, BodyError>>>>;

/// A layer as it is registered: what holds for all workers.
pub trait Layer: Send + Sync + 'static {
    /// Puts the layer around `inner` on one worker. Called once for each route that has the layer.
    fn around(&self, inner: LocalService, worker: &OnWorker) -> LocalService;

    /// Whether it knows of requests that came before, and is kept over a reload that does not change its route and options.
    fn has_memory(&self) -> bool {
        false
    }
}

/// Any service of requests, on one worker: need not be sent to other threads.
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
    /// A service whose clones are asked, one for each request.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request, Response = http::Response<B>> + Clone + 'static,
        S::Error: Into<BodyError>,
        B: http_body::Body<Data = Bytes> + 'static,
        B::Error: Into<BodyError>,
    {
        Self(Box::new(Tower(service)))
    }

    /// The answer to a request. A service that fails is answered for with 500.
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

/// What is a [`Body`] already stays one.
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

/// The engine's response, its field lines all in one place.
pub(crate) fn from_engine(mut response: pronghorn_engine::Response) -> Response {
    let headers = std::mem::take(response.fields_mut());
    let mut converted = http::Response::new(response.body);
    *converted.status_mut() = response.status;
    *converted.headers_mut() = headers;
    converted
}
