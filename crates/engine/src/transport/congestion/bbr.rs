//! The library's BBR, held to the rate that it has found.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{BbrConfig, Controller, ControllerFactory, ControllerMetrics};

/// What is in flight beyond what the path holds at the rate sought: acknowledgements come in groups, and late.
const HEADROOM: f64 = 0.15;
const HEADROOM_DATAGRAMS: f64 = 8.0;

/// BBR sends at the rate that it has found, and has a window of twice what the path then holds only as a bound. The library's pacer knows
/// nothing of the rate: it sends 1.25 windows in a round trip. So the window would be what is sent, and a queue as long as the path would be
/// kept full. Here the window is what the path holds at the rate that BBR wants at the moment.
struct Bbr {
    inner: Box<dyn Controller>,
    datagram: u64,
    least_rtt: Option<Duration>,
}

impl Controller for Bbr {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.least_rtt = Some(rtt.min());
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.datagram = new_mtu.into();
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        let window = self.inner.window();
        // Bits a second, zero until there is an estimate.
        let (Some(rate @ 1..), Some(rtt)) = (self.inner.metrics().pacing_rate, self.least_rtt) else { return window };
        let held = rate as f64 / 8.0 * rtt.as_secs_f64();
        let wanted = held * (1.0 + HEADROOM) + HEADROOM_DATAGRAMS * self.datagram as f64;
        // What a connection may send to a path that it does not know, it may send to one that it knows to be short.
        window.min((wanted as u64).max(self.inner.initial_window()))
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), datagram: self.datagram, least_rtt: self.least_rtt })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Makes controllers that begin with a window of so many bytes: the library's own default is 200 datagrams, sent at once into a path of
/// which nothing is known.
pub(super) struct BbrFactory(Arc<BbrConfig>);

impl BbrFactory {
    pub(super) fn new(initial_window: u64) -> Self {
        let mut config = BbrConfig::default();
        config.initial_window(initial_window);
        Self(Arc::new(config))
    }
}

impl ControllerFactory for BbrFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Bbr { inner: self.0.clone().build(now, current_mtu), datagram: current_mtu.into(), least_rtt: None })
    }
}
