use super::delivery::{AGGREGATION_ROUNDS, MAX_FLIGHTS};
use super::*;
use std::collections::VecDeque;

const RTT: Duration = Duration::from_millis(100);
const DATAGRAM: u64 = 1_200;

/// A path with an unlimited queue, kept as full as the window allows. Datagrams are sent when an
/// acknowledgment opens the window.
struct Path {
    now: Instant,
    /// Transmission time of one datagram.
    step: Duration,
    free_at: Instant,
    /// When each datagram was sent, and when it is acknowledged.
    flights: VecDeque<(Instant, Instant)>,
}

impl Path {
    fn new(now: Instant, datagrams: u32) -> Self {
        Self { now, step: RTT / datagrams, free_at: now, flights: VecDeque::new() }
    }

    fn run(&mut self, bbr: &mut Bbr, acknowledgements: usize) {
        for _ in 0..acknowledgements {
            while (self.flights.len() as u64 + 1) * DATAGRAM <= bbr.window() {
                bbr.on_sent(self.now, DATAGRAM, 0);
                self.free_at = self.free_at.max(self.now) + self.step;
                self.flights.push_back((self.now, self.free_at + RTT));
            }
            let (sent, then) = self.flights.pop_front().expect("a window of a datagram at least");
            self.now = then;
            acknowledge(bbr, then, sent, 1, self.flights.len() as u64);
        }
    }
}

/// Returns a controller at the end of startup on a path that holds 1,000 datagrams, and the current
/// time.
fn started() -> (Bbr, Instant) {
    let now = Instant::now();
    let (mut bbr, mut path) = (Bbr::new(10 * DATAGRAM, 1_200, now), Path::new(now, 1_000));
    while matches!(bbr.phase, Phase::Startup { .. }) {
        path.run(&mut bbr, 1);
    }
    (bbr, path.now)
}

fn acknowledge(bbr: &mut Bbr, now: Instant, sent: Instant, datagrams: u64, left: u64) {
    (0..datagrams).for_each(|_| bbr.delivery.on_packet(sent, DATAGRAM));
    bbr.on_end_acks(now, left * DATAGRAM, false, None);
}

#[test]
fn start_ends_when_a_queue_grows_and_the_rate_does_not() {
    let (bbr, _) = started();
    let bandwidth_delay_product = bbr.bandwidth_delay_product() / (1_000.0 * DATAGRAM as f64);
    assert!(
        (0.95..1.02).contains(&bandwidth_delay_product)
            && bbr.window < 2.2 * bbr.bandwidth_delay_product(),
        "{bandwidth_delay_product}, {}",
        bbr.window / bbr.bandwidth_delay_product()
    );
}

#[test]
fn queue_is_left_after_the_start_and_found_by_probes_only() {
    let now = Instant::now();
    let (mut bbr, mut path) = (Bbr::new(10 * DATAGRAM, 1_200, now), Path::new(now, 1_000));
    let (mut most, mut phases) = (0, [false; 2]);
    path.run(&mut bbr, 20_000);
    for _ in 0..50_000 {
        path.run(&mut bbr, 1);
        match bbr.phase {
            Phase::Cruise { .. } => {
                phases[0] = true;
                most = most.max(path.flights.len());
            }
            Phase::Up { .. } => phases[1] = true,
            _ => {}
        }
    }
    assert_eq!(phases, [true; 2]);
    // A cruise begins with what a probe has left in flight; the pacer's bursts are 20 of these.
    assert!((1_000..1_060).contains(&most), "{most} datagrams");
}

/// Packets leave at a steady rate, and ten acknowledgments at a time arrive almost at once.
#[test]
fn groups_of_acknowledgements_do_not_raise_the_rate() {
    let (began, step) = (Instant::now(), Duration::from_millis(1));
    let mut delivery = Delivery::new(began);
    let mut highest = 0.0_f64;
    for number in 0..1_000_u32 {
        let now = began + number * step;
        delivery.on_sent(now, DATAGRAM, RTT);
        if number >= 100 && number.is_multiple_of(10) {
            (0..10).for_each(|back| {
                delivery.on_packet(began + (number - 100).saturating_sub(back) * step, DATAGRAM);
            });
            let sample = delivery.on_acknowledged(now, 100 * DATAGRAM, false, RTT).unwrap();
            highest = highest.max(sample.rate.unwrap_or_default());
        }
    }
    let sent = DATAGRAM as f64 / step.as_secs_f64();
    assert!((0.95..1.05).contains(&(highest / sent)), "{}", highest / sent);
}

#[test]
fn held_back_acknowledgements_widen_the_window() {
    let mut aggregation = Aggregation::new(Instant::now());
    let (began, rate) = (Instant::now(), 1_000_000.0);
    for number in 1..100_u32 {
        // The bytes of 20 ms, at once.
        aggregation.on_acknowledged(began + number * Duration::from_millis(20), 20_000, rate);
    }
    assert!((20_000.0..30_000.0).contains(&aggregation.bytes()), "{}", aggregation.bytes());
    (0..2 * AGGREGATION_ROUNDS).for_each(|_| aggregation.on_round());
    assert!(aggregation.bytes() < 1.0);
}

