//! The HTTP/3 driver: one transport endpoint, its connections, and the handles that others hold on them.

mod client;
mod connection;
mod connections;
mod fields;
mod framing;
mod limits;
mod patience;
mod rest;
mod session;
mod session_stream;
mod spares;
mod stream;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use pronghorn_h3::{ConnectionError, ErrorCode};

pub(crate) use client::{Client, ClientConnection, StatsProbe};
#[cfg(test)]
pub(crate) use fields::request as request_head;
pub(crate) use session::{CapsuleQueue, For, Session};
pub use session::{DatagramError, DatagramSender, SessionEnd};
pub(crate) use session_stream::SessionStream;
pub use session_stream::SessionStreamError;
pub(crate) use spares::Spares;
pub use stream::StreamError;

/// What `:protocol` says of a WebTransport session, in all drafts that are spoken here.
pub(crate) const WEBTRANSPORT: &str = "webtransport";
pub(crate) use stream::{RequestHead, Stream};

use self::connection::Connection;
use self::connections::Connections;
use self::rest::Wakeful;
use self::session::Work;
use self::stream::Dirty;
use crate::context::{Context, DRAIN_NOTICE, HANDSHAKE_NOTICE};
use crate::deadlines::compact;
use crate::transport::{Closed, ConnectionKey, Event, Transport};

/// How long after the last request was named connections that are done are closed.
const CLOSE_DELAY: Duration = Duration::from_millis(20);

/// How many requests are read before they are handed on.
///
/// To read one takes more code than half of a processor's cache for it, and to answer it as much again: request after request, most of
/// it would be loaded anew for each.
const MAX_DEFERRED: usize = 16;

/// How many answers wait at the most until they are framed: that is other code again, and until then they hold memory.
const MAX_UNFRAMED: usize = 16;

/// The HTTP/3 side of one UDP socket.
pub(crate) struct Http3<T> {
    pub(crate) transport: T,
    connections: Connections,
    dirty: Rc<Dirty>,
    /// The connections of what has been read and not handed on, an entry for each request: see [`MAX_DEFERRED`].
    deferred: Vec<ConnectionKey>,
    /// During a shutdown; see [`Late`].
    late: Vec<Late>,
    /// Connections at rest that were told to end, and when they close.
    leaving: Vec<(Instant, ConnectionKey)>,
    /// Connections that have bytes for the transport.
    writing: Vec<ConnectionKey>,
    client: Client,
    context: Rc<Context>,
    alt_svc: Option<HeaderValue>,
    shutdown: Shutdown,
    /// When connections asked to be looked at. An entry whose connection has asked anew since, or is gone, means nothing.
    checks: BinaryHeap<Reverse<(Instant, ConnectionKey)>>,
    /// How many events have been read.
    read: u64,
    /// What has to be read before deadlines up to this time are looked at.
    catching_up: Option<(Instant, u64)>,
    wakeful: Wakeful,
}

/// A connection whose handshake was not done when the shutdown began: its last request is named later than that of others.
struct Late {
    key: ConnectionKey,
    /// When its last request is named, or, once that is so, when it closes if it is done.
    at: Instant,
    is_named: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    /// Announced; the last request is named at this time.
    Announced(Instant),
    /// Named. Connections that are done close from this time on, so that GOAWAY is on its way before.
    Final(Instant),
}

impl<T: Transport> Http3<T> {
    /// `alt_svc`: the field that tells clients of this very endpoint.
    pub(crate) fn new(transport: T, context: Rc<Context>, alt_svc: Option<HeaderValue>) -> Self {
        let dirty = Dirty::new(context.handle.wakeup().clone());
        let client = Client::new(dirty.clone(), context.clone());
        Self {
            transport,
            connections: Connections::default(),
            dirty,
            deferred: Vec::new(),
            late: Vec::new(),
            leaving: Vec::new(),
            writing: Vec::new(),
            client,
            context,
            alt_svc,
            shutdown: Shutdown::No,
            checks: BinaryHeap::new(),
            read: 0,
            catching_up: None,
            wakeful: Wakeful::default(),
        }
    }

