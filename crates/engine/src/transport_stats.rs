//! Counters of a connection's transport.

use std::cell::Cell;
use std::ops::AddAssign;
use std::rc::Rc;
use std::time::Duration;

/// Counters of a connection's transport since it began, including handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportStats {
    /// Bytes in UDP datagrams or TCP segments, without their headers, including retransmissions.
    pub bytes_sent: u64,
    /// Bytes in UDP datagrams or TCP segments, without their headers.
    pub bytes_received: u64,
    /// QUIC packets, or TCP segments.
    pub packets_sent: u64,
    /// UDP datagrams, or TCP segments.
    pub packets_received: u64,
    /// Packets that QUIC declared lost, or segments that TCP sent again.
    pub packets_lost: u64,
    /// Current estimate of the round-trip time; zero if there is none.
    pub rtt: Duration,
}

impl TransportStats {
    /// Returns the counts since `earlier`, with the current round-trip time.
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

/// Sums the counts. The round-trip time becomes that of the other.
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

/// Where the transport leaves its counts.
pub(crate) type StatsSink = Rc<Cell<TransportStats>>;
