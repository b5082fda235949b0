//! The upstream that a log line records.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The upstream server and error of a request, shared by the log line and the proxy; it exists only
/// if the format includes them. It is `Sync` because it is an extension of requests that pass
/// through layers, which may move to any thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note(Arc<Mutex<NoteState>>);

#[derive(Debug, Default)]
struct NoteState {
    server: Option<String>,
    error: Option<String>,
}

impl Note {
    fn state(&self) -> MutexGuard<'_, NoteState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the server that is tried now, and clears the error of the previous one.
    pub(crate) fn tries(&self, server: &dyn Display) {
        *self.state() = NoteState { server: Some(server.to_string()), error: None };
    }

    /// Records why there is no response, or no complete one.
    pub(crate) fn failed(&self, error: String) {
        self.state().error = Some(error);
    }

    /// Returns the last server that was tried, and its error.
    pub(super) fn take(&self) -> (Option<String>, Option<String>) {
        let NoteState { server, error } = std::mem::take(&mut *self.state());
        (server, error)
    }
}
