//! One connection of an endpoint.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::{Duration, Instant};

use quinn_proto::{ConnectionError, StreamEvent, TransportErrorCode};

use super::convert::{closed, from_quinn, from_transmit, varint};
use crate::TransportStats;
use crate::connection_limits::ConnectionPermit;
use crate::contained::PANIC_REASON;
use crate::limits::Limits;
use crate::qlog::Trace;
use crate::stats::{CloseCode, Closer, Counter, Stats};
use crate::transport::congestion::WindowQuery;
use crate::transport::session::Handshake;
use crate::transport::{ConnectionKey, Event, Transmit};
use crate::transport_stats::StatsSink;
use crate::window_budget::{ReceiveWindow, SendWindow};

/// A datagram of at least this size probably has content: every path supports larger ones (RFC
/// 9000, section 14).
const LARGE_DATAGRAM: usize = 1000;
/// Overhead of a datagram with content, rounded up: connection ID, packet number, tag, the frame's
/// type, stream and offset, acknowledgments.
const DATAGRAM_OVERHEAD: usize = 48;
/// Received bytes after which their number is compared with that of STREAM frames.
const CORRECTED_BYTES: u64 = 16 << 10;
/// Upper limit of a STREAM frame's data: datagrams larger than Ethernet's are not accepted.
const LARGEST_FRAME: u64 = 1500;
/// Bytes buffered in the transport beyond the congestion window: the largest GSO train.
const UNSENT_BYTES: u64 = 64 << 10;

/// A quinn-proto connection, and the endpoint's state for it.
pub(super) struct Connection {
    pub(super) inner: quinn_proto::Connection,
    pub(super) key: ConnectionKey,
    pub(super) began: Instant,
    pub(super) deadline: Option<Instant>,
    /// This connection's earliest entry in the heap of deadlines.
    pub(super) queued_deadline: Option<Instant>,
    pub(super) sending: bool,
    /// Trains sent since another connection had its turn.
    pub(super) trains: u32,
    pub(super) handshake_until: Option<Instant>,
    /// A timer has expired during the handshake, and nothing was sent since.
    pub(super) probes: bool,
    /// The outcome of early data is known.
    pub(super) decided: bool,
    pub(super) trace: Option<Trace>,
    pub(super) closed: bool,
    /// The peer has closed the connection, and expects no more packets.
    pub(super) closed_by_peer: bool,
    /// The connection's end was reported, and its remaining data was read.
    pub(super) end_reported: bool,
    pub(super) observer: Option<StatsSink>,
    pub(super) told: ReportedStats,
    /// Bytes exchanged before the handshake is done, while the client's address is not validated.
    pub(super) unvalidated: Option<PathBytes>,
    /// Datagrams that quinn-proto has produced beyond the limit for such an address.
    pub(super) withheld: Option<Box<(Transmit, Vec<u8>)>>,
    /// The address of the handshake, which validates it.
    pub(super) first_remote: SocketAddr,
    /// The last other address that the peer has sent from, and the bytes exchanged with it while it
    /// was not the connection's own.
    pub(super) other_path: Option<(SocketAddr, PathBytes)>,
    /// Limit on the data that quinn-proto buffers for sending.
    pub(super) send_window: SendWindow,
    pub(super) receive_window: ReceiveWindow,
    /// Approximate bytes of content that arrived and were not read: data on streams that no handler
    /// reads.
    pub(super) unread: u64,
    /// STREAM frames received at the last call of [`Connection::correct_unread`], and what was added
    /// to `unread` since.
    pub(super) stream_frames: u64,
    pub(super) came: u64,
    /// Number of requests that the peer may have open.
    pub(super) allowed_requests: u64,
    /// Number of unidirectional streams that the peer may have open.
    pub(super) allowed_uni: u64,
    /// Unidirectional streams that this side has opened and keeps open.
    pub(super) own_streams: usize,
    pub(super) _permit: Option<ConnectionPermit>,
}

/// Interval at which a connection's statistics are added to its worker's.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The part of a connection's statistics that the worker's already include.
pub(super) struct ReportedStats {
    next: Instant,
    sent: u64,
    lost: u64,
    held_back: u64,
    peer_held_back: u64,
    peer_out_of_streams: u64,
}

impl ReportedStats {
    pub(super) fn nothing(now: Instant) -> Self {
        Self {
            next: now + REPORT_INTERVAL,
            sent: 0,
            lost: 0,
            held_back: 0,
            peer_held_back: 0,
            peer_out_of_streams: 0,
        }
    }
}

