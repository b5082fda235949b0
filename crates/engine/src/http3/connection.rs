//! One HTTP/3 connection: links the transport's streams to the handles of requests.

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
use pronghorn_h3::{
    self as h3, ConnectionError, ErrorCode, Priority, Role, StreamId, StreamMap, UniStream,
};
use rand::Rng;

use self::sessions::Sessions;
use super::client::ConnectionState;
use super::deadlines::Deadlines;
use super::limits;
use super::stream::{Stream, StreamError, WorkQueue};
use super::worker_state::WorkerState;
use crate::Upgrade;
use crate::admission::AuthorityCache;
use crate::context::Context;
use crate::dispatch::Dispatcher;
use crate::handshake_signal::HandshakeSignal;
use crate::limits::Limits;
use crate::progress::WriteProgress;
use crate::qlog::Trace;
use crate::schedule::Schedule;
use crate::tls::{ClientCertificate, TlsParameters};
use crate::transport::{ConnectionKey, Dir, Transport};

pub(super) struct Connection {
    key: ConnectionKey,
    remote: SocketAddr,
    /// TLS parameters of a client connection.
    tls: Option<TlsParameters>,
    /// The server name that the client requested (SNI).
    server_name: Option<Arc<str>>,
    client_certificate: Option<Arc<ClientCertificate>>,
    alt_svc: Option<HeaderValue>,
    h3: h3::Connection,
    context: Rc<Context>,
    dispatcher: Rc<Dispatcher>,
    state: Rc<WorkerState>,
    work_queue: Rc<WorkQueue>,
    requests: StreamMap<Exchange>,
    /// Requests with data that the transport may accept.
    schedule: Schedule<StreamId>,
    /// Whether [`Connection::write`] has work.
    wants_to_write: bool,
    /// Whether events were read that [`Connection::on_deferred`] dispatches.
    deferred: bool,
    /// Whether that was not reported to the driver yet.
    deferred_news: bool,
    dropped_priority_updates: u64,
    /// Our unidirectional streams, and the data that the transport has not accepted.
    uni: [OwnUni; UniStream::ALL.len()],
    /// Requests that wait for stream credit from the peer.
    waiting: VecDeque<Rc<Stream>>,
    /// Extended CONNECTs that wait for the server's SETTINGS.
    awaiting_settings: Vec<Rc<Stream>>,
    /// Number of these waiting requests that were abandoned.
    abandoned: usize,
    /// Streams whose last byte was written and not yet acknowledged.
    unacknowledged: usize,
    draining: bool,
    /// Whether a client has sent a request.
    is_used: bool,
    latest_authority: AuthorityCache,
    client: Option<Rc<ConnectionState>>,
    /// Data received while this is set is early data.
    handshaking: bool,
    /// Present from the first request in early data to the end of the handshake.
    handshake_signal: Option<Rc<HandshakeSignal>>,
    trace: Option<Trace>,
    deadlines: Deadlines,
    /// Present from the first request for a WebTransport session.
    sessions: Option<Box<Sessions>>,
    /// Time of the next ping, while this side waits for the peer or has a tunnel open.
    ping_at: Option<Instant>,
    /// The effective idle timeout: the shorter of both sides.
    idle_timeout: Duration,
    /// Whether there was activity since the last call of [`Connection::release_if_idle`].
    is_active: bool,
    /// Whether a call of [`Connection::release_if_idle`] is scheduled.
    is_watched: bool,
}

/// Shortest idle timeout of a server that is respected: the minimum of our own limit.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// The last bytes of a stream are written as soon as they are framed if they are at most this many.
const SMALL_BYTES: usize = 4 << 10;

/// The driver's part of a request's stream.
struct Exchange {
    stream: Rc<Stream>,
    priority: Priority,
    /// Value of the response's `priority` field, which overrides the client's priority, including
    /// later updates.
    response_priority: Option<Box<Bytes>>,
    /// Whether the stream's priority was not set in the transport yet. It is set with the first
    /// bytes: the transport allocates state for this direction only then.
    priority_unset: bool,
    /// Whether the stream is in the schedule, under its priority.
    scheduled: bool,
    /// Framed bytes that the transport has not accepted.
    wire: VecDeque<Bytes>,
    /// Whether the stream ends after these bytes. Otherwise more follows, or the stream was reset.
    fin: bool,
    sent: bool,
    received: bool,
    /// Whether the request was upgraded to another protocol, which may be silent for any time.
    tunnel: bool,
    progress: WriteProgress,
    /// Bytes that the peer had acknowledged on all streams when this one was blocked.
    acknowledged: u64,
}

