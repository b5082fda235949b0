//! Frames and writes data to the peer.

use std::rc::Rc;

use bytes::Bytes;
use pronghorn_h3::{ErrorCode, Priority, StreamId, UniStream};

use super::Connection;
use crate::http3::framing::{Framed, Framer};
use crate::http3::stream::{Stream, StreamError};
use crate::schedule::Turn;
use crate::transport::{Dir, Order, Transport, Write};

impl Connection {
    /// Frames the items that the application has queued on the stream, to be written in their turn.
    pub(super) fn flush(&mut self, transport: &mut impl Transport, stream: &Rc<Stream>) {
        let Some(id) = stream.id.get() else { return };
        let Some(exchange) = self.requests.get_mut(&id) else { return };
        let mut encoded = self.state.encoded.borrow_mut();
        let mut priority = exchange.priority;
        let mut keep_alive = false;
        while let Some(outbound) = stream.next_outbound() {
            if outbound.begins_tunnel() {
                exchange.tunnel = true;
                // A tunnel may never end, and others would wait for it.
                priority.incremental = true;
                keep_alive = true;
            }
            let mut framer = Framer {
                id,
                h3: &mut self.h3,
                encoded: &mut encoded,
                alt_svc: self.alt_svc.as_ref(),
                context: &self.context,
                state: &self.state,
                trace: self.trace.as_ref(),
            };
            match framer.frame(stream, outbound, &mut exchange.wire) {
                Framed::More => {}
                Framed::Response { priority: response_priority, last } => {
                    exchange.fin = last;
                    //= RFC 9218 section 8
                    //# The absence of a priority parameter in an HTTP response indicates the server's disinterest in changing the
                    //# client-provided value.
                    if let Some(response_priority) = response_priority {
                        priority = priority.overridden_by(&response_priority);
                        exchange.response_priority = Some(Box::new(response_priority));
                    }
                }
                Framed::Last => exchange.fin = true,
                Framed::Unsendable(error) => {
                    drop(encoded);
                    self.stop(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
                    self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
                    return self
                        .on_inbound_end(id, Err(StreamError::Unsendable(error.to_string())));
                }
                Framed::Abort(code) => {
                    drop(encoded);
                    // A server may wait forever for the rest of an aborted request.
                    if (exchange.tunnel || self.client.is_some()) && !exchange.received {
                        let error = if exchange.tunnel {
                            StreamError::Reset(code)
                        } else {
                            StreamError::BodyFailed
                        };
                        self.stop(transport, id, code);
                        self.abort(transport, id, code);
                        return self.on_inbound_end(id, Err(error));
                    }
                    self.abort(transport, id, code);
                    return self.end_reading(transport, id);
                }
            }
        }
        drop(encoded);
        let is_small_and_whole = exchange.is_small_and_whole();
        if priority != exchange.priority {
            self.set_priority(transport, id, priority);
        }
        if keep_alive {
            self.keep_alive();
        }
        let wants_uni_write = self.h3.wants_uni_write();
        self.wants_to_write |= wants_uni_write;
        if is_small_and_whole {
            // Data on the QPACK streams that the head refers to goes first: it must not wait for
            // flow control credit that the head uses up.
            if wants_uni_write {
                self.write_uni(transport);
            }
            if self.write_turn(transport, Turn { id, bytes: usize::MAX }) {
                return;
            }
        } else {
            self.schedule(id);
        }
        self.end_reading(transport, id);
    }

    /// Adds the stream to the schedule.
    pub(super) fn schedule(&mut self, id: StreamId) {
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

    pub(super) fn set_priority(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        priority: Priority,
    ) {
        let Some(exchange) = self.requests.get_mut(&id) else { return };
        let priority =
            Priority { incremental: priority.incremental || exchange.tunnel, ..priority };
        if exchange.priority == priority {
            return;
        }
        if exchange.scheduled {
            self.schedule.remove(id, exchange.priority);
            self.schedule.insert(id, priority);
        }
        exchange.priority = priority;
        if !exchange.priority_unset {
            transport.set_priority(self.key, id, priority);
        }
    }

    /// Whether [`Connection::write`] must be called. Resets the flag.
    pub(in crate::http3) fn wants_to_write(&mut self) -> bool {
        std::mem::take(&mut self.wants_to_write)
    }

    /// Writes what the transport accepts, the most urgent streams first.
    ///
    /// Called after all events and handles of a turn were processed, so their order does not
    /// matter.
    pub(in crate::http3) fn write(&mut self, transport: &mut impl Transport) {
        // First the QPACK data that heads refer to: it must not wait for flow control credit that
        // the heads use up.
        self.write_uni(transport);
        while let Some(turn) = self.schedule.next() {
            self.write_turn(transport, turn);
        }
        if self.sessions.is_some() {
            self.write_session_streams(transport);
        }
    }

    /// Writes one stream's turn. Returns whether the stream has ended and
    /// [`Connection::end_reading`] was called.
    fn write_turn(&mut self, transport: &mut impl Transport, turn: Turn<StreamId>) -> bool {
        let id = turn.id;
        let Some(exchange) = self.requests.get_mut(&id) else { return true };
        exchange.scheduled = false;
        let before = exchange.waiting();
        let order = Order {
            priority: exchange.priority,
            is_new: std::mem::take(&mut exchange.priority_unset),
        };
        let written = transport.write(
            self.key,
            id,
            &mut exchange.wire,
            turn.bytes,
            exchange.fin,
            Some(order),
        );
        let waiting = exchange.waiting();
        if self.client.is_none() {
            exchange.progress.on_moved(before - waiting);
            match written {
                Write::Blocked if exchange.progress.deadline().is_none() => {
                    exchange
                        .on_blocked(self.context.handle.now(), transport.acknowledged(self.key));
                }
                Write::Done | Write::Stopped => exchange.progress.on_done(),
                Write::Blocked | Write::More => {}
            }
            if let Some(deadline) = exchange.progress.deadline() {
                self.deadlines.request_check(deadline);
            }
        } else if exchange.progress.deadline().is_some() {
            // The response is complete; from now on the request's content must make progress.
            exchange.progress.on_moved(before - waiting);
            exchange.progress.on_blocked(self.context.handle.now());
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
                // Done by `fin` in the write above.
                exchange.sent = true;
                self.unacknowledged += 1;
                self.h3.finish_sending(id);
            }
            Write::Done | Write::Blocked => {}
            Write::More => {
                exchange.scheduled = true;
                self.schedule.insert(id, exchange.priority);
            }
            // The peer has stopped the stream, perhaps before its request was complete, when no
            // exchange existed.
            Write::Stopped => {
                // The response was computed in vain. If that happens too often, the connection's
                // next input fails with an error.
                let _ = self.h3.handle_stop_sending(id, ErrorCode::H3_REQUEST_CANCELLED.0);
                self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
                self.end_reading(transport, id);
                return true;
            }
        }
        exchange.stream.wrote(waiting);
        let has_ended = exchange.sent;
        if has_ended {
            self.end_reading(transport, id);
        }
        has_ended
    }

    /// Stops reading what the application no longer reads, and drops the exchange if it is done.
    pub(super) fn end_reading(&mut self, transport: &mut impl Transport, id: StreamId) {
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
                let code = if exchange.fin {
                    ErrorCode::H3_NO_ERROR
                } else {
                    ErrorCode::H3_REQUEST_CANCELLED
                };
                self.stop(transport, id, code);
            }
            return self.forget_if_done(id);
        }
        if exchange.is_done() {
            self.forget(id);
        }
    }

    /// Writes our control and QPACK streams. Each is opened once it has data and the peer's limit
    /// allows it.
    pub(super) fn write_uni(&mut self, transport: &mut impl Transport) {
        while let Some((kind, bytes)) = self.h3.poll_uni_write() {
            self.uni[kind as usize].queue.push_back(bytes);
        }
        for (kind, uni) in
            UniStream::ALL.into_iter().zip(&mut self.uni).filter(|(_, uni)| !uni.queue.is_empty())
        {
            uni.id = uni.id.or_else(|| transport.open(self.key, Dir::Control));
            if let Some(id) = uni.id {
                // The rest is written at the next `Writable` event.
                transport.write(self.key, id, &mut uni.queue, usize::MAX, false, None);
            }
            self.h3.set_uni_backlog(kind, uni.queue.iter().map(Bytes::len).sum());
        }
    }
}