/// Bytes received from and sent to an address.
#[derive(Clone, Copy, Default)]
pub(super) struct PathBytes {
    pub(super) received: usize,
    pub(super) sent: usize,
}

impl PathBytes {
    /// Returns how much of a train of `size` bytes, in datagrams of `segment`, may be sent.
    ///
    /// quinn-proto produces the datagram that crosses the limit, and counts it as sent.
    pub(super) fn allow(&mut self, size: usize, segment: usize) -> usize {
        let left = self.left();
        let allowed = if size <= left { size } else { left / segment * segment };
        self.sent += allowed;
        allowed
    }

    fn left(&self) -> usize {
        //= RFC 9000 section 8.1
        //# Prior to validating the client address, servers MUST NOT send more than three times as many bytes as the number of bytes
        //# they have received.
        (3 * self.received).saturating_sub(self.sent)
    }
}

impl Connection {
    /// Returns a withheld datagram, if there is one, to be sent before any others. Pending while it
    /// may not be sent yet.
    pub(super) fn poll_withheld(&mut self) -> Poll<Option<(Transmit, Vec<u8>)>> {
        if self.closed || self.closed_by_peer {
            // A closing connection needs none of it.
            self.withheld = None;
        }
        let Some((transmit, _)) = self.withheld.as_deref() else { return Poll::Ready(None) };
        if let Some(exchanged) = &mut self.unvalidated {
            if exchanged.left() < transmit.size {
                return Poll::Pending;
            }
            exchanged.sent += transmit.size;
        }
        Poll::Ready(self.withheld.take().map(|withheld| *withheld))
    }

    /// Withholds the part of `transmit` that may not be sent before the client's address is
    /// validated or more data arrives from it. Returns whether anything is left to send.
    pub(super) fn withhold(
        &mut self,
        transmit: &mut quinn_proto::Transmit,
        buffer: &mut Vec<u8>,
        stats: &Stats,
    ) -> bool {
        let Some(exchanged) = &mut self.unvalidated else { return true };
        let allowed =
            exchanged.allow(transmit.size, transmit.segment_size.unwrap_or(transmit.size));
        if allowed < transmit.size {
            stats.amplification_withheld.add(1);
            let rest = buffer[allowed..transmit.size].to_vec();
            self.withheld =
                Some(Box::new((Transmit { size: rest.len(), ..from_transmit(transmit) }, rest)));
            transmit.size = allowed;
            buffer.truncate(allowed);
        }
        allowed > 0
    }

    /// Counts the limit that the peer has exceeded, if that ended the connection.
    pub(super) fn count_overrun(
        &mut self,
        reason: &ConnectionError,
        limits: &Limits,
        stats: &Stats,
    ) {
        let ConnectionError::TransportError(error) = reason else { return };
        if error.code == TransportErrorCode::FLOW_CONTROL_ERROR {
            stats.connection_window_overruns.add(1);
        } else if error.code == TransportErrorCode::STREAM_LIMIT_ERROR {
            // quinn-proto does not report the type of the stream.
            let streams = self.inner.streams();
            let uni = streams.remote_open_streams(quinn_proto::Dir::Uni) >= self.allowed_uni
                && streams.remote_open_streams(quinn_proto::Dir::Bi) < self.allowed_requests;
            let counter = match uni {
                true if self.allowed_uni > limits.uni_streams() => {
                    &stats.webtransport_streams_refused
                }
                true => &stats.uni_streams_refused,
                false => &stats.streams_refused,
            };
            counter.add(1);
        }
    }

    /// Counts a datagram received from another address than the connection's.
    pub(super) fn note_other_path(&mut self, remote: SocketAddr, bytes: usize) {
        match &mut self.other_path {
            Some((known, exchanged)) if *known == remote => exchanged.received += bytes,
            other_path => *other_path = Some((remote, PathBytes { received: bytes, sent: 0 })),
        }
    }

    /// Whether an expired timer must send handshake data that the window holds back: until the
    /// handshake is confirmed (RFC 9001, section 4.1.2), the peer may be waiting for it.
    pub(super) fn probes_handshake(&self) -> bool {
        self.inner.is_handshaking()
            || self.inner.side().is_client() && self.inner.stats().frame_rx.handshake_done == 0
    }

