//! When memory that is no longer used goes back to the system.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Fewer connections and requests than this leave nothing that would be worth the work.
const WORTHWHILE: u64 = 32;
/// How long few have to be open before their memory is given back: who leaves together often comes again together.
const PATIENCE: Duration = Duration::from_secs(2);

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Names what gives memory back to the system that the allocator keeps for the calling thread, for all workers of the process. It is called
/// on a worker some seconds after most of its connections and requests have ended. The first that is named stays.
///
/// An allocator that does so by itself while nothing is allocated needs none.
pub fn set_memory_release(release: fn()) {
    let _ = RELEASE.set(release);
}

/// Notices that most of what was open on a worker is gone.
#[derive(Default)]
pub(crate) struct SpareMemory {
    /// The most that was open since memory was last given back.
    most: u64,
    due: Option<Instant>,
}

impl SpareMemory {
    /// So many connections and requests are open. Returns whether memory is to be given back now.
    fn look(&mut self, now: Instant, open: u64) -> bool {
        self.most = self.most.max(open);
        if self.most < WORTHWHILE || open > self.most / 2 {
            self.due = None;
            return false;
        }
        if now < *self.due.get_or_insert(now + PATIENCE) {
            return false;
        }
        (self.most, self.due) = (open, None);
        true
    }

    /// The same, and gives it back.
    pub(crate) fn turn(&mut self, now: Instant, open: u64) {
        if self.look(now, open)
            && let Some(release) = RELEASE.get()
        {
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
        let (mut memory, start) = (SpareMemory::default(), Instant::now());
        assert!(!memory.look(start, 1_000));
        assert!(!memory.look(start, 501));
        assert_eq!(memory.deadline(), None);
        assert!(!memory.look(start, 500));
        assert_eq!(memory.deadline(), Some(start + PATIENCE));
        assert!(!memory.look(start + PATIENCE / 2, 900), "they came again");
        assert_eq!(memory.deadline(), None);
        assert!(!memory.look(start + PATIENCE, 10));
        assert!(memory.look(start + 2 * PATIENCE, 10));
        assert!(!memory.look(start + 4 * PATIENCE, 0), "what is left is little");
        assert_eq!(memory.deadline(), None);
    }
}
