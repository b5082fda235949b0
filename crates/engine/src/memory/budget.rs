//! The budget that all workers share.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::pressure::MemoryPressure;
use super::system;

/// Fraction of the budget that flow-control windows may promise: all of them may fill at a time when
/// no memory is left.
const PROMISED_SHARE: u64 = 4;
/// Fraction of the budget that may be lent for sending.
const LENT_SHARE: u64 = 8;

/// The memory that peers may make all workers of a [`Group`](crate::Group) hold, and how much of it
/// they hold now. Cheap to clone.
///
/// Workers count what they hold themselves. Other parts of a program that hold bytes for peers, such
/// as buffered responses, count them with [`MemoryBudget::hold`].
#[derive(Clone)]
pub struct MemoryBudget(Arc<BudgetState>);

struct BudgetState {
    bytes: AtomicU64,
    /// Signed, since workers add their changes in any order.
    held: AtomicI64,
    step: AtomicU8,
    workers: AtomicU64,
    /// How often each step was entered from a lower one.
    entered: [AtomicU64; MemoryPressure::ALL.len()],
    on_change: OnceLock<OnChange>,
    /// Held while the step changes, so that changes are reported in their order.
    changing: Mutex<()>,
}

type OnChange = Box<dyn Fn(PressureChange) + Send + Sync>;

/// A change of the pressure, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureChange {
    /// The step until now.
    pub from: MemoryPressure,
    /// The step from now on.
    pub to: MemoryPressure,
    /// Bytes held when it changed.
    pub held: u64,
    /// The budget in bytes.
    pub budget: u64,
}

impl fmt::Display for PressureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, held, budget } = self;
        let mib = |bytes: u64| bytes >> 20;
        write!(
            f,
            "memory pressure {} from step {} to step {} ({to}): {} MiB of {} MiB in use; {}",
            if to > from { "rises" } else { "falls" },
            from.step(),
            to.step(),
            mib(*held),
            mib(*budget),
            to.effect()
        )
    }
}