#[test]
fn flights_remembered_are_bounded() {
    let began = Instant::now();
    let mut delivery = Delivery::new(began);
    let nanosecond = Duration::from_nanos(1);
    // The newest packet is never acknowledged, and an acknowledgment arrives before each packet
    // sent.
    for number in 1..10_000_u32 {
        delivery.on_sent(began + number * nanosecond, DATAGRAM, Duration::ZERO);
        delivery.on_packet(began + nanosecond, DATAGRAM);
        delivery.on_acknowledged(began + number * nanosecond, 1 << 30, false, Duration::ZERO);
    }
    assert_eq!(delivery.flights.len(), MAX_FLIGHTS);
}

#[test]
fn little_loss_changes_nothing() {
    let (mut bbr, now) = started();
    bbr.round.in_flight = 1_000 * DATAGRAM;
    let window = bbr.window();
    bbr.on_congestion_event(now, now, false, 20 * DATAGRAM);
    assert_eq!((bbr.window(), bbr.long, bbr.short), (window, f64::INFINITY, f64::INFINITY));
}

#[test]
fn much_loss_in_a_probe_bounds_the_window_until_a_later_one() {
    let (mut bbr, now) = started();
    bbr.phase = Phase::Up { rate: bbr.rate(), rounds: 1 };
    (bbr.window, bbr.round.in_flight) = (1_200_000.0, 1_100_000);
    bbr.on_congestion_event(now, now, false, 30 * DATAGRAM);
    assert!(matches!(bbr.phase, Phase::Drain));
    assert!((bbr.long - 1_100_000.0).abs() < 1.0, "{}", bbr.long);
    bbr.phase = Phase::Cruise { until: now + RTT };
    assert!(bbr.wanted() <= HEADROOM * bbr.long);
    // Further losses of the same flight belong to that bound.
    let (long, short) = (bbr.long, bbr.short);
    bbr.on_congestion_event(now + RTT / 2, now, false, 300 * DATAGRAM);
    assert_eq!((bbr.long, bbr.short), (long, short));
}

#[test]
fn much_loss_between_probes_bounds_the_window_until_the_next() {
    let (mut bbr, now) = started();
    bbr.phase = Phase::Cruise { until: now + RTT };
    bbr.begin_round();
    (bbr.window, bbr.latest) = (1_200_000.0, 6_000_000.0);
    bbr.on_congestion_event(now, now, false, 30 * DATAGRAM);
    assert_eq!(bbr.window(), 840_000);
    let later = now + 2 * RTT;
    bbr.on_sent(later, DATAGRAM, 0);
    acknowledge(&mut bbr, later + RTT, later, 1, 0);
    assert!(matches!(bbr.phase, Phase::Refill) && bbr.short.is_infinite(), "{:?}", bbr.phase);
}

#[test]
fn ecn_mark_counts_as_congestion() {
    let (mut bbr, now) = started();
    bbr.phase = Phase::Cruise { until: now + RTT };
    (bbr.window, bbr.latest) = (1_200_000.0, 6_000_000.0);
    bbr.on_congestion_event(now, now, false, 0);
    assert_eq!(bbr.window(), 840_000);
}

#[test]
fn least_round_trip_is_looked_for_again_after_ten_seconds() {
    let (mut bbr, now) = started();
    bbr.phase = Phase::Cruise { until: now + 60 * RTT * 10 };
    let (least, rtt) = (bbr.min_rtt.unwrap(), 2 * RTT);
    let mut sent = now;
    let mut lowest = f64::INFINITY;
    // The path has become longer.
    for _ in 0..80 {
        bbr.on_sent(sent, 100 * DATAGRAM, 0);
        acknowledge(&mut bbr, sent + rtt, sent, 100, 100);
        if matches!(bbr.phase, Phase::ProbeRtt { .. }) {
            lowest = lowest.min(bbr.window / bbr.bandwidth_delay_product());
        }
        sent += rtt;
    }
    assert!(lowest <= PROBE_RTT_GAIN, "{lowest}");
    assert!(bbr.min_rtt.unwrap() >= rtt && least < rtt, "{:?}", bbr.min_rtt);
    assert!(!matches!(bbr.phase, Phase::ProbeRtt { .. }));
}

//= RFC 9002 section 7.6.2
//# When persistent congestion is declared, the sender's congestion window MUST be reduced to the minimum congestion window
#[test]
fn persistent_congestion_starts_over() {
    let (mut bbr, now) = started();
    bbr.on_congestion_event(now, now, true, 100 * DATAGRAM);
    assert_eq!(bbr.window(), 2 * DATAGRAM);
    assert!(matches!(bbr.phase, Phase::Startup { .. }));
    Path::new(now + RTT, 1_000).run(&mut bbr, 20);
    assert!(bbr.window() > 10 * DATAGRAM, "{}", bbr.window());
}
