//! Congestion controllers that can exempt a connection's last packet from the window, and count
//! acknowledged bytes.

mod bbr;
mod cubic;
mod hystart;
mod pace;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{
    Controller, ControllerFactory, ControllerMetrics, NewReno, NewRenoConfig,
};

use self::bbr::Bbr;
use self::cubic::Cubic;
use self::pace::Trains;
use crate::config::{Config, Congestion};

/// The initial window is counted in datagrams of this size, as TCP's is in segments: ten are the
/// 14,720 bytes of RFC 9002, section 7.2.
const DATAGRAM_BYTES: u64 = 1472;
/// More than any connection has in flight, and large enough that quinn-proto does not pace.
const UNLIMITED: u64 = 1 << 40;

/// Tells the controllers of an endpoint what to return when quinn-proto asks for their window.
#[derive(Clone, Default)]
pub(super) struct WindowQuery(Arc<QueryState>);

#[derive(Default)]
struct QueryState {
    kind: AtomicU8,
    /// Datagrams begun since the endpoint started to take packets.
    datagrams: AtomicU32,
}

impl WindowQuery {
    const WINDOW: u8 = 0;
    const UNLIMITED: u8 = 1;
    const ACKNOWLEDGED: u8 = 2;
    /// For each datagram, quinn-proto first asks whether it fits into the window, and if so, when
    /// the pacer releases it.
    const FITS: u8 = 3;
    const PACED: u8 = 4;
    /// The bytes in flight.
    const IN_FLIGHT: u8 = 5;

    /// Called when the endpoint starts to take packets from a connection.
    pub(super) fn begin_packets(&self) {
        self.0.datagrams.store(0, Ordering::Relaxed);
        self.0.kind.store(Self::FITS, Ordering::Relaxed);
    }

    pub(super) fn end_packets(&self) {
        self.0.kind.store(Self::WINDOW, Ordering::Relaxed);
    }

    /// Called when the endpoint starts to take packets from a closed connection, or handshake
    /// probes.
    ///
    /// quinn-proto holds back CONNECTION_CLOSE like data when the window is full, and the peer
    /// would have to wait for its own timeout. RFC 9002, section 7 limits packets in flight, to
    /// which packets with only that frame do not belong (section 2).
    pub(super) fn begin_packets_without_limit(&self) {
        self.0.kind.store(Self::UNLIMITED, Ordering::Relaxed);
    }

    /// Returns the number of acknowledged bytes in packets since the path was first used.
    /// quinn-proto passes them only to controllers.
    pub(super) fn acknowledged(&self, controller: &dyn Controller) -> u64 {
        self.0.kind.store(Self::ACKNOWLEDGED, Ordering::Relaxed);
        let acknowledged = controller.window();
        self.0.kind.store(Self::WINDOW, Ordering::Relaxed);
        acknowledged
    }

    /// Returns the number of bytes in flight of a connection with this controller.
    pub(super) fn in_flight(&self, controller: &dyn Controller) -> u64 {
        self.0.kind.store(Self::IN_FLIGHT, Ordering::Relaxed);
        let in_flight = controller.window();
        self.0.kind.store(Self::WINDOW, Ordering::Relaxed);
        in_flight
    }
}

/// Configuration of sending.
#[derive(Clone, Copy)]
pub(crate) struct SendConfig {
    pub(crate) congestion: Congestion,
    /// Datagrams in flight before anything is known about the path.
    pub(crate) initial_datagrams: u16,
}

impl SendConfig {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            congestion: config.congestion.unwrap_or_default(),
            initial_datagrams: config.initial_window_datagrams,
        }
    }
}

/// Returns the factory of controllers with this configuration, which answer `question`.
pub(super) fn factory(
    sending: SendConfig,
    question: WindowQuery,
) -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(Factory { sending, question })
}

