//! Handles data and events received from the peer.

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

/// Bytes read from one stream before other streams have their turn.
const READ_BYTES: usize = 64 << 10;

impl Connection {
    pub(in crate::http3) fn on_readable(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        self.read(transport, id)?;
        // The data may have been what other streams waited for.
        while let Some(unblocked) = self.h3.poll_unblocked() {
            self.read(transport, unblocked)?;
        }
        Ok(())
    }

    pub(super) fn read(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        loop {
            if self.h3.is_blocked(id) {
                // The stream is not read until its field section can be decoded, or its session
                // begins; flow control bounds what follows.
                if let Some(code) = transport.received_reset(self.key, id) {
                    self.h3.handle_reset(id, code)?;
                    self.on_events(transport);
                } else if self.h3.is_waiting(id) {
                    self.expect_head(transport, id);
                }
                return Ok(());
            }
            let request_room =
                self.requests.get(&id).map(|exchange| exchange.stream.inbound_room());
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
            // A whole request, or data on a client's control and QPACK streams between requests.
            let is_whole = if id.is_bidi() {
                read == Read::Finished && request_room.is_none()
            } else {
                read != Read::Left
            };
            if is_whole && self.client.is_none() {
                (self.deferred, self.deferred_news) = (true, true);
                return Ok(());
            }
            self.deadlines.ended = None;
            self.on_events(transport);
            if read == Read::Blocked && self.deadlines.ended != Some(id) {
                self.expect_head(transport, id);
            }
            if read != Read::Left {
                return Ok(());
            }
        }
    }

