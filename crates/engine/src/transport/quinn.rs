//! The transport on quinn-proto.

mod config;
mod connection;
mod convert;
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
    ConnectionHandle, ConnectionId, DatagramEvent, ReadError, ReadableError, SendDatagramError, ServerConfig, Side, TokenMemoryCache,
    TransportConfig, WriteError,
};

pub(crate) use config::{ClientTls, QuinnConfig};

use connection::{Connection, Exchanged, Told};
use convert::{OWN_STREAMS, from_quinn, from_transmit, headroom, to_codepoint, to_quinn, to_quinn_dir, to_quinn_priority, varint};
use stray_retry::len_without_retry;

use super::congestion::Question;
use super::{Closed, ConnectionKey, Datagram, DatagramWrite, Dir, Event, Order, Read, Transmit, Transport, Write, is_answerable};
use crate::client::StatsSink;
use crate::deadlines::compact;
use crate::qlog::{Trace, Vantage};
use crate::seats::{Seats, Ticket};
use crate::stats::{CloseCode, Closer, Stats};
use crate::window_budget::{ReceiveWindow, WindowBudget, Windows, first_window};

/// The shortest packet that a stateless reset may answer, which has to be smaller (RFC 9000, section 10.3.3).
const SMALLEST_RESETTABLE: usize = 22;
/// RFC 9000, section 7.2 wants 8 bytes at the least.
const INITIAL_ID_LEN: usize = 20;
/// Datagrams that a connection may send beyond its congestion window when a timer of its handshake runs out (RFC 9002, section 6.2.4).
const PROBES: usize = 2;
/// GSO trains that one connection may send before another has its turn.
const TRAINS_PER_TURN: u32 = 4;

/// One endpoint and its connections.
pub(crate) struct Quinn {
    endpoint: quinn_proto::Endpoint,
    config: QuinnConfig,
    worker: u8,
    /// For connections of full windows that this side opens.
    transport: Arc<TransportConfig>,
    /// What a server's connections begin with, by the window for receiving; some ten at the most.
    server: HashMap<u64, Arc<ServerConfig>, rustc_hash::FxBuildHasher>,
    /// What servers gave to prove this side's address with the next time; a few for each of the latest servers.
    tokens: Arc<TokenMemoryCache>,
    seats: Arc<Seats>,
    budget: Rc<WindowBudget>,
    question: Question,
    /// By the library's handles. Each is some 7 KB: a place costs little where nobody is, and none of them moves when there are more.
    connections: Vec<Option<Box<Connection>>>,
    /// Connections of which the library keeps nothing, while what came on them can still be read: until their end has been told.
    ended: Vec<Box<Connection>>,
    /// The connection whose end was told last.
    told_end: Option<ConnectionKey>,
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
    is_refusing: bool,
    /// What came last is for no connection here: it would have been refused, or was no beginning of one.
    is_stray: bool,
    /// Whoever gave it would rather have it back than have it refused.
    may_return: bool,
    stats: Arc<Stats>,
    scratch: Vec<u8>,
}

impl Quinn {
    /// `address`: what the socket is bound to. `may_fragment`: the socket cannot keep the kernel from fragmenting, so the path MTU cannot be probed.
    pub(crate) fn new(
        config: QuinnConfig,
        worker: u8,
        address: SocketAddr,
        may_fragment: bool,
        stats: Arc<Stats>,
        seats: Arc<Seats>,
        budget: Rc<WindowBudget>,
    ) -> Self {
        let mut endpoint = config.keys.endpoint(address);
        let ids = config.keys.ids.clone();
        let seed = config.seed;
        endpoint.cid_generator(move || Box::new(ids.generator(worker, seed)));
        endpoint.min_reset_interval(Duration::from_secs(1) / config.limits.stateless_resets_per_second() as u32);
        let receive = first_window(&config.limits);
        let transport = Arc::new(config.transport(Side::Client, receive));
        let server = config.server(receive, &stats).map(Arc::new);
        Self {
            endpoint: quinn_proto::Endpoint::new(Arc::new(endpoint), server.clone(), !may_fragment, seed),
            transport,
            server: server.into_iter().map(|server| (receive, server)).collect(),
            question: config.question.clone(),
            config,
            worker,
            tokens: Arc::default(),
            seats,
            budget,
            connections: Vec::new(),
            ended: Vec::new(),
            told_end: None,
            generation: 0,
            events: VecDeque::new(),
            answers: VecDeque::new(),
            sending: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            due: Vec::new(),
            handshakes: 0,
            is_refusing: false,
            is_stray: false,
            may_return: false,
            stats,
            scratch: Vec::new(),
        }
    }

