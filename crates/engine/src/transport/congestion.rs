//! Congestion controllers that let a connection's last packet out, and count what arrives.

mod bbr;
mod cubic;
mod hystart;
mod pace;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, NewReno, NewRenoConfig};

use self::bbr::Bbr;
use self::cubic::Cubic;
use self::pace::Trains;
use crate::config::{Config, Congestion};

/// The window that a connection begins with is counted in datagrams of this size, as TCP's is in segments: ten are the 14,720 bytes of
/// RFC 9002, section 7.2.
const DATAGRAM_BYTES: u64 = 1472;
/// More than any connection has in flight, and so much that the library does not pace.
const UNLIMITED: u64 = 1 << 40;

/// What the controllers of an endpoint are asked for when they are asked for their window.
#[derive(Clone, Default)]
pub(super) struct Question(Arc<Asked>);

#[derive(Default)]
struct Asked {
    kind: AtomicU8,
    /// Datagrams begun since the endpoint began to take packets.
    datagrams: AtomicU32,
}

impl Question {
    const WINDOW: u8 = 0;
    const UNLIMITED: u8 = 1;
    const ACKNOWLEDGED: u8 = 2;
    /// For each datagram the library first asks whether it fits the window, and if so, when the pacer lets it out.
    const FITS: u8 = 3;
    const PACED: u8 = 4;

    /// Set while the endpoint takes packets from a connection.
    pub(super) fn begin_packets(&self) {
        self.0.datagrams.store(0, Ordering::Relaxed);
        self.0.kind.store(Self::FITS, Ordering::Relaxed);
    }

    pub(super) fn end_packets(&self) {
        self.0.kind.store(Self::WINDOW, Ordering::Relaxed);
    }

    /// Set while the endpoint takes packets from a closed connection, or the probes of a handshake.
    ///
    /// The library holds CONNECTION_CLOSE back as it does data when the window is full, and then the peer has to wait for its own
    /// time-out. RFC 9002, section 7 limits packets in flight, which those that hold only such a frame are not (section 2).
    pub(super) fn begin_packets_without_limit(&self) {
        self.0.kind.store(Self::UNLIMITED, Ordering::Relaxed);
    }

    /// Bytes in packets that the peer has acknowledged, since the path was taken. The library counts them only for its controllers.
    pub(super) fn acknowledged(&self, controller: &dyn Controller) -> u64 {
        self.0.kind.store(Self::ACKNOWLEDGED, Ordering::Relaxed);
        let acknowledged = controller.window();
        self.0.kind.store(Self::WINDOW, Ordering::Relaxed);
        acknowledged
    }
}

/// How connections send.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub(crate) congestion: Congestion,
    /// What is in flight before anything is known of the path.
    pub(crate) initial_datagrams: u16,
}

impl Sending {
    pub(crate) fn of(config: &Config) -> Self {
        Self { congestion: config.congestion.unwrap_or_default(), initial_datagrams: config.initial_window_datagrams }
    }
}

/// The factory of controllers that send so, and are asked so.
pub(super) fn factory(sending: Sending, question: Question) -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(Factory { sending, question })
}

struct Factory {
    sending: Sending,
    question: Question,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let initial = DATAGRAM_BYTES * u64::from(self.sending.initial_datagrams);
        let question = self.question.clone();
        match self.sending.congestion {
            Congestion::Cubic => Box::new(Sender::new(Cubic::new(initial, current_mtu), question, now, current_mtu)),
            Congestion::NewReno => {
                let mut config = NewRenoConfig::default();
                config.initial_window(initial);
                Box::new(Sender::new(NewReno::new(Arc::new(config), now, current_mtu), question, now, current_mtu))
            }
            Congestion::Bbr => Box::new(Sender::new(Bbr::new(initial, current_mtu, now), question, now, current_mtu)),
        }
    }
}

/// A controller with what all of them have in common: what is in flight, whether the application uses the window, and the pace.
///
/// The library asks for the window twice a packet, so that the controller's kind is known here.
#[derive(Clone)]
struct Sender<C> {
    inner: C,
    question: Question,
    datagram: u64,
    acknowledged: u64,
    /// The same before the acknowledgement that is being taken.
    acknowledged_before: u64,
    /// When the newest packet of it was sent.
    newest_acknowledged: Option<Instant>,
    in_flight: u64,
    /// The most that was in flight in this round, and in the last. A round ends when a packet is acknowledged that was sent after it began.
    most_in_flight: [u64; 2],
    round_end: u64,
    last_sent: u64,
    rtt: Duration,
    least_rtt: Duration,
    trains: Trains,
}

