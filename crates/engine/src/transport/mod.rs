//! What the engine needs of a QUIC transport.
//!
//! [`Transport`] is one endpoint on one UDP socket, sans-IO: datagrams go in by [`Transport::handle_datagram`] and come out of
//! [`Transport::poll_transmit`]; what happened comes out of [`Transport::poll_event`]. Only [`quinn`] names a library.

mod congestion;
mod connection_id;
#[cfg(test)]
mod contract;
mod initial_keys;
mod keys;
mod padding;
mod quinn;
mod session;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Priority, StreamId};

use crate::client::StatsSink;
use crate::qlog::Trace;
use crate::tls::{ClientCertificate, TlsParameters, TlsSummary};
use crate::window_budget::Windows;
pub(crate) use congestion::Sending;
use connection_id::ConnectionIds;
use connection_id::is_answerable;
pub(crate) use connection_id::{is_first_flight, named_by_long_header, steer};
pub(crate) use keys::EndpointKeys;
pub use keys::Secret;
pub(crate) use quinn::{ClientTls, Quinn, QuinnConfig};

/// A connection of one endpoint. Never used twice, so that one that outlives its connection names nothing.
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

/// Congestion marks, RFC 3168.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ecn {
    Ect0,
    Ect1,
    Ce,
}

/// Datagrams to send to one peer: `size` bytes of the buffer, cut every `segment_size` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Transmit {
    pub(crate) remote: SocketAddr,
    pub(crate) local_ip: Option<IpAddr>,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) size: usize,
    pub(crate) segment_size: Option<usize>,
}

/// The direction of a stream that the local side opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    Bidi,
    Uni,
    /// Unidirectional, for what the peer needs to understand anything else. It stays as long as the connection.
    Control,
}

/// What became of a datagram that was to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DatagramWrite {
    /// It will be sent, once.
    Done,
    /// There is no room; an [`Event::DatagramsWritable`] follows. Here it is again.
    Blocked(Bytes),
    /// The path or the peer takes none of this size, or the connection is gone.
    Refused,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The peer began a connection; nothing is known of it yet.
    Accepted { remote: SocketAddr },
    /// What TLS has agreed on with a client. Nothing has come on a stream yet.
    Agreed(TlsParameters),
    /// The name that the client asks for (SNI), if it gives one. Nothing has come on a stream yet.
    ServerName(Arc<str>),
    /// What the client has shown for itself. Told before the first request, and again when the handshake is done.
    ClientCertificate(Arc<ClientCertificate>),
    /// Requests may be sent to the server although the handshake is not done (0-RTT).
    EarlyData,
    /// The handshake is done. `tls` is there for connections that this side opened. If it says that early data was refused, all streams
    /// that were opened until now are gone, unseen by the server. `idle_timeout`: after how long a silence such a server ends the connection.
    Connected { handshake: Duration, tls: Option<TlsSummary>, idle_timeout: Option<Duration> },
    /// The stream has data, its end or its reset to read. Also for each stream that the peer opens.
    Readable(StreamId),
    /// The stream takes data again.
    Writable(StreamId),
    /// The peer wants no more of this stream.
    Stopped(StreamId, u64),
    /// All of so many finished streams has arrived, or the peer has stopped them.
    Acknowledged(usize),
    /// More streams may be opened.
    Available,
    /// A datagram of the peer (RFC 9221).
    Datagram(Bytes),
    /// There is room for datagrams again.
    DatagramsWritable,
    /// The connection is gone. What has come on its streams can be read until the next event is taken; then its key names nothing.
    Closed(Closed),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Closed {
    #[error("closed by this side")]
    Locally,
    #[error("closed by the peer with code {code:#x}{}{reason}", if reason.is_empty() { "" } else { ": " })]
    ByPeer { code: u64, reason: String },
    #[error("nothing heard from the peer in time")]
    TimedOut,
    #[error("the peer has lost the connection (stateless reset)")]
    Reset,
    #[error("{0}")]
    Transport(String),
}

/// Where a read ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Where the caller wanted no more for now.
    Left,
    /// Nothing more now; a `Readable` event follows.
    Blocked,
    Finished,
    Reset(u64),
    /// The stream is not there any more.
    Gone,
}

/// What a write did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// All chunks were taken.
    Done,
    /// Some are left because there are more than the caller allowed.
    More,
    /// Some are left; a `Writable` event follows.
    Blocked,
    /// The peer has stopped the stream, or it is gone.
    Stopped,
}

/// Where the bytes of a write stand among those of other streams, see [`Transport::set_priority`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) priority: Priority,
    /// The transport has not been told of it.
    pub(crate) is_new: bool,
}

