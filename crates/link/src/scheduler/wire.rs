//! The wire of one direction: its queue, and when it sends what.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::RngCore as _;

use super::outages::OutageProcess;
use super::random::{Draw, generator};
use crate::profile::{Direction, OPPORTUNITY_BYTES, RateTrace};
use crate::way::Way;

/// Queue and rate, in virtual time.
#[derive(Debug)]
pub(crate) struct Wire {
    rate: Rate,
    queue_bytes: Option<u64>,
    queue_max_bytes: u64,
    queue_max_ns: u64,
}

#[derive(Debug)]
enum Rate {
    Unlimited,
    Steady(Steady),
    Traced(Traced),
}

impl Wire {
    /// Returns the wire of one direction of a link, from its going live on; `change` is the number
    /// of the change that created it, 0 for none.
    pub(crate) fn of(direction: &Direction, seed: u64, way: Way, change: u64) -> Self {
        let rate = match (direction.rate_bits_per_second, &direction.rate_trace) {
            (None, _) => Rate::Unlimited,
            (Some(_), Some(trace)) => Rate::Traced(Traced::new(
                Arc::clone(trace),
                trace_offset_ns(trace, seed, way, change),
            )),
            (Some(bits_per_second), None) => {
                Rate::Steady(Steady::new(bits_per_second, outages(direction, seed, way, change)))
            }
        };
        Self { rate, queue_bytes: direction.queue_bytes, queue_max_bytes: 0, queue_max_ns: 0 }
    }

    /// Sends a packet. Returns when its last bit is on the wire, or `None` if the queue is full.
    ///
    /// The queue contains the bytes that the wire has not sent yet, including the rest of the
    /// packet on the wire. With a trace it contains whole packets.
    pub(crate) fn send(&mut self, bytes: u64, now_ns: u64) -> Option<u64> {
        let queued_bytes = self.queued_bytes(now_ns) + bytes;
        if self.queue_bytes.is_some_and(|bound| queued_bytes > bound) {
            return None;
        }
        let sent_ns = match &mut self.rate {
            Rate::Unlimited => return Some(now_ns),
            Rate::Steady(steady) => steady.send(bytes, now_ns),
            Rate::Traced(traced) => traced.send(bytes, now_ns),
        };
        self.queue_max_bytes = self.queue_max_bytes.max(queued_bytes);
        self.queue_max_ns = self.queue_max_ns.max(sent_ns - now_ns);
        Some(sent_ns)
    }

    /// Returns the bytes that wait for the rate.
    pub(crate) fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        match &mut self.rate {
            Rate::Unlimited => 0,
            Rate::Steady(steady) => steady.queued_bytes(now_ns),
            Rate::Traced(traced) => traced.queued_bytes(now_ns),
        }
    }

    /// Returns the maximum bytes that ever waited, including the packet just accepted, and the
    /// maximum wait for the last bit.
    pub(crate) fn queue_max(&self) -> (u64, u64) {
        (self.queue_max_bytes, self.queue_max_ns)
    }
}

/// Returns the rate of a queue that is never empty between two times after going live.
pub(crate) fn mean_bits_per_second(
    direction: &Direction,
    seed: u64,
    way: Way,
    from_ns: u64,
    to_ns: u64,
) -> Option<f64> {
    let steady = direction.rate_bits_per_second? as f64;
    let seconds = to_ns.saturating_sub(from_ns) as f64 / 1e9;
    if let Some(trace) = &direction.rate_trace {
        let offset_ns = trace_offset_ns(trace, seed, way, 0);
        let opportunities =
            trace.first_from(offset_ns + to_ns) - trace.first_from(offset_ns + from_ns);
        return Some((opportunities * OPPORTUNITY_BYTES * 8) as f64 / seconds);
    }
    let Some(mut outages) = outages(direction, seed, way, 0) else { return Some(steady) };
    let before_ns = outages.worked_ns(from_ns);
    Some(steady * (outages.worked_ns(to_ns) - before_ns) as f64 / 1e9 / seconds)
}

/// Returns the time in a trace at which the link begins, from the seed: a whole number of
/// milliseconds. Both directions begin at the same fraction of their traces.
pub(crate) fn trace_offset_ns(trace: &RateTrace, seed: u64, way: Way, change: u64) -> u64 {
    const MS: u64 = 1_000_000;
    let share = generator(seed, way, Draw::TraceOffset, change).next_u64();
    ((u128::from(share) * u128::from(trace.period_ms())) >> 64) as u64 * MS
}

