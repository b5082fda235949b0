//! Maximum amount of data in flight on a link, derived from its profile.

use super::{Direction, MTU, Profile};
use crate::way::Way;

/// Limit for a direction without a rate: 100 ms at 5 Gbit/s.
const WITHOUT_RATE_BYTES: u64 = 64 << 20;
/// Packets beyond this are dropped, whatever the profile requests.
pub(crate) const MAX_HELD_BYTES: u64 = 256 << 20;
const NS: u128 = 1_000_000_000;

impl Direction {
    /// Maximum bytes that wait for the rate or are in flight; `None` without a rate.
    fn in_flight_bytes(&self) -> Option<u64> {
        Some(self.queue_bytes? + self.bytes_in(self.after_the_wire_ns())?)
    }

    /// Maximum time from the last bit on the wire to the arrival.
    fn after_the_wire_ns(&self) -> u64 {
        self.delay_ns + self.jitter_ns
    }

    /// Maximum time from reaching the link to the arrival.
    fn residence_ns(&self) -> u64 {
        let queue_ns = self.queue_bytes.map_or(0, |bytes| self.serialisation_ns(bytes));
        // As many outages as fit in the time of the queue; gaps in a trace are included in its mean
        // rate.
        let outages_ns = self.outages.map_or(0, |outages| {
            outages.length_ns[1] * (queue_ns / (outages.every_ns[0] - outages.length_ns[1]) + 1)
        });
        let gap_ns = self.rate_trace.as_ref().map_or(0, |trace| trace.longest_gap_ns());
        queue_ns + outages_ns + gap_ns + self.after_the_wire_ns()
    }

    /// Maximum bytes that the rate passes in a period of time.
    fn bytes_in(&self, stretch_ns: u64) -> Option<u64> {
        let rate = match &self.rate_trace {
            Some(trace) => trace.busiest_bits_per_second(stretch_ns.div_ceil(1_000_000).max(1)),
            None => self.rate_bits_per_second?,
        };
        Some((u128::from(rate) * u128::from(stretch_ns) / NS / 8) as u64 + MTU as u64)
    }
}

impl Profile {
    /// Returns the maximum bytes of packets that one direction of the link must buffer, at most
    /// [`MAX_HELD_BYTES`].
    ///
    /// These are the bytes that wait for the rate and those in flight after it:
    /// queue + rate × (delay + jitter). When the link changes or restarts, earlier packets arrive
    /// unaffected, so they are counted again together with the new ones.
    pub(crate) fn held_bytes(&self, way: Way) -> u64 {
        let (first, changed): (_, fn(&super::Change) -> Option<&Direction>) = match way {
            Way::Up => (&self.up, |change| change.up.as_ref()),
            Way::Down => (&self.down, |change| change.down.as_ref()),
        };
        let phases: Vec<&Direction> =
            std::iter::once(first).chain(self.changes.iter().filter_map(changed)).collect();
        let longest_ns = phases.iter().map(|phase| phase.residence_ns()).max().unwrap_or(0);
        let most = |of: &dyn Fn(&Direction) -> Option<u64>| {
            phases.iter().map(|phase| of(phase)).collect::<Option<Vec<_>>>()
        };
        let in_flight = most(&Direction::in_flight_bytes);
        let meanwhile = most(&|phase| phase.bytes_in(longest_ns));
        match (in_flight, meanwhile) {
            (Some(in_flight), Some(meanwhile)) => {
                let before = in_flight.iter().max().copied().unwrap_or(0);
                (in_flight.iter().sum::<u64>() + before + meanwhile.into_iter().max().unwrap_or(0))
                    .min(MAX_HELD_BYTES)
            }
            _ => WITHOUT_RATE_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(up: &str, changes: &str) -> u64 {
        Profile::from_toml(&format!("name='t'\n[up]\n{up}\n[down]\ndelay_ms=0\n{changes}"))
            .unwrap()
            .held_bytes(Way::Up)
    }

    #[test]
    fn bytes_in_flight_depend_on_rate_delay_and_queue() {
        // 12 Mbit/s are 1500 bytes a millisecond.
        let in_flight = 1500 * (300 + 35 + 6) + 1500;
        assert_eq!(
            held("rate_mbit_per_second=12\nqueue_ms=300\ndelay_ms=35\njitter_ms=6", ""),
            3 * in_flight
        );
        assert_eq!(held("delay_ms=35", ""), WITHOUT_RATE_BYTES);
        assert_eq!(
            held("rate_mbit_per_second=100000\nqueue_ms=1\ndelay_ms=60000", ""),
            MAX_HELD_BYTES
        );
    }

    #[test]
    fn bytes_in_flight_add_up_across_a_change() {
        let slow = "rate_mbit_per_second=12\nqueue_ms=300\ndelay_ms=35";
        let fast = "[[changes]]\nafter_ms=1\n[changes.up]\nrate_mbit_per_second=120\nqueue_ms=10\ndelay_ms=5";
        let alone = |direction| held(direction, "");
        // 335 ms at the faster rate arrive before the last packet of the slow link leaves.
        assert!(held(slow, fast) > 15_000 * 335 + 1500 * 335, "{}", held(slow, fast));
        assert!(held(slow, fast) > alone(slow));
    }
}
