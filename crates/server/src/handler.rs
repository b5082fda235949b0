//! A tower service as a worker's handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use http_body::Body as _;
use pronghorn_engine::{BodyError, Handler, Protocol, Request, Responder, Response, WebTransport};
use tower_service::Service;

use crate::failure::{FailedPart, FailureReporter, Failures};
use crate::peer::{Peer, insert_peer};
use crate::{Body, redirect, response, upgrade, webtransport};

/// Calls a clone of the service for each request, as hyper does.
pub(crate) struct Tower<S> {
    pub(crate) service: S,
    /// Whether WebTransport sessions are offered.
    pub(crate) webtransport: bool,
    /// The TLS port that cleartext requests are redirected to.
    pub(crate) redirect_to: Option<u16>,
    /// Responses to the challenges of an ACME authority.
    #[cfg(feature = "acme")]
    pub(crate) challenges: Option<Arc<pronghorn_acme::Challenges>>,
    /// Empty extensions with capacity for [`insert_peer`].
    pub(crate) extensions_template: http::Extensions,
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
        #[cfg(feature = "acme")]
        if !request.peer.secure
            && let Some(challenges) = &self.challenges
            && let Some(proof) =
                challenges.answer(request.uri.host().unwrap_or_default(), request.uri.path())
        {
            return responder.send(Response::new(StatusCode::OK).with_body(proof));
        }
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
        insert_peer(&mut request, Peer::from(peer), &self.extensions_template);
        let Some(upgrade) = upgrade else {
            *request.body_mut() = Body::carry(incoming, length, responder.handle());
            return responder.respond_eagerly(ServiceFuture::new(service, request, &self.failures));
        };
        let upgrade_request = upgrade::UpgradeRequest { upgrade, protocol, incoming };
        let may_switch = protocol == Protocol::Http1;
        let (handle, failures) = (responder.handle().clone(), self.failures.clone());
        handle.spawn(upgrade::run(
            upgrade_request,
            responder,
            move |upgrade_request, on_upgrade| {
                upgrade::insert_upgrade(&mut request, upgrade_request, on_upgrade);
                ServiceFuture { may_switch, ..ServiceFuture::new(service, request, &failures) }
            },
        ));
    }
}

impl<S> Tower<S> {
    /// Calls the service for a session request. The engine needs the whole request to begin the
    /// session.
    fn begin_session<B>(&self, service: S, request: Request, responder: Responder)
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + 'static,
        S::Error: Into<BodyError>,
        S::Future: 'static,
        B: http_body::Body + 'static,
        B::Error: Into<BodyError>,
    {
        let mut pending = http::Request::new(Body::empty());
        pending.method_mut().clone_from(&request.method);
        pending.uri_mut().clone_from(&request.uri);
        pending.headers_mut().clone_from(&request.headers);
        insert_peer(&mut pending, Peer::from(request.peer.clone()), &self.extensions_template);
        let (handle, failures) = (responder.handle().clone(), self.failures.clone());
        handle.spawn(webtransport::run(request, responder, move |upgrade| {
            pending.extensions_mut().insert(upgrade);
            ServiceFuture::new(service, pending, &failures)
        }));
    }
}

/// The response of a service, once the service is ready. An error becomes 500.
struct ServiceFuture<S: Service<http::Request<Body>>> {
    /// The service and the request, until the service is called.
    pending: Option<(S, http::Request<Body>)>,
    called: Option<Pin<Box<S::Future>>>,
    /// Taken when the response is ready.
    reporter: Option<FailureReporter>,
    /// Whether 101 (Switching Protocols) is a final response to this request.
    may_switch: bool,
}

impl<S: Service<http::Request<Body>>> ServiceFuture<S> {
    fn new(service: S, request: http::Request<Body>, failures: &Arc<Failures>) -> Self {
        let reporter = failures.reporter(request.method(), request.uri());
        Self {
            pending: Some((service, request)),
            called: None,
            reporter: Some(reporter),
            may_switch: false,
        }
    }

    /// Returns whether `status` is interim. As the only response, an interim status would leave the
    /// client waiting.
    fn is_interim(&self, status: StatusCode) -> bool {
        status.is_informational() && !(self.may_switch && status == StatusCode::SWITCHING_PROTOCOLS)
    }
}

// The only pinned part, the service's future, is boxed.
impl<S: Service<http::Request<Body>>> Unpin for ServiceFuture<S> {}

impl<S, B> Future for ServiceFuture<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Error: Into<BodyError>,
    B: http_body::Body + 'static,
    B::Error: Into<BodyError>,
{
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let reporter =
            self.reporter.take().expect("invariant: an answer is polled until it is ready");
        let Poll::Ready(answer) =
            reporter.catch_panic(FailedPart::Service, || self.poll_answer(cx))
        else {
            self.reporter = Some(reporter);
            return Poll::Pending;
        };
        Poll::Ready(match answer {
            Ok(answer) if self.is_interim(answer.status()) => {
                let error =
                    format!("{} is an interim status, not a final response", answer.status());
                reporter.failed(FailedPart::Service, &error.into());
                Response::new(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Ok(answer) => response::convert(answer, reporter, cx),
            Err(error) => {
                reporter.failed(FailedPart::Service, &error.into());
                Response::new(StatusCode::INTERNAL_SERVER_ERROR)
            }
        })
    }
}

impl<S: Service<http::Request<Body>>> ServiceFuture<S> {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Response, S::Error>> {
        if let Some((service, _)) = &mut self.pending {
            ready!(service.poll_ready(cx))?;
        }
        if let Some((mut service, request)) = self.pending.take() {
            self.called = Some(Box::pin(service.call(request)));
        }
        let called =
            self.called.as_mut().expect("invariant: it was called above, or at an earlier poll");
        called.as_mut().poll(cx)
    }
}
