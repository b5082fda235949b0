//! Memory limits shared by all requests, over all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pronghorn_engine::{MemoryBudget, MemoryHold, MemoryPressure};

/// A shared limit, in bytes.
pub(crate) struct SharedLimit {
    held: AtomicU64,
    most: AtomicU64,
    /// From this memory pressure on, reservations do not grow. `None` for bytes that are not in
    /// memory.
    closes_at: Option<MemoryPressure>,
}

/// One request's reservation, released on drop.
pub(crate) struct Reservation {
    bound: Arc<SharedLimit>,
    bytes: u64,
    /// The same bytes in the memory budget of the worker.
    hold: Option<MemoryHold>,
}

impl SharedLimit {
    /// Creates a limit on memory that a request cannot do without. It is refused only where new
    /// connections are, too.
    pub(crate) fn new(most: u64) -> Self {
        Self::closing_at(most, Some(MemoryPressure::RefuseConnections))
    }

    /// Creates a limit on memory that makes something faster.
    pub(crate) fn optional(most: u64) -> Self {
        Self::closing_at(most, Some(MemoryPressure::NoGrowth))
    }

    /// Creates a limit on disk space.
    pub(crate) fn disk(most: u64) -> Self {
        Self::closing_at(most, None)
    }

    fn closing_at(most: u64, closes_at: Option<MemoryPressure>) -> Self {
        Self { held: AtomicU64::new(0), most: AtomicU64::new(most), closes_at }
    }

    /// Changes the limit. Existing reservations stay.
    pub(crate) fn set(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns an empty reservation.
    pub(crate) fn begin(self: &Arc<Self>) -> Reservation {
        let budget = self.closes_at.and_then(|_| MemoryBudget::current());
        Reservation { bound: self.clone(), bytes: 0, hold: budget.map(|budget| budget.hold()) }
    }
}

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves more bytes. Returns `false` if the limit does not allow it, or memory is short.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        if self.is_closed() {
            return false;
        }
        let most = self.bound.most.load(Ordering::Relaxed);
        let with_it = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        let has_grown =
            self.bound.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it).is_ok();
        if has_grown {
            self.bytes += bytes;
            if let Some(hold) = &mut self.hold {
                hold.grow(bytes);
            }
        }
        has_grown
    }

    fn is_closed(&self) -> bool {
        match (&self.hold, self.bound.closes_at) {
            (Some(hold), Some(step)) => hold.budget().pressure() >= step,
            _ => false,
        }
    }

    /// Releases bytes, at most those that are reserved.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some(hold) = &mut self.hold {
            hold.shrink(bytes);
        }
        self.bound.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_leaves_is_room_for_another() {
        let bound = Arc::new(SharedLimit::new(10));
        let (mut one, mut other) = (bound.begin(), bound.begin());
        assert!(one.grow(6) && other.grow(4) && !one.grow(1));
        one.shrink(2);
        assert!(!other.grow(3) && other.grow(2));
        one.shrink(100);
        assert_eq!((one.bytes(), other.bytes(), bound.held()), (0, 6, 6));
        drop(other);
        assert_eq!(bound.held(), 0);
        assert!(one.grow(10));
        bound.set(5);
        one.shrink(5);
        assert!(!one.grow(1), "a lowered limit applies to new reservations");
    }
}
