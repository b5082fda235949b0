//! The transport based on quinn-proto.

mod accept;
mod config;
mod connection;
mod convert;
mod input;
mod parking;
mod stray_retry;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pronghorn_h3::{Priority, StreamId};
use quinn_proto::{
    ConnectionHandle, ConnectionId, ReadError, ReadableError, SendDatagramError, ServerConfig,
    Side, TokenMemoryCache, TransportConfig, WriteError,
};

pub(crate) use config::{ClientTls, QuinnConfig};

use connection::Connection;
use convert::{
    OWN_STREAMS, from_quinn, from_transmit, headroom, to_quinn, to_quinn_dir, to_quinn_priority,
    varint,
};
use parking::ParkedHandshakes;

use super::congestion::WindowQuery;
use super::connection_id::ReservedId;
use super::{
    ConnectionKey, Datagram, DatagramWrite, Dir, EndpointKeys, Event, Order, Read, Transmit,
    Transport, Write,
};
use crate::connection_limits::ConnectionCounts;
use crate::contained::contained;
use crate::deadlines::compact;
use crate::memory::MemoryPressure;
use crate::qlog::{Trace, Vantage};
use crate::stats::Stats;
use crate::tls::ListenerTls;
use crate::transport_stats::StatsSink;
use crate::window_budget::{WindowBudget, WindowPromise, first_window};

/// RFC 9000, section 7.2 requires at least 8 bytes.
const INITIAL_ID_LEN: usize = 20;
/// Datagrams that a connection may send beyond its congestion window when a handshake timer expires
/// (RFC 9002, section 6.2.4).
const PROBES: usize = 2;
/// GSO trains that one connection may send before another has its turn.
const TRAINS_PER_TURN: u32 = 4;

/// One endpoint and its connections.
pub(crate) struct Quinn {
    endpoint: quinn_proto::Endpoint,
    config: QuinnConfig,
    worker: u8,
    /// For outgoing connections with full windows.
    transport: Arc<TransportConfig>,
    /// Configurations of a server's connections, by receive window; some ten at most.
    server: HashMap<u64, Arc<ServerConfig>, rustc_hash::FxBuildHasher>,
    /// Tokens from servers that validate this side's address the next time; a few for each of the
    /// latest servers.
    tokens: Arc<TokenMemoryCache>,
    connection_counts: Arc<ConnectionCounts>,
    budget: Rc<WindowBudget>,
    question: WindowQuery,
    /// Indexed by quinn-proto's handles. A connection is some 7 KB: boxed, empty slots cost little,
    /// and connections do not move when the vector grows.
    connections: Vec<Option<Box<Connection>>>,
    /// Connections that quinn-proto has dropped, whose received data can still be read until their
    /// end was reported.
    ended: Vec<Box<Connection>>,
    /// The connection whose end was reported last.
    reported_end: Option<ConnectionKey>,
    generation: u32,
    events: VecDeque<(ConnectionKey, Event)>,
    /// Packets that belong to no connection: version negotiation, refusals, stateless resets.
    answers: VecDeque<(quinn_proto::Transmit, Vec<u8>)>,
    /// Connections that may have something to send, each at most once.
    sending: VecDeque<ConnectionKey>,
    deadlines: BinaryHeap<Reverse<(Instant, ConnectionKey)>>,
    /// Reused memory for connections whose deadline has passed; empty between uses.
    due: Vec<ConnectionKey>,
    /// Number of incoming connections whose handshake is not complete.
    handshakes: usize,
    parked: ParkedHandshakes,
    /// Largest UDP payload that is received, in bytes.
    max_udp_payload: u64,
    is_refusing: bool,
    /// Whether the last datagram belonged to no connection here: it would have been refused, or
    /// could not begin one.
    is_stray: bool,
    /// Whether the caller wants such a datagram back rather than refused.
    may_return: bool,
    stats: Arc<Stats>,
    scratch: Vec<u8>,
}

