//! What the generator's own thread costs.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The thread's account at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    at: Instant,
    used: Duration,
    waited: Option<Duration>,
}

/// What a thread did in a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// How long the stretch was.
    pub(crate) elapsed: Duration,
    /// Processor time, in user and kernel mode.
    pub(crate) used: Duration,
    /// Time that it was ready to run and had no processor; `None` where the kernel does not say.
    pub(crate) waited: Option<Duration>,
}

impl Account {
    /// Of the thread that asks.
    pub(crate) fn now() -> Self {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let used = Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32);
        Self { at: Instant::now(), used, waited: waited() }
    }

    pub(crate) fn since(self, earlier: Self) -> Usage {
        Usage {
            elapsed: self.at.saturating_duration_since(earlier.at),
            used: self.used.saturating_sub(earlier.used),
            waited: self.waited.zip(earlier.waited).map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// The second number of the file is the time spent on a run queue, in nanoseconds (Documentation/scheduler/sched-stats.rst).
fn waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_rest_is_not() {
        let before = Account::now();
        let mut sum = 0_u64;
        while Account::now().since(before).used < Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let worked = Account::now();
        std::thread::sleep(Duration::from_millis(50));
        let rested = Account::now().since(worked);
        // The two clocks are read one after the other, and only one of them follows the time server's: they agree roughly.
        assert!(worked.since(before).elapsed >= Duration::from_millis(10));
        assert!(rested.used < rested.elapsed / 2, "{rested:?}");
    }
}
