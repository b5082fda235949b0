//! The threads that have the sessions of a key.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::error::Pkcs11Error;
use super::session::KeySession;
use super::uri::Pkcs11Uri;
use crate::signer::error::SignError;
use crate::signer::scheme::{KeyKind, Scheme};

/// Maximum number of sessions, and threads, of one key.
const SESSIONS: usize = 16;
/// Maximum number of signatures that wait for a session.
const WAITING: usize = 1024;

/// A digest to sign.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) scheme: Scheme,
    pub(super) digest: Vec<u8>,
    pub(super) deadline: Instant,
    pub(super) reply: SyncSender<Result<Vec<u8>, SignError>>,
}

/// The threads of a key. They are started when they are needed.
#[derive(Debug)]
pub(super) struct Workers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    uri: Pkcs11Uri,
    kind: KeyKind,
    state: Mutex<State>,
    arrival: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
    /// The session that opened the key, for the first thread.
    spare: Option<KeySession>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Workers {
    pub(super) fn new(uri: Pkcs11Uri, kind: KeyKind, spare: KeySession) -> Self {
        let state = Mutex::new(State { spare: Some(spare), ..State::default() });
        let arrival = Condvar::new();
        Self(Arc::new(Shared { uri, kind, state, arrival }))
    }

    pub(super) fn push(&self, job: Job) -> Result<(), SignError> {
        let mut state = self.0.state();
        if state.waiting.len() >= WAITING {
            return Err(SignError::Busy(WAITING));
        }
        if state.idle <= state.waiting.len() && state.threads < SESSIONS {
            let shared = self.0.clone();
            let thread = std::thread::Builder::new().name("pkcs11".to_owned());
            match thread.spawn(move || shared.work()) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    return Err(SignError::Unavailable(error.to_string()));
                }
                // The others do it.
                Err(_) => {}
            }
        }
        state.waiting.push_back(job);
        drop(state);
        self.0.arrival.notify_one();
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.arrival.notify_all();
    }
}

impl Shared {
    /// Signs until the key is dropped.
    fn work(&self) {
        let mut session = self.state().spare.take();
        while let Some(job) = self.take() {
            // Its caller has timed out.
            if Instant::now() >= job.deadline {
                continue;
            }
            let result = self.sign(&mut session, &job);
            let _ = job.reply.try_send(result);
        }
    }

    fn take(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Signs with the thread's session. If that fails, the session may be no longer usable: the
    /// token was removed or logged out. A new one tries once more.
    fn sign(&self, session: &mut Option<KeySession>, job: &Job) -> Result<Vec<u8>, SignError> {
        if let Some(open) = session {
            match open.sign(self.kind, job.scheme, &job.digest) {
                Ok(signature) => return Ok(signature),
                Err(_) => *session = None,
            }
        }
        let open = KeySession::open(&self.uri)
            .map_err(|error| SignError::Unavailable(error.to_string()))?;
        let signature = open
            .sign(self.kind, job.scheme, &job.digest)
            .map_err(|error| SignError::Failed(Pkcs11Error::from(error).to_string()))?;
        *session = Some(open);
        Ok(signature)
    }
}
