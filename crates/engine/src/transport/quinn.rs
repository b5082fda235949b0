//! The transport on quinn-proto.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::hkdf;
use bytes::Bytes;
use pronghorn_h3::{Priority, StreamId};
use quinn_proto::congestion::ControllerFactory;
use quinn_proto::crypto::HandshakeTokenKey;
use quinn_proto::{
    ConnectionError, ConnectionHandle, ConnectionId, DatagramEvent, EcnCodepoint, EndpointConfig, IdleTimeout, ReadError, ReadableError,
    ServerConfig, StreamEvent, TransportConfig, TransportErrorCode, VarInt, WriteError,
};
use rand::CryptoRng;

use super::congestion::{self, Closing};
use super::session::{self, Handshake, ServerTls};
use super::{Closed, ConnectionIds, ConnectionKey, Datagram, Dir, Ecn, Event, Read, Transmit, Transport, Write};
use crate::TransportStats;
use crate::client::StatsSink;
use crate::config::{Congestion, TransportLimits};
use crate::qlog::{Qlog, Trace, Vantage};
use crate::stats::Stats;

/// RFC 9000, section 15.
const VERSION_1: u32 = 1;
/// Answers to datagrams of no connection that wait to be sent: 128 KiB at the most. A flood of such datagrams gets no more.
const WAITING_ANSWERS: usize = 256;
/// RFC 9000, section 7.2 wants 8 bytes at the least.
const INITIAL_ID_LEN: usize = 20;
/// Bytes in the transport that the congestion window does not let out yet: the largest GSO train.
const UNSENT_BYTES: u64 = 64 << 10;
/// GSO trains that one connection may send before another has its turn.
const TRAINS_PER_TURN: u32 = 4;

/// What the endpoints of all workers of a group share: any of them can check a token that another one gave out, and name the worker
/// of a connection ID.
#[derive(Clone)]
pub(crate) struct EndpointKeys {
    /// Holds the key of stateless resets.
    endpoint: EndpointConfig,
    token: Arc<dyn HandshakeTokenKey>,
    ids: ConnectionIds,
}

impl EndpointKeys {
    pub(crate) fn new() -> Self {
        Self::from_rng(&mut rand::rng())
    }

    pub(crate) fn from_rng(rng: &mut impl CryptoRng) -> Self {
        let mut secret = [0; 64];
        rng.fill_bytes(&mut secret);
        let token = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&secret);
        let mut endpoint = EndpointConfig::default();
        // The library would take the drafts of version 1 as well.
        endpoint.supported_versions(vec![VERSION_1]);
        Self { endpoint, token: Arc::new(token), ids: ConnectionIds::new(rng) }
    }

    pub(crate) fn ids(&self) -> &ConnectionIds {
        &self.ids
    }
}

/// How the connections of one endpoint behave.
pub(crate) struct QuinnConfig {
    keys: EndpointKeys,
    transport: TransportTemplate,
    qlog: Option<Qlog>,
    server: Option<ServerConfig>,
    closing: Closing,
    max_handshakes: usize,
    max_connections: usize,
    /// What each random number of the endpoint comes from, so that a run can be repeated; the operating system otherwise.
    seed: Option<[u8; 32]>,
    max_send_window: u64,
}

/// TLS for connections that this side opens.
#[derive(Clone)]
pub(crate) struct ClientTls(Arc<session::ClientTls>);

impl ClientTls {
    pub(crate) fn new(config: Arc<rustls::ClientConfig>) -> Result<Self, String> {
        session::ClientTls::new(config).map(|tls| Self(Arc::new(tls)))
    }
}

impl QuinnConfig {
    pub(crate) fn new(
        limits: &TransportLimits,
        congestion: Congestion,
        tls: Option<Arc<rustls::ServerConfig>>,
        keys: EndpointKeys,
        qlog: Option<Qlog>,
    ) -> Result<Self, String> {
        let closing = Closing::default();
        let transport = TransportTemplate::new(limits.clone(), congestion::factory(congestion, closing.clone()))?;
        let server = tls
            .map(|tls| {
                let mut server = ServerConfig::new(Arc::new(ServerTls::new(tls)?), keys.token.clone());
                server.transport_config(transport.shared.clone());
                Ok::<_, String>(server)
            })
            .transpose()?;
        Ok(Self {
            keys,
            transport,
            qlog,
            server,
            closing,
            max_handshakes: limits.open_handshakes,
            max_connections: limits.connections,
            max_send_window: limits.send_window_bytes,
            seed: None,
        })
    }