    /// Delivers data that was received before the connection ended but exceeded the buffer. The
    /// peer knows that it has arrived, and may have closed the connection because of that, so
    /// applications get it before the error.
    pub(in crate::http3) fn deliver_received(&mut self, transport: &mut impl Transport) {
        let waits = |exchange: &Exchange| !exchange.received && exchange.stream.is_paused();
        let waiting: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, exchange)| waits(exchange))
            .map(|(id, _)| *id)
            .collect();
        if waiting.is_empty() {
            return;
        }
        let Some(windows) = transport.take_windows(self.key).map(Rc::new) else { return };
        for id in waiting {
            if let Some(exchange) = self.requests.get(&id) {
                exchange.stream.keep_received(windows.clone());
            }
            // A protocol error would close the connection, which has already ended.
            let _ = self.read(transport, id);
        }
    }

    /// Reads about `most` bytes of the stream, or less if it must not be read further for now.
    fn read_up_to(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        most: usize,
    ) -> Result<Read, ConnectionError> {
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
                context.stats.qpack_streams_blocked.add(u64::from(!h3.is_waiting(id)));
                return false;
            }
            // The end of a session's stream is not read before the application accepts the stream:
            // until then the transport lets the peer open no other stream in its place.
            let is_new = sessions
                .as_ref()
                .is_some_and(|sessions| h3.is_session_stream(id) && !sessions.has_stream(id));
            taken < most && !is_new
        });
        handled.map(|()| read)
    }

    /// Whether events for [`Connection::on_deferred`] were read since the last call.
    pub(in crate::http3) fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred_news)
    }

    /// Dispatches the events read so far.
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
                Event::Head { stream, head: h3::Head::Request(head), end } => {
                    self.on_request(transport, stream, head, end);
                }
                Event::Head { stream, head: h3::Head::Response(head), end } => {
                    self.on_response(transport, stream, head, end);
                }
                Event::Data { stream, data } => {
                    if let Some(exchange) = self.requests.get(&stream) {
                        exchange.stream.on_data(data);
                    }
                }
                Event::Trailers { stream, mut section } => {
                    let memory =
                        fields::SectionMemory::new(section.share(&mut self.state.memory.text()));
                    if let Some(exchange) = self.requests.get(&stream)
                        && let Some(trailers) = fields::headers(
                            section.iter(),
                            section.len(),
                            &memory,
                            HeaderMap::new(),
                        )
                    {
                        exchange.stream.on_trailers(trailers);
                    }
                    self.h3.recycle(section);
                }
                Event::Finished { stream } => self.on_inbound_end(stream, Ok(())),
                Event::Reset { stream, code } => {
                    // A server does not answer half a request, but a response already begun stays
                    // as it is. A client does not need a request without its response, nor is one
                    // direction of a tunnel useful alone.
                    self.abort(transport, stream, ErrorCode::H3_REQUEST_CANCELLED);
                    self.on_inbound_end(stream, Err(StreamError::Reset(code)));
                }
                Event::StreamError { stream, code, reason, limit } => {
                    if let Some(counter) =
                        limit.and_then(|limit| limits::counter(limit, &self.context.stats))
                    {
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
                        self.refuse_waiting("the server sent GOAWAY");
                    }
                    self.drain_sessions();
                }
                Event::PriorityUpdate { stream, priority } => {
                    self.context.stats.priority_updates.add(1);
                    let response_priority = self
                        .requests
                        .get(&stream)
                        .and_then(|exchange| exchange.response_priority.as_deref());
                    let priority = response_priority.map_or(priority, |response_priority| {
                        priority.overridden_by(response_priority)
                    });
                    self.set_priority(transport, stream, priority);
                }
                Event::Settings => {
                    for stream in std::mem::take(&mut self.awaiting_settings) {
                        stream.is_waiting.set(false);
                        stream.queue_work();
                    }
                    let offered = self
                        .h3
                        .peer_settings()
                        .map_or(0, |settings| settings.qpack_max_table_capacity);
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
            self.context
                .stats
                .priority_updates_dropped
                .add(dropped - std::mem::replace(&mut self.dropped_priority_updates, dropped));
        }
        // Once for all events of the turn: the decoder instructions for many requests fit into one
        // packet.
        self.wants_to_write |= self.h3.wants_uni_write();
    }

    fn on_request(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        mut decoded: h3::RequestHead,
        end: bool,
    ) {
        self.context.stats.requests_http3.add(1);
        self.is_used = true;
        self.deadlines.end_head(id);
        let head = fields::request(
            &mut decoded,
            &self.latest_authority,
            self.state.memory.map(),
            &mut self.state.memory.text(),
        );
        self.h3.recycle(decoded.into_section());
        let Some(mut head) = head else {
            return self.refuse(
                transport,
                id,
                StatusCode::BAD_REQUEST,
                ErrorCode::H3_MESSAGE_ERROR,
            );
        };
        let found = match head.admit_in_place() {
            Ok(found) => found,
            Err(refusal) => {
                let code = if refusal.status == StatusCode::BAD_REQUEST {
                    ErrorCode::H3_MESSAGE_ERROR
                } else {
                    ErrorCode::H3_NO_ERROR
                };
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
        let stream = self.state.memory.stream(self.key, id, method.clone(), &self.work_queue);
        let asked = if found.has_priority { priority_field(&headers) } else { None };
        let priority = asked.map_or(Priority::default(), |value| Priority::from_field(&value));
        let mut exchange = Exchange::new(
            stream.clone(),
            priority,
            &self.context.config.limits,
            self.state.memory.wire(),
        );
        stream.expects_continue.set(found.expects_continue && !end);
        let body = if end {
            exchange.received = true;
            stream.on_inbound_end(Ok(()));
            Incoming::empty()
        } else {
            Incoming::http3(stream.clone())
        };
        exchange.priority_unset = true;
        self.requests.insert(id, exchange);
        let (early_data, server_name, client_certificate) =
            (self.handshaking, self.server_name.clone(), self.client_certificate.clone());
        let (remote, tls) = (self.remote, self.tls);
        let peer = Peer {
            protocol: Protocol::Http3,
            remote,
            secure: true,
            early_data,
            tls,
            server_name,
            client_certificate,
        };
        let request = Request { method, uri, headers, peer, upgrade, body };
        let early =
            early_data.then(|| self.handshake_signal.get_or_insert_with(Rc::default).clone());
        let responder =
            Responder::http3(stream, self.state.clone(), &self.context).with_handshake(early);
        self.dispatcher.dispatch(request, responder);
    }

    fn on_response(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        mut head: h3::ResponseHead,
        end: bool,
    ) {
        let Some(exchange) = self.requests.get_mut(&id) else { return };
        let is_interim = head.is_interim();
        let response = fields::response(&mut head, &mut self.state.memory.text());
        self.h3.recycle(head.into_section());
        match response {
            Some((status, headers)) if is_interim => exchange.stream.on_interim(status, headers),
            Some((status, headers)) => exchange.stream.on_response(status, headers),
            None => {
                return self.on_stream_error(
                    transport,
                    id,
                    ErrorCode::H3_MESSAGE_ERROR,
                    "invalid status code or header field",
                );
            }
        }
        if end {
            self.on_inbound_end(id, Ok(()));
        }
    }

    pub(super) fn on_inbound_end(&mut self, id: StreamId, end: Result<(), StreamError>) {
        if let Some(exchange) = self.requests.get_mut(&id) {
            exchange.received = true;
            exchange.stream.on_inbound_end(end);
            // RFC 9114, section 4.1, lets a server respond before it has the whole request, and ask
            // for no more. A server that does neither, nor reads on, would keep the stream open
            // forever, and so would a producer that stops producing.
            if self.client.is_some() && !exchange.sent && !exchange.tunnel {
                exchange.progress.on_blocked(self.context.handle.now());
                if let Some(deadline) = exchange.progress.deadline() {
                    self.deadlines.request_check(deadline);
                }
            }
        }
        self.forget_if_done(id);
    }

    fn on_stream_error(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        code: ErrorCode,
        reason: &'static str,
    ) {
        if self.client.is_none() && !self.requests.contains_key(&id) {
            if code == ErrorCode::H3_EXCESSIVE_LOAD {
                return self.refuse(
                    transport,
                    id,
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                    code,
                );
            }
            self.context.stats.requests_refused.add(1);
        }
        self.stop(transport, id, code);
        self.abort(transport, id, code);
        let is_too_large = code == ErrorCode::H3_EXCESSIVE_LOAD;
        self.on_inbound_end(
            id,
            Err(if is_too_large {
                StreamError::TooLarge(reason)
            } else {
                StreamError::Malformed(reason)
            }),
        );
    }

    /// Called when the server goes away without having processed the request.
    fn on_unprocessed(&mut self, transport: &mut impl Transport, id: StreamId) {
        self.stop(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
        self.abort(transport, id, ErrorCode::H3_REQUEST_CANCELLED);
        self.on_inbound_end(id, Err(StreamError::Refused("the server sent GOAWAY".to_owned())));
    }

    /// Answers a request that never reaches a handler.
    pub(super) fn refuse(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        status: StatusCode,
        code: ErrorCode,
    ) {
        self.context.stats.requests_refused.add(1);
        self.deadlines.end_head(id);
        self.stop(transport, id, code);
        let stream = self.state.memory.stream(self.key, id, Method::GET, &self.work_queue);
        let mut exchange = Exchange::new(
            stream.clone(),
            Priority::default(),
            &self.context.config.limits,
            self.state.memory.wire(),
        );
        exchange.received = true;
        self.requests.insert(id, exchange);
        stream.on_inbound_end(Ok(()));
        stream.respond(self.state.memory.boxed_response(&mut Response::new(status)));
    }

    pub(super) fn stop(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode) {
        transport.stop(self.key, id, code.0);
        self.h3.stop_receiving(id);
        // Sends the peer's encoder a stream cancellation for an undecoded section.
        self.wants_to_write |= self.h3.wants_uni_write();
    }

    /// Resets our side of a stream, unless it is done.
    pub(super) fn abort(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode) {
        self.deadlines.end_head(id);
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
        self.traced(|trace, now| {
            trace.stream_state(now, id, StreamSide::Sending, StreamState::ResetSent);
        });
        transport.reset(self.key, id, code.0);
        self.h3.finish_sending(id);
        self.forget_if_done(id);
    }

    pub(super) fn forget_if_done(&mut self, id: StreamId) {
        if self.requests.get(&id).is_some_and(Exchange::is_done) {
            self.forget(id);
        }
    }

    /// Drops a finished exchange.
    pub(super) fn forget(&mut self, id: StreamId) {
        if let Some(Exchange { stream, wire, .. }) = self.requests.remove(&id) {
            if let Some(sessions) = &mut self.sessions {
                sessions.on_request_done(id);
            }
            self.state.memory.keep_wire(wire);
            self.state.memory.keep_stream(stream);
        }
    }
}
