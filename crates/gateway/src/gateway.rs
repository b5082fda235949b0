//! A configuration that serves, and can be replaced while it does.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{ALT_SVC, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use pronghorn_certificates::{CertificateError, Loaded};
use pronghorn_engine::{Connector, Handler, Identity, Peer, Policy, Protocol, Request, Responder, Response, Worker};

use crate::access_log::{AccessLog, LogCounts, Logged, Note};
use crate::acme::Acme;
use crate::application::{self, ApplicationHandler, ApplicationPlan};
use crate::client_address::client_address;
use crate::client_auth;
use crate::config::{ClearText, Config, MinTls, Problem};
use crate::extras::with_page;
use crate::informing::Informer;
use crate::layered::{self, Centre, Head, LayeredRoutes, Means, Outcome, Passed};
use crate::layers::{OnWorker, Registry, TOO_EARLY, is_unproved};
use crate::plan::{ActionPlan, Plan, RoutePlan, SitePlan, Surroundings, text};
use crate::proxy::{Checks, Observer, ServerState, UpstreamCounts, Upstreams};
use crate::ramp::Climb;
use crate::site_certificates::SiteCertificates;
use crate::static_files::FileHandler;
use crate::switches::ByHand;
use crate::target;

/// A configuration put to use. Workers answer through the [`GatewayHandler`]s that it makes. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

struct Shared {
    plan: Mutex<Arc<Plan>>,
    /// How often the plan was replaced; workers look for a new one when it has changed.
    changes: AtomicU64,
    by_hand: Mutex<ByHand>,
    /// Logs that were replaced and that requests still have lines for. Their last user waits for the disk, so it must not be a worker.
    retired_logs: Mutex<Vec<Arc<AccessLog>>>,
    certificates: Arc<SiteCertificates>,
    acme: Acme,
    https_port: Option<u16>,
    only_tls13: bool,
    development: Box<dyn Fn() -> Result<Loaded, CertificateError> + Send + Sync>,
    layers: Registry,
    observer: Arc<Observer>,
    checks: Checks,
}

impl Gateway {
    /// Opens what the configuration names: folders, certificates, logs. `layers` are those that it may name, `https_port` is where TLS is listened on, `development` gives a
    /// certificate to sites that want one for development.
    ///
    /// # Errors
    ///
    /// All that cannot be had.
    pub fn new(
        config: &Config,
        layers: &Registry,
        https_port: Option<u16>,
        development: impl Fn() -> Result<Loaded, CertificateError> + Send + Sync + 'static,
    ) -> Result<Self, Vec<Problem>> {
        let observer = Arc::default();
        let surroundings = Surroundings { https_port, development: &development, before: None, layers, observer: &observer };
        let (plan, names) = Plan::new(config, &surroundings)?;
        let acme = Acme::default();
        Ok(Self(Arc::new(Shared {
            plan: Mutex::new(Arc::new(plan)),
            changes: AtomicU64::new(0),
            by_hand: Mutex::default(),
            retired_logs: Mutex::default(),
            certificates: Arc::new(SiteCertificates::new(names, acme.challenges.clone())),
            acme,
            https_port,
            only_tls13: config.server.min_tls == MinTls::Tls13,
            development: Box::new(development),
            layers: layers.clone(),
            observer,
            checks: Checks::default(),
        })))
    }

