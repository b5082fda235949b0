//! The keys of a signer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::signer::source::KeySource;

/// A key of a signer, with its name in the configuration.
#[derive(Debug)]
pub struct Key {
    name: String,
    source: Arc<dyn KeySource>,
    signatures: AtomicU64,
    failures: AtomicU64,
}

impl Key {
    /// Returns a key.
    pub fn new(name: impl Into<String>, source: Arc<dyn KeySource>) -> Arc<Self> {
        let (signatures, failures) = Default::default();
        Arc::new(Self { name: name.into(), source, signatures, failures })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what signs.
    pub fn source(&self) -> &Arc<dyn KeySource> {
        &self.source
    }

    pub(super) fn on_signature(&self, is_success: bool) {
        let counter = if is_success { &self.signatures } else { &self.failures };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of signatures and of failures.
    pub(super) fn counts(&self) -> [u64; 2] {
        [&self.signatures, &self.failures].map(|counter| counter.load(Ordering::Relaxed))
    }
}
