//! BBR (draft-ietf-ccwg-bbr), with its rates expressed as windows.

mod delivery;

use std::any::Any;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerMetrics};

use self::delivery::{Aggregation, Delivery, Sample};
use super::hystart::risen;

/// Data in flight as a multiple of the bandwidth-delay product (BDP).
const STARTUP_GAIN: f64 = 2.0;
const UP_GAIN: f64 = 1.25;
const DRAIN_GAIN: f64 = 0.9;
const PROBE_RTT_GAIN: f64 = 0.5;
const MAX_GAIN: f64 = 2.0;
/// Drain ends when this much of the BDP is in flight.
const DRAINED: f64 = 0.95;

/// Startup has filled the path when the rate has not grown by this factor in this many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Startup also ends when the round trips of this part of the BDP were all longer than the minimum
/// by this factor, so that a queue persisted, and it arrived no faster than the known rate.
const FULL_QUEUED: f64 = 0.5;
const FULL_RTT: f64 = 1.25;
const FULL_QUEUED_GROWTH: f64 = 1.05;
/// A probe continues while the rate grows by this factor per round.
const UP_GROWTH: f64 = 1.1;

/// Losses per round that count as congestion: this part of the data in flight, plus this many
/// datagrams (a few lost of a few say nothing about the path).
const LOSS_PART: f64 = 0.02;
const LOSS_DATAGRAMS: f64 = 3.0;
const BETA: f64 = 0.7;
/// The short-term bound is raised in each round by this part of the BDP.
const SHORT_GROWTH: f64 = 1.0 / 32.0;
/// Part of the long-term bound that is used between probes. The rest is left for other flows.
const HEADROOM: f64 = 0.85;

/// The minimum round-trip time is probed again when it was not seen for this long; one that is
/// longer by at most a 32nd counts as the same.
const MIN_RTT_LASTS: Duration = Duration::from_secs(10);
const MIN_RTT_TOLERANCE: u32 = 32;
const PROBE_RTT: Duration = Duration::from_millis(200);
/// Time between bandwidth probes, plus up to a second, so that connections do not probe at the same
/// time.
const CRUISE: Duration = Duration::from_secs(2);

/// Bursts of quinn-proto's pacer last this long, or have this many datagrams.
const BURST_SECONDS: f64 = 0.002;
const BURST_DATAGRAMS: f64 = 10.0;
const MIN_DATAGRAMS: f64 = 4.0;
/// RFC 9002, section 7.2.
const CONGESTED_DATAGRAMS: f64 = 2.0;

