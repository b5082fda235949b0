//! One counter.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that only its worker changes and any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // One writer: a plain add, without the cost of a locked instruction.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(count), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
