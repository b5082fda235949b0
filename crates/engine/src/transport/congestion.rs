//! Congestion controllers that let a connection's last packet out, and count what arrives.

mod bbr;
mod cubic;
mod hystart;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, NewReno, NewRenoConfig};

use self::bbr::Bbr;
use self::cubic::Cubic;
use crate::config::{Config, Congestion};

/// The size of datagrams that every path carries (RFC 9000, section 14). The window that a connection begins with is counted in them.
const DATAGRAM_BYTES: u64 = 1200;
/// More than any connection has in flight, and so much that the library does not pace.
const UNLIMITED: u64 = 1 << 40;

/// What the controllers of an endpoint are asked for when they are asked for their window.
#[derive(Clone, Default)]
pub(super) struct Question(Arc<AtomicU8>);

impl Question {
    const WINDOW: u8 = 0;
    const UNLIMITED: u8 = 1;
    const ACKNOWLEDGED: u8 = 2;

    /// Set while the endpoint takes packets from a closed connection, or the probes of a handshake.
    ///
    /// The library holds CONNECTION_CLOSE back as it does data when the window is full, and then the peer has to wait for its own
    /// time-out. RFC 9002, section 7 limits packets in flight, which those that hold only such a frame are not (section 2).
    pub(super) fn set_unlimited(&self, unlimited: bool) {
        self.0.store(if unlimited { Self::UNLIMITED } else { Self::WINDOW }, Ordering::Relaxed);
    }

    /// Bytes in packets that the peer has acknowledged, since the path was taken. The library counts them only for its controllers.
    pub(super) fn acknowledged(&self, controller: &dyn Controller) -> u64 {
        self.0.store(Self::ACKNOWLEDGED, Ordering::Relaxed);
        let acknowledged = controller.window();
        self.0.store(Self::WINDOW, Ordering::Relaxed);
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
            Congestion::Cubic => Box::new(Counting { inner: Cubic::new(initial, current_mtu), acknowledged: 0, question }),
            Congestion::NewReno => {
                let mut config = NewRenoConfig::default();
                config.initial_window(initial);
                Box::new(Counting { inner: NewReno::new(Arc::new(config), now, current_mtu), acknowledged: 0, question })
            }
            Congestion::Bbr => Box::new(Counting { inner: Bbr::new(initial, current_mtu, now), acknowledged: 0, question }),
        }
    }
}

/// The library asks for the window twice a packet, so that the controller's kind is known here.
#[derive(Clone)]
struct Counting<C> {
    inner: C,
    acknowledged: u64,
    question: Question,
}

impl<C: Controller + Clone + 'static> Controller for Counting<C> {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.acknowledged += bytes;
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        match self.question.0.load(Ordering::Relaxed) {
            Question::UNLIMITED => UNLIMITED,
            Question::ACKNOWLEDGED => self.acknowledged,
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