struct Factory {
    sending: SendConfig,
    question: WindowQuery,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let initial = DATAGRAM_BYTES * u64::from(self.sending.initial_datagrams);
        let question = self.question.clone();
        match self.sending.congestion {
            Congestion::Cubic => Box::new(PacedController::new(
                Cubic::new(initial, current_mtu),
                question,
                now,
                current_mtu,
            )),
            Congestion::NewReno => {
                let mut config = NewRenoConfig::default();
                config.initial_window(initial);
                Box::new(PacedController::new(
                    NewReno::new(Arc::new(config), now, current_mtu),
                    question,
                    now,
                    current_mtu,
                ))
            }
            Congestion::Bbr => Box::new(PacedController::new(
                Bbr::new(initial, current_mtu, now),
                question,
                now,
                current_mtu,
            )),
        }
    }
}

/// A controller with the parts common to all: bytes in flight, whether the application uses the
/// window, and pacing.
///
/// quinn-proto asks for the window twice per packet, so the controller's type is static.
#[derive(Clone)]
struct PacedController<C> {
    inner: C,
    question: WindowQuery,
    datagram: u64,
    acknowledged: u64,
    /// `acknowledged` before the current acknowledgment.
    acknowledged_before: u64,
    /// When the newest packet in the current acknowledgment was sent.
    newest_acknowledged: Option<Instant>,
    in_flight: u64,
    /// Maximum bytes in flight in this round and in the last. A round ends when a packet sent after
    /// its beginning is acknowledged.
    most_in_flight: [u64; 2],
    round_end: u64,
    last_sent: u64,
    rtt: Duration,
    min_rtt: Duration,
    trains: Trains,
}

/// Pacing rate in windows per round trip: during slow start like the kernel's TCP
/// (tcp_pacing_ss_ratio), otherwise like quinn-proto.
const START_GAIN: f64 = 2.0;
const GAIN: f64 = 1.25;

/// Properties of a controller besides its window.
trait Phases: Controller {
    /// Whether the controller doubles its window in each round trip.
    fn is_starting(&self) -> bool;
    /// Whether the window reflects the path's capacity rather than the sending rate. Packets may
    /// then leave as fast as earlier trains were delivered.
    fn is_window_based(&self) -> bool {
        true
    }
    /// Reports the path's bandwidth-delay product in bytes, as estimated from delivered trains.
    fn on_bandwidth_delay_product(&mut self, _held: f64) {}
}

impl Phases for NewReno {
    fn is_starting(&self) -> bool {
        let metrics = self.metrics();
        metrics.ssthresh.is_none_or(|threshold| metrics.congestion_window < threshold)
    }
}

impl Phases for Cubic {
    fn is_starting(&self) -> bool {
        Self::is_starting(self)
    }

    fn on_bandwidth_delay_product(&mut self, bandwidth_delay_product: f64) {
        Self::on_bandwidth_delay_product(self, bandwidth_delay_product);
    }
}

impl Phases for Bbr {
    fn is_starting(&self) -> bool {
        Self::is_starting(self)
    }

    fn is_window_based(&self) -> bool {
        Self::is_starting(self)
    }
}

impl<C: Phases> PacedController<C> {
    fn new(inner: C, question: WindowQuery, now: Instant, mtu: u16) -> Self {
        Self {
            inner,
            question,
            datagram: mtu.into(),
            acknowledged: 0,
            acknowledged_before: 0,
            newest_acknowledged: None,
            in_flight: 0,
            most_in_flight: [0; 2],
            round_end: 0,
            last_sent: 0,
            rtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            trains: Trains::new(now),
        }
    }

    /// Whether the application sends too little for the window to say anything about the path.
    ///
    /// quinn-proto judges that when an acknowledgment arrives, so the last flight of every response
    /// would not count. RFC 9002, section 7.8 only keeps an unused window from growing.
    fn is_limited(&self, app_limited: bool) -> bool {
        let [this, last] = self.most_in_flight;
        let most = this.max(last);
        let window = self.inner.window();
        // In slow start, half of the window suffices: it doubles in the next round, as in the
        // kernel's tcp_is_cwnd_limited.
        app_limited
            && if self.inner.is_starting() {
                2 * most < window
            } else {
                most + 3 * self.datagram < window
            }
    }