    #[cfg(test)]
    pub(crate) fn with_seed(self, seed: [u8; 32]) -> Self {
        Self { seed: Some(seed), ..self }
    }
}

/// The configuration that connections share, and what it was made from.
#[derive(Clone)]
struct TransportTemplate {
    shared: Arc<TransportConfig>,
    limits: TransportLimits,
    congestion: Arc<dyn ControllerFactory + Send + Sync>,
}

impl TransportTemplate {
    fn new(limits: TransportLimits, congestion: Arc<dyn ControllerFactory + Send + Sync>) -> Result<Self, String> {
        let shared = Arc::new(transport_config(&limits, congestion.clone())?);
        Ok(Self { shared, limits, congestion })
    }

    /// The library ties a trace to a configuration, so a connection that is traced has one of its own.
    fn traced(&self, trace: &Trace) -> Arc<TransportConfig> {
        let mut config = transport_config(&self.limits, self.congestion.clone()).expect("invariant: `new` made one from the same limits");
        config.qlog_stream(Some(trace.transport()));
        Arc::new(config)
    }
}

fn transport_config(limits: &TransportLimits, congestion: Arc<dyn ControllerFactory + Send + Sync>) -> Result<TransportConfig, String> {
    let number = |what: &str, value: u64| VarInt::from_u64(value).map_err(|_| format!("{what} is over 2^62-1"));
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(number("concurrent streams", limits.concurrent_streams.into())?)
        //= RFC 9114 section 6.2
        //# Therefore, the transport parameters sent by both clients and servers MUST allow the peer to create at least
        //# three unidirectional streams.
        // The control stream and two QPACK streams, and room for reserved and unknown types.
        .max_concurrent_uni_streams(VarInt::from_u32(8))
        .stream_receive_window(number("the stream window", limits.stream_window_bytes)?)
        .receive_window(number("the connection window", limits.connection_window_bytes)?)
        .send_window(limits.send_window_bytes)
        .max_idle_timeout(Some(IdleTimeout::try_from(limits.idle_timeout).map_err(|_| "the idle timeout is too long".to_owned())?))
        // HTTP datagrams are not offered yet.
        .datagram_receive_buffer_size(None);
    config.congestion_controller_factory(congestion);
    Ok(config)
}

/// One endpoint and its connections.
pub(crate) struct Quinn {
    endpoint: quinn_proto::Endpoint,
    transport: TransportTemplate,
    qlog: Option<Qlog>,
    server: Option<ServerConfig>,
    closing: Closing,
    connections: Vec<Option<Connection>>,
    generation: u32,
    events: VecDeque<(ConnectionKey, Event)>,
    /// Answers that belong to no connection: version negotiation, refusals, stateless resets.
    answers: VecDeque<(quinn_proto::Transmit, Vec<u8>)>,
    /// Connections that may have something to send, each at most once.
    sending: VecDeque<ConnectionKey>,
    deadlines: BinaryHeap<Reverse<(Instant, ConnectionKey)>>,
    /// Memory for the connections whose deadline has come; empty in between.
    due: Vec<ConnectionKey>,
    /// Connections of peers that have not completed their handshake.
    handshakes: usize,
    max_handshakes: usize,
    max_connections: usize,
    is_refusing: bool,
    max_send_window: u64,
    stats: Arc<Stats>,
    scratch: Vec<u8>,
}

struct Connection {
    inner: quinn_proto::Connection,
    key: ConnectionKey,
    began: Instant,
    deadline: Option<Instant>,
    /// The earliest entry for this connection in the heap of deadlines.
    queued_deadline: Option<Instant>,
    sending: bool,
    /// Trains sent since another connection had its turn.
    trains: u32,
    /// Counted among the open handshakes.
    handshaking: bool,
    /// What becomes of early data is known.
    decided: bool,
    trace: Option<Trace>,
    closed: bool,
    observer: Option<StatsSink>,
}

