//! Retry budget of an upstream, over all workers.
//!
//! When many servers fail at once, retries keep the others from recovering. So retries are limited
//! to a share of all requests.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::RetryBudget;

/// Cost of a retry, in units that divide evenly by a percentage and by a millisecond.
const PRICE: u64 = 100_000;
const OF_REQUEST_PER_PERCENT: u64 = PRICE / 100;
const OF_MILLISECOND_PER_SECOND: u64 = PRICE / 1000;

/// The budget saves what this many requests and this many seconds earn, for a burst.
const KEPT_REQUESTS: u64 = 500;
const KEPT_SECONDS: u64 = 10;

/// Number of requests that a worker counts locally, so that workers rarely write to shared memory.
const BATCH: u64 = 16;

/// A budget, shared by all workers.
pub(crate) struct Budget {
    percent: u64,
    per_second: u64,
    saved: AtomicU64,
    /// Time up to which the per-second share has been credited, in milliseconds.
    paid_until: AtomicU64,
}

impl Budget {
    pub(crate) fn new(rule: &RetryBudget, now: u64) -> Self {
        let (percent, per_second) = (u64::from(rule.percent), u64::from(rule.per_second));
        let budget =
            Self { percent, per_second, saved: AtomicU64::new(0), paid_until: AtomicU64::new(now) };
        budget.saved.store(budget.most(), Ordering::Relaxed);
        budget
    }

    fn most(&self) -> u64 {
        self.percent * OF_REQUEST_PER_PERCENT * KEPT_REQUESTS
            + self.per_second * PRICE * KEPT_SECONDS
    }

    fn save(&self, amount: u64) {
        let more = |saved: u64| Some(saved.saturating_add(amount).min(self.most()));
        // Cannot fail: the closure always returns a value.
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes the cost of one retry. `now` is in milliseconds.
    fn take(&self, now: u64) -> bool {
        let paid_until = self.paid_until.load(Ordering::Relaxed);
        let passed = now.saturating_sub(paid_until).min(KEPT_SECONDS * 1000);
        // The first worker credits the elapsed time.
        if passed > 0
            && self
                .paid_until
                .compare_exchange(paid_until, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.save(passed * self.per_second * OF_MILLISECOND_PER_SECOND);
        }
        self.saved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(PRICE))
            .is_ok()
    }
}

/// A budget on one worker.
pub(crate) struct WorkerBudget {
    shared: Arc<Budget>,
    /// Requests that are not credited to the shared budget yet.
    requests: Cell<u64>,
}

impl WorkerBudget {
    pub(crate) fn new(shared: &Arc<Budget>) -> Self {
        Self { shared: shared.clone(), requests: Cell::new(0) }
    }

    /// Counts a new request.
    pub(crate) fn count(&self) {
        self.requests.set(self.requests.get() + 1);
        if self.requests.get() >= BATCH {
            self.hand_in();
        }
    }

    /// Takes from the budget and returns whether a retry is allowed.
    pub(crate) fn allows(&self, now: u64) -> bool {
        self.hand_in();
        self.shared.take(now)
    }

    fn hand_in(&self) {
        self.shared.save(self.requests.take() * self.shared.percent * OF_REQUEST_PER_PERCENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(percent: u32, per_second: u32) -> [WorkerBudget; 2] {
        let shared = Arc::new(Budget::new(&RetryBudget { percent, per_second }, 1));
        [(); 2].map(|()| WorkerBudget::new(&shared))
    }

    /// Returns the number of retries until the budget is exhausted.
    fn left(worker: &WorkerBudget, now: u64) -> usize {
        (0..10_000).take_while(|_| worker.allows(now)).count()
    }

    #[test]
    fn requests_of_all_workers_bring_their_share_up_to_what_is_kept() {
        let [one, other] = workers(20, 0);
        assert_eq!(left(&one, 1), 100, "the budget starts with what 500 requests earn");
        assert!(!other.allows(1) && !other.allows(1_000_000), "time earns nothing");
        (0..60).for_each(|_| one.count());
        (0..40).for_each(|_| other.count());
        // A worker holds back fewer than 16 requests.
        assert_eq!(left(&one, 1) + left(&other, 1), 20);
        (0..10_000).for_each(|_| one.count());
        assert_eq!(left(&one, 1), 100);
    }

    #[test]
    fn some_are_allowed_each_second_whatever_the_requests() {
        let [one, other] = workers(0, 10);
        assert_eq!(left(&one, 1), 100, "what 10 seconds earn");
        assert_eq!(left(&one, 100), 0);
        assert_eq!(left(&one, 101), 1);
        assert_eq!(left(&other, 1_101), 10);
        assert_eq!(left(&one, 3_600_000), 100);
    }

    #[test]
    fn nothing_of_a_second_is_lost_to_those_who_ask_often() {
        for per_second in [1, 10, 15, 700] {
            let [one, _] = workers(0, per_second);
            assert_eq!(left(&one, 1), 10 * per_second as usize);
            let allowed = (2..=10_001).filter(|now| one.allows(*now)).count();
            assert_eq!(allowed, 10 * per_second as usize);
        }
    }
}
