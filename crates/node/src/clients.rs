//! Client certificates: verification.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pronghorn_certificates::{Authorities, Untrusted};
use pronghorn_engine::ClientCertificate;
use rustc_hash::FxHashMap;

/// How long a verification result is cached. The certificate may expire meanwhile.
const CACHE_TIME: Duration = Duration::from_secs(60);
/// Maximum number of trusted certificates that an entry caches.
const MAX_CACHED: usize = 1024;

/// Client certificate settings of an entry.
#[derive(Debug)]
pub(crate) struct Clients {
    authorities: Authorities,
    /// Whether clients without a trusted certificate are refused.
    pub(crate) is_required: bool,
    /// Trusted certificates by fingerprint, with the expiry of the result. Failures are not cached,
    /// because another chain may verify the same certificate.
    known: Mutex<FxHashMap<[u8; 32], Instant>>,
}

impl Clients {
    pub(crate) fn new(authorities: Authorities, is_required: bool) -> Self {
        Self { authorities, is_required, known: Mutex::default() }
    }

    pub(crate) fn verify(&self, certificate: &ClientCertificate) -> Result<(), Untrusted> {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(certificate.fingerprint()).is_some_and(|until| now < *until) {
            return Ok(());
        }
        self.authorities.verify(certificate)?;
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        known.insert(*certificate.fingerprint(), now + CACHE_TIME);
        Ok(())
    }
}