impl Quinn {
    /// `may_fragment`: the socket cannot keep the kernel from fragmenting, so the path MTU cannot be probed.
    pub(crate) fn new(config: &QuinnConfig, worker: u8, may_fragment: bool, stats: Arc<Stats>) -> Self {
        let mut endpoint = config.keys.endpoint.clone();
        let ids = config.keys.ids.clone();
        let seed = config.seed;
        endpoint.cid_generator(move || Box::new(ids.generator(worker, seed)));
        Self {
            endpoint: quinn_proto::Endpoint::new(Arc::new(endpoint), config.server.clone().map(Arc::new), !may_fragment, seed),
            transport: config.transport.clone(),
            qlog: config.qlog.clone(),
            server: config.server.clone(),
            closing: config.closing.clone(),
            connections: Vec::new(),
            generation: 0,
            events: VecDeque::new(),
            answers: VecDeque::new(),
            sending: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            due: Vec::new(),
            handshakes: 0,
            max_handshakes: config.max_handshakes,
            max_connections: config.max_connections,
            is_refusing: false,
            max_send_window: config.max_send_window,
            stats,
            scratch: Vec::new(),
        }
    }

    fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.connections.get_mut(key.index as usize)?.as_mut().filter(|connection| connection.key == key)
    }

    /// The connection of `key`, marked as having something to send.
    fn touch(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(key.index as usize)?.as_mut().filter(|connection| connection.key == key)?;
        if !connection.sending {
            connection.sending = true;
            self.sending.push_back(key);
        }
        Some(connection)
    }

    fn insert(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        inner: quinn_proto::Connection,
        accepted: bool,
        trace: Option<Trace>,
    ) -> ConnectionKey {
        self.handshakes += usize::from(accepted);
        self.generation = self.generation.wrapping_add(1);
        let key = ConnectionKey { index: handle.0 as u32, generation: self.generation };
        let index = handle.0;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Connection {
            inner,
            key,
            began: now,
            deadline: None,
            queued_deadline: None,
            sending: false,
            trains: 0,
            handshaking: accepted,
            decided: false,
            trace,
            closed: false,
            observer: None,
        });
        key
    }

    fn accept(&mut self, now: Instant, incoming: quinn_proto::Incoming) {
        let remote = incoming.remote_address();
        self.scratch.clear();
        if self.is_refusing || self.endpoint.open_connections() >= self.max_connections {
            self.stats.quic_refused.add(1);
            let transmit = self.endpoint.refuse(incoming, &mut self.scratch);
            return self.answer(transmit);
        }
        if self.handshakes >= self.max_handshakes && incoming.may_retry() {
            self.stats.quic_retries_sent.add(1);
            let transmit = self.endpoint.retry(incoming, &mut self.scratch);
            return self.answer(transmit.expect("invariant: it may be sent, as was asked just before"));
        }
        let trace = self.qlog.as_ref().and_then(|qlog| qlog.begin(now, &incoming.orig_dst_cid().to_string(), Vantage::Server));
        let traced = trace.as_ref().zip(self.server.clone()).map(|(trace, mut server)| {
            server.transport_config(self.transport.traced(trace));
            Arc::new(server)
        });
        match self.endpoint.accept(incoming, now, &mut self.scratch, traced) {
            Ok((handle, connection)) => {
                let key = self.insert(now, handle, connection, true, trace);
                self.stats.quic_accepted.add(1);
                self.events.push_back((key, Event::Accepted { remote }));
                self.drive(now, key);
            }
            Err(error) => {
                self.stats.quic_refused.add(1);
                if let Some(transmit) = error.response {
                    self.answer(transmit);
                }
            }
        }
    }

    fn answer(&mut self, transmit: quinn_proto::Transmit) {
        if self.answers.len() >= WAITING_ANSWERS {
            self.stats.stateless_answers_dropped.add(1);
            return;
        }
        self.answers.push_back((transmit, std::mem::take(&mut self.scratch)));
    }

    /// After input: what it caused comes out as events, and perhaps as packets.
    fn drive(&mut self, now: Instant, key: ConnectionKey) {
        self.settle(now, key);
        self.touch(key);
    }

    /// Moves events between connection and endpoint, and the connection's own to the caller; queues its deadline.
    fn settle(&mut self, now: Instant, key: ConnectionKey) {
        let Self { endpoint, connections, events, deadlines, handshakes, max_send_window, stats, .. } = self;
        let Some(slot) = connections.get_mut(key.index as usize) else { return };
        let Some(connection) = slot.as_mut().filter(|connection| connection.key == key) else { return };
        let mut drained = false;
        while let Some(event) = connection.inner.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(event) = endpoint.handle_event(ConnectionHandle(key.index as usize), event) {
                connection.inner.handle_event(event);
            }
        }
        connection.open_send_window(*max_send_window, 0);
        if !connection.decided {
            connection.look_at_handshake(events, stats);
        }
        while let Some(event) = connection.inner.poll() {
            connection.translate(now, event, events);
        }
        if connection.handshaking && (drained || connection.closed || !connection.inner.is_handshaking()) {
            connection.handshaking = false;
            *handshakes -= 1;
        }
        if drained {
            connection.tell_observer();
            *slot = None;
            return;
        }
        connection.deadline = connection.inner.poll_timeout();
        if let Some(deadline) = connection.deadline
            && connection.queued_deadline.is_none_or(|queued| deadline < queued)
        {
            connection.queued_deadline = Some(deadline);
            deadlines.push(Reverse((deadline, key)));
        }
    }
}