fn outages(direction: &Direction, seed: u64, way: Way, change: u64) -> Option<OutageProcess> {
    direction
        .outages
        .map(|asked| OutageProcess::new(asked, generator(seed, way, Draw::Outages, change)))
}

/// A steady number of bits per second, without the outages.
#[derive(Debug)]
pub(super) struct Steady {
    bits_per_second: u64,
    /// When the wire will have sent all accepted packets, in working time, rounded down.
    busy_until_ns: u64,
    /// Rounding remainder in 1/rate ns: keeps the rate exact over any number of packets.
    busy_remainder: u64,
    outages: Option<OutageProcess>,
}

impl Steady {
    pub(super) fn new(bits_per_second: u64, outages: Option<OutageProcess>) -> Self {
        Self { bits_per_second, busy_until_ns: 0, busy_remainder: 0, outages }
    }

    fn worked_ns(&mut self, now_ns: u64) -> u64 {
        self.outages.as_mut().map_or(now_ns, |outages| outages.worked_ns(now_ns))
    }

    fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        let backlog_ns = self.busy_until_ns.saturating_sub(self.worked_ns(now_ns));
        (u128::from(backlog_ns) * u128::from(self.bits_per_second) / 8_000_000_000) as u64
    }

    fn send(&mut self, bytes: u64, now_ns: u64) -> u64 {
        let worked_ns = self.worked_ns(now_ns);
        if self.busy_until_ns <= worked_ns {
            self.busy_until_ns = worked_ns;
            self.busy_remainder = 0;
        }
        let work = bytes * 8_000_000_000 + self.busy_remainder;
        self.busy_until_ns += work / self.bits_per_second;
        self.busy_remainder = work % self.bits_per_second;
        match &mut self.outages {
            None => self.busy_until_ns,
            Some(outages) => outages.when_ns(self.busy_until_ns),
        }
    }
}

impl Steady {
    /// Like `send`, but the transmission must not end before `by_ns`, instead of begin then;
    /// without outages.
    pub(super) fn send_by(&mut self, bytes: u64, by_ns: u64) -> u64 {
        let lasts_ns = bytes * 8_000_000_000 / self.bits_per_second;
        self.send(bytes, by_ns.saturating_sub(lasts_ns))
    }
}

/// A traced rate. A packet may use several opportunities, and several packets may share one.
#[derive(Debug)]
struct Traced {
    trace: Arc<RateTrace>,
    /// Time in the trace at time 0.
    offset_ns: u64,
    /// Opportunity for the next packet, and its remaining bytes.
    opportunity: u64,
    left_bytes: u64,
    /// Send time and size of each waiting packet.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
}

