//! A tower service as the handler of a worker.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use pronghorn_engine::{BodyError, Handler, Request, Responder, Response, WebTransport};
use tower_service::Service;

use crate::peer::{Peer, introduce};
use crate::{Body, response, upgrade, webtransport};

/// Asks a clone of the service for each request, as hyper does.
pub(crate) struct Tower<S> {
    pub(crate) service: S,
    /// Sessions are offered.
    pub(crate) webtransport: bool,
}

impl<S, B> Handler for Tower<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + 'static,
    S::Error: Into<BodyError>,
    S::Future: 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    fn handle(&self, request: Request, responder: Responder) {
        let service = self.service.clone();
        if self.webtransport && WebTransport::is_requested(&request) {
            return begin_session(service, request, responder);
        }
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

/// Asks the service for a session. The request is needed whole to begin one.
fn begin_session<S, B>(service: S, request: Request, responder: Responder)
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + 'static,
    S::Error: Into<BodyError>,
    S::Future: 'static,
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    let mut asked = http::Request::new(Body::empty());
    asked.method_mut().clone_from(&request.method);
    asked.uri_mut().clone_from(&request.uri);
    asked.headers_mut().clone_from(&request.headers);
    introduce(&mut asked, Peer::from(request.peer.clone()));
    let handle = responder.handle().clone();
    handle.spawn(webtransport::run(request, responder, |upgrade| {
        asked.extensions_mut().insert(upgrade);
        answer(service, asked)
    }));
}

/// What `answer` comes to; `None` if the client leaves before.
pub(crate) async fn unless_closed(responder: &mut Responder, answer: impl Future<Output = Response>) -> Option<Response> {
    let mut answer = pin!(answer);
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => responder.poll_closed(cx).map(|()| None),
    })
    .await
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
