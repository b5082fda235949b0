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

/// After this many polls in a row, a task of the `last` queue gets a turn.
const MAX_OVERTAKES: usize = 32;

/// Maximum number of tasks of the `last` queue that run one after the other.
const ROUND: usize = 128;

/// Larger futures are boxed.
const LARGE_BYTES: usize = 1 << 10;

/// Runs futures on the worker's thread. Wakers may be called from any thread.
#[derive(Clone)]
pub(crate) struct Executor {
    queue: Arc<Queue>,
    /// All tasks that have not ended. A future and the object that it waits for often refer to each
    /// other, so they would outlive the worker.
    tasks: Rc<Tasks>,
}

#[derive(Default)]
struct Tasks {
    /// `None` for a cancelled task, which ends when it is scheduled next.
    running: RefCell<Slab<Option<Task<()>>>>,
    /// Number of times that all tasks were cancelled. A task that ends after that must not remove
    /// another one with the same key.
    generation: Cell<u64>,
    panics: Cell<u64>,
    /// Number of futures that may still be polled in this turn before they become tasks.
    eager: Cell<usize>,
}

/// Tasks scheduled outside of the worker's turn, by any thread.
struct Queue(Inbox<Ready>);

thread_local! {
    /// The run queue of the worker whose turn runs on this thread. Nearly all tasks are scheduled
    /// there, without a lock.
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
    /// Tasks that run when `first` is empty.
    last: VecDeque<Runnable>,
    /// Number of `first` tasks that ran while `last` was not empty.
    overtaken: usize,
    /// Number of `last` tasks that still run one after the other.
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

    /// Returns the next task. Tasks of `last` run when `first` is empty, up to [`ROUND`] of them
    /// before the tasks that they wake: each kind has more code than fits into a processor's
    /// first-level cache, and would load it again for each task.
    fn next(&mut self) -> Option<Runnable> {
        if self.round > 0
            && let Some(runnable) = self.last.pop_front()
        {
            self.round -= 1;
            return Some(runnable);
        }
        if self.overtaken < MAX_OVERTAKES
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
        let (outer, outer_ready) = TURN
            .with(|turn| (turn.of.replace(Arc::as_ptr(&self.queue)), turn.ready.replace(ready)));
        InTurn { queue: &self.queue, outer, outer_ready }
    }

    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(&self, future: F) {
        self.spawn_boxed(future, false);
    }

    /// Spawns a future that writes data of others. It is polled after them, so that it writes
    /// everything at once.
    ///
    /// Returns a key for [`Executor::cancel`]. Another task may get the same key once this one has
    /// ended.
    pub(crate) fn spawn_deferred<F: Future<Output = ()> + 'static>(&self, future: F) -> usize {
        self.spawn_boxed(future, true)
    }

    fn spawn_boxed<F: Future<Output = ()> + 'static>(&self, future: F, last: bool) -> usize {
        // The compiler reserves space twice for a future that is moved into another one.
        if size_of::<F>() > LARGE_BYTES {
            self.spawn_as_it_is(Box::pin(future), last)
        } else {
            self.spawn_as_it_is(future, last)
        }
    }

    fn spawn_as_it_is(&self, future: impl Future<Output = ()> + 'static, last: bool) -> usize {
        // Weak: tasks contain their schedule function, and a queue of tasks must not keep itself
        // alive.
        let queue = Arc::downgrade(&self.queue);
        let schedule = move |runnable: Runnable| {
            let Some(runnable) = Queue::schedule_in_turn(queue.as_ptr(), runnable, last) else {
                return;
            };
            if let Some(queue) = queue.upgrade() {
                queue.0.put(|ready| ready.push(runnable, last));
            } else {
                // The worker is gone. Dropping the task here would drop its future on another
                // thread.
                std::mem::forget(runnable);
            }
        };
        let mut running = self.tasks.running.borrow_mut();
        let place = running.vacant_entry();
        let key = place.key();
        let end = TaskEnd {
            tasks: Rc::downgrade(&self.tasks),
            key,
            generation: self.tasks.generation.get(),
        };
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
        // The entry stays in use until the future is dropped, which frees it.
        let task = self.tasks.running.borrow_mut().get_mut(key).and_then(Option::take);
        drop(task);
    }

    /// Allows `polls` futures to be polled before they become tasks, until the next call.
    pub(crate) fn allow_eager(&self, polls: usize) {
        self.tasks.eager.set(polls);
    }

    /// Takes one of these polls, if any is left.
    pub(crate) fn take_eager(&self) -> bool {
        let left = self.tasks.eager.get();
        self.tasks.eager.set(left.saturating_sub(1));
        left > 0
    }

    /// Returns how many of these polls are left.
    pub(crate) fn eager(&self) -> usize {
        self.tasks.eager.get()
    }

    /// Drops every future.
    pub(crate) fn cancel_all(&self) {
        // A cancelled task is scheduled once more and runs to drop its future, which may cancel or
        // spawn others.
        loop {
            self.tasks.generation.set(self.tasks.generation.get() + 1);
            let tasks = std::mem::take(&mut *self.tasks.running.borrow_mut());
            drop(tasks);
            if self.run(usize::MAX) == 0 && self.tasks.running.borrow().is_empty() {
                break;
            }
        }
    }

    /// Polls at most `budget` tasks. Returns how many were polled.
    pub(crate) fn run(&self, budget: usize) -> usize {
        for polled in 0..budget {
            let Some(runnable) = self.queue.next() else { return polled };
            // A future that panics is dropped together with what it owns. The other futures are not
            // affected.
            if catch_unwind(AssertUnwindSafe(|| runnable.run())).is_err() {
                self.tasks.panics.set(self.tasks.panics.get() + 1);
            }
        }
        budget
    }

    /// Returns how many futures have panicked since the last call.
    pub(crate) fn take_panics(&self) -> u64 {
        self.tasks.panics.take()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of futures that have not ended.
    #[cfg(test)]
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.running.borrow().len()
    }
}

