//! Routes with layers: the action at the centre is a service, and the layers are around it.

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
use crate::canonical::Reading;
use crate::informing::Informer;
use crate::layers::{Asked, Client, LocalFuture, LocalService, OnWorker, Request, Response};
use crate::plan::{ActionPlan, SitePlan, text};
use crate::proxy::{RequestLine, WorkerUpstream};
use crate::static_files::FileHandler;

/// The layers of one worker's routes around what they are for, made when they are first asked.
#[derive(Default)]
pub(crate) struct LayeredRoutes(RefCell<Vec<Option<LocalService>>>);

impl LayeredRoutes {
    /// The service of the route of this number.
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

/// What answers in the middle.
#[derive(Clone)]
pub(crate) struct Centre {
    pub(crate) site: Arc<SitePlan>,
    /// Where among the routes of the site.
    pub(crate) index: usize,
    pub(crate) means: Means,
    pub(crate) handle: Handle,
}

/// What a worker has for the action.
#[derive(Clone)]
pub(crate) enum Means {
    Nothing,
    Files(Rc<FileHandler>),
    Application(Rc<ApplicationHandler>),
    Upstream {
        upstream: Rc<WorkerUpstream>,
        trusted_proxies: Arc<[ipnet::IpNet]>,
    },
    /// Nothing can be asked.
    Unusable,
}

impl Centre {
    /// The layers of the route around it, the first one outermost.
    pub(crate) fn within_layers(self, worker: &OnWorker) -> LocalService {
        let (site, index) = (self.site.clone(), self.index);
        let layers = site.routes[index].layers.iter().rev();
        layers.fold(LocalService::new(self), |inner, layer| layer.around(inner, worker))
    }
}

/// What the route has taken away from the path, among the extensions of a request.
#[derive(Clone)]
struct Prefix(HeaderValue);

/// A request for another protocol that has come through to the centre: what is to be asked then.
#[derive(Clone)]
pub(crate) struct Passed {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

impl Service<Request> for Centre {
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

impl Centre {
    async fn answer(self, mut request: Request) -> Response {
        let informer = request.extensions_mut().remove::<Informer>();
        if let Some(informer) = &informer {
            informer.let_through();
        }
        let action = &self.site.routes[self.index].action;
        let answer = match (action, self.means) {
            (ActionPlan::Respond { .. } | ActionPlan::Redirect { .. }, _) => action.at_once(request.uri()),
            (_, Means::Files(files)) => {
                let (head, _) = request.into_parts();
                files.answer(self.handle.turn(), head.method, head.uri, head.headers).await
            }
            (_, Means::Application(application)) => {
                let (mut head, body) = request.into_parts();
                let (note, asked) = (head.extensions.remove::<Note>(), head.extensions.remove::<Asked>());
                let prefix = head.extensions.remove::<Prefix>().map(|prefix| prefix.0);
                let Some(peer) = head.extensions.get::<Peer>().cloned() else {
                    return crate::layers::from_engine(text(StatusCode::INTERNAL_SERVER_ERROR, "a layer lost the peer\n"));
                };
                let target = asked.map_or_else(|| head.uri.clone(), |asked| asked.0);
                let head = application::Head { method: head.method, uri: head.uri, headers: head.headers, peer, target, prefix, note };
                application.answer(self.handle.turn(), head, body).await
            }
            (ActionPlan::Proxy(_), Means::Upstream { upstream, trusted_proxies }) => {
                let (mut head, body) = request.into_parts();
                let note = head.extensions.remove::<Note>();
                let Some(peer) = head.extensions.get::<Peer>().cloned() else {
                    return crate::layers::from_engine(text(StatusCode::INTERNAL_SERVER_ERROR, "a layer lost the peer\n"));
                };
                if head.extensions.get::<Upgrade>().is_some() {
                    let mut passed = http::Response::new(Body::empty());
                    *passed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                    let (method, uri, headers) = (head.method, head.uri, head.headers);
                    passed.extensions_mut().insert(Passed { method, uri, headers });
                    return passed;
                }
                let is_trusted = trusted_proxies.iter().any(|network| network.contains(&peer.remote.ip().to_canonical()));
                let prefix = head.extensions.get::<Prefix>().map(|prefix| &prefix.0);
                let asked = RequestLine { method: head.method, uri: head.uri, note };
                upstream.answer(prefix, asked, head.headers, peer, body, is_trusted, informer.as_ref()).await
            }
            (_, Means::Unusable) => text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n"),
            _ => text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n"),
        };
        crate::layers::from_engine(answer)
    }
}

/// What layers and centre make of a request.
pub(crate) enum Outcome {
    Answer(pronghorn_engine::Response),
    /// It may go on in the other protocol that it asks for. `headers`: what layers add to the answer.
    Upgrade {
        passed: Passed,
        headers: HeaderMap,
        body: Incoming,
    },
    /// The client has given up.
    Gone,
}

/// The head of a request for layers.
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    pub(crate) upgrade: Option<Upgrade>,
    /// `None` while its address is not proved.
    pub(crate) client: Option<IpAddr>,
    pub(crate) asked: Uri,
    pub(crate) reading: Option<Reading>,
    /// What was taken away from the path.
    pub(crate) prefix: Option<HeaderValue>,
    /// What the access log wants to know.
    pub(crate) note: Option<Note>,
    /// If the client takes interim responses.
    pub(crate) informer: Option<Informer>,
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
        extensions.insert(Asked(self.asked));
        if let Some(reading) = self.reading {
            extensions.insert(reading);
        }
        if let Some(prefix) = self.prefix {
            extensions.insert(Prefix(prefix));
        }
        if let Some(note) = self.note {
            extensions.insert(note);
        }
        if let Some(informer) = self.informer {
            extensions.insert(informer);
        }
        if let Some(upgrade) = self.upgrade {
            extensions.insert(upgrade);
        }
        request
    }
}

/// Answers a request with content.
pub(crate) async fn answer(mut service: LocalService, head: Head, body: Incoming) -> pronghorn_engine::Response {
    let body = if body.is_end_stream() { Body::empty() } else { Body::stream(body) };
    final_response(service.answer(head.into_request(body)).await)
}

/// The same, and passes on what comes before the answer. `None`: the client has given up.
pub(crate) async fn answer_informing(
    service: LocalService,
    head: Head,
    body: Incoming,
    informer: &Informer,
    responder: &mut Responder,
) -> Option<pronghorn_engine::Response> {
    let mut answered = Box::pin(answer(service, head, body));
    poll_fn(|cx| {
        let polled = answered.as_mut().poll(cx);
        informer.pass_on(responder, cx.waker());
        match polled {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => responder.poll_closed(cx).map(|()| None),
        }
    })
    .await
}

/// Asks for another protocol. Nothing of `body` is read, since it is of that protocol.
pub(crate) async fn ask_for_upgrade(mut service: LocalService, head: Head, body: Incoming, responder: &mut Responder) -> Outcome {
    let mut answered = Box::pin(async move { service.answer(head.into_request(Body::empty())).await });
    let answer = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => responder.poll_closed(cx).map(|()| None),
    })
    .await;
    let Some(mut answer) = answer else { return Outcome::Gone };
    match answer.extensions_mut().remove::<Passed>() {
        Some(passed) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let headers = std::mem::take(answer.headers_mut());
            Outcome::Upgrade { passed, headers, body }
        }
        _ => Outcome::Answer(final_response(answer)),
    }
}

fn final_response(response: Response) -> pronghorn_engine::Response {
    if response.status().is_informational() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "a layer gave no final response\n");
    }
    response.into()
}
