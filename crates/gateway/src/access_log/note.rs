//! What a line learns on the request's way to a server of an upstream.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by the line and by whoever asks servers; there is one only where lines have room for it. (It stands among the extensions of
/// requests that go through layers, which may go to any thread.)
#[derive(Clone, Debug, Default)]
pub(crate) struct Note(Arc<Mutex<Learnt>>);

#[derive(Debug, Default)]
struct Learnt {
    server: Option<String>,
    error: Option<String>,
}

impl Note {
    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This server is asked now; what was learnt of the one before is not what the request came to.
    pub(crate) fn asks(&self, server: &dyn Display) {
        *self.learnt() = Learnt { server: Some(server.to_string()), error: None };
    }

    /// Why there is no answer, or not all of it.
    pub(crate) fn failed(&self, error: String) {
        self.learnt().error = Some(error);
    }

    /// The server that was asked last, and why that failed.
    pub(super) fn take(&self) -> (Option<String>, Option<String>) {
        let Learnt { server, error } = std::mem::take(&mut *self.learnt());
        (server, error)
    }
}