    /// Serves by another configuration from now on: sites, routes, certificates, upstreams and logs. Requests that run go on as they
    /// began, upstreams that stay the same keep their connections. What listens, and what holds for workers, stays as it was started.
    ///
    /// # Errors
    ///
    /// All that cannot be had; then nothing has changed.
    pub fn reload(&self, config: &Config) -> Result<(), Vec<Problem>> {
        let shared = &self.0;
        let before = shared.plan();
        let surroundings = Surroundings {
            https_port: shared.https_port,
            development: &shared.development,
            before: Some(&before),
            layers: &shared.layers,
            observer: &shared.observer,
        };
        let (plan, names) = Plan::new(config, &surroundings)?;
        // Held until the plan is there, so that nobody switches the one before meanwhile.
        let by_hand = shared.by_hand.lock().unwrap_or_else(PoisonError::into_inner);
        by_hand.apply(&plan.listed);
        shared.certificates.replace(names);
        let mut retired = shared.retired_logs.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|log| Arc::strong_count(log) > 1);
        retired.extend(before.log.clone().filter(|log| plan.log.as_ref().is_none_or(|now| !Arc::ptr_eq(log, now))));
        shared.acme.change(plan.ordered.as_ref());
        *shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(plan);
        shared.changes.fetch_add(1, Ordering::Release);
        shared.checks.wake();
        Ok(())
    }

    /// The certificates of all sites, as they are at each handshake.
    ///
    /// # Errors
    ///
    /// Never with the cryptography that is built in.
    pub fn identity(&self) -> Result<Identity, rustls::Error> {
        let policy =
            Policy { only_tls13: self.0.only_tls13, client_certificates: Some(self.0.certificates.clone()), acme_challenges: true };
        Identity::with_policy(self.0.certificates.clone(), &policy)
    }

    /// Orders the certificates that the configuration wants to be ordered, and renews them, as long as the gateway is there. Lines for the
    /// operator go to `tell`.
    ///
    /// # Errors
    ///
    /// When there is no thread for it, or the folder for certificates cannot be written.
    pub fn order_certificates(&self, tell: impl Fn(&str) + Send + Sync + 'static) -> io::Result<()> {
        self.0.acme.start(self.0.plan().ordered.as_ref(), tell)
    }

    /// Opens the file of the access log anew, after it was moved away. Whether lines go to a file.
    ///
    /// # Errors
    ///
    /// When it cannot be opened; lines then go on to the one that is open.
    pub fn reopen_log(&self) -> io::Result<bool> {
        self.0.plan().log.as_ref().map_or(Ok(false), |log| log.reopen())
    }

    /// Waits until all lines of access logs are written. For the end: no request may run any more.
    pub fn finish_logs(&self) {
        self.0.plan().log.iter().for_each(|log| log.finish());
        self.0.retired_logs.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|log| log.finish());
    }

    /// What became of the lines of access logs.
    pub fn log_counts(&self) -> Arc<LogCounts> {
        self.0.plan().log_counts.clone()
    }

    /// The servers of all upstreams that routes ask.
    pub fn upstream_servers(&self) -> Vec<ServerState> {
        self.plan().upstreams.iter().flat_map(|upstream| upstream.servers()).collect()
    }

    /// What was counted of upstreams over all workers since the start, over reloads.
    pub fn upstream_counts(&self) -> UpstreamCounts {
        UpstreamCounts::of(&self.0.observer)
    }

    /// Calls `tell` each time that a server of an upstream goes out or comes back, from now on and over reloads. It is called on workers,
    /// so it must not wait for anything. The first one that is set stays.
    pub fn on_upstream_server_change(&self, tell: impl Fn(ServerState) + Send + Sync + 'static) {
        self.0.observer.set(Box::new(tell));
    }

    /// Calls `tell` with a line each time that a request to an upstream fails, which says why, and with what servers of applications say
    /// of themselves: ten lines at once and then one a second for each upstream, which says how many were left out. It is called on
    /// workers, so it must not wait for anything; a line that it does not take (`false`) counts as left out. The first one that is set stays.
    pub fn on_upstream_trouble(&self, tell: impl Fn(String) -> bool + Send + Sync + 'static) {
        self.0.observer.troubles.set(Box::new(tell));
    }

    /// Tells of upstreams without new trouble how many lines were left out. Whether some have to wait for that still. For a second
    /// after each line, and again as long as some wait.
    pub fn tell_left_out(&self) -> bool {
        self.0.observer.troubles.tell_left_out()
    }

    pub(crate) fn by_hand(&self) -> &Mutex<ByHand> {
        &self.0.by_hand
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.0.plan()
    }

    /// A handler for one worker.
    pub fn handler(&self) -> GatewayHandler {
        GatewayHandler { shared: self.0.clone(), connector: OnceCell::new(), local: RefCell::new(Rc::new(Local::new(self.0.plan(), 0))) }
    }
}

