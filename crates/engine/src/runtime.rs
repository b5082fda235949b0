//! The worker's own small runtime: a poller, a run queue and timers, all on one thread.
//!
//! The futures of h2, hyper and the handlers run here, through a [`Handle`].

mod executor;
mod inbox;
#[cfg(test)]
mod model;
mod reactor;
mod sync;
mod timers;
mod wakeup;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub(crate) use executor::Executor;
pub(crate) use reactor::{Reactor, ReactorHandle, Registration};
pub use timers::Sleep;
pub(crate) use timers::Timers;
pub(crate) use wakeup::{TurnGuard, Wakeup};

/// Whether this thread runs the turn of a worker, in which nothing may block.
pub fn is_in_turn() -> bool {
    wakeup::is_in_turn()
}

/// Gives code on a worker access to its runtime: spawn futures, sleep, and read the time of the
/// current turn.
///
/// Cheap to clone; bound to the worker's thread.
#[derive(Clone)]
pub struct Handle {
    executor: Executor,
    timers: Timers,
    reactor: ReactorHandle,
    wakeup: Arc<Wakeup>,
    now: Rc<Cell<Instant>>,
    turn: Rc<Cell<u64>>,
    /// Incremented at the beginning of each turn, and before its end.
    phase: Rc<Cell<u32>>,
    /// Wakers that the next turn wakes.
    deferred: Rc<RefCell<Vec<Waker>>>,
    /// Wakers that the end of this turn wakes, if data is still held back then.
    holding: Rc<RefCell<Vec<HeldTask>>>,
}

/// An object that holds data back for more that the current turn may bring.
pub(crate) trait HoldsBack {
    fn is_holding(&self) -> bool;
}

/// An object that holds data back, with the waker of its task.
type HeldTask = (Rc<dyn HoldsBack>, Waker);

impl Handle {
    pub(crate) fn new(
        executor: Executor,
        timers: Timers,
        reactor: ReactorHandle,
        wakeup: Arc<Wakeup>,
        now: Instant,
    ) -> Self {
        let (now, turn, phase, deferred, holding) =
            (Rc::new(Cell::new(now)), Rc::default(), Rc::default(), Rc::default(), Rc::default());
        Self { executor, timers, reactor, wakeup, now, turn, phase, deferred, holding }
    }

    /// Runs `future` on this worker until it is ready.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.executor.spawn(future);
    }

    /// Like [`Handle::spawn`], for a future that writes data of others: it is polled after them.
    ///
    /// Returns a key for [`Handle::cancel`]. Another future may get the same key once this one has
    /// ended.
    pub(crate) fn spawn_deferred(&self, future: impl Future<Output = ()> + 'static) -> usize {
        self.executor.spawn_deferred(future)
    }

    /// Drops a future that has not ended, in the next turn.
    pub(crate) fn cancel(&self, key: usize) {
        self.executor.cancel(key);
    }

    /// Takes a poll for a future that is not a task. Returns whether the turn had one left.
    pub(crate) fn take_eager_poll(&self) -> bool {
        self.executor.take_eager()
    }

    /// Whether the turn has no such poll left.
    pub(crate) fn has_spent_eager_polls(&self) -> bool {
        self.executor.eager() == 0
    }

    /// Returns a future that is ready once the worker's time has passed `duration` from the current
    /// turn.
    ///
    /// # Cancel safety
    ///
    /// Dropping it removes the timer.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.timers.sleep(self.now(), duration)
    }

    /// Returns the time that the host passed to the current turn.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// Begins a turn, and wakes the tasks that were deferred to it.
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.now.set(now);
        self.turn.set(self.turn.get() + 1);
        self.phase.set(self.phase.get().wrapping_add(1));
        let deferred = std::mem::take(&mut *self.deferred.borrow_mut());
        deferred.into_iter().for_each(Waker::wake);
    }

    /// Returns the number of the current turn. Results of system calls may be cached until it
    /// changes.
    pub fn turn(&self) -> u64 {
        self.turn.get()
    }

    /// Wakes `waker` in the next turn, not in this one.
    pub fn defer(&self, waker: &Waker) {
        self.deferred.borrow_mut().push(waker.clone());
    }

    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.borrow().is_empty()
    }

    /// Returns the current phase of the turns. Data that was held back for more from this turn is
    /// released once it has changed.
    pub(crate) fn phase(&self) -> u32 {
        self.phase.get()
    }

    /// Wakes `waker` before the turn ends, if `who` still holds data back then.
    pub(crate) fn wake_at_end(&self, who: Rc<impl HoldsBack + 'static>, waker: &Waker) {
        self.holding.borrow_mut().push((who, waker.clone()));
    }

    /// Ends the main part of the turn: wakes the tasks that hold data back. Returns how many.
    pub(crate) fn end_turn(&self) -> usize {
        self.phase.set(self.phase.get().wrapping_add(1));
        let mut woken = 0;
        // Draining keeps the allocation.
        for (_, waker) in self.holding.borrow_mut().drain(..).filter(|(who, _)| who.is_holding()) {
            waker.wake();
            woken += 1;
        }
        woken
    }

    pub(crate) fn reactor(&self) -> &ReactorHandle {
        &self.reactor
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.timers
    }

    pub(crate) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }
}