impl Connection {
    /// Lets the library hold what is in flight, as much again for what was lost at its front and holds the rest, and a little
    /// that has not been sent: what is more would go before anything that turns out to be more urgent.
    fn open_send_window(&mut self, max: u64, headroom: u64) {
        let in_flight = self.inner.congestion_state().window().saturating_mul(2);
        self.inner.set_send_window(in_flight.saturating_add(UNSENT_BYTES + headroom).min(max));
    }

    fn handshake(&self) -> Option<Handshake> {
        self.inner.crypto_session().handshake_data()?.downcast().ok().map(|handshake| *handshake)
    }

    /// Looks, until it is decided, at what TLS makes of the session and of early data.
    fn look_at_handshake(&mut self, events: &mut VecDeque<(ConnectionKey, Event)>, stats: &Stats) {
        if self.inner.side().is_client() {
            self.decided = true;
            if self.inner.has_0rtt() {
                events.push_back((self.key, Event::EarlyData));
            }
        } else if let Some(Handshake::Server(handshake)) = self.handshake() {
            self.decided = true;
            handshake.count(&stats.quic_resumed, stats);
        }
    }

    fn tell_observer(&self) {
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

    fn translate(&mut self, now: Instant, event: quinn_proto::Event, events: &mut VecDeque<(ConnectionKey, Event)>) {
        let key = self.key;
        if let quinn_proto::Event::Connected = event {
            let tls = match self.handshake() {
                Some(Handshake::Client(summary)) => Some(summary),
                Some(Handshake::Server(_)) | None => None,
            };
            return events.push_back((key, Event::Connected { handshake: now.saturating_duration_since(self.began), tls }));
        }
        let mut push = |event| events.push_back((key, event));
        match event {
            quinn_proto::Event::ConnectionLost { reason } => {
                if !std::mem::replace(&mut self.closed, true) {
                    push(Event::Closed(closed(reason)));
                }
            }
            quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = self.inner.streams().accept(dir) {
                    push(Event::Readable(from_quinn(id)));
                }
            }
            quinn_proto::Event::Stream(StreamEvent::Readable { id }) => push(Event::Readable(from_quinn(id))),
            quinn_proto::Event::Stream(StreamEvent::Writable { id }) => push(Event::Writable(from_quinn(id))),
            quinn_proto::Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                push(Event::Stopped(from_quinn(id), error_code.into_inner()));
            }
            quinn_proto::Event::Stream(StreamEvent::Available { .. }) => push(Event::Available),
            quinn_proto::Event::Stream(StreamEvent::Finished { .. }) => push(Event::Acknowledged),
            quinn_proto::Event::Connected
            | quinn_proto::Event::HandshakeDataReady
            | quinn_proto::Event::DatagramReceived
            | quinn_proto::Event::DatagramsUnblocked => {}
        }
    }
}

