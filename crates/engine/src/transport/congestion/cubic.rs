//! CUBIC (RFC 9438), with HyStart++ (RFC 9406) for its slow start.

use std::any::Any;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerMetrics};

use super::hystart::{CONSERVATIVE_GROWTH_DIVISOR, HyStart, Verdict};

/// RFC 9438, sections 4.6 and 5.
const BETA: f64 = 0.7;
const C: f64 = 0.4;
/// Section 4.3: makes the Reno-friendly window grow as fast as Reno's on average.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Section 4.4: the window grows by at most half per round trip.
const MAX_GROWTH: f64 = 1.5;

/// The CUBIC controller. Windows are in bytes, times in seconds.
///
/// Undoing a reduction for a spurious loss (section 4.9.2) is not possible: quinn-proto does not
/// report acknowledgments of packets that it considers lost.
#[derive(Clone, Debug)]
pub(super) struct Cubic {
    initial: u64,
    datagram: f64,
    window: f64,
    slow_start_threshold: f64,
    hystart: HyStart,
    /// The path's estimated bandwidth-delay product.
    bandwidth_delay_product: f64,
    last_sent: u64,
    /// Losses of packets sent until then belong to a reduction already made.
    reduced_at: Option<Instant>,
    /// The window before the last reduction, lowered if it had not recovered (fast convergence).
    most: f64,
    epoch: Option<Epoch>,
    /// Since when there was too little to send.
    limited_since: Option<Instant>,
}

/// Congestion avoidance since a reduction, or since the end of slow start.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Instant,
    /// Seconds until the window is back at its earlier size.
    k: f64,
    /// The window that Reno would have.
    reno: f64,
    /// The window above which `reno` grows at Reno's own rate.
    prior: f64,
    /// Cached for all packets of one acknowledgment.
    course: Option<Course>,
}

/// A point on the cubic curve.
#[derive(Clone, Copy, Debug)]
struct Course {
    now: Instant,
    rtt: Duration,
    window: f64,
    /// The window one round trip later.
    next: f64,
}

impl Epoch {
    /// Computes the curve (RFC 9438, section 4.2).
    fn course(&self, now: Instant, rtt: Duration, most: f64, datagram: f64) -> Course {
        let since = now.saturating_duration_since(self.began).as_secs_f64();
        let curve = |since: f64| C * (since - self.k).powi(3) * datagram + most;
        Course { now, rtt, window: curve(since), next: curve(since + rtt.as_secs_f64()) }
    }
}

impl Cubic {
    pub(super) fn new(initial: u64, datagram: u16) -> Self {
        Self {
            initial,
            datagram: datagram.into(),
            window: initial as f64,
            slow_start_threshold: f64::INFINITY,
            hystart: HyStart::default(),
            bandwidth_delay_product: f64::INFINITY,
            last_sent: 0,
            reduced_at: None,
            most: 0.0,
            epoch: None,
            limited_since: None,
        }
    }

    fn least(&self) -> f64 {
        2.0 * self.datagram
    }

    pub(super) fn is_starting(&self) -> bool {
        self.window < self.slow_start_threshold
    }

    pub(super) fn on_bandwidth_delay_product(&mut self, bandwidth_delay_product: f64) {
        self.bandwidth_delay_product = bandwidth_delay_product;
    }

    fn start(&mut self, acknowledged: u64) {
        // A window above the bandwidth-delay product builds a queue, which round-trip times reveal
        // one round too late.
        let divisor = if self.window < self.bandwidth_delay_product {
            1
        } else {
            CONSERVATIVE_GROWTH_DIVISOR
        };
        self.window += self.hystart.growth(acknowledged).min(acknowledged / divisor) as f64;
    }

    fn begin_epoch(&mut self, now: Instant) -> Epoch {
        // Without an earlier loss, the window starts at the curve's plateau.
        self.most = self.most.max(self.window);
        let k = ((self.most - self.window) / self.datagram / C).cbrt();
        Epoch { began: now, k, reno: self.window, prior: self.most, course: None }
    }

