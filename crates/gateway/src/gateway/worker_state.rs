//! A worker's own state for a plan.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Uri};
use ipnet::IpNet;
use pronghorn_engine::{Connector, Peer, Request};

use super::misdirected::ConnectionReuse;
use crate::application::{ApplicationHandler, ApplicationPlan};
use crate::certificates::client_auth;
use crate::drop_on_thread::DropOnThread;
use crate::fields::client_address::client_address;
use crate::gateway::layered::{ActionResources, LayeredRoutes};
use crate::layers::is_unproved;
use crate::plan::Plan;
use crate::proxy::Upstreams;
use crate::ramp::RampCache;
use crate::routing::action::ActionPlan;
use crate::routing::canonical::PathReading;
use crate::routing::site_plan::RoutePlan;
use crate::static_files::FileHandler;
use crate::tunnels::Tunnel;

/// A worker's own state for a plan.
pub(super) struct WorkerState {
    pub(super) plan: Arc<DropOnThread<Plan>>,
    pub(super) change: u64,
    /// Handlers by route number, created on first use.
    pub(super) files: RefCell<Vec<Option<Rc<FileHandler>>>>,
    pub(super) applications: RefCell<Vec<Option<Rc<ApplicationHandler>>>>,
    pub(super) upstreams: Upstreams,
    pub(super) layered: LayeredRoutes,
    pub(super) clients: client_auth::VerifiedCache,
    pub(super) climb: RampCache,
    pub(super) shares: ConnectionReuse,
}

impl WorkerState {
    pub(super) fn new(plan: Arc<DropOnThread<Plan>>, change: u64) -> Self {
        Self {
            plan,
            change,
            files: RefCell::default(),
            applications: RefCell::default(),
            upstreams: Upstreams::default(),
            layered: LayeredRoutes::default(),
            clients: client_auth::VerifiedCache::default(),
            climb: RampCache::default(),
            shares: ConnectionReuse::default(),
        }
    }

    /// Returns whether the peer is a trusted proxy.
    pub(super) fn trusts(&self, peer: &Peer) -> bool {
        self.plan
            .trusted_proxies
            .iter()
            .any(|network| network.contains(&peer.remote.ip().to_canonical()))
    }

    /// Returns the trusted proxies, if the peer is one of them.
    pub(super) fn trusted_with(&self, peer: &Peer) -> Option<&[IpNet]> {
        self.trusts(peer).then_some(&*self.plan.trusted_proxies)
    }

    /// Returns the original properties of a request for layers: the client address, if it is
    /// validated, and the target.
    pub(super) fn before_layers(
        &self,
        request: &Request,
        reading: Option<PathReading>,
    ) -> OriginalRequest {
        let client =
            client_address(request.peer.remote, &request.headers, &self.plan.trusted_proxies);
        let client = Some(client).filter(|_| !is_unproved(&request.peer));
        OriginalRequest {
            client,
            target: request.uri.clone(),
            reading,
            hints: None,
            prefix: None,
            tunnel: None,
        }
    }

    /// Returns what this worker needs to run the action of a route.
    pub(super) fn resources(&self, route: &RoutePlan, connector: &Connector) -> ActionResources {
        match &route.action {
            ActionPlan::Respond { .. } | ActionPlan::Redirect { .. } => ActionResources::Nothing,
            ActionPlan::Files(files) => {
                ActionResources::Files(self.file_handler(route.number, files))
            }
            ActionPlan::Application(plan) => {
                match self.application(route.number, plan, connector) {
                    Ok(application) => ActionResources::Application(application),
                    Err(_) => ActionResources::Unusable,
                }
            }
            ActionPlan::Proxy(upstream) => match self.upstreams.of(upstream, connector) {
                Ok(upstream) => ActionResources::Upstream {
                    upstream,
                    trusted_proxies: self.plan.trusted_proxies.clone(),
                },
                Err(_) => ActionResources::Unusable,
            },
        }
    }

    pub(super) fn file_handler(
        &self,
        number: usize,
        files: &crate::StaticFiles,
    ) -> Rc<FileHandler> {
        let mut handlers = self.files.borrow_mut();
        numbered(&mut handlers, number).get_or_insert_with(|| Rc::new(files.handler())).clone()
    }

    pub(super) fn application(
        &self,
        number: usize,
        plan: &Arc<ApplicationPlan>,
        connector: &Connector,
    ) -> io::Result<Rc<ApplicationHandler>> {
        let mut applications = self.applications.borrow_mut();
        let known = numbered(&mut applications, number);
        if let Some(application) = known {
            return Ok(application.clone());
        }
        let upstream = self.upstreams.of(&plan.upstream, connector)?;
        let made =
            Rc::new(ApplicationHandler::new(plan, upstream, self.plan.trusted_proxies.clone()));
        *known = Some(made.clone());
        Ok(made)
    }
}

/// Returns the entry of a number, growing the list if needed.
fn numbered<T>(all: &mut Vec<Option<T>>, number: usize) -> &mut Option<T> {
    if all.len() <= number {
        all.resize_with(number + 1, || None);
    }
    &mut all[number]
}

/// Properties of a request for layers, before the route changes it.
pub(super) struct OriginalRequest {
    pub(super) client: Option<IpAddr>,
    pub(super) target: Uri,
    /// Reading of the path, if it differs from the path itself and is unique.
    pub(super) reading: Option<PathReading>,
    /// Early hints to send once the layers have passed the request.
    pub(super) hints: Option<HeaderMap>,
    /// Prefix that was stripped from the path.
    pub(super) prefix: Option<HeaderValue>,
    /// Slot for the tunnel, if it is an upgrade request.
    pub(super) tunnel: Option<Tunnel>,
}
