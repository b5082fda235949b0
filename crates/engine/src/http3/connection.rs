//! One HTTP/3 connection: between the transport's streams and the handles of requests.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pronghorn_h3::{self as h3, ConnectionError, ErrorCode, Event, Head, Priority, Role, StreamId, UniStream};
use rand::Rng;

use super::client::ConnectionState;
use super::fields::LatestAuthority;
use super::framing::{Framed, Framer};
use super::patience::Patience;
use super::schedule::Schedule;
use super::stream::{Dirty, Stream, StreamError};
use super::{fields, limits};
use crate::context::Context;
use crate::limits::Limits;
use crate::message::{Peer, Protocol};
use crate::progress::Progress;
use crate::qlog::{StreamSide, StreamState, Trace};
use crate::transport::{ConnectionKey, Dir, Read, Transport, Write};
use crate::{Incoming, Request, Responder, Response};

/// Bytes read from one stream before others have their turn.
const READ_BYTES: usize = 64 << 10;

pub(super) struct Connection {
    key: ConnectionKey,
    remote: SocketAddr,
    alt_svc: Option<HeaderValue>,
    h3: h3::Connection,
    context: Rc<Context>,
    dirty: Rc<Dirty>,
    requests: HashMap<StreamId, Exchange, rustc_hash::FxBuildHasher>,
    /// The requests with bytes to write that the transport may take.
    schedule: Schedule,
    /// [`Connection::write`] has something to do.
    wants_to_write: bool,
    /// Something has been read that [`Connection::on_deferred`] hands on.
    deferred: bool,
    /// The same, and nobody has been told yet.
    deferred_news: bool,
    dropped_priority_updates: u64,
    /// Our unidirectional streams, and what the transport has not taken of them.
    uni: [OwnUni; UniStream::ALL.len()],
    /// Requests that wait until the peer allows another stream.
    waiting: VecDeque<Rc<Stream>>,
    /// Streams whose last byte was handed over and not yet acknowledged.
    unacknowledged: usize,
    draining: bool,
    latest_authority: LatestAuthority,
    client: Option<Rc<ConnectionState>>,
    /// What comes until the handshake is done is early data.
    handshaking: bool,
    trace: Option<Trace>,
    patience: Patience,
    /// Something has happened since [`Connection::rest`] was called last.
    is_roused: bool,
    /// [`Connection::rest`] will be called.
    is_watched: bool,
}

/// The driver's part of a request's stream.
struct Exchange {
    stream: Rc<Stream>,
    priority: Priority,
    /// It is in the schedule, under its priority.
    scheduled: bool,
    /// Framed bytes that wait for the transport.
    wire: VecDeque<Bytes>,
    /// The stream ends after these bytes; otherwise more is to come, or never will as it was reset.
    fin: bool,
    sent: bool,
    received: bool,
    progress: Progress,
}

impl Connection {
    pub(super) fn server(
        key: ConnectionKey,
        remote: SocketAddr,
        context: Rc<Context>,
        dirty: Rc<Dirty>,
        alt_svc: Option<HeaderValue>,
    ) -> Self {
        Self { alt_svc, ..Self::new(key, remote, Role::Server, context, dirty, None) }
    }

    pub(super) fn client(
        key: ConnectionKey,
        remote: SocketAddr,
        context: Rc<Context>,
        dirty: Rc<Dirty>,
        state: Rc<ConnectionState>,
    ) -> Self {
        Self::new(key, remote, Role::Client, context, dirty, Some(state))
    }

    fn new(
        key: ConnectionKey,
        remote: SocketAddr,
        role: Role,
        context: Rc<Context>,
        dirty: Rc<Dirty>,
        client: Option<Rc<ConnectionState>>,
    ) -> Self {
        Self {
            key,
            remote,
            alt_svc: None,
            h3: protocol(role, &context),
            context,
            dirty,
            requests: HashMap::default(),
            schedule: Schedule::default(),
            wants_to_write: false,
            deferred: false,
            deferred_news: false,
            dropped_priority_updates: 0,
            uni: Default::default(),
            waiting: VecDeque::new(),
            unacknowledged: 0,
            draining: false,
            latest_authority: LatestAuthority::default(),
            client,
            handshaking: true,
            trace: None,
            patience: Patience::default(),
            is_roused: false,
            is_watched: false,
        }
    }

