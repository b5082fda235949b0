//! Several sources of one key, tried in order.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pronghorn_engine::is_in_turn;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::backoff::pause_after;
use super::error::SignError;
use super::public_key::PublicKey;
use super::rustls_key;
use super::scheme::Scheme;
use super::source::KeySource;

/// Time for which a source is skipped after one failure. It doubles with each further one.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time for which a source is skipped.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The signing key of a certificate, made of sources that are tried in order at each signature.
///
/// A source that failed is tried last for a while: 1 s after one failure, up to 30 s after several.
/// Then one signature tries it first again. So while another source works, a source that hangs
/// costs its timeout to one handshake in up to 30 s.
#[derive(Clone)]
pub struct KeyChain(Arc<Chain>);

struct Chain {
    name: String,
    public: PublicKey,
    entries: Vec<Entry>,
    started: Instant,
    listener: Box<dyn Fn(KeyEvent<'_>) + Send + Sync>,
}

struct Entry {
    source: Arc<dyn KeySource>,
    /// Time since the start, in milliseconds, until which the source is tried last.
    skipped_until: AtomicU64,
    consecutive_failures: AtomicU32,
    signatures: AtomicU64,
    failures: AtomicU64,
    last_failure: Mutex<Option<SignError>>,
}

/// When a source is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// In order: it works.
    Working,
    /// In order, for one signature: its pause is over.
    Probe,
    /// After the others.
    Skipped,
}

/// A change to report. The listener is called on the thread that signs, and must not block.
#[derive(Debug)]
pub enum KeyEvent<'a> {
    /// A source that worked has failed, and is skipped for a while.
    Failed {
        /// Name of the source.
        source: &'a str,
        /// Reason.
        error: &'a SignError,
    },
    /// A source that failed works again.
    Recovered {
        /// Name of the source.
        source: &'a str,
    },
}

/// The state of one source.
#[derive(Clone, Debug)]
pub struct SourceState {
    /// Name of the source.
    pub name: String,
    /// Number of signatures.
    pub signatures: u64,
    /// Number of failures.
    pub failures: u64,
    /// Whether it is skipped now.
    pub is_skipped: bool,
    /// Reason of the last failure; `None` if it works.
    pub last_failure: Option<SignError>,
}

impl KeyChain {
    /// Returns a key made of sources, in order. The sources must have the same public key, that of
    /// the certificate.
    ///
    /// # Errors
    ///
    /// Returns the name of the first source with another public key.
    pub fn new(
        public: PublicKey,
        sources: Vec<Arc<dyn KeySource>>,
        listener: impl Fn(KeyEvent<'_>) + Send + Sync + 'static,
    ) -> Result<Self, String> {
        if let Some(other) = sources.iter().find(|source| *source.public_key() != public) {
            return Err(other.name().to_owned());
        }
        let name = sources.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ");
        let entries = sources.into_iter().map(Entry::new).collect();
        let (started, listener) = (Instant::now(), Box::new(listener));
        Ok(Self(Arc::new(Chain { name, public, entries, started, listener })))
    }

    /// Returns the sources' states, in order.
    pub fn sources(&self) -> Vec<SourceState> {
        let now = self.0.now();
        self.0.entries.iter().map(|entry| entry.state(now)).collect()
    }
}

impl KeySource for KeyChain {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn may_block(&self) -> bool {
        self.0.entries.iter().any(|entry| entry.source.may_block())
    }

    fn public_key(&self) -> &PublicKey {
        &self.0.public
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        let chain = &*self.0;
        let mut order: Vec<_> =
            chain.entries.iter().map(|entry| (entry.turn(chain.now()), entry)).collect();
        order.sort_by_key(|(turn, _)| *turn == Turn::Skipped);
        let mut reasons = Vec::new();
        for (turn, entry) in order {
            // The engine runs handshakes with slow keys elsewhere. A handshake that slips through,
            // such as one during a reload, must not hold up its worker.
            let signed = if is_in_turn() && entry.source.may_block() {
                Err(SignError::OnWorker)
            } else {
                entry.source.sign(scheme, digest)
            };
            match signed {
                Ok(signature) => {
                    entry.on_signature(&chain.listener);
                    return Ok(signature);
                }
                Err(error) => {
                    reasons.push(format!("{}: {error}", entry.source.name()));
                    entry.on_failure(turn, error, chain.now(), &chain.listener);
                }
            }
        }
        Err(SignError::AllFailed(reasons.join("; ")))
    }
}

impl SigningKey for KeyChain {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        rustls_key::choose_scheme(Arc::new(self.clone()), offered)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.0.public.spki())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        rustls_key::algorithm(self.0.public.kind())
    }
}

impl Chain {
    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

impl Entry {
    fn new(source: Arc<dyn KeySource>) -> Self {
        Self {
            source,
            skipped_until: AtomicU64::new(0),
            consecutive_failures: AtomicU32::new(0),
            signatures: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            last_failure: Mutex::new(None),
        }
    }

    fn turn(&self, now: u64) -> Turn {
        let failures = self.consecutive_failures.load(Ordering::Relaxed);
        if failures == 0 {
            return Turn::Working;
        }
        let until = self.skipped_until.load(Ordering::Relaxed);
        let next = now + pause(failures);
        let is_claimed = now >= until
            && self
                .skipped_until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_claimed { Turn::Probe } else { Turn::Skipped }
    }

    fn on_signature(&self, listener: &dyn Fn(KeyEvent<'_>)) {
        self.signatures.fetch_add(1, Ordering::Relaxed);
        if self.consecutive_failures.swap(0, Ordering::Relaxed) > 0 {
            self.skipped_until.store(0, Ordering::Relaxed);
            *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
            listener(KeyEvent::Recovered { source: self.source.name() });
        }
    }

    fn on_failure(&self, turn: Turn, error: SignError, now: u64, listener: &dyn Fn(KeyEvent<'_>)) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !error.is_fault() || turn == Turn::Skipped {
            return;
        }
        let failures = match turn {
            Turn::Probe => self.consecutive_failures.fetch_add(1, Ordering::Relaxed) + 1,
            // Signatures that began together fail together, which counts once.
            _ => 1,
        };
        let is_new = turn == Turn::Working
            && self
                .consecutive_failures
                .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        self.skipped_until.fetch_max(now + pause(failures), Ordering::Relaxed);
        if is_new {
            listener(KeyEvent::Failed { source: self.source.name(), error: &error });
        }
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn state(&self, now: u64) -> SourceState {
        SourceState {
            name: self.source.name().to_owned(),
            signatures: self.signatures.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            is_skipped: self.consecutive_failures.load(Ordering::Relaxed) > 0
                && now < self.skipped_until.load(Ordering::Relaxed),
            last_failure: self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

fn pause(failures: u32) -> u64 {
    pause_after(failures, MIN_PAUSE, MAX_PAUSE).as_millis() as u64
}

impl fmt::Debug for KeyChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyChain({}, {:?})", self.0.name, self.0.public)
    }
}

#[cfg(test)]
mod tests;
