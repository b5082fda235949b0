//! Shared sessions as the TLS of one listener sees them.
//!
//! rustls looks a session up in the middle of a call, and cannot wait. So the sessions that a
//! ClientHello offers are fetched before rustls gets it, and laid out for the thread that runs
//! rustls.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use rustls::server::StoresServerSessions;

use super::hello_summary::OfferedSessions;
use super::sessions::Scope;
use super::shared_sessions::{OnSessions, SessionName, SharedSession, SharedSessions};
use crate::limits::TLS_SESSION_BYTES;
use crate::stats::Stats;

/// Added to a session's ticket age, in milliseconds: the age that the client states is then wrong
/// by 25 days, so that rustls resumes the session and rejects its early data.
const STALE: u32 = 1 << 31;

thread_local! {
    /// Sessions fetched for the handshake that this thread is running.
    static FETCHED: RefCell<Fetched> = const { RefCell::new(Fetched(Vec::new())) };
}

/// Sessions that were found for one ClientHello.
#[derive(Debug, Default)]
pub(crate) struct Fetched(Vec<(SessionName, SharedSession)>);

impl Fetched {
    /// Runs a part of the handshake, in which rustls finds these sessions. Returns the rest of
    /// them: after a HelloRetryRequest, rustls looks them up only in a later part.
    pub(crate) fn provide<R>(self, run: impl FnOnce() -> R) -> (R, Self) {
        FETCHED.set(self);
        let result = run();
        (result, FETCHED.take())
    }

    fn remove(&mut self, name: &SessionName) -> Option<SharedSession> {
        let at = self.0.iter().position(|(each, _)| each == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// The end of a lookup. A store that drops it has found nothing.
struct Done<F: FnOnce(Fetched)>(Option<F>);

impl<F: FnOnce(Fetched)> Done<F> {
    fn call(&mut self, fetched: Fetched) {
        if let Some(done) = self.0.take() {
            done(fetched);
        }
    }
}

impl<F: FnOnce(Fetched)> Drop for Done<F> {
    fn drop(&mut self) {
        self.call(Fetched::default());
    }
}

/// The shared sessions of one listener and transport.
#[derive(Debug)]
pub(crate) struct SharedScope {
    store: Arc<dyn SharedSessions>,
    scope: Scope,
    lifetime: Duration,
    stats: Arc<Stats>,
}

impl SharedScope {
    pub(super) fn new(
        store: Arc<dyn SharedSessions>,
        scope: Scope,
        lifetime: Duration,
        stats: &Arc<Stats>,
    ) -> Self {
        Self { store, scope, lifetime, stats: stats.clone() }
    }

    /// Looks up the sessions that a client offers.
    pub(super) fn fetch(
        &self,
        offered: &OfferedSessions,
        done: impl FnOnce(Fetched) + Send + 'static,
    ) {
        let names: Vec<_> = match offered {
            OfferedSessions::None => return done(Fetched::default()),
            OfferedSessions::Tickets(tickets) => {
                tickets.iter().map(|ticket| self.name(ticket)).collect()
            }
            OfferedSessions::Id(id) => vec![self.name(id)],
        };
        let asked = names.clone();
        let mut done = Done(Some(done));
        let done: OnSessions = Box::new(move |found| {
            let found = asked.into_iter().zip(found);
            done.call(Fetched(found.filter_map(|(name, found)| Some((name, found?))).collect()));
        });
        match (offered, &*names) {
            (OfferedSessions::Id(_), [name]) => self.store.get(*name, done),
            _ => self.store.take(names, done),
        }
    }

    fn name(&self, ticket: &[u8]) -> SessionName {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(&self.scope);
        hash.update(ticket);
        *hash.finish().as_ref().first_chunk().expect("invariant: SHA-256 has 32 bytes")
    }

    fn find(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let found = FETCHED.with_borrow_mut(|fetched| fetched.remove(&self.name(ticket)));
        (if found.is_some() { &self.stats.sessions_taken } else { &self.stats.sessions_unknown })
            .add(1);
        let SharedSession { mut value, is_taken_for_good } = found?;
        if !is_taken_for_good {
            make_stale(&mut value);
        }
        Some(value)
    }
}

/// Changes an encoded session so that rustls takes its ticket for too old for early data. The last
/// field is the age's offset.
fn make_stale(session: &mut [u8]) {
    if let Some(offset) = session.last_chunk_mut::<4>() {
        *offset = u32::from_be_bytes(*offset).wrapping_add(STALE).to_be_bytes();
    }
}

impl StoresServerSessions for SharedScope {
    fn put(&self, name: Vec<u8>, value: Vec<u8>) -> bool {
        if value.len() > TLS_SESSION_BYTES {
            self.stats.sessions_evicted_for_bytes.add(1);
            return false;
        }
        self.store.put(self.name(&name), value, self.lifetime);
        self.stats.sessions_stored.add(1);
        true
    }

    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.find(name)
    }

    fn take(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.find(name)
    }

    fn can_cache(&self) -> bool {
        true
    }
}
