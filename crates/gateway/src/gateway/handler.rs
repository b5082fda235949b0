//! Requests of one worker, from the site to what answers.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use pronghorn_engine::{Connector, Handler, Protocol, Request, Responder, Response, Worker};

use super::Shared;
use super::end::End;
use super::local::{Before, Local};
use crate::application;
use crate::canonical::{self, KnownHosts, View, with_path};
use crate::client_auth;
use crate::hop;
use crate::identity_fields::{self, SetAside};
use crate::informing::Informer;
use crate::layered::{self, Centre, Head, Outcome, Passed};
use crate::layers::{OnWorker, TOO_EARLY, is_unproved};
use crate::plan::{ActionPlan, text};
use crate::proxy::{Forwarded, METHODS};
use crate::tunnels;
use crate::whole_server;

/// Answers the requests of one worker.
pub struct GatewayHandler {
    shared: Arc<Shared>,
    connector: OnceCell<Connector>,
    local: RefCell<Rc<Local>>,
    hosts: KnownHosts,
}

impl GatewayHandler {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let local = Local::new(shared.plan(), 0);
        Self { shared: shared.clone(), connector: OnceCell::new(), local: RefCell::new(Rc::new(local)), hosts: KnownHosts::default() }
    }

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

    fn serve(&self, mut request: Request, view: &View, aside: SetAside, responder: Responder, mut end: End) {
        let (local, site) = (end.local.clone(), end.site.clone());
        let shown = aside.show(&mut request.headers);
        let host = canonical::host(&request.uri);
        let find = |path: &str| site.find(&request.method, host, path, &request.headers);
        let route = match view.agreed(&request.uri, find) {
            Ok(Some(index)) => &site.routes[index],
            Ok(None) => return responder.send(end.finish(text(StatusCode::NOT_FOUND, "not found\n"))),
            Err(refusal) => return responder.send(end.finish(refusal.into())),
        };
        SetAside::hide(&shown, &mut request.headers);
        end.route = Some(route.number);
        if let Err(refusal) = view.allowed(route.paths) {
            return responder.send(end.finish(refusal.into()));
        }
        aside.give_back(&route.kept_fields, &mut request.headers);
        let (upgrade, headers, body) = (&mut request.upgrade, &mut request.headers, &mut request.body);
        let tunnel = match tunnels::admit(route, upgrade, headers, body, &request.peer, &local.plan.trusted_proxies) {
            Ok(tunnel) => tunnel,
            Err(refusal) => return responder.send(end.finish(refusal.into())),
        };
        let mut before = (!route.layers.is_empty()).then(|| local.before_layers(&request, view.reading()));
        let target = matches!(route.action, ActionPlan::Application(_)).then(|| request.uri.clone());
        let literal = view.literal(&request.uri);
        let stripped = if route.strip_prefix { route.prefix(&request.method, host, literal, &request.headers) } else { "" };
        let prefix = if stripped.is_empty() { None } else { HeaderValue::from_str(stripped).ok() };
        if prefix.is_some() {
            let wanted = pronghorn_target::without_segments(request.uri.path(), stripped.matches('/').count());
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
        route.request_headers.apply_to_request(&mut request.headers);
        if let Some(mut before) = before {
            (before.prefix, before.tunnel) = (prefix, tunnel);
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
                        let request = Forwarded { prefix: prefix.as_ref(), request, tunnel, is_trusted, note };
                        upstream.forward(request, responder, move |response| end.finish(response));
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
            let index = site.place_of(number).unwrap_or_default();
            let means = local.means(&site.routes[index], connector);
            Centre { site, index, means, handle: connector.handle().clone() }.within_layers(&OnWorker::new(connector.clone()))
        });
        let peer = request.peer.clone();
        let Request { method, uri, headers, upgrade, body, .. } = request;
        let upgrade = upgrade.filter(|_| !end.asks_application());
        let Before { client, asked, reading, hints, prefix, tunnel } = before;
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
            reading,
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
                Outcome::Answer(answer) => responder.send(end.finish(tunnels::refusal(&peer, answer))),
                Outcome::Gone => responder.abort(),
                Outcome::Upgrade { passed, headers: added, body } => {
                    let Passed { method, uri, headers } = passed;
                    let is_trusted = end.local.trusts(&peer);
                    let request = Request { method, uri, headers, peer, upgrade: Some(upgrade), body };
                    let (local, site) = (end.local.clone(), end.site.clone());
                    let upstream = site.route(number).and_then(|route| match &route.action {
                        ActionPlan::Proxy(upstream) => local.upstreams.of(upstream, &connector).ok(),
                        _ => None,
                    });
                    let Some(upstream) = upstream else {
                        return responder.send(end.finish(text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n")));
                    };
                    let request = Forwarded { prefix: prefix.as_ref(), request, tunnel, is_trusted, note };
                    upstream.forward(request, responder, move |mut response| {
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
        if request.peer.protocol == Protocol::Http1 && request.headers.contains_key(CONNECTION) {
            hop::forget_named(&mut request.headers);
        }
        let local = self.local();
        let of_whole_server = whole_server::answer(&request.method, &request.uri, request.upgrade.is_some(), METHODS);
        let view = View::of(&mut request, &self.hosts);
        let mut logged = local.plan.log.as_ref().map(|log| log.begin(&request));
        if let Some(answer) = of_whole_server {
            return responder.send(match logged {
                Some(logged) => logged.finish(answer),
                None => answer,
            });
        }
        let view = match view {
            Ok(view) => view,
            Err(refusal) => {
                let answer = Response::from(refusal);
                return responder.send(match logged {
                    Some(logged) => logged.finish(answer),
                    None => answer,
                });
            }
        };
        if !request.peer.secure
            && let Some(proof) = self.shared.acme.challenges.answer(request.uri.host().unwrap_or_default(), request.uri.path())
        {
            let answer = Response::new(StatusCode::OK).with_body(proof);
            return responder.send(match logged {
                Some(logged) => logged.finish(answer),
                None => answer,
            });
        }
        let site = local.plan.sites.find(canonical::host(&request.uri)).cloned();
        let Some(site) = site else {
            let answer = text(StatusCode::MISDIRECTED_REQUEST, "there is no such site here\n");
            return responder.send(match logged {
                Some(logged) => logged.finish(answer),
                None => answer,
            });
        };
        //= RFC 9110 section 7.4
        //# Unless the connection is from a trusted gateway, an origin server MUST reject a request if any scheme-specific requirements for
        //# the target URI are not met.
        if let Some(name) = &request.peer.server_name
            && !local.shares.allow(&local.plan, name, canonical::host(&request.uri), &site)
            && !local.trusts(&request.peer)
        {
            let answer =
                text(StatusCode::MISDIRECTED_REQUEST, "the connection is for another site: its certificate is not for this host\n");
            return responder.send(End { local, site, route: None, logged, alt_svc: None }.finish(answer));
        }
        let aside = match identity_fields::admit(&mut request.headers, || local.trusted_with(&request.peer)) {
            Ok(aside) => aside,
            Err(refusal) => return responder.send(End { local, site, route: None, logged, alt_svc: None }.finish(refusal.into())),
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
        self.serve(request, &view, aside, responder, end);
    }
}
