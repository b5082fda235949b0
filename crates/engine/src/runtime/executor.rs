//! The run queue.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use async_task::{Runnable, Task};
use slab::Slab;

use super::Wakeup;
use super::inbox::Inbox;

/// After so many polls in a row one that comes last has its turn too.
const PATIENCE: usize = 32;

/// Of those that come last, so many have their turn one after the other at the most.
const ROUND: usize = 128;

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
    /// `None`: it is cancelled, and ends when it is scheduled next.
    running: RefCell<Slab<Option<Task<()>>>>,
    /// Counts how often all were cancelled: a task that ends after that must not take out another one that has its key.
    generation: Cell<u64>,
    panics: Cell<u64>,
    /// How many futures may still be polled in this turn before they become tasks.
    eager: Cell<usize>,
}

/// What was scheduled outside of the worker's turn, by any thread.
struct Queue(Inbox<Ready>);

thread_local! {
    /// The run queue of the worker whose turn runs on this thread: nearly all tasks are scheduled there, and need no lock.
    static TURN: Turn = const { Turn { of: Cell::new(ptr::null()), ready: RefCell::new(Ready::new()) } };
}

struct Turn {
    of: Cell<*const Queue>,
    ready: RefCell<Ready>,
}

/// Marks that a turn runs on this thread.
pub(crate) struct InTurn<'a> {
    queue: &'a Queue,
    outer: *const Queue,
    outer_ready: Ready,
}

#[derive(Default)]
struct Ready {
    first: VecDeque<Runnable>,
    /// Polled when there is none of the others.
    last: VecDeque<Runnable>,
    /// How many of the others went before what waits here.
    overtaken: usize,
    /// How many of those have their turn now, one after the other.
    round: usize,
}

impl Ready {
    const fn new() -> Self {
        Self { first: VecDeque::new(), last: VecDeque::new(), overtaken: 0, round: 0 }
    }

    fn push(&mut self, runnable: Runnable, last: bool) {
        let of_its_kind = if last { &mut self.last } else { &mut self.first };
        of_its_kind.push_back(runnable);
    }

    fn append(&mut self, mut others: Self) {
        self.first.append(&mut others.first);
        self.last.append(&mut others.last);
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.last.is_empty()
    }

    /// What waits for the others goes when there is none of them, up to [`ROUND`] before the others that it wakes: each kind takes more code
    /// than a processor's first cache holds, and would load it anew for each task.
    fn next(&mut self) -> Option<Runnable> {
        if self.round > 0
            && let Some(runnable) = self.last.pop_front()
        {
            self.round -= 1;
            return Some(runnable);
        }
        if self.overtaken < PATIENCE
            && let Some(runnable) = self.first.pop_front()
        {
            self.overtaken += usize::from(!self.last.is_empty());
            return Some(runnable);
        }
        self.overtaken = 0;
        self.round = self.last.len().min(ROUND).saturating_sub(1);
        self.last.pop_front().or_else(|| self.first.pop_front())
    }
}

impl Executor {
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Self {
        Self { queue: Arc::new(Queue(Inbox::new(wakeup))), tasks: Rc::default() }
    }

