//! The HTTP/3 driver: one transport endpoint, its connections, and the handles to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use pronghorn_h3::{ConnectionError, ErrorCode};

use super::client::Client;
use super::connection::Connection;
use super::connections::Connections;
use super::idle::IdleWatch;
use super::limits;
use super::session::Work;
use super::stream::{Stream, StreamError, WorkQueue};
use super::worker_state::WorkerState;
use crate::contained::{PANIC_REASON, contained_and_counted};
use crate::context::Context;
use crate::deadlines::compact;
use crate::dispatch::Dispatcher;
use crate::shutdown::{HANDSHAKE_SHUTDOWN_DELAY, IDLE_SHUTDOWN_DELAY};
use crate::transport::{Closed, ConnectionKey, Event, Transport};

/// Delay between the final GOAWAY and the close of finished connections.
const CLOSE_DELAY: Duration = Duration::from_millis(20);

/// Number of requests that are read before they are dispatched.
///
/// Reading a request runs more code than half of a processor's instruction cache holds, and
/// answering it as much again. Alternating between the two for each request would reload most of
/// that code each time.
const MAX_DEFERRED: usize = 16;

/// Maximum number of responses that wait to be framed. Framing is yet other code, but until then
/// responses occupy memory.
const MAX_UNFRAMED: usize = 16;

/// The HTTP/3 side of one UDP socket.
pub(crate) struct Http3<T> {
    pub(crate) transport: T,
    connections: Connections,
    work_queue: Rc<WorkQueue>,
    /// Connections with requests read but not dispatched, an entry per request: see
    /// [`MAX_DEFERRED`].
    deferred: Vec<ConnectionKey>,
    /// Connections that get more time during a shutdown; see [`LateConnection`].
    late: Vec<LateConnection>,
    /// Idle connections that were sent GOAWAY, and when they close.
    closing: Vec<(Instant, ConnectionKey)>,
    /// Connections with data for the transport.
    writing: Vec<ConnectionKey>,
    client: Client,
    context: Rc<Context>,
    dispatcher: Rc<Dispatcher>,
    state: Rc<WorkerState>,
    alt_svc: Option<HeaderValue>,
    shutdown: Shutdown,
    /// Requested checks of connections. An entry is void if its connection has requested another
    /// check since, or is gone.
    checks: BinaryHeap<Reverse<(Instant, ConnectionKey)>>,
    /// Number of events read.
    read: u64,
    /// A time, and how many events must be read before deadlines up to that time are checked.
    catching_up: Option<(Instant, u64)>,
    idle_watch: IdleWatch,
}

/// A connection whose handshake was not done when the shutdown began. It is sent the final GOAWAY
/// later than others.
struct LateConnection {
    key: ConnectionKey,
    /// When the final GOAWAY is sent; after that, when the connection closes if it is finished.
    at: Instant,
    final_sent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    /// GOAWAY announced; the final one is sent at this time.
    Announced(Instant),
    /// The final GOAWAY was sent. Finished connections close from this time on, so that GOAWAY
    /// leaves before.
    Final(Instant),
}

impl<T: Transport> Http3<T> {
    /// Creates the driver. `alt_svc` is the field that points clients to this endpoint.
    pub(crate) fn new(
        transport: T,
        dispatcher: Rc<Dispatcher>,
        state: Rc<WorkerState>,
        alt_svc: Option<HeaderValue>,
    ) -> Self {
        let context = dispatcher.context.clone();
        let work_queue = WorkQueue::new(context.handle.wakeup().clone(), context.memory.clone());
        let client = Client::new(work_queue.clone(), context.clone());
        Self {
            transport,
            connections: Connections::default(),
            work_queue,
            deferred: Vec::new(),
            late: Vec::new(),
            closing: Vec::new(),
            writing: Vec::new(),
            client,
            context,
            dispatcher,
            state,
            alt_svc,
            shutdown: Shutdown::No,
            checks: BinaryHeap::new(),
            read: 0,
            catching_up: None,
            idle_watch: IdleWatch::default(),
        }
    }