    /// Something happens. Whether the connection has been at rest, so that somebody has to see when it is again.
    pub(super) fn rouse(&mut self) -> bool {
        self.is_roused = true;
        !std::mem::replace(&mut self.is_watched, true)
    }

    /// Gives back what is kept for the next requests, unless something has happened since this was called last. Whether it has nothing
    /// more to give.
    pub(super) fn rest(&mut self) -> bool {
        if std::mem::take(&mut self.is_roused) {
            return false;
        }
        self.is_watched = false;
        self.h3.release_memory();
        self.schedule.release_memory();
        self.requests.shrink_to_fit();
        self.uni.iter_mut().for_each(|uni| uni.queue.shrink_to_fit());
        self.waiting.shrink_to_fit();
        self.patience.release_memory();
        true
    }

    /// When [`Connection::check_patience`] has to be called, if that is news.
    pub(super) fn next_check(&mut self) -> Option<Instant> {
        self.patience.take_news()
    }

    /// Ends what the peer has left waiting until now: heads that are not complete, responses that it does not take.
    pub(super) fn check_patience(&mut self, transport: &mut impl Transport, now: Instant) {
        if !self.patience.is_due(now) {
            return;
        }
        let context = self.context.clone();
        let stats = &context.stats;
        while let Some(id) = self.patience.overdue_head(now) {
            stats.head_timeouts.add(1);
            stats.requests_refused.add(1);
            self.stop(transport, id, ErrorCode::H3_REQUEST_REJECTED);
            self.abort(transport, id, ErrorCode::H3_REQUEST_REJECTED);
        }
        let deadline = |exchange: &Exchange| exchange.progress.deadline();
        let overdue = self.requests.iter().filter(|(_, exchange)| deadline(exchange).is_some_and(|deadline| deadline <= now));
        for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.requests[&id].progress.count(stats);
            self.stop(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
            self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
            self.on_inbound_end(id, Err(StreamError::Reset(ErrorCode::H3_REQUEST_CANCELLED)));
        }
        let next = self.requests.values().filter_map(deadline).chain(self.patience.next_head()).min();
        if let Some(next) = next {
            self.patience.expect(next);
        }
    }

    /// The stream may have to bring more of its head.
    fn expect_head(&mut self, transport: &mut impl Transport, id: StreamId) {
        if self.client.is_some() || !id.is_bidi() || self.requests.contains_key(&id) || self.patience.knows(id) {
            return;
        }
        let limits = &self.context.config.limits;
        if let Some(counted) = self.context.partial_heads.add(limits.partial_heads()) {
            return self.patience.begin_head(id, self.context.handle.now() + limits.head_timeout(), counted);
        }
        self.context.stats.partial_heads_refused.add(1);
        self.context.stats.requests_refused.add(1);
        self.stop(transport, id, ErrorCode::H3_REQUEST_REJECTED);
        self.abort(transport, id, ErrorCode::H3_REQUEST_REJECTED);
    }

    /// The handshake is done; early data was refused if it says so.
    pub(super) fn on_connected(&mut self, transport: &mut impl Transport, early_data_accepted: Option<bool>) {
        self.handshaking = false;
        if early_data_accepted == Some(false) {
            self.begin_again();
        }
        self.on_available(transport);
    }

    /// The server has thrown away all that was sent to it, unread. It is sent again on the same connection, in the same order.
    fn begin_again(&mut self) {
        self.h3 = protocol(Role::Client, &self.context);
        self.uni = Default::default();
        self.unacknowledged = 0;
        let mut lost: Vec<_> = self.requests.drain().collect();
        lost.sort_unstable_by_key(|(id, _)| *id);
        for (_, Exchange { stream, .. }) in lost.into_iter().rev() {
            stream.send_again();
            stream.is_waiting.set(true);
            self.waiting.push_front(stream);
        }
    }

