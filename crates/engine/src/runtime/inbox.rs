//! Queues for a worker outside of its turn.

use std::sync::{Arc, PoisonError};

use super::Wakeup;
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// A queue into which any thread may put items, which wakes the worker. Finding it empty costs one
/// load.
pub(super) struct Inbox<Q> {
    queue: Mutex<Q>,
    /// Whether the queue may contain items.
    has_any: AtomicBool,
    wakeup: Arc<Wakeup>,
}

impl<Q: Default> Inbox<Q> {
    pub(super) fn new(wakeup: Arc<Wakeup>) -> Self {
        Self { queue: Mutex::new(Q::default()), has_any: AtomicBool::new(false), wakeup }
    }

    /// Calls `put` to add items, and wakes the worker.
    pub(super) fn put(&self, put: impl FnOnce(&mut Q)) {
        self.keep(put);
        self.wakeup.notify();
    }

    /// Like [`Inbox::put`], for a worker that leaves items to its next turn and schedules that turn
    /// itself.
    pub(super) fn keep(&self, put: impl FnOnce(&mut Q)) {
        let mut queue = self.lock();
        put(&mut queue);
        self.has_any.store(true, Ordering::Release);
    }

    /// Takes all items, if there seem to be any. It may miss items that are being added: call
    /// [`Inbox::look`] before a turn ends.
    pub(super) fn take(&self) -> Option<Q> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.lock();
        self.has_any.store(false, Ordering::Release);
        Some(std::mem::take(&mut *queue))
    }

    /// Passes the queue itself to `look`. A thread that adds an item after that sees the wake-up as
    /// the worker has left it.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Q) -> T) -> T {
        look(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Q> {
        // The lock is held only around a push or a pop, which leave the queue consistent even if
        // they panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
