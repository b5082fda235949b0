//! The certificate of one name, which can be replaced while it is in use.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::sign::CertifiedKey;
use tokio::sync::Notify;

use super::schedule::Lifetime;
use super::store::StoredCertificate;

/// The state of a certificate's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderState {
    /// Whether an order is running.
    pub is_running: bool,
    /// Time of the next order; `None` if not known yet.
    pub next: Option<SystemTime>,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Last failure, until there is a certificate.
    pub error: Option<String>,
}

/// The reason why no retry is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError {
    /// No certificate is ordered for this host.
    #[error("no certificate is ordered for this host")]
    Unknown,
    /// An order is running.
    #[error("an order is already running")]
    Running,
    /// The certificate exists and is renewed in time.
    #[error("it has a certificate and no failed order")]
    NothingFailed,
}

/// The certificate of one name.
pub struct ManagedCertificate {
    host: String,
    kept: RwLock<Option<StoredCertificate>>,
    state: Mutex<OrderState>,
    /// Notified when the operator requests the next order at once.
    pub(super) retry: Notify,
}

impl ManagedCertificate {
    pub(super) fn new(host: &str, kept: Option<StoredCertificate>) -> Self {
        Self {
            host: host.to_owned(),
            kept: RwLock::new(kept),
            state: Mutex::default(),
            retry: Notify::new(),
        }
    }

    /// Returns the name.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the current certificate. An expired one is better than none: clients then report why
    /// they reject it.
    pub fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.kept
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|kept| kept.key.clone())
    }

    /// Returns the period in which the current certificate is valid.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|kept| kept.lifetime)
    }

    pub(super) fn show(&self, kept: StoredCertificate) {
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// Returns the state of the order.
    pub fn state(&self) -> OrderState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests the next order at once, whatever failed before. Does nothing if there was no
    /// failure or an order is running.
    ///
    /// # Errors
    ///
    /// Returns an error if an order is running, or nothing has failed.
    pub fn retry(&self) -> Result<(), RetryError> {
        let state = self.state();
        if state.is_running {
            return Err(RetryError::Running);
        }
        if state.failures == 0 && self.lifetime().is_some() {
            return Err(RetryError::NothingFailed);
        }
        self.retry.notify_one();
        Ok(())
    }

    pub(super) fn set_state(&self, change: impl FnOnce(&mut OrderState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for ManagedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedCertificate").field("host", &self.host).finish_non_exhaustive()
    }
}