impl Shared {
    fn plan(&self) -> Arc<Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers the requests of one worker.
pub struct GatewayHandler {
    shared: Arc<Shared>,
    connector: OnceCell<Connector>,
    local: RefCell<Rc<Local>>,
}

/// What a worker has of its own of a plan.
struct Local {
    plan: Arc<Plan>,
    change: u64,
    /// By number of the route, made when it is first asked.
    files: RefCell<Vec<Option<Rc<FileHandler>>>>,
    applications: RefCell<Vec<Option<Rc<ApplicationHandler>>>>,
    upstreams: Upstreams,
    layered: LayeredRoutes,
    clients: client_auth::Known,
    climb: Climb,
}

impl Local {
    fn new(plan: Arc<Plan>, change: u64) -> Self {
        Self {
            plan,
            change,
            files: RefCell::default(),
            applications: RefCell::default(),
            upstreams: Upstreams::default(),
            layered: LayeredRoutes::default(),
            clients: client_auth::Known::default(),
            climb: Climb::default(),
        }
    }

    /// Whether the peer is a proxy that is believed.
    fn trusts(&self, peer: &Peer) -> bool {
        self.plan.trusted_proxies.iter().any(|network| network.contains(&peer.remote.ip().to_canonical()))
    }

    /// What layers are told of a request as it came: whose it is, if that is proved, and its target.
    fn before_layers(&self, request: &Request) -> Before {
        let client = client_address(request.peer.remote, &request.headers, &self.plan.trusted_proxies);
        Before { client: Some(client).filter(|_| !is_unproved(&request.peer)), asked: request.uri.clone(), hints: None, prefix: None }
    }

    /// What the action of a route needs of this worker.
    fn means(&self, route: &RoutePlan, connector: &Connector) -> Means {
        match &route.action {
            ActionPlan::Respond { .. } | ActionPlan::Redirect { .. } => Means::Nothing,
            ActionPlan::Files(files) => Means::Files(self.file_handler(route.number, files)),
            ActionPlan::Application(plan) => match self.application(route.number, plan, connector) {
                Ok(application) => Means::Application(application),
                Err(_) => Means::Unusable,
            },
            ActionPlan::Proxy(upstream) => match self.upstreams.of(upstream, connector) {
                Ok(upstream) => Means::Upstream { upstream, trusted_proxies: self.plan.trusted_proxies.clone() },
                Err(_) => Means::Unusable,
            },
        }
    }

    fn file_handler(&self, number: usize, files: &crate::StaticFiles) -> Rc<FileHandler> {
        let mut handlers = self.files.borrow_mut();
        numbered(&mut handlers, number).get_or_insert_with(|| Rc::new(files.handler())).clone()
    }

    fn application(&self, number: usize, plan: &Arc<ApplicationPlan>, connector: &Connector) -> io::Result<Rc<ApplicationHandler>> {
        let mut applications = self.applications.borrow_mut();
        let known = numbered(&mut applications, number);
        if let Some(application) = known {
            return Ok(application.clone());
        }
        let upstream = self.upstreams.of(&plan.upstream, connector)?;
        let made = Rc::new(ApplicationHandler::new(plan, upstream, self.plan.trusted_proxies.clone()));
        *known = Some(made.clone());
        Ok(made)
    }
}

/// What is kept under a number.
fn numbered<T>(all: &mut Vec<Option<T>>, number: usize) -> &mut Option<T> {
    if all.len() <= number {
        all.resize_with(number + 1, || None);
    }
    &mut all[number]
}

/// What is known of a request for layers before the route has changed it.
struct Before {
    client: Option<IpAddr>,
    asked: Uri,
    /// What its client is told once they let it through.
    hints: Option<HeaderMap>,
    /// What was taken away from the path.
    prefix: Option<HeaderValue>,
}

impl GatewayHandler {
    fn local(&self) -> Rc<Local> {
        let change = self.shared.changes.load(Ordering::Acquire);
        let mut local = self.local.borrow_mut();
        if local.change != change {
            let (plan, upstreams) = (self.shared.plan(), local.upstreams.clone());
            upstreams.keep_only(&plan.upstreams);
            *local = Rc::new(Local { upstreams, ..Local::new(plan, change) });
        }
        local.clone()
    }

