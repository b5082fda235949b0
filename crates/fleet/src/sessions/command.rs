//! What workers request from the store's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pronghorn_engine::{OnSessions, SessionName, SharedSession};

use super::settings::Own;

/// Commands that may wait or run at once. With the largest session each, they use 64 MiB; with the
/// largest that the engine stores, 16 MiB.
pub(super) const COMMANDS: usize = 4096;
/// Names in one lookup. The engine looks for two at the most.
pub(super) const NAMES: usize = 8;

/// A command of a worker, or of the server that uses the store.
pub(super) enum Command {
    Put {
        name: SessionName,
        session: Vec<u8>,
        lifetime: Duration,
        slot: Slot,
    },
    Lookup {
        names: Vec<SessionName>,
        removes: bool,
        pending: Pending,
    },
    /// Not counted: it is sent at the start and after a reload.
    Announce(Own),
}

/// Counts one command for as long as it exists.
pub(super) struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// Returns nothing if [`COMMANDS`] are running.
    pub(super) fn new(running: &Arc<AtomicUsize>) -> Option<Self> {
        let slot = Self(running.clone());
        (running.fetch_add(1, Relaxed) < COMMANDS).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A lookup whose caller waits. Calls `done` when it is dropped at the latest, so exactly once
/// whatever happens to the command.
pub(super) struct Pending {
    done: Option<OnSessions>,
    names: usize,
    pub(super) started: Instant,
    _slot: Option<Slot>,
}

impl Pending {
    pub(super) fn new(names: usize, done: OnSessions, slot: Option<Slot>) -> Self {
        Self { done: Some(done), names, started: Instant::now(), _slot: slot }
    }

    /// Hands over the sessions, one entry for each name. Names beyond have none.
    pub(super) fn finish(mut self, sessions: Vec<Option<SharedSession>>) {
        self.call(sessions);
    }

    fn call(&mut self, mut sessions: Vec<Option<SharedSession>>) {
        if let Some(done) = self.done.take() {
            sessions.resize(self.names, None);
            // A panic of the caller must not end the lookups of others.
            drop(catch_unwind(AssertUnwindSafe(|| done(sessions))));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.call(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn pending(names: usize) -> (Pending, mpsc::Receiver<usize>) {
        let (done, called) = mpsc::channel();
        let done = move |sessions: Vec<_>| done.send(sessions.len()).unwrap();
        (Pending::new(names, Box::new(done), None), called)
    }

    #[test]
    fn caller_is_answered_exactly_once() {
        let (lookup, called) = pending(2);
        lookup.finish(vec![None]);
        assert_eq!(called.iter().collect::<Vec<_>>(), [2]);
        let (lookup, called) = pending(3);
        drop(lookup);
        assert_eq!(called.iter().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn panic_of_the_caller_is_contained() {
        let lookup = Pending::new(1, Box::new(|_| panic!("expected by this test")), None);
        lookup.finish(Vec::new());
    }

    #[test]
    fn slots_are_bounded_and_released() {
        let running = Arc::default();
        let slots: Vec<_> = (0..COMMANDS).map(|_| Slot::new(&running).unwrap()).collect();
        assert!(Slot::new(&running).is_none());
        assert_eq!(running.load(Relaxed), COMMANDS, "a refused slot is not counted");
        drop(slots);
        assert_eq!(running.load(Relaxed), 0);
    }
}