    /// Writes what happens to `trace` from here on, if there is one.
    pub(super) fn trace(&mut self, trace: Option<Trace>) {
        self.trace = trace;
        self.traced(|trace, now| {
            trace.settings(now, true, &self.h3.own_settings());
        });
    }

    fn traced(&self, write: impl FnOnce(&Trace, Instant)) {
        if let Some(trace) = &self.trace {
            write(trace, self.context.handle.now());
        }
    }

    pub(super) fn client_state(&self) -> Option<&Rc<ConnectionState>> {
        self.client.as_ref()
    }

    /// First call: announces the shutdown. Second call: names the last request; the connection may then end.
    pub(super) fn go_away(&mut self, transport: &mut impl Transport, last: bool) {
        self.h3.go_away();
        self.draining |= last;
        self.write_uni(transport);
    }

    /// Whether all that was promised is done after [`Connection::go_away`].
    pub(super) fn is_drained(&self) -> bool {
        self.draining && self.requests.is_empty() && self.h3.open_streams() == 0 && self.unacknowledged == 0
    }

    pub(super) fn on_acknowledged(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// More streams may be opened: the peer allows them, or the handshake is done.
    pub(super) fn on_available(&mut self, transport: &mut impl Transport) {
        self.write_uni(transport);
        while let Some(stream) = self.waiting.pop_front() {
            if stream.is_discarding() {
                // Given up before it began.
                stream.on_closed();
            } else if self.open(transport, &stream) {
                self.flush(transport, &stream);
            } else {
                self.waiting.push_front(stream);
                break;
            }
        }
    }

    pub(super) fn on_readable(&mut self, transport: &mut impl Transport, id: StreamId) -> Result<(), ConnectionError> {
        self.read(transport, id)?;
        // What came may be what other streams have waited for.
        while let Some(unblocked) = self.h3.poll_unblocked() {
            self.read(transport, unblocked)?;
        }
        Ok(())
    }

    fn read(&mut self, transport: &mut impl Transport, id: StreamId) -> Result<(), ConnectionError> {
        loop {
            if self.h3.is_blocked(id) {
                // It is not read until its field section can be decoded: the flow control window bounds what follows.
                if let Some(code) = transport.received_reset(self.key, id) {
                    self.h3.handle_reset(id, code)?;
                    self.on_events(transport);
                }
                return Ok(());
            }
            let room = self.requests.get(&id).map_or(READ_BYTES, |exchange| exchange.stream.inbound_room());
            if room == 0 {
                return Ok(());
            }
            let mut taken = 0;
            let mut blocked = false;
            let mut more = false;
            let mut finished = false;
            while taken < room.min(READ_BYTES) {
                match transport.read(self.key, id) {
                    Read::Data(data) => {
                        taken += data.len();
                        self.h3.handle_data(id, data)?;
                        if self.h3.is_blocked(id) {
                            self.context.stats.qpack_streams_blocked.add(1);
                            break;
                        }
                        continue;
                    }
                    Read::Finished => {
                        self.h3.handle_fin(id)?;
                        finished = true;
                    }
                    Read::Reset(code) => self.h3.handle_reset(id, code)?,
                    Read::Blocked => more = true,
                    Read::Gone => {}
                }
                blocked = true;
                break;
            }
            // A whole request, or what a client's control and QPACK streams bring between them.
            if self.client.is_none() && if id.is_bidi() { finished && !self.requests.contains_key(&id) } else { blocked } {
                (self.deferred, self.deferred_news) = (true, true);
                return Ok(());
            }
            self.patience.ended = None;
            self.on_events(transport);
            if more && self.patience.ended != Some(id) {
                self.expect_head(transport, id);
            }
            if blocked {
                return Ok(());
            }
        }
    }

    pub(super) fn on_writable(&mut self, transport: &mut impl Transport, id: StreamId) {
        if self.requests.contains_key(&id) {
            self.schedule(id);
        } else {
            self.write_uni(transport);
        }
    }

    pub(super) fn on_stopped(&mut self, transport: &mut impl Transport, id: StreamId, code: u64) -> Result<(), ConnectionError> {
        self.h3.handle_stop_sending(id, code)?;
        self.on_events(transport);
        //= RFC 9000 section 3.5
        //# An endpoint that receives a STOP_SENDING frame MUST send a RESET_STREAM frame if the stream is in the "Ready" or "Send" state.
        // Done before its end was sent, the stream still has bytes that nobody wants.
        if id.is_bidi() && self.requests.get(&id).is_none_or(|exchange| exchange.sent) && transport.reset(self.key, id, code) {
            self.unacknowledged = self.unacknowledged.saturating_sub(1);
            if self.client.is_none() {
                // An answer that is there at once is complete before the peer can take its request back.
                self.h3.handle_late_stop()?;
            }
        }
        Ok(())
    }

    /// The connection is gone: everybody who waits for it learns that.
    pub(super) fn on_closed(&mut self, reason: &str) {
        let error = StreamError::ConnectionClosed(reason.to_owned());
        for (_, exchange) in self.requests.drain() {
            if !exchange.sent {
                self.context.stats.requests_aborted.add(1);
            }
            exchange.stream.on_inbound_end(Err(error.clone()));
            exchange.stream.on_closed();
        }
        for stream in self.waiting.drain(..) {
            stream.on_inbound_end(Err(error.clone()));
            stream.on_closed();
        }
        if let Some(client) = &self.client {
            client.on_closed(reason);
        }
    }

    /// Carries out what a handle did to its stream.
    pub(super) fn on_dirty(&mut self, transport: &mut impl Transport, stream: &Rc<Stream>) -> Result<(), ConnectionError> {
        if stream.id.get().is_none() && !self.open(transport, stream) {
            if !stream.is_waiting.replace(true) {
                self.waiting.push_back(stream.clone());
            }
            return Ok(());
        }
        self.flush(transport, stream);
        match stream.id.get() {
            Some(id) if stream.is_paused() => self.on_readable(transport, id),
            _ => Ok(()),
        }
    }

    fn open(&mut self, transport: &mut impl Transport, stream: &Rc<Stream>) -> bool {
        let Some(id) = transport.open(self.key, Dir::Bidi) else { return false };
        stream.id.set(Some(id));
        if self.h3.open_request(id).is_err() {
            transport.reset(self.key, id, ErrorCode::H3_REQUEST_CANCELLED.0);
            transport.stop(self.key, id, ErrorCode::H3_REQUEST_CANCELLED.0);
            stream.on_inbound_end(Err(StreamError::Refused("it takes no more requests (GOAWAY)".to_owned())));
            stream.on_closed();
        } else {
            let exchange = Exchange::new(stream.clone(), Priority::default(), &self.context.config.limits, self.context.spares.wire());
            self.requests.insert(id, exchange);
        }
        true
    }

    // ---- what the peer sent -----------------------------------------------------------------------------------------------

    /// Whether something has been read since this was asked last that [`Connection::on_deferred`] hands on.
    pub(super) fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred_news)
    }

    /// Hands on what has been read.
    pub(super) fn on_deferred(&mut self, transport: &mut impl Transport) {
        if self.deferred {
            self.on_events(transport);
        }
    }

    fn on_events(&mut self, transport: &mut impl Transport) {
        self.deferred = false;
        while let Some(event) = self.h3.poll_event() {
            self.traced(|trace, now| trace.received(now, &event, self.h3.peer_settings()));
            match event {
                Event::Head { stream, head: Head::Request(head), end } => self.on_request(transport, stream, head, end),
                Event::Head { stream, head: Head::Response(head), end } => self.on_response(transport, stream, head, end),
                Event::Data { stream, data } => {
                    if let Some(exchange) = self.requests.get(&stream) {
                        exchange.stream.on_data(data);
                    }
                }
                Event::Trailers { stream, mut section } => {
                    let memory = fields::Memory::new(section.share());
                    if let Some(exchange) = self.requests.get(&stream)
                        && let Some(trailers) = fields::headers(section.iter(), section.len(), &memory, HeaderMap::new())
                    {
                        exchange.stream.on_trailers(trailers);
                    }
                    self.h3.recycle(section);
                }
                Event::Finished { stream } => self.on_inbound_end(stream, Ok(())),
                Event::Reset { stream, code } => {
                    // A server has nothing to answer to half a request. What it has answered already stays.
                    if self.client.is_none() {
                        self.abort(transport, stream, ErrorCode::H3_REQUEST_CANCELLED);
                    }
                    self.on_inbound_end(stream, Err(StreamError::Reset(code)));
                }
                Event::StreamError { stream, code, reason, limit } => {
                    if let Some(counter) = limit.and_then(|limit| limits::counter(limit, &self.context.stats)) {
                        counter.add(1);
                    }
                    self.on_stream_error(transport, stream, code, reason);
                }
                Event::Unprocessed { stream } => self.on_unprocessed(transport, stream),
                Event::StopSending { stream, .. } => {
                    if let Some(exchange) = self.requests.get_mut(&stream)
                        && !exchange.sent
                    {
                        self.abort(transport, stream, ErrorCode::H3_REQUEST_CANCELLED);
                        self.end_reading(transport, stream);
                    }
                }
                Event::StopUni { stream, code } => {
                    transport.stop(self.key, stream, code.0);
                    self.h3.stop_receiving(stream);
                }
                Event::GoAway { .. } => {
                    if let Some(client) = &self.client {
                        client.on_go_away();
                    }
                }
                Event::PriorityUpdate { stream, priority } => {
                    self.context.stats.priority_updates.add(1);
                    self.set_priority(transport, stream, priority);
                }
                Event::Settings => {
                    let offered = self.h3.peer_settings().map_or(0, |settings| settings.qpack_max_table_capacity);
                    if offered > self.context.config.limits.qpack_encoder_table_bytes() {
                        self.context.stats.qpack_tables_reduced.add(1);
                    }
                }
            }
        }
        let dropped = self.h3.dropped_priority_updates();
        if dropped > self.dropped_priority_updates {
            self.context.stats.priority_updates_dropped.add(dropped - std::mem::replace(&mut self.dropped_priority_updates, dropped));
        }
        // Once for all that came in this turn: what the peer's encoder has to be told of each of many requests fits into one packet.
        self.wants_to_write |= self.h3.wants_uni_write();
    }

    fn on_request(&mut self, transport: &mut impl Transport, id: StreamId, mut head: h3::RequestHead, end: bool) {
        self.context.stats.requests_http3.add(1);
        self.patience.end_head(id);
        let parts = fields::request(&mut head, &self.latest_authority, self.context.spares.map());
        self.h3.recycle(head.into_section());
        let Some(parts) = parts else {
            return self.refuse(transport, id, StatusCode::BAD_REQUEST, ErrorCode::H3_MESSAGE_ERROR);
        };
        let parts = match parts.admit() {
            Ok(parts) => parts,
            Err(refusal) => {
                let code = if refusal.status == StatusCode::BAD_REQUEST { ErrorCode::H3_MESSAGE_ERROR } else { ErrorCode::H3_NO_ERROR };
                return self.refuse(transport, id, refusal.status, code);
            }
        };
        self.latest_authority.note(&parts.uri, &parts.headers);
        let stream = self.context.spares.stream(self.key, id, parts.method.clone(), &self.dirty);
        let asked = if parts.has_priority { fields::priority(&parts.headers) } else { None };
        let priority = asked.map_or(Priority::default(), |value| Priority::from_field(&value));
        let mut exchange = Exchange::new(stream.clone(), priority, &self.context.config.limits, self.context.spares.wire());
        stream.expects_continue.set(parts.expects_continue && !end);
        let body = if end {
            exchange.received = true;
            stream.on_inbound_end(Ok(()));
            Incoming::empty()
        } else {
            Incoming::http3(stream.clone())
        };
        self.requests.insert(id, exchange);
        transport.set_priority(self.key, id, priority);
        let peer = Peer { protocol: Protocol::Http3, remote: self.remote, secure: true, early_data: self.handshaking };
        let request = Request { method: parts.method, uri: parts.uri, headers: parts.headers, peer, body };
        self.context.dispatch(request, Responder::http3(stream, &self.context));
    }

    fn on_response(&mut self, transport: &mut impl Transport, id: StreamId, mut head: h3::ResponseHead, end: bool) {
        let Some(exchange) = self.requests.get_mut(&id) else { return };
        let is_interim = head.is_interim();
        let response = fields::response(&mut head);
        self.h3.recycle(head.into_section());
        match response {
            Some((status, headers)) if is_interim => exchange.stream.on_interim(status, headers),
            Some((status, headers)) => exchange.stream.on_response(status, headers),
            None => return self.on_stream_error(transport, id, ErrorCode::H3_MESSAGE_ERROR, "the response cannot be represented"),
        }
        if end {
            self.on_inbound_end(id, Ok(()));
        }
    }

    fn on_inbound_end(&mut self, id: StreamId, end: Result<(), StreamError>) {
        if let Some(exchange) = self.requests.get_mut(&id) {
            exchange.received = true;
            exchange.stream.on_inbound_end(end);
        }
        self.forget_if_done(id);
    }

    fn on_stream_error(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode, reason: &'static str) {
        if self.client.is_none() && !self.requests.contains_key(&id) {
            if code == ErrorCode::H3_EXCESSIVE_LOAD {
                return self.refuse(transport, id, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, code);
            }
            self.context.stats.requests_refused.add(1);
        }
        self.stop(transport, id, code);
        self.abort(transport, id, code);
        self.on_inbound_end(id, Err(StreamError::Malformed(reason)));
    }

    /// The server goes away and has not processed the request.
    fn on_unprocessed(&mut self, transport: &mut impl Transport, id: StreamId) {
        self.stop(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
        self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
        self.on_inbound_end(id, Err(StreamError::Refused("it goes away (GOAWAY)".to_owned())));
    }

    /// Answers a request that no handler gets to see.
    fn refuse(&mut self, transport: &mut impl Transport, id: StreamId, status: StatusCode, code: ErrorCode) {
        self.context.stats.requests_refused.add(1);
        self.patience.end_head(id);
        self.stop(transport, id, code);
        let stream = self.context.spares.stream(self.key, id, Method::GET, &self.dirty);
        let mut exchange = Exchange::new(stream.clone(), Priority::default(), &self.context.config.limits, self.context.spares.wire());
        exchange.received = true;
        self.requests.insert(id, exchange);
        stream.on_inbound_end(Ok(()));
        stream.respond(Response::new(status));
    }

    fn stop(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode) {
        transport.stop(self.key, id, code.0);
        self.h3.stop_receiving(id);
    }

    /// Resets our side of a stream, if it is not done.
    fn abort(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode) {
        self.patience.end_head(id);
        if let Some(exchange) = self.requests.get_mut(&id) {
            exchange.wire.clear();
            if std::mem::take(&mut exchange.scheduled) {
                self.schedule.remove(id, exchange.priority);
            }
            exchange.stream.on_closed();
            if std::mem::replace(&mut exchange.sent, true) {
                return self.forget_if_done(id);
            }
            exchange.fin = false;
            self.context.stats.requests_aborted.add(1);
        }
        self.traced(|trace, now| trace.stream_state(now, id, StreamSide::Sending, StreamState::ResetSent));
        transport.reset(self.key, id, code.0);
        self.h3.finish_sending(id);
        self.forget_if_done(id);
    }

    fn forget_if_done(&mut self, id: StreamId) {
        if self.requests.get(&id).is_some_and(|exchange| exchange.sent && exchange.received)
            && let Some(Exchange { stream, wire, .. }) = self.requests.remove(&id)
        {
            self.context.spares.keep_wire(wire);
            self.context.spares.keep_stream(stream);
        }
    }

    // ---- what we send -----------------------------------------------------------------------------------------------------

    /// Frames what the application has queued on the stream, to be written when its turn comes.
    fn flush(&mut self, transport: &mut impl Transport, stream: &Rc<Stream>) {
        let Some(id) = stream.id.get() else { return };
        let context = self.context.clone();
        let mut encoded = context.encoded.borrow_mut();
        while let Some(exchange) = self.requests.get_mut(&id)
            && let Some(outbound) = stream.next_outbound()
        {
            let mut framer = Framer {
                id,
                h3: &mut self.h3,
                encoded: &mut encoded,
                alt_svc: self.alt_svc.as_ref(),
                context: &self.context,
                trace: self.trace.as_ref(),
            };
            match framer.frame(stream, outbound, &mut exchange.wire) {
                Framed::More => {}
                Framed::Response { priority, last } => {
                    exchange.fin = last;
                    //= RFC 9218 section 8
                    //# The absence of a priority parameter in an HTTP response indicates the server's disinterest in changing the
                    //# client-provided value.
                    if let Some(said) = priority {
                        let priority = exchange.priority.overridden_by(&said);
                        self.set_priority(transport, id, priority);
                    }
                }
                Framed::Last => exchange.fin = true,
                Framed::Abort(code) => {
                    self.abort(transport, id, code);
                    return self.end_reading(transport, id);
                }
            }
        }
        self.wants_to_write |= self.h3.wants_uni_write();
        self.schedule(id);
        self.end_reading(transport, id);
    }

    /// Puts the stream among those that wait for their turn to be written.
    fn schedule(&mut self, id: StreamId) {
        if let Some(exchange) = self.requests.get_mut(&id)
            && !exchange.sent
            && (exchange.fin || !exchange.wire.is_empty())
        {
            self.wants_to_write = true;
            if !std::mem::replace(&mut exchange.scheduled, true) {
                self.schedule.insert(id, exchange.priority);
            }
        }
    }

    fn set_priority(&mut self, transport: &mut impl Transport, id: StreamId, priority: Priority) {
        let Some(exchange) = self.requests.get_mut(&id) else { return };
        if exchange.priority == priority {
            return;
        }
        if exchange.scheduled {
            self.schedule.remove(id, exchange.priority);
            self.schedule.insert(id, priority);
        }
        exchange.priority = priority;
        transport.set_priority(self.key, id, priority);
    }

    /// Whether [`Connection::write`] has to be called. Asking again gives false until there is more.
    pub(super) fn wants_to_write(&mut self) -> bool {
        std::mem::take(&mut self.wants_to_write)
    }

    /// Gives the transport what it takes, the most urgent first.
    ///
    /// Called when all events and handles of a turn have been heard, so that the order among them does not matter.
    pub(super) fn write(&mut self, transport: &mut impl Transport) {
        // First what the heads refer to: it must not wait for flow control credit that they use up.
        self.write_uni(transport);
        while let Some(turn) = self.schedule.next() {
            let id = turn.id;
            let Some(exchange) = self.requests.get_mut(&id) else { continue };
            exchange.scheduled = false;
            let before = exchange.waiting();
            let written = transport.write(self.key, id, &mut exchange.wire, turn.bytes);
            let waiting = exchange.waiting();
            if self.client.is_none() {
                exchange.progress.on_moved(before - waiting);
                match written {
                    Write::Blocked => exchange.progress.on_blocked(self.context.handle.now()),
                    Write::Done | Write::Stopped => exchange.progress.on_done(),
                    Write::More => {}
                }
                if let Some(deadline) = exchange.progress.deadline() {
                    self.patience.expect(deadline);
                }
            }
            if let Some(trace) = &self.trace {
                trace.wrote(self.context.handle.now(), id, &written, exchange.fin, waiting);
            }
            match written {
                Write::Done if exchange.fin => {
                    //= RFC 9114 section 4.1
                    //# After sending a request, a client MUST close the stream for sending.
                    //= RFC 9114 section 4.1
                    //# Unless using the CONNECT method (see Section 4.4), clients MUST NOT make stream closure dependent on
                    //# receiving a response to their request.
                    //= RFC 9114 section 4.1
                    //# After sending a final response, the server MUST close the stream for sending.
                    transport.finish(self.key, id);
                    exchange.sent = true;
                    self.unacknowledged += 1;
                    self.h3.finish_sending(id);
                }
                Write::Done | Write::Blocked => {}
                Write::More => {
                    exchange.scheduled = true;
                    self.schedule.insert(id, exchange.priority);
                }
                // The peer wants none of it: perhaps it said so before its request was complete, when there was nobody to tell.
                Write::Stopped => {
                    // Work was done for nobody. When there is too much of that, the next that comes from the peer is an error.
                    let _ = self.h3.handle_stop_sending(id, ErrorCode::H3_REQUEST_CANCELLED.0);
                    self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
                    self.end_reading(transport, id);
                    continue;
                }
            }
            exchange.stream.wrote(waiting);
            if exchange.sent {
                self.end_reading(transport, id);
            }
        }
    }

    /// Stops reading what nobody wants any more, and forgets the exchange when that was the last of it.
    fn end_reading(&mut self, transport: &mut impl Transport, id: StreamId) {
        let Some(exchange) = self.requests.get_mut(&id) else { return };
        if !exchange.received && exchange.stream.is_discarding() {
            if self.client.is_some() {
                // The application has dropped the response, so the request is of no use either.
                exchange.received = true;
                self.stop(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
                self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
            } else if exchange.sent {
                exchange.received = true;
                //= RFC 9114 section 4.1
                //# When the server does not need to receive the remainder of the request, it MAY abort reading the request stream, send a
                //# complete response, and cleanly close the sending part of the stream.
                let code = if exchange.fin { ErrorCode::H3_NO_ERROR } else { ErrorCode::H3_REQUEST_CANCELLED };
                self.stop(transport, id, code);
            }
        }
        self.forget_if_done(id);
    }

    /// Writes our control and QPACK streams, opening each as soon as there are bytes for it and the peer allows.
    fn write_uni(&mut self, transport: &mut impl Transport) {
        while let Some((kind, bytes)) = self.h3.poll_uni_write() {
            self.uni[kind as usize].queue.push_back(bytes);
        }
        for (kind, uni) in UniStream::ALL.into_iter().zip(&mut self.uni).filter(|(_, uni)| !uni.queue.is_empty()) {
            uni.id = uni.id.or_else(|| transport.open(self.key, Dir::Uni));
            if let Some(id) = uni.id {
                // What is left is written at the next `Writable` event.
                transport.write(self.key, id, &mut uni.queue, usize::MAX);
            }
            self.h3.set_uni_backlog(kind, uni.queue.iter().map(Bytes::len).sum());
        }
    }
}

fn protocol(role: Role, context: &Context) -> h3::Connection {
    let config = h3::Config::default().with_grease_seed(context.rng.borrow_mut().random());
    let config = limits::apply(config, &context.config.limits).expect("invariant: the table's ranges are within those of HTTP/3");
    h3::Connection::new(role, config)
}

/// A unidirectional stream of ours.
#[derive(Default)]
struct OwnUni {
    /// `None` until the peer allows the stream.
    id: Option<StreamId>,
    queue: VecDeque<Bytes>,
}

impl Exchange {
    fn new(stream: Rc<Stream>, priority: Priority, limits: &Limits, wire: VecDeque<Bytes>) -> Self {
        Self { stream, priority, scheduled: false, wire, fin: false, sent: false, received: false, progress: Progress::new(limits) }
    }

    /// Framed bytes that the transport has not taken.
    fn waiting(&self) -> usize {
        self.wire.iter().map(Bytes::len).sum()
    }
}
