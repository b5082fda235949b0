//! Memory limits shared by all requests, over all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared limit, in bytes.
pub(crate) struct SharedLimit {
    held: AtomicU64,
    most: AtomicU64,
}

/// One request's reservation, released on drop.
pub(crate) struct Reservation {
    bound: Arc<SharedLimit>,
    bytes: u64,
}

impl SharedLimit {
    pub(crate) fn new(most: u64) -> Self {
        Self { held: AtomicU64::new(0), most: AtomicU64::new(most) }
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
        Reservation { bound: self.clone(), bytes: 0 }
    }
}

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves more bytes. Returns `false` if the limit does not allow it.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let most = self.bound.most.load(Ordering::Relaxed);
        let with_it = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        let has_grown =
            self.bound.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it).is_ok();
        if has_grown {
            self.bytes += bytes;
        }
        has_grown
    }

    /// Releases bytes, at most those that are reserved.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
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