    /// Begins a turn of the worker, which lasts until the guard is dropped.
    pub(crate) fn enter(&self) -> InTurn<'_> {
        let ready = self.queue.0.take().unwrap_or_default();
        let (outer, outer_ready) = TURN.with(|turn| (turn.of.replace(Arc::as_ptr(&self.queue)), turn.ready.replace(ready)));
        InTurn { queue: &self.queue, outer, outer_ready }
    }

    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(&self, future: F) {
        self.spawn_boxed(future, false);
    }

    /// For a future that writes what others have for it: it is polled after them, so that it writes all at once.
    ///
    /// Returns a key for [`Executor::cancel`], which is given to another task once this one has ended.
    pub(crate) fn spawn_last<F: Future<Output = ()> + 'static>(&self, future: F) -> usize {
        self.spawn_boxed(future, true)
    }

    fn spawn_boxed<F: Future<Output = ()> + 'static>(&self, future: F, last: bool) -> usize {
        // The compiler gives a future that is moved into another one room twice.
        if size_of::<F>() > LARGE_BYTES { self.spawn_as_it_is(Box::pin(future), last) } else { self.spawn_as_it_is(future, last) }
    }

    fn spawn_as_it_is(&self, future: impl Future<Output = ()> + 'static, last: bool) -> usize {
        // Weak: tasks hold their schedule function, and a queue that holds tasks must not keep itself alive.
        let queue = Arc::downgrade(&self.queue);
        let schedule = move |runnable: Runnable| {
            let Some(runnable) = Queue::schedule_in_turn(queue.as_ptr(), runnable, last) else { return };
            if let Some(queue) = queue.upgrade() {
                queue.0.put(|ready| ready.push(runnable, last));
            } else {
                // The worker is gone. Dropping the task here would drop its future on a foreign thread.
                std::mem::forget(runnable);
            }
        };
        let mut running = self.tasks.running.borrow_mut();
        let place = running.vacant_entry();
        let key = place.key();
        let end = End { tasks: Rc::downgrade(&self.tasks), key, generation: self.tasks.generation.get() };
        let future = async move {
            let _end = end;
            future.await;
        };
        let (runnable, task) = async_task::spawn_local(future, schedule);
        place.insert(Some(task));
        drop(running);
        runnable.schedule();
        key
    }

    /// Drops the future of a task that has not ended, in the worker's next turn.
    pub(crate) fn cancel(&self, key: usize) {
        // Its place stays taken until the future is dropped, which frees it.
        let task = self.tasks.running.borrow_mut().get_mut(key).and_then(Option::take);
        drop(task);
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
            self.tasks.generation.set(self.tasks.generation.get() + 1);
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
            let Some(runnable) = self.queue.next() else { return polled };
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
        self.queue.is_empty()
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
    key: usize,
    generation: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        let tasks = self.tasks.upgrade().filter(|tasks| tasks.generation.get() == self.generation);
        let task = tasks.and_then(|tasks| tasks.running.borrow_mut().try_remove(self.key)).flatten();
        if let Some(task) = task {
            // Dropped instead, it would cancel itself.
            task.detach();
        }
    }
}

impl Queue {
    /// Where it is this queue's worker that has its turn on this thread. Otherwise the task is given back.
    fn schedule_in_turn(queue: *const Self, runnable: Runnable, last: bool) -> Option<Runnable> {
        let mut given = Some(runnable);
        // Without the thread's memory, which goes with the thread, there is no turn either.
        let _ = TURN.try_with(|turn| {
            if ptr::eq(turn.of.get(), queue)
                && let Some(runnable) = given.take()
            {
                turn.ready.borrow_mut().push(runnable, last);
            }
        });
        given
    }

    fn next(&self) -> Option<Runnable> {
        TURN.with(|turn| {
            if !ptr::eq(turn.of.get(), self) {
                return self.0.look(Ready::next);
            }
            let mut ready = turn.ready.borrow_mut();
            if let Some(others) = self.0.take() {
                ready.append(others);
            }
            ready.next()
        })
    }

