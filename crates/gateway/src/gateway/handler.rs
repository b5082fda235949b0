//! Handling of a worker's requests, from the site to the action.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use pronghorn_engine::{
    Connector, EarlyRequest, Handler, Protocol, Request, Responder, Response, Worker,
};

use super::finish::ResponseFinisher;
use super::state::GatewayState;
use super::worker_state::{OriginalRequest, WorkerState};
use super::{client_auth, upgrades};
use crate::application;
use crate::fields::client_address::client_address;
use crate::fields::connection_fields;
use crate::fields::identity_fields::{self, UntrustedFields};
use crate::gateway::layered::{self, AllowedUpgrade, Head, Outcome, RouteService};
use crate::interim_responses::InterimQueue;
use crate::layers::{TOO_EARLY, WorkerContext, is_unproved};
use crate::proxy::{Forwarded, METHODS};
use crate::responses::text;
use crate::routing::action::ActionPlan;
use crate::routing::canonical::{self, CanonicalView, KnownHosts, with_path};
use crate::server_requests;
use crate::tunnels;

/// Handles the requests of one worker.
pub struct GatewayHandler {
    shared: Arc<GatewayState>,
    actions: Actions,
    worker_state: RefCell<Rc<WorkerState>>,
    hosts: KnownHosts,
}

impl GatewayHandler {
    pub(super) fn new(shared: &Arc<GatewayState>) -> Self {
        let worker_state = WorkerState::new(shared.plan(), 0);
        Self {
            shared: shared.clone(),
            actions: Actions::default(),
            worker_state: RefCell::new(Rc::new(worker_state)),
            hosts: KnownHosts::default(),
        }
    }

    fn worker_state(&self) -> Rc<WorkerState> {
        let change = self.shared.changes.load(Ordering::Acquire);
        let mut worker_state = self.worker_state.borrow_mut();
        if worker_state.change != change {
            let (plan, upstreams) = (self.shared.plan(), worker_state.upstreams.clone());
            upstreams.keep_only(&plan.upstreams);
            *worker_state = Rc::new(WorkerState { upstreams, ..WorkerState::new(plan, change) });
        }
        worker_state.clone()
    }

    fn serve(
        &self,
        mut request: Request,
        view: CanonicalView,
        untrusted: UntrustedFields,
        responder: Responder,
        mut finisher: ResponseFinisher,
    ) {
        let site = finisher.site.clone();
        let shown = untrusted.show(&mut request.headers);
        let host = canonical::host(&request.uri);
        let find = |path: &str| site.find(&request.method, host, path, &request.headers);
        let index = match view.agreed(&request.uri, find) {
            Ok(Some(index)) => index,
            Ok(None) => {
                return responder.send(finisher.finish(text(StatusCode::NOT_FOUND, "not found\n")));
            }
            Err(refusal) => return responder.send(finisher.finish(refusal.into())),
        };
        UntrustedFields::hide(&shown, &mut request.headers);
        finisher.route = Some(site.routes[index].number);
        let routed = RoutedRequest { request, view, untrusted, index };
        match site.routes[index].treat_early(&routed.request) {
            EarlyRequest::Answer => self.actions.answer(routed, responder, finisher),
            EarlyRequest::Refuse => {
                responder.send(finisher.finish(text(StatusCode::TOO_EARLY, TOO_EARLY)));
            }
            EarlyRequest::Hold => self.actions.answer_later(routed, responder, finisher),
        }
    }
}

/// A request whose route is known.
struct RoutedRequest {
    request: Request,
    view: CanonicalView,
    untrusted: UntrustedFields,
    /// Index of the route in its site.
    index: usize,
}

/// Answers requests by the action of their route. Cheap to clone.
#[derive(Clone, Default)]
struct Actions {
    /// Present once the worker has started.
    connector: OnceCell<Connector>,
}

impl Actions {
    /// Answers when the client's handshake is complete.
    fn answer_later(
        &self,
        mut routed: RoutedRequest,
        mut responder: Responder,
        finisher: ResponseFinisher,
    ) {
        let actions = self.clone();
        let handle = responder.handle().clone();
        handle.spawn(async move {
            if responder.handshake().await {
                routed.request.peer.early_data = false;
                actions.answer(routed, responder, finisher);
            } else {
                responder.abort();
            }
        });
    }

