//! One HTTP/3 connection: between the transport's streams and the handles of requests.

mod received;
mod sending;
mod sessions;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use pronghorn_h3::{self as h3, ConnectionError, ErrorCode, Priority, Role, StreamId, StreamMap, UniStream};
use rand::Rng;

use self::sessions::Sessions;
use super::client::ConnectionState;
use super::limits;
use super::patience::Patience;
use super::stream::{Dirty, Stream, StreamError};
use crate::Upgrade;
use crate::admission::LatestAuthority;
use crate::context::Context;
use crate::limits::Limits;
use crate::progress::Progress;
use crate::qlog::Trace;
use crate::schedule::Schedule;
use crate::tls::{ClientCertificate, TlsParameters};
use crate::transport::{ConnectionKey, Dir, Transport};

pub(super) struct Connection {
    key: ConnectionKey,
    remote: SocketAddr,
    /// What TLS has agreed on with a client.
    tls: Option<TlsParameters>,
    /// What the client asked for (SNI).
    server_name: Option<Arc<str>>,
    client_certificate: Option<Arc<ClientCertificate>>,
    alt_svc: Option<HeaderValue>,
    h3: h3::Connection,
    context: Rc<Context>,
    dirty: Rc<Dirty>,
    requests: StreamMap<Exchange>,
    /// The requests with bytes to write that the transport may take.
    schedule: Schedule<StreamId>,
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
    /// Extended CONNECTs that wait until the server has said whether it offers that.
    asking: Vec<Rc<Stream>>,
    /// Of those that wait so, how many nobody wants any more.
    given_up: usize,
    /// Streams whose last byte was handed over and not yet acknowledged.
    unacknowledged: usize,
    draining: bool,
    /// A client has sent a request.
    is_used: bool,
    latest_authority: LatestAuthority,
    client: Option<Rc<ConnectionState>>,
    /// What comes until the handshake is done is early data.
    handshaking: bool,
    trace: Option<Trace>,
    patience: Patience,
    /// There from the first request for a WebTransport session on.
    sessions: Option<Box<Sessions>>,
    /// When the peer has to show that it is there: as long as this side waits for it, or a request went on in another protocol.
    ping_at: Option<Instant>,
    /// After how long a silence the connection ends, here or there.
    idle_timeout: Duration,
    /// Something has happened since [`Connection::rest`] was called last.
    is_roused: bool,
    /// [`Connection::rest`] will be called.
    is_watched: bool,
}

/// The shortest idle time-out of a server that is heeded: as short as the limits here allow one to be.
const LEAST_IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// Bytes that are written to their stream as soon as they are framed, where they are all that is left of it.
const SMALL_BYTES: usize = 4 << 10;

