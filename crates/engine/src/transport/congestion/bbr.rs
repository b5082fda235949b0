//! BBR (draft-ietf-ccwg-bbr), with what the path carries expressed as a window.

mod delivery;

use std::any::Any;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerMetrics};

use self::delivery::{Aggregation, Delivery, Sample};
use super::hystart::risen;

/// In flight, of what the path holds.
const STARTUP_GAIN: f64 = 2.0;
const UP_GAIN: f64 = 1.25;
const DRAIN_GAIN: f64 = 0.9;
const PROBE_RTT_GAIN: f64 = 0.5;
const MOST_GAIN: f64 = 2.0;
/// Draining is over when so little is in flight.
const DRAINED: f64 = 0.95;

/// A start has filled the path when the rate has not grown by so much in so many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Or when every round trip of so much of what the path holds was longer by so much than the least, so that a queue lasted all the time,
/// and that came no faster than the rate found.
const FULL_QUEUED: f64 = 0.5;
const FULL_RTT: f64 = 1.25;
const FULL_QUEUED_GROWTH: f64 = 1.05;
/// A probe goes on while the rate grows by so much in a round.
const UP_GROWTH: f64 = 1.1;

/// Loss in a round that is too much: a part of what was in flight, and datagrams beside (a few lost of a few say nothing about the path).
const LOSS_PART: f64 = 0.02;
const LOSS_DATAGRAMS: f64 = 3.0;
const BETA: f64 = 0.7;
/// A bound set between probes is raised in each round by so much of what the path holds.
const SHORT_GROWTH: f64 = 1.0 / 32.0;
/// Of what the path took without much loss, so much is used between probes. The rest is for others.
const HEADROOM: f64 = 0.85;

/// The least round trip time is looked for again when it was not seen for so long; one longer by a 32nd is no other.
const LEAST_RTT_LASTS: Duration = Duration::from_secs(10);
const LEAST_RTT_TOLERANCE: u32 = 32;
const PROBE_RTT: Duration = Duration::from_millis(200);
/// Between probes for bandwidth, and up to a second more, so that connections do not probe at the same time.
const CRUISE: Duration = Duration::from_secs(2);

/// The library's pacer lets datagrams out in bursts of so long, or of so many.
const BURST_SECONDS: f64 = 0.002;
const BURST_DATAGRAMS: f64 = 10.0;
const LEAST_DATAGRAMS: f64 = 4.0;
/// RFC 9002, section 7.2.
const CONGESTED_DATAGRAMS: f64 = 2.0;

/// Sends as fast as the path delivers, with no more in flight than it holds.
///
/// BBR wants to be paced: each phase sends at a gain times the bandwidth found, and the window is only a bound. The library's pacer is not
/// ours; it lets out 1.25 windows in a round trip, whatever the controller. So the window is what makes the rate: a window of `gain *
/// bandwidth * round trip` that is kept in flight is `gain * bandwidth`, clocked by acknowledgements. To that comes what acknowledgements
/// in groups and the pacer's bursts hold back ([`Bbr::slack`]).
///
/// | phase | window, of what the path holds | until |
/// |---|---|---|
/// | startup | 2 | the rate does not grow any more, or too much is lost |
/// | drain | 0.9 | 0.95 are in flight |
/// | settle | 1 | a packet sent then is acknowledged: its round trip has no queue of ours in it |
/// | cruise | 1, by that round trip | 2 to 3 s have passed |
/// | refill | 1, without the bounds that loss has set in the meantime | a round trip has passed |
/// | up | 1.25 | a round without growth, but the first; or too much is lost |
/// | probe RTT | 0.5 | 200 ms and a round trip have passed |
///
/// What the path holds is bandwidth (the most of this and the last cycle of probes) times a round trip time. That is the least one while a
/// start or a drain goes on. Between, it is the least since the last drain: where others keep a queue, a window for an empty one would be a
/// rate that falls from cycle to cycle. It is never more than twice what an empty path holds.
///
/// A loss is none of congestion, but more than 2 % of a round are. In a probe, what was in flight then bounds the window from there on
/// (`long`). Otherwise the window falls to seven tenths, or to what an empty path holds at the rate at which it delivers now, and comes
/// back by a 32nd in each round, or with the next probe (`short`).
///
/// What the interface of the library does not allow beside pacing: to know packets by more than the time at which they were sent, and to
/// take a loss back.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    initial: u64,
    datagram: f64,
    window: f64,
    phase: Phase,
    delivery: Delivery,
    aggregation: Aggregation,
    /// The highest rate of this cycle, and of the last; bytes a second.
    rates: [f64; 2],
    /// The latest one, of the application if there was not enough to send.
    latest: f64,
    /// The least round trip time, and when something near it was last seen.
    least_rtt: Option<Duration>,
    least_rtt_at: Instant,
    /// The least among packets sent since the last drain.
    drained_at: Option<Instant>,
    drained_rtt: Option<Duration>,
    round: Round,
    long: f64,
    short: f64,
    /// What was sent until then and is lost belongs to a bound that was set.
    bounded_at: Option<Instant>,
    /// Too little is in flight for the window to grow, as [`super::Sender`] judges it.
    is_underused: bool,
}

