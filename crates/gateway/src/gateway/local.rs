//! What a worker has of its own of a plan.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Uri};
use ipnet::IpNet;
use pronghorn_engine::{Connector, Peer, Request};

use super::misdirected::Shares;
use crate::application::{ApplicationHandler, ApplicationPlan};
use crate::canonical::Reading;
use crate::client_address::client_address;
use crate::client_auth;
use crate::freed_aside::FreedAside;
use crate::layered::{LayeredRoutes, Means};
use crate::layers::is_unproved;
use crate::plan::{ActionPlan, Plan, RoutePlan};
use crate::proxy::Upstreams;
use crate::ramp::Climb;
use crate::static_files::FileHandler;
use crate::tunnels::Tunnel;

/// What a worker has of its own of a plan.
pub(super) struct Local {
    pub(super) plan: Arc<FreedAside<Plan>>,
    pub(super) change: u64,
    /// By number of the route, made when it is first asked.
    pub(super) files: RefCell<Vec<Option<Rc<FileHandler>>>>,
    pub(super) applications: RefCell<Vec<Option<Rc<ApplicationHandler>>>>,
    pub(super) upstreams: Upstreams,
    pub(super) layered: LayeredRoutes,
    pub(super) clients: client_auth::Known,
    pub(super) climb: Climb,
    pub(super) shares: Shares,
}

impl Local {
    pub(super) fn new(plan: Arc<FreedAside<Plan>>, change: u64) -> Self {
        Self {
            plan,
            change,
            files: RefCell::default(),
            applications: RefCell::default(),
            upstreams: Upstreams::default(),
            layered: LayeredRoutes::default(),
            clients: client_auth::Known::default(),
            climb: Climb::default(),
            shares: Shares::default(),
        }
    }

    /// Whether the peer is a proxy that is believed.
    pub(super) fn trusts(&self, peer: &Peer) -> bool {
        self.plan.trusted_proxies.iter().any(|network| network.contains(&peer.remote.ip().to_canonical()))
    }

    /// The proxies that are believed, if the peer is one of them.
    pub(super) fn trusted_with(&self, peer: &Peer) -> Option<&[IpNet]> {
        self.trusts(peer).then_some(&*self.plan.trusted_proxies)
    }

    /// What layers are told of a request as it came: whose it is, if that is proved, and its target.
    pub(super) fn before_layers(&self, request: &Request, reading: Option<Reading>) -> Before {
        let client = client_address(request.peer.remote, &request.headers, &self.plan.trusted_proxies);
        let client = Some(client).filter(|_| !is_unproved(&request.peer));
        Before { client, asked: request.uri.clone(), reading, hints: None, prefix: None, tunnel: None }
    }

    /// What the action of a route needs of this worker.
    pub(super) fn means(&self, route: &RoutePlan, connector: &Connector) -> Means {
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

    pub(super) fn file_handler(&self, number: usize, files: &crate::StaticFiles) -> Rc<FileHandler> {
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
pub(super) struct Before {
    pub(super) client: Option<IpAddr>,
    pub(super) asked: Uri,
    /// Of its path, if that is not its own and only one.
    pub(super) reading: Option<Reading>,
    /// What its client is told once they let it through.
    pub(super) hints: Option<HeaderMap>,
    /// What was taken away from the path.
    pub(super) prefix: Option<HeaderValue>,
    /// Its place among those that go on in another protocol, if it asks for that.
    pub(super) tunnel: Option<Tunnel>,
}
