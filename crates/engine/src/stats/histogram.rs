//! How long things took.

use std::time::Duration;

use super::Counter;

/// Bounds of the buckets in microseconds, both ends of what networks do.
const BOUNDS_US: [u64; 15] =
    [500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000];

/// Counts of durations in buckets, that its worker alone changes and any thread may read.
#[derive(Debug, Default)]
pub struct Histogram {
    /// How many were within each bound and above the one before; the last is for those above all of them.
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|bound| *bound < us)].add(1);
        self.sum_us.add(us);
    }

    /// Upper bounds, ascending, each with how many durations were not longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut count = 0;
        BOUNDS_US.iter().zip(&self.buckets).map(move |(bound, bucket)| {
            count += bucket.value();
            (Duration::from_micros(*bound), count)
        })
    }

    /// How many durations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::value).sum()
    }

    /// All of them together.
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
