//! The worker's own small runtime: a poller, a run queue and timers, all on one thread.
//!
//! The futures of the HTTP/1.1 and HTTP/2 libraries, and those of handlers, run here. [`Handle`] is what they see of it.

mod executor;
mod inbox;
#[cfg(test)]
mod model;
mod reactor;
mod timers;
mod wakeup;

/// What [`inbox`] and [`wakeup`] are made of. `model` has others of the same names.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
    pub(super) use std::thread_local as each_thread;

    pub(super) use mio::Waker;
}

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

/// What code on a worker may ask of it: spawn futures, sleep, and the time of the current turn.
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
    /// Grows at the beginning of each turn, and before its end.
    phase: Rc<Cell<u32>>,
    /// Whom the next turn wakes.
    deferred: Rc<RefCell<Vec<Waker>>>,
    /// Whom the end of this one wakes, if it still holds something back.
    holding: Rc<RefCell<Vec<Holding>>>,
}

/// Somebody who holds something back for what a turn may still bring.
pub(crate) trait Holds {
    fn is_holding(&self) -> bool;
}

/// Who holds something back, and how to wake them.
type Holding = (Rc<dyn Holds>, Waker);

impl Handle {
    pub(crate) fn new(executor: Executor, timers: Timers, reactor: ReactorHandle, wakeup: Arc<Wakeup>, now: Instant) -> Self {
        let (now, turn, phase, deferred, holding) = (Rc::new(Cell::new(now)), Rc::default(), Rc::default(), Rc::default(), Rc::default());
        Self { executor, timers, reactor, wakeup, now, turn, phase, deferred, holding }
    }

    /// Runs `future` on this worker until it is ready.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.executor.spawn(future);
    }

    /// The same for one that writes what others have for it: it is polled after them.
    ///
    /// Returns a key for [`Handle::cancel`], which is given to another future once this one has ended.
    pub(crate) fn spawn_last(&self, future: impl Future<Output = ()> + 'static) -> usize {
        self.executor.spawn_last(future)
    }

    /// Drops a future that has not ended, in the next turn.
    pub(crate) fn cancel(&self, key: usize) {
        self.executor.cancel(key);
    }

    /// Whether the turn has a poll left for a future that is no task.
    pub(crate) fn take_eager_poll(&self) -> bool {
        self.executor.take_eager()
    }

    /// Whether it has none left.
    pub(crate) fn has_spent_eager_polls(&self) -> bool {
        self.executor.eager() == 0
    }

    /// A future that is ready once the worker's time has passed `duration` from the current turn.
    ///
    /// # Cancel safety
    ///
    /// Dropping it removes the timer.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.timers.sleep(self.now(), duration)
    }

    /// The time that the host passed to the current turn.
    pub fn now(&self) -> Instant {
        self.now.get()
    }

    /// Begins a turn: those who had had enough of the last one go on.
    pub(crate) fn begin_turn(&self, now: Instant) {
        self.now.set(now);
        self.turn.set(self.turn.get() + 1);
        self.phase.set(self.phase.get().wrapping_add(1));
        let deferred = std::mem::take(&mut *self.deferred.borrow_mut());
        deferred.into_iter().for_each(Waker::wake);
    }

    /// The number of the current turn: what was found out about the world in it need not be found out again before the next.
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

    /// Which part of the turns runs. What was held back for something that this turn may still bring is held back no more when it has
    /// changed.
    pub(crate) fn phase(&self) -> u32 {
        self.phase.get()
    }

    /// Wakes `waker` before the turn ends, if `who` still holds something back then.
    pub(crate) fn wake_at_end(&self, who: Rc<impl Holds + 'static>, waker: &Waker) {
        self.holding.borrow_mut().push((who, waker.clone()));
    }

    /// The turn has done what it could: those who hold something back are woken. Returns how many.
    pub(crate) fn end_turn(&self) -> usize {
        self.phase.set(self.phase.get().wrapping_add(1));
        let mut woken = 0;
        // Its memory serves again.
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
