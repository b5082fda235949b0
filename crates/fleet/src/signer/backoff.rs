//! Exponential backoff.

use std::time::Duration;

/// Pauses that double from a minimum to a maximum.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    min: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, min, max }
    }

    /// Returns the pause after one more failure.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }
}

/// Returns the pause after `failures` consecutive failures, the first of which is 1.
pub(crate) fn pause_after(failures: u32, min: Duration, max: Duration) -> Duration {
    min.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let (min, max) = (Duration::from_secs(1), Duration::from_secs(5));
        let mut backoff = Backoff::new(min, max);
        let pauses: Vec<_> = (0..4).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5]);
        backoff.reset();
        assert_eq!(backoff.pause(), min);
        let pauses: Vec<_> =
            [1, 2, 3, 4, 1000].map(|failures| pause_after(failures, min, max).as_secs()).into();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
    }
}