    /// Whether a datagram may be sent to another address than the connection's. quinn-proto answers
    /// each `PATH_CHALLENGE` with a datagram of 1200 bytes; one in a small packet with a forged
    /// source address would be amplified thirty times towards the victim.
    pub(super) fn may_send_off_path(&mut self, transmit: &quinn_proto::Transmit) -> bool {
        if transmit.destination == self.inner.remote_address()
            || transmit.destination == self.first_remote
        {
            return true;
        }
        //= RFC 9000 section 8.2.2
        //# However, an endpoint MUST NOT expand the datagram containing the PATH_RESPONSE if the resulting data exceeds the
        //# anti-amplification limit.
        match &mut self.other_path {
            Some((known, exchanged))
                if *known == transmit.destination
                    && exchanged.sent + transmit.size <= 3 * exchanged.received =>
            {
                exchanged.sent += transmit.size;
                true
            }
            _ => false,
        }
    }

    /// Sets the send buffer: the bytes in flight, the same again for data held up behind a loss at
    /// the front, and a little that is not sent yet. More would be sent before data that turns out
    /// to be more urgent.
    pub(super) fn open_send_window(&mut self, headroom: u64) {
        if self.inner.streams().send_streams() <= self.own_streams {
            // Only HTTP/3's own streams are open.
            return self.inner.set_send_window(self.send_window.release());
        }
        let in_flight = self.inner.congestion_state().window().saturating_mul(2);
        let size = self.send_window.size(in_flight.saturating_add(UNSENT_BYTES + headroom));
        self.inner.set_send_window(size);
    }

    /// Called for each received datagram. Raises the peer's flow control limit if its path is
    /// faster, or if unread data holds it back.
    pub(super) fn open_receive_window(
        &mut self,
        now: Instant,
        bytes: usize,
        limits: &Limits,
        stats: &Stats,
    ) {
        // A lower bound, so that the value does not drift upwards while everything is read. Most
        // acknowledgments are smaller than the overhead.
        let content = bytes.saturating_sub(DATAGRAM_OVERHEAD) as u64;
        self.unread += content;
        self.came += content;
        // Acknowledgments and most requests are smaller; data that fills windows comes in full
        // datagrams.
        if bytes >= LARGE_DATAGRAM {
            let rtt = self.inner.rtt();
            let grown = self.receive_window.on_received(now, bytes as u64, || rtt, limits, stats);
            self.set_receive_window(grown);
        }
        if self.came >= CORRECTED_BYTES {
            self.correct_unread();
        }
        // Not all peers send DATA_BLOCKED when the window holds them back, so it grows before that.
        if self.unread >= self.receive_window.size() / 2 {
            self.correct_unread();
            if self.unread >= self.receive_window.size() / 2 {
                let grown = self.receive_window.on_unread(limits, stats);
                self.set_receive_window(grown);
            }
        }
        self.shrink_receive_window(limits, stats);
        self.receive_window.hold(self.unread);
    }

    /// Counts data that a handler has read.
    pub(super) fn on_read(&mut self, bytes: u64) {
        self.unread = self.unread.saturating_sub(bytes);
        self.receive_window.hold(self.unread);
    }

    /// Lowers the peer's flow control limit if memory is short. Called before data is read, because
    /// reading raises it.
    pub(super) fn shrink_receive_window(&mut self, limits: &Limits, stats: &Stats) {
        let shrunk = self.receive_window.shrink(self.unread, limits, stats);
        self.set_receive_window(shrunk);
    }

    /// Corrects `unread` for padding and duplicate packets, which are never read: they have no
    /// STREAM frames.
    fn correct_unread(&mut self) {
        let frames = self.inner.stats().frame_rx.stream;
        let most = (frames - self.stream_frames).saturating_mul(LARGEST_FRAME);
        self.unread = self.unread.saturating_sub(self.came.saturating_sub(most));
        (self.stream_frames, self.came) = (frames, 0);
    }

    fn set_receive_window(&mut self, grown: Option<u64>) {
        if let Some(size) = grown {
            self.inner.set_receive_window(varint(size));
        }
    }

    pub(super) fn handshake(&self) -> Option<Handshake> {
        self.inner.crypto_session().handshake_data()?.downcast().ok().map(|handshake| *handshake)
    }

    /// Stops limiting what is sent to the client's address once that is validated, possibly before
    /// the end of the handshake. A train withheld after that would be missing until quinn-proto
    /// probes for it, long after if earlier probes were in vain.
    pub(super) fn check_address(&mut self) {
        //= RFC 9000 section 8.1
        //# Once an endpoint has successfully processed a Handshake packet from the peer, it can consider the peer address to have been
        //# validated.
        if self.unvalidated.is_some()
            && matches!(self.handshake(), Some(Handshake::Server { address_validated: true, .. }))
        {
            self.unvalidated = None;
        }
    }

