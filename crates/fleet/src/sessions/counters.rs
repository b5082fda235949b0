//! What the store counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bounds of the latency's buckets in microseconds: Redis answers within the first four as a rule.
const BOUNDS_US: [u64; 13] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000, 10_000_000,
];

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident: $public:literal,)*) => {
        /// Counters and gauges of one store.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $($(#[doc = $doc])+ pub(super) $name: Counter,)*
            pub(super) latency: Latency,
        }

        impl Counters {
            pub(super) fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$(($public, self.$name.value()),)*]
            }

            /// Returns names and descriptions, in the same order.
            pub(super) fn meanings() -> Vec<(&'static str, String)> {
                vec![$(($public, [$($doc.trim()),+].join(" ")),)*]
            }
        }
    };
}

counters! {
    /// Sessions that Redis has stored.
    stored: "shared_sessions_stored",
    /// Sessions that were not stored: Redis was unreachable, late, or refused them.
    not_stored: "shared_sessions_not_stored",
    /// Sessions that were found.
    found: "shared_sessions_found",
    /// Sessions found by a lookup that removes them, which no other lookup can find again.
    for_good: "shared_sessions_taken_for_good",
    /// Sessions found, but stored before the server's last start or failover.
    other_run: "shared_sessions_of_another_run",
    /// Sessions found, but too few replicas acknowledged the removal.
    unacknowledged: "shared_sessions_unacknowledged",
    /// Names for which Redis had no session.
    missing: "shared_sessions_missing",
    /// Values that no secret opens.
    unopened: "shared_sessions_unopened",
    /// Sessions that were past their lifetime, or from the future by this machine's clock.
    expired: "shared_sessions_expired",
    /// Lookups and stores without a reply within the timeout.
    timeouts: "shared_sessions_timeouts",
    /// Commands that failed otherwise: by an error of Redis, or with their connection.
    failures: "shared_sessions_failures",
    /// Commands that were not sent because their server was unreachable.
    skipped: "shared_sessions_skipped",
    /// Commands that were not sent because too many were waiting.
    dropped: "shared_sessions_dropped",
    /// Connections that were opened, with one a minute to compare settings.
    connections: "shared_sessions_connections",
    /// Servers that store sessions.
    servers: "shared_sessions_servers",
    /// Servers of these that are reachable.
    reachable: "shared_sessions_servers_reachable",
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Relaxed);
    }

    pub(super) fn subtract(&self, count: usize) {
        self.0.fetch_sub(count as u64, Relaxed);
    }

    pub(super) fn set(&self, count: usize) {
        self.0.store(count as u64, Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A histogram of how long lookups waited for Redis, with those that timed out and without those
/// that were not sent.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Latency {
    pub(super) fn observe(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.sum_us.add(us as usize);
    }

    /// Returns the upper bounds, ascending, each with the number of lookups that were not longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut count = 0;
        BOUNDS_US.iter().zip(&self.buckets).map(move |(bound, bucket)| {
            count += bucket.value();
            (Duration::from_micros(*bound), count)
        })
    }

    /// Returns the number of lookups.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::value).sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_counts_in_each_bucket_that_it_is_not_above() {
        let latency = Latency::default();
        for us in [0, 50, 51, 20_000_000] {
            latency.observe(Duration::from_micros(us));
        }
        let counts: Vec<_> = latency.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!((latency.count(), latency.sum()), (4, Duration::from_micros(20_000_101)));
    }
}
