//! What the transport of a connection has done.

use std::cell::Cell;
use std::future::{Future, ready};
use std::ops::AddAssign;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::http3;
use crate::tcp::TcpProbe;

/// What a connection's transport has done since it was begun, handshakes included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportStats {
    /// Bytes in UDP datagrams or TCP segments, without their headers and with what was sent again.
    pub bytes_sent: u64,
    /// Bytes in UDP datagrams or TCP segments, without their headers.
    pub bytes_received: u64,
    /// QUIC packets, or TCP segments.
    pub packets_sent: u64,
    /// UDP datagrams, or TCP segments.
    pub packets_received: u64,
    /// Packets that QUIC declared lost, or segments that TCP sent again.
    pub packets_lost: u64,
    /// The present estimate of the round-trip time; zero as long as there is none.
    pub rtt: Duration,
}

impl TransportStats {
    /// What came after `earlier`, with the present round-trip time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            bytes_sent: self.bytes_sent.saturating_sub(earlier.bytes_sent),
            bytes_received: self.bytes_received.saturating_sub(earlier.bytes_received),
            packets_sent: self.packets_sent.saturating_sub(earlier.packets_sent),
            packets_received: self.packets_received.saturating_sub(earlier.packets_received),
            packets_lost: self.packets_lost.saturating_sub(earlier.packets_lost),
            rtt: self.rtt,
        }
    }
}

/// Sums the counts; the round-trip time becomes that of the other.
impl AddAssign for TransportStats {
    fn add_assign(&mut self, other: Self) {
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.packets_sent += other.packets_sent;
        self.packets_received += other.packets_received;
        self.packets_lost += other.packets_lost;
        self.rtt = other.rtt;
    }
}

/// Where the transport leaves its counts for those who asked.
pub(crate) type StatsSink = Rc<Cell<TransportStats>>;

/// Asks for the counts of a connection, which may have ended meanwhile: they are then those of its end.
#[derive(Clone)]
pub struct StatsProbe(Source);

#[derive(Clone)]
enum Source {
    /// Of a Unix socket the system counts nothing.
    Uncounted,
    Tcp(Rc<TcpProbe>),
    Quic(http3::StatsProbe),
}

impl StatsProbe {
    pub(super) fn tcp(probe: Rc<TcpProbe>) -> Self {
        Self(Source::Tcp(probe))
    }

    pub(super) fn uncounted() -> Self {
        Self(Source::Uncounted)
    }

    pub(super) fn quic(probe: http3::StatsProbe) -> Self {
        Self(Source::Quic(probe))
    }

    /// The counts of now.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn read(&self) -> impl Future<Output = TransportStats> + use<> {
        let read: Pin<Box<dyn Future<Output = TransportStats>>> = match &self.0 {
            Source::Uncounted => Box::pin(ready(TransportStats::default())),
            Source::Tcp(probe) => Box::pin(ready(probe.read())),
            Source::Quic(probe) => Box::pin(probe.clone().read()),
        };
        read
    }
}

impl std::fmt::Debug for StatsProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatsProbe").finish_non_exhaustive()
    }
}