impl Connection {
    pub(super) fn server(
        key: ConnectionKey,
        remote: SocketAddr,
        dispatcher: Rc<Dispatcher>,
        worker: Rc<WorkerState>,
        work_queue: Rc<WorkQueue>,
        alt_svc: Option<HeaderValue>,
    ) -> Self {
        Self {
            alt_svc,
            ..Self::new(key, remote, Role::Server, dispatcher, worker, work_queue, None)
        }
    }

    pub(super) fn client(
        key: ConnectionKey,
        remote: SocketAddr,
        dispatcher: Rc<Dispatcher>,
        worker: Rc<WorkerState>,
        work_queue: Rc<WorkQueue>,
        state: Rc<ConnectionState>,
    ) -> Self {
        Self::new(key, remote, Role::Client, dispatcher, worker, work_queue, Some(state))
    }

    fn new(
        key: ConnectionKey,
        remote: SocketAddr,
        role: Role,
        dispatcher: Rc<Dispatcher>,
        worker: Rc<WorkerState>,
        work_queue: Rc<WorkQueue>,
        client: Option<Rc<ConnectionState>>,
    ) -> Self {
        let context = dispatcher.context.clone();
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
            dispatcher,
            state: worker,
            work_queue,
            requests: StreamMap::default(),
            schedule: Schedule::default(),
            wants_to_write: false,
            deferred: false,
            deferred_news: false,
            dropped_priority_updates: 0,
            uni: Default::default(),
            waiting: VecDeque::new(),
            awaiting_settings: Vec::new(),
            abandoned: 0,
            unacknowledged: 0,
            draining: false,
            is_used: false,
            latest_authority: AuthorityCache::default(),
            client,
            handshaking: true,
            handshake_signal: None,
            trace: None,
            deadlines: Deadlines::default(),
            sessions: None,
            ping_at: None,
            is_active: false,
            is_watched: false,
        }
    }

    /// Records activity. Returns whether the connection was idle, so that the driver must schedule
    /// a check.
    pub(super) fn record_activity(&mut self) -> bool {
        self.is_active = true;
        !std::mem::replace(&mut self.is_watched, true)
    }

    /// Releases memory that is kept for later requests, unless there was activity since the last
    /// call. Returns whether the memory was released.
    pub(super) fn release_if_idle(&mut self) -> bool {
        if std::mem::take(&mut self.is_active) {
            return false;
        }
        self.is_watched = false;
        self.h3.release_memory();
        self.schedule.release_memory();
        self.requests.shrink_to_fit();
        self.uni.iter_mut().for_each(|uni| uni.queue.shrink_to_fit());
        self.waiting.shrink_to_fit();
        self.awaiting_settings.shrink_to_fit();
        if let Some(sessions) = &mut self.sessions {
            sessions.release_memory();
        }
        self.deadlines.release_memory();
        true
    }

    /// Returns when [`Connection::check_deadlines`] must be called, if that has changed.
    pub(super) fn next_check(&mut self) -> Option<Instant> {
        self.deadlines.take_new_check()
    }

    pub(super) fn is_checked_at(&self, time: Instant) -> bool {
        self.deadlines.asked() == Some(time)
    }

    /// Ends streams whose peer is late: incomplete heads, responses that the peer does not read,
    /// and, as a server, request content after the response was sent.
    pub(super) fn check_deadlines(&mut self, transport: &mut impl Transport, now: Instant) {
        if !self.deadlines.is_due(now) {
            return;
        }
        let context = self.context.clone();
        let stats = &context.stats;
        while let Some(id) = self.deadlines.overdue_head(now) {
            if self.h3.is_waiting(id) {
                self.refuse_early_stream(transport, id);
                continue;
            }
            stats.head_timeouts.add(1);
            stats.requests_refused.add(1);
            self.stop(transport, id, ErrorCode::H3_REQUEST_REJECTED);
            self.abort(transport, id, ErrorCode::H3_REQUEST_REJECTED);
        }
        let deadline = |exchange: &Exchange| exchange.progress.deadline();
        let overdue = self
            .requests
            .iter()
            .filter(|(_, exchange)| deadline(exchange).is_some_and(|deadline| deadline <= now));
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
            let is_waiting =
                self.client.is_some() && !(self.requests.is_empty() && self.waiting.is_empty());
            if is_waiting || self.requests.values().any(|exchange| exchange.tunnel) {
                transport.ping(self.key);
                self.keep_alive();
            }
        }
        let next = self
            .requests
            .values()
            .filter_map(deadline)
            .chain(self.deadlines.next_head())
            .chain(self.ping_at)
            .min();
        if let Some(next) = next {
            self.deadlines.request_check(next);
        }
    }

    /// Keeps the connection from timing out while it waits; the idle timeout is for connections
    /// without requests.
    pub(super) fn keep_alive(&mut self) {
        if self.ping_at.is_none() {
            let time = self.context.handle.now() + self.idle_timeout / 2;
            self.ping_at = Some(time);
            self.deadlines.request_check(time);
        }
    }

    /// Whether an overdue stream is only held back by the connection's other streams, while the
    /// peer keeps up with its path. The stream then gets the same time again.
    fn waits_for_its_turn(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        now: Instant,
    ) -> bool {
        let control = self.uni[UniStream::Control as usize].id;
        let Some(exchange) = self.requests.get_mut(&id) else { return false };
        let acknowledged = transport.acknowledged(self.key);
        // The counter restarts on a new path.
        let since = acknowledged.checked_sub(exchange.acknowledged).unwrap_or(acknowledged);
        let waits = exchange.progress.is_enough(since)
            && control.is_some_and(|control| transport.is_full(self.key, control));
        if waits {
            exchange.progress.on_done();
            exchange.on_blocked(now, acknowledged);
        }
        waits
    }

    /// Starts the head timeout of a stream, unless it has a complete head.
    fn expect_head(&mut self, transport: &mut impl Transport, id: StreamId) {
        let is_early = self.h3.is_waiting(id);
        let is_known = self.requests.contains_key(&id)
            || self.deadlines.knows(id)
            || self.is_session_stream(id);
        if self.client.is_some() || !(id.is_bidi() || is_early) || is_known {
            return;
        }
        let limits = &self.context.config.limits;
        if let Some(counted) = self.state.partial_heads.add(limits.partial_heads()) {
            return self.deadlines.begin_head(
                id,
                self.context.handle.now() + limits.head_timeout(),
                counted,
            );
        }
        if is_early {
            return self.refuse_early_stream(transport, id);
        }
        self.context.stats.partial_heads_refused.add(1);
        self.context.stats.requests_refused.add(1);
        self.stop(transport, id, ErrorCode::H3_REQUEST_REJECTED);
        self.abort(transport, id, ErrorCode::H3_REQUEST_REJECTED);
    }

    /// Called when the handshake is done. `early_data_accepted` is false if early data was
    /// rejected, `idle_timeout` is the server's.
    pub(super) fn on_connected(
        &mut self,
        transport: &mut impl Transport,
        early_data_accepted: Option<bool>,
        idle_timeout: Option<Duration>,
    ) {
        self.handshaking = false;
        if let Some(signal) = self.handshake_signal.take() {
            signal.end(true);
        }
        if let Some(shorter) = idle_timeout.filter(|timeout| *timeout < self.idle_timeout) {
            // A shorter timeout suits no path, and would make this side send pings all the time.
            self.idle_timeout = shorter.max(MIN_IDLE_TIMEOUT);
            if self.ping_at.take().is_some() {
                self.keep_alive();
            }
        }
        if early_data_accepted == Some(false) {
            self.resend_early_requests();
        }
        self.on_available(transport);
    }

    /// Sends all requests again on the same connection, in the same order: the server has rejected
    /// early data, and discarded it unread.
    fn resend_early_requests(&mut self) {
        self.h3 = protocol(Role::Client, &self.context);
        self.uni = Default::default();
        self.unacknowledged = 0;
        // The streams get the same IDs again.
        self.schedule = Schedule::default();
        let mut lost: Vec<_> = self.requests.drain().collect();
        lost.sort_unstable_by_key(|(id, _)| *id);
        for (_, Exchange { stream, .. }) in lost.into_iter().rev() {
            stream.resend_early();
            stream.is_waiting.set(true);
            self.waiting.push_front(stream);
        }
    }

    /// Sets the trace that records the connection's events from now on, if there is one.
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

    /// Sends GOAWAY. The first call announces the shutdown; the second names the last request, and
    /// the connection may then end.
    pub(super) fn go_away(&mut self, transport: &mut impl Transport, last: bool) {
        self.h3.go_away();
        self.draining |= last;
        self.drain_sessions();
        self.write_uni(transport);
    }

    /// Whether all accepted requests are done after the last [`Connection::go_away`].
    pub(super) fn is_drained(&self) -> bool {
        self.draining && self.client.is_none() && self.is_done()
    }

    /// Whether a client has sent requests, and all of them are done.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_used && !self.draining && self.client.is_none() && self.is_done()
    }

    /// Whether a client's handshake is not done yet.
    pub(super) fn is_connecting(&self) -> bool {
        self.handshaking && self.client.is_none()
    }

    /// Whether this is an outgoing connection without requests.
    pub(super) fn is_unused(&self) -> bool {
        self.client.is_some()
            && !self.handshaking
            && self.waiting.is_empty()
            && self.awaiting_settings.is_empty()
            && self.is_done()
    }

    fn is_done(&self) -> bool {
        self.requests.is_empty() && self.h3.open_streams() == 0 && self.unacknowledged == 0
    }

    pub(super) fn on_acknowledged(&mut self, streams: usize) {
        self.unacknowledged = self.unacknowledged.saturating_sub(streams);
    }

    /// Called when streams may be opened: the peer's limit has grown, or the handshake is done.
    pub(super) fn on_available(&mut self, transport: &mut impl Transport) {
        self.write_uni(transport);
        while let Some(stream) = self.waiting.pop_front() {
            if stream.is_discarding() {
                // The request was abandoned before it began, as counted in
                // [`Connection::on_abandoned`].
                self.abandoned = self.abandoned.saturating_sub(1);
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

    pub(super) fn on_stopped(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        code: u64,
    ) -> Result<(), ConnectionError> {
        if self.on_session_stream_stopped(transport, id, code)? {
            return Ok(());
        }
        self.h3.handle_stop_sending(id, code)?;
        self.on_events(transport);
        //= RFC 9000 section 3.5
        //# An endpoint that receives a STOP_SENDING frame MUST send a RESET_STREAM frame if the stream is in the "Ready" or "Send" state.
        // The exchange is done, but the stream still has unacknowledged bytes.
        if id.is_bidi()
            && self.requests.get(&id).is_none_or(|exchange| exchange.sent)
            && transport.reset(self.key, id, code)
        {
            self.unacknowledged = self.unacknowledged.saturating_sub(1);
            if self.client.is_none() {
                // A response that was complete at once left the peer no time to cancel its request.
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

    /// Returns the peer's address.
    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Called when the connection is gone: notifies everything that waits for it. `is_lost` means
    /// that the connection timed out.
    pub(super) fn on_closed(&mut self, reason: &str, is_lost: bool) {
        if let Some(signal) = self.handshake_signal.take() {
            signal.end(false);
        }
        self.end_sessions(reason);
        let error = if is_lost {
            StreamError::ConnectionLost
        } else {
            StreamError::ConnectionClosed(reason.to_owned())
        };
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

    /// Fails the requests that were not sent at all, so that they can be sent on another
    /// connection.
    pub(super) fn refuse_waiting(&mut self, reason: &str) {
        for stream in self.waiting.drain(..).chain(self.awaiting_settings.drain(..)) {
            stream.on_inbound_end(Err(StreamError::Refused(reason.to_owned())));
            stream.on_closed();
        }
    }

    /// Processes a stream that a handle has changed.
    pub(super) fn process_stream(
        &mut self,
        transport: &mut impl Transport,
        stream: Rc<Stream>,
    ) -> Result<(), ConnectionError> {
        if stream.id.get().is_none() && stream.is_discarding() {
            self.on_abandoned(&stream);
            return Ok(());
        }
        if stream.id.get().is_none()
            && stream.pending_upgrade.borrow().is_some()
            && !self.may_upgrade(&stream)
        {
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
        // This may be the last handle.
        self.state.memory.keep_stream(stream);
        read_on.map_or(Ok(()), |id| self.on_readable(transport, id))
    }

    /// Drops a request that was abandoned before it began.
    fn on_abandoned(&mut self, stream: &Stream) {
        stream.on_closed();
        if stream.is_waiting.replace(false) {
            self.abandoned += 1;
            // Amortized: each abandoned request pays for one other in the queue.
            if 2 * self.abandoned > self.waiting.len() + self.awaiting_settings.len() {
                self.waiting.retain(|stream| !stream.is_discarding());
                self.awaiting_settings.retain(|stream| !stream.is_discarding());
                self.abandoned = 0;
            }
        }
    }

    /// Whether an extended CONNECT may be sent. If not, its stream has got an error, or waits for
    /// the server's SETTINGS.
    fn may_upgrade(&mut self, stream: &Rc<Stream>) -> bool {
        let Some(settings) = self.h3.peer_settings() else {
            if !stream.is_waiting.replace(true) {
                self.awaiting_settings.push(stream.clone());
                stream.on_queued();
            }
            return false;
        };
        // RFC 8441, section 3: without support, the server would treat the request as malformed.
        let is_offered = |upgrade: &Upgrade| {
            // draft-ietf-webtrans-http3-02, section 3.1: this setting implies the other one.
            let webtransport = self.context.config.webtransport && settings.supports_webtransport();
            if sessions::is_webtransport(upgrade) {
                webtransport
            } else {
                settings.enable_connect_protocol
            }
        };
        let Some(upgrade) = stream.pending_upgrade.take().filter(|upgrade| !is_offered(upgrade))
        else {
            return true;
        };
        stream.on_inbound_end(Err(StreamError::ExtendedConnectUnsupported(upgrade)));
        stream.on_closed();
        false
    }

    fn open(&mut self, transport: &mut impl Transport, stream: &Rc<Stream>) -> bool {
        // The response may take long, and the connection must not time out meanwhile.
        self.keep_alive();
        let Some(id) = transport.open(self.key, Dir::Bidi) else { return false };
        stream.id.set(Some(id));
        if self.h3.open_request(id).is_err() {
            transport.reset(self.key, id, ErrorCode::H3_REQUEST_CANCELLED.0);
            transport.stop(self.key, id, ErrorCode::H3_REQUEST_CANCELLED.0);
            stream.on_inbound_end(Err(StreamError::Refused(
                "the server accepts no more requests (GOAWAY)".to_owned(),
            )));
            stream.on_closed();
        } else {
            let exchange = Exchange::new(
                stream.clone(),
                Priority::default(),
                &self.context.config.limits,
                self.state.memory.wire(),
            );
            self.requests.insert(id, exchange);
            stream.on_opened();
        }
        true
    }
}

fn protocol(role: Role, context: &Context) -> h3::Connection {
    let config = h3::Config::default().with_grease_seed(context.rng.borrow_mut().random());
    let config = limits::apply(config, &context.config)
        .expect("invariant: the table's ranges are within those of HTTP/3");
    h3::Connection::new(role, config)
}

/// A unidirectional stream of ours.
#[derive(Default)]
struct OwnUni {
    /// `None` until the peer's limit allows the stream.
    id: Option<StreamId>,
    queue: VecDeque<Bytes>,
}

impl Exchange {
    fn new(stream: Rc<Stream>, priority: Priority, limits: &Limits, wire: VecDeque<Bytes>) -> Self {
        Self {
            stream,
            priority,
            response_priority: None,
            priority_unset: false,
            scheduled: false,
            wire,
            fin: false,
            sent: false,
            received: false,
            tunnel: false,
            progress: WriteProgress::new(limits),
            acknowledged: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.sent && self.received
    }

    /// Called when the transport accepts no more data of the stream.
    fn on_blocked(&mut self, now: Instant, acknowledged: u64) {
        self.progress.on_blocked(now);
        self.acknowledged = acknowledged;
    }

    /// Whether only a few bytes are left, which can be written at once. The transport sends by
    /// priority too, so this delays no more urgent data, and the next request finds this one's
    /// memory in the caches.
    fn is_small_and_whole(&self) -> bool {
        self.fin && !self.sent && !self.scheduled && self.waiting() <= SMALL_BYTES
    }

    /// Returns the number of framed bytes that the transport has not accepted.
    fn waiting(&self) -> usize {
        self.wire.iter().map(Bytes::len).sum()
    }
}