impl Transport for Quinn {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram) {
        self.scratch.clear();
        let ecn = datagram.ecn.map(to_codepoint);
        match self.endpoint.handle(now, datagram.remote, datagram.local_ip, ecn, datagram.data, &mut self.scratch) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(Some(connection)) = self.connections.get_mut(handle.0) {
                    let key = connection.key;
                    let before = connection.inner.remote_address();
                    connection.inner.handle_event(event);
                    if connection.inner.remote_address() != before {
                        self.stats.quic_migrations.add(1);
                    }
                    self.drive(now, key);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
            Some(DatagramEvent::Response(transmit)) => {
                // Version negotiation is the only answer with a long header and version 0 (RFC 9000, section 17.2.1).
                if matches!(self.scratch.get(..5), Some([first, 0, 0, 0, 0]) if first & 0x80 != 0) {
                    self.stats.version_negotiations_sent.add(1);
                } else {
                    self.stats.stateless_answers_sent.add(1);
                }
                self.answer(transmit);
            }
            None => self.stats.datagrams_ignored.add(1),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        // Each connection once: one that has fallen due several times over would send the probes of all of them in one burst and back
        // off as if each had been lost. Between two of them it has to send.
        let mut due = std::mem::take(&mut self.due);
        while let Some(Reverse((deadline, key))) = self.deadlines.peek().copied() {
            if deadline > now {
                break;
            }
            self.deadlines.pop();
            let Some(connection) = self.connection(key) else { continue };
            if connection.queued_deadline == Some(deadline) {
                connection.queued_deadline = None;
                due.push(key);
            }
        }
        for key in due.drain(..) {
            let Some(connection) = self.connection(key) else { continue };
            if connection.deadline.is_some_and(|deadline| deadline <= now) {
                connection.inner.handle_timeout(now);
            }
            // Puts the deadline, which may have moved back, into the heap again.
            self.drive(now, key);
        }
        self.due = due;
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((deadline, _))| *deadline)
    }

    fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        self.events.pop_front()
    }

    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    fn poll_transmit(&mut self, now: Instant, max_segments: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        buffer.clear();
        if let Some((transmit, data)) = self.answers.pop_front() {
            buffer.extend_from_slice(&data);
            return Some(from_transmit(&transmit));
        }
        let closing = self.closing.clone();
        while let Some(&key) = self.sending.front() {
            if let Some(connection) = self.connection(key) {
                closing.set(connection.closed);
                let transmit = connection.inner.poll_transmit(now, max_segments, buffer);
                closing.set(false);
                if let Some(transmit) = transmit {
                    // A long transfer must not hold up the others: after some trains the next connection has its turn.
                    connection.trains += 1;
                    if connection.trains >= TRAINS_PER_TURN {
                        connection.trains = 0;
                        self.sending.rotate_left(1);
                    }
                    return Some(from_transmit(&transmit));
                }
                connection.trains = 0;
                connection.sending = false;
            }
            self.sending.pop_front();
            self.settle(now, key);
        }
        None
    }

    fn connect(&mut self, now: Instant, remote: SocketAddr, server_name: &str, tls: &ClientTls) -> Result<ConnectionKey, String> {
        let mut config = quinn_proto::ClientConfig::new(tls.0.clone());
        let id = ConnectionId::new(&rand::random::<[u8; INITIAL_ID_LEN]>());
        let trace = self.qlog.as_ref().and_then(|qlog| qlog.begin(now, &id.to_string(), Vantage::Client));
        config.transport_config(trace.as_ref().map_or_else(|| self.transport.shared.clone(), |trace| self.transport.traced(trace)));
        config.initial_dst_cid_provider(Arc::new(move || id));
        let (handle, connection) = self.endpoint.connect(now, config, remote, server_name).map_err(|error| error.to_string())?;
        let key = self.insert(now, handle, connection, false, trace);
        self.drive(now, key);
        Ok(key)
    }

    fn refuse_new(&mut self) {
        // Without a configuration the library would be silent, and clients would wait for their time-outs.
        self.is_refusing = true;
    }

    fn close(&mut self, now: Instant, key: ConnectionKey, code: u64, reason: &str) {
        let code = varint(code);
        if let Some(connection) = self.connection(key) {
            connection.inner.close(now, code, Bytes::copy_from_slice(reason.as_bytes()));
            if !std::mem::replace(&mut connection.closed, true) {
                self.events.push_back((key, Event::Closed(Closed::Locally)));
            }
            self.drive(now, key);
        }
    }

    fn trace(&mut self, key: ConnectionKey) -> Option<Trace> {
        self.connection(key)?.trace.clone()
    }

    fn observe(&mut self, key: ConnectionKey, sink: StatsSink) {
        if let Some(connection) = self.connection(key) {
            connection.observer = Some(sink);
        }
    }

    fn measure(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connection(key) {
            connection.tell_observer();
        }
    }

    fn wants_to_send(&self) -> bool {
        !self.sending.is_empty() || !self.answers.is_empty()
    }

    fn open(&mut self, key: ConnectionKey, dir: Dir) -> Option<StreamId> {
        let dir = match dir {
            Dir::Bidi => quinn_proto::Dir::Bi,
            Dir::Uni => quinn_proto::Dir::Uni,
        };
        let connection = self.connection(key)?;
        let id = connection.inner.streams().open(dir)?;
        if dir == quinn_proto::Dir::Uni {
            // What the peer needs to read anything at all: SETTINGS, and the entries of the dynamic table. A new stream takes it.
            let _ = connection.inner.send_stream(id).set_priority(OWN_STREAMS);
        }
        Some(from_quinn(id))
    }

    fn read(&mut self, key: ConnectionKey, stream: StreamId) -> Read {
        let Some(connection) = self.connection(key) else { return Read::Gone };
        let mut stream = connection.inner.recv_stream(to_quinn(stream));
        let (read, credit) = {
            let mut chunks = match stream.read(true) {
                Ok(chunks) => chunks,
                Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return Read::Gone,
            };
            let read = match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => Read::Data(chunk.bytes),
                Ok(None) => Read::Finished,
                Err(ReadError::Blocked) => Read::Blocked,
                Err(ReadError::Reset(code)) => Read::Reset(code.into_inner()),
            };
            (read, chunks.finalize())
        };
        if credit.should_transmit() {
            self.touch(key);
        }
        read
    }

    fn received_reset(&mut self, key: ConnectionKey, stream: StreamId) -> Option<u64> {
        let code = self.connection(key)?.inner.recv_stream(to_quinn(stream)).received_reset().ok()??;
        // The stream's place may go to another one.
        self.touch(key);
        Some(code.into_inner())
    }

    fn write(&mut self, key: ConnectionKey, stream: StreamId, chunks: &mut VecDeque<Bytes>, mut limit: usize) -> Write {
        let max_window = self.max_send_window;
        let Some(connection) = self.touch(key) else { return Write::Stopped };
        let id = to_quinn(stream);
        let priority = connection.inner.send_stream(id).priority().unwrap_or_default();
        connection.open_send_window(max_window, headroom(priority));
        let mut stream = connection.inner.send_stream(id);
        let written = loop {
            let Some(first) = chunks.front_mut() else { break Write::Done };
            if limit == 0 {
                break Write::More;
            }
            let result = if first.len() > limit {
                let mut part = first.split_to(limit);
                let result = stream.write_chunks(std::slice::from_mut(&mut part));
                if !part.is_empty() {
                    chunks.push_front(part);
                }
                result
            } else {
                let mut bytes = 0_usize;
                let ends = chunks.iter().map(|chunk| {
                    bytes = bytes.saturating_add(chunk.len());
                    bytes
                });
                let fits = ends.take_while(|end| *end <= limit).count();
                let result = stream.write_chunks(&mut chunks.make_contiguous()[..fits]);
                // A chunk taken in part has been cut at its front by the library.
                if let Ok(written) = &result {
                    chunks.drain(..written.chunks);
                }
                result
            };
            match result {
                Ok(written) => limit -= written.bytes,
                Err(WriteError::Blocked) => break Write::Blocked,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => break Write::Stopped,
            }
        };
        connection.open_send_window(max_window, 0);
        written
    }

    fn set_priority(&mut self, key: ConnectionKey, stream: StreamId, priority: Priority) {
        if let Some(connection) = self.connection(key) {
            // An error says that the stream is gone, and with it what was to be ordered.
            let _ = connection.inner.send_stream(to_quinn(stream)).set_priority(to_quinn_priority(stream, priority));
        }
    }

    fn finish(&mut self, key: ConnectionKey, stream: StreamId) {
        if let Some(connection) = self.touch(key) {
            // An error says that the peer has stopped the stream; then there is nothing to finish.
            let _ = connection.inner.send_stream(to_quinn(stream)).finish();
        }
    }

    fn reset(&mut self, key: ConnectionKey, stream: StreamId, code: u64) -> bool {
        let Some(connection) = self.touch(key) else { return false };
        connection.inner.send_stream(to_quinn(stream)).reset(varint(code)).is_ok()
    }

    fn stop(&mut self, key: ConnectionKey, stream: StreamId, code: u64) {
        if let Some(connection) = self.touch(key) {
            // An error says that the stream is gone already.
            let _ = connection.inner.recv_stream(to_quinn(stream)).stop(varint(code));
        }
    }
}