    /// Gives connections that begin from here on another TLS, where there are any: an endpoint for clients is left as it is.
    pub(crate) fn set_tls(&mut self, tls: Arc<rustls::ServerConfig>) -> Result<(), String> {
        let receive = first_window(&self.config.limits);
        // The log of used tokens is in it and goes on.
        let Some(server) = self.server.get(&receive) else { return Ok(()) };
        let mut server = ServerConfig::clone(server);
        server.crypto = self.config.set_tls(tls)?;
        let server = Arc::new(server);
        self.endpoint.set_server_config(Some(server.clone()));
        // Those with smaller windows are made anew when they are needed.
        self.server.clear();
        self.server.insert(receive, server);
        Ok(())
    }

    /// Whether new connections are refused.
    pub(crate) fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// As [`Transport::handle_datagram`], for one that begins with an Initial or a 0-RTT packet. Returns it if it is for no connection of this
    /// endpoint and begins none: it cannot be decrypted, or would be refused because the endpoint is leaving.
    pub(crate) fn handle_first(&mut self, now: Instant, datagram: Datagram) -> Option<Datagram> {
        let copy = Datagram { data: datagram.data.clone(), ..datagram };
        self.may_return = true;
        self.is_stray = false;
        self.handle_datagram(now, datagram);
        self.may_return = false;
        self.is_stray.then_some(copy)
    }

    fn connection(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.connections.get_mut(key.index as usize)?.as_deref_mut().filter(|connection| connection.key == key)
    }

    /// The same, or one that has ended and whose end is being told.
    fn readable(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let open = self.connections.get_mut(key.index as usize).and_then(Option::as_deref_mut);
        open.into_iter().chain(self.ended.iter_mut().map(Box::as_mut)).find(|connection| connection.key == key)
    }

