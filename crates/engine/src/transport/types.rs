//! Connections, datagrams and the results of calls, as the engine sees them.

use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use pronghorn_h3::Priority;

/// Key of a connection of one endpoint. Keys are never reused, so one that outlives its connection
/// refers to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A received datagram.
pub(crate) struct Datagram {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) data: BytesMut,
}

/// ECN codepoints, RFC 3168.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ecn {
    Ect0,
    Ect1,
    Ce,
}

/// Datagrams to send to one peer: `size` bytes of the buffer, split every `segment_size` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Transmit {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) size: usize,
    pub(crate) segment_size: Option<usize>,
}

/// Type of a stream that the local side opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    Bidi,
    Uni,
    /// Unidirectional, for data that the peer needs to understand anything else. It stays open as
    /// long as the connection.
    Control,
}

/// Outcome of sending a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DatagramWrite {
    /// The datagram will be sent, once.
    Done,
    /// The queue is full; an [`Event::DatagramsWritable`](super::Event::DatagramsWritable) follows.
    /// Returns the datagram.
    Blocked(Bytes),
    /// The path or the peer allows no datagram of this size, or the connection is gone.
    Refused,
}

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Closed {
    #[error("closed locally")]
    Locally,
    #[error("closed by the peer with code {code:#x}{}{reason}", if reason.is_empty() { "" } else { ": " })]
    ByPeer { code: u64, reason: String },
    #[error("nothing received from the peer in time")]
    TimedOut,
    #[error("reset by the peer: it no longer knows the connection (stateless reset)")]
    Reset,
    #[error("{0}")]
    Transport(String),
}

/// Where a read ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The caller wanted no more for now.
    Left,
    /// No more data for now; a `Readable` event follows.
    Blocked,
    Finished,
    Reset(u64),
    /// The stream does not exist any more.
    Gone,
}

/// Outcome of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// All chunks were accepted.
    Done,
    /// Some chunks are left because of the caller's limit.
    More,
    /// Some chunks are left; a `Writable` event follows.
    Blocked,
    /// The peer has stopped the stream, or the stream is gone.
    Stopped,
}

/// Position of a write among other streams, see
/// [`Transport::set_priority`](super::Transport::set_priority).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) priority: Priority,
    /// Whether the priority was not set in the transport yet.
    pub(crate) is_new: bool,
}
