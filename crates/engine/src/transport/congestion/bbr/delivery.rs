//! How fast a path delivers, and how unevenly: what BBR knows of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most flights remembered: 12 KiB of a connection. When there are more, the last one goes on, and its samples are of longer intervals.
pub(super) const MOST_FLIGHTS: usize = 192;
/// A round trip is not cut finer than into so many flights.
const FLIGHTS_IN_A_ROUND: u32 = 64;
/// Rounds after which the evenness of acknowledgements is judged anew; what the last so many showed still counts.
pub(super) const AGGREGATION_ROUNDS: u8 = 5;

/// What was sent between two acknowledgements, and how delivery stood when the first of it left.
///
/// The drafts keep this with each packet. It only changes when something is acknowledged, and the library says of an acknowledged packet
/// when it was sent, so here it is kept with the time from which on it held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    began: Instant,
    delivered: u64,
    delivered_at: Instant,
    /// When the packet left that had been acknowledged last.
    acknowledged_sent: Instant,
    /// In flight after the last packet of it.
    outstanding: u64,
    limited: bool,
}

/// What one acknowledgement says of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Of the newest packet acknowledged, as are the next three.
    pub(super) rtt: Duration,
    pub(super) sent: Instant,
    /// In flight when it was sent, and delivered by then.
    pub(super) in_flight: u64,
    pub(super) delivered_before: u64,
    /// Bytes a second; `None` when the interval was too short to tell.
    pub(super) rate: Option<f64>,
    /// There was not enough to send.
    pub(super) limited: bool,
    /// Bytes acknowledged now.
    pub(super) acknowledged: u64,
}

/// Samples of the delivery rate, as in draft-cheng-iccrg-delivery-rate-estimation: over the longer of the times in which a flight was sent
/// and in which it was acknowledged, so that acknowledgements that come in groups do not make a path look faster than it is.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    /// Bytes acknowledged ever, and when they last were.
    delivered: u64,
    delivered_at: Instant,
    acknowledged_sent: Instant,
    in_flight: u64,
    /// Until so much is delivered, samples tell the rate of the application.
    limited_until: Option<u64>,
    pub(super) flights: VecDeque<Flight>,
    /// Something was acknowledged since the last flight began.
    moved: bool,
    /// Of the acknowledgement that is being taken: its newest packet, and bytes.
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

    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, least_rtt: Duration) {
        if self.in_flight == 0 {
            // After a silence the clocks start anew.
            (self.delivered_at, self.acknowledged_sent, self.moved) = (now, now, true);
            self.flights.clear();
        }
        self.in_flight += bytes;
        let is_full = self.flights.len() >= MOST_FLIGHTS;
        let limited = self.limited_until.is_some();
        match self.flights.back_mut() {
            Some(last) if !self.moved || is_full || now < last.began + least_rtt / FLIGHTS_IN_A_ROUND => {
                last.outstanding = self.in_flight;
                last.limited |= limited;
            }
            _ => {
                let Self { delivered, delivered_at, acknowledged_sent, in_flight: outstanding, .. } = *self;
                self.flights.push_back(Flight { began: now, delivered, delivered_at, acknowledged_sent, outstanding, limited });
                self.moved = false;
            }
        }
    }

    /// One packet of an acknowledgement.
    pub(super) fn on_packet(&mut self, sent: Instant, bytes: u64) {
        self.acknowledged += bytes;
        self.newest = self.newest.max(Some(sent));
    }

    /// All packets of an acknowledgement have been told of. `None` if it says nothing that an earlier one has not said.
    pub(super) fn on_acknowledged(&mut self, now: Instant, in_flight: u64, limited: bool, least_rtt: Duration) -> Option<Sample> {
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
        // Older packets are never acknowledged in a way that counts: after this the library takes them for lost.
        while self.flights.get(1).is_some_and(|next| next.began <= sent) {
            self.flights.pop_front();
        }
        let flight = self.flights.front().filter(|flight| flight.began <= sent).copied();
        (self.delivered_at, self.moved) = (now, true);
        self.acknowledged_sent = self.acknowledged_sent.max(sent);
        let flight = flight?;
        let sending = sent.saturating_duration_since(flight.acknowledged_sent);
        let interval = sending.max(now.saturating_duration_since(flight.delivered_at));
        let is_long = !interval.is_zero() && interval >= least_rtt;
        Some(Sample {
            rtt: now.saturating_duration_since(sent),
            sent,
            in_flight: flight.outstanding,
            delivered_before: flight.delivered,
            rate: is_long.then(|| (self.delivered - flight.delivered) as f64 / interval.as_secs_f64()),
            limited: flight.limited,
            acknowledged,
        })
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }
}

/// How much more is acknowledged at once than the rate of the path explains. So much has to be in flight beyond what the path holds, or it
/// runs dry while acknowledgements are held back.
#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    began: Instant,
    /// Bytes acknowledged since then.
    acknowledged: f64,
    /// The most in these rounds, and in those before.
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
