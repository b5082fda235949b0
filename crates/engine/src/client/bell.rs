//! Wakes the task of a connection, unless there is nothing to wake it for.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::task::{Wake, Waker};

thread_local! {
    /// The bell that is held on this thread, and whether it should have rung.
    static HELD: Cell<(*const Bell, bool)> = const { Cell::new((ptr::null(), false)) };
}

/// Wakes a task. Other threads may ring it too, as who produces a request's content does.
pub(super) struct Bell {
    task: Waker,
}

/// A bell that does not ring on this thread as long as this is there.
pub(super) struct Held<'a> {
    bell: &'a Bell,
    outer: (*const Bell, bool),
}

impl Bell {
    pub(super) fn new(task: &Waker) -> Arc<Self> {
        Arc::new(Self { task: task.clone() })
    }

    /// Whether it is this one's.
    pub(super) fn is_of(&self, task: &Waker) -> bool {
        self.task.will_wake(task)
    }

    pub(super) fn ring(&self) {
        let (bell, _) = HELD.get();
        if ptr::eq(bell, self) { HELD.set((bell, true)) } else { self.task.wake_by_ref() }
    }

    pub(super) fn hold(&self) -> Held<'_> {
        Held { bell: self, outer: HELD.replace((self, false)) }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

impl Held<'_> {
    /// Rings if somebody wanted it meanwhile.
    pub(super) fn let_ring(self) {
        let (_, has_rung) = HELD.get();
        let bell = self.bell;
        drop(self);
        if has_rung {
            bell.ring();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        HELD.set(self.outer);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn bell_that_is_held_rings_afterwards_or_not_at_all() {
        let tasks = [(); 2].map(|()| Arc::<Task>::default());
        let bells = tasks.each_ref().map(|task| Bell::new(&Waker::from(task.clone())));
        let counts = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
        let wakers = bells.each_ref().map(|bell| Waker::from(bell.clone()));
        wakers.iter().for_each(Waker::wake_by_ref);
        assert_eq!(counts(), [1, 1]);
        let held = bells[0].hold();
        wakers.iter().for_each(Waker::wake_by_ref);
        assert_eq!(counts(), [1, 2], "the other one is not held");
        drop(held);
        assert_eq!(counts(), [1, 2]);
        let held = bells[0].hold();
        wakers[0].wake_by_ref();
        held.let_ring();
        bells[0].hold().let_ring();
        assert_eq!(counts(), [2, 2]);
    }

    #[test]
    fn other_threads_ring_a_bell_that_is_held_here() {
        let task = Arc::<Task>::default();
        let bell = Bell::new(&Waker::from(task.clone()));
        let held = bell.hold();
        let waker = Waker::from(bell.clone());
        std::thread::spawn(move || waker.wake()).join().unwrap();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        drop(held);
    }
}
