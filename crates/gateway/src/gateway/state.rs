//! The state of a running gateway.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use pronghorn_acme::Orders;
use pronghorn_certificates::{CertificateError, Loaded};

use super::overrides::Overrides;
use crate::access_log::AccessLog;
use crate::certificates::key_log::KeyLog;
use crate::certificates::site_certificates::SiteCertificates;
use crate::drop_on_thread::DropOnThread;
use crate::layers::Registry;
use crate::plan::Plan;
use crate::proxy::{Checks, Observer};

/// State of a gateway, shared by its handles and workers.
pub(super) struct GatewayState {
    pub(super) plan: Mutex<Arc<DropOnThread<Plan>>>,
    /// Number of reloads; workers fetch the new plan when it has changed.
    pub(super) changes: AtomicU64,
    pub(super) overrides: Mutex<Overrides>,
    /// Replaced logs that running requests still write to. The last user of a log waits for the
    /// disk, so it must not be a worker.
    pub(super) retired_logs: Mutex<Vec<Arc<AccessLog>>>,
    pub(super) certificates: Arc<SiteCertificates>,
    pub(super) orders: Orders,
    pub(super) https_port: Option<u16>,
    pub(super) only_tls13: bool,
    pub(super) development: Box<dyn Fn() -> Result<Loaded, CertificateError> + Send + Sync>,
    pub(super) layers: Registry,
    pub(super) observer: Arc<Observer>,
    pub(super) key_log: Arc<KeyLog>,
    pub(super) checks: Checks,
}

impl GatewayState {
    pub(super) fn plan(&self) -> Arc<DropOnThread<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