impl Quinn {
    /// Creates an endpoint. `address` is the socket's local address. `may_fragment` means that the
    /// socket cannot prevent fragmentation, so the path MTU cannot be probed.
    pub(crate) fn new(
        config: QuinnConfig,
        worker: u8,
        address: SocketAddr,
        may_fragment: bool,
        stats: Arc<Stats>,
        connection_counts: Arc<ConnectionCounts>,
        budget: Rc<WindowBudget>,
    ) -> Self {
        let reset_key = config.keys.reset_key(address);
        let mut endpoint = EndpointKeys::endpoint(reset_key.clone());
        let ids = config.keys.ids.clone();
        let seed = config.seed;
        let reserved = ReservedId::new();
        let parked = ParkedHandshakes::new(
            ids.generator(worker, seed.map(|seed| seed.map(|byte| !byte))),
            reserved.clone(),
            reset_key,
            config.wakeup.clone(),
        );
        endpoint.cid_generator(move || {
            Box::new(ids.generator(worker, seed).with_reserved(reserved.clone()))
        });
        let max_udp_payload = endpoint.get_max_udp_payload_size();
        endpoint.min_reset_interval(
            Duration::from_secs(1) / config.limits.stateless_resets_per_second() as u32,
        );
        let receive = first_window(&config.limits);
        let transport = Arc::new(config.transport(Side::Client, receive));
        let server = config.server(receive, &stats).map(Arc::new);
        Self {
            endpoint: quinn_proto::Endpoint::new(
                Arc::new(endpoint),
                server.clone(),
                !may_fragment,
                seed,
            ),
            transport,
            server: server.into_iter().map(|server| (receive, server)).collect(),
            question: config.question.clone(),
            config,
            worker,
            tokens: Arc::default(),
            connection_counts,
            budget,
            connections: Vec::new(),
            ended: Vec::new(),
            reported_end: None,
            generation: 0,
            events: VecDeque::new(),
            answers: VecDeque::new(),
            sending: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            due: Vec::new(),
            handshakes: 0,
            parked,
            max_udp_payload,
            is_refusing: false,
            is_stray: false,
            may_return: false,
            stats,
            scratch: Vec::new(),
        }
    }

    /// Sets the TLS configuration of new connections. A client endpoint has none, and stays as it
    /// is.
    pub(crate) fn set_tls(&mut self, tls: ListenerTls) -> Result<(), String> {
        let receive = first_window(&self.config.limits);
        // The configuration contains the log of used tokens, which is kept.
        let Some(server) = self.server.get(&receive) else { return Ok(()) };
        let mut server = ServerConfig::clone(server);
        server.crypto = self.config.set_tls(tls)?;
        let server = Arc::new(server);
        self.endpoint.set_server_config(Some(server.clone()));
        // Those with smaller windows are created again when needed.
        self.server.clear();
        self.server.insert(receive, server);
        Ok(())
    }

    /// Whether new connections are refused.
    pub(crate) fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// Handles a datagram that begins with an Initial or a 0-RTT packet, as
    /// [`Transport::handle_datagram`] does. Returns the datagram if it belongs to no connection of
    /// this endpoint and begins none: it cannot be decrypted, or would be refused because the
    /// endpoint is shutting down.
    pub(crate) fn handle_first(&mut self, now: Instant, datagram: Datagram) -> Option<Datagram> {
        let copy = Datagram { data: datagram.data.clone(), ..datagram };
        self.may_return = true;
        self.is_stray = false;
        self.handle_datagram(now, datagram);
        self.may_return = false;
        self.is_stray.then_some(copy)
    }

    fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.connections
            .get_mut(key.index as usize)?
            .as_deref_mut()
            .filter(|connection| connection.key == key)
    }

    /// Returns a connection that is open, or that has ended and whose end is being reported.
    fn readable(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let open = self.connections.get_mut(key.index as usize).and_then(Option::as_deref_mut);
        open.into_iter()
            .chain(self.ended.iter_mut().map(Box::as_mut))
            .find(|connection| connection.key == key)
    }

    /// Lowers a connection's flow control limit, before a read raises it.
    fn shrink_receive_window(&mut self, key: ConnectionKey) {
        let Self { connections, config, stats, .. } = self;
        let connection = connections.get_mut(key.index as usize).and_then(Option::as_deref_mut);
        if let Some(connection) = connection.filter(|connection| connection.key == key) {
            connection.shrink_receive_window(&config.limits, stats);
        }
    }

    /// Returns the connection of `key`, and marks it as having something to send.
    fn touch(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let connection = self
            .connections
            .get_mut(key.index as usize)?
            .as_deref_mut()
            .filter(|connection| connection.key == key)?;
        if !connection.sending {
            connection.sending = true;
            self.sending.push_back(key);
        }
        Some(connection)
    }

    /// Processes the effects of an input: events, and perhaps packets to send.
    fn drive(&mut self, now: Instant, key: ConnectionKey) {
        self.settle(now, key);
        self.touch(key);
    }

    /// Exchanges events between connection and endpoint, reports the connection's own events, and
    /// queues its deadline.
    fn settle(&mut self, now: Instant, key: ConnectionKey) {
        self.contain(key, |this| this.settle_connection(now, key));
    }

    fn settle_connection(&mut self, now: Instant, key: ConnectionKey) {
        let Self {
            endpoint,
            connections,
            ended,
            events,
            deadlines,
            handshakes,
            config,
            stats,
            question,
            ..
        } = self;
        let Some(slot) = connections.get_mut(key.index as usize) else { return };
        let Some(connection) = slot.as_deref_mut().filter(|connection| connection.key == key)
        else {
            return;
        };
        let mut drained = false;
        while let Some(event) = connection.inner.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(event) = endpoint.handle_event(ConnectionHandle(key.index as usize), event)
            {
                connection.inner.handle_event(event);
            }
        }
        connection.open_send_window(0);
        if !connection.decided {
            connection.inspect_handshake(events, stats);
        }
        while let Some(event) = connection.inner.poll() {
            if let quinn_proto::Event::ConnectionLost { reason } = &event {
                Connection::count_panic(reason, stats);
                connection.count_overrun(reason, &config.limits, stats);
                connection.count_close(reason, stats);
            }
            connection.translate(now, event, events, &config.limits, stats);
        }
        if connection.handshake_until.is_some()
            && (drained || connection.closed || !connection.inner.is_handshaking())
        {
            connection.handshake_until = None;
            if !connection.closed {
                connection.unvalidated = None;
            }
            *handshakes -= 1;
        }
        if drained {
            connection.report_all_stats(now, stats);
            connection.tell_observer();
            let is_untold = connection.closed && !connection.end_reported;
            ended.extend(slot.take().filter(|_| is_untold));
            return;
        }
        if connection.report_stats(now, stats) || connection.send_window.holds() {
            connection.count_sending(question);
        }
        connection.deadline = [connection.inner.poll_timeout(), connection.handshake_until]
            .into_iter()
            .flatten()
            .min();
        if let Some(deadline) = connection.deadline
            && connection.queued_deadline.is_none_or(|queued| deadline < queued)
        {
            connection.queued_deadline = Some(deadline);
            deadlines.push(Reverse((deadline, key)));
            compact(deadlines, connections.len(), |deadline, key| {
                let connection = connections.get(key.index as usize).and_then(Option::as_deref);
                connection.is_some_and(|connection| {
                    connection.key == *key && connection.queued_deadline == Some(deadline)
                })
            });
        }
    }
}

