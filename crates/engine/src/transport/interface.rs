//! The interface that a QUIC library is used through.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pronghorn_h3::{Priority, StreamId};

use super::quinn::ClientTls;
use super::types::{
    Closed, ConnectionKey, Datagram, DatagramWrite, Dir, Order, Read, Transmit, Write,
};
use crate::qlog::Trace;
use crate::tls::{ClientCertificate, TlsParameters, TlsSummary};
use crate::transport_stats::StatsSink;
use crate::window_budget::WindowPromise;

#[derive(Debug)]
pub(crate) enum Event {
    /// The peer has begun a connection; nothing more is known yet.
    Accepted { remote: SocketAddr },
    /// TLS parameters agreed on with a client. No stream data has arrived yet.
    Agreed(TlsParameters),
    /// The server name that the client requests (SNI), if any. No stream data has arrived yet.
    ServerName(Arc<str>),
    /// The client's certificate. Reported before the first request, and again when the handshake is
    /// done.
    ClientCertificate(Arc<ClientCertificate>),
    /// Requests may be sent to the server before the handshake is done (0-RTT).
    EarlyData,
    /// The handshake is done. `tls` is present for connections opened by this side. If it says that
    /// early data was rejected, all streams opened so far are gone, unseen by the server.
    /// `idle_timeout` is the server's idle timeout.
    Connected { handshake: Duration, tls: Option<TlsSummary>, idle_timeout: Option<Duration> },
    /// The stream has data, an end or a reset to read. Also reported for each stream that the peer
    /// opens.
    Readable(StreamId),
    /// The stream accepts data again.
    Writable(StreamId),
    /// The peer has stopped this stream, with an error code.
    Stopped(StreamId, u64),
    /// All data of this many finished streams was acknowledged, or the peer has stopped them.
    Acknowledged(usize),
    /// More streams may be opened.
    Available,
    /// A datagram from the peer (RFC 9221).
    Datagram(Bytes),
    /// The datagram queue has space again.
    DatagramsWritable,
    /// The connection is gone. Received stream data can be read until the next event is taken;
    /// after that its key refers to nothing.
    Closed(Closed),
}

/// One QUIC endpoint. The documentation of [`transport`](super) has the order of calls; `contract`
/// tests the behaviour of each call.
pub(crate) trait Transport {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram);
    fn handle_timeout(&mut self, now: Instant);
    fn poll_timeout(&mut self) -> Option<Instant>;
    fn poll_event(&mut self) -> Option<(ConnectionKey, Event)>;
    /// Number of events that [`Transport::poll_event`] has.
    fn events(&self) -> usize;

    fn has_events(&self) -> bool {
        self.events() > 0
    }

    /// Fills `buffer` with at most `max_segments` datagrams for one peer.
    fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit>;

    /// Whether [`Transport::poll_transmit`] must be called again.
    fn wants_to_send(&self) -> bool;

    fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        server_name: &str,
        tls: &ClientTls,
    ) -> Result<ConnectionKey, String>;
    /// Refuses new connections from now on, with an error to the client.
    fn refuse_new(&mut self);
    /// Number of handshakes that wait for something else than the peer, and are no connections yet.
    fn waiting_handshakes(&self) -> usize;
    /// Refuses those.
    fn refuse_waiting(&mut self);
    fn close(&mut self, now: Instant, key: ConnectionKey, code: u64, reason: &str);

    /// Returns the connection's trace, if it has one.
    fn trace(&mut self, key: ConnectionKey) -> Option<Trace>;
    /// Stores the connection's statistics in `sink` at its end, and at each [`Transport::measure`].
    fn observe(&mut self, key: ConnectionKey, sink: StatsSink);
    /// Updates the statistics sink of an open connection.
    fn measure(&mut self, key: ConnectionKey);

    fn open(&mut self, key: ConnectionKey, dir: Dir) -> Option<StreamId>;
    /// Allows the peer to have this many streams open at once, if that is more than before.
    fn allow_streams(&mut self, key: ConnectionKey, dir: Dir, count: u64);
    /// Returns the current maximum size of a datagram; `None` if the peer does not support
    /// datagrams, or the endpoint was created without them.
    fn datagram_size(&mut self, key: ConnectionKey) -> Option<usize>;
    /// Sends a datagram, after earlier ones and before any stream data. A lost datagram is not
    /// retransmitted.
    fn send_datagram(&mut self, key: ConnectionKey, data: Bytes) -> DatagramWrite;
    /// Passes received stream data to `each`, piece by piece, until it returns false. The stream's
    /// end is not read then.
    fn read(
        &mut self,
        key: ConnectionKey,
        stream: StreamId,
        each: impl FnMut(Bytes) -> bool,
    ) -> Read;
    /// Takes the window promise for data received on a connection that is gone, to be kept as long
    /// as the data.
    fn take_windows(&mut self, key: ConnectionKey) -> Option<WindowPromise>;
    /// Returns the code of a received reset, without reading the data before it. It is reported
    /// once, here or by a read.
    fn received_reset(&mut self, key: ConnectionKey, stream: StreamId) -> Option<u64>;
    /// Writes at most `limit` bytes from the front of `chunks`, which keeps the rest. Once all are
    /// written, the stream ends if `ends`. `order` is given for streams of requests.
    fn write(
        &mut self,
        key: ConnectionKey,
        stream: StreamId,
        chunks: &mut VecDeque<Bytes>,
        limit: usize,
        ends: bool,
        order: Option<Order>,
    ) -> Write;
    /// Whether the connection accepts no data on any stream until the peer acknowledges data, or
    /// raises the connection's flow control limit. If not, and all `Writable` events were taken, a
    /// blocked stream waits for its own flow control. `other` is a stream of ours that only the
    /// connection can block.
    fn is_full(&mut self, key: ConnectionKey, other: StreamId) -> bool;
    /// Returns the number of acknowledged bytes in packets; it restarts at 0 when the connection
    /// moves to another path.
    fn acknowledged(&mut self, key: ConnectionKey) -> u64;
    /// Sets the priority of a request's stream: all bytes of a more urgent level leave before those
    /// of a less urgent one, as far as the transport has both. Within a level, non-incremental
    /// streams that were written to their end go first, in the order of their requests, so that the
    /// rest of one does not share with the next. All others take turns, packet by packet; which of
    /// them is written is decided above. Streams of [`Dir::Control`] go before all.
    fn set_priority(&mut self, key: ConnectionKey, stream: StreamId, priority: Priority);
    /// Resets a stream. Returns whether there was something to reset. If it was finished, it will
    /// not be acknowledged any more.
    fn reset(&mut self, key: ConnectionKey, stream: StreamId, code: u64) -> bool;
    fn stop(&mut self, key: ConnectionKey, stream: StreamId, code: u64);
    /// Sends a PING, so that the connection does not time out while the peer is alive.
    fn ping(&mut self, key: ConnectionKey);
}