/// The driver's part of a request's stream.
struct Exchange {
    stream: Rc<Stream>,
    priority: Priority,
    /// What the response says of it, which overrides what the client says, also later.
    said: Option<Box<Bytes>>,
    /// The transport is told of it with the first bytes: only then it has to keep something for this direction of the stream.
    untold: bool,
    /// It is in the schedule, under its priority.
    scheduled: bool,
    /// Framed bytes that wait for the transport.
    wire: VecDeque<Bytes>,
    /// The stream ends after these bytes; otherwise more is to come, or never will as it was reset.
    fin: bool,
    sent: bool,
    received: bool,
    /// It went on in another protocol, which may be silent as long as it likes.
    tunnel: bool,
    progress: Progress,
    /// Bytes that the peer had acknowledged on all streams when this one was blocked.
    acknowledged: u64,
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
            tls: None,
            server_name: None,
            client_certificate: None,
            alt_svc: None,
            h3: protocol(role, &context),
            idle_timeout: context.config.limits.idle_timeout(),
            context,
            dirty,
            requests: StreamMap::default(),
            schedule: Schedule::default(),
            wants_to_write: false,
            deferred: false,
            deferred_news: false,
            dropped_priority_updates: 0,
            uni: Default::default(),
            waiting: VecDeque::new(),
            asking: Vec::new(),
            given_up: 0,
            unacknowledged: 0,
            draining: false,
            is_used: false,
            latest_authority: LatestAuthority::default(),
            client,
            handshaking: true,
            trace: None,
            patience: Patience::default(),
            sessions: None,
            ping_at: None,
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
        self.asking.shrink_to_fit();
        if let Some(sessions) = &mut self.sessions {
            sessions.release_memory();
        }
        self.patience.release_memory();
        true
    }

    /// When [`Connection::check_patience`] has to be called, if that is news.
    pub(super) fn next_check(&mut self) -> Option<Instant> {
        self.patience.take_news()
    }

    pub(super) fn is_checked_at(&self, time: Instant) -> bool {
        self.patience.asked() == Some(time)
    }

    /// Ends what the peer has left waiting until now: heads that are not complete, responses that it does not take, and, as a server,
    /// content of requests that it has answered.
    pub(super) fn check_patience(&mut self, transport: &mut impl Transport, now: Instant) {
        if !self.patience.is_due(now) {
            return;
        }
        let context = self.context.clone();
        let stats = &context.stats;
        while let Some(id) = self.patience.overdue_head(now) {
            if self.h3.is_early(id) {
                self.give_up_early(transport, id);
                continue;
            }
            stats.head_timeouts.add(1);
            stats.requests_refused.add(1);
            self.stop(transport, id, ErrorCode::H3_REQUEST_REJECTED);
            self.abort(transport, id, ErrorCode::H3_REQUEST_REJECTED);
        }
        let deadline = |exchange: &Exchange| exchange.progress.deadline();
        let overdue = self.requests.iter().filter(|(_, exchange)| deadline(exchange).is_some_and(|deadline| deadline <= now));
        for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.client.is_none() && self.waits_for_its_turn(transport, id, now) {
                continue;
            }
            if let Some(exchange) = self.requests.get(&id) {
                exchange.progress.count(stats);
            }
            self.stop(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
            self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
            self.on_inbound_end(id, Err(StreamError::Reset(ErrorCode::H3_REQUEST_CANCELLED)));
        }
        if self.ping_at.is_some_and(|time| time <= now) {
            self.ping_at = None;
            let is_waiting = self.client.is_some() && !(self.requests.is_empty() && self.waiting.is_empty());
            if is_waiting || self.requests.values().any(|exchange| exchange.tunnel) {
                transport.ping(self.key);
                self.keep_alive();
            }
        }
        let next = self.requests.values().filter_map(deadline).chain(self.patience.next_head()).chain(self.ping_at).min();
        if let Some(next) = next {
            self.patience.expect(next);
        }
    }

    /// Keeps the connection from ending for idling, which is for those that ask nothing.
    pub(super) fn keep_alive(&mut self) {
        if self.ping_at.is_none() {
            let time = self.context.handle.now() + self.idle_timeout / 2;
            self.ping_at = Some(time);
            self.patience.expect(time);
        }
    }

    /// Whether an overdue stream is held back by the others of a connection whose peer takes what its path carries. It gets its time once
    /// more then.
    fn waits_for_its_turn(&mut self, transport: &mut impl Transport, id: StreamId, now: Instant) -> bool {
        let control = self.uni[UniStream::Control as usize].id;
        let Some(exchange) = self.requests.get_mut(&id) else { return false };
        let acknowledged = transport.acknowledged(self.key);
        // On a new path it is counted anew.
        let since = acknowledged.checked_sub(exchange.acknowledged).unwrap_or(acknowledged);
        let waits = exchange.progress.is_enough(since) && control.is_some_and(|control| transport.is_full(self.key, control));
        if waits {
            exchange.progress.on_done();
            exchange.on_blocked(now, acknowledged);
        }
        waits
    }

    /// The stream may have to bring more of its head.
    fn expect_head(&mut self, transport: &mut impl Transport, id: StreamId) {
        let is_early = self.h3.is_early(id);
        let is_known = self.requests.contains_key(&id) || self.patience.knows(id) || self.is_session_stream(id);
        if self.client.is_some() || !(id.is_bidi() || is_early) || is_known {
            return;
        }
        let limits = &self.context.config.limits;
        if let Some(counted) = self.context.partial_heads.add(limits.partial_heads()) {
            return self.patience.begin_head(id, self.context.handle.now() + limits.head_timeout(), counted);
        }
        if is_early {
            return self.give_up_early(transport, id);
        }
        self.context.stats.partial_heads_refused.add(1);
        self.context.stats.requests_refused.add(1);
        self.stop(transport, id, ErrorCode::H3_REQUEST_REJECTED);
        self.abort(transport, id, ErrorCode::H3_REQUEST_REJECTED);
    }

    /// The handshake is done; early data was refused if it says so. `idle_timeout`: the server's.
    pub(super) fn on_connected(
        &mut self,
        transport: &mut impl Transport,
        early_data_accepted: Option<bool>,
        idle_timeout: Option<Duration>,
    ) {
        self.handshaking = false;
        if let Some(shorter) = idle_timeout.filter(|timeout| *timeout < self.idle_timeout) {
            // Less is no time for any path, and would have this side ask all the time.
            self.idle_timeout = shorter.max(LEAST_IDLE_TIMEOUT);
            if self.ping_at.take().is_some() {
                self.keep_alive();
            }
        }
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
        // The streams have the same numbers again.
        self.schedule = Schedule::default();
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
        self.drain_sessions();
        self.write_uni(transport);
    }

    /// Whether all that a client was promised is done after [`Connection::go_away`].
    pub(super) fn is_drained(&self) -> bool {
        self.draining && self.client.is_none() && self.is_done()
    }

    /// Whether a client has sent requests, and all of them are done.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_used && !self.draining && self.client.is_none() && self.is_done()
    }

    /// Whether a client is still about to connect.
    pub(super) fn is_connecting(&self) -> bool {
        self.handshaking && self.client.is_none()
    }

    /// Whether no request is on a connection that this side has opened.
    pub(super) fn is_unused(&self) -> bool {
        self.client.is_some() && !self.handshaking && self.waiting.is_empty() && self.asking.is_empty() && self.is_done()
    }

    fn is_done(&self) -> bool {
        self.requests.is_empty() && self.h3.open_streams() == 0 && self.unacknowledged == 0
    }

    pub(super) fn on_acknowledged(&mut self, streams: usize) {
        self.unacknowledged = self.unacknowledged.saturating_sub(streams);
    }

    /// More streams may be opened: the peer allows them, or the handshake is done.
    pub(super) fn on_available(&mut self, transport: &mut impl Transport) {
        self.write_uni(transport);
        while let Some(stream) = self.waiting.pop_front() {
            if stream.is_discarding() {
                // Given up before it began, as [`Connection::on_dirty`] has seen.
                self.given_up = self.given_up.saturating_sub(1);
            } else if self.open(transport, &stream) {
                self.flush(transport, &stream);
            } else {
                self.waiting.push_front(stream);
                break;
            }
        }
        self.open_session_streams(transport);
    }

    pub(super) fn on_writable(&mut self, transport: &mut impl Transport, id: StreamId) {
        if self.requests.contains_key(&id) {
            self.schedule(id);
        } else if self.is_session_stream(id) {
            self.schedule_session_stream(id);
        } else {
            self.write_uni(transport);
        }
    }

    pub(super) fn on_stopped(&mut self, transport: &mut impl Transport, id: StreamId, code: u64) -> Result<(), ConnectionError> {
        if self.on_session_stream_stopped(transport, id, code)? {
            return Ok(());
        }
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

    pub(super) fn on_client_certificate(&mut self, certificate: Arc<ClientCertificate>) {
        self.client_certificate = Some(certificate);
    }

    pub(super) fn on_agreed(&mut self, parameters: TlsParameters) {
        self.tls = Some(parameters);
    }

    pub(super) fn on_server_name(&mut self, name: Arc<str>) {
        self.server_name = Some(name);
    }

    /// Where the peer is.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The connection is gone: everybody who waits for it learns that. `is_lost`: the peer was not heard from any more.
    pub(super) fn on_closed(&mut self, reason: &str, is_lost: bool) {
        self.end_sessions(reason);
        let error = if is_lost { StreamError::ConnectionLost } else { StreamError::ConnectionClosed(reason.to_owned()) };
        for (_, exchange) in self.requests.drain() {
            if !exchange.sent {
                self.context.stats.requests_aborted.add(1);
            }
            exchange.stream.on_inbound_end(Err(error.clone()));
            exchange.stream.on_closed();
        }
        self.refuse_waiting(reason);
        if let Some(client) = &self.client {
            client.on_closed(reason);
        }
    }

    /// Requests of which nothing was sent can go another way.
    pub(super) fn refuse_waiting(&mut self, reason: &str) {
        for stream in self.waiting.drain(..).chain(self.asking.drain(..)) {
            stream.on_inbound_end(Err(StreamError::Refused(reason.to_owned())));
            stream.on_closed();
        }
    }

    /// Carries out what a handle did to its stream.
    pub(super) fn on_dirty(&mut self, transport: &mut impl Transport, stream: Rc<Stream>) -> Result<(), ConnectionError> {
        if stream.id.get().is_none() && stream.is_discarding() {
            self.on_given_up(&stream);
            return Ok(());
        }
        if stream.id.get().is_none() && stream.asks.borrow().is_some() && !self.may_upgrade(&stream) {
            return Ok(());
        }
        if stream.id.get().is_none() && !self.open(transport, &stream) {
            if !stream.is_waiting.replace(true) {
                self.waiting.push_back(stream.clone());
                stream.on_queued();
            }
            return Ok(());
        }
        self.flush(transport, &stream);
        let read_on = stream.id.get().filter(|_| stream.is_paused());
        // The last owner of it, perhaps.
        self.context.spares.keep_stream(stream);
        read_on.map_or(Ok(()), |id| self.on_readable(transport, id))
    }

    /// Nobody wants what was not begun.
    fn on_given_up(&mut self, stream: &Stream) {
        stream.on_closed();
        if stream.is_waiting.replace(false) {
            self.given_up += 1;
            // Each pays for one other that it leaves in the queue.
            if 2 * self.given_up > self.waiting.len() + self.asking.len() {
                self.waiting.retain(|stream| !stream.is_discarding());
                self.asking.retain(|stream| !stream.is_discarding());
                self.given_up = 0;
            }
        }
    }

    /// Whether an extended CONNECT may go to the server. One that may not has been told so, or waits for the server's SETTINGS.
    fn may_upgrade(&mut self, stream: &Rc<Stream>) -> bool {
        let Some(settings) = self.h3.peer_settings() else {
            if !stream.is_waiting.replace(true) {
                self.asking.push(stream.clone());
                stream.on_queued();
            }
            return false;
        };
        // RFC 8441, section 3: a server that does not offer it would take the request for malformed.
        let is_offered = |upgrade: &Upgrade| {
            // draft-ietf-webtrans-http3-02, section 3.1: this setting implies the other one.
            let webtransport = self.context.config.webtransport && settings.takes_webtransport();
            if sessions::is_webtransport(upgrade) { webtransport } else { settings.enable_connect_protocol }
        };
        let Some(upgrade) = stream.asks.take().filter(|upgrade| !is_offered(upgrade)) else { return true };
        stream.on_inbound_end(Err(StreamError::NotOffered(upgrade)));
        stream.on_closed();
        false
    }

    fn open(&mut self, transport: &mut impl Transport, stream: &Rc<Stream>) -> bool {
        // The answer may take long, and the transport would take that for a peer that is gone.
        self.keep_alive();
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
            stream.on_opened();
        }
        true
    }
}

fn protocol(role: Role, context: &Context) -> h3::Connection {
    let config = h3::Config::default().with_grease_seed(context.rng.borrow_mut().random());
    let config = limits::apply(config, &context.config).expect("invariant: the table's ranges are within those of HTTP/3");
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
        Self {
            stream,
            priority,
            said: None,
            untold: false,
            scheduled: false,
            wire,
            fin: false,
            sent: false,
            received: false,
            tunnel: false,
            progress: Progress::new(limits),
            acknowledged: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.sent && self.received
    }

    /// The transport takes nothing more of it.
    fn on_blocked(&mut self, now: Instant, acknowledged: u64) {
        self.progress.on_blocked(now);
        self.acknowledged = acknowledged;
    }

    /// Whether all that is left of it is a few bytes that can go at once. The transport sends by priority too, so that this takes nothing
    /// from what is more urgent, and the next request finds the memory of this one in the caches.
    fn is_small_and_whole(&self) -> bool {
        self.fin && !self.sent && !self.scheduled && self.waiting() <= SMALL_BYTES
    }

    /// Framed bytes that the transport has not taken.
    fn waiting(&self) -> usize {
        self.wire.iter().map(Bytes::len).sum()
    }
}
