//! What is left for a worker outside of its turn.

use std::sync::{Arc, PoisonError};

use super::Wakeup;
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// A queue that any thread may put something into, which then wakes the worker. To find it empty costs one load.
pub(super) struct Inbox<Q> {
    queue: Mutex<Q>,
    /// Whether there may be any.
    has_any: AtomicBool,
    wakeup: Arc<Wakeup>,
}

impl<Q: Default> Inbox<Q> {
    pub(super) fn new(wakeup: Arc<Wakeup>) -> Self {
        Self { queue: Mutex::new(Q::default()), has_any: AtomicBool::new(false), wakeup }
    }

    /// Has `put` add something, and the worker look at it.
    pub(super) fn put(&self, put: impl FnOnce(&mut Q)) {
        self.keep(put);
        self.wakeup.notify();
    }

    /// The same for a worker that leaves something to its next turn, and sees to it that there is one.
    pub(super) fn keep(&self, put: impl FnOnce(&mut Q)) {
        let mut queue = self.lock();
        put(&mut queue);
        self.has_any.store(true, Ordering::Release);
    }

    /// Takes all, if there seems to be any. It may miss what is put just now: before a turn ends, [`Inbox::look`] has to be asked.
    pub(super) fn take(&self) -> Option<Q> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.lock();
        self.has_any.store(false, Ordering::Release);
        Some(std::mem::take(&mut *queue))
    }

    /// Hands the queue itself to `look`. Whoever puts something in after that finds the worker's wake-up as the worker has left it.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Q) -> T) -> T {
        look(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Q> {
        // The lock is only held around a push or a pop, which leave the queue whole even if they panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
