//! The run queue.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};

use async_task::{Runnable, Task};

use super::Wakeup;

/// After so many polls in a row one that comes last has its turn too.
const PATIENCE: usize = 32;

/// A future of more bytes is worth an allocation of its own.
const LARGE_BYTES: usize = 1 << 10;

/// Runs futures on the worker's thread. Wakers may come from any thread.
#[derive(Clone)]
pub(crate) struct Executor {
    queue: Arc<Queue>,
    /// Every task that has not ended. A future and what it waits for often hold each other, so they would outlive the worker.
    tasks: Rc<Tasks>,
}

#[derive(Default)]
struct Tasks {
    /// Never used twice, so that a task that ends takes out itself alone.
    next_key: Cell<u64>,
    running: RefCell<HashMap<u64, Task<()>, rustc_hash::FxBuildHasher>>,
    panics: Cell<u64>,
    /// How many futures may still be polled in this turn before they become tasks.
    eager: Cell<usize>,
}

struct Queue {
    ready: Mutex<Ready>,
    wakeup: Arc<Wakeup>,
}

#[derive(Default)]
struct Ready {
    first: VecDeque<Runnable>,
    /// Polled when there is none of the others.
    last: VecDeque<Runnable>,
    /// How many of the others went before what waits here.
    overtaken: usize,
}

impl Ready {
    fn next(&mut self) -> Option<Runnable> {
        if self.overtaken < PATIENCE
            && let Some(runnable) = self.first.pop_front()
        {
            self.overtaken += usize::from(!self.last.is_empty());
            return Some(runnable);
        }
        self.overtaken = 0;
        self.last.pop_front().or_else(|| self.first.pop_front())
    }
}

impl Executor {
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Self {
        Self { queue: Arc::new(Queue { ready: Mutex::default(), wakeup }), tasks: Rc::default() }
    }

    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(&self, future: F) {
        self.spawn_boxed(future, false);
    }

    /// For a future that writes what others have for it: it is polled after them, so that it writes all at once.
    pub(crate) fn spawn_last<F: Future<Output = ()> + 'static>(&self, future: F) {
        self.spawn_boxed(future, true);
    }

    fn spawn_boxed<F: Future<Output = ()> + 'static>(&self, future: F, last: bool) {
        // The compiler gives a future that is moved into another one room twice.
        if size_of::<F>() > LARGE_BYTES { self.spawn_as_it_is(Box::pin(future), last) } else { self.spawn_as_it_is(future, last) }
    }

    fn spawn_as_it_is(&self, future: impl Future<Output = ()> + 'static, last: bool) {
        // Weak: tasks hold their schedule function, and a queue that holds tasks must not keep itself alive.
        let queue = Arc::downgrade(&self.queue);
        let schedule = move |runnable: Runnable| {
            if let Some(queue) = queue.upgrade() {
                let mut ready = queue.lock();
                let of_its_kind = if last { &mut ready.last } else { &mut ready.first };
                of_its_kind.push_back(runnable);
                drop(ready);
                queue.wakeup.notify();
            } else {
                // The worker is gone. Dropping the task here would drop its future on a foreign thread.
                std::mem::forget(runnable);
            }
        };
        let key = self.tasks.next_key.get();
        self.tasks.next_key.set(key + 1);
        let end = End { tasks: Rc::downgrade(&self.tasks), key };
        let future = async move {
            let _end = end;
            future.await;
        };
        let (runnable, task) = async_task::spawn_local(future, schedule);
        self.tasks.running.borrow_mut().insert(key, task);
        runnable.schedule();
    }

    /// Lets `polls` futures be polled before they become tasks, until this is said anew.
    pub(crate) fn allow_eager(&self, polls: usize) {
        self.tasks.eager.set(polls);
    }

    /// Whether one more may be.
    pub(crate) fn take_eager(&self) -> bool {
        let left = self.tasks.eager.get();
        self.tasks.eager.set(left.saturating_sub(1));
        left > 0
    }

    /// How many may still be.
    pub(crate) fn eager(&self) -> usize {
        self.tasks.eager.get()
    }

    /// Drops every future.
    pub(crate) fn cancel_all(&self) {
        // A cancelled task is scheduled once more, and run to drop its future; that may cancel or spawn others.
        loop {
            let tasks = std::mem::take(&mut *self.tasks.running.borrow_mut());
            drop(tasks);
            if self.run(usize::MAX) == 0 && self.tasks.running.borrow().is_empty() {
                break;
            }
        }
    }

    /// Polls at most `budget` tasks and returns how many were polled.
    pub(crate) fn run(&self, budget: usize) -> usize {
        for polled in 0..budget {
            let Some(runnable) = self.queue.lock().next() else { return polled };
            // A future that panics is dropped, and with it what it was at work for; the others have nothing to do with that.
            if catch_unwind(AssertUnwindSafe(|| runnable.run())).is_err() {
                self.tasks.panics.set(self.tasks.panics.get() + 1);
            }
        }
        budget
    }

    /// How many futures have panicked since the last call.
    pub(crate) fn take_panics(&self) -> u64 {
        self.tasks.panics.take()
    }

    pub(crate) fn is_idle(&self) -> bool {
        let ready = self.queue.lock();
        ready.first.is_empty() && ready.last.is_empty()
    }

    /// The number of futures that have not ended.
    #[cfg(test)]
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.running.borrow().len()
    }
}

/// Takes its task out of the table when the future has ended.
struct End {
    tasks: Weak<Tasks>,
    key: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        let task = self.tasks.upgrade().and_then(|tasks| tasks.running.borrow_mut().remove(&self.key));
        if let Some(task) = task {
            // Dropped instead, it would cancel itself.
            task.detach();
        }
    }
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Ready> {
        // The lock is only held around a push or a pop, which leave the queue whole even if they panic.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::runtime::Reactor;

    /// An executor, and a place where futures note that they were polled.
    fn noted() -> (Executor, Rc<RefCell<Vec<&'static str>>>) {
        let (_, waker) = Reactor::new().expect("a descriptor");
        (Executor::new(Arc::new(Wakeup::new(waker))), Rc::default())
    }

    #[test]
    fn what_comes_last_is_polled_when_nothing_else_is_ready() {
        let (executor, polled) = noted();
        let note = |name| {
            let polled = polled.clone();
            move || polled.borrow_mut().push(name)
        };
        let (last, first, second) = (note("last"), note("first"), note("second"));
        executor.spawn_last(async move { last() });
        let again = executor.clone();
        executor.spawn(async move {
            first();
            again.spawn(async move { second() });
        });
        executor.run(usize::MAX);
        assert_eq!(*polled.borrow(), ["first", "second", "last"]);
        assert!(executor.is_idle());
    }

    #[test]
    fn what_comes_last_has_its_turn_although_others_are_always_ready() {
        let (executor, polled) = noted();
        executor.spawn(std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        let note = polled.clone();
        executor.spawn_last(async move { note.borrow_mut().push("last") });
        // Turns of few polls each, as a busy worker has them.
        for _ in 0..PATIENCE {
            executor.run(2);
        }
        assert_eq!(*polled.borrow(), ["last"]);
        executor.cancel_all();
    }
}