    /// Reports the outcome of resumption and early data, once it is decided. Called before
    /// quinn-proto's events are taken.
    pub(super) fn inspect_handshake(
        &mut self,
        events: &mut VecDeque<(ConnectionKey, Event)>,
        stats: &Stats,
    ) {
        if self.inner.side().is_client() {
            self.decided = true;
            if self.inner.has_0rtt() {
                events.push_back((self.key, Event::EarlyData));
            }
        } else if let Some(Handshake::Server {
            handshake: Some(handshake),
            server_name,
            client,
            ..
        }) = self.handshake()
        {
            self.decided = true;
            events.extend(
                handshake
                    .agreed
                    .parameters()
                    .map(|parameters| (self.key, Event::Agreed(parameters))),
            );
            events.extend(server_name.map(|name| (self.key, Event::ServerName(name))));
            events.extend(client.map(|client| (self.key, Event::ClientCertificate(client))));
            handshake.count(&stats.quic_resumed, stats);
            // From now on there are keys to send with, and a client may be waiting for data that
            // its requests depend on.
            events.push_back((self.key, Event::Available));
        }
    }

    /// Adds the connection's new statistics to the worker's, at most once per interval. Returns
    /// whether it did.
    pub(super) fn report_stats(&mut self, now: Instant, stats: &Stats) -> bool {
        let is_due = now >= self.told.next;
        if is_due {
            self.report_all_stats(now, stats);
        }
        is_due
    }

    /// Counts the data that quinn-proto buffers for sending: what is in flight, and about as much
    /// that is not sent yet. Data that the peer's flow control holds back is not accepted.
    pub(super) fn count_sending(&mut self, question: &WindowQuery) {
        let in_flight = question.in_flight(self.inner.congestion_state());
        let most = self.send_window.max_bytes();
        self.send_window.hold(in_flight.saturating_mul(2).min(most));
    }

    /// Adds the connection's new statistics to the worker's.
    pub(super) fn report_all_stats(&mut self, now: Instant, stats: &Stats) {
        self.correct_unread();
        self.receive_window.hold(self.unread);
        let quinn_proto::ConnectionStats { frame_tx, frame_rx, path, .. } = self.inner.stats();
        self.told.next = now + REPORT_INTERVAL;
        let add = |counter: &Counter, told: &mut u64, count: u64| {
            counter.add(count.saturating_sub(*told));
            *told = count;
        };
        add(&stats.quic_packets_sent, &mut self.told.sent, path.sent_packets);
        add(&stats.quic_packets_lost, &mut self.told.lost, path.lost_packets);
        add(
            &stats.quic_held_back_by_peer,
            &mut self.told.held_back,
            frame_tx.data_blocked + frame_tx.stream_data_blocked,
        );
        add(
            &stats.quic_peers_held_back,
            &mut self.told.peer_held_back,
            frame_rx.data_blocked + frame_rx.stream_data_blocked,
        );
        let out_of_streams = frame_rx.streams_blocked_bidi + frame_rx.streams_blocked_uni;
        add(&stats.quic_peers_out_of_streams, &mut self.told.peer_out_of_streams, out_of_streams);
        if !self.inner.is_handshaking() {
            stats.quic_rtt.observe(path.rtt);
        }
    }

    /// Counts the end of a connection whose TLS has panicked.
    pub(super) fn count_panic(reason: &ConnectionError, stats: &Stats) {
        if matches!(reason, ConnectionError::TransportError(error) if error.reason == PANIC_REASON)
        {
            stats.handler_panics.add(1);
        }
    }

    /// Counts how a client's connection ended.
    pub(super) fn count_close(&self, reason: &ConnectionError, stats: &Stats) {
        if self.closed || self.inner.side().is_client() {
            return;
        }
        let (by, code) = match reason {
            ConnectionError::ApplicationClosed(close) => {
                (Closer::Peer, CloseCode::Application(close.error_code.into_inner()))
            }
            ConnectionError::ConnectionClosed(close) => {
                (Closer::Peer, CloseCode::Transport(close.error_code.into()))
            }
            ConnectionError::TransportError(error) => {
                (Closer::Local, CloseCode::Transport(error.code.into()))
            }
            ConnectionError::Reset => return stats.quic_resets_received.add(1),
            // The first is counted where the close is made; the others have no code.
            ConnectionError::LocallyClosed
            | ConnectionError::TimedOut
            | ConnectionError::VersionMismatch
            | ConnectionError::CidsExhausted => return,
        };
        stats.quic_closes.add(by, code);
    }

