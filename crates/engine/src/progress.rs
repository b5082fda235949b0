//! Whether a peer takes the data that waits for it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::limits::Limits;
use crate::stats::Stats;

/// Watches the data written to a peer, on a connection or a stream.
///
/// A peer that takes a byte now and then makes no progress: in each `response_timeout` in which
/// data waits, the peer has to take as many bytes as `response_bytes_per_second` amounts to.
pub(crate) struct WriteProgress {
    timeout: Duration,
    /// Bytes that the peer has to take in `timeout`.
    enough: f64,
    blocked_since: Cell<Option<Instant>>,
    moved: Cell<u64>,
}

impl WriteProgress {
    pub(crate) fn new(limits: &Limits) -> Self {
        let timeout = limits.response_timeout();
        let enough = limits.response_bytes_per_second() as f64 * timeout.as_secs_f64();
        Self { timeout, enough, blocked_since: Cell::default(), moved: Cell::default() }
    }

    /// Notes that data waits and the peer does not take it.
    pub(crate) fn on_blocked(&self, now: Instant) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(now));
            self.moved.set(0);
        }
    }

    /// Notes that the peer has taken `bytes`.
    pub(crate) fn on_moved(&self, bytes: usize) {
        if self.blocked_since.get().is_none() || bytes == 0 {
            return;
        }
        self.moved.set(self.moved.get() + bytes as u64);
        if self.is_enough(self.moved.get()) {
            self.on_done();
        }
    }

    /// Notes that no data waits.
    pub(crate) fn on_done(&self) {
        self.blocked_since.set(None);
    }

    /// Whether `bytes` in one `timeout` are progress.
    pub(crate) fn is_enough(&self, bytes: u64) -> bool {
        bytes as f64 >= self.enough
    }

    /// Counts a peer whose time is up.
    pub(crate) fn count(&self, stats: &Stats) {
        let counter = if self.moved.get() == 0 {
            &stats.response_timeouts
        } else {
            &stats.responses_too_slow
        };
        counter.add(1);
    }

    /// Returns when the peer's time is up, if data waits.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.blocked_since.get().map(|since| since + self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_do_not_move_the_deadline_and_enough_of_them_do() {
        let limits = Limits::default().with_response_timeout(Duration::from_secs(10)).unwrap();
        let limits = limits.with_response_bytes_per_second(100).unwrap();
        let (progress, start) = (WriteProgress::new(&limits), Instant::now());
        assert_eq!(progress.deadline(), None);
        progress.on_blocked(start);
        for second in 1..9 {
            progress.on_moved(1);
            progress.on_blocked(start + Duration::from_secs(second));
        }
        assert_eq!(progress.deadline(), Some(start + Duration::from_secs(10)));
        progress.on_moved(1_000);
        assert_eq!(progress.deadline(), None);
        progress.on_blocked(start + Duration::from_secs(9));
        assert_eq!(progress.deadline(), Some(start + Duration::from_secs(19)));
    }
}