impl Traced {
    fn new(trace: Arc<RateTrace>, offset_ns: u64) -> Self {
        let opportunity = trace.first_from(offset_ns);
        Self {
            trace,
            offset_ns,
            opportunity,
            left_bytes: OPPORTUNITY_BYTES,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        while let Some((sent_ns, bytes)) = self.waiting.front().copied()
            && sent_ns <= now_ns
        {
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
        self.waiting_bytes
    }

    fn send(&mut self, bytes: u64, now_ns: u64) -> u64 {
        // Unused opportunities are lost.
        let first = self.trace.first_from(self.offset_ns + now_ns);
        if first > self.opportunity {
            (self.opportunity, self.left_bytes) = (first, OPPORTUNITY_BYTES);
        }
        let mut rest = bytes;
        while rest > 0 {
            if self.left_bytes == 0 {
                self.opportunity += 1;
                self.left_bytes = OPPORTUNITY_BYTES;
            }
            let used = rest.min(self.left_bytes);
            self.left_bytes -= used;
            rest -= used;
        }
        let sent_ns = (self.trace.time_of_ns(self.opportunity) - self.offset_ns).max(now_ns);
        self.waiting.push_back((sent_ns, bytes));
        self.waiting_bytes += bytes;
        sent_ns
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Profile;

    const MS: u64 = 1_000_000;

    fn up(keys: &str) -> Direction {
        Profile::from_toml(&format!("name='t'\n[up]\ndelay_ms=0\n{keys}\n[down]\ndelay_ms=0\n"))
            .unwrap()
            .up
    }

    /// Returns a wire that follows a trace from its beginning.
    fn traced(lines: &str, queue_bytes: u64) -> Wire {
        let rate = Rate::Traced(Traced::new(Arc::new(RateTrace::parse(lines).unwrap()), 0));
        Wire { rate, queue_bytes: Some(queue_bytes), queue_max_bytes: 0, queue_max_ns: 0 }
    }

    #[test]
    fn seed_sets_one_trace_offset_for_both_directions() {
        let trace = Arc::new(RateTrace::parse("3\n700\n701\n1500\n4000\n").unwrap());
        let direction = Direction {
            rate_bits_per_second: Some(1),
            rate_trace: Some(Arc::clone(&trace)),
            queue_bytes: Some(1 << 20),
            ..up("")
        };
        let offsets: Vec<u64> =
            (0..200).map(|seed| trace_offset_ns(&trace, seed, Way::Up, 0)).collect();
        assert!(offsets.iter().all(|offset| offset.is_multiple_of(MS) && *offset < 4000 * MS));
        // The offsets cover all quarters of the trace.
        for quarter in 0..4 {
            let found = offsets.iter().filter(|offset| **offset / (1000 * MS) == quarter).count();
            assert!((25..=75).contains(&found), "{found}");
        }
        for (seed, offset) in (0..200).zip(offsets) {
            assert_eq!(trace_offset_ns(&trace, seed, Way::Down, 0), offset);
            let mut from_offset = Wire::of(&direction, seed, Way::Up, 0);
            // The trace's opportunities from the offset on, wrapping at its end.
            let first = trace.first_from(offset);
            for number in 0..12 {
                assert_eq!(
                    from_offset.send(1500, 0),
                    Some(trace.time_of_ns(first + number) - offset)
                );
            }
        }
        // A published seed has to give the same offset later.
        assert_eq!(
            [1, 2, 3].map(|seed| trace_offset_ns(&trace, seed, Way::Up, 0) / MS),
            [2774, 3851, 1260]
        );
    }

    #[test]
    fn packets_share_opportunities_and_unused_ones_expire() {
        let mut wire = traced("10\n20\n30\n40\n", 15_000);
        let mut send = |bytes, at_ms: u64| wire.send(bytes, at_ms * MS).map(|sent_ns| sent_ns / MS);
        assert_eq!(
            [send(500, 0), send(1000, 0), send(1, 0), send(1499, 0)],
            [Some(10), Some(10), Some(20), Some(20)]
        );
        assert_eq!(send(3000, 1), Some(40));
        // No packet used the opportunities at 50 and 60.
        assert_eq!(send(100, 65), Some(70));
        assert_eq!(send(1400, 69), Some(70));
        assert_eq!(send(100, 69), Some(80));
        // The rest of a past opportunity is lost too.
        assert_eq!(send(100, 81), Some(90));
    }

    #[test]
    fn traced_queue_is_bounded_and_drains() {
        let mut wire = traced("10\n20\n", 3000);
        assert_eq!(wire.send(1500, 0), Some(10 * MS));
        assert_eq!(wire.send(1500, 0), Some(20 * MS));
        assert_eq!(wire.send(40, 9 * MS), None);
        assert_eq!(wire.queued_bytes(10 * MS), 1500);
        assert_eq!(wire.send(1500, 10 * MS), Some(30 * MS));
        assert_eq!(wire.queue_max(), (3000, 20 * MS));
    }

    #[test]
    fn packets_wait_for_the_end_of_an_outage() {
        let direction = up(
            "rate_mbit_per_second=12\nqueue_ms=2000\noutage_ms=[300,300]\noutage_every_ms=[1000,1000]",
        );
        let mut wire = Wire::of(&direction, 7, Way::Up, 0);
        // At half the rate, the backlog of an outage is gone before the next one.
        let waits: Vec<u64> = (0..5_000)
            .map(|number| wire.send(1500, number * 2 * MS).unwrap() - number * 2 * MS)
            .collect();
        let longest = *waits.iter().max().unwrap();
        assert!((298 * MS..=301 * MS).contains(&longest), "{longest}");
        assert_eq!(wire.queue_max().1, longest);
        // An outage of 300 ms delays packets for 600 ms; then packets pass immediately for 400 ms.
        let at_once = waits.iter().filter(|wait| **wait == MS).count();
        assert!((1_900..=2_150).contains(&at_once), "{at_once}");
    }

    #[test]
    fn outage_fills_the_queue_and_then_packets_are_dropped() {
        let direction = up(
            "rate_mbit_per_second=12\nqueue_ms=100\noutage_ms=[300,300]\noutage_every_ms=[1000,1000]",
        );
        let mut wire = Wire::of(&direction, 7, Way::Up, 0);
        // One packet every two milliseconds: the queue is empty again long before the next outage.
        let sent: Vec<Option<u64>> =
            (0..5_000).map(|number| wire.send(1500, number * 2 * MS)).collect();
        let dropped = sent.iter().filter(|sent| sent.is_none()).count();
        // Of 150 packets in each of ten outages, 100 fit into the queue.
        assert!((450..=550).contains(&dropped), "{dropped}");
        assert!(sent.iter().flatten().is_sorted());
        // Exact to the byte: the packet on the wire counts only with its remaining bytes.
        assert!((148_500..=150_000).contains(&wire.queue_max().0), "{}", wire.queue_max().0);
    }

    #[test]
    fn full_queue_gets_the_mean_rate() {
        let outages = up(
            "rate_mbit_per_second=12\nqueue_ms=500\noutage_ms=[100,400]\noutage_every_ms=[700,1500]",
        );
        let trace = Arc::new(RateTrace::parse("3\n3\n5\n9\n14\n15\n").unwrap());
        let traced = Direction {
            rate_bits_per_second: Some(1),
            rate_trace: Some(trace),
            queue_bytes: Some(90_000),
            ..up("")
        };
        for direction in [outages, traced] {
            let mut wire = Wire::of(&direction, 5, Way::Down, 0);
            let sent: Vec<u64> =
                (0..40_000).filter_map(|number| wire.send(1500, number * MS / 4)).collect();
            let (from_ns, to_ns) = (sent[1000], sent[3000]);
            let found = 2000.0 * 12_000.0 * 1e9 / (to_ns - from_ns) as f64;
            let expected = mean_bits_per_second(&direction, 5, Way::Down, from_ns, to_ns).unwrap();
            assert!((found / expected - 1.0).abs() < 0.001, "{found} {expected}");
        }
    }

    fn any_rate() -> impl Strategy<Value = Direction> {
        let steady = (1u64..400, 1u64..40, any::<bool>()).prop_map(|(tenths, packets, outages)| {
            let outages = if outages { "outage_ms=[3,40]\noutage_every_ms=[50,200]" } else { "" };
            up(&format!(
                "rate_mbit_per_second={}\nqueue_bytes={}\n{outages}",
                tenths as f64 / 10.0,
                packets * 1500
            ))
        });
        let traced =
            (prop::collection::vec(0u64..30, 1..60), 1u64..40).prop_map(|(mut gaps, packets)| {
                gaps[0] += 1;
                let times = gaps.iter().scan(0, |at, gap| {
                    *at += gap;
                    Some(format!("{at}\n"))
                });
                let trace = Arc::new(RateTrace::parse(&times.collect::<String>()).unwrap());
                Direction {
                    rate_bits_per_second: Some(1),
                    rate_trace: Some(trace),
                    queue_bytes: Some(packets * 1500),
                    ..up("")
                }
            });
        prop_oneof![steady, traced]
    }

    proptest! {
        /// For any arrivals: packets leave in order and not before their arrival, the queue stays
        /// within its bound, and the rate is not exceeded.
        #[test]
        fn wire_keeps_order_bound_and_rate(
            direction in any_rate(), seed: u64, packets in prop::collection::vec((20u64..=1500, 0u64..20_000_000), 1..300),
        ) {
            let mut wire = Wire::of(&direction, seed, Way::Up, 0);
            let (mut now_ns, mut last_ns, mut sent_bytes) = (0, 0, 0);
            for (bytes, gap_ns) in packets {
                now_ns += gap_ns;
                let queued = wire.queued_bytes(now_ns);
                match wire.send(bytes, now_ns) {
                    Some(sent_ns) => {
                        prop_assert!(sent_ns >= now_ns && sent_ns >= last_ns);
                        prop_assert!(queued + bytes <= direction.queue_bytes.unwrap());
                        last_ns = sent_ns;
                        sent_bytes += bytes;
                    }
                    None => prop_assert!(queued + bytes > direction.queue_bytes.unwrap()),
                }
            }
            // One opportunity, or rounding to whole bytes and nanoseconds.
            let allowed = match mean_bits_per_second(&direction, seed, Way::Up, 0, last_ns) {
                Some(mean) if last_ns > 0 => mean * last_ns as f64 / 8e9,
                _ => 0.0,
            };
            prop_assert!(sent_bytes as f64 <= allowed + OPPORTUNITY_BYTES as f64, "{sent_bytes} \
                {allowed}");
        }
    }
}