    pub(super) fn tell_observer(&self) {
        if let Some(observer) = &self.observer {
            let stats = self.inner.stats();
            observer.set(TransportStats {
                bytes_sent: stats.udp_tx.bytes,
                bytes_received: stats.udp_rx.bytes,
                packets_sent: stats.path.sent_packets,
                packets_received: stats.udp_rx.datagrams,
                packets_lost: stats.path.lost_packets,
                rtt: stats.path.rtt,
            });
        }
    }

    /// Raises the limit of concurrent requests by half when three quarters of it are in use, so
    /// that a client that needs more gets it in time. The limit starts low because quinn-proto
    /// cycles through the memory of all allowed streams, and a small set stays in the caches.
    fn allow_requests(&mut self, limits: &Limits) {
        let most = limits.concurrent_streams();
        if !self.inner.side().is_server() || self.allowed_requests >= most {
            return;
        }
        let open = self.inner.streams().remote_open_streams(quinn_proto::Dir::Bi);
        let mut allowed = self.allowed_requests;
        while allowed < most && open > allowed - allowed / 4 {
            // A small last step would not be announced: quinn-proto waits until a frame is
            // worthwhile.
            allowed = if allowed > most / 2 { most } else { allowed + allowed.div_ceil(2) };
        }
        if allowed > self.allowed_requests {
            self.allowed_requests = allowed;
            self.inner.set_max_concurrent_streams(quinn_proto::Dir::Bi, varint(allowed));
        }
    }

    pub(super) fn translate(
        &mut self,
        now: Instant,
        event: quinn_proto::Event,
        events: &mut VecDeque<(ConnectionKey, Event)>,
        limits: &Limits,
        stats: &Stats,
    ) {
        let key = self.key;
        if let quinn_proto::Event::Connected = event {
            let took = now.saturating_duration_since(self.began);
            let (tls, idle_timeout) = match self.handshake() {
                Some(Handshake::Client { summary, idle_timeout }) => (Some(summary), idle_timeout),
                Some(Handshake::Server { handshake, client, .. }) => {
                    events.extend(client.map(|client| (key, Event::ClientCertificate(client))));
                    if let Some(handshake) = handshake {
                        handshake.agreed.count(stats);
                    }
                    stats.quic_handshake.observe(took);
                    (None, None)
                }
                None => (None, None),
            };
            return events
                .push_back((key, Event::Connected { handshake: took, tls, idle_timeout }));
        }
        let mut push = |event| events.push_back((key, event));
        match event {
            quinn_proto::Event::ConnectionLost { reason } => {
                self.closed_by_peer = matches!(
                    reason,
                    ConnectionError::ConnectionClosed(_) | ConnectionError::ApplicationClosed(_)
                );
                if !std::mem::replace(&mut self.closed, true) {
                    push(Event::Closed(closed(reason)));
                }
            }
            quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = self.inner.streams().accept(dir) {
                    push(Event::Readable(from_quinn(id)));
                }
                self.allow_requests(limits);
            }
            quinn_proto::Event::Stream(StreamEvent::Readable { id }) => {
                push(Event::Readable(from_quinn(id)));
            }
            quinn_proto::Event::Stream(StreamEvent::Writable { id }) => {
                push(Event::Writable(from_quinn(id)));
            }
            quinn_proto::Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                push(Event::Stopped(from_quinn(id), error_code.into_inner()));
            }
            quinn_proto::Event::Stream(StreamEvent::Available { .. }) => push(Event::Available),
            // One acknowledgment can finish many small streams.
            quinn_proto::Event::Stream(StreamEvent::Finished { .. }) => match events.back_mut() {
                Some((last, Event::Acknowledged(streams))) if *last == key => *streams += 1,
                _ => events.push_back((key, Event::Acknowledged(1))),
            },
            quinn_proto::Event::DatagramReceived => {
                // All at once: datagrams left here would be dropped for later ones, uncounted.
                while let Some(datagram) = self.inner.datagrams().recv() {
                    self.unread = self.unread.saturating_sub(datagram.len() as u64);
                    push(Event::Datagram(datagram));
                }
            }
            quinn_proto::Event::DatagramsUnblocked => push(Event::DatagramsWritable),
            quinn_proto::Event::Connected | quinn_proto::Event::HandshakeDataReady => {}
        }
    }
}
