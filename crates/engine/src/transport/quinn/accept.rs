//! New connections of an endpoint, and its answers to datagrams of no connection.

use std::sync::Arc;
use std::time::Instant;

use quinn_proto::{ConnectionHandle, Incoming, ServerConfig, Side};

use super::Quinn;
use super::connection::{Connection, PathBytes, ReportedStats};
use crate::connection_limits::ConnectionPermit;
use crate::qlog::{Trace, Vantage};
use crate::transport::connection_id::is_answerable;
use crate::transport::{ConnectionKey, Event};
use crate::window_budget::{ReceiveWindow, WindowPromise, first_window};

/// Shortest packet that may be answered with a stateless reset, which has to be smaller (RFC 9000,
/// section 10.3.3).
const SMALLEST_RESETTABLE: usize = 22;

impl Quinn {
    pub(super) fn insert(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        inner: quinn_proto::Connection,
        (permit, windows): (Option<ConnectionPermit>, WindowPromise),
        unvalidated: Option<PathBytes>,
        trace: Option<Trace>,
    ) -> ConnectionKey {
        let limits = &self.config.limits;
        let handshake_until = permit.is_some().then(|| now + limits.handshake_timeout());
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
            other_path: None,
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
            end_reported: false,
            observer: None,
            told: ReportedStats::nothing(now),
            unvalidated,
            withheld: None,
            send_window,
            receive_window: ReceiveWindow::new(now, windows),
            unread: 0,
            stream_frames: 0,
            came: 0,
            own_streams: 0,
            _permit: permit,
        }));
        key
    }

    /// Accepts, parks or refuses a new connection. `bytes` is the size of the datagram that began
    /// it; `first` is a copy, if handshakes may have to wait.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        bytes: usize,
        first: Option<&[u8]>,
    ) {
        let remote = incoming.remote_address();
        let limits = &self.config.limits;
        self.scratch.clear();
        if self.is_refusing && self.may_return {
            self.is_stray = true;
            return self.endpoint.ignore(incoming);
        }
        if self.is_refusing {
            return self.refuse(incoming);
        }
        let pressed = self.handshakes as u64 >= limits.open_handshakes()
            || self.connection_counts.is_pressed(remote.ip(), limits);
        let is_crowded = first.is_some()
            && self.parked.waiting_elsewhere() >= limits.parked_handshakes().div_ceil(2);
        if (pressed || is_crowded) && !incoming.remote_address_validated() && incoming.may_retry() {
            self.stats.quic_retries_sent.add(1);
            let transmit = self.endpoint.retry(incoming, &mut self.scratch);
            return self.answer(
                transmit.expect("invariant: sending was allowed by the check just before"),
            );
        }
        let permit = match self.connection_counts.admit(remote.ip(), limits) {
            Ok(permit) => permit,
            Err(refusal) => {
                refusal.count(&self.stats);
                return self.refuse(incoming);
            }
        };
        let windows = self.budget.promise(limits, &self.stats);
        if let Some(first) = first
            && let Some(tls) = self.config.tls_with(windows.receive)
            && let Some(parking) = tls.parking().cloned()
        {
            return self.park(now, incoming, first, (permit, windows), (tls, parking));
        }
        let unvalidated = (!incoming.remote_address_validated())
            .then_some(PathBytes { received: bytes, sent: 0 });
        let trace = self.begin_trace(now, &incoming);
        let server = self.server_config(&windows, trace.as_ref());
        self.accept_with((now, now), incoming, server, (permit, windows), unvalidated, trace);
    }

    /// Accepts a connection that was admitted. `since` is when its first datagram arrived.
    pub(super) fn accept_with(
        &mut self,
        (now, since): (Instant, Instant),
        incoming: Incoming,
        server: Option<Arc<ServerConfig>>,
        (permit, windows): (ConnectionPermit, WindowPromise),
        unvalidated: Option<PathBytes>,
        trace: Option<Trace>,
    ) {
        let remote = incoming.remote_address();
        self.scratch.clear();
        match self.endpoint.accept(incoming, now, &mut self.scratch, server) {
            Ok((handle, connection)) => {
                let key = self.insert(
                    since,
                    handle,
                    connection,
                    (Some(permit), windows),
                    unvalidated,
                    trace,
                );
                self.stats.quic_accepted.add(1);
                self.events.push_back((key, Event::Accepted { remote }));
                self.drive(now, key);
            }
            // The packet cannot be decrypted: another worker may have begun the connection.
            Err(error) if self.may_return && error.response.is_none() => self.is_stray = true,
            Err(error) => {
                Connection::count_panic(&error.cause, &self.stats);
                self.stats.quic_refused.add(1);
                if let Some(transmit) = error.response {
                    self.answer(transmit);
                }
            }
        }
    }

    /// Refuses a new connection.
    pub(super) fn refuse(&mut self, incoming: Incoming) {
        self.stats.quic_refused.add(1);
        self.scratch.clear();
        let transmit = self.endpoint.refuse(incoming, &mut self.scratch);
        self.answer(transmit);
    }

    pub(super) fn begin_trace(&self, now: Instant, incoming: &Incoming) -> Option<Trace> {
        let id = incoming.orig_dst_cid().to_string();
        let address = incoming.remote_address().ip();
        self.config.qlog.as_ref()?.begin(now, &id, Vantage::Server, address)
    }

    /// Returns the configuration of a connection with these windows; `None` for the endpoint's
    /// default.
    pub(super) fn server_config(
        &mut self,
        windows: &WindowPromise,
        trace: Option<&Trace>,
    ) -> Option<Arc<ServerConfig>> {
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

    /// Whether a packet of no connection could be answered by a stateless reset: its connection ID
    /// was issued here.
    pub(super) fn is_resettable(&self, datagram: &[u8]) -> bool {
        datagram.len() >= SMALLEST_RESETTABLE
            && is_answerable(&self.config.keys.ids, self.worker, datagram)
    }

    pub(super) fn answer(&mut self, transmit: quinn_proto::Transmit) {
        if self.answers.len() as u64 >= self.config.limits.waiting_answers() {
            self.stats.stateless_answers_dropped.add(1);
            return;
        }
        self.answers.push_back((transmit, std::mem::take(&mut self.scratch)));
    }
}
