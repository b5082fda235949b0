//! Waking a worker from outside its turn.

use std::cell::Cell;
use std::io;
use std::ptr;

use super::sync::{AtomicBool, Ordering, Waker, each_thread};

each_thread! {
    /// The wake-up of the worker whose turn runs on this thread, if any.
    static IN_TURN: Cell<*const Wakeup> = const { Cell::new(ptr::null()) };
}

/// Makes the worker's descriptor readable, at most once per turn.
///
/// Inside the worker's own turn a notification costs nothing: the turn checks its queues again
/// before it ends.
#[derive(Debug)]
pub(crate) struct Wakeup {
    waker: Waker,
    notified: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { waker, notified: AtomicBool::new(false) }
    }

    /// Requests another turn, from any thread.
    pub(crate) fn notify(&self) {
        if !ptr::eq(IN_TURN.with(Cell::get), self) {
            // Writing to an eventfd fails only if its counter is full, and then it is already
            // readable.
            let _ = self.notify_descriptor();
        }
    }

    /// Called when the poller has consumed the wake-up and the queues have not been checked yet:
    /// notifications from here on write to the descriptor again. If it were called earlier, the
    /// poller could consume a write whose flag then stays set.
    pub(crate) fn rearm(&self) {
        // A swap: a thread that found the flag set and did not write has put an item into a queue
        // before, which this thread sees from here on.
        self.notified.swap(false, Ordering::SeqCst);
    }

    /// Makes the descriptor readable although this worker's turn is running, because the turn ends
    /// early and must be continued.
    pub(crate) fn notify_descriptor(&self) -> io::Result<()> {
        if self.notified.swap(true, Ordering::SeqCst) { Ok(()) } else { self.waker.wake() }
    }
}

/// Whether this thread runs the turn of a worker, in which nothing may block.
pub(crate) fn is_in_turn() -> bool {
    IN_TURN.with(|turn| !turn.get().is_null())
}

/// Marks this thread as running the turn of one worker.
pub(crate) struct TurnGuard {
    outer: *const Wakeup,
}

impl TurnGuard {
    pub(crate) fn enter(wakeup: &Wakeup) -> Self {
        Self { outer: IN_TURN.with(|turn| turn.replace(wakeup)) }
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        IN_TURN.with(|turn| turn.set(self.outer));
    }
}
