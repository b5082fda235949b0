//! Detects when slow start has filled the path: HyStart++ (RFC 9406).

use std::time::Duration;

/// RFC 9406, section 4.3.
const MIN_RTT_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_RTT_THRESHOLD: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const SAMPLES: u32 = 8;
pub(super) const CONSERVATIVE_GROWTH_DIVISOR: u64 = 4;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Watches the round-trip times during slow start. When they rise, a queue has begun to build, and
/// doubling further would lose as many packets as the path holds.
///
/// It differs from the RFC in three ways. Round trips are compared by the minimum of eight in a
/// row, not of a whole round: the first packets of a round find no queue even if its last ones find
/// a long one, which would cost a round. A round in which round trips rise further ends the
/// conservative phase, since there is a queue. And the growth per acknowledgment is not limited,
/// since sending is paced. Rounds are delimited by packet numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    /// The packet whose acknowledgment ends the current round.
    round_end: u64,
    /// Minimum round trip of the last round, of this one, and of the current eight.
    last: Option<Duration>,
    current: Option<Duration>,
    eight: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
}

/// The phase in which it is not certain that there is a queue.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The round trip that began the phase.
    baseline: Duration,
    rounds_left: u32,
}

/// Decision about slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    GoesOn,
    IsOver,
}

/// Returns the smallest round-trip time that indicates a queue.
pub(super) fn risen(rtt: Duration) -> Duration {
    rtt + (rtt / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESHOLD, MAX_RTT_THRESHOLD)
}

fn least(one: Option<Duration>, other: Duration) -> Duration {
    one.map_or(other, |one| one.min(other))
}

impl HyStart {
    /// Returns how much the window grows for these acknowledged bytes.
    pub(super) fn growth(&self, acknowledged: u64) -> u64 {
        if self.conservative.is_some() {
            acknowledged / CONSERVATIVE_GROWTH_DIVISOR
        } else {
            acknowledged
        }
    }

    pub(super) fn on_sample(&mut self, rtt: Duration) {
        self.current = Some(least(self.current, rtt));
        self.eight = Some(least(self.eight, rtt));
        self.samples += 1;
        if !self.samples.is_multiple_of(SAMPLES) {
            return;
        }
        let Some(eight) = self.eight.take() else { return };
        match (self.conservative, self.last) {
            // There was no queue.
            (Some(Conservative { baseline, .. }), _) if eight < baseline => {
                self.conservative = None;
            }
            (None, Some(last)) if eight >= risen(last) => {
                self.conservative =
                    Some(Conservative { baseline: eight, rounds_left: CONSERVATIVE_ROUNDS });
            }
            _ => {}
        }
    }

    /// Called after all packets of an acknowledgment; `sent` is the last packet sent.
    pub(super) fn on_acknowledged(&mut self, largest: u64, sent: u64) -> Verdict {
        if largest < self.round_end {
            return Verdict::GoesOn;
        }
        self.round_end = sent;
        let round = self.current.take().filter(|_| self.samples >= SAMPLES);
        (self.last, self.eight, self.samples) = (round.or(self.last), None, 0);
        let Some(Conservative { baseline, rounds_left }) = &mut self.conservative else {
            return Verdict::GoesOn;
        };
        if *rounds_left == 0 || round.is_some_and(|round| round >= risen(*baseline)) {
            return Verdict::IsOver;
        }
        *rounds_left -= 1;
        Verdict::GoesOn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a round of ten packets with this round-trip time in milliseconds.
    fn round(hystart: &mut HyStart, number: u64, rtt: u64) -> Verdict {
        for _ in 0..10 {
            hystart.on_sample(Duration::from_millis(rtt));
        }
        hystart.on_acknowledged(10 * number, 10 * number + 10)
    }

    #[test]
    fn steady_round_trips_continue_slow_start() {
        let mut hystart = HyStart::default();
        assert!((1..50).all(|number| round(&mut hystart, number, 100) == Verdict::GoesOn));
        assert_eq!(hystart.growth(1000), 1000);
    }

    #[test]
    fn risen_round_trips_slow_the_start_and_end_it() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 1, 100);
        round(&mut hystart, 2, 113);
        assert_eq!(hystart.growth(1000), 250);
        let ends = (3..20).position(|number| round(&mut hystart, number, 120) == Verdict::IsOver);
        assert_eq!(ends, Some(4), "the round with rising times counts");
    }

    #[test]
    fn round_trips_that_rise_further_end_the_start_at_once() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 1, 100);
        assert_eq!(round(&mut hystart, 2, 113), Verdict::GoesOn);
        assert_eq!(round(&mut hystart, 3, 128), Verdict::IsOver);
    }

    #[test]
    fn round_trips_that_fall_again_resume_the_start() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 1, 100);
        round(&mut hystart, 2, 113);
        round(&mut hystart, 3, 101);
        assert_eq!(hystart.growth(1000), 1000);
    }

    #[test]
    fn queue_at_the_end_of_a_round_is_seen_in_that_round() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 1, 100);
        (0..8).for_each(|_| hystart.on_sample(Duration::from_millis(100)));
        (0..8).for_each(|_| hystart.on_sample(Duration::from_millis(120)));
        assert_eq!(hystart.growth(1000), 250);
    }

    #[test]
    fn single_long_round_trips_decide_nothing() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 1, 100);
        for _ in 0..10 {
            (0..7).for_each(|_| hystart.on_sample(Duration::from_millis(500)));
            hystart.on_sample(Duration::from_millis(100));
        }
        assert_eq!(hystart.growth(1000), 1000);
    }
}