    /// Returns a handle that opens connections from this socket.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Processes all events of the transport and all work of handles. No packets are sent yet.
    pub(crate) fn process(&mut self, now: Instant) {
        for key in self.idle_watch.take_due(now) {
            if self.connections.get_mut(key).is_some_and(|connection| !connection.release_if_idle())
            {
                self.idle_watch.watch(now, key);
            }
        }
        // Number of responses to frame before anything else is read: their memory, still in the
        // caches, then serves the next requests.
        let mut answers = 0;
        let may_poll = !self.context.handle.has_spent_eager_polls();
        loop {
            if self.client.has_work() {
                self.serve_client(now);
            }
            if answers == 0 && self.work_queue.len() >= MAX_UNFRAMED {
                answers = self.work_queue.len();
            }
            // Once the turn has spent its polls, the remaining events are read in the next turn:
            // now each request would have to become a task.
            let may_read =
                answers == 0 && !(may_poll && self.context.handle.has_spent_eager_polls());
            if may_read
                && self.deferred.len() < MAX_DEFERRED
                && let Some((key, event)) = self.transport.poll_event()
            {
                self.read += 1;
                self.on_event(now, key, event);
            } else if answers == 0 && !self.deferred.is_empty() {
                self.dispatch_deferred(now);
            } else if let Some(stream) = self.work_queue.pop() {
                answers = answers.saturating_sub(1);
                self.process_stream(now, stream);
            } else if let Some(work) = self.work_queue.pop_work() {
                self.on_work(now, &work);
            } else if let Some(key) = self.writing.pop() {
                if let Some(connection) = self.connections.get_mut(key) {
                    let stats = &self.context.stats;
                    let transport = &mut self.transport;
                    if contained_and_counted(stats, || connection.write(transport)).is_none() {
                        self.on_panic(now, key);
                    }
                }
            } else if let Some(key) = self.take_check(now) {
                self.with_connection(now, key, |connection, transport| {
                    connection.check_deadlines(transport, now);
                    Ok(())
                });
            } else {
                break;
            }
        }
        self.proceed_with_shutdown(now);
    }

    /// Processes a stream that a handle has changed.
    fn process_stream(&mut self, now: Instant, stream: Rc<Stream>) {
        stream.unqueue();
        let key = stream.connection;
        if !self.connections.contains(key) {
            // The connection ended before the stream's work was processed, so it cannot notify the
            // stream.
            stream.on_inbound_end(Err(StreamError::Refused("the connection has ended".to_owned())));
            stream.on_closed();
        }
        self.with_connection(now, key, |connection, transport| {
            connection.process_stream(transport, stream)
        });
    }

    /// Pops a connection whose deadline has passed. Events already queued are processed first, so
    /// that buffered data never counts as late.
    fn take_check(&mut self, now: Instant) -> Option<ConnectionKey> {
        let Reverse((time, _)) = *self.checks.peek().filter(|Reverse((time, _))| *time <= now)?;
        let unread = self.transport.events() as u64;
        if unread == 0 {
            self.catching_up = None;
        } else {
            let anew = (now, self.read + unread);
            let (until, read) = *self.catching_up.get_or_insert(anew);
            if self.read >= read && time > until {
                self.catching_up = Some(anew);
            }
            if self.read < read || time > until {
                return None;
            }
        }
        self.checks.pop().map(|Reverse((_, key))| key)
    }

    /// Processes the work of a session's handle.
    fn on_work(&mut self, now: Instant, work: &Work) {
        let key = work.connection();
        if !self.connections.contains(key) {
            work.on_connection_lost();
        }
        self.with_connection(now, key, |connection, transport| connection.on_work(transport, work));
    }

    fn proceed_with_shutdown(&mut self, now: Instant) {
        self.proceed_with_closing(now);
        self.proceed_with_late(now);
        match self.shutdown {
            Shutdown::Announced(until) if now >= until => {
                self.shutdown = Shutdown::Final(now + CLOSE_DELAY);
                for (key, connection) in self.connections.iter_mut() {
                    if connection.is_connecting() {
                        self.late.push(LateConnection {
                            key,
                            at: until + HANDSHAKE_SHUTDOWN_DELAY,
                            final_sent: false,
                        });
                    } else if !self.late.iter().any(|late| late.key == key) {
                        connection.go_away(&mut self.transport, true);
                    }
                }
            }
            Shutdown::Final(from) if now >= from => {
                let is_late = |key| self.late.iter().any(|late| late.key == key);
                let drained: Vec<_> = self
                    .connections
                    .iter()
                    .filter(|(key, connection)| connection.is_drained() && !is_late(*key))
                    .map(|(key, _)| key)
                    .collect();
                for key in drained {
                    self.close(now, key, ErrorCode::H3_NO_ERROR, "");
                }
            }
            Shutdown::No | Shutdown::Announced(_) | Shutdown::Final(_) => {}
        }
    }

