//! CPU usage of the generator's own threads.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A thread's CPU times at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    at: Instant,
    used: Duration,
    waited: Option<Duration>,
}

/// A thread's CPU usage in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Length of the interval.
    pub(crate) elapsed: Duration,
    /// Processor time, in user and kernel mode.
    pub(crate) used: Duration,
    /// Time in which the thread was ready to run but had no processor; `None` if the kernel does
    /// not report it.
    pub(crate) waited: Option<Duration>,
}

impl CpuTimes {
    /// Reads the times of the calling thread.
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

/// Reads the time spent on a run queue: the second number of the file, in nanoseconds
/// (Documentation/scheduler/sched-stats.rst).
fn waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_rest_is_not() {
        let before = CpuTimes::now();
        let mut sum = 0_u64;
        while CpuTimes::now().since(before).used < Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let worked = CpuTimes::now();
        std::thread::sleep(Duration::from_millis(50));
        let rested = CpuTimes::now().since(worked);
        // The two clocks are read one after the other, and only one of them follows the time
        // server's: they agree roughly.
        assert!(worked.since(before).elapsed >= Duration::from_millis(10));
        assert!(rested.used < rested.elapsed / 2, "{rested:?}");
    }
}
