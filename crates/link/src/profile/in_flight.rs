//! How much a link may have to hold at once, by what its profile asks for.

use super::{Direction, MTU, Profile};
use crate::scheduler::Way;

/// What a direction without a rate may hold: 100 ms of 5 Gbit/s.
const WITHOUT_RATE_BYTES: u64 = 64 << 20;
/// More than this is dropped, whatever the profile asks for.
pub(crate) const MAX_HELD_BYTES: u64 = 256 << 20;
const NS: u128 = 1_000_000_000;

impl Direction {
    /// Bytes that wait for the rate or are on their way, at most; `None` without a rate.
    fn in_flight_bytes(&self) -> Option<u64> {
        Some(self.queue_bytes? + self.bytes_in(self.after_the_wire_ns())?)
    }

    /// From the last bit on the wire to the arrival.
    fn after_the_wire_ns(&self) -> u64 {
        self.delay_ns + self.jitter_ns
    }

    /// From reaching the link to the arrival, at most.
    fn residence_ns(&self) -> u64 {
        let queue_ns = self.queue_bytes.map_or(0, |bytes| self.serialisation_ns(bytes));
        // The queue may meet as many outages as have room in it; of gaps in a trace its mean rate knows.
        let outages_ns =
            self.outages.map_or(0, |outages| outages.length_ns[1] * (queue_ns / (outages.every_ns[0] - outages.length_ns[1]) + 1));
        let gap_ns = self.rate_trace.as_ref().map_or(0, |trace| trace.longest_gap_ns());
        queue_ns + outages_ns + gap_ns + self.after_the_wire_ns()
    }

    /// What the rate lets through in a stretch of time, at most.
    fn bytes_in(&self, stretch_ns: u64) -> Option<u64> {
        let rate = match &self.rate_trace {
            Some(trace) => trace.busiest_bits_per_second(stretch_ns.div_ceil(1_000_000).max(1)),
            None => self.rate_bits_per_second?,
        };
        Some((u128::from(rate) * u128::from(stretch_ns) / NS / 8) as u64 + MTU as u64)
    }
}

impl Profile {
    /// Bytes of packets that one direction of the link may have to hold, at most [`MAX_HELD_BYTES`].
    ///
    /// What waits for the rate, and what is on its way after it: rate × (delay + jitter) + queue. Where the link changes or begins again, what
    /// came before arrives as it would have, so it counts once more, together with what comes meanwhile.
    pub(crate) fn held_bytes(&self, way: Way) -> u64 {
        let (first, changed): (_, fn(&super::Change) -> Option<&Direction>) = match way {
            Way::Up => (&self.up, |change| change.up.as_ref()),
            Way::Down => (&self.down, |change| change.down.as_ref()),
        };
        let phases: Vec<&Direction> = std::iter::once(first).chain(self.changes.iter().filter_map(changed)).collect();
        let longest_ns = phases.iter().map(|phase| phase.residence_ns()).max().unwrap_or(0);
        let most = |of: &dyn Fn(&Direction) -> Option<u64>| phases.iter().map(|phase| of(phase)).collect::<Option<Vec<_>>>();
        let in_flight = most(&Direction::in_flight_bytes);
        let meanwhile = most(&|phase| phase.bytes_in(longest_ns));
        match (in_flight, meanwhile) {
            (Some(in_flight), Some(meanwhile)) => {
                let before = in_flight.iter().max().copied().unwrap_or(0);
                (in_flight.iter().sum::<u64>() + before + meanwhile.into_iter().max().unwrap_or(0)).min(MAX_HELD_BYTES)
            }
            _ => WITHOUT_RATE_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(up: &str, changes: &str) -> u64 {
        Profile::from_toml(&format!("name='t'\n[up]\n{up}\n[down]\ndelay_ms=0\n{changes}")).unwrap().held_bytes(Way::Up)
    }

    #[test]
    fn rate_delay_and_queue_decide() {
        // 12 Mbit/s are 1500 bytes a millisecond.
        let in_flight = 1500 * (300 + 35 + 6) + 1500;
        assert_eq!(held("rate_mbit_per_second=12\nqueue_ms=300\ndelay_ms=35\njitter_ms=6", ""), 3 * in_flight);
        assert_eq!(held("delay_ms=35", ""), WITHOUT_RATE_BYTES);
        assert_eq!(held("rate_mbit_per_second=100000\nqueue_ms=1\ndelay_ms=60000", ""), MAX_HELD_BYTES);
    }

    #[test]
    fn what_was_accepted_before_a_change_is_held_beside_what_comes_after() {
        let slow = "rate_mbit_per_second=12\nqueue_ms=300\ndelay_ms=35";
        let fast = "[[changes]]\nafter_ms=1\n[changes.up]\nrate_mbit_per_second=120\nqueue_ms=10\ndelay_ms=5";
        let alone = |direction| held(direction, "");
        // 335 ms of the faster rate come before the last packet of the slow link has gone.
        assert!(held(slow, fast) > 15_000 * 335 + 1500 * 335, "{}", held(slow, fast));
        assert!(held(slow, fast) > alone(slow));
    }
}