fn closed(reason: ConnectionError) -> Closed {
    match reason {
        ConnectionError::ApplicationClosed(close) => {
            Closed::ByPeer { code: close.error_code.into_inner(), reason: String::from_utf8_lossy(&close.reason).into_owned() }
        }
        // RFC 9000, section 10.2.3: what the application has to say is left out until the handshake is done. A client whose early data
        // has been answered may close that soon.
        ConnectionError::ConnectionClosed(close)
            if matches!(close.error_code, TransportErrorCode::NO_ERROR | TransportErrorCode::APPLICATION_ERROR) =>
        {
            Closed::ByPeer { code: 0, reason: String::new() }
        }
        ConnectionError::LocallyClosed => Closed::Locally,
        ConnectionError::TimedOut => Closed::TimedOut,
        ConnectionError::Reset => Closed::Reset,
        other => Closed::Transport(other.to_string()),
    }
}

/// The priority of our unidirectional streams: before every response.
const OWN_STREAMS: i32 = i32::MAX;
/// The library's priorities between two levels of urgency.
const LEVEL: i32 = 1 << 28;
/// Bytes that each level of urgency may have in the transport beyond what the next less urgent one may, so that a page's style
/// sheet need not wait for room that its images have taken.
const HEADROOM_PER_LEVEL: u64 = 16 << 10;

