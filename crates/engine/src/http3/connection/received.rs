//! What the peer sent.

use std::rc::Rc;

use http::{HeaderMap, Method, StatusCode};
use pronghorn_h3::{self as h3, ConnectionError, ErrorCode, Event, Priority, StreamId};

use super::sessions::is_webtransport;
use super::{Connection, Exchange};
use crate::admission::Head;
use crate::http3::stream::StreamError;
use crate::http3::{fields, limits};
use crate::message::{Peer, Protocol};
use crate::qlog::{StreamSide, StreamState};
use crate::schedule::priority_field;
use crate::transport::{Read, Transport};
use crate::{Incoming, Request, Responder, Response};

/// Bytes read from one stream before others have their turn.
const READ_BYTES: usize = 64 << 10;

impl Connection {
    pub(in crate::http3) fn on_readable(&mut self, transport: &mut impl Transport, id: StreamId) -> Result<(), ConnectionError> {
        self.read(transport, id)?;
        // What came may be what other streams have waited for.
        while let Some(unblocked) = self.h3.poll_unblocked() {
            self.read(transport, unblocked)?;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, transport: &mut impl Transport, id: StreamId) -> Result<(), ConnectionError> {
        loop {
            if self.h3.is_blocked(id) {
                // It is not read until its field section can be decoded, or its session begins: the flow control window bounds what follows.
                if let Some(code) = transport.received_reset(self.key, id) {
                    self.h3.handle_reset(id, code)?;
                    self.on_events(transport);
                } else if self.h3.is_early(id) {
                    self.expect_head(transport, id);
                }
                return Ok(());
            }
            let request_room = self.requests.get(&id).map(|exchange| exchange.stream.inbound_room());
            let room = request_room.or_else(|| self.session_stream_room(id)).unwrap_or(READ_BYTES);
            if room == 0 {
                return Ok(());
            }
            let read = self.read_up_to(transport, id, room.min(READ_BYTES))?;
            match read {
                Read::Finished => self.h3.handle_fin(id)?,
                Read::Reset(code) => self.h3.handle_reset(id, code)?,
                Read::Left | Read::Blocked | Read::Gone => {}
            }
            // A whole request, or what a client's control and QPACK streams bring between them.
            let is_whole = if id.is_bidi() { read == Read::Finished && request_room.is_none() } else { read != Read::Left };
            if is_whole && self.client.is_none() {
                (self.deferred, self.deferred_news) = (true, true);
                return Ok(());
            }
            self.patience.ended = None;
            self.on_events(transport);
            if read == Read::Blocked && self.patience.ended != Some(id) {
                self.expect_head(transport, id);
            }
            if read != Read::Left {
                return Ok(());
            }
        }
    }

    /// The connection has ended. What its peer knows to have arrived, and perhaps ended it for, has waited for room: applications get it all the
    /// same, before they learn of the end.
    pub(in crate::http3) fn read_rest(&mut self, transport: &mut impl Transport) {
        let waits = |exchange: &Exchange| !exchange.received && exchange.stream.is_paused();
        let waiting: Vec<_> = self.requests.iter().filter(|(_, exchange)| waits(exchange)).map(|(id, _)| *id).collect();
        if waiting.is_empty() {
            return;
        }
        let Some(windows) = transport.take_windows(self.key).map(Rc::new) else { return };
        for id in waiting {
            if let Some(exchange) = self.requests.get(&id) {
                exchange.stream.take_rest(windows.clone());
            }
            // What breaks the rules ends a connection, which has ended.
            let _ = self.read(transport, id);
        }
    }

    /// Takes `most` bytes of the stream, or a little more, and less if it is not to be read on for now.
    fn read_up_to(&mut self, transport: &mut impl Transport, id: StreamId, most: usize) -> Result<Read, ConnectionError> {
        let Self { h3, context, sessions, .. } = self;
        let mut taken = 0;
        let mut handled = Ok(());
        let read = transport.read(self.key, id, |data| {
            taken += data.len();
            handled = h3.handle_data(id, data);
            if handled.is_err() {
                return false;
            }
            if h3.is_blocked(id) {
                context.stats.qpack_streams_blocked.add(u64::from(!h3.is_early(id)));
                return false;
            }
            // The end of a session's stream is not read before somebody accepts it: then the transport lets the peer open no other in its
            // place.
            let is_new = sessions.as_ref().is_some_and(|sessions| h3.is_session_stream(id) && !sessions.has_stream(id));
            taken < most && !is_new
        });
        handled.map(|()| read)
    }

    /// Whether something has been read since this was asked last that [`Connection::on_deferred`] hands on.
    pub(in crate::http3) fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred_news)
    }

    /// Hands on what has been read.
    pub(in crate::http3) fn on_deferred(&mut self, transport: &mut impl Transport) {
        if self.deferred {
            self.on_events(transport);
        }
    }

    pub(super) fn on_events(&mut self, transport: &mut impl Transport) {
        self.deferred = false;
        while let Some(event) = self.h3.poll_event() {
            self.traced(|trace, now| trace.received(now, &event, self.h3.peer_settings()));
            match event {
                Event::Head { stream, head: h3::Head::Request(head), end } => self.on_request(transport, stream, head, end),
                Event::Head { stream, head: h3::Head::Response(head), end } => self.on_response(transport, stream, head, end),
                Event::Data { stream, data } => {
                    if let Some(exchange) = self.requests.get(&stream) {
                        exchange.stream.on_data(data);
                    }
                }
                Event::Trailers { stream, mut section } => {
                    let memory = fields::Memory::new(section.share(&mut self.context.spares.text()));
                    if let Some(exchange) = self.requests.get(&stream)
                        && let Some(trailers) = fields::headers(section.iter(), section.len(), &memory, HeaderMap::new())
                    {
                        exchange.stream.on_trailers(trailers);
                    }
                    self.h3.recycle(section);
                }
                Event::Finished { stream } => self.on_inbound_end(stream, Ok(())),
                Event::Reset { stream, code } => {
                    // A server has nothing to answer to half a request. What it has answered already stays. A client has no use for a
                    // request without its response. Nor is one direction of a tunnel of use without the other.
                    self.abort(transport, stream, ErrorCode::H3_REQUEST_CANCELLED);
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
                Event::Session(event) => self.on_session_event(transport, event),
                Event::GoAway { .. } => {
                    if let Some(client) = &self.client {
                        client.on_go_away();
                        self.refuse_waiting("it goes away (GOAWAY)");
                    }
                    self.drain_sessions();
                }
                Event::PriorityUpdate { stream, priority } => {
                    self.context.stats.priority_updates.add(1);
                    let said = self.requests.get(&stream).and_then(|exchange| exchange.said.as_deref());
                    let priority = said.map_or(priority, |said| priority.overridden_by(said));
                    self.set_priority(transport, stream, priority);
                }
                Event::Settings => {
                    for stream in std::mem::take(&mut self.asking) {
                        stream.is_waiting.set(false);
                        stream.mark_dirty();
                    }
                    let offered = self.h3.peer_settings().map_or(0, |settings| settings.qpack_max_table_capacity);
                    if offered > self.context.config.limits.qpack_encoder_table_bytes() {
                        self.context.stats.qpack_tables_reduced.add(1);
                    }
                }
            }
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.count_dropped(&self.h3, &self.context.stats);
        }
        let dropped = self.h3.dropped_priority_updates();
        if dropped > self.dropped_priority_updates {
            self.context.stats.priority_updates_dropped.add(dropped - std::mem::replace(&mut self.dropped_priority_updates, dropped));
        }
        // Once for all that came in this turn: what the peer's encoder has to be told of each of many requests fits into one packet.
        self.wants_to_write |= self.h3.wants_uni_write();
    }

    fn on_request(&mut self, transport: &mut impl Transport, id: StreamId, mut decoded: h3::RequestHead, end: bool) {
        self.context.stats.requests_http3.add(1);
        self.is_used = true;
        self.patience.end_head(id);
        let context = &self.context;
        let head = fields::request(&mut decoded, &self.latest_authority, context.spares.map(), &mut context.spares.text());
        self.h3.recycle(decoded.into_section());
        let Some(mut head) = head else {
            return self.refuse(transport, id, StatusCode::BAD_REQUEST, ErrorCode::H3_MESSAGE_ERROR);
        };
        let found = match head.admit_in_place() {
            Ok(found) => found,
            Err(refusal) => {
                let code = if refusal.status == StatusCode::BAD_REQUEST { ErrorCode::H3_MESSAGE_ERROR } else { ErrorCode::H3_NO_ERROR };
                return self.refuse(transport, id, refusal.status, code);
            }
        };
        let Head { method, uri, headers, upgrade, .. } = head;
        if upgrade.as_ref().is_some_and(is_webtransport) && !self.expect_session(id) {
            self.context.stats.requests_refused.add(1);
            self.stop(transport, id, ErrorCode::H3_REQUEST_REJECTED);
            return self.abort(transport, id, ErrorCode::H3_REQUEST_REJECTED);
        }
        self.latest_authority.note(&uri, &headers);
        let stream = self.context.spares.stream(self.key, id, method.clone(), &self.dirty);
        let asked = if found.has_priority { priority_field(&headers) } else { None };
        let priority = asked.map_or(Priority::default(), |value| Priority::from_field(&value));
        let mut exchange = Exchange::new(stream.clone(), priority, &self.context.config.limits, self.context.spares.wire());
        stream.expects_continue.set(found.expects_continue && !end);
        let body = if end {
            exchange.received = true;
            stream.on_inbound_end(Ok(()));
            Incoming::empty()
        } else {
            Incoming::http3(stream.clone())
        };
        exchange.untold = true;
        self.requests.insert(id, exchange);
        let (early_data, server_name, client_certificate) = (self.handshaking, self.server_name.clone(), self.client_certificate.clone());
        let (remote, tls) = (self.remote, self.tls);
        let peer = Peer { protocol: Protocol::Http3, remote, secure: true, early_data, tls, server_name, client_certificate };
        let request = Request { method, uri, headers, peer, upgrade, body };
        self.context.dispatch(request, Responder::http3(stream, &self.context));
    }

    fn on_response(&mut self, transport: &mut impl Transport, id: StreamId, mut head: h3::ResponseHead, end: bool) {
        let Some(exchange) = self.requests.get_mut(&id) else { return };
        let is_interim = head.is_interim();
        let response = fields::response(&mut head, &mut self.context.spares.text());
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

    pub(super) fn on_inbound_end(&mut self, id: StreamId, end: Result<(), StreamError>) {
        if let Some(exchange) = self.requests.get_mut(&id) {
            exchange.received = true;
            exchange.stream.on_inbound_end(end);
            // RFC 9114, section 4.1, lets a server answer before it has the whole request, and ask for no more. One that neither does so
            // nor reads on would keep the stream for ever, and so would a producer that has nothing more to say.
            if self.client.is_some() && !exchange.sent && !exchange.tunnel {
                exchange.progress.on_blocked(self.context.handle.now());
                if let Some(deadline) = exchange.progress.deadline() {
                    self.patience.expect(deadline);
                }
            }
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
        let is_too_large = code == ErrorCode::H3_EXCESSIVE_LOAD;
        self.on_inbound_end(id, Err(if is_too_large { StreamError::TooLarge(reason) } else { StreamError::Malformed(reason) }));
    }

    /// The server goes away and has not processed the request.
    fn on_unprocessed(&mut self, transport: &mut impl Transport, id: StreamId) {
        self.stop(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
        self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
        self.on_inbound_end(id, Err(StreamError::Refused("it goes away (GOAWAY)".to_owned())));
    }

    /// Answers a request that no handler gets to see.
    pub(super) fn refuse(&mut self, transport: &mut impl Transport, id: StreamId, status: StatusCode, code: ErrorCode) {
        self.context.stats.requests_refused.add(1);
        self.patience.end_head(id);
        self.stop(transport, id, code);
        let stream = self.context.spares.stream(self.key, id, Method::GET, &self.dirty);
        let mut exchange = Exchange::new(stream.clone(), Priority::default(), &self.context.config.limits, self.context.spares.wire());
        exchange.received = true;
        self.requests.insert(id, exchange);
        stream.on_inbound_end(Ok(()));
        stream.respond(self.context.spares.place(&mut Response::new(status)));
    }

    pub(super) fn stop(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode) {
        transport.stop(self.key, id, code.0);
        self.h3.stop_receiving(id);
        // The peer's encoder is told that a section is not decoded.
        self.wants_to_write |= self.h3.wants_uni_write();
    }

    /// Resets our side of a stream, if it is not done.
    pub(super) fn abort(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode) {
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

    pub(super) fn forget_if_done(&mut self, id: StreamId) {
        if self.requests.get(&id).is_some_and(Exchange::is_done) {
            self.forget(id);
        }
    }

    /// Lets go of an exchange that is done.
    pub(super) fn forget(&mut self, id: StreamId) {
        if let Some(Exchange { stream, wire, .. }) = self.requests.remove(&id) {
            if let Some(sessions) = &mut self.sessions {
                sessions.on_request_done(id);
            }
            self.context.spares.keep_wire(wire);
            self.context.spares.keep_stream(stream);
        }
    }
}