    /// The connection of `key`, marked as having something to send.
    fn touch(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(key.index as usize)?.as_deref_mut().filter(|connection| connection.key == key)?;
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
        (ticket, windows): (Option<Ticket>, Windows),
        unproved: Option<Exchanged>,
        trace: Option<Trace>,
    ) -> ConnectionKey {
        let limits = &self.config.limits;
        let handshake_until = ticket.is_some().then(|| now + limits.handshake_timeout());
        let send_window = self.budget.send_window(limits, self.stats.clone());
        self.handshakes += usize::from(handshake_until.is_some());
        self.generation = self.generation.wrapping_add(1);
        let key = ConnectionKey { index: handle.0 as u32, generation: self.generation };
        let index = handle.0;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Box::new(Connection {
            first_remote: inner.remote_address(),
            aside: None,
            allowed_requests: self.config.first_requests(inner.side()),
            allowed_uni: limits.uni_streams(),
            inner,
            key,
            began: now,
            deadline: None,
            queued_deadline: None,
            sending: false,
            trains: 0,
            handshake_until,
            probes: false,
            decided: false,
            trace,
            closed: false,
            closed_by_peer: false,
            end_told: false,
            observer: None,
            told: Told::nothing(now),
            unproved,
            withheld: None,
            send_window,
            receive_window: ReceiveWindow::new(now, windows),
            unread: 0,
            stream_frames: 0,
            unread_then: 0,
            own_streams: 0,
            _ticket: ticket,
        }));
        key
    }

    /// `bytes`: of the datagram that it came with.
    fn accept(&mut self, now: Instant, incoming: quinn_proto::Incoming, bytes: usize) {
        let remote = incoming.remote_address();
        let limits = &self.config.limits;
        self.scratch.clear();
        if self.is_refusing && self.may_return {
            self.is_stray = true;
            return self.endpoint.ignore(incoming);
        }
        if self.is_refusing {
            self.stats.quic_refused.add(1);
            let transmit = self.endpoint.refuse(incoming, &mut self.scratch);
            return self.answer(transmit);
        }
        let pressed = self.handshakes as u64 >= limits.open_handshakes() || self.seats.is_pressed(remote.ip(), limits);
        if pressed && !incoming.remote_address_validated() && incoming.may_retry() {
            self.stats.quic_retries_sent.add(1);
            let transmit = self.endpoint.retry(incoming, &mut self.scratch);
            return self.answer(transmit.expect("invariant: it may be sent, as was asked just before"));
        }
        let ticket = match self.seats.admit(remote.ip(), limits) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                refusal.count(&self.stats);
                self.stats.quic_refused.add(1);
                let transmit = self.endpoint.refuse(incoming, &mut self.scratch);
                return self.answer(transmit);
            }
        };
        let unproved = (!incoming.remote_address_validated()).then_some(Exchanged { received: bytes, sent: 0 });
        let windows = self.budget.promise(limits, &self.stats);
        let qlog = self.config.qlog.as_ref();
        let trace = qlog.and_then(|qlog| qlog.begin(now, &incoming.orig_dst_cid().to_string(), Vantage::Server, remote.ip()));
        let server = self.server_config(&windows, trace.as_ref());
        match self.endpoint.accept(incoming, now, &mut self.scratch, server) {
            Ok((handle, connection)) => {
                let key = self.insert(now, handle, connection, (Some(ticket), windows), unproved, trace);
                self.stats.quic_accepted.add(1);
                self.events.push_back((key, Event::Accepted { remote }));
                self.drive(now, key);
            }
            // It cannot be decrypted: another worker may have begun the connection.
            Err(error) if self.may_return && error.response.is_none() => self.is_stray = true,
            Err(error) => {
                self.stats.quic_refused.add(1);
                if let Some(transmit) = error.response {
                    self.answer(transmit);
                }
            }
        }
    }

    /// The configuration of a connection with these windows; `None` is the endpoint's own.
    fn server_config(&mut self, windows: &Windows, trace: Option<&Trace>) -> Option<Arc<ServerConfig>> {
        let full = self.server.get(&first_window(&self.config.limits))?;
        let receive = windows.receive;
        if let Some(trace) = trace {
            let reduced = receive < first_window(&self.config.limits);
            let mut server = ServerConfig::clone(full);
            if let (true, Some(without_sessions)) = (reduced, &self.config.without_sessions) {
                server.crypto = without_sessions.clone();
            }
            server.transport_config(Arc::new(self.config.traced(Side::Server, receive, trace)));
            return Some(Arc::new(server));
        }
        if let Some(server) = self.server.get(&receive) {
            return Some(server.clone());
        }
        let mut server = ServerConfig::clone(full);
        server.crypto = self.config.without_sessions.clone()?;
        server.transport_config(Arc::new(self.config.transport(Side::Server, receive)));
        let server = Arc::new(server);
        self.server.insert(receive, server.clone());
        Some(server)
    }

    /// Whether a packet of no connection is one that a stateless reset would answer: it names a connection ID that was issued here.
    fn is_resettable(&self, datagram: &[u8]) -> bool {
        datagram.len() >= SMALLEST_RESETTABLE && is_answerable(&self.config.keys.ids, self.worker, datagram)
    }

    fn answer(&mut self, transmit: quinn_proto::Transmit) {
        if self.answers.len() as u64 >= self.config.limits.waiting_answers() {
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
        let Self { endpoint, connections, ended, events, deadlines, handshakes, config, stats, .. } = self;
        let Some(slot) = connections.get_mut(key.index as usize) else { return };
        let Some(connection) = slot.as_deref_mut().filter(|connection| connection.key == key) else { return };
        let mut drained = false;
        while let Some(event) = connection.inner.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(event) = endpoint.handle_event(ConnectionHandle(key.index as usize), event) {
                connection.inner.handle_event(event);
            }
        }
        connection.open_send_window(0);
        if !connection.decided {
            connection.look_at_handshake(events, stats);
        }
        while let Some(event) = connection.inner.poll() {
            if let quinn_proto::Event::ConnectionLost { reason } = &event {
                connection.count_overrun(reason, &config.limits, stats);
                connection.count_close(reason, stats);
            }
            connection.translate(now, event, events, &config.limits, stats);
        }
        if connection.handshake_until.is_some() && (drained || connection.closed || !connection.inner.is_handshaking()) {
            connection.handshake_until = None;
            if !connection.closed {
                connection.unproved = None;
            }
            *handshakes -= 1;
        }
        if drained {
            connection.tell_rest(now, stats);
            connection.tell_observer();
            let is_untold = connection.closed && !connection.end_told;
            ended.extend(slot.take().filter(|_| is_untold));
            return;
        }
        connection.tell_worker(now, stats);
        connection.deadline = [connection.inner.poll_timeout(), connection.handshake_until].into_iter().flatten().min();
        if let Some(deadline) = connection.deadline
            && connection.queued_deadline.is_none_or(|queued| deadline < queued)
        {
            connection.queued_deadline = Some(deadline);
            deadlines.push(Reverse((deadline, key)));
            compact(deadlines, connections.len(), |deadline, key| {
                let connection = connections.get(key.index as usize).and_then(Option::as_deref);
                connection.is_some_and(|connection| connection.key == *key && connection.queued_deadline == Some(deadline))
            });
        }
    }
}

