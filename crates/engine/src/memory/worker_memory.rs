//! A worker's part of the memory budget.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::budget::{MemoryBudget, signed};
use super::pressure::MemoryPressure;

thread_local! {
    static PRESSURE: Cell<MemoryPressure> = const { Cell::new(MemoryPressure::None) };
    static CURRENT: RefCell<Weak<WorkerMemory>> = const { RefCell::new(Weak::new()) };
}

/// Returns the memory of the worker that last ran on this thread, while it exists.
pub(super) fn current_memory() -> Option<Rc<WorkerMemory>> {
    CURRENT.with_borrow(Weak::upgrade)
}

impl MemoryBudget {
    /// Returns the budget of the worker that last ran on this thread, for handlers that hold bytes
    /// for peers.
    pub fn current() -> Option<Self> {
        current_memory().map(|memory| memory.budget.clone())
    }
}

/// Returns the memory pressure, as of the last turn of a worker on this thread.
///
/// A handler that can choose how much it buffers, for example how much it reads at once, buffers
/// less while memory is short.
pub fn memory_pressure() -> MemoryPressure {
    PRESSURE.get()
}

/// Smaller changes of a worker's sum are published together with later ones.
const PUBLISHED_BYTES: u64 = 64 << 10;

/// From this many unread bytes on, received datagrams do not share memory.
const KEPT_BYTES: u64 = 256 << 10;

/// Counts what the connections and requests of one worker hold. Only its worker uses it.
#[derive(Default)]
pub(crate) struct WorkerMemory {
    budget: MemoryBudget,
    held: Cell<u64>,
    /// The part of it that arrived in datagrams and was not read.
    unread: Cell<u64>,
    /// The part of the budget's sum that comes from this worker.
    published: Cell<u64>,
    /// The pressure since this turn began.
    pressure: Cell<MemoryPressure>,
}

impl WorkerMemory {
    pub(crate) fn new(budget: MemoryBudget) -> Self {
        budget.enter();
        Self {
            pressure: Cell::new(budget.pressure()),
            budget,
            held: Cell::default(),
            unread: Cell::default(),
            published: Cell::default(),
        }
    }

    /// Counts bytes that are held from now on.
    pub(crate) fn add(&self, bytes: u64) {
        self.held.set(self.held.get() + bytes);
    }

    /// Counts bytes that are no longer held.
    pub(crate) fn subtract(&self, bytes: u64) {
        self.held.set(self.held.get() - bytes);
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held.get()
    }

    /// Whether so much is held that received datagrams may be among it, rather than being read at
    /// once.
    pub(crate) fn keeps_datagrams(&self) -> bool {
        self.unread.get() >= KEPT_BYTES
    }

    /// Counts a change of the data that arrived in datagrams and was not read.
    pub(crate) fn change_unread(&self, before: u64, after: u64) {
        self.unread.set(self.unread.get() - before + after);
    }

    /// Returns the pressure, which stays the same for a turn.
    pub(crate) fn pressure(&self) -> MemoryPressure {
        self.pressure.get()
    }

    /// Returns the largest sum of receive windows for this worker.
    pub(crate) fn max_windows(&self) -> u64 {
        self.budget.windows_of_worker()
    }

    /// Returns how much this worker may lend for sending.
    pub(crate) fn max_sending(&self) -> u64 {
        self.budget.sending_of_worker()
    }

    /// Called at the beginning of a turn.
    pub(crate) fn begin_turn(self: &Rc<Self>) {
        let pressure = self.budget.pressure();
        self.pressure.set(pressure);
        PRESSURE.set(pressure);
        CURRENT.with_borrow_mut(|current| {
            if !std::ptr::eq(current.as_ptr(), Rc::as_ptr(self)) {
                *current = Rc::downgrade(self);
            }
        });
    }

    /// Called at the end of a turn. `fixed`: bytes of connections and requests that nothing else
    /// counts.
    pub(crate) fn end_turn(&self, fixed: u64) {
        let (held, published) = (self.held.get() + fixed, self.published.get());
        if held.abs_diff(published) >= PUBLISHED_BYTES {
            self.publish(held);
        }
    }

    fn publish(&self, held: u64) {
        let published = self.published.replace(held);
        self.budget.change(signed(held) - signed(published));
    }
}

impl Drop for WorkerMemory {
    fn drop(&mut self) {
        self.publish(0);
        self.budget.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_workers_is_published_between_turns() {
        let budget = MemoryBudget::new(1 << 20);
        let [one, other] = [0; 2].map(|_| Rc::new(WorkerMemory::new(budget.clone())));
        one.add(400 << 10);
        other.add(100 << 10);
        assert_eq!(budget.held(), 0);
        one.end_turn(0);
        other.end_turn(100 << 10);
        assert_eq!(budget.held(), 600 << 10);
        assert_eq!(other.pressure(), MemoryPressure::None, "it changes with the next turn");
        other.begin_turn();
        assert_eq!(other.pressure(), MemoryPressure::NoGrowth);
        one.subtract(1 << 10);
        one.end_turn(0);
        assert_eq!(budget.held(), 600 << 10, "small changes wait");
        drop(one);
        other.begin_turn();
        assert_eq!((budget.held(), other.pressure()), (200 << 10, MemoryPressure::None));
    }

    #[test]
    fn windows_are_shared_by_the_workers() {
        let budget = MemoryBudget::new(64 << 20);
        let one = WorkerMemory::new(budget.clone());
        assert_eq!(one.max_windows(), 16 << 20);
        let other = WorkerMemory::new(budget);
        assert_eq!((one.max_windows(), other.max_sending()), (8 << 20, 4 << 20));
        drop(other);
        assert_eq!(one.max_windows(), 16 << 20);
    }

    #[test]
    fn thread_knows_the_memory_of_its_worker_until_the_worker_ends() {
        let budget = MemoryBudget::new(1 << 20);
        let worker = Rc::new(WorkerMemory::new(budget.clone()));
        worker.begin_turn();
        MemoryBudget::current().expect("a worker has run").hold().grow(1);
        assert!(current_memory().is_some_and(|memory| Rc::ptr_eq(&memory, &worker)));
        drop(worker);
        assert!(MemoryBudget::current().is_none());
    }
}