impl Transport for Quinn {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram) {
        if contained(|| self.handle(now, datagram)).is_none() {
            self.stats.handler_panics.add(1);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.continue_parked(now);
        self.expire_parked(now);
        // Each connection once: if several deadlines of one have passed, it would otherwise send
        // the probes of all of them in one burst, and back off as if each had been lost. It must
        // get to send between two of them.
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
            self.contain(key, |this| this.handle_timeout_of(now, key));
        }
        self.due = due;
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let parked = self.parked.next_deadline();
        // Most deadlines are postponed before they expire. An outdated one is replaced here, before
        // it wakes the worker.
        while let Some(Reverse((queued, key))) = self.deadlines.peek().copied() {
            let connection = self
                .connection(key)
                .filter(|connection| connection.queued_deadline == Some(queued));
            let deadline = connection.as_ref().and_then(|connection| connection.deadline);
            if deadline.is_some_and(|deadline| deadline <= queued) {
                return Some(parked.map_or(queued, |parked| parked.min(queued)));
            }
            if let Some(connection) = connection {
                connection.queued_deadline = deadline;
            }
            self.deadlines.pop();
            self.deadlines.extend(deadline.map(|deadline| Reverse((deadline, key))));
        }
        parked
    }

    fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        if let Some(told) = self.reported_end.take() {
            self.ended.retain(|connection| connection.key != told);
        }
        let event = self.events.pop_front();
        if let Some((key, Event::Closed(_))) = &event {
            self.reported_end = Some(*key);
            if let Some(connection) = self.connection(*key) {
                connection.end_reported = true;
            }
        }
        if self.events.is_empty() {
            // The next events use the same memory, which is in the caches; a ring buffer would
            // cycle through all of its memory.
            self.events.clear();
        }
        event
    }

    fn events(&self) -> usize {
        self.events.len()
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        buffer.clear();
        if let Some((transmit, data)) = self.answers.pop_front() {
            buffer.extend_from_slice(&data);
            return Some(from_transmit(&transmit));
        }
        let (question, stats) = (self.question.clone(), self.stats.clone());
        while let Some(&key) = self.sending.front() {
            if let Some(connection) = self.connection(key) {
                let withheld = connection.poll_withheld();
                if let Poll::Ready(Some((transmit, data))) = withheld {
                    buffer.extend_from_slice(&data);
                    return Some(transmit);
                }
                // quinn-proto probes only one packet number space, perhaps one that the peer cannot
                // decrypt yet. The peer then does not answer, the window stays full, and the packet
                // that it waits for, the ServerHello or the client's Finished, is held back
                // forever.
                let probes = std::mem::take(&mut connection.probes);
                if connection.closed || probes {
                    question.begin_packets_without_limit();
                } else {
                    question.begin_packets();
                }
                let segments = if probes { max_segments.min(PROBES) } else { max_segments };
                // quinn-proto would answer a CONNECTION_CLOSE with another one, which is of no use
                // to the peer (RFC 9000, section 10.2.2).
                let may_send = withheld.is_ready() && !connection.closed_by_peer;
                let transmit = if may_send {
                    contained(|| connection.inner.poll_transmit(now, segments, buffer))
                } else {
                    Some(None)
                };
                question.end_packets();
                let Some(transmit) = transmit else {
                    self.abandon(key);
                    self.sending.pop_front();
                    buffer.clear();
                    continue;
                };
                if let Some(mut transmit) = transmit {
                    if !connection.may_send_off_path(&transmit) {
                        stats.amplification_withheld.add(1);
                        buffer.clear();
                        continue;
                    }
                    if !connection.withhold(&mut transmit, buffer, &stats) {
                        buffer.clear();
                        continue;
                    }
                    // After some trains the next connection has its turn, so that a long transfer
                    // does not hold up the others.
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

    fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        server_name: &str,
        tls: &ClientTls,
    ) -> Result<ConnectionKey, String> {
        let mut config = quinn_proto::ClientConfig::new(tls.0.clone());
        let id = ConnectionId::new(&rand::random::<[u8; INITIAL_ID_LEN]>());
        let trace = self
            .config
            .qlog
            .as_ref()
            .and_then(|qlog| qlog.begin(now, &id.to_string(), Vantage::Client, remote.ip()));
        let windows = self.budget.promise(&self.config.limits, &self.stats);
        let receive = windows.receive;
        let transport = match &trace {
            Some(trace) => Arc::new(self.config.traced(Side::Client, receive, trace)),
            None if receive == first_window(&self.config.limits) => self.transport.clone(),
            None => Arc::new(self.config.transport(Side::Client, receive)),
        };
        config.transport_config(transport).token_store(self.tokens.clone());
        config.initial_dst_cid_provider(Arc::new(move || id));
        let (handle, connection) = self
            .endpoint
            .connect(now, config, remote, server_name)
            .map_err(|error| error.to_string())?;
        let key = self.insert(now, handle, connection, (None, windows), None, trace);
        self.drive(now, key);
        Ok(key)
    }

    fn refuse_new(&mut self) {
        // Without a server configuration, quinn-proto would ignore new connections silently, and
        // clients would wait for their timeouts.
        self.is_refusing = true;
    }

    fn waiting_handshakes(&self) -> usize {
        self.parked.len()
    }

    fn refuse_waiting(&mut self) {
        self.refuse_all_parked();
    }

    fn close(&mut self, now: Instant, key: ConnectionKey, code: u64, reason: &str) {
        self.contain(key, |this| this.close_connection(now, key, code, reason));
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
        let connection = self.connection(key)?;
        let id = connection.inner.streams().open(to_quinn_dir(dir))?;
        if dir == Dir::Control {
            connection.own_streams += 1;
            // These streams have what the peer needs to process anything at all: SETTINGS, and
            // dynamic table entries. Setting the priority of a new stream cannot fail.
            let _ = connection.inner.send_stream(id).set_priority(OWN_STREAMS);
        }
        Some(from_quinn(id))
    }

    fn allow_streams(&mut self, key: ConnectionKey, dir: Dir, count: u64) {
        let Some(connection) = self.touch(key) else { return };
        let allowed = match dir {
            Dir::Bidi => &mut connection.allowed_requests,
            Dir::Uni | Dir::Control => &mut connection.allowed_uni,
        };
        if count > *allowed {
            *allowed = count;
            connection.inner.set_max_concurrent_streams(to_quinn_dir(dir), varint(count));
        }
    }

    fn datagram_size(&mut self, key: ConnectionKey) -> Option<usize> {
        if !self.config.takes_datagrams() {
            return None;
        }
        self.connection(key)?.inner.datagrams().max_size()
    }

    fn send_datagram(&mut self, key: ConnectionKey, data: Bytes) -> DatagramWrite {
        let Some(connection) = self.touch(key) else { return DatagramWrite::Refused };
        match connection.inner.datagrams().send(data, false) {
            Ok(()) => DatagramWrite::Done,
            Err(SendDatagramError::Blocked(data)) => DatagramWrite::Blocked(data),
            Err(
                SendDatagramError::UnsupportedByPeer
                | SendDatagramError::Disabled
                | SendDatagramError::TooLarge,
            ) => DatagramWrite::Refused,
        }
    }

    fn read(
        &mut self,
        key: ConnectionKey,
        stream: StreamId,
        mut each: impl FnMut(Bytes) -> bool,
    ) -> Read {
        if self.budget.memory().pressure() >= MemoryPressure::Shrink {
            self.shrink_receive_window(key);
        }
        let Some(connection) = self.readable(key) else { return Read::Gone };
        let mut stream = connection.inner.recv_stream(to_quinn(stream));
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                return Read::Gone;
            }
        };
        let mut bytes = 0;
        let read = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    bytes += chunk.bytes.len() as u64;
                    if !each(chunk.bytes) {
                        break Read::Left;
                    }
                }
                Ok(None) => break Read::Finished,
                Err(ReadError::Blocked) => break Read::Blocked,
                Err(ReadError::Reset(code)) => break Read::Reset(code.into_inner()),
            }
        };
        let credit = chunks.finalize();
        connection.on_read(bytes);
        if credit.should_transmit() {
            self.touch(key);
        }
        read
    }

    fn take_windows(&mut self, key: ConnectionKey) -> Option<WindowPromise> {
        self.readable(key)
            .filter(|connection| connection.closed)
            .map(|connection| connection.receive_window.take())
    }

    fn received_reset(&mut self, key: ConnectionKey, stream: StreamId) -> Option<u64> {
        let code =
            self.connection(key)?.inner.recv_stream(to_quinn(stream)).received_reset().ok()??;
        // The read may have freed the stream's slot for another one.
        self.touch(key);
        Some(code.into_inner())
    }

    fn write(
        &mut self,
        key: ConnectionKey,
        stream: StreamId,
        chunks: &mut VecDeque<Bytes>,
        mut limit: usize,
        ends: bool,
        order: Option<Order>,
    ) -> Write {
        let Some(connection) = self.touch(key) else { return Write::Stopped };
        let id = to_quinn(stream);
        let rank = |order: Order, is_whole| to_quinn_priority(stream, order.priority, is_whole);
        if let Some(order) = order.filter(|order| order.is_new) {
            // Most responses are written at once. An error means that the stream is gone, which the
            // write reports too.
            let _ = connection.inner.send_stream(id).set_priority(rank(order, ends));
        }
        connection.open_send_window(headroom(order.map(|order| order.priority)));
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
                let result = if chunks.len() == 1 {
                    stream.write_chunks(std::slice::from_mut(&mut chunks[0]))
                } else {
                    let mut bytes = 0_usize;
                    let ends = chunks.iter().map(|chunk| {
                        bytes = bytes.saturating_add(chunk.len());
                        bytes
                    });
                    let fits = ends.take_while(|end| *end <= limit).count();
                    stream.write_chunks(&mut chunks.make_contiguous()[..fits])
                };
                // quinn-proto advances the front of a partly written chunk.
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
        let is_whole = ends && written == Write::Done;
        if is_whole {
            // An error means that the peer has stopped the stream, so there is nothing to finish.
            let _ = stream.finish();
        }
        if let Some(order) = order
            // An older stream was incomplete so far. Once complete, it goes before later ones: all
            // the rest of it is here.
            && let so_far = order.is_new && ends
            && rank(order, is_whole) != rank(order, so_far)
        {
            let _ = stream.set_priority(rank(order, is_whole));
        }
        connection.open_send_window(0);
        if written == Write::Blocked {
            self.stats.send_window_waits.add(1);
        }
        written
    }

    fn is_full(&mut self, key: ConnectionKey, other: StreamId) -> bool {
        let Some(connection) = self.touch(key) else { return true };
        // quinn-proto has no query for this, but on a full connection even an empty write is
        // blocked.
        matches!(
            connection.inner.send_stream(to_quinn(other)).write_chunks(&mut []),
            Err(WriteError::Blocked)
        )
    }

    fn acknowledged(&mut self, key: ConnectionKey) -> u64 {
        let question = self.question.clone();
        self.connection(key)
            .map_or(0, |connection| question.acknowledged(connection.inner.congestion_state()))
    }

    fn set_priority(&mut self, key: ConnectionKey, stream: StreamId, priority: Priority) {
        if let Some(connection) = self.connection(key) {
            // An error means that the stream is gone.
            let _ = connection
                .inner
                .send_stream(to_quinn(stream))
                .set_priority(to_quinn_priority(stream, priority, false));
        }
    }

    fn reset(&mut self, key: ConnectionKey, stream: StreamId, code: u64) -> bool {
        let Some(connection) = self.touch(key) else { return false };
        connection.inner.send_stream(to_quinn(stream)).reset(varint(code)).is_ok()
    }

    fn stop(&mut self, key: ConnectionKey, stream: StreamId, code: u64) {
        if let Some(connection) = self.touch(key) {
            // An error means that the stream is already gone.
            let _ = connection.inner.recv_stream(to_quinn(stream)).stop(varint(code));
        }
    }

    fn ping(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.touch(key) {
            connection.inner.ping();
        }
    }
}