impl Default for MemoryBudget {
    /// Creates a budget without a bound.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("bytes", &self.bytes())
            .field("held", &self.held())
            .field("pressure", &self.pressure())
            .finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(BudgetState {
            bytes: AtomicU64::new(bytes),
            held: AtomicI64::default(),
            step: AtomicU8::default(),
            workers: AtomicU64::default(),
            entered: Default::default(),
            on_change: OnceLock::new(),
            changing: Mutex::default(),
        }))
    }

    /// Returns the bytes that a process may use by default: nine tenths of what its control group
    /// allows, or three quarters of the machine's memory.
    pub fn default_bytes() -> u64 {
        system::default_bytes()
    }

    /// Changes the budget. What is held stays.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
        self.update();
    }

    /// Returns the size of the budget.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes held now.
    pub fn held(&self) -> u64 {
        u64::try_from(self.0.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the current pressure.
    pub fn pressure(&self) -> MemoryPressure {
        MemoryPressure::from_step(self.0.step.load(Ordering::Relaxed))
    }

    /// Returns how often the pressure has risen to this step, or beyond it.
    pub fn times_entered(&self, step: MemoryPressure) -> u64 {
        self.0.entered[usize::from(step.step())].load(Ordering::Relaxed)
    }

    /// Calls `on_change` whenever the pressure changes, on the thread that caused it. Only the first
    /// call of this function has an effect.
    pub fn on_change(&self, on_change: impl Fn(PressureChange) + Send + Sync + 'static) {
        let _ = self.0.on_change.set(Box::new(on_change));
    }

    /// Returns a hold of no bytes, to be grown by the part that holds some.
    pub fn hold(&self) -> MemoryHold {
        MemoryHold { budget: self.clone(), bytes: 0 }
    }

    pub(super) fn enter(&self) {
        self.0.workers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.0.workers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the largest sum of receive windows for one worker.
    pub(super) fn windows_of_worker(&self) -> u64 {
        self.bytes() / PROMISED_SHARE / self.0.workers.load(Ordering::Relaxed).max(1)
    }

    /// Returns how much one worker may lend for sending.
    pub(super) fn sending_of_worker(&self) -> u64 {
        self.bytes() / LENT_SHARE / self.0.workers.load(Ordering::Relaxed).max(1)
    }

    /// Adds to the bytes held, or subtracts from them.
    pub(super) fn change(&self, bytes: i64) {
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        self.update();
    }

    /// Updates the pressure.
    fn update(&self) {
        let next = |pressure: MemoryPressure| pressure.next(self.held(), self.bytes());
        if next(self.pressure()) == self.pressure() {
            return;
        }
        let _in_order = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, held, budget) = (self.pressure(), self.held(), self.bytes());
        let to = from.next(held, budget);
        if to == from {
            return;
        }
        self.0.step.store(to.step(), Ordering::Relaxed);
        for step in from.step() + 1..=to.step() {
            self.0.entered[usize::from(step)].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(on_change) = self.0.on_change.get() {
            on_change(PressureChange { from, to, held, budget });
        }
    }
}

/// Bytes that are held for peers outside of the workers. They count until it is dropped.
#[derive(Debug)]
pub struct MemoryHold {
    budget: MemoryBudget,
    bytes: u64,
}

impl MemoryHold {
    /// Returns the budget that the bytes count in.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Returns the number of bytes counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts more bytes.
    pub fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.budget.change(signed(bytes));
    }

    /// Counts fewer bytes, at most those that are counted.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.change(-signed(bytes));
    }
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_change_the_pressure_and_each_change_is_reported_once() {
        let budget = MemoryBudget::new(100 << 20);
        let changes = Arc::<Mutex<Vec<PressureChange>>>::default();
        let seen = changes.clone();
        budget.on_change(move |change| seen.lock().unwrap().push(change));
        let (mut one, mut other) = (budget.hold(), budget.hold());
        one.grow(39 << 20);
        assert_eq!(budget.pressure(), MemoryPressure::None);
        other.grow(33 << 20);
        assert_eq!(budget.pressure(), MemoryPressure::Shrink);
        other.shrink(1 << 40);
        assert_eq!((budget.pressure(), other.bytes()), (MemoryPressure::SmallWindows, 0));
        drop(one);
        assert_eq!((budget.pressure(), budget.held()), (MemoryPressure::None, 0));
        let steps: Vec<_> = changes
            .lock()
            .unwrap()
            .iter()
            .map(|change| (change.from.step(), change.to.step()))
            .collect();
        assert_eq!(steps, [(0, 3), (3, 1), (1, 0)]);
        let entered = MemoryPressure::ALL.map(|step| budget.times_entered(step));
        assert_eq!(entered, [0, 1, 1, 1, 0, 0], "skipped steps count too");
    }

    #[test]
    fn change_of_the_budget_changes_the_pressure() {
        let budget = MemoryBudget::new(100);
        let mut hold = budget.hold();
        hold.grow(60);
        budget.set_bytes(1000);
        assert_eq!(budget.pressure(), MemoryPressure::None);
        budget.set_bytes(60);
        assert_eq!(budget.pressure(), MemoryPressure::RefuseRequests);
    }

    #[test]
    fn change_is_logged_with_its_numbers() {
        let change = PressureChange {
            from: MemoryPressure::None,
            to: MemoryPressure::NoGrowth,
            held: 160 << 20,
            budget: 256 << 20,
        };
        assert_eq!(
            change.to_string(),
            "memory pressure rises from step 0 to step 2 (no_growth): 160 MiB of 256 MiB in use; \
             windows do not grow on unread data"
        );
    }

    #[test]
    fn concurrent_holds_add_up() {
        let budget = MemoryBudget::new(1 << 30);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut hold = budget.hold();
                    for _ in 0..1_000 {
                        hold.grow(1 << 20);
                        hold.shrink(1 << 20);
                    }
                });
            }
        });
        assert_eq!((budget.held(), budget.pressure()), (0, MemoryPressure::None));
    }
}
