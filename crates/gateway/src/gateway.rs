//! A running configuration, which can be replaced while it serves.

mod client_auth;
mod finish;
mod handler;
mod layered;
mod misdirected;
mod overrides;
mod refusal;
mod state;
mod switching;
mod upgrades;
mod worker_state;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pronghorn_acme::Orders;
use pronghorn_certificates::{CertificateError, Loaded};
use pronghorn_engine::{Identity, Policy};

pub use pronghorn_fleet::signer::SourceState as KeyState;

pub use self::handler::GatewayHandler;
use self::state::GatewayState;
use crate::access_log::LogCounts;
use crate::certificates::key_log::KeyLog;
use crate::certificates::site_certificates::{Certificate, SiteCertificates};
use crate::config::{Config, MinTls, Problem};
use crate::drop_on_thread::DropOnThread;
use crate::layers::Registry;
use crate::plan::Plan;
use crate::plan::builder::PlanContext;
use crate::proxy::{Checks, Observer, ServerState, UpstreamCounts};

/// A running configuration. Workers answer through its [`GatewayHandler`]s. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayState>);

impl Gateway {
    /// Opens the folders, certificates and logs of the configuration. `layers` are the layers that
    /// it may use, `https_port` is the port of the TLS listener, and `development` provides the
    /// development certificate.
    ///
    /// # Errors
    ///
    /// Returns all problems that were found.
    pub fn new(
        config: &Config,
        layers: &Registry,
        https_port: Option<u16>,
        development: impl Fn() -> Result<Loaded, CertificateError> + Send + Sync + 'static,
    ) -> Result<Self, Vec<Problem>> {
        let observer = Arc::<Observer>::default();
        let key_log = Arc::<KeyLog>::default();
        let context = PlanContext {
            https_port,
            development: &development,
            before: None,
            layers,
            observer: &observer,
            key_log: &key_log,
        };
        let plan = Plan::new(config, &context)?;
        let names = plan.certificates.clone();
        observer.buffers.set(&config.server.buffering, config.buffering_folder().into());
        let orders = Orders::default();
        Ok(Self(Arc::new(GatewayState {
            plan: Mutex::new(Arc::new(DropOnThread::new(plan))),
            changes: AtomicU64::new(0),
            overrides: Mutex::default(),
            retired_logs: Mutex::default(),
            certificates: Arc::new(SiteCertificates::new(names, orders.challenges().clone())),
            orders,
            https_port,
            only_tls13: config.server.min_tls == MinTls::Tls13,
            development: Box::new(development),
            layers: layers.clone(),
            observer,
            key_log,
            checks: Checks::default(),
        })))
    }