impl Transport for Quinn {
    fn handle_datagram(&mut self, now: Instant, mut datagram: Datagram) {
        if self.config.tls.is_some() {
            datagram.data.truncate(len_without_retry(&datagram.data));
            if datagram.data.is_empty() {
                self.stats.datagrams_ignored.add(1);
                return;
            }
        }
        self.scratch.clear();
        let ecn = datagram.ecn.map(to_codepoint);
        let resettable = self.is_resettable(&datagram.data);
        let (remote, bytes) = (datagram.remote, datagram.data.len());
        match self.endpoint.handle(now, datagram.remote, datagram.local_ip, ecn, datagram.data, &mut self.scratch) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(Some(connection)) = self.connections.get_mut(handle.0) {
                    let key = connection.key;
                    if let Some(exchanged) = &mut connection.unproved {
                        exchanged.received += bytes;
                    }
                    let before = connection.inner.remote_address();
                    if remote != before {
                        connection.note_aside(remote, bytes);
                    }
                    connection.inner.handle_event(event);
                    connection.look_at_address();
                    connection.open_receive_window(now, bytes, &self.config.limits, &self.stats);
                    if connection.inner.remote_address() != before {
                        self.stats.quic_migrations.add(1);
                    }
                    self.drive(now, key);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming, bytes),
            Some(DatagramEvent::Response(transmit)) => {
                // Version negotiation is the only answer with a long header and version 0 (RFC 9000, section 17.2.1).
                if matches!(self.scratch.get(..5), Some([first, 0, 0, 0, 0]) if first & 0x80 != 0) {
                    self.stats.version_negotiations_sent.add(1);
                } else {
                    self.stats.stateless_resets_sent.add(u64::from(resettable));
                    self.stats.stateless_answers_sent.add(1);
                }
                self.answer(transmit);
            }
            // Nothing else keeps the library from answering a packet of this form.
            None if resettable => self.stats.stateless_resets_withheld.add(1),
            None if self.may_return => self.is_stray = true,
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
                connection.probes = connection.probes_handshake();
            }
            if connection.handshake_until.is_some_and(|until| until <= now) && !connection.closed {
                self.stats.handshakes_timed_out.add(1);
                self.close(now, key, 0, "the handshake took too long");
            }
            // Puts the deadline, which may have moved back, into the heap again.
            self.drive(now, key);
        }
        self.due = due;
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        // Most deadlines are put off before they come. What was one is put in its place before anybody is woken for it.
        while let Some(Reverse((queued, key))) = self.deadlines.peek().copied() {
            let connection = self.connection(key).filter(|connection| connection.queued_deadline == Some(queued));
            let deadline = connection.as_ref().and_then(|connection| connection.deadline);
            if deadline.is_some_and(|deadline| deadline <= queued) {
                return Some(queued);
            }
            if let Some(connection) = connection {
                connection.queued_deadline = deadline;
            }
            self.deadlines.pop();
            self.deadlines.extend(deadline.map(|deadline| Reverse((deadline, key))));
        }
        None
    }

    fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        if let Some(told) = self.told_end.take() {
            self.ended.retain(|connection| connection.key != told);
        }
        let event = self.events.pop_front();
        if let Some((key, Event::Closed(_))) = &event {
            self.told_end = Some(*key);
            if let Some(connection) = self.connection(*key) {
                connection.end_told = true;
            }
        }
        if self.events.is_empty() {
            // The next ones lie where these did, which is in the caches; a ring would go on through all of its memory.
            self.events.clear();
        }
        event
    }

    fn events(&self) -> usize {
        self.events.len()
    }

    fn poll_transmit(&mut self, now: Instant, max_segments: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
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
                // The library probes one packet number space only, and it can be one that the peer cannot read yet: it answers nothing, the
                // window stays full, and what it waits for, the ServerHello or the client's Finished, is held back for ever.
                let probes = std::mem::take(&mut connection.probes);
                if connection.closed || probes {
                    question.begin_packets_without_limit();
                } else {
                    question.begin_packets();
                }
                let segments = if probes { max_segments.min(PROBES) } else { max_segments };
                // The library would answer a CONNECTION_CLOSE with one, which the peer has no use for (RFC 9000, section 10.2.2).
                let may_send = withheld.is_ready() && !connection.closed_by_peer;
                let transmit = if may_send { connection.inner.poll_transmit(now, segments, buffer) } else { None };
                question.end_packets();
                if let Some(mut transmit) = transmit {
                    if !connection.may_go_aside(&transmit) {
                        stats.amplification_withheld.add(1);
                        buffer.clear();
                        continue;
                    }
                    if !connection.withhold(&mut transmit, buffer, &stats) {
                        buffer.clear();
                        continue;
                    }
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
        let trace = self.config.qlog.as_ref().and_then(|qlog| qlog.begin(now, &id.to_string(), Vantage::Client, remote.ip()));
        let windows = self.budget.promise(&self.config.limits, &self.stats);
        let receive = windows.receive;
        let transport = match &trace {
            Some(trace) => Arc::new(self.config.traced(Side::Client, receive, trace)),
            None if receive == first_window(&self.config.limits) => self.transport.clone(),
            None => Arc::new(self.config.transport(Side::Client, receive)),
        };
        config.transport_config(transport).token_store(self.tokens.clone());
        config.initial_dst_cid_provider(Arc::new(move || id));
        let (handle, connection) = self.endpoint.connect(now, config, remote, server_name).map_err(|error| error.to_string())?;
        let key = self.insert(now, handle, connection, (None, windows), None, trace);
        self.drive(now, key);
        Ok(key)
    }

    fn refuse_new(&mut self) {
        // Without a configuration the library would be silent, and clients would wait for their time-outs.
        self.is_refusing = true;
    }

    fn close(&mut self, now: Instant, key: ConnectionKey, code: u64, reason: &str) {
        let stats = self.stats.clone();
        if let Some(connection) = self.connection(key) {
            connection.inner.close(now, varint(code), Bytes::copy_from_slice(reason.as_bytes()));
            if !std::mem::replace(&mut connection.closed, true) {
                if connection.inner.side().is_server() {
                    stats.quic_closes.add(Closer::Local, CloseCode::Application(code));
                }
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
        let connection = self.connection(key)?;
        let id = connection.inner.streams().open(to_quinn_dir(dir))?;
        if dir == Dir::Control {
            connection.own_streams += 1;
            // What the peer needs to read anything at all: SETTINGS, and the entries of the dynamic table. A new stream takes it.
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
            Err(SendDatagramError::UnsupportedByPeer | SendDatagramError::Disabled | SendDatagramError::TooLarge) => DatagramWrite::Refused,
        }
    }

    fn read(&mut self, key: ConnectionKey, stream: StreamId, mut each: impl FnMut(Bytes) -> bool) -> Read {
        let Some(connection) = self.readable(key) else { return Read::Gone };
        let mut stream = connection.inner.recv_stream(to_quinn(stream));
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return Read::Gone,
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
        connection.unread = connection.unread.saturating_sub(bytes);
        if credit.should_transmit() {
            self.touch(key);
        }
        read
    }

    fn take_windows(&mut self, key: ConnectionKey) -> Option<Windows> {
        self.readable(key).filter(|connection| connection.closed).map(|connection| connection.receive_window.take())
    }

    fn received_reset(&mut self, key: ConnectionKey, stream: StreamId) -> Option<u64> {
        let code = self.connection(key)?.inner.recv_stream(to_quinn(stream)).received_reset().ok()??;
        // The stream's place may go to another one.
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
            // Most responses are written at once. An error says that the stream is gone, as the write will.
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
        let is_whole = ends && written == Write::Done;
        if is_whole {
            // An error says that the peer has stopped the stream; then there is nothing to finish.
            let _ = stream.finish();
        }
        if let Some(order) = order
            // A stream that is not new was not whole before. Once it is, it goes before later ones: all that is left of it is here.
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
        // The library does not tell; but where the connection is full it refuses even nothing.
        matches!(connection.inner.send_stream(to_quinn(other)).write_chunks(&mut []), Err(WriteError::Blocked))
    }

    fn acknowledged(&mut self, key: ConnectionKey) -> u64 {
        let question = self.question.clone();
        self.connection(key).map_or(0, |connection| question.acknowledged(connection.inner.congestion_state()))
    }

    fn set_priority(&mut self, key: ConnectionKey, stream: StreamId, priority: Priority) {
        if let Some(connection) = self.connection(key) {
            // An error says that the stream is gone, and with it what was to be ordered.
            let _ = connection.inner.send_stream(to_quinn(stream)).set_priority(to_quinn_priority(stream, priority, false));
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

    fn ping(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.touch(key) {
            connection.inner.ping();
        }
    }
}
