//! A tower service as the handler of a worker.

use std::future::poll_fn;

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use pronghorn_engine::{BodyError, Handler, Request, Responder, Response};
use tower_service::Service;

use crate::peer::{Peer, introduce};
use crate::{Body, response, upgrade};

/// Asks a clone of the service for each request, as hyper does.
pub(crate) struct Tower<S>(pub(crate) S);

impl<S, B> Handler for Tower<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BodyError>,
    S::Future: 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    fn handle(&self, request: Request, responder: Responder) {
        let service = self.0.clone();
        let Request { method, uri, headers, peer, upgrade, body: incoming } = request;
        let protocol = peer.protocol;
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let mut request = http::Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        introduce(&mut request, Peer::from(peer));
        let Some(upgrade) = upgrade else {
            *request.body_mut() = Body::carry(incoming, length, responder.handle());
            return responder.respond(answer(service, request));
        };
        let asked = upgrade::Asked { upgrade, protocol, incoming };
        let handle = responder.handle().clone();
        handle.spawn(upgrade::run(asked, responder, |asked, on_upgrade| {
            upgrade::announce(&mut request, asked, on_upgrade);
            answer(service, request)
        }));
    }
}

/// What the service says, once it is ready. One that fails is answered 500.
async fn answer<S, B>(mut service: S, request: http::Request<Body>) -> Response
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Error: Into<BodyError>,
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    let answer: Result<_, S::Error> = async {
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    }
    .await;
    match answer {
        Ok(answer) => response::convert(answer).await,
        Err(_) => Response::new(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
