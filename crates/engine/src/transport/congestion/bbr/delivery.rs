//! Measures the delivery rate of a path and the aggregation of its acknowledgments, for BBR.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum number of flights remembered: 12 KiB per connection. Beyond this the last flight is
/// extended, and its samples cover longer intervals.
pub(super) const MAX_FLIGHTS: usize = 192;
/// Maximum number of flights per round trip.
const FLIGHTS_IN_A_ROUND: u32 = 64;
/// Rounds after which the aggregation of acknowledgments is estimated again; the maximum of the
/// previous period still counts.
pub(super) const AGGREGATION_ROUNDS: u8 = 5;

/// Packets sent between two acknowledgments, with the delivery state when the first of them left.
///
/// The drafts store this state with each packet. It changes only with acknowledgments, and
/// quinn-proto reports when an acknowledged packet was sent, so here it is stored once, with the
/// time from which it applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    began: Instant,
    delivered: u64,
    delivered_at: Instant,
    /// When the packet last acknowledged before this flight was sent.
    acknowledged_sent: Instant,
    /// Bytes in flight after the last packet of this flight.
    outstanding: u64,
    limited: bool,
}

/// Measurements from one acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Of the newest acknowledged packet, like the next three fields.
    pub(super) rtt: Duration,
    pub(super) sent: Instant,
    /// Bytes in flight when the packet was sent, and bytes delivered by then.
    pub(super) in_flight: u64,
    pub(super) delivered_before: u64,
    /// Bytes per second; `None` if the interval was too short.
    pub(super) rate: Option<f64>,
    /// Whether there was not enough to send.
    pub(super) limited: bool,
    /// Bytes acknowledged now.
    pub(super) acknowledged: u64,
}

/// Samples of the delivery rate, as in draft-cheng-iccrg-delivery-rate-estimation: over the longer
/// of the times in which a flight was sent and acknowledged, so that grouped acknowledgments do not
/// make a path appear faster than it is.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    /// Total bytes acknowledged, and when the last of them were.
    delivered: u64,
    delivered_at: Instant,
    acknowledged_sent: Instant,
    in_flight: u64,
    /// Until this many bytes are delivered, samples measure the application's rate.
    limited_until: Option<u64>,
    pub(super) flights: VecDeque<Flight>,
    /// Whether data was acknowledged since the last flight began.
    moved: bool,
    /// The current acknowledgment's newest packet, and its bytes.
    newest: Option<Instant>,
    acknowledged: u64,
}

impl Delivery {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            delivered: 0,
            delivered_at: now,
            acknowledged_sent: now,
            in_flight: 0,
            limited_until: None,
            flights: VecDeque::new(),
            moved: true,
            newest: None,
            acknowledged: 0,
        }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, min_rtt: Duration) {
        if self.in_flight == 0 {
            // After an idle period the clocks restart.
            (self.delivered_at, self.acknowledged_sent, self.moved) = (now, now, true);
            self.flights.clear();
        }
        self.in_flight += bytes;
        let is_full = self.flights.len() >= MAX_FLIGHTS;
        let limited = self.limited_until.is_some();
        match self.flights.back_mut() {
            Some(last)
                if !self.moved || is_full || now < last.began + min_rtt / FLIGHTS_IN_A_ROUND =>
            {
                last.outstanding = self.in_flight;
                last.limited |= limited;
            }
            _ => {
                let Self {
                    delivered, delivered_at, acknowledged_sent, in_flight: outstanding, ..
                } = *self;
                self.flights.push_back(Flight {
                    began: now,
                    delivered,
                    delivered_at,
                    acknowledged_sent,
                    outstanding,
                    limited,
                });
                self.moved = false;
            }
        }
    }

    /// Counts one packet of an acknowledgment.
    pub(super) fn on_packet(&mut self, sent: Instant, bytes: u64) {
        self.acknowledged += bytes;
        self.newest = self.newest.max(Some(sent));
    }

    /// Called after all packets of an acknowledgment. Returns `None` if an earlier one has already
    /// covered it.
    pub(super) fn on_acknowledged(
        &mut self,
        now: Instant,
        in_flight: u64,
        limited: bool,
        min_rtt: Duration,
    ) -> Option<Sample> {
        self.in_flight = in_flight;
        let acknowledged = std::mem::take(&mut self.acknowledged);
        self.delivered += acknowledged;
        if self.limited_until.is_some_and(|until| self.delivered > until) {
            self.limited_until = None;
        }
        if limited {
            self.limited_until = Some(self.delivered + in_flight);
        }
        let sent = self.newest.take()?;
        // Older packets no longer yield useful samples: quinn-proto now considers them lost.
        while self.flights.get(1).is_some_and(|next| next.began <= sent) {
            self.flights.pop_front();
        }
        let flight = self.flights.front().filter(|flight| flight.began <= sent).copied();
        (self.delivered_at, self.moved) = (now, true);
        self.acknowledged_sent = self.acknowledged_sent.max(sent);
        let flight = flight?;
        let sending = sent.saturating_duration_since(flight.acknowledged_sent);
        let interval = sending.max(now.saturating_duration_since(flight.delivered_at));
        let is_long = !interval.is_zero() && interval >= min_rtt;
        Some(Sample {
            rtt: now.saturating_duration_since(sent),
            sent,
            in_flight: flight.outstanding,
            delivered_before: flight.delivered,
            rate: is_long
                .then(|| (self.delivered - flight.delivered) as f64 / interval.as_secs_f64()),
            limited: flight.limited,
            acknowledged,
        })
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }
}

/// Measures how much more is acknowledged at once than the path's rate explains. That much must be
/// in flight beyond the BDP, or the path runs empty while acknowledgments are delayed.
#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    began: Instant,
    /// Bytes acknowledged since then.
    acknowledged: f64,
    /// The maximum in these rounds, and in the rounds before.
    most: [f64; 2],
    rounds: u8,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, acknowledged: 0.0, most: [0.0; 2], rounds: 0 }
    }

    pub(super) fn bytes(&self) -> f64 {
        self.most[0].max(self.most[1])
    }

    pub(super) fn on_round(&mut self) {
        self.rounds += 1;
        if self.rounds == AGGREGATION_ROUNDS {
            self.rounds = 0;
            self.most = [0.0, self.most[0]];
        }
    }

    pub(super) fn on_acknowledged(&mut self, now: Instant, bytes: u64, rate: f64) {
        let mut expected = rate * now.saturating_duration_since(self.began).as_secs_f64();
        if self.acknowledged <= expected {
            (self.began, self.acknowledged, expected) = (now, 0.0, 0.0);
        }
        self.acknowledged += bytes as f64;
        self.most[0] = self.most[0].max(self.acknowledged - expected);
    }
}
