//! An application: its routes, certificates and configuration.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use pronghorn_engine::{Config, Identity, Policy, Sessions, Transports, Upgrade};

use crate::certificates::Certificates;
use crate::js::Failure;
use crate::router::{Parameters, Router};

/// An application created by `App`, `SSLApp`, `H3App` or `Server`.
pub(crate) struct App {
    number: Cell<u32>,
    pub(crate) transports: Transports,
    pub(crate) config: RefCell<Config>,
    pub(crate) certificates: OnceCell<Arc<Certificates>>,
    identity: OnceCell<Identity>,
    /// The routes of each host name. The empty name stands for all others.
    routers: RefCell<Vec<(String, Router)>>,
    /// The routes of each [`UpgradeKind`], which come first.
    upgrade_routers: [RefCell<Vec<(String, Router)>>; 2],
    /// Whether JavaScript gets connection events.
    pub(crate) filters: Cell<bool>,
    /// Numbers of its programs in the addon.
    pub(crate) programs: RefCell<Vec<usize>>,
    /// Numbers of its WebSocket kinds in the addon.
    pub(crate) socket_kinds: RefCell<Vec<usize>>,
}

impl App {
    pub(crate) fn new(transports: Transports, config: Config) -> Self {
        Self {
            number: Cell::new(0),
            transports,
            config: RefCell::new(config),
            certificates: OnceCell::new(),
            identity: OnceCell::new(),
            routers: RefCell::new(vec![(String::new(), Router::default())]),
            upgrade_routers: Default::default(),
            filters: Cell::new(false),
            programs: RefCell::default(),
            socket_kinds: RefCell::default(),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number.get()
    }

    pub(crate) fn set_number(&self, number: u32) {
        self.number.set(number);
    }

    /// Adds or removes a route; see [`Router::set`]. `domain`: empty for all host names without
    /// routes of their own.
    pub(crate) fn route(
        &self,
        domain: &str,
        method: Option<Method>,
        pattern: &str,
        handler: Option<u32>,
    ) {
        router(&mut self.routers.borrow_mut(), domain).set(method, pattern, handler);
    }

    /// Adds or removes a route for upgrade requests.
    pub(crate) fn upgrade_route(
        &self,
        upgrade: UpgradeKind,
        domain: &str,
        pattern: &str,
        handler: Option<u32>,
    ) {
        let mut routers = self.upgrade_routers[upgrade as usize].borrow_mut();
        // The router for all names comes first.
        router(&mut routers, "");
        router(&mut routers, domain).set(None, pattern, handler);
    }

    pub(crate) fn remove_domain(&self, domain: &str) {
        for routers in self.upgrade_routers.iter().chain([&self.routers]) {
            routers.borrow_mut().retain(|(name, _)| name.is_empty() || name != domain);
        }
    }

    /// Returns the handler of match number `skip`. `upgrade`: upgrade of the request, which has
    /// routes of its own.
    pub(crate) fn find(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        upgrade: Option<UpgradeKind>,
        mut skip: usize,
    ) -> Option<(u32, Parameters)> {
        let in_these = |routers: &[(String, Router)], skip: &mut usize| {
            let (_, router) = if routers.len() == 1 {
                &routers[0]
            } else {
                &routers[named(routers, uri, headers)]
            };
            router.find(method, uri.path(), skip)
        };
        if let Some(upgrade) = upgrade {
            let routers = self.upgrade_routers[upgrade as usize].borrow();
            if !routers.is_empty()
                && let Some(found) = in_these(&routers, &mut skip)
            {
                return Some(found);
            }
        }
        in_these(&self.routers.borrow(), &mut skip)
    }

    /// Returns the identity for connections over TLS; `None` for clear text.
    ///
    /// # Errors
    ///
    /// If there is no certificate, or it cannot be used.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, Failure> {
        let Some(certificates) = self.certificates.get() else { return Ok(None) };
        if certificates.is_empty() {
            return Err(
                "there is no certificate: give key_file_name and cert_file_name (or key and \
                cert), or add server names"
                    .into(),
            );
        }
        if let Some(identity) = self.identity.get() {
            return Ok(Some(identity.clone()));
        }
        let sessions = Sessions::new(&self.config.borrow().limits);
        let policy =
            Policy { client_certificates: Some(certificates.clone()), ..Policy::default() };
        let identity =
            Identity::with_policy(certificates.clone(), &policy)?.with_sessions(sessions);
        Ok(Some(self.identity.get_or_init(|| identity).clone()))
    }
}

/// An upgrade protocol with routes of its own.
#[derive(Clone, Copy)]
pub(crate) enum UpgradeKind {
    Socket = 0,
    Session = 1,
}

impl UpgradeKind {
    /// Returns the upgrade that a request asks for, if it is one of these.
    pub(crate) fn from_upgrade(upgrade: Option<&Upgrade>) -> Option<Self> {
        match upgrade?.protocol() {
            "websocket" => Some(Self::Socket),
            "webtransport" => Some(Self::Session),
            _ => None,
        }
    }
}

/// Returns the router of a host name, adding an empty one if there is none.
fn router<'a>(routers: &'a mut Vec<(String, Router)>, domain: &str) -> &'a mut Router {
    let index = routers.iter().position(|(name, _)| name == domain).unwrap_or_else(|| {
        routers.push((domain.to_owned(), Router::default()));
        routers.len() - 1
    });
    &mut routers[index].1
}

/// Returns the host of a request, in lower case.
pub(crate) fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let from_field = || {
        headers
            .get(http::header::HOST)?
            .to_str()
            .ok()?
            .parse::<http::uri::Authority>()
            .ok()
            .map(|host| host.host().to_owned())
    };
    let mut host = uri.host().map(str::to_owned).or_else(from_field)?;
    host.make_ascii_lowercase();
    Some(host)
}

/// Returns the index of the router for the request's host; `*.` matches one label.
fn named(routers: &[(String, Router)], uri: &Uri, headers: &HeaderMap) -> usize {
    let Some(host) = host_of(uri, headers) else { return 0 };
    let position = |wanted: &str| routers.iter().position(|(name, _)| name == wanted);
    let wildcard = || position(&format!("*{}", &host[host.find('.')?..]));
    position(&host).or_else(wildcard).unwrap_or(0)
}