/// How fast windows leave, in windows in a round trip: as the kernel's TCP (tcp_pacing_ss_ratio), and as the library otherwise.
const START_GAIN: f64 = 2.0;
const GAIN: f64 = 1.25;

/// What has to be known of a controller beside its window.
trait Phases: Controller {
    /// Whether it doubles its window in each round trip.
    fn is_starting(&self) -> bool;
    /// Whether its window stands for the path, and not for the rate. Then packets may leave as fast as trains of them were delivered.
    fn is_window_based(&self) -> bool {
        true
    }
    /// What the path seems to hold without a queue, by the trains that it delivered; bytes.
    fn on_held(&mut self, _held: f64) {}
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

    fn on_held(&mut self, held: f64) {
        Self::on_held(self, held);
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

impl<C: Phases> Sender<C> {
    fn new(inner: C, question: Question, now: Instant, mtu: u16) -> Self {
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
            least_rtt: Duration::ZERO,
            trains: Trains::new(now),
        }
    }

    /// Whether the application had too little to send for the window to say anything of the path.
    ///
    /// The library judges that when an acknowledgement comes, so that the last flight of every response would count for nothing.
    /// RFC 9002, section 7.8, has a window that is not used not grow.
    fn is_limited(&self, app_limited: bool) -> bool {
        let [this, last] = self.most_in_flight;
        let most = this.max(last);
        let window = self.inner.window();
        // Half the window is doubled by the next round, as in the kernel's tcp_is_cwnd_limited.
        app_limited && if self.inner.is_starting() { 2 * most < window } else { most + 3 * self.datagram < window }
    }

    /// What the path seems to hold without a queue, by the trains that it has delivered.
    ///
    /// `None` while the rate grows from round to round: then something else than the path spreads the acknowledgements, such as the pace of a
    /// peer that sends them with data of its own.
    fn held(&self) -> Option<f64> {
        if !self.trains.is_steady() {
            return None;
        }
        let held = self.trains.rate() * self.least_rtt.as_secs_f64();
        (held > 0.0).then_some(held)
    }

    /// The window that has the library's pacer let out packets at the right rate.
    fn paced_window(&self, datagrams: u64) -> u64 {
        let window = self.inner.window();
        let flying = self.in_flight + (datagrams + 1) * self.datagram;
        if flying > window {
            return window;
        }
        let delivered = if self.inner.is_window_based() { self.trains.rate() * self.rtt.as_secs_f64() } else { 0.0 };
        // A window that holds as much as the path does grows into a queue, and the slower the better.
        let is_small = self.held().is_none_or(|held| (window as f64) < held);
        let gain = if self.inner.is_starting() && is_small { START_GAIN } else { GAIN };
        // The library's pacer has that gain of its own.
        ((gain * window as f64).max(delivered) / GAIN) as u64
    }
}

impl<C: Phases + Clone + 'static> Controller for Sender<C> {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        // The library tells of acknowledgements alone too, which are not in flight.
        if 2 * bytes >= self.datagram {
            self.in_flight += bytes;
        }
        self.most_in_flight[0] = self.most_in_flight[0].max(self.in_flight);
        self.last_sent = last_packet_number;
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.acknowledged += bytes;
        self.newest_acknowledged = self.newest_acknowledged.max(Some(sent));
        (self.rtt, self.least_rtt) = (rtt.get(), rtt.min());
        self.inner.on_ack(now, sent, bytes, self.is_limited(app_limited), rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.in_flight = in_flight;
        let acknowledged = self.acknowledged - std::mem::replace(&mut self.acknowledged_before, self.acknowledged);
        let newest = self.newest_acknowledged.take().unwrap_or(now);
        self.trains.on_acknowledged(now, newest, acknowledged, self.rtt, self.datagram);
        self.inner.on_held(self.held().unwrap_or(f64::INFINITY));
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        if largest_packet_num_acked.is_some_and(|largest| largest >= self.round_end) {
            self.round_end = self.last_sent;
            self.most_in_flight = [in_flight, self.most_in_flight[0]];
            self.trains.on_round();
        }
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
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
        let Asked { kind, datagrams } = &*self.question.0;
        match kind.load(Ordering::Relaxed) {
            Question::UNLIMITED => UNLIMITED,
            Question::ACKNOWLEDGED => self.acknowledged,
            Question::FITS => {
                kind.store(Question::PACED, Ordering::Relaxed);
                // The library takes a window that is filled exactly for one that is exceeded.
                self.inner.window() + 1
            }
            Question::PACED => {
                kind.store(Question::FITS, Ordering::Relaxed);
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