    /// A handle that opens connections from this socket.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Carries out all that the transport reported and all that handles asked for. Packets are not sent yet.
    pub(crate) fn process(&mut self, now: Instant) {
        for key in self.wakeful.take_due(now) {
            if self.connections.get_mut(key).is_some_and(|connection| !connection.rest()) {
                self.wakeful.watch(now, key);
            }
        }
        // Answers that are framed before anything else is read: their memory, which is still in the caches, then serves the next requests.
        let mut answers = 0;
        let may_poll = !self.context.handle.has_spent_eager_polls();
        loop {
            if self.client.has_work() {
                self.serve_client(now);
            }
            if answers == 0 && self.dirty.len() >= MAX_UNFRAMED {
                answers = self.dirty.len();
            }
            // What is there when the turn has done its share is read in the next one: now each request would have to become a task.
            let may_read = answers == 0 && !(may_poll && self.context.handle.has_spent_eager_polls());
            if may_read
                && self.deferred.len() < MAX_DEFERRED
                && let Some((key, event)) = self.transport.poll_event()
            {
                self.read += 1;
                self.on_event(now, key, event);
            } else if answers == 0 && !self.deferred.is_empty() {
                self.hand_on(now);
            } else if let Some(stream) = self.dirty.pop() {
                answers = answers.saturating_sub(1);
                self.on_dirty(now, stream);
            } else if let Some(work) = self.dirty.pop_work() {
                self.on_work(now, &work);
            } else if let Some(key) = self.writing.pop() {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.write(&mut self.transport);
                }
            } else if let Some(key) = self.take_check(now) {
                self.with_connection(now, key, |connection, transport| {
                    connection.check_patience(transport, now);
                    Ok(())
                });
            } else {
                break;
            }
        }
        self.proceed_with_shutdown(now);
    }

    /// Carries out what a handle did to a stream.
    fn on_dirty(&mut self, now: Instant, stream: Rc<Stream>) {
        stream.unqueue();
        let key = stream.connection;
        if !self.connections.contains(key) {
            // The connection ended between the request and its turn; nobody else would tell it.
            stream.on_inbound_end(Err(StreamError::Refused("the connection has ended".to_owned())));
            stream.on_closed();
        }
        self.with_connection(now, key, |connection, transport| connection.on_dirty(transport, stream));
    }

    /// A connection whose deadline has passed. Nobody is late with what is here: what had come when that was seen is read before.
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

    /// Carries out what a session's handle asks for.
    fn on_work(&mut self, now: Instant, work: &Work) {
        let key = work.connection();
        if !self.connections.contains(key) {
            work.on_connection_lost();
        }
        self.with_connection(now, key, |connection, transport| connection.on_work(transport, work));
    }

    fn proceed_with_shutdown(&mut self, now: Instant) {
        self.proceed_with_leaving(now);
        self.proceed_with_late(now);
        match self.shutdown {
            Shutdown::Announced(until) if now >= until => {
                self.shutdown = Shutdown::Final(now + CLOSE_DELAY);
                for (key, connection) in self.connections.iter_mut() {
                    if connection.is_connecting() {
                        self.late.push(Late { key, at: until + HANDSHAKE_NOTICE, is_named: false });
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

    fn proceed_with_leaving(&mut self, now: Instant) {
        // In the order of their times. A request that came before its client knew is served to its end.
        while let Some(at) = self.leaving.iter().position(|(at, _)| *at <= now) {
            let (_, key) = self.leaving.swap_remove(at);
            match self.connections.get(key) {
                Some(connection) if connection.is_drained() => self.close(now, key, ErrorCode::H3_NO_ERROR, ""),
                Some(_) => self.leaving.push((now + CLOSE_DELAY, key)),
                None => {}
            }
        }
    }

    fn proceed_with_late(&mut self, now: Instant) {
        self.late.retain_mut(|late| {
            if now < late.at {
                return self.connections.contains(late.key);
            }
            if late.is_named {
                return false;
            }
            let Some(connection) = self.connections.get_mut(late.key) else { return false };
            connection.go_away(&mut self.transport, true);
            (late.at, late.is_named) = (now + CLOSE_DELAY, true);
            true
        });
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.dirty.is_empty() || self.client.has_work() || self.transport.has_events()
    }

    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        let own = match self.shutdown {
            Shutdown::Announced(until) => Some(until),
            // Once it has passed, whatever makes a connection done causes a turn.
            Shutdown::Final(from) => Some(from).filter(|from| *from > self.context.handle.now()),
            Shutdown::No => None,
        };
        let check = self.checks.peek().map(|Reverse((time, _))| *time);
        let late = self.late.iter().map(|late| late.at).chain(self.leaving.iter().map(|(at, _)| *at)).min();
        [self.transport.poll_timeout(), own, late, check, self.wakeful.next()].into_iter().flatten().min()
    }

    /// Announces the end: no new connection, no new request after the notice, and each connection closes when its requests are done.
    pub(crate) fn go_away(&mut self, now: Instant) {
        if self.shutdown == Shutdown::No {
            self.transport.refuse_new();
            for (_, connection) in self.connections.iter_mut() {
                connection.go_away(&mut self.transport, false);
            }
            self.shutdown = Shutdown::Announced(now + DRAIN_NOTICE);
        }
    }

    /// Whether no connection has anything left to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty()
    }

    /// Takes no new connection; those there are go on.
    pub(crate) fn refuse_new(&mut self) {
        self.transport.refuse_new();
    }

    /// Whether there is a connection that a client has opened.
    pub(crate) fn is_serving(&self) -> bool {
        self.connections.iter().any(|(_, connection)| connection.client_state().is_none())
    }

    /// Ends every connection now. Whether there was one.
    pub(crate) fn close_all(&mut self, now: Instant) -> bool {
        self.close_each(now, "shutdown", |_| true)
    }

    /// Ends every connection that a client has opened, now. Whether there was one.
    pub(crate) fn close_serving(&mut self, now: Instant) -> bool {
        self.close_each(now, "", |connection| connection.client_state().is_none())
    }

    /// Closes the connections that `is_meant` selects. Returns whether there was one.
    fn close_each(&mut self, now: Instant, reason: &str, is_meant: impl Fn(&Connection) -> bool) -> bool {
        let keys: Vec<_> = self.connections.iter().filter(|(_, connection)| is_meant(connection)).map(|(key, _)| key).collect();
        for key in &keys {
            self.close(now, *key, ErrorCode::H3_NO_ERROR, reason);
        }
        !keys.is_empty()
    }

    /// Announces the end to the connections of clients on which all requests are done. They close a moment later: what comes until then is
    /// not served, and its client knows that it may send it again.
    pub(crate) fn close_idle(&mut self, now: Instant) {
        for (key, connection) in self.connections.iter_mut().filter(|(_, connection)| connection.is_at_rest()) {
            // The first one alone refuses nothing: it leaves room for requests that are on their way, and these would be lost with the
            // connection, of which their client could not know whether they were served.
            connection.go_away(&mut self.transport, false);
            connection.go_away(&mut self.transport, true);
            self.leaving.push((now + CLOSE_DELAY, key));
        }
    }

    /// Near the end of a shutdown, ends the connections that this side has opened and that no request is on. Whether there was one.
    pub(crate) fn close_unused(&mut self, now: Instant) -> bool {
        if !matches!(self.shutdown, Shutdown::Final(from) if now >= from) {
            return false;
        }
        self.close_each(now, "", Connection::is_unused)
    }

    /// Hands on the requests that have been read. A handler that collects them answers these before others are read, while all that
    /// belongs to them is still in the caches.
    fn hand_on(&mut self, now: Instant) {
        let mut deferred = std::mem::take(&mut self.deferred);
        for key in deferred.drain(..) {
            self.with_connection(now, key, |connection, transport| {
                connection.on_deferred(transport);
                Ok(())
            });
        }
        // Its memory serves again.
        self.deferred = deferred;
        self.context.handler.settle();
    }

    fn on_event(&mut self, now: Instant, key: ConnectionKey, event: Event) {
        if !self.deferred.is_empty() && matches!(event, Event::Connected { .. } | Event::Closed(_)) {
            // What came before it was early data, or has still to be carried out.
            self.hand_on(now);
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
            Event::ClientCertificate(certificate) => self.with_connection(now, key, |connection, _| {
                connection.on_client_certificate(certificate);
                Ok(())
            }),
            // No settings are remembered: until the server's come, the connection goes by the default values, as any other does.
            Event::EarlyData => self.with_connection(now, key, |connection, transport| {
                if let Some(client) = connection.client_state() {
                    client.on_early_data();
                }
                connection.on_available(transport);
                Ok(())
            }),
            Event::Connected { handshake, tls, idle_timeout } => {
                self.context.stats.quic_connected.add(1);
                // From here on its client has as long as others have from the announcement on.
                self.late.retain(|late| late.key != key || late.is_named);
                if self.shutdown != Shutdown::No && !self.late.iter().any(|late| late.key == key) {
                    self.late.push(Late { key, at: now + DRAIN_NOTICE, is_named: false });
                }
                self.with_connection(now, key, |connection, transport| {
                    if let Some(client) = connection.client_state() {
                        client.on_connected(key, handshake, tls);
                    }
                    connection.on_connected(transport, tls.and_then(|tls| tls.early_data_accepted), idle_timeout);
                    Ok(())
                });
            }
            Event::Readable(id) => self.with_connection(now, key, |connection, transport| connection.on_readable(transport, id)),
            Event::Writable(id) => self.with_connection(now, key, |connection, transport| {
                connection.on_writable(transport, id);
                Ok(())
            }),
            Event::Stopped(id, code) => self.with_connection(now, key, |connection, transport| connection.on_stopped(transport, id, code)),
            Event::Acknowledged(streams) => self.with_connection(now, key, |connection, _| {
                connection.on_acknowledged(streams);
                Ok(())
            }),
            Event::Available => self.with_connection(now, key, |connection, transport| {
                connection.on_available(transport);
                Ok(())
            }),
            Event::Datagram(data) => self.with_connection(now, key, |connection, transport| connection.on_datagram(transport, data)),
            Event::DatagramsWritable => self.with_connection(now, key, |connection, transport| {
                connection.send_datagrams(transport);
                Ok(())
            }),
            Event::Closed(reason) => self.on_closed(key, &reason),
        }
    }

    fn on_accepted(&mut self, key: ConnectionKey, remote: SocketAddr) {
        self.context.stats.quic_open.add(1);
        self.context.handler.on_opened(remote);
        let mut connection = Connection::server(key, remote, self.context.clone(), self.dirty.clone(), self.alt_svc.clone());
        connection.trace(self.transport.trace(key));
        // It came just before the end was announced.
        if self.shutdown != Shutdown::No {
            connection.go_away(&mut self.transport, false);
        }
        if matches!(self.shutdown, Shutdown::Final(_)) {
            self.late.push(Late { key, at: self.context.handle.now() + HANDSHAKE_NOTICE, is_named: false });
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
            connection.read_rest(&mut self.transport);
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

    /// Runs `action` on a connection; when it fails, the connection is closed with the error.
    fn with_connection(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        action: impl FnOnce(&mut Connection, &mut T) -> Result<(), ConnectionError>,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match action(connection, &mut self.transport) {
            Ok(()) => {
                if connection.rouse() {
                    self.wakeful.watch(now, key);
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
                        connections.get(*key).is_some_and(|connection| connection.is_checked_at(time))
                    });
                }
            }
            Err(error) => {
                if let Some(counter) = error.limit().and_then(|limit| limits::counter(limit, &self.context.stats)) {
                    counter.add(1);
                }
                // Nothing that comes for it later is looked at.
                self.forget(key, &error.to_string(), false);
                self.context.stats.quic_errors.add(1);
                self.close(now, key, error.code(), error.reason());
            }
        }
    }

    /// Takes a connection out and tells everybody who waits for it. `is_lost`: the peer was not heard from any more.
    fn forget(&mut self, key: ConnectionKey, reason: &str, is_lost: bool) -> bool {
        let Some(mut connection) = self.connections.remove(key) else { return false };
        if connection.client_state().is_none() {
            self.context.stats.quic_open.subtract(1);
            self.context.handler.on_closed(connection.remote());
        }
        connection.on_closed(reason, is_lost);
        true
    }

    fn close(&mut self, now: Instant, key: ConnectionKey, code: ErrorCode, reason: &str) {
        if let Some(trace) = self.transport.trace(key) {
            trace.closed_with(now, code.0, reason);
        }
        // The transport answers with its `Closed` event, which takes the connection out.
        self.transport.close(now, key, code.0, reason);
    }

    fn serve_client(&mut self, now: Instant) {
        while let Some(connect) = self.client.next_connect() {
            match self.transport.connect(now, connect.remote, &connect.server_name, &connect.tls) {
                Ok(key) => {
                    connect.state.key.set(Some(key));
                    self.transport.observe(key, connect.state.stats());
                    let mut connection = Connection::client(key, connect.remote, self.context.clone(), self.dirty.clone(), connect.state);
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
