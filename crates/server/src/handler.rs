//! A tower service as the handler of a worker.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use http_body::Body as _;
use pronghorn_engine::{BodyError, Handler, Protocol, Request, Responder, Response, WebTransport};
use tower_service::Service;

use crate::failure::{FailedPart, Failures, Watch};
use crate::peer::{Peer, introduce};
use crate::{Body, redirect, response, upgrade, webtransport};

/// Asks a clone of the service for each request, as hyper does.
pub(crate) struct Tower<S> {
    pub(crate) service: S,
    /// Sessions are offered.
    pub(crate) webtransport: bool,
    /// The port where TLS is spoken, for requests in clear text that have to go there.
    pub(crate) redirect_to: Option<u16>,
    /// See [`introduce`].
    pub(crate) room: http::Extensions,
    pub(crate) failures: Arc<Failures>,
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
        if let Some(port) = self.redirect_to.filter(|_| !request.peer.secure) {
            return responder.send(redirect::to_https(&request.uri, port));
        }
        let service = self.service.clone();
        if self.webtransport && WebTransport::is_requested(&request) {
            return self.begin_session(service, request, responder);
        }
        let Request { method, uri, headers, peer, upgrade, body: incoming } = request;
        let protocol = peer.protocol;
        let length = || headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        let length = if incoming.is_end_stream() { None } else { length() };
        let mut request = http::Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        introduce(&mut request, Peer::from(peer), &self.room);
        let Some(upgrade) = upgrade else {
            *request.body_mut() = Body::carry(incoming, length, responder.handle());
            return responder.respond_eagerly(Answer::new(service, request, &self.failures));
        };
        let asked = upgrade::Asked { upgrade, protocol, incoming };
        let may_switch = protocol == Protocol::Http1;
        let (handle, failures) = (responder.handle().clone(), self.failures.clone());
        handle.spawn(upgrade::run(asked, responder, move |asked, on_upgrade| {
            upgrade::announce(&mut request, asked, on_upgrade);
            Answer { may_switch, ..Answer::new(service, request, &failures) }
        }));
    }
}

impl<S> Tower<S> {
    /// Asks the service for a session. The request is needed whole to begin one.
    fn begin_session<B>(&self, service: S, request: Request, responder: Responder)
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
        introduce(&mut asked, Peer::from(request.peer.clone()), &self.room);
        let (handle, failures) = (responder.handle().clone(), self.failures.clone());
        handle.spawn(webtransport::run(request, responder, move |upgrade| {
            asked.extensions_mut().insert(upgrade);
            Answer::new(service, asked, &failures)
        }));
    }
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
struct Answer<S: Service<http::Request<Body>>> {
    /// Until the service takes the request.
    asked: Option<(S, http::Request<Body>)>,
    called: Option<Pin<Box<S::Future>>>,
    /// Until there is a response.
    watch: Option<Watch>,
    /// 101 (Switching Protocols) is an answer to what is asked.
    may_switch: bool,
}

impl<S: Service<http::Request<Body>>> Answer<S> {
    fn new(service: S, request: http::Request<Body>, failures: &Arc<Failures>) -> Self {
        let watch = failures.watch(request.method(), request.uri());
        Self { asked: Some((service, request)), called: None, watch: Some(watch), may_switch: false }
    }

    /// Whether it is an interim status, which another one has to follow: as the one response it would leave the client waiting.
    fn is_interim(&self, status: StatusCode) -> bool {
        status.is_informational() && !(self.may_switch && status == StatusCode::SWITCHING_PROTOCOLS)
    }
}

// The one part that stays in its place has a box.
impl<S: Service<http::Request<Body>>> Unpin for Answer<S> {}

impl<S, B> Future for Answer<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Error: Into<BodyError>,
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let watch = self.watch.take().expect("invariant: an answer is polled until it is ready");
        let Poll::Ready(answer) = watch.during(FailedPart::Service, || self.poll_answer(cx)) else {
            self.watch = Some(watch);
            return Poll::Pending;
        };
        Poll::Ready(match answer {
            Ok(answer) if self.is_interim(answer.status()) => {
                let error = format!("{} is an interim status, and there is no final response", answer.status());
                watch.failed(FailedPart::Service, &error.into());
                Response::new(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Ok(answer) => response::convert(answer, watch, cx),
            Err(error) => {
                watch.failed(FailedPart::Service, &error.into());
                Response::new(StatusCode::INTERNAL_SERVER_ERROR)
            }
        })
    }
}

impl<S: Service<http::Request<Body>>> Answer<S> {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Response, S::Error>> {
        if let Some((service, _)) = &mut self.asked {
            ready!(service.poll_ready(cx))?;
        }
        if let Some((mut service, request)) = self.asked.take() {
            self.called = Some(Box::pin(service.call(request)));
        }
        let called = self.called.as_mut().expect("invariant: it was called above, or at an earlier poll");
        called.as_mut().poll(cx)
    }
}
