//! The certificate of one name, which comes and is replaced while it is shown.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::sign::CertifiedKey;
use tokio::sync::Notify;

use super::schedule::Lifetime;
use super::store::Kept;

/// How far the order of a certificate is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderState {
    /// Whether one is ordered now.
    pub is_running: bool,
    /// When the next one will be; `None` before that is known.
    pub next: Option<SystemTime>,
    /// Failures in a row.
    pub failures: u32,
    /// What the last one was, until there is a certificate.
    pub error: Option<String>,
}

/// Why nothing is ordered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRetry {
    /// No certificate is ordered for such a host.
    #[error("no certificate is ordered for this host: it has no site with tls = \"acme\"")]
    Unknown,
    /// It is being done.
    #[error("its certificate is ordered now")]
    Running,
    /// There is one, and it is renewed in time.
    #[error("it has a certificate, and no order has failed since")]
    NothingFailed,
}

/// The certificate of one name.
pub(crate) struct Slot {
    host: String,
    kept: RwLock<Option<Kept>>,
    state: Mutex<OrderState>,
    /// Somebody wants the next order at once.
    pub(super) retry: Notify,
}

impl Slot {
    pub(super) fn new(host: &str, kept: Option<Kept>) -> Self {
        Self { host: host.to_owned(), kept: RwLock::new(kept), state: Mutex::default(), retry: Notify::new() }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// What is shown now. One that has run out is better than none: clients say why they do not take it.
    pub(crate) fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|kept| kept.key.clone())
    }

    pub(crate) fn lifetime(&self) -> Option<Lifetime> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|kept| kept.lifetime)
    }

    pub(super) fn show(&self, kept: Kept) {
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    pub(crate) fn state(&self) -> OrderState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the next order made at once, whatever failed before. Nothing comes of it where none has failed, or one runs.
    pub(crate) fn retry(&self) -> Result<(), NoRetry> {
        let state = self.state();
        if state.is_running {
            return Err(NoRetry::Running);
        }
        if state.failures == 0 && self.lifetime().is_some() {
            return Err(NoRetry::NothingFailed);
        }
        self.retry.notify_one();
        Ok(())
    }

    pub(super) fn set_state(&self, change: impl FnOnce(&mut OrderState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("host", &self.host).finish_non_exhaustive()
    }
}
