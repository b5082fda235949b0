//! Returning unused memory to the system.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// With fewer connections and requests than this, the memory is not worth the work.
const WORTHWHILE: u64 = 32;
/// How long few connections and requests have to be open before memory is returned. Clients that
/// leave together often come back together.
const RELEASE_DELAY: Duration = Duration::from_secs(2);

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets the function that returns memory to the system which the allocator keeps for the calling
/// thread. It applies to all workers of the process. A worker calls it some seconds after most of
/// its connections and requests have ended. Only the first call has an effect.
///
/// An allocator that returns memory by itself while nothing is allocated needs no such function.
pub fn set_memory_release_hook(release: fn()) {
    let _ = RELEASE.set(release);
}

/// Notices when most connections and requests of a worker have ended.
#[derive(Default)]
pub(crate) struct MemoryRelease {
    /// Most connections and requests open since memory was last returned.
    most: u64,
    due: Option<Instant>,
}

impl MemoryRelease {
    /// Takes the number of open connections and requests. Returns whether to return memory now.
    fn observe(&mut self, now: Instant, open: u64) -> bool {
        self.most = self.most.max(open);
        if self.most < WORTHWHILE || open > self.most / 2 {
            self.due = None;
            return false;
        }
        if now < *self.due.get_or_insert(now + RELEASE_DELAY) {
            return false;
        }
        (self.most, self.due) = (open, None);
        true
    }

    /// Like [`MemoryRelease::observe`], and returns the memory.
    pub(crate) fn turn(&mut self, now: Instant, open: u64) {
        if self.observe(now, open) {
            self.release();
        }
    }

    /// Returns the memory now.
    pub(crate) fn release(&mut self) {
        self.due = None;
        if let Some(release) = RELEASE.get() {
            release();
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_most_have_been_gone_for_a_while() {
        let (mut memory, start) = (MemoryRelease::default(), Instant::now());
        assert!(!memory.observe(start, 1_000));
        assert!(!memory.observe(start, 501));
        assert_eq!(memory.deadline(), None);
        assert!(!memory.observe(start, 500));
        assert_eq!(memory.deadline(), Some(start + RELEASE_DELAY));
        assert!(!memory.observe(start + RELEASE_DELAY / 2, 900), "clients came back");
        assert_eq!(memory.deadline(), None);
        assert!(!memory.observe(start + RELEASE_DELAY, 10));
        assert!(memory.observe(start + 2 * RELEASE_DELAY, 10));
        assert!(!memory.observe(start + 4 * RELEASE_DELAY, 0), "little is left");
        assert_eq!(memory.deadline(), None);
    }
}