    fn answer(&self, routed: RoutedRequest, responder: Responder, mut finisher: ResponseFinisher) {
        let RoutedRequest { mut request, view, untrusted, index } = routed;
        let (worker_state, site) = (finisher.worker_state.clone(), finisher.site.clone());
        let route = &site.routes[index];
        let host = canonical::host(&request.uri);
        if let Err(refusal) = view.allowed(route.paths) {
            return responder.send(finisher.finish(refusal.into()));
        }
        untrusted.restore(&route.kept_fields, &mut request.headers);
        let (upgrade, headers, body) =
            (&mut request.upgrade, &mut request.headers, &mut request.body);
        let tunnel = match upgrades::admit(
            route,
            upgrade,
            headers,
            body,
            &request.peer,
            &worker_state.plan.trusted_proxies,
        ) {
            Ok(tunnel) => tunnel,
            Err(refusal) => return responder.send(finisher.finish(refusal.into())),
        };
        let mut original = (!route.layers.is_empty())
            .then(|| worker_state.before_layers(&request, view.reading()));
        let target =
            matches!(route.action, ActionPlan::Application(_)).then(|| request.uri.clone());
        let literal = view.literal(&request.uri);
        let stripped = if route.strip_prefix {
            route.prefix(&request.method, host, literal, &request.headers)
        } else {
            ""
        };
        let prefix = if stripped.is_empty() { None } else { HeaderValue::from_str(stripped).ok() };
        if prefix.is_some() {
            let wanted = pronghorn_target::without_segments(
                request.uri.path(),
                stripped.matches('/').count(),
            );
            match with_path(&request.uri, wanted) {
                Some(uri) => request.uri = uri,
                None => {
                    return responder
                        .send(finisher.finish(text(StatusCode::BAD_REQUEST, "invalid path\n")));
                }
            }
        }
        let mut responder = responder;
        if let Some(postprocessing) = &route.postprocessing {
            if !postprocessing.rewrite(&mut request) {
                return responder
                    .send(finisher.finish(text(StatusCode::BAD_REQUEST, "invalid path\n")));
            }
            match (postprocessing.hints(&request), &mut original) {
                // Clients that the layers refuse do not get the hints.
                (Some(hints), Some(original)) => original.hints = Some(hints.clone()),
                (Some(hints), None) => responder.send_interim(StatusCode::EARLY_HINTS, hints),
                (None, _) => {}
            }
        }
        let remote = request.peer.remote;
        route.request_headers.apply_to_request(&mut request.headers, |headers| {
            client_address(remote, headers, &worker_state.plan.trusted_proxies)
        });
        if let Some(mut original) = original {
            (original.prefix, original.tunnel) = (prefix, tunnel);
            return self.serve_layered(request, original, responder, finisher);
        }
        match &route.action {
            ActionPlan::Respond { .. } | ActionPlan::Redirect { .. } => {
                responder.send(finisher.finish(route.action.fixed_response(&request.uri)));
            }
            ActionPlan::Files(files) => {
                let handler = worker_state.file_handler(route.number, files);
                handler.serve_as(request, responder, move |response| finisher.finish(response));
            }
            ActionPlan::Application(plan) => {
                let Some(connector) = self.connector.get() else {
                    return responder.send(
                        finisher.finish(text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n")),
                    );
                };
                match worker_state.application(route.number, plan, connector) {
                    Ok(application) => {
                        let target = target.unwrap_or_else(|| request.uri.clone());
                        let note = finisher.note();
                        let Request { method, uri, headers, peer, body, .. } = request;
                        let head =
                            application::Head { method, uri, headers, peer, target, prefix, note };
                        application.serve(head, body, responder, move |response| {
                            finisher.finish(response)
                        });
                    }
                    Err(_) => responder.send(
                        finisher
                            .finish(text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n")),
                    ),
                }
            }
            ActionPlan::Proxy(upstream) => {
                let Some(connector) = self.connector.get() else {
                    return responder.send(
                        finisher.finish(text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n")),
                    );
                };
                match worker_state.upstreams.of(upstream, connector) {
                    Ok(upstream) => {
                        let is_trusted = worker_state.trusts(&request.peer);
                        let note = finisher.note();
                        let request = Forwarded {
                            prefix: prefix.as_ref(),
                            request,
                            tunnel,
                            is_trusted,
                            note,
                        };
                        upstream
                            .forward(request, responder, move |response| finisher.finish(response));
                    }
                    Err(_) => responder.send(
                        finisher
                            .finish(text(StatusCode::BAD_GATEWAY, "the upstream cannot be used\n")),
                    ),
                }
            }
        }
    }
}

/// Handling of routes with layers.
impl Actions {
    fn serve_layered(
        &self,
        request: Request,
        original: OriginalRequest,
        mut responder: Responder,
        mut finisher: ResponseFinisher,
    ) {
        let (Some(connector), Some(number)) = (self.connector.get(), finisher.route) else {
            return responder
                .send(finisher.finish(text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n")));
        };
        let (worker_state, site) = (finisher.worker_state.clone(), finisher.site.clone());
        let service = worker_state.layered.of(number, || {
            let index = site.index_of(number).unwrap_or_default();
            let resources = worker_state.resources(&site.routes[index], connector);
            RouteService { site, index, resources, handle: connector.handle().clone() }
                .within_layers(&WorkerContext::new(connector.clone()))
        });
        let peer = request.peer.clone();
        let Request { method, uri, headers, upgrade, body, .. } = request;
        let upgrade = upgrade.filter(|_| !finisher.uses_application());
        let OriginalRequest { client, target, reading, hints, prefix, tunnel } = original;
        let has_to_wait = finisher.uses_upstream();
        // Some clients take an interim response for the final one over HTTP/1.1, so they get no
        // hints either.
        let is_informed = upgrade.is_none()
            && peer.protocol != Protocol::Http1
            && (has_to_wait || hints.is_some());
        let interim = is_informed.then(|| InterimQueue::new(hints));
        let note = if has_to_wait { finisher.note() } else { None };
        let head = Head {
            method,
            uri,
            headers,
            peer: peer.clone(),
            upgrade: upgrade.clone(),
            client,
            target,
            reading,
            prefix: prefix.clone(),
            note: note.clone(),
            interim: interim.clone(),
        };
        if let Some(interim) = interim {
            let handle = responder.handle().clone();
            handle.spawn(async move {
                match layered::answer_informing(service, head, body, &interim, &mut responder).await
                {
                    Some(answer) => responder.send(finisher.finish(answer)),
                    None => responder.abort(),
                }
            });
            return;
        }
        let Some(upgrade) = upgrade else {
            let answer = async move { finisher.finish(layered::answer(service, head, body).await) };
            return if has_to_wait {
                responder.respond(answer);
            } else {
                responder.respond_eagerly(Box::pin(answer));
            };
        };
        let connector = connector.clone();
        let handle = responder.handle().clone();
        handle.spawn(async move {
            match layered::ask_for_upgrade(service, head, body, &mut responder).await {
                Outcome::Answer(answer) => {
                    responder.send(finisher.finish(tunnels::refusal(&peer, answer)));
                }
                Outcome::Gone => responder.abort(),
                Outcome::Upgrade { passed, headers: added, body } => {
                    let AllowedUpgrade { method, uri, headers } = passed;
                    let is_trusted = finisher.worker_state.trusts(&peer);
                    let request =
                        Request { method, uri, headers, peer, upgrade: Some(upgrade), body };
                    let (worker_state, site) =
                        (finisher.worker_state.clone(), finisher.site.clone());
                    let upstream = site.route(number).and_then(|route| match &route.action {
                        ActionPlan::Proxy(upstream) => {
                            worker_state.upstreams.of(upstream, &connector).ok()
                        }
                        _ => None,
                    });
                    let Some(upstream) = upstream else {
                        return responder.send(finisher.finish(text(
                            StatusCode::BAD_GATEWAY,
                            "the upstream cannot be used\n",
                        )));
                    };
                    let request =
                        Forwarded { prefix: prefix.as_ref(), request, tunnel, is_trusted, note };
                    upstream.forward(request, responder, move |mut response| {
                        response.fields_mut().extend(added);
                        finisher.finish(response)
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
        // Upstreams have their own trust roots.
        let connector = worker.connector(&nobody)?;
        if self.shared.checks.begin() {
            let (shared, handle) = (self.shared.clone(), connector.handle().clone());
            let plans = move |seen: Option<u64>| {
                let change = shared.changes.load(Ordering::Acquire);
                (seen != Some(change)).then(|| (change, shared.plan()))
            };
            handle.spawn(self.shared.checks.run(connector.clone(), plans));
        }
        let _ = self.actions.connector.set(connector);
        Ok(())
    }

    fn handle(&self, mut request: Request, responder: Responder) {
        if request.peer.protocol == Protocol::Http1 && request.headers.contains_key(CONNECTION) {
            connection_fields::remove_connection_fields(&mut request.headers);
        }
        let worker_state = self.worker_state();
        let of_whole_server = server_requests::answer(
            &request.method,
            &request.uri,
            request.upgrade.is_some(),
            METHODS,
        );
        let view = CanonicalView::of(&mut request, &self.hosts);
        let mut logged = worker_state.plan.log.as_ref().map(|log| log.begin(&request));
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
            && let Some(proof) = self
                .shared
                .orders
                .challenges()
                .answer(request.uri.host().unwrap_or_default(), request.uri.path())
        {
            let answer = Response::new(StatusCode::OK).with_body(proof);
            return responder.send(match logged {
                Some(logged) => logged.finish(answer),
                None => answer,
            });
        }
        let site = worker_state.plan.sites.find(canonical::host(&request.uri)).cloned();
        let Some(site) = site else {
            let answer = text(StatusCode::MISDIRECTED_REQUEST, "no site for this host\n");
            return responder.send(match logged {
                Some(logged) => logged.finish(answer),
                None => answer,
            });
        };
        //= RFC 9110 section 7.4
        //# Unless the connection is from a trusted gateway, an origin server MUST reject a request if any scheme-specific requirements for
        //# the target URI are not met.
        if let Some(name) = &request.peer.server_name
            && !worker_state.shares.allow(
                &worker_state.plan,
                name,
                canonical::host(&request.uri),
                &site,
            )
            && !worker_state.trusts(&request.peer)
        {
            let answer = text(
                StatusCode::MISDIRECTED_REQUEST,
                "misdirected request: the connection's certificate is not for this host\n",
            );
            return responder.send(
                ResponseFinisher { worker_state, site, route: None, logged, alt_svc: None }
                    .finish(answer),
            );
        }
        let untrusted = match identity_fields::admit(&mut request.headers, || {
            worker_state.trusted_with(&request.peer)
        }) {
            Ok(untrusted) => untrusted,
            Err(refusal) => {
                return responder.send(
                    ResponseFinisher { worker_state, site, route: None, logged, alt_svc: None }
                        .finish(refusal.into()),
                );
            }
        };
        let peer = &request.peer;
        let over_tcp = peer.secure && peer.protocol != Protocol::Http3;
        let alt_svc = match &worker_state.plan.ramp {
            _ if !over_tcp => None,
            None => site.switches.alt_svc(site.alt_svc.as_ref()),
            Some(ramp) => {
                let announced = site
                    .alt_svc
                    .as_ref()
                    .and_then(|_| ramp.value(&worker_state.climb, peer.remote.ip()));
                site.switches.alt_svc(announced.as_ref())
            }
        };
        if worker_state.plan.asks_clients {
            match client_auth::admit(
                &worker_state.plan,
                &site,
                &worker_state.clients,
                &request.peer,
                &mut request.headers,
            ) {
                Ok(client) => {
                    if let (Some(logged), Some(client)) = (&mut logged, client) {
                        logged.set_client_certificate(client.names());
                    }
                }
                Err(refusal) => {
                    return responder.send(
                        ResponseFinisher { worker_state, site, route: None, logged, alt_svc }
                            .finish(refusal.into()),
                    );
                }
            }
        }
        let finisher = ResponseFinisher { worker_state, site, route: None, logged, alt_svc };
        // A proxy's header fields are only as trustworthy as its address.
        if is_unproved(&request.peer) && finisher.worker_state.trusts(&request.peer) {
            return responder.send(finisher.finish(text(StatusCode::TOO_EARLY, TOO_EARLY)));
        }
        if let Some(answer) = finisher.site.refusal(&request, self.shared.https_port) {
            return responder.send(finisher.finish(answer));
        }
        self.serve(request, view, untrusted, responder, finisher);
    }
}