    fn is_empty(&self) -> bool {
        let has_none = TURN.with(|turn| !ptr::eq(turn.of.get(), self) || turn.ready.borrow().is_empty());
        has_none && self.0.look(|ready| ready.is_empty())
    }
}

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        let outer_ready = std::mem::take(&mut self.outer_ready);
        let mut left = TURN.with(|turn| {
            turn.of.set(self.outer);
            turn.ready.replace(outer_ready)
        });
        if left.is_empty() {
            return;
        }
        self.queue.0.keep(|ready| {
            left.append(std::mem::take(ready));
            *ready = left;
        });
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
    fn what_comes_last_goes_in_rounds() {
        let (executor, polled) = noted();
        for name in ["last 1", "last 2"] {
            let (polled, again) = (polled.clone(), executor.clone());
            executor.spawn_last(async move {
                polled.borrow_mut().push(name);
                again.clone().spawn(async move {
                    polled.borrow_mut().push("first");
                    again.spawn_last(async move { polled.borrow_mut().push("next round") });
                });
            });
        }
        executor.run(usize::MAX);
        assert_eq!(*polled.borrow(), ["last 1", "last 2", "first", "first", "next round", "next round"]);
    }

    #[test]
    fn others_have_their_turn_however_many_come_last() {
        let (executor, polled) = noted();
        let ready = |name| {
            let polled = polled.clone();
            std::future::poll_fn(move |cx| {
                polled.borrow_mut().push(name);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })
        };
        executor.spawn(ready("first"));
        for _ in 0..10 * ROUND {
            executor.spawn_last(ready("last"));
        }
        executor.run(4 * (PATIENCE + ROUND));
        let first = polled.borrow().iter().filter(|name| **name == "first").count();
        assert_eq!(first, 4 * PATIENCE);
        executor.cancel_all();
    }

    #[test]
    fn what_a_turn_leaves_is_there_in_the_next_one_in_its_order() {
        let (executor, polled) = noted();
        let spawn = |name| {
            let polled = polled.clone();
            executor.spawn(async move { polled.borrow_mut().push(name) });
        };
        spawn("first");
        {
            let _in_turn = executor.enter();
            spawn("second");
            spawn("third");
            assert_eq!(executor.run(1), 1);
            assert!(!executor.is_idle());
        }
        spawn("fourth");
        assert!(!executor.is_idle());
        let _in_turn = executor.enter();
        executor.run(usize::MAX);
        assert_eq!(*polled.borrow(), ["first", "second", "third", "fourth"]);
        assert!(executor.is_idle());
    }

    #[test]
    fn turn_within_a_turn_runs_its_own_tasks_alone() {
        let ((outer, of_outer), (inner, of_inner)) = (noted(), noted());
        let _in_turn = outer.enter();
        let polled = of_outer.clone();
        outer.spawn(async move { polled.borrow_mut().push("outer") });
        {
            let _in_turn = inner.enter();
            let polled = of_inner.clone();
            inner.spawn(async move { polled.borrow_mut().push("inner") });
            // Woken from where another worker has its turn.
            let polled = of_outer.clone();
            outer.spawn(async move { polled.borrow_mut().push("from within") });
            inner.run(usize::MAX);
        }
        assert!(of_outer.borrow().is_empty() && *of_inner.borrow() == ["inner"]);
        outer.run(usize::MAX);
        assert_eq!(*of_outer.borrow(), ["outer", "from within"]);
    }

    /// Spawns another one when it is dropped, which may get the key of the task that it was in.
    struct Respawn {
        executor: Executor,
        times: usize,
        there: Rc<Cell<usize>>,
    }

    impl Respawn {
        fn spawn(executor: &Executor, times: usize, there: &Rc<Cell<usize>>) {
            there.set(there.get() + 1);
            let respawn = Self { executor: executor.clone(), times, there: there.clone() };
            executor.spawn(async move {
                let _respawn = respawn;
                std::future::pending::<()>().await;
            });
        }
    }

    impl Drop for Respawn {
        fn drop(&mut self) {
            self.there.set(self.there.get() - 1);
            if self.times > 0 {
                Self::spawn(&self.executor, self.times - 1, &self.there);
            }
        }
    }

    #[test]
    fn task_that_is_spawned_while_all_are_cancelled_is_cancelled_too() {
        let (executor, _) = noted();
        let there = Rc::default();
        Respawn::spawn(&executor, 2, &there);
        executor.run(usize::MAX);
        executor.cancel_all();
        assert_eq!((there.get(), executor.tasks()), (0, 0));
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