/// A round ends when something is acknowledged that was sent after it began.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Delivered when it began, in it so far is the rest.
    began: u64,
    /// Delivered in the one before.
    delivered: u64,
    lost: u64,
    /// In flight when the newest packet acknowledged was sent.
    in_flight: u64,
    /// The window when it began, and what a start may add to it.
    window: f64,
    growth: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The rate that has grown last, and rounds since then; and since when every round trip has found a queue.
    Startup {
        rate: f64,
        rounds: u32,
        queued: Option<Queued>,
    },
    Drain,
    Settle,
    Cruise {
        until: Instant,
    },
    Refill,
    /// The rate that has grown last, and rounds of the probe.
    Up {
        rate: f64,
        rounds: u32,
    },
    /// The least round trip since this began; when it ends, known once little is in flight; and the window before.
    ProbeRtt {
        least: Option<Duration>,
        until: Option<Instant>,
        window: f64,
        is_started: bool,
    },
}

/// A row of round trips that are longer than the least: what was delivered when it began, and when that was.
#[derive(Clone, Copy, Debug)]
struct Queued {
    delivered: u64,
    began: Instant,
}

impl Bbr {
    pub(super) fn new(initial: u64, datagram: u16, now: Instant) -> Self {
        Self {
            initial,
            datagram: datagram.into(),
            window: initial as f64,
            phase: Phase::Startup { rate: 0.0, rounds: 0, queued: None },
            delivery: Delivery::new(now),
            aggregation: Aggregation::new(now),
            rates: [0.0; 2],
            latest: 0.0,
            least_rtt: None,
            least_rtt_at: now,
            drained_at: None,
            drained_rtt: None,
            round: Round::default(),
            long: f64::INFINITY,
            short: f64::INFINITY,
            bounded_at: None,
            is_underused: false,
        }
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Startup { .. })
    }

    fn rate(&self) -> f64 {
        self.rates[0].max(self.rates[1])
    }

    /// What the path holds without a queue.
    fn held(&self) -> f64 {
        self.rate() * self.least_rtt.unwrap_or_default().as_secs_f64()
    }

    /// The same with the queue that others keep.
    fn held_with_others(&self) -> f64 {
        let rtt = self.drained_rtt.or(self.least_rtt).unwrap_or_default();
        (self.rate() * rtt.as_secs_f64()).min(MOST_GAIN * self.held())
    }

    /// What is in flight beyond what the path holds, because acknowledgements come in groups and the pacer sends in bursts.
    fn slack(&self) -> f64 {
        let held = self.held();
        let burst = (self.rate() * BURST_SECONDS).max((BURST_DATAGRAMS * self.datagram).min(held / 4.0));
        self.aggregation.bytes().min(held) + burst
    }

    fn wanted(&self) -> f64 {
        let bound = self.long.min(self.short);
        let wanted = match self.phase {
            Phase::Startup { .. } => (STARTUP_GAIN * self.held() + self.slack()).min(bound),
            Phase::Drain => (DRAIN_GAIN * self.held()).min(bound),
            Phase::Settle => (self.held() + self.slack()).min(self.cruising_bound()),
            Phase::Cruise { .. } => (self.held_with_others() + self.slack()).min(self.cruising_bound()),
            Phase::Refill => (self.held_with_others() + self.slack()).min(bound),
            Phase::Up { .. } => (UP_GAIN * self.held_with_others() + self.slack()).min(bound),
            Phase::ProbeRtt { .. } => (PROBE_RTT_GAIN * self.held()).min(bound),
        };
        wanted.max(LEAST_DATAGRAMS * self.datagram)
    }

    fn cruising_bound(&self) -> f64 {
        (HEADROOM * self.long).min(self.short)
    }

    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        self.round.in_flight = sample.in_flight;
        self.watch_rtt(now, sample);
        if let Some(rate) = sample.rate {
            self.latest = rate;
            if !sample.limited || rate > self.rate() {
                self.rates[0] = self.rates[0].max(rate);
            }
        }
        let is_new_round = sample.delivered_before >= self.round.began;
        let held = self.held();
        if !self.is_starting() {
            self.aggregation.on_acknowledged(now, sample.acknowledged, self.rate());
        }
        self.change_phase(now, sample, is_new_round);
        if is_new_round {
            self.aggregation.on_round();
            self.short += SHORT_GROWTH * held;
            self.begin_round();
        }
        self.change_window(sample);
    }

    fn begin_round(&mut self) {
        let delivered = self.delivery.delivered();
        let in_flight = self.round.in_flight;
        self.round =
            Round { began: delivered, delivered: delivered - self.round.began, in_flight, window: self.window, ..Round::default() };
    }

    fn watch_rtt(&mut self, now: Instant, sample: &Sample) {
        let least = self.least_rtt.unwrap_or(Duration::MAX);
        if sample.rtt <= least.saturating_add(least / LEAST_RTT_TOLERANCE) {
            self.least_rtt_at = now;
        }
        self.least_rtt = Some(least.min(sample.rtt));
        if self.drained_at.is_some_and(|drained_at| sample.sent >= drained_at) {
            self.drained_rtt = Some(self.drained_rtt.map_or(sample.rtt, |drained| drained.min(sample.rtt)));
        }
        if let Phase::ProbeRtt { least, .. } = &mut self.phase {
            *least = Some(least.map_or(sample.rtt, |least| least.min(sample.rtt)));
        } else if now.saturating_duration_since(self.least_rtt_at) > LEAST_RTT_LASTS {
            if sample.limited {
                // So little is in flight that there is no queue of ours.
                (self.least_rtt, self.least_rtt_at) = (Some(sample.rtt), now);
            } else if !self.is_starting() {
                self.phase = Phase::ProbeRtt { least: None, until: None, window: self.window, is_started: false };
            }
        }
    }

    fn change_phase(&mut self, now: Instant, sample: &Sample, is_new_round: bool) {
        let rate_now = self.rate();
        let in_flight = self.delivery.in_flight() as f64;
        let held = self.held();
        match &mut self.phase {
            Phase::Startup { .. } => self.start(now, sample, is_new_round),
            Phase::Drain if in_flight <= DRAINED * held || in_flight <= LEAST_DATAGRAMS * self.datagram => self.settle(now),
            Phase::Settle if self.drained_rtt.is_some() => self.cruise(now),
            Phase::Cruise { until } if now >= *until => {
                self.phase = Phase::Refill;
                self.short = f64::INFINITY;
                self.begin_round();
            }
            Phase::Refill if is_new_round => self.phase = Phase::Up { rate: rate_now, rounds: 0 },
            Phase::Up { rate, rounds } if is_new_round => {
                *rounds += 1;
                let has_grown = rate_now >= UP_GROWTH * *rate;
                // What was sent with the larger window is acknowledged in the second round.
                if has_grown || *rounds < 2 {
                    *rate = rate.max(rate_now);
                } else if sample.limited || self.window < self.long {
                    self.drain();
                }
            }
            Phase::ProbeRtt { least, until, window, is_started } => match *until {
                None if in_flight <= PROBE_RTT_GAIN * held || in_flight <= LEAST_DATAGRAMS * self.datagram => {
                    *until = Some(now + PROBE_RTT);
                    self.begin_round();
                }
                Some(until) => {
                    *is_started |= is_new_round;
                    if now >= until && *is_started {
                        self.least_rtt = least.or(self.least_rtt);
                        self.least_rtt_at = now;
                        self.window = *window;
                        self.settle(now);
                    }
                }
                None => {}
            },
            _ => {}
        }
    }

    /// Goes on with a start, unless it has filled the path.
    fn start(&mut self, now: Instant, sample: &Sample, is_new_round: bool) {
        let (delivered, held, rate_now) = (self.delivery.delivered(), self.held(), self.rate());
        let Phase::Startup { rate, rounds, queued } = &mut self.phase else { return };
        let mut is_full = false;
        if self.least_rtt.is_some_and(|least| sample.rtt >= risen(least).max(least.mul_f64(FULL_RTT))) {
            let row = queued.take().unwrap_or(Queued { delivered, began: now });
            let came = (delivered - row.delivered) as f64;
            let is_long = came >= FULL_QUEUED * held;
            // While a queue lasts, the path delivers as fast as it can.
            is_full = is_long && came < FULL_QUEUED_GROWTH * rate_now * now.saturating_duration_since(row.began).as_secs_f64();
            *queued = (!is_long).then_some(row);
        } else {
            *queued = None;
        }
        if is_new_round && !sample.limited {
            *rounds += 1;
            if rate_now >= FULL_GROWTH * *rate {
                (*rate, *rounds) = (rate_now, 0);
            }
            is_full |= *rounds >= FULL_ROUNDS;
        }
        if is_full {
            self.drain();
        }
    }

    fn drain(&mut self) {
        self.phase = Phase::Drain;
    }

    fn settle(&mut self, now: Instant) {
        (self.drained_at, self.drained_rtt) = (Some(now), None);
        self.phase = Phase::Settle;
    }

    fn cruise(&mut self, now: Instant) {
        if self.rates[0] > 0.0 {
            self.rates = [0.0, self.rates[0]];
        }
        // Two connections have seldom delivered the same.
        let mixed = self.delivery.delivered().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        self.phase = Phase::Cruise { until: now + CRUISE + Duration::from_millis(mixed) };
    }

    fn change_window(&mut self, sample: &Sample) {
        let limited = self.is_underused;
        if let Phase::Up { rounds, .. } = self.phase
            && !limited
            && self.window >= self.long
        {
            // By one datagram in the first round of a probe, then by two, then by four.
            let growth = f64::from(1_u32 << rounds.min(20)) * self.datagram;
            self.long += (growth * sample.acknowledged as f64 / self.window).min(sample.acknowledged as f64);
        }
        let wanted = self.wanted();
        if self.is_starting() {
            // What is sent now finds the queue of a round trip ago doubled.
            let is_queued = self.least_rtt.is_some_and(|least| sample.rtt >= risen(least));
            if !limited && !is_queued {
                self.round.growth += sample.acknowledged as f64;
            }
            // The rate is known at the end of a round only: what it does not allow before is allowed then.
            self.window = (self.round.window + self.round.growth).min(wanted).max(self.window);
        } else {
            let grown = if limited { self.window } else { self.window + sample.acknowledged as f64 };
            self.window = grown.min(wanted);
        }
    }

    /// More was lost than by chance.
    fn bound(&mut self, now: Instant) {
        self.bounded_at = Some(now);
        self.round.lost = 0;
        match self.phase {
            Phase::Startup { .. } => {
                self.long = self.held().max(self.round.delivered as f64);
                self.drain();
            }
            Phase::Refill | Phase::Up { .. } => {
                self.long = (self.round.in_flight as f64).max(BETA * self.held().min(self.window));
                self.drain();
            }
            _ => self.short = (BETA * self.window).max(self.latest * self.least_rtt.unwrap_or_default().as_secs_f64()),
        }
        self.window = self.window.min(self.wanted());
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.delivery.on_sent(now, bytes, self.least_rtt.unwrap_or_default());
    }

    fn on_ack(&mut self, _now: Instant, sent: Instant, bytes: u64, app_limited: bool, _rtt: &RttEstimator) {
        self.is_underused = app_limited;
        self.delivery.on_packet(sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _largest_packet_num_acked: Option<u64>) {
        if let Some(sample) = self.delivery.on_acknowledged(now, in_flight, app_limited, self.least_rtt.unwrap_or_default()) {
            self.on_sample(now, &sample);
        }
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.delivery.on_lost(lost_bytes);
        //= RFC 9002 section 7.6.2
        //# When persistent congestion is declared, the sender's congestion window MUST be reduced to the minimum congestion window
        if is_persistent_congestion {
            let delivery = self.delivery.clone();
            *self = Self { delivery, window: CONGESTED_DATAGRAMS * self.datagram, ..Self::new(self.initial, self.datagram as u16, now) };
            self.begin_round();
            return;
        }
        if self.bounded_at.is_some_and(|bounded_at| sent <= bounded_at) {
            return;
        }
        self.round.lost += lost_bytes;
        let sent = self.round.in_flight.max(self.delivery.delivered() - self.round.began) as f64;
        let most = LOSS_PART * sent + LOSS_DATAGRAMS * self.datagram;
        // A mark of ECN is no chance.
        if lost_bytes == 0 || self.round.lost as f64 > most {
            self.bound(now);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.datagram = new_mtu.into();
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = Some((8.0 * self.rate()) as u64).filter(|rate| *rate > 0);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.initial
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests;