/// Sends as fast as the path delivers, with no more data in flight than the path holds.
///
/// BBR is meant to be paced: each phase sends at a gain times the estimated bandwidth, and the
/// window is only a bound. But quinn-proto's pacer is fixed: it releases 1.25 windows per round
/// trip, whatever the controller. So here the window sets the rate: keeping a window of `gain *
/// bandwidth * round trip` in flight sends at `gain * bandwidth`, clocked by acknowledgments. The
/// window also covers what grouped acknowledgments and the pacer's bursts hold back
/// ([`Bbr::slack`]).
///
/// | phase | window in BDP | until |
/// |---|---|---|
/// | startup | 2 | the rate stops growing, or losses are too high |
/// | drain | 0.9 | 0.95 BDP is in flight |
/// | settle | 1 | a packet sent in this phase is acknowledged: its round trip contains no queue of ours |
/// | cruise | 1, by that round trip | 2 to 3 s have passed |
/// | refill | 1, without the short-term bound from losses | a round trip has passed |
/// | up | 1.25 | a round without growth, except the first; or losses are too high |
/// | probe RTT | 0.5 | 200 ms and a round trip have passed |
///
/// The BDP is the bandwidth (the maximum of this probe cycle and the last) times a round-trip time.
/// During startup and drain that is the minimum; otherwise it is the minimum since the last drain:
/// where other flows keep a queue, a window for an empty path would lower the rate from cycle to
/// cycle. It is never more than twice the BDP of an empty path.
///
/// A single loss does not count as congestion, but a loss of more than 2 % of a round does. In a
/// probe, the data then in flight becomes the long-term bound (`long`). Otherwise the window falls
/// to seven tenths, or to the BDP of an empty path at the current delivery rate, and recovers by a
/// 32nd of the BDP per round, or with the next probe (`short`).
///
/// Besides pacing, quinn-proto's interface does not allow identifying packets by more than the time
/// at which they were sent, nor undoing a loss.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    initial: u64,
    datagram: f64,
    window: f64,
    phase: Phase,
    delivery: Delivery,
    aggregation: Aggregation,
    /// The highest rate of this probe cycle and of the last, in bytes per second.
    rates: [f64; 2],
    /// The latest rate; that of the application if there was not enough to send.
    latest: f64,
    /// The minimum round-trip time, and when a value close to it was last seen.
    min_rtt: Option<Duration>,
    least_rtt_at: Instant,
    /// The end of the last drain, and the minimum round trip of packets sent since.
    drained_at: Option<Instant>,
    drained_rtt: Option<Duration>,
    round: Round,
    long: f64,
    short: f64,
    /// Losses of packets sent until then belong to a bound already set.
    bounded_at: Option<Instant>,
    /// Whether too little is in flight for the window to grow, as [`super::PacedController`] judges
    /// it.
    is_underused: bool,
}

/// A round, which ends when a packet sent after its beginning is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Total bytes delivered when the round began.
    began: u64,
    /// Bytes delivered in the previous round.
    delivered: u64,
    lost: u64,
    /// Bytes in flight when the newest acknowledged packet was sent.
    in_flight: u64,
    /// The window when the round began, and how much startup may add to it.
    window: f64,
    growth: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The rate of the last growth, and the rounds since then; and since when every round trip has
    /// contained a queue.
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
    /// The rate of the last growth, and the rounds of the probe.
    Up {
        rate: f64,
        rounds: u32,
    },
    /// The minimum round trip since the phase began; its end, known once little is in flight; and
    /// the window before.
    ProbeRtt {
        least: Option<Duration>,
        until: Option<Instant>,
        window: f64,
        is_started: bool,
    },
}