    /// Switches to another configuration: sites, routes, certificates, upstreams and logs. Running
    /// requests continue unchanged, and unchanged upstreams keep their connections. Listeners and
    /// worker settings stay as they were at the start.
    ///
    /// # Errors
    ///
    /// Returns all problems that were found; then nothing has changed.
    pub fn reload(&self, config: &Config) -> Result<(), Vec<Problem>> {
        let shared = &self.0;
        let before = shared.plan();
        let context = PlanContext {
            https_port: shared.https_port,
            development: &shared.development,
            before: Some(&before),
            layers: &shared.layers,
            observer: &shared.observer,
            key_log: &shared.key_log,
        };
        let plan = Plan::new(config, &context)?;
        shared.observer.buffers.set(&config.server.buffering, config.buffering_folder().into());
        // Held until the plan is replaced, so that the previous one is not switched meanwhile.
        let overrides = shared.overrides.lock().unwrap_or_else(PoisonError::into_inner);
        overrides.apply(&plan.sites_in_order);
        shared.certificates.replace(plan.certificates.clone());
        let mut retired = shared.retired_logs.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|log| Arc::strong_count(log) > 1);
        retired.extend(
            before
                .log
                .clone()
                .filter(|log| plan.log.as_ref().is_none_or(|now| !Arc::ptr_eq(log, now))),
        );
        shared.orders.change(plan.ordered.as_ref());
        *shared.plan.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(DropOnThread::new(plan));
        self.plan().keys.connect();
        shared.changes.fetch_add(1, Ordering::Release);
        shared.checks.wake();
        Ok(())
    }

    /// Returns warnings about certificates that clients will reject, as of the start or the last
    /// reload.
    pub fn warnings(&self) -> Vec<Problem> {
        self.plan().warnings.clone()
    }

    /// Returns the identity with the certificates of all sites, which are looked up at each
    /// handshake.
    ///
    /// # Errors
    ///
    /// Never fails with the built-in cryptography.
    pub fn identity(&self) -> Result<Identity, rustls::Error> {
        let policy = Policy {
            only_tls13: self.0.only_tls13,
            client_certificates: Some(self.0.certificates.clone()),
            acme_challenges: true,
        };
        let identity = Identity::with_policy(self.0.certificates.clone(), &policy)?;
        Ok(if self.has_slow_keys() {
            identity.with_slow_keys(self.0.certificates.clone())
        } else {
            identity
        })
    }

    /// Whether the key of a certificate is on another machine or in a security module, so that
    /// handshakes may have to wait for its signature. [`Gateway::identity`] depends on it.
    pub fn has_slow_keys(&self) -> bool {
        self.plan()
            .sites_in_order
            .iter()
            .flat_map(|site| &site.certificates)
            .any(Certificate::is_slow)
    }

    /// Connects to the signers, which otherwise happens at the first signature. Log lines about keys
    /// on other machines and in security modules go to `tell`. It is called on threads that sign,
    /// so it must not block for long. The first callback that is set stays.
    pub fn connect_signers(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.0.key_log.set(Box::new(tell));
        self.plan().keys.connect();
    }

    /// Returns the state of the keys that sites have elsewhere: the certificate's file, and where
    /// its key is, in order.
    pub fn keys(&self) -> Vec<(PathBuf, Vec<KeyState>)> {
        let plan = self.plan();
        plan.keys.chains().map(|(cert, chain)| (cert.to_owned(), chain.sources())).collect()
    }

    /// Orders and renews the certificates for sites with `tls = "acme"`, as long as the gateway
    /// exists. Log lines go to `tell`.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started or the folder for certificates cannot be
    /// written.
    pub fn order_certificates(
        &self,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<()> {
        self.0.orders.start(self.0.plan().ordered.as_ref(), tell)
    }

    /// Reopens the file of the access log after it was moved away. Returns whether the log writes
    /// to a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened; the log continues with the open one.
    pub fn reopen_log(&self) -> io::Result<bool> {
        self.0.plan().log.as_ref().map_or(Ok(false), |log| log.reopen())
    }

    /// Waits until all lines of access logs are written. No requests may be running.
    pub fn finish_logs(&self) {
        self.0.plan().log.iter().for_each(|log| log.finish());
        self.0
            .retired_logs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .for_each(|log| log.finish());
    }

    /// Returns the counts of access log lines.
    pub fn log_counts(&self) -> Arc<LogCounts> {
        self.0.plan().log_counts.clone()
    }

    /// Returns the servers of all upstreams that routes use.
    pub fn upstream_servers(&self) -> Vec<ServerState> {
        self.plan().upstreams.iter().flat_map(|upstream| upstream.servers()).collect()
    }

    /// Returns the counters of upstreams over all workers since the start, including reloads.
    pub fn upstream_counts(&self) -> UpstreamCounts {
        UpstreamCounts::of(&self.0.observer)
    }

    /// Sets a callback for state changes of upstream servers, from now on and over reloads. It is
    /// called on workers, so it must not block. The first callback that is set stays.
    pub fn on_upstream_server_change(&self, tell: impl Fn(ServerState) + Send + Sync + 'static) {
        self.0.observer.set(Box::new(tell));
    }

    /// Sets a callback for log lines about failed upstream requests and about messages from FastCGI
    /// applications: ten lines at once and then one per second for each upstream, with the number
    /// of suppressed lines. It is called on workers, so it must not block; a line that it does not
    /// accept (`false`) counts as suppressed. The first callback that is set stays.
    pub fn on_upstream_failure(&self, tell: impl Fn(String) -> bool + Send + Sync + 'static) {
        self.0.observer.failure_logs.set(Box::new(tell));
    }

    /// Logs the number of suppressed lines of upstreams without new failures. Returns whether some
    /// are still pending. Call it one second after each line, and again while some are pending.
    pub fn log_suppressed(&self) -> bool {
        self.0.observer.failure_logs.log_suppressed()
    }

    pub(crate) fn plan(&self) -> Arc<DropOnThread<Plan>> {
        self.0.plan()
    }

    /// Creates a handler for one worker.
    pub fn handler(&self) -> GatewayHandler {
        GatewayHandler::new(&self.0)
    }
}