    fn avoid_congestion(&mut self, now: Instant, acknowledged: f64, rtt: Duration) {
        if self.epoch.is_none() {
            self.epoch = Some(self.begin_epoch(now));
        }
        let Some(epoch) = &mut self.epoch else { return };
        // Section 5.8: time without enough to send does not count, since the path was not probed.
        if let Some(since) = self.limited_since.take() {
            // The curve continues where it stopped.
            epoch.began += now.saturating_duration_since(since.max(epoch.began));
            epoch.course = None;
        }
        let course = match epoch.course {
            Some(course) if course.now == now && course.rtt == rtt => course,
            _ => *epoch.course.insert(epoch.course(now, rtt, self.most, self.datagram)),
        };
        let share = acknowledged / self.window;
        let alpha = if epoch.reno >= epoch.prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * share * self.datagram;
        if course.window < epoch.reno {
            self.window = self.window.max(epoch.reno);
        } else {
            let target = course.next.max(self.window).min(MAX_GROWTH * self.window);
            self.window += (target - self.window) * share;
        }
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, last_packet_number: u64) {
        self.last_sent = last_packet_number;
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        if app_limited {
            self.limited_since.get_or_insert(now);
            return;
        }
        // RFC 9002, section 7.3.2: one reduction until a packet sent with the smaller window is
        // acknowledged.
        if self.reduced_at.is_some_and(|reduced_at| sent <= reduced_at) {
            return;
        }
        if self.is_starting() {
            self.limited_since = None;
            self.hystart.on_sample(now.saturating_duration_since(sent));
            self.start(bytes);
        } else {
            self.avoid_congestion(now, bytes as f64, rtt.get());
        }
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        // Also if the last flight filled the window.
        if app_limited && in_flight == 0 && !self.is_starting() {
            self.limited_since.get_or_insert(now);
        }
        if let (true, Some(largest)) = (self.is_starting(), largest_packet_num_acked)
            && self.hystart.on_acknowledged(largest, self.last_sent) == Verdict::IsOver
        {
            self.slow_start_threshold = self.window;
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        _lost_bytes: u64,
    ) {
        if self.reduced_at.is_none_or(|reduced_at| sent > reduced_at) {
            self.reduced_at = Some(now);
            // Section 4.7: a window that has not recovered fully leaves capacity for new flows.
            self.most = if self.window < self.most {
                self.window * (1.0 + BETA) / 2.0
            } else {
                self.window
            };
            let prior = self.window;
            self.slow_start_threshold = (self.window * BETA).max(self.least());
            self.window = self.slow_start_threshold;
            let epoch = self.begin_epoch(now);
            self.epoch = Some(Epoch { prior, ..epoch });
            self.limited_since = None;
        }
        //= RFC 9002 section 7.6.2
        //# When persistent congestion is declared, the sender's congestion window MUST be reduced to the minimum congestion window
        if is_persistent_congestion {
            self.window = self.least();
            self.hystart = HyStart::default();
            (self.epoch, self.reduced_at) = (None, None);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.datagram = new_mtu.into();
        self.window = self.window.max(self.least());
        if let Some(epoch) = &mut self.epoch {
            epoch.course = None;
        }
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.ssthresh = Some(self.slow_start_threshold as u64);
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
mod tests {
    use super::*;

    const DATAGRAM: f64 = 1_200.0;
    const RTT: Duration = Duration::from_millis(100);

    /// Returns a controller after a loss at a window of this many datagrams, and the time of the
    /// loss.
    fn reduced(datagrams: f64) -> (Cubic, Instant) {
        let sent = Instant::now();
        let mut cubic = Cubic { window: datagrams * DATAGRAM, ..Cubic::new(12_000, 1_200) };
        cubic.on_congestion_event(sent + RTT, sent, false, 1_200);
        (cubic, sent + RTT)
    }

    /// Acknowledges a window in each round trip, for the given time.
    fn acknowledge(
        cubic: &mut Cubic,
        mut now: Instant,
        rtt: Duration,
        lasting: Duration,
    ) -> Instant {
        let end = now + lasting;
        while now < end {
            now += rtt;
            let window = cubic.window;
            (0..10).for_each(|_| cubic.avoid_congestion(now, window / 10.0, rtt));
        }
        now
    }

    #[test]
    fn window_at_bandwidth_delay_product_grows_by_a_quarter() {
        let mut cubic = Cubic::new(12_000, 1_200);
        cubic.on_bandwidth_delay_product(24_000.0);
        cubic.start(12_000);
        assert_eq!(cubic.window(), 24_000);
        cubic.start(12_000);
        assert_eq!(cubic.window(), 27_000);
    }

    #[test]
    fn loss_reduces_the_window_once_in_a_round_trip() {
        let (mut cubic, now) = reduced(1_000.0);
        assert_eq!(cubic.window(), 840_000);
        cubic.on_congestion_event(now + RTT / 2, now, false, 1_200);
        assert_eq!(cubic.window(), 840_000);
        cubic.on_congestion_event(now + 2 * RTT, now + RTT, false, 1_200);
        assert_eq!(cubic.window(), 588_000);
        // The window had not recovered.
        assert!((cubic.most - 840_000.0 * 0.85).abs() < 1.0, "{}", cubic.most);
    }

    #[test]
    fn window_recovers_after_k_seconds() {
        let (mut cubic, now) = reduced(1_000.0);
        // RFC 9438, section 4.2: the cube root of 1000 * 0.3 / 0.4.
        let k = Duration::from_secs_f64(750_f64.cbrt());
        let then = acknowledge(&mut cubic, now, RTT, k);
        assert!((0.97..1.01).contains(&(cubic.window / 1_200_000.0)), "{}", cubic.window);
        acknowledge(&mut cubic, then, RTT, k);
        assert!((1.2..1.5).contains(&(cubic.window / 1_200_000.0)), "{}", cubic.window);
    }

    #[test]
    fn window_grows_as_renos_where_the_path_is_short() {
        let (mut cubic, now) = reduced(10.0);
        let rtt = Duration::from_millis(1);
        acknowledge(&mut cubic, now, rtt, Duration::from_millis(100));
        // From 7 to 10 datagrams by 0.53 per round trip, and by one per round trip after that.
        assert!((90.0..110.0).contains(&(cubic.window / DATAGRAM)), "{}", cubic.window / DATAGRAM);
    }

    #[test]
    fn time_without_enough_to_send_does_not_count() {
        let (mut cubic, now) = reduced(1_000.0);
        cubic.limited_since = Some(now);
        let idle = Duration::from_secs(60);
        cubic.avoid_congestion(now + idle, 12_000.0, RTT);
        assert!(cubic.window < 900_000.0, "{}", cubic.window);
    }

    #[test]
    fn pause_between_flights_does_not_count() {
        let (mut cubic, now) = reduced(1_000.0);
        let then = acknowledge(&mut cubic, now, RTT, RTT);
        cubic.on_end_acks(then, 0, true, None);
        cubic.avoid_congestion(then + Duration::from_secs(60), 12_000.0, RTT);
        assert!(cubic.window < 900_000.0, "{}", cubic.window);
    }

    #[test]
    fn cached_course_equals_a_fresh_one() {
        let (mut keeping, began) = reduced(1_000.0);
        let mut forgetting = keeping.clone();
        let none: fn(&mut Cubic) = |_| {};
        let mtu: fn(&mut Cubic) = |cubic| cubic.on_mtu_update(1_452);
        let idle: fn(&mut Cubic) = |cubic| cubic.limited_since = cubic.reduced_at;
        for seconds in [5, 9] {
            let now = began + Duration::from_secs(seconds);
            for (rtt, change) in [
                (RTT, none),
                (RTT, none),
                (RTT, mtu),
                (2 * RTT, none),
                (2 * RTT, idle),
                (2 * RTT, none),
            ] {
                for cubic in [&mut keeping, &mut forgetting] {
                    change(cubic);
                    cubic.avoid_congestion(now, 12_000.0, rtt);
                }
                forgetting.epoch.as_mut().unwrap().course = None;
                assert_eq!(keeping.window(), forgetting.window());
            }
        }
    }

    #[test]
    fn persistent_congestion_starts_over() {
        let (mut cubic, now) = reduced(1_000.0);
        cubic.on_congestion_event(now + 2 * RTT, now + RTT, true, 1_200);
        assert_eq!(cubic.window(), 2_400);
        assert!(cubic.is_starting());
    }
}