/// A sequence of round trips longer than the minimum: bytes delivered when it began, and the time.
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
            min_rtt: None,
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

    /// Returns the BDP of an empty path.
    fn bandwidth_delay_product(&self) -> f64 {
        self.rate() * self.min_rtt.unwrap_or_default().as_secs_f64()
    }

    /// Returns the BDP including the queue that other flows keep.
    fn held_with_others(&self) -> f64 {
        let rtt = self.drained_rtt.or(self.min_rtt).unwrap_or_default();
        (self.rate() * rtt.as_secs_f64()).min(MAX_GAIN * self.bandwidth_delay_product())
    }

    /// Returns the bytes in flight beyond the BDP that grouped acknowledgments and the pacer's
    /// bursts require.
    fn slack(&self) -> f64 {
        let bandwidth_delay_product = self.bandwidth_delay_product();
        let burst = (self.rate() * BURST_SECONDS)
            .max((BURST_DATAGRAMS * self.datagram).min(bandwidth_delay_product / 4.0));
        self.aggregation.bytes().min(bandwidth_delay_product) + burst
    }

    fn wanted(&self) -> f64 {
        let bound = self.long.min(self.short);
        let wanted = match self.phase {
            Phase::Startup { .. } => {
                (STARTUP_GAIN * self.bandwidth_delay_product() + self.slack()).min(bound)
            }
            Phase::Drain => (DRAIN_GAIN * self.bandwidth_delay_product()).min(bound),
            Phase::Settle => {
                (self.bandwidth_delay_product() + self.slack()).min(self.cruising_bound())
            }
            Phase::Cruise { .. } => {
                (self.held_with_others() + self.slack()).min(self.cruising_bound())
            }
            Phase::Refill => (self.held_with_others() + self.slack()).min(bound),
            Phase::Up { .. } => (UP_GAIN * self.held_with_others() + self.slack()).min(bound),
            Phase::ProbeRtt { .. } => (PROBE_RTT_GAIN * self.bandwidth_delay_product()).min(bound),
        };
        wanted.max(MIN_DATAGRAMS * self.datagram)
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
        let bandwidth_delay_product = self.bandwidth_delay_product();
        if !self.is_starting() {
            self.aggregation.on_acknowledged(now, sample.acknowledged, self.rate());
        }
        self.change_phase(now, sample, is_new_round);
        if is_new_round {
            self.aggregation.on_round();
            self.short += SHORT_GROWTH * bandwidth_delay_product;
            self.begin_round();
        }
        self.change_window(sample);
    }

    fn begin_round(&mut self) {
        let delivered = self.delivery.delivered();
        let in_flight = self.round.in_flight;
        self.round = Round {
            began: delivered,
            delivered: delivered - self.round.began,
            in_flight,
            window: self.window,
            ..Round::default()
        };
    }

    fn watch_rtt(&mut self, now: Instant, sample: &Sample) {
        let least = self.min_rtt.unwrap_or(Duration::MAX);
        if sample.rtt <= least.saturating_add(least / MIN_RTT_TOLERANCE) {
            self.least_rtt_at = now;
        }
        self.min_rtt = Some(least.min(sample.rtt));
        if self.drained_at.is_some_and(|drained_at| sample.sent >= drained_at) {
            self.drained_rtt =
                Some(self.drained_rtt.map_or(sample.rtt, |drained| drained.min(sample.rtt)));
        }
        if let Phase::ProbeRtt { least, .. } = &mut self.phase {
            *least = Some(least.map_or(sample.rtt, |least| least.min(sample.rtt)));
        } else if now.saturating_duration_since(self.least_rtt_at) > MIN_RTT_LASTS {
            if sample.limited {
                // With so little in flight, there is no queue of ours.
                (self.min_rtt, self.least_rtt_at) = (Some(sample.rtt), now);
            } else if !self.is_starting() {
                self.phase = Phase::ProbeRtt {
                    least: None,
                    until: None,
                    window: self.window,
                    is_started: false,
                };
            }
        }
    }

    fn change_phase(&mut self, now: Instant, sample: &Sample, is_new_round: bool) {
        let rate_now = self.rate();
        let in_flight = self.delivery.in_flight() as f64;
        let bandwidth_delay_product = self.bandwidth_delay_product();
        match &mut self.phase {
            Phase::Startup { .. } => self.start(now, sample, is_new_round),
            Phase::Drain
                if in_flight <= DRAINED * bandwidth_delay_product
                    || in_flight <= MIN_DATAGRAMS * self.datagram =>
            {
                self.settle(now);
            }
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
                // Data sent with the larger window is acknowledged in the second round.
                if has_grown || *rounds < 2 {
                    *rate = rate.max(rate_now);
                } else if sample.limited || self.window < self.long {
                    self.drain();
                }
            }
            Phase::ProbeRtt { least, until, window, is_started } => match *until {
                None if in_flight <= PROBE_RTT_GAIN * bandwidth_delay_product
                    || in_flight <= MIN_DATAGRAMS * self.datagram =>
                {
                    *until = Some(now + PROBE_RTT);
                    self.begin_round();
                }
                Some(until) => {
                    *is_started |= is_new_round;
                    if now >= until && *is_started {
                        self.min_rtt = least.or(self.min_rtt);
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

    /// Continues startup, unless the path is full.
    fn start(&mut self, now: Instant, sample: &Sample, is_new_round: bool) {
        let (delivered, bandwidth_delay_product, rate_now) =
            (self.delivery.delivered(), self.bandwidth_delay_product(), self.rate());
        let Phase::Startup { rate, rounds, queued } = &mut self.phase else { return };
        let mut is_full = false;
        if self.min_rtt.is_some_and(|least| sample.rtt >= risen(least).max(least.mul_f64(FULL_RTT)))
        {
            let row = queued.take().unwrap_or(Queued { delivered, began: now });
            let came = (delivered - row.delivered) as f64;
            let is_long = came >= FULL_QUEUED * bandwidth_delay_product;
            // While there is a queue, the path delivers at its full rate.
            is_full = is_long
                && came
                    < FULL_QUEUED_GROWTH
                        * rate_now
                        * now.saturating_duration_since(row.began).as_secs_f64();
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
        // Pseudorandom: two connections rarely have delivered the same number of bytes.
        let mixed = self.delivery.delivered().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        self.phase = Phase::Cruise { until: now + CRUISE + Duration::from_millis(mixed) };
    }

    fn change_window(&mut self, sample: &Sample) {
        let limited = self.is_underused;
        if let Phase::Up { rounds, .. } = self.phase
            && !limited
            && self.window >= self.long
        {
            // By one datagram in the first round of a probe, then by two, four and so on.
            let growth = f64::from(1_u32 << rounds.min(20)) * self.datagram;
            self.long +=
                (growth * sample.acknowledged as f64 / self.window).min(sample.acknowledged as f64);
        }
        let wanted = self.wanted();
        if self.is_starting() {
            // Data sent now would find the queue of one round trip ago doubled.
            let is_queued = self.min_rtt.is_some_and(|least| sample.rtt >= risen(least));
            if !limited && !is_queued {
                self.round.growth += sample.acknowledged as f64;
            }
            // The rate is updated only at the end of a round; growth that the old rate did not
            // allow is then applied.
            self.window = (self.round.window + self.round.growth).min(wanted).max(self.window);
        } else {
            let grown =
                if limited { self.window } else { self.window + sample.acknowledged as f64 };
            self.window = grown.min(wanted);
        }
    }

    /// Sets a bound after losses above the threshold.
    fn bound(&mut self, now: Instant) {
        self.bounded_at = Some(now);
        self.round.lost = 0;
        match self.phase {
            Phase::Startup { .. } => {
                self.long = self.bandwidth_delay_product().max(self.round.delivered as f64);
                self.drain();
            }
            Phase::Refill | Phase::Up { .. } => {
                self.long = (self.round.in_flight as f64)
                    .max(BETA * self.bandwidth_delay_product().min(self.window));
                self.drain();
            }
            _ => {
                self.short = (BETA * self.window)
                    .max(self.latest * self.min_rtt.unwrap_or_default().as_secs_f64());
            }
        }
        self.window = self.window.min(self.wanted());
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.delivery.on_sent(now, bytes, self.min_rtt.unwrap_or_default());
    }

    fn on_ack(
        &mut self,
        _now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        self.is_underused = app_limited;
        self.delivery.on_packet(sent, bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        if let Some(sample) = self.delivery.on_acknowledged(
            now,
            in_flight,
            app_limited,
            self.min_rtt.unwrap_or_default(),
        ) {
            self.on_sample(now, &sample);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.delivery.on_lost(lost_bytes);
        //= RFC 9002 section 7.6.2
        //# When persistent congestion is declared, the sender's congestion window MUST be reduced to the minimum congestion window
        if is_persistent_congestion {
            let delivery = self.delivery.clone();
            *self = Self {
                delivery,
                window: CONGESTED_DATAGRAMS * self.datagram,
                ..Self::new(self.initial, self.datagram as u16, now)
            };
            self.begin_round();
            return;
        }
        if self.bounded_at.is_some_and(|bounded_at| sent <= bounded_at) {
            return;
        }
        self.round.lost += lost_bytes;
        let sent = self.round.in_flight.max(self.delivery.delivered() - self.round.began) as f64;
        let most = LOSS_PART * sent + LOSS_DATAGRAMS * self.datagram;
        // An ECN mark always counts.
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
