//! Histograms of durations.

use std::time::Duration;

use super::counter::Counter;

/// Bounds of the buckets in microseconds, for networks from the fastest to the slowest.
const BOUNDS_US: [u64; 15] = [
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000, 30_000_000,
];

/// A histogram of durations. Only its worker changes it; any thread may read it.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Number of durations within each bound and above the previous one; the last bucket is for
    /// those above all bounds.
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.sum_us.add(us);
    }

    /// Returns the upper bounds, ascending, each with the number of durations that were not longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut count = 0;
        BOUNDS_US.iter().zip(&self.buckets).map(move |(bound, bucket)| {
            count += bucket.value();
            (Duration::from_micros(*bound), count)
        })
    }

    /// Returns the number of durations.
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
        let histogram = Histogram::default();
        for us in [0, 500, 501, 29_000_000, 31_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let counts: Vec<_> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!((histogram.count(), histogram.sum()), (5, Duration::from_micros(60_001_001)));
    }
}
