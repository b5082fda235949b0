//! Lateness of packets, and its limit.
//!
//! A link keeps its deadlines if no more than one in a hundred packets (at least one) is later than
//! a twentieth of the round trip. The duration of a transfer consists of round trips, and a late
//! packet delays one of them.

use hdrhistogram::Histogram;

use crate::profile::{Change, Direction, Profile};

/// Ratio of a round trip to the bound: 5 % is less than the difference that makes a result worth
/// reporting.
const BOUNDS_IN_ROUND_TRIP: u64 = 20;
/// Maximum bound on any link.
const MOST_BOUND_NS: u64 = 2_000_000;
/// Minimum bound. On a machine with two processors that only loads pages, 99 of 100 packets are no
/// more than some 100 µs late.
const LEAST_BOUND_NS: u64 = 250_000;
/// One in this many packets may be late.
const PACKETS_FOR_ONE_LATE: u64 = 100;

/// Returns the bound beyond which a delivered packet counts as late: 5 % of the profile's shortest
/// round trip without its rate, from 0.25 to 2 ms.
pub fn bound_ns(profile: &Profile) -> u64 {
    let shortest_ns = |first: u64, changed: fn(&Change) -> Option<&Direction>| {
        let later = profile.changes.iter().filter_map(changed).map(|direction| direction.delay_ns);
        later.fold(first, u64::min)
    };
    let up_ns = shortest_ns(profile.up.delay_ns, |change| change.up.as_ref());
    let down_ns = shortest_ns(profile.down.delay_ns, |change| change.down.as_ref());
    ((up_ns + down_ns) / BOUNDS_IN_ROUND_TRIP).clamp(LEAST_BOUND_NS, MOST_BOUND_NS)
}

/// Returns how many of `packets` may be late: 1 %, but at least one.
pub fn most_late(packets: u64) -> u64 {
    (packets / PACKETS_FOR_ONE_LATE).max(1)
}

/// Lateness of the packets of one direction, or of both.
#[derive(Debug, Clone)]
pub struct LatenessCounters {
    bound_ns: u64,
    histogram_ns: Histogram<u64>,
    late: u64,
    is_frozen: bool,
}

impl LatenessCounters {
    /// Returns counters for a link with this profile.
    pub fn new(profile: &Profile) -> Self {
        Self {
            bound_ns: bound_ns(profile),
            histogram_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .expect("invariant: constant bounds are valid"),
            late: 0,
            is_frozen: false,
        }
    }

    /// Records the lateness of a delivered packet. Late packets are counted here, because the
    /// histogram has only three digits.
    pub fn record(&mut self, lateness_ns: u64) {
        if !self.is_frozen {
            self.histogram_ns.saturating_record(lateness_ns);
            self.late += u64::from(lateness_ns > self.bound_ns);
        }
    }

    /// Stops counting.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Returns the sum of these counters and those of another direction of the same link.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.histogram_ns
            .add(&other.histogram_ns)
            .expect("invariant: all histograms have the same bounds");
        both.late += other.late;
        both
    }

    /// Returns the number of delivered packets.
    pub fn packets(&self) -> u64 {
        self.histogram_ns.len()
    }

    /// Returns the number of packets later than the bound.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns the lateness that this share of the packets did not exceed, to three digits.
    pub fn at_quantile_ns(&self, quantile: f64) -> u64 {
        self.histogram_ns.value_at_quantile(quantile)
    }

    /// Returns the maximum lateness, to three digits.
    pub fn max_ns(&self) -> u64 {
        self.histogram_ns.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(delay_ms: &str, more: &str) -> Profile {
        Profile::from_toml(&format!(
            "name='t'\nup={{delay_ms={delay_ms}}}\ndown={{delay_ms={delay_ms}}}\n{more}"
        ))
        .unwrap()
    }

    #[test]
    fn lateness_bound_depends_on_the_round_trip() {
        let bound_us = |delay_ms: &str, more: &str| bound_ns(&profile(delay_ms, more)) / 1000;
        // dc-near, then bounds at the minimum and at the maximum.
        assert_eq!(
            [bound_us("5", ""), bound_us("0", ""), bound_us("2", ""), bound_us("35", "")],
            [500, 250, 250, 2000]
        );
        // The shortest round trip of a link that changes.
        assert_eq!(
            bound_us(
                "35",
                "[[changes]]\nafter_ms=9\nup={delay_ms=5}\n[[changes]]\nafter_ms=10\ndown={delay_ms=3}"
            ),
            400
        );
    }

    #[test]
    fn one_packet_or_one_percent_may_be_late() {
        assert_eq!([0, 1, 99, 100, 199, 200, 12_345].map(most_late), [1, 1, 1, 1, 1, 2, 123]);
    }

    #[test]
    fn packet_is_late_from_the_first_nanosecond_after_the_bound() {
        // These three are in the same histogram bucket.
        let mut counters = LatenessCounters::new(&profile("5", ""));
        for lateness_ns in [499_999, 500_000, 500_001] {
            counters.record(lateness_ns);
        }
        assert_eq!((counters.packets(), counters.late()), (3, 1));
        let both = counters.with(&counters);
        assert_eq!((both.packets(), both.late()), (6, 2));
    }

    #[test]
    fn frozen_counters_do_not_change() {
        let mut counters = LatenessCounters::new(&profile("5", ""));
        counters.record(700_000);
        counters.freeze();
        counters.record(30_000_000);
        assert_eq!((counters.packets(), counters.late()), (1, 1));
        assert!(
            (counters.max_ns() / 1000).abs_diff(700) <= 1
                && counters.at_quantile_ns(0.99) == counters.max_ns()
        );
    }
}
