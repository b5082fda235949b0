//! Routes with layers: the route's action is the innermost service, wrapped by the layers.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::Body as _;
use pronghorn_engine::{Body, BodyError, Handle, Incoming, Peer, Responder, Upgrade};
use tower_service::Service;

use crate::access_log::Note;
use crate::application::{self, ApplicationHandler};
use crate::interim_responses::InterimQueue;
use crate::layers::{
    Client, LocalFuture, LocalService, OriginalTarget, Request, Response, WorkerContext,
};
use crate::proxy::{RequestLine, WorkerUpstream};
use crate::responses::text;
use crate::routing::action::ActionPlan;
use crate::routing::canonical::PathReading;
use crate::routing::site_plan::SitePlan;
use crate::static_files::FileHandler;

/// The layered services of one worker's routes, created at the first request.
#[derive(Default)]
pub(crate) struct LayeredRoutes(RefCell<Vec<Option<LocalService>>>);

impl LayeredRoutes {
    /// Returns the service of the route with this number.
    pub(crate) fn of(&self, number: usize, make: impl FnOnce() -> LocalService) -> LocalService {
        let known = self.0.borrow().get(number).cloned().flatten();
        if let Some(service) = known {
            return service;
        }
        let made = make();
        let mut routes = self.0.borrow_mut();
        if routes.len() <= number {
            routes.resize_with(number + 1, || None);
        }
        routes[number] = Some(made.clone());
        made
    }
}

/// The innermost service: the route's action.
#[derive(Clone)]
pub(crate) struct RouteService {
    pub(crate) site: Arc<SitePlan>,
    /// Index of the route in the site.
    pub(crate) index: usize,
    pub(crate) resources: ActionResources,
    pub(crate) handle: Handle,
}

/// A worker's resources for the action.
#[derive(Clone)]
pub(crate) enum ActionResources {
    Nothing,
    Files(Rc<FileHandler>),
    Application(Rc<ApplicationHandler>),
    Upstream {
        upstream: Rc<WorkerUpstream>,
        trusted_proxies: Arc<[ipnet::IpNet]>,
    },
    /// The upstream cannot be used.
    Unusable,
}

impl RouteService {
    /// Wraps the service in the route's layers, the first layer outermost.
    pub(crate) fn within_layers(self, worker: &WorkerContext) -> LocalService {
        let (site, index) = (self.site.clone(), self.index);
        let layers = site.routes[index].layers.iter().rev();
        layers.fold(LocalService::new(self), |inner, layer| layer.around(inner, worker))
    }
}

/// The prefix that the route stripped from the path, in the extensions of a request.
#[derive(Clone)]
struct Prefix(HeaderValue);

