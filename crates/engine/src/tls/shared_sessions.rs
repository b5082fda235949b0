//! Resumable sessions that several machines share.

use std::fmt;
use std::time::Duration;

/// Name of a shared session: a hash of the ticket and of everything that the session is bound to.
/// Equal on all machines that are configured alike.
pub type SessionName = [u8; 32];

/// A session found in a shared store.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSession {
    /// The session as it was stored.
    pub value: Vec<u8>,
    /// Whether no other lookup, on any machine and whatever happens to the store, says the same of
    /// this session. Early data is accepted only then; otherwise the session is resumed without.
    pub is_taken_for_good: bool,
}

impl fmt::Debug for SharedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSession")
            .field("is_taken_for_good", &self.is_taken_for_good)
            .finish_non_exhaustive()
    }
}

/// Receives the outcome of a lookup: one entry for each name, in their order.
pub type OnSessions = Box<dyn FnOnce(Vec<Option<SharedSession>>) + Send>;

/// A store of sessions outside of this process, such as Redis. Handshakes that need it are parked
/// meanwhile; no method may block.
pub trait SharedSessions: fmt::Debug + Send + Sync {
    /// Stores a session for `lifetime`. A session that cannot be stored is lost: its client does a
    /// full handshake.
    fn put(&self, name: SessionName, value: Vec<u8>, lifetime: Duration);

    /// Removes sessions from the store and returns them. Calls `done` exactly once, on any thread,
    /// possibly before this returns, and at the latest after the store's timeout.
    fn take(&self, names: Vec<SessionName>, done: OnSessions);

    /// Finds a session without removing it: TLS 1.2 resumes one on several connections, and has no
    /// early data. Calls `done` as [`SharedSessions::take`] does.
    fn get(&self, name: SessionName, done: OnSessions);
}