    fn serve(&self, mut request: Request, responder: Responder, mut end: End) {
        let (local, site) = (end.local.clone(), end.site.clone());
        let host = target::host(&request.uri);
        let Ok(path) = target::normal(request.uri.path()) else {
            return responder.send(end.finish(text(StatusCode::BAD_REQUEST, "bad path\n")));
        };
        let Some(route) = site.routes.iter().find(|route| route.is_for(&request.method, host, &path, &request.headers)) else {
            return responder.send(end.finish(text(StatusCode::NOT_FOUND, "not found\n")));
        };
        end.route = Some(route.number);
        let mut before = (!route.layers.is_empty()).then(|| local.before_layers(&request));
        let target = matches!(route.action, ActionPlan::Application(_)).then(|| request.uri.clone());
        let stripped = if route.strip_prefix { route.prefix(&request.method, host, &path, &request.headers) } else { "" };
        let wanted = path.strip_prefix(stripped).unwrap_or(&path);
        let prefix = if stripped.is_empty() { None } else { HeaderValue::from_str(stripped).ok() };
        if wanted != request.uri.path() {
            match with_path(&request.uri, wanted) {
                Some(uri) => request.uri = uri,
                None => return responder.send(end.finish(text(StatusCode::BAD_REQUEST, "bad path\n"))),
            }
        }
        let mut responder = responder;
        if let Some(extras) = &route.extras {
            if !extras.rewrite(&mut request) {
                return responder.send(end.finish(text(StatusCode::BAD_REQUEST, "bad path\n")));
            }
            match (extras.hints(&request), &mut before) {
                // Whoever the layers refuse does not learn of them.
                (Some(hints), Some(before)) => before.hints = Some(hints.clone()),
                (Some(hints), None) => responder.inform(StatusCode::EARLY_HINTS, hints),
                (None, _) => {}
            }
        }
        route.request_headers.apply(&mut request.headers);
        if let Some(mut before) = before {
            before.prefix = prefix;
            return self.serve_layered(request, before, responder, end);
        }
        match &route.action {
            ActionPlan::Respond { .. } | ActionPlan::Redirect { .. } => responder.send(end.finish(route.action.at_once(&request.uri))),
            ActionPlan::Files(files) => {
                let handler = local.file_handler(route.number, files);
                handler.serve_as(request, responder, move |response| end.finish(response));
            }
            ActionPlan::Application(plan) => {
                let Some(connector) = self.connector.get() else {
                    return responder.send(end.finish(text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n")));
                };
                match local.application(route.number, plan, connector) {
                    Ok(application) => {
                        let target = target.unwrap_or_else(|| request.uri.clone());
                        let note = end.note();
                        let Request { method, uri, headers, peer, body, .. } = request;
                        let head = application::Head { method, uri, headers, peer, target, prefix, note };
                        application.serve(head, body, responder, move |response| end.finish(response));
                    }
                    Err(_) => responder.send(end.finish(text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n"))),
                }
            }
            ActionPlan::Proxy(upstream) => {
                let Some(connector) = self.connector.get() else {
                    return responder.send(end.finish(text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n")));
                };
                match local.upstreams.of(upstream, connector) {
                    Ok(upstream) => {
                        let is_trusted = local.trusts(&request.peer);
                        let note = end.note();
                        upstream.forward(prefix.as_ref(), request, responder, is_trusted, note, move |response| end.finish(response));
                    }
                    Err(_) => responder.send(end.finish(text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n"))),
                }
            }
        }
    }
}

/// Routes with layers.
impl GatewayHandler {
    fn serve_layered(&self, request: Request, before: Before, mut responder: Responder, mut end: End) {
        let (Some(connector), Some(number)) = (self.connector.get(), end.route) else {
            return responder.send(end.finish(text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n")));
        };
        let (local, site) = (end.local.clone(), end.site.clone());
        let service = local.layered.of(number, || {
            let index = site.routes.iter().position(|route| route.number == number).unwrap_or_default();
            let means = local.means(&site.routes[index], connector);
            Centre { site, index, means, handle: connector.handle().clone() }.within_layers(&OnWorker::new(connector.clone()))
        });
        let peer = request.peer.clone();
        let Request { method, uri, headers, upgrade, body, .. } = request;
        let upgrade = upgrade.filter(|_| !end.asks_application());
        let Before { client, asked, hints, prefix } = before;
        let has_to_wait = end.asks_upstream();
        // Some clients take an interim response for the answer over HTTP/1.1; there are no hints for them either.
        let is_informed = upgrade.is_none() && peer.protocol != Protocol::Http1 && (has_to_wait || hints.is_some());
        let informer = is_informed.then(|| Informer::new(hints));
        let note = if has_to_wait { end.note() } else { None };
        let head = Head {
            method,
            uri,
            headers,
            peer: peer.clone(),
            upgrade: upgrade.clone(),
            client,
            asked,
            prefix: prefix.clone(),
            note: note.clone(),
            informer: informer.clone(),
        };
        if let Some(informer) = informer {
            let handle = responder.handle().clone();
            handle.spawn(async move {
                match layered::answer_informing(service, head, body, &informer, &mut responder).await {
                    Some(answer) => responder.send(end.finish(answer)),
                    None => responder.abort(),
                }
            });
            return;
        }
        let Some(upgrade) = upgrade else {
            let answer = async move { end.finish(layered::answer(service, head, body).await) };
            return if has_to_wait { responder.respond(answer) } else { responder.respond_eagerly(Box::pin(answer)) };
        };
        let connector = connector.clone();
        let handle = responder.handle().clone();
        handle.spawn(async move {
            match layered::ask_for_upgrade(service, head, body, &mut responder).await {
                Outcome::Answer(answer) => responder.send(end.finish(answer)),
                Outcome::Gone => responder.abort(),
                Outcome::Upgrade { passed, headers: added, body } => {
                    let Passed { method, uri, headers } = passed;
                    let is_trusted = end.local.trusts(&peer);
                    let request = Request { method, uri, headers, peer, upgrade: Some(upgrade), body };
                    let (local, site) = (end.local.clone(), end.site.clone());
                    let upstream = site.routes.iter().find(|route| route.number == number).and_then(|route| match &route.action {
                        ActionPlan::Proxy(upstream) => local.upstreams.of(upstream, &connector).ok(),
                        _ => None,
                    });
                    let Some(upstream) = upstream else {
                        return responder.send(end.finish(text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n")));
                    };
                    upstream.forward(prefix.as_ref(), request, responder, is_trusted, note, move |mut response| {
                        response.fields_mut().extend(added);
                        end.finish(response)
                    });
                }
            }
        });
    }
}

impl Handler for GatewayHandler {
    fn start(&self, worker: &mut Worker) -> io::Result<()> {
        let nobody = rustls::ClientConfig::builder_with_provider(pronghorn_engine::provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        // Upstreams bring whom they trust themselves.
        let connector = worker.connector(&nobody)?;
        if self.shared.checks.begin() {
            let (shared, handle) = (self.shared.clone(), connector.handle().clone());
            let plans = move |seen: Option<u64>| {
                let change = shared.changes.load(Ordering::Acquire);
                (seen != Some(change)).then(|| (change, shared.plan()))
            };
            handle.spawn(self.shared.checks.run(connector.clone(), plans));
        }
        let _ = self.connector.set(connector);
        Ok(())
    }

    fn handle(&self, mut request: Request, responder: Responder) {
        let local = self.local();
        let mut logged = local.plan.log.as_ref().map(|log| log.begin(&request));
        if !request.peer.secure
            && let Some(proof) = self.shared.acme.challenges.answer(request.uri.host().unwrap_or_default(), request.uri.path())
        {
            let answer = Response::new(StatusCode::OK).with_body(proof);
            return responder.send(match logged {
                Some(logged) => logged.finish(answer),
                None => answer,
            });
        }
        let site = local.plan.sites.find(target::host(&request.uri)).cloned();
        let Some(site) = site else {
            let answer = text(StatusCode::MISDIRECTED_REQUEST, "there is no such site here\n");
            return responder.send(match logged {
                Some(logged) => logged.finish(answer),
                None => answer,
            });
        };
        let peer = &request.peer;
        let over_tcp = peer.secure && peer.protocol != Protocol::Http3;
        let alt_svc = match &local.plan.ramp {
            _ if !over_tcp => None,
            None => site.switches.alt_svc(site.alt_svc.as_ref()),
            Some(ramp) => {
                let announced = site.alt_svc.as_ref().and_then(|_| ramp.value(&local.climb, peer.remote.ip()));
                site.switches.alt_svc(announced.as_ref())
            }
        };
        if local.plan.asks_clients {
            match client_auth::admit(&local.plan, &site, &local.clients, &request.peer, &mut request.headers) {
                Ok(client) => {
                    if let (Some(logged), Some(client)) = (&mut logged, client) {
                        logged.shown_by(client.names());
                    }
                }
                Err(refusal) => return responder.send(End { local, site, route: None, logged, alt_svc }.finish(refusal.into())),
            }
        }
        let end = End { local, site, route: None, logged, alt_svc };
        // What a proxy says is worth as much as that it is the proxy.
        if is_unproved(&request.peer) && end.local.trusts(&request.peer) {
            return responder.send(end.finish(text(StatusCode::TOO_EARLY, TOO_EARLY)));
        }
        if let Some(answer) = end.site.refusal(&request, self.shared.https_port) {
            return responder.send(end.finish(answer));
        }
        self.serve(request, responder, end);
    }
}

impl SitePlan {
    /// What a request gets that came by a way on which the site is not served.
    fn refusal(&self, request: &Request, https_port: Option<u16>) -> Option<Response> {
        let peer = &request.peer;
        if peer.secure && !self.is_secure {
            return Some(text(StatusCode::MISDIRECTED_REQUEST, "the site is not served over TLS\n"));
        }
        if peer.protocol == Protocol::Http3 && !self.switches.http3() {
            let answer = text(StatusCode::MISDIRECTED_REQUEST, "the site is not served over HTTP/3\n");
            return Some(answer.with_header(ALT_SVC, HeaderValue::from_static("clear")));
        }
        if peer.secure || !self.is_secure || self.clear_text == ClearText::Serve {
            return None;
        }
        let host = request.uri.host()?;
        let target = request.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let location = match https_port {
            Some(443) | None => format!("https://{host}{target}"),
            Some(port) => format!("https://{host}:{port}{target}"),
        };
        match HeaderValue::try_from(location) {
            Ok(location) if self.clear_text == ClearText::Redirect => {
                Some(text(StatusCode::PERMANENT_REDIRECT, "this site is served over HTTPS\n").with_header(LOCATION, location))
            }
            _ => Some(text(StatusCode::MISDIRECTED_REQUEST, "the site is served over TLS only\n")),
        }
    }
}

/// What is done with a response before it is sent.
struct End {
    local: Rc<Local>,
    site: Arc<SitePlan>,
    route: Option<usize>,
    logged: Option<Box<Logged>>,
    alt_svc: Option<HeaderValue>,
}

impl End {
    /// Whether what answers is another server.
    fn asks_upstream(&self) -> bool {
        self.route().is_some_and(|route| matches!(route.action, ActionPlan::Proxy(_) | ActionPlan::Application(_)))
    }

    /// Whether that is one that speaks nothing but FastCGI.
    fn asks_application(&self) -> bool {
        self.route().is_some_and(|route| matches!(route.action, ActionPlan::Application(_)))
    }

    /// Where the access log learns of the upstream that is asked, if it wants to.
    fn note(&mut self) -> Option<Note> {
        self.logged.as_mut().and_then(|logged| logged.note())
    }

    fn route(&self) -> Option<&RoutePlan> {
        let number = self.route?;
        self.site.routes.iter().find(|route| route.number == number)
    }

    fn finish(mut self, mut response: Response) -> Response {
        if let Some(alt_svc) = self.alt_svc.take() {
            response.headers.insert(ALT_SVC, alt_svc);
        }
        if let Some(route) = self.route() {
            if let Some(extras) = &route.extras {
                response = extras.finish(response);
            }
            for rules in &route.response_headers {
                if !rules.is_empty() {
                    rules.apply(response.fields_mut());
                }
            }
        } else {
            response = with_page(&self.site.pages, response);
        }
        match self.logged {
            Some(logged) => logged.finish(response),
            None => response,
        }
    }
}

fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(parts).ok()
}
