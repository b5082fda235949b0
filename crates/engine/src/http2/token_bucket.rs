//! A token bucket.

use std::time::Instant;

/// Size of the bucket in seconds: this many seconds' worth may come at once.
const BURST_SECONDS: f64 = 5.0;

/// Allows a number of events per second, with a burst of five seconds' worth.
pub(super) struct Bucket {
    tokens: f64,
    per_second: f64,
    filled: Instant,
}

impl Bucket {
    pub(super) fn new(now: Instant, per_second: u64) -> Self {
        let per_second = per_second as f64;
        Self { tokens: per_second * BURST_SECONDS, per_second, filled: now }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.refund(since * self.per_second);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    /// Adds tokens, up to the burst.
    pub(super) fn refund(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.per_second * BURST_SECONDS);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn burst_is_taken_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start, 10);
        assert_eq!((0..100).filter(|_| bucket.take(start)).count(), 50);
        let later = start + Duration::from_secs(1);
        assert_eq!((0..100).filter(|_| bucket.take(later)).count(), 10);
        let much_later = start + Duration::from_secs(1_000);
        assert_eq!((0..100).filter(|_| bucket.take(much_later)).count(), 50);
    }
}