/// The library sends the highest number first and shares between equal ones.
fn to_quinn_priority(stream: StreamId, priority: Priority) -> i32 {
    let level = (3 - i32::from(priority.urgency)) * LEVEL;
    if priority.incremental {
        return level;
    }
    // In the order of the requests. After 2^27 of them on one connection two neighbours may be sent in the wrong order, once.
    let place = (stream.0 / 4) % (LEVEL as u64 / 2);
    level + LEVEL / 2 - place as i32
}

/// How much farther than the least urgent level a stream of this priority may go.
fn headroom(priority: i32) -> u64 {
    let above_least = (priority.div_euclid(LEVEL) + 4).clamp(0, 7);
    above_least as u64 * HEADROOM_PER_LEVEL
}

fn varint(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

fn to_quinn(stream: StreamId) -> quinn_proto::StreamId {
    varint(stream.into()).into()
}

fn from_quinn(stream: quinn_proto::StreamId) -> StreamId {
    StreamId::from(VarInt::from(stream).into_inner())
}

fn from_transmit(transmit: &quinn_proto::Transmit) -> Transmit {
    Transmit {
        remote: transmit.destination,
        local_ip: transmit.src_ip,
        ecn: transmit.ecn.map(from_codepoint),
        size: transmit.size,
        segment_size: transmit.segment_size,
    }
}

fn to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

fn from_codepoint(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}
