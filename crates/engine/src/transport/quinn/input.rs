//! Input of an endpoint: datagrams, timeouts and closing. A panic ends only its connection.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionEvent, ConnectionHandle, DatagramEvent, EndpointEvent};

use super::Quinn;
use super::convert::{to_codepoint, varint};
use super::parking::Ahead;
use super::stray_retry::len_without_retry;
use crate::contained::{PANIC_REASON, contained};
use crate::stats::{CloseCode, Closer};
use crate::transport::{Closed, ConnectionKey, Datagram, Event};

impl Quinn {
    /// Runs work of one connection, and drops the connection if that panics.
    pub(in crate::transport) fn contain<R>(
        &mut self,
        key: ConnectionKey,
        work: impl FnOnce(&mut Self) -> R,
    ) -> Option<R> {
        let done = contained(|| work(self));
        if done.is_none() {
            self.abandon(key);
        }
        done
    }

    /// Drops a connection after a panic. Its peer learns of it by a stateless reset.
    pub(super) fn abandon(&mut self, key: ConnectionKey) {
        self.stats.handler_panics.add(1);
        let Some(slot) = self.connections.get_mut(key.index as usize) else { return };
        let Some(connection) = slot.take_if(|connection| connection.key == key) else { return };
        self.endpoint.handle_event(ConnectionHandle(key.index as usize), EndpointEvent::drained());
        self.handshakes -= usize::from(connection.handshake_until.is_some());
        if !connection.closed {
            let reason = Closed::Transport(PANIC_REASON.to_owned());
            self.events.push_back((key, Event::Closed(reason)));
        }
        contained(|| drop(connection));
    }

    pub(super) fn handle(&mut self, now: Instant, mut datagram: Datagram) {
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
        let ahead = self.look_ahead(&mut datagram.data);
        if matches!(ahead, Ahead::Dropped) {
            return;
        }
        match self.endpoint.handle(
            now,
            datagram.remote,
            datagram.local_ip,
            ecn,
            datagram.data,
            &mut self.scratch,
        ) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(Some(connection)) = self.connections.get_mut(handle.0) {
                    let key = connection.key;
                    self.contain(key, |this| this.handle_packet(now, key, event, remote, bytes));
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let first = match &ahead {
                    Ahead::First(first) => Some(&first[..]),
                    _ => None,
                };
                self.accept(now, incoming, bytes, first);
            }
            Some(DatagramEvent::Response(transmit)) => {
                // Version negotiation is the only such packet with a long header and version 0 (RFC
                // 9000, section 17.2.1).
                if matches!(self.scratch.get(..5), Some([first, 0, 0, 0, 0]) if first & 0x80 != 0) {
                    self.stats.version_negotiations_sent.add(1);
                } else {
                    self.stats.stateless_resets_sent.add(u64::from(resettable));
                    self.stats.stateless_answers_sent.add(1);
                }
                self.answer(transmit);
            }
            None if let Ahead::Parked(number) = ahead => self.look_up(now, number),
            // There is no other reason for the library not to answer a packet of this form.
            None if resettable => self.stats.stateless_resets_withheld.add(1),
            None if self.may_return => self.is_stray = true,
            None => self.stats.datagrams_ignored.add(1),
        }
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        event: ConnectionEvent,
        remote: SocketAddr,
        bytes: usize,
    ) {
        let Some(connection) =
            self.connections.get_mut(key.index as usize).and_then(Option::as_deref_mut)
        else {
            return;
        };
        if let Some(exchanged) = &mut connection.unvalidated {
            exchanged.received += bytes;
        }
        let before = connection.inner.remote_address();
        if remote != before {
            connection.note_other_path(remote, bytes);
        }
        connection.inner.handle_event(event);
        connection.check_address();
        connection.open_receive_window(now, bytes, &self.config.limits, &self.stats);
        if connection.inner.remote_address() != before {
            self.stats.quic_migrations.add(1);
        }
        self.drive(now, key);
    }

    pub(super) fn handle_timeout_of(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connection(key) else { return };
        if connection.deadline.is_some_and(|deadline| deadline <= now) {
            connection.inner.handle_timeout(now);
            connection.probes = connection.probes_handshake();
        }
        if connection.handshake_until.is_some_and(|until| until <= now) && !connection.closed {
            self.stats.handshakes_timed_out.add(1);
            self.close_connection(now, key, 0, "the handshake took too long");
        }
        // Queues the deadline again, which may have moved back.
        self.drive(now, key);
    }

    pub(super) fn close_connection(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        code: u64,
        reason: &str,
    ) {
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
}