/// Removes its task from the table when the future has ended.
struct TaskEnd {
    tasks: Weak<Tasks>,
    key: usize,
    generation: u64,
}

impl Drop for TaskEnd {
    fn drop(&mut self) {
        let tasks = self.tasks.upgrade().filter(|tasks| tasks.generation.get() == self.generation);
        let task =
            tasks.and_then(|tasks| tasks.running.borrow_mut().try_remove(self.key)).flatten();
        if let Some(task) = task {
            // Dropping it instead would cancel the task.
            task.detach();
        }
    }
}

impl Queue {
    /// Schedules the task if this queue's worker has its turn on this thread. Otherwise returns the
    /// task.
    fn schedule_in_turn(queue: *const Self, runnable: Runnable, last: bool) -> Option<Runnable> {
        let mut given = Some(runnable);
        // A thread whose local storage is gone runs no turn either.
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
        let has_none =
            TURN.with(|turn| !ptr::eq(turn.of.get(), self) || turn.ready.borrow().is_empty());
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

    /// Returns an executor, and a list in which futures note that they were polled.
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
        executor.spawn_deferred(async move { last() });
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
            executor.spawn_deferred(async move {
                polled.borrow_mut().push(name);
                again.clone().spawn(async move {
                    polled.borrow_mut().push("first");
                    again.spawn_deferred(async move { polled.borrow_mut().push("next round") });
                });
            });
        }
        executor.run(usize::MAX);
        assert_eq!(
            *polled.borrow(),
            ["last 1", "last 2", "first", "first", "next round", "next round"]
        );
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
            executor.spawn_deferred(ready("last"));
        }
        executor.run(4 * (MAX_OVERTAKES + ROUND));
        let first = polled.borrow().iter().filter(|name| **name == "first").count();
        assert_eq!(first, 4 * MAX_OVERTAKES);
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
            // Woken within the turn of another worker.
            let polled = of_outer.clone();
            outer.spawn(async move { polled.borrow_mut().push("from within") });
            inner.run(usize::MAX);
        }
        assert!(of_outer.borrow().is_empty() && *of_inner.borrow() == ["inner"]);
        outer.run(usize::MAX);
        assert_eq!(*of_outer.borrow(), ["outer", "from within"]);
    }

    /// Spawns another task when dropped, which may get the key of the dropped one.
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
        executor.spawn_deferred(async move { note.borrow_mut().push("last") });
        // Turns of few polls each, as on a busy worker.
        for _ in 0..MAX_OVERTAKES {
            executor.run(2);
        }
        assert_eq!(*polled.borrow(), ["last"]);
        executor.cancel_all();
    }
}