    fn proceed_with_closing(&mut self, now: Instant) {
        // By their times. A request that arrived before its client received GOAWAY is served to its
        // end.
        while let Some(at) = self.closing.iter().position(|(at, _)| *at <= now) {
            let (_, key) = self.closing.swap_remove(at);
            match self.connections.get(key) {
                Some(connection) if connection.is_drained() => {
                    self.close(now, key, ErrorCode::H3_NO_ERROR, "");
                }
                Some(_) => self.closing.push((now + CLOSE_DELAY, key)),
                None => {}
            }
        }
    }

    fn proceed_with_late(&mut self, now: Instant) {
        self.late.retain_mut(|late| {
            if now < late.at {
                return self.connections.contains(late.key);
            }
            if late.final_sent {
                return false;
            }
            let Some(connection) = self.connections.get_mut(late.key) else { return false };
            connection.go_away(&mut self.transport, true);
            (late.at, late.final_sent) = (now + CLOSE_DELAY, true);
            true
        });
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.work_queue.is_empty() || self.client.has_work() || self.transport.has_events()
    }

    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        let own = match self.shutdown {
            Shutdown::Announced(until) => Some(until),
            // After that time, every event that finishes a connection causes a turn anyway.
            Shutdown::Final(from) => Some(from).filter(|from| *from > self.context.handle.now()),
            Shutdown::No => None,
        };
        let check = self.checks.peek().map(|Reverse((time, _))| *time);
        let late = self
            .late
            .iter()
            .map(|late| late.at)
            .chain(self.closing.iter().map(|(at, _)| *at))
            .min();
        [self.transport.poll_timeout(), own, late, check, self.idle_watch.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Begins a shutdown: accepts no new connection, no new request after the notice period, and
    /// closes each connection when its requests are done.
    pub(crate) fn go_away(&mut self, now: Instant) {
        if self.shutdown == Shutdown::No {
            self.transport.refuse_new();
            for (_, connection) in self.connections.iter_mut() {
                connection.go_away(&mut self.transport, false);
            }
            self.shutdown = Shutdown::Announced(now + IDLE_SHUTDOWN_DELAY);
        }
    }

    /// Whether there are no connections.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.transport.waiting_handshakes() == 0
    }

    /// Stops accepting connections; existing ones go on.
    pub(crate) fn refuse_new(&mut self) {
        self.transport.refuse_new();
    }

    /// Whether there is a connection opened by a client.
    pub(crate) fn is_serving(&self) -> bool {
        self.connections.iter().any(|(_, connection)| connection.client_state().is_none())
    }

    /// Closes all connections now. Returns whether there was one.
    pub(crate) fn close_all(&mut self, now: Instant) -> bool {
        let had_waiting = self.refuse_waiting();
        self.close_each(now, "shutdown", |_| true) || had_waiting
    }

    /// Closes all connections opened by clients, now. Returns whether there was one.
    pub(crate) fn close_serving(&mut self, now: Instant) -> bool {
        let had_waiting = self.refuse_waiting();
        self.close_each(now, "", |connection| connection.client_state().is_none()) || had_waiting
    }

    /// Refuses handshakes that wait for something else than the peer. Returns whether there was one.
    fn refuse_waiting(&mut self) -> bool {
        let had_waiting = self.transport.waiting_handshakes() > 0;
        self.transport.refuse_waiting();
        had_waiting
    }

