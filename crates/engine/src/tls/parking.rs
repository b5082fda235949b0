//! Handshakes that wait for something outside of the worker: shared sessions, or the signature of a
//! slow key.

use std::sync::Arc;

use rustls::ServerConfig;

use super::hello_summary::{HelloSummary, OfferedSessions};
use super::shared_scope::{Fetched, SharedScope};
use super::signing_threads::{SigningThreads, SlowKeys};

/// TLS of a listener, for one of its transports.
#[derive(Clone, Debug)]
pub(crate) struct ListenerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// `None` if no handshake has to wait: then none is parked.
    pub(crate) parking: Option<Arc<Parking>>,
}

/// What the handshakes of a listener may wait for.
#[derive(Debug)]
pub(crate) struct Parking {
    pub(super) sessions: Option<Arc<SharedScope>>,
    pub(super) signing: Option<Signing>,
}

#[derive(Clone, Debug)]
pub(crate) struct Signing {
    pub(super) keys: Arc<dyn SlowKeys>,
    pub(super) threads: SigningThreads,
}

impl Parking {
    /// Fetches the sessions that a client offers, and passes them to `done`: on any thread, at once
    /// if there are none.
    pub(crate) fn fetch(&self, hello: &HelloSummary, done: impl FnOnce(Fetched) + Send + 'static) {
        match &self.sessions {
            Some(scope) => scope.fetch(&hello.sessions, done),
            None => done(Fetched::default()),
        }
    }

    /// Returns the same for handshakes that resume no session; `None` if they wait for nothing.
    pub(crate) fn without_sessions(&self) -> Option<Self> {
        self.signing.clone().map(|signing| Self { sessions: None, signing: Some(signing) })
    }

    /// Whether a client offers sessions that have to be looked up.
    pub(crate) fn has_to_fetch(&self, hello: &HelloSummary) -> bool {
        self.sessions.is_some() && hello.sessions != OfferedSessions::None
    }

    /// Whether there are slow keys at all.
    pub(crate) fn has_slow_keys(&self) -> bool {
        self.signing.is_some()
    }

    /// Whether the handshake has to run on another thread.
    pub(crate) fn signs_slowly(&self, hello: &HelloSummary) -> bool {
        let name = hello.server_name.as_deref();
        self.signing.as_ref().is_some_and(|signing| signing.keys.is_slow(name))
    }

    /// Runs a part of a handshake on another thread. Returns `false`, and drops it, if too many
    /// wait for one.
    pub(crate) fn run(&self, part: impl FnOnce() + Send + 'static) -> bool {
        self.signing.as_ref().is_some_and(|signing| signing.threads.run(part))
    }
}
