//! Estimates how fast a window may be sent.

use std::time::{Duration, Instant};

/// Acknowledgments further apart than this part of the round trip, or than this time, belong to
/// different flights.
const MIN_GAP: Duration = Duration::from_millis(2);
const GAP_DIVISOR: u32 = 8;
/// A smaller train is not conclusive: a delayed acknowledgment would be a third of it.
const MIN_TRAIN_DATAGRAMS: u64 = 6;
/// Acknowledgments that are read together may have arrived up to this far apart.
const MIN_TRAIN: Duration = Duration::from_millis(1);
/// After this long without acknowledgments, the path may have changed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// The fastest train counts for this many rounds, and up to as many more.
const ROUNDS: u8 = 8;
/// Factor for the rate after a loss: what was sent at the earlier rate did not fit.
const BETA: f64 = 0.7;

/// The rate at which a path has delivered whole trains of packets, estimated from the spacing of
/// their acknowledgments.
///
/// A window spread over the round trip (RFC 9002, section 7.7) delays the end of a short response
/// by up to a round trip. A window sent at once builds a queue at the bottleneck. Packets that
/// leave as fast as the bottleneck forwarded the previous ones do neither. The kernel's TCP
/// achieves the same by sending on acknowledgments, but also sends a burst after each pause.
#[derive(Clone, Debug)]
pub(super) struct Trains {
    began: Instant,
    /// When the packet that began the train was sent.
    sent: Instant,
    latest: Instant,
    /// Bytes acknowledged since the train's first acknowledgment, whose own packets were sent
    /// before the train.
    bytes: u64,
    /// Bytes per second of the fastest train in these rounds, and in the rounds before.
    rates: [f64; 2],
    rounds: u8,
    /// The rate at the end of the last round, and of the one before.
    ended: [f64; 2],
}

/// A rate is steady if it grows by less than this factor per round.
const STEADY: f64 = 1.1;

impl Trains {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            sent: now,
            latest: now,
            bytes: 0,
            rates: [0.0; 2],
            rounds: 0,
            ended: [0.0; 2],
        }
    }

    /// Returns the rate in bytes per second; zero while it is unknown.
    pub(super) fn rate(&self) -> f64 {
        self.rates[0].max(self.rates[1])
    }

    pub(super) fn is_steady(&self) -> bool {
        let [last, before] = self.ended;
        self.rate() <= STEADY * last && last <= STEADY * before
    }

    /// Counts acknowledged bytes. `sent` is when the newest of their packets was sent.
    pub(super) fn on_acknowledged(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        rtt: Duration,
        datagram: u64,
    ) {
        let gap = now.saturating_duration_since(self.latest);
        self.latest = now;
        if gap > MIN_GAP.max(rtt / GAP_DIVISOR) {
            (self.began, self.sent, self.bytes) = (now, sent, 0);
            if gap > FORGOTTEN_AFTER {
                (self.rates, self.ended) = ([0.0; 2], [0.0; 2]);
            }
            return;
        }
        self.bytes += bytes;
        if self.bytes >= MIN_TRAIN_DATAGRAMS * datagram {
            // Delayed acknowledgments arrive together; the time over which the packets were sent is
            // then the longer one.
            let lasted = now
                .saturating_duration_since(self.began)
                .max(sent.saturating_duration_since(self.sent))
                .max(MIN_TRAIN);
            self.rates[0] = self.rates[0].max(self.bytes as f64 / lasted.as_secs_f64());
        }
    }

    pub(super) fn on_round(&mut self) {
        self.ended = [self.rate(), self.ended[0]];
        self.rounds += 1;
        if self.rounds == ROUNDS {
            self.rounds = 0;
            self.rates = [0.0, self.rates[0]];
        }
    }

    pub(super) fn on_loss(&mut self) {
        self.rates = self.rates.map(|rate| BETA * rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const DATAGRAM: u64 = 1_200;

    /// Acknowledges this many pairs of datagrams, one per step.
    fn acknowledge(trains: &mut Trains, now: &mut Instant, pairs: u32, step: Duration) {
        // All at once.
        let sent = *now;
        for _ in 0..pairs {
            *now += step;
            trains.on_acknowledged(*now, sent, 2 * DATAGRAM, RTT, DATAGRAM);
        }
    }

    #[test]
    fn rate_is_that_of_the_fastest_train_and_not_of_the_gaps() {
        let mut now = Instant::now();
        let mut trains = Trains::new(now);
        assert!(trains.rate() <= 0.0);
        for milliseconds in [1, 2, 1] {
            now += RTT;
            acknowledge(&mut trains, &mut now, 10, Duration::from_millis(milliseconds));
        }
        // Two datagrams a millisecond.
        assert!((2.3e6..2.5e6).contains(&trains.rate()), "{}", trains.rate());
    }

    #[test]
    fn acknowledgements_read_at_one_time_count_as_a_millisecond_of_them() {
        let mut now = Instant::now();
        let mut trains = Trains::new(now);
        acknowledge(&mut trains, &mut now, 10, Duration::ZERO);
        assert!((20.0e6..25.0e6).contains(&trains.rate()), "{}", trains.rate());
    }

    #[test]
    fn rate_that_grows_from_round_to_round_is_not_steady() {
        let mut now = Instant::now();
        let mut trains = Trains::new(now);
        for step in [Duration::from_millis(4), Duration::from_millis(3), Duration::from_millis(2)] {
            now += RTT;
            acknowledge(&mut trains, &mut now, 10, step);
            assert!(!trains.is_steady());
            trains.on_round();
        }
        trains.on_round();
        assert!(trains.is_steady());
    }

    #[test]
    fn acknowledgements_that_were_held_back_are_no_faster_train_than_their_packets() {
        let began = Instant::now();
        let mut trains = Trains::new(began);
        // Two datagrams leave each two milliseconds, and all are acknowledged at once.
        for pair in 0..10 {
            trains.on_acknowledged(
                began + RTT,
                began + Duration::from_millis(2 * pair),
                2 * DATAGRAM,
                RTT,
                DATAGRAM,
            );
        }
        assert!((1.1e6..1.3e6).contains(&trains.rate()), "{}", trains.rate());
    }

    #[test]
    fn rate_is_forgotten_after_a_long_silence() {
        let mut now = Instant::now();
        let mut trains = Trains::new(now);
        acknowledge(&mut trains, &mut now, 10, Duration::from_millis(1));
        trains.on_acknowledged(now + Duration::from_secs(31), now, DATAGRAM, RTT, DATAGRAM);
        assert!(trains.rate() <= 0.0);
    }

    #[test]
    fn too_few_datagrams_form_no_train() {
        let mut now = Instant::now();
        let mut trains = Trains::new(now);
        for _ in 0..20 {
            now += RTT;
            acknowledge(&mut trains, &mut now, 2, Duration::from_micros(10));
        }
        assert!(trains.rate() <= 0.0, "{}", trains.rate());
    }

    #[test]
    fn rate_falls_with_losses_and_is_forgotten_in_sixteen_rounds() {
        let mut now = Instant::now();
        let mut trains = Trains::new(now);
        acknowledge(&mut trains, &mut now, 10, Duration::from_millis(1));
        let rate = trains.rate();
        trains.on_loss();
        assert!((0.69..0.71).contains(&(trains.rate() / rate)));
        (0..ROUNDS).for_each(|_| trains.on_round());
        assert!(trains.rate() > 0.0);
        (0..ROUNDS).for_each(|_| trains.on_round());
        assert!(trains.rate() <= 0.0);
    }
}