    /// Closes the connections for which `is_meant` is true. Returns whether there was one.
    fn close_each(
        &mut self,
        now: Instant,
        reason: &str,
        is_meant: impl Fn(&Connection) -> bool,
    ) -> bool {
        let keys: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_meant(connection))
            .map(|(key, _)| key)
            .collect();
        for key in &keys {
            self.close(now, *key, ErrorCode::H3_NO_ERROR, reason);
        }
        !keys.is_empty()
    }

    /// Sends GOAWAY on client connections that have no open requests. They close shortly after;
    /// requests that arrive until then are not served, and GOAWAY tells the client that it may send
    /// them again.
    pub(crate) fn close_idle(&mut self, now: Instant) {
        for (key, connection) in
            self.connections.iter_mut().filter(|(_, connection)| connection.is_at_rest())
        {
            // The first GOAWAY alone refuses no request: it still accepts those on their way. They
            // would be lost with the connection, and their client could not know whether they were
            // served.
            connection.go_away(&mut self.transport, false);
            connection.go_away(&mut self.transport, true);
            self.closing.push((now + CLOSE_DELAY, key));
        }
    }

    /// Near the end of a shutdown, closes outgoing connections without requests. Returns whether
    /// there was one.
    pub(crate) fn close_unused(&mut self, now: Instant) -> bool {
        if !matches!(self.shutdown, Shutdown::Final(from) if now >= from) {
            return false;
        }
        self.close_each(now, "", Connection::is_unused)
    }

    /// Dispatches the requests read so far. A handler that batches requests answers these before
    /// others are read, while their data is still in the caches.
    fn dispatch_deferred(&mut self, now: Instant) {
        let mut deferred = std::mem::take(&mut self.deferred);
        for key in deferred.drain(..) {
            self.with_connection(now, key, |connection, transport| {
                connection.on_deferred(transport);
                Ok(())
            });
        }
        // Keeps the vector's memory.
        self.deferred = deferred;
        self.dispatcher.flush();
    }

    fn on_event(&mut self, now: Instant, key: ConnectionKey, event: Event) {
        if !self.deferred.is_empty() && matches!(event, Event::Connected { .. } | Event::Closed(_))
        {
            // Earlier requests are early data, or must be dispatched before the connection is
            // removed.
            self.dispatch_deferred(now);
        }
        match event {
            Event::Accepted { remote } => self.on_accepted(key, remote),
            Event::Agreed(parameters) => self.with_connection(now, key, |connection, _| {
                connection.on_agreed(parameters);
                Ok(())
            }),
            Event::ServerName(name) => self.with_connection(now, key, |connection, _| {
                connection.on_server_name(name);
                Ok(())
            }),
            Event::ClientCertificate(certificate) => {
                self.with_connection(now, key, |connection, _| {
                    connection.on_client_certificate(certificate);
                    Ok(())
                });
            }
            // SETTINGS are not remembered: until the server's arrive, default values apply, as on
            // any connection.
            Event::EarlyData => self.with_connection(now, key, |connection, transport| {
                if let Some(client) = connection.client_state() {
                    client.on_early_data();
                }
                connection.on_available(transport);
                Ok(())
            }),
            Event::Connected { handshake, tls, idle_timeout } => {
                self.context.stats.quic_connected.add(1);
                // From here on the client has the same notice period that others have from the
                // announcement.
                self.late.retain(|late| late.key != key || late.final_sent);
                if self.shutdown != Shutdown::No && !self.late.iter().any(|late| late.key == key) {
                    self.late.push(LateConnection {
                        key,
                        at: now + IDLE_SHUTDOWN_DELAY,
                        final_sent: false,
                    });
                }
                self.with_connection(now, key, |connection, transport| {
                    if let Some(client) = connection.client_state() {
                        client.on_connected(key, handshake, tls);
                    }
                    connection.on_connected(
                        transport,
                        tls.and_then(|tls| tls.early_data_accepted),
                        idle_timeout,
                    );
                    Ok(())
                });
            }
            Event::Readable(id) => self.with_connection(now, key, |connection, transport| {
                connection.on_readable(transport, id)
            }),
            Event::Writable(id) => self.with_connection(now, key, |connection, transport| {
                connection.on_writable(transport, id);
                Ok(())
            }),
            Event::Stopped(id, code) => self.with_connection(now, key, |connection, transport| {
                connection.on_stopped(transport, id, code)
            }),
            Event::Acknowledged(streams) => self.with_connection(now, key, |connection, _| {
                connection.on_acknowledged(streams);
                Ok(())
            }),
            Event::Available => self.with_connection(now, key, |connection, transport| {
                connection.on_available(transport);
                Ok(())
            }),
            Event::Datagram(data) => self.with_connection(now, key, |connection, transport| {
                connection.on_datagram(transport, data)
            }),
            Event::DatagramsWritable => self.with_connection(now, key, |connection, transport| {
                connection.send_datagrams(transport);
                Ok(())
            }),
            Event::Closed(reason) => self.on_closed(key, &reason),
        }
    }

    fn on_accepted(&mut self, key: ConnectionKey, remote: SocketAddr) {
        self.context.stats.quic_open.add(1);
        self.dispatcher.on_opened(remote);
        let mut connection = Connection::server(
            key,
            remote,
            self.dispatcher.clone(),
            self.state.clone(),
            self.work_queue.clone(),
            self.alt_svc.clone(),
        );
        connection.trace(self.transport.trace(key));
        // The connection arrived just before the shutdown began.
        if self.shutdown != Shutdown::No {
            connection.go_away(&mut self.transport, false);
        }
        if matches!(self.shutdown, Shutdown::Final(_)) {
            self.late.push(LateConnection {
                key,
                at: self.context.handle.now() + HANDSHAKE_SHUTDOWN_DELAY,
                final_sent: false,
            });
        }
        self.connections.insert(key, connection);
    }

    fn on_closed(&mut self, key: ConnectionKey, reason: &Closed) {
        if let Some(trace) = self.transport.trace(key) {
            trace.closed(self.context.handle.now(), reason);
        }
        if *reason != Closed::Locally
            && let Some(connection) = self.connections.get_mut(key)
        {
            contained_and_counted(&self.context.stats, || {
                connection.deliver_received(&mut self.transport);
            });
        }
        if !self.forget(key, &reason.to_string(), *reason == Closed::TimedOut) {
            return;
        }
        let stats = &self.context.stats;
        match reason {
            Closed::Locally | Closed::Reset => {}
            Closed::ByPeer { code, .. } => {
                if *code != ErrorCode::H3_NO_ERROR.0 && *code != 0 {
                    stats.quic_errors.add(1);
                }
            }
            Closed::TimedOut => {
                stats.quic_timed_out.add(1);
                stats.idle_timeouts.add(1);
            }
            Closed::Transport(_) => stats.quic_errors.add(1),
        }
    }

    /// Runs `action` on a connection. If it fails, the connection is closed with the error.
    fn with_connection(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        action: impl FnOnce(&mut Connection, &mut T) -> Result<(), ConnectionError>,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (stats, transport) = (&self.context.stats, &mut self.transport);
        let Some(acted) = contained_and_counted(stats, || action(connection, transport)) else {
            return self.on_panic(now, key);
        };
        match acted {
            Ok(()) => {
                if connection.record_activity() {
                    self.idle_watch.watch(now, key);
                }
                if connection.wants_to_write() {
                    self.writing.push(key);
                }
                if connection.take_deferred() {
                    self.deferred.push(key);
                }
                if let Some(time) = connection.next_check() {
                    self.checks.push(Reverse((time, key)));
                    let connections = &self.connections;
                    compact(&mut self.checks, connections.len(), |time, key| {
                        connections
                            .get(*key)
                            .is_some_and(|connection| connection.is_checked_at(time))
                    });
                }
            }
            Err(error) => {
                if let Some(counter) =
                    error.limit().and_then(|limit| limits::counter(limit, &self.context.stats))
                {
                    counter.add(1);
                }
                // The connection's later events are ignored.
                self.forget(key, &error.to_string(), false);
                self.context.stats.quic_errors.add(1);
                self.close(now, key, error.code(), error.reason());
            }
        }
    }

    /// Closes a connection whose work has panicked.
    fn on_panic(&mut self, now: Instant, key: ConnectionKey) {
        self.context.stats.quic_errors.add(1);
        self.forget(key, PANIC_REASON, false);
        self.close(now, key, ErrorCode::H3_INTERNAL_ERROR, PANIC_REASON);
    }

    /// Removes a connection and notifies everything that waits for it. `is_lost` means that the
    /// connection timed out.
    fn forget(&mut self, key: ConnectionKey, reason: &str, is_lost: bool) -> bool {
        let Some(mut connection) = self.connections.remove(key) else { return false };
        if connection.client_state().is_none() {
            self.context.stats.quic_open.subtract(1);
            self.dispatcher.on_closed(connection.remote());
        }
        contained_and_counted(&self.context.stats, || {
            connection.on_closed(reason, is_lost);
            drop(connection);
        });
        true
    }

    fn close(&mut self, now: Instant, key: ConnectionKey, code: ErrorCode, reason: &str) {
        if let Some(trace) = self.transport.trace(key) {
            trace.closed_with(now, code.0, reason);
        }
        // The transport reports a `Closed` event, which removes the connection.
        self.transport.close(now, key, code.0, reason);
    }

    fn serve_client(&mut self, now: Instant) {
        while let Some(connect) = self.client.next_connect() {
            match self.transport.connect(now, connect.remote, &connect.server_name, &connect.tls) {
                Ok(key) => {
                    connect.state.key.set(Some(key));
                    self.transport.observe(key, connect.state.stats());
                    let mut connection = Connection::client(
                        key,
                        connect.remote,
                        self.dispatcher.clone(),
                        self.state.clone(),
                        self.work_queue.clone(),
                        connect.state,
                    );
                    connection.trace(self.transport.trace(key));
                    self.connections.insert(key, connection);
                }
                Err(error) => connect.state.on_closed(&error),
            }
        }
        for state in self.client.take_measures() {
            if let Some(key) = state.key.get() {
                self.transport.measure(key);
            }
            state.on_measured();
        }
        for key in self.client.take_closes() {
            self.close(now, key, ErrorCode::H3_NO_ERROR, "");
        }
    }
}