    /// Returns the path's bandwidth-delay product, as estimated from delivered trains.
    ///
    /// `None` while the rate grows from round to round: something other than the path then spaces
    /// the acknowledgments, such as the pace of a peer that sends them with its own data.
    fn bandwidth_delay_product(&self) -> Option<f64> {
        if !self.trains.is_steady() {
            return None;
        }
        let bandwidth_delay_product = self.trains.rate() * self.min_rtt.as_secs_f64();
        (bandwidth_delay_product > 0.0).then_some(bandwidth_delay_product)
    }

    /// Returns the window with which quinn-proto's pacer releases packets at the right rate.
    fn paced_window(&self, datagrams: u64) -> u64 {
        let window = self.inner.window();
        let flying = self.in_flight + (datagrams + 1) * self.datagram;
        if flying > window {
            return window;
        }
        let delivered = if self.inner.is_window_based() {
            self.trains.rate() * self.rtt.as_secs_f64()
        } else {
            0.0
        };
        // A window above the bandwidth-delay product builds a queue, so it should grow slowly.
        let is_small = self
            .bandwidth_delay_product()
            .is_none_or(|bandwidth_delay_product| (window as f64) < bandwidth_delay_product);
        let gain = if self.inner.is_starting() && is_small { START_GAIN } else { GAIN };
        // quinn-proto's pacer already applies that gain.
        ((gain * window as f64).max(delivered) / GAIN) as u64
    }
}

impl<C: Phases + Clone + 'static> Controller for PacedController<C> {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        // quinn-proto also reports packets with only acknowledgments, which are not in flight.
        if 2 * bytes >= self.datagram {
            self.in_flight += bytes;
        }
        self.most_in_flight[0] = self.most_in_flight[0].max(self.in_flight);
        self.last_sent = last_packet_number;
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.acknowledged += bytes;
        self.newest_acknowledged = self.newest_acknowledged.max(Some(sent));
        (self.rtt, self.min_rtt) = (rtt.get(), rtt.min());
        self.inner.on_ack(now, sent, bytes, self.is_limited(app_limited), rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.in_flight = in_flight;
        let acknowledged =
            self.acknowledged - std::mem::replace(&mut self.acknowledged_before, self.acknowledged);
        let newest = self.newest_acknowledged.take().unwrap_or(now);
        self.trains.on_acknowledged(now, newest, acknowledged, self.rtt, self.datagram);
        self.inner
            .on_bandwidth_delay_product(self.bandwidth_delay_product().unwrap_or(f64::INFINITY));
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        if largest_packet_num_acked.is_some_and(|largest| largest >= self.round_end) {
            self.round_end = self.last_sent;
            self.most_in_flight = [in_flight, self.most_in_flight[0]];
            self.trains.on_round();
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        let window = self.inner.window();
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        if self.inner.window() < window {
            self.trains.on_loss();
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.datagram = new_mtu.into();
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        let QueryState { kind, datagrams } = &*self.question.0;
        match kind.load(Ordering::Relaxed) {
            WindowQuery::UNLIMITED => UNLIMITED,
            WindowQuery::ACKNOWLEDGED => self.acknowledged,
            WindowQuery::IN_FLIGHT => self.in_flight,
            WindowQuery::FITS => {
                kind.store(WindowQuery::PACED, Ordering::Relaxed);
                // quinn-proto treats a window that is exactly full as exceeded.
                self.inner.window() + 1
            }
            WindowQuery::PACED => {
                kind.store(WindowQuery::FITS, Ordering::Relaxed);
                let before = datagrams.load(Ordering::Relaxed);
                datagrams.store(before + 1, Ordering::Relaxed);
                self.paced_window(before.into())
            }
            _ => self.inner.window(),
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.inner)
    }
}
