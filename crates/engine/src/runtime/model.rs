//! Model checks of the wake-up and the inbox with loom: all interleavings of threads, including
//! weak memory orderings.
//!
//! Their files are compiled again here, with [`loom`]'s types instead of the standard library's. A
//! lost wake-up leaves the worker waiting when no other thread runs, which loom reports as a
//! deadlock.

#[expect(clippy::duplicate_mod, reason = "of other parts")]
#[path = "inbox.rs"]
mod inbox;
#[expect(clippy::duplicate_mod, reason = "of other parts")]
#[expect(dead_code, reason = "the model does not ask whether a turn is running")]
#[path = "wakeup.rs"]
mod wakeup;

use std::collections::VecDeque;
use std::sync::Arc;

use self::inbox::Inbox;
use self::sync::{Mutex, Waker};
use self::wakeup::{TurnGuard, Wakeup};

mod sync {
    use std::sync::Arc;

    use loom::sync::Condvar;
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    /// loom's macro does not support constant blocks.
    macro_rules! each_thread {
        ($(#[$attribute:meta])* static $name:ident: $type:ty = const { $value:expr };) => {
            loom::thread_local! { $(#[$attribute])* static $name: $type = $value; }
        };
    }
    pub(super) use each_thread;

    /// A descriptor in an edge-triggered poller that is itself a descriptor: readable from a
    /// wake-up until the poller has consumed it.
    #[derive(Clone, Debug)]
    pub(super) struct Waker(Arc<(Mutex<bool>, Condvar)>);

    impl Waker {
        pub(super) fn new() -> Self {
            Self(Arc::new((Mutex::new(false), Condvar::new())))
        }

        #[expect(clippy::unnecessary_wraps, reason = "as the real one")]
        pub(super) fn wake(&self) -> std::io::Result<()> {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_all();
            Ok(())
        }

        /// The host's part between turns.
        pub(super) fn wait_until_readable(&self) {
            let mut readable = self.0.0.lock().unwrap();
            while !*readable {
                readable = self.0.1.wait(readable).unwrap();
            }
        }

        /// The poller's part in a turn.
        pub(super) fn take_in(&self) {
            *self.0.0.lock().unwrap() = false;
        }
    }
}

/// The parts of [`crate::Worker::turn`] that deal with other threads, in its order.
struct Worker {
    descriptor: Waker,
    wakeup: Arc<Wakeup>,
    inbox: Arc<Inbox<VecDeque<u32>>>,
    /// Like the mailboxes of a [`crate::Group`].
    mailbox: Arc<Mutex<VecDeque<u32>>>,
    /// Number of items that a turn handles.
    budget: usize,
    done: Vec<u32>,
    /// Rearms the wake-up before the poller has consumed it, which is wrong.
    rearms_early: bool,
}

impl Worker {
    fn new(budget: usize) -> Self {
        let descriptor = Waker::new();
        let wakeup = Arc::new(Wakeup::new(descriptor.clone()));
        let inbox = Arc::new(Inbox::new(wakeup.clone()));
        Self {
            descriptor,
            wakeup,
            inbox,
            mailbox: Arc::new(Mutex::new(VecDeque::new())),
            budget,
            done: Vec::new(),
            rearms_early: false,
        }
    }

    /// Another thread, such as one that reads a file.
    fn schedule_elsewhere(&self, what: u32) -> loom::thread::JoinHandle<()> {
        let inbox = self.inbox.clone();
        loom::thread::spawn(move || inbox.put(|queue| queue.push_back(what)))
    }

    /// Another worker, which passes a datagram to this one.
    fn pass_on_elsewhere(&self, what: u32) -> loom::thread::JoinHandle<()> {
        let (mailbox, wakeup) = (self.mailbox.clone(), self.wakeup.clone());
        loom::thread::spawn(move || {
            mailbox.lock().unwrap().push_back(what);
            wakeup.notify();
        })
    }

    /// Runs a turn. `within`: what the turn itself does.
    fn turn(&mut self, within: impl FnOnce(&Self)) {
        let wakeup = self.wakeup.clone();
        let _in_turn = TurnGuard::enter(&wakeup);
        let mut ready = self.inbox.take().unwrap_or_default();
        if self.rearms_early {
            wakeup.rearm();
        }
        self.descriptor.take_in();
        if !self.rearms_early {
            wakeup.rearm();
        }
        let mail = std::mem::take(&mut *self.mailbox.lock().unwrap());
        self.done.extend(mail);
        within(self);
        let mut left = self.budget;
        loop {
            while left > 0 {
                ready.extend(self.inbox.take().unwrap_or_default());
                let Some(next) = ready.pop_front() else { break };
                self.done.push(next);
                left -= 1;
            }
            if left == 0 || ready.is_empty() && self.inbox.look(|queue| queue.is_empty()) {
                break;
            }
        }
        if !ready.is_empty() || self.inbox.look(|queue| !queue.is_empty()) {
            wakeup.notify_descriptor().unwrap();
        }
        if !ready.is_empty() {
            self.inbox.keep(|queue| {
                ready.append(queue);
                *queue = ready;
            });
        }
    }

    /// Runs a turn whenever the descriptor is readable, until `count` items are handled.
    fn run(&mut self, count: usize) {
        while self.done.len() < count {
            self.descriptor.wait_until_readable();
            self.turn(|_| {});
        }
        self.done.sort_unstable();
    }
}

fn join_all(threads: [loom::thread::JoinHandle<()>; 2]) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Runs `scenario` with all interleavings, or with those that have at most `switches` preemptions.
fn in_every_order(switches: Option<usize>, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = switches;
    builder.check(scenario);
}

#[test]
fn what_other_threads_schedule_is_done_without_another_wake_up() {
    in_every_order(Some(3), || {
        let mut worker = Worker::new(1);
        let threads = [1, 2].map(|what| worker.schedule_elsewhere(what));
        worker.turn(|_| {});
        worker.run(2);
        assert_eq!(worker.done, [1, 2]);
        join_all(threads);
    });
}

#[test]
fn datagrams_that_other_workers_pass_on_are_taken_without_another_wake_up() {
    in_every_order(Some(3), || {
        let mut worker = Worker::new(10);
        let threads = [worker.pass_on_elsewhere(1), worker.schedule_elsewhere(2)];
        worker.turn(|_| {});
        worker.run(2);
        assert_eq!(worker.done, [1, 2]);
        join_all(threads);
    });
}

#[test]
fn what_the_turn_itself_schedules_is_done_although_nobody_is_notified() {
    in_every_order(None, || {
        let mut worker = Worker::new(10);
        let thread = worker.schedule_elsewhere(2);
        worker.turn(|worker| worker.inbox.put(|queue| queue.push_back(1)));
        assert!(worker.done.contains(&1));
        // Like JavaScript code between two turns.
        worker.inbox.put(|queue| queue.push_back(3));
        worker.run(3);
        assert_eq!(worker.done, [1, 2, 3]);
        thread.join().unwrap();
    });
}

/// Shows that the model detects the bug that it exists for.
#[test]
#[should_panic(expected = "deadlock")]
fn wake_up_that_is_rearmed_too_early_is_lost() {
    in_every_order(Some(3), || {
        let mut worker = Worker::new(10);
        worker.rearms_early = true;
        let threads = [worker.pass_on_elsewhere(1), worker.pass_on_elsewhere(2)];
        worker.turn(|_| {});
        worker.run(2);
        join_all(threads);
    });
}
