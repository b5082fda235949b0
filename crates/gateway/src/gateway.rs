//! A configuration that serves, and can be replaced while it does.

mod end;
mod handler;
mod local;
mod misdirected;
mod refusal;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pronghorn_certificates::{CertificateError, Loaded};
use pronghorn_engine::{Identity, Policy};

pub use self::handler::GatewayHandler;
use crate::access_log::{AccessLog, LogCounts};
use crate::acme::Acme;
use crate::config::{Config, MinTls, Problem};
use crate::freed_aside::FreedAside;
use crate::layers::Registry;
use crate::plan::{Plan, Surroundings};
use crate::proxy::{Checks, Observer, ServerState, UpstreamCounts};
use crate::site_certificates::SiteCertificates;
use crate::switches::ByHand;

/// A configuration put to use. Workers answer through the [`GatewayHandler`]s that it makes. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

struct Shared {
    plan: Mutex<Arc<FreedAside<Plan>>>,
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
        let observer = Arc::<Observer>::default();
        let surroundings = Surroundings { https_port, development: &development, before: None, layers, observer: &observer };
        let plan = Plan::new(config, &surroundings)?;
        let names = plan.certificates.clone();
        observer.buffers.set(&config.server.buffering, config.buffering_folder().into());
        let acme = Acme::default();
        Ok(Self(Arc::new(Shared {
            plan: Mutex::new(Arc::new(FreedAside::new(plan))),
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
        let plan = Plan::new(config, &surroundings)?;
        shared.observer.buffers.set(&config.server.buffering, config.buffering_folder().into());
        // Held until the plan is there, so that nobody switches the one before meanwhile.
        let by_hand = shared.by_hand.lock().unwrap_or_else(PoisonError::into_inner);
        by_hand.apply(&plan.listed);
        shared.certificates.replace(plan.certificates.clone());
        let mut retired = shared.retired_logs.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|log| Arc::strong_count(log) > 1);
        retired.extend(before.log.clone().filter(|log| plan.log.as_ref().is_none_or(|now| !Arc::ptr_eq(log, now))));
        shared.acme.change(plan.ordered.as_ref());
        *shared.plan.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(FreedAside::new(plan));
        shared.changes.fetch_add(1, Ordering::Release);
        shared.checks.wake();
        Ok(())
    }

    /// What is probably not meant in what is served: certificates that clients will refuse. As of the start, or the last reload.
    pub fn warnings(&self) -> Vec<Problem> {
        self.plan().warnings.clone()
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

    pub(crate) fn plan(&self) -> Arc<FreedAside<Plan>> {
        self.0.plan()
    }

    /// A handler for one worker.
    pub fn handler(&self) -> GatewayHandler {
        GatewayHandler::new(&self.0)
    }
}

impl Shared {
    fn plan(&self) -> Arc<FreedAside<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