/// One QUIC endpoint. See the module's documentation for the order of calls; what each call has to do is tested by `contract`.
pub(crate) trait Transport {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram);
    fn handle_timeout(&mut self, now: Instant);
    fn poll_timeout(&mut self) -> Option<Instant>;
    fn poll_event(&mut self) -> Option<(ConnectionKey, Event)>;
    /// How many events [`Transport::poll_event`] has.
    fn events(&self) -> usize;

    fn has_events(&self) -> bool {
        self.events() > 0
    }

    /// Fills `buffer` with at most `max_segments` datagrams for one peer.
    fn poll_transmit(&mut self, now: Instant, max_segments: usize, buffer: &mut Vec<u8>) -> Option<Transmit>;

    /// Whether [`Transport::poll_transmit`] has to be asked again.
    fn wants_to_send(&self) -> bool;

    fn connect(&mut self, now: Instant, remote: SocketAddr, server_name: &str, tls: &ClientTls) -> Result<ConnectionKey, String>;
    /// Takes no new connection from here on; whoever asks for one is told so.
    fn refuse_new(&mut self);
    fn close(&mut self, now: Instant, key: ConnectionKey, code: u64, reason: &str);

    /// Where the connection's events are written, if they are.
    fn trace(&mut self, key: ConnectionKey) -> Option<Trace>;
    /// Leaves the connection's counts in `sink` at its end, and at each [`Transport::measure`].
    fn observe(&mut self, key: ConnectionKey, sink: StatsSink);
    /// Brings the sink of an open connection up to date.
    fn measure(&mut self, key: ConnectionKey);

    fn open(&mut self, key: ConnectionKey, dir: Dir) -> Option<StreamId>;
    /// Lets the peer have so many streams open at once, if that is more than before.
    fn allow_streams(&mut self, key: ConnectionKey, dir: Dir, count: u64);
    /// The most bytes that a datagram to the peer can carry now; `None` if it takes none, or the endpoint was not made for them.
    fn datagram_size(&mut self, key: ConnectionKey) -> Option<usize>;
    /// Sends a datagram, after those sent before and before anything on streams. It is not repeated when it is lost.
    fn send_datagram(&mut self, key: ConnectionKey, data: Bytes) -> DatagramWrite;
    /// Gives `each` what has come on the stream, piece by piece, until it answers that it wants no more for now. The stream's end is not
    /// read then.
    fn read(&mut self, key: ConnectionKey, stream: StreamId, each: impl FnMut(Bytes) -> bool) -> Read;
    /// The promise of memory for what the peer of a connection that is gone has sent, to be held as long as that is.
    fn take_windows(&mut self, key: ConnectionKey) -> Option<Windows>;
    /// The code of a reset that has arrived, without reading what came before. It is told once, here or by a read.
    fn received_reset(&mut self, key: ConnectionKey, stream: StreamId) -> Option<u64>;
    /// Writes at most `limit` bytes from the front of `chunks`, which keeps what was not taken. Once all of them were, the stream is at its
    /// end if `ends`. `order` is that of a request's stream.
    fn write(
        &mut self,
        key: ConnectionKey,
        stream: StreamId,
        chunks: &mut VecDeque<Bytes>,
        limit: usize,
        ends: bool,
        order: Option<Order>,
    ) -> Write;
    /// Whether the connection takes nothing more of any stream until the peer acknowledges, or opens the window for all of them. When it
    /// is not, and all `Writable` events were taken, a blocked stream waits for its own window. `other` is a stream of ours that nothing
    /// holds back but the connection.
    fn is_full(&mut self, key: ConnectionKey, other: StreamId) -> bool;
    /// Bytes in packets that the peer has acknowledged; begins at 0 again when the connection moves to another path.
    fn acknowledged(&mut self, key: ConnectionKey) -> u64;
    /// How what is written on a request's stream stands to what is written on others: all bytes of a more urgent level leave before
    /// those of a less urgent one, as far as the transport has both. Within a level, streams that are not incremental and have been written to their
    /// end go first, in the order of their requests, so that what is left of one does not share with the next; all others take turns, packet by packet:
    /// which of them is written is decided above. Streams of [`Dir::Control`] go before all.
    fn set_priority(&mut self, key: ConnectionKey, stream: StreamId, priority: Priority);
    /// Returns whether there was something to reset. If it was finished, it will not be acknowledged any more.
    fn reset(&mut self, key: ConnectionKey, stream: StreamId, code: u64) -> bool;
    fn stop(&mut self, key: ConnectionKey, stream: StreamId, code: u64);
    /// Has the peer show that it is there, so that the connection does not end for idling while it is.
    fn ping(&mut self, key: ConnectionKey);
}