/// An upgrade request that passed all layers: the head to send to the upstream.
#[derive(Clone)]
pub(crate) struct AllowedUpgrade {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

impl Service<Request> for RouteService {
    type Response = Response;
    type Error = BodyError;
    type Future = LocalFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> LocalFuture {
        let centre = self.clone();
        Box::pin(async move { Ok(centre.answer(request).await) })
    }
}

impl RouteService {
    async fn answer(self, mut request: Request) -> Response {
        let interim = request.extensions_mut().remove::<InterimQueue>();
        if let Some(interim) = &interim {
            interim.let_through();
        }
        let action = &self.site.routes[self.index].action;
        let answer = match (action, self.resources) {
            (ActionPlan::Respond { .. } | ActionPlan::Redirect { .. }, _) => {
                action.fixed_response(request.uri())
            }
            (_, ActionResources::Files(files)) => {
                let (head, _) = request.into_parts();
                files.answer(self.handle.turn(), head.method, head.uri, head.headers).await
            }
            (_, ActionResources::Application(application)) => {
                let (mut head, body) = request.into_parts();
                let (note, asked) =
                    (head.extensions.remove::<Note>(), head.extensions.remove::<OriginalTarget>());
                let prefix = head.extensions.remove::<Prefix>().map(|prefix| prefix.0);
                let Some(peer) = head.extensions.get::<Peer>().cloned() else {
                    return crate::layers::from_engine(text(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "a layer removed the `Peer` extension\n",
                    ));
                };
                let target = asked.map_or_else(|| head.uri.clone(), |asked| asked.0);
                let head = application::Head {
                    method: head.method,
                    uri: head.uri,
                    headers: head.headers,
                    peer,
                    target,
                    prefix,
                    note,
                };
                application.answer(self.handle.turn(), head, body).await
            }
            (ActionPlan::Proxy(_), ActionResources::Upstream { upstream, trusted_proxies }) => {
                let (mut head, body) = request.into_parts();
                let note = head.extensions.remove::<Note>();
                let Some(peer) = head.extensions.get::<Peer>().cloned() else {
                    return crate::layers::from_engine(text(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "a layer removed the `Peer` extension\n",
                    ));
                };
                if head.extensions.get::<Upgrade>().is_some() {
                    let mut passed = http::Response::new(Body::empty());
                    *passed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    let (method, uri, headers) = (head.method, head.uri, head.headers);
                    passed.extensions_mut().insert(AllowedUpgrade { method, uri, headers });
                    return passed;
                }
                let is_trusted = trusted_proxies
                    .iter()
                    .any(|network| network.contains(&peer.remote.ip().to_canonical()));
                let prefix = head.extensions.get::<Prefix>().map(|prefix| &prefix.0);
                let asked = RequestLine { method: head.method, uri: head.uri, note };
                upstream
                    .answer(prefix, asked, head.headers, peer, body, is_trusted, interim.as_ref())
                    .await
            }
            (_, ActionResources::Unusable) => {
                text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n")
            }
            _ => text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n"),
        };
        crate::layers::from_engine(answer)
    }
}

/// The result of a layered upgrade request.
pub(crate) enum Outcome {
    Answer(pronghorn_engine::Response),
    /// The layers allow the upgrade. `headers` is the fields that layers add to the response.
    Upgrade {
        passed: AllowedUpgrade,
        headers: HeaderMap,
        body: Incoming,
    },
    /// The client is gone.
    Gone,
}

/// The head of a request for layers.
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    pub(crate) upgrade: Option<Upgrade>,
    /// The client's address; `None` while it is unverified.
    pub(crate) client: Option<IpAddr>,
    pub(crate) target: Uri,
    pub(crate) reading: Option<PathReading>,
    /// The prefix that was stripped from the path.
    pub(crate) prefix: Option<HeaderValue>,
    /// Notes for the access log.
    pub(crate) note: Option<Note>,
    /// Present if the client accepts interim responses.
    pub(crate) interim: Option<InterimQueue>,
}

impl Head {
    fn into_request(self, body: Body) -> Request {
        let mut request = http::Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        let extensions = request.extensions_mut();
        extensions.insert(self.peer);
        if let Some(client) = self.client {
            extensions.insert(Client(client));
        }
        extensions.insert(OriginalTarget(self.target));
        if let Some(reading) = self.reading {
            extensions.insert(reading);
        }
        if let Some(prefix) = self.prefix {
            extensions.insert(Prefix(prefix));
        }
        if let Some(note) = self.note {
            extensions.insert(note);
        }
        if let Some(interim) = self.interim {
            extensions.insert(interim);
        }
        if let Some(upgrade) = self.upgrade {
            extensions.insert(upgrade);
        }
        request
    }
}

/// Returns the response to a request.
pub(crate) async fn answer(
    mut service: LocalService,
    head: Head,
    body: Incoming,
) -> pronghorn_engine::Response {
    let body = if body.is_end_stream() { Body::empty() } else { Body::stream(body) };
    final_response(service.answer(head.into_request(body)).await)
}

/// Returns the response to a request and forwards interim responses. `None` if the client is gone.
pub(crate) async fn answer_informing(
    service: LocalService,
    head: Head,
    body: Incoming,
    interim: &InterimQueue,
    responder: &mut Responder,
) -> Option<pronghorn_engine::Response> {
    let mut answered = Box::pin(answer(service, head, body));
    poll_fn(|cx| {
        let polled = answered.as_mut().poll(cx);
        interim.pass_on(responder, cx.waker());
        match polled {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => responder.poll_closed(cx).map(|()| None),
        }
    })
    .await
}

/// Passes an upgrade request through the layers. `body` is not read, since it belongs to the new
/// protocol.
pub(crate) async fn ask_for_upgrade(
    mut service: LocalService,
    head: Head,
    body: Incoming,
    responder: &mut Responder,
) -> Outcome {
    let mut answered =
        Box::pin(async move { service.answer(head.into_request(Body::empty())).await });
    let answer = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => responder.poll_closed(cx).map(|()| None),
    })
    .await;
    let Some(mut answer) = answer else { return Outcome::Gone };
    match answer.extensions_mut().remove::<AllowedUpgrade>() {
        Some(passed) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let headers = std::mem::take(answer.headers_mut());
            Outcome::Upgrade { passed, headers, body }
        }
        _ => Outcome::Answer(final_response(answer)),
    }
}

fn final_response(response: Response) -> pronghorn_engine::Response {
    if response.status().is_informational() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "a layer returned no final response\n");
    }
    response.into()
}
