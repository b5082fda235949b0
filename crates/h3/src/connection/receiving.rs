//! Dispatches received data to the parts of the connection.

use bytes::Bytes;

use super::{
    Connection, Shutdown,
    control::ControlFrame,
    incoming::{Classified, Purpose, closed_critical_stream},
    request_stream::{REQUEST_REJECTED, RequestStream},
    stream_context::StreamContext,
    webtransport::made,
};
use crate::{
    error::{ConnectionError, ErrorCode},
    event::Event,
    limit::Limit,
    priority::Priority,
    role::Role,
    stream::StreamId,
};

/// Maximum bytes of the local decoder stream that wait for the peer's flow control. An honest peer
/// reads it continuously.
const MAX_DECODER_BACKLOG: usize = 64 * 1024;

impl Connection {
    /// Handles received bytes of a stream, in order.
    pub fn handle_data(&mut self, stream: StreamId, data: Bytes) -> Result<(), ConnectionError> {
        if self.decoder_backlog > MAX_DECODER_BACKLOG {
            return Err(ConnectionError::limit_reached(Limit::DecoderBacklog));
        }
        if let Some((sessions, shared)) = self.sessions_of(stream) {
            sessions.on_data(stream, data, &mut shared.events)?;
            return shared.cost_balance.verdict();
        }
        if stream.is_bidi() {
            if let Some((request, shared)) = self.received_request(stream)?
                && let Some(preamble) = request.on_data(stream, data, shared)?
            {
                self.on_session_stream(stream, &preamble)?;
            }
            self.shared.cost_balance.verdict()
        } else {
            self.on_uni_data(stream, data)
        }
    }

    /// Handles the clean end of the peer's side of a stream, after all its data.
    pub fn handle_fin(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        if let Some((sessions, shared)) = self.sessions_of(stream) {
            sessions.on_fin(stream, &mut shared.events);
            return Ok(());
        }
        if !stream.is_bidi() {
            return self.incoming.on_end(stream, &mut self.shared.cost_balance);
        }
        if let Some((request, shared)) = self.received_request(stream)? {
            request.on_fin(stream, shared)?;
            if request.is_done() {
                self.forget(stream);
            }
        }
        self.shared.cost_balance.verdict()
    }

    /// Handles a reset of the peer's side of a stream.
    pub fn handle_reset(&mut self, stream: StreamId, code: u64) -> Result<(), ConnectionError> {
        if let Some((sessions, shared)) = self.sessions_of(stream) {
            sessions.on_reset(stream, ErrorCode(code), &mut shared.events);
            return Ok(());
        }
        if !stream.is_bidi() {
            return self.incoming.on_end(stream, &mut self.shared.cost_balance);
        }
        if let Some((request, shared)) = self.received_request(stream)? {
            request.on_reset(stream, ErrorCode(code), shared);
            self.forget_if_done(stream);
        }
        self.shared.cost_balance.verdict()
    }

    /// Handles STOP_SENDING: the peer reads no more of the stream. Also call it for streams opened
    /// by this endpoint.
    pub fn handle_stop_sending(
        &mut self,
        stream: StreamId,
        code: u64,
    ) -> Result<(), ConnectionError> {
        if let Some(sessions) =
            self.sessions.as_deref_mut().filter(|sessions| sessions.contains_stream(stream))
        {
            sessions.on_stop_sending(stream, ErrorCode(code), &mut self.shared.events);
            return Ok(());
        }
        if !stream.is_bidi() {
            // All other local unidirectional streams are critical.
            return Err(closed_critical_stream());
        }
        if let Some(request) =
            self.requests.get_mut(&stream).filter(|request| !request.is_sending_done)
        {
            //= RFC 9114 section 4.1
            //# Clients MUST NOT discard complete responses as a result of having their request terminated abruptly,
            //# though clients can always discard responses at their discretion for other reasons.
            request.on_aborted(&mut self.shared);
            self.shared.events.push_back(Event::StopSending { stream, code: ErrorCode(code) });
        }
        self.shared.cost_balance.verdict()
    }

    /// Server role: handles a peer that cancels a request whose response is complete but has not
    /// fully arrived. Counts as an aborted request.
    pub fn handle_late_stop(&mut self) -> Result<(), ConnectionError> {
        // Once more, because the request was counted as successful.
        self.shared.cost_balance.on_aborted_request();
        self.shared.cost_balance.on_aborted_request();
        self.shared.cost_balance.verdict()
    }

    /// Stops receiving a stream, after the caller has sent STOP_SENDING. No data of it may follow;
    /// queued events are still delivered.
    pub fn stop_receiving(&mut self, stream: StreamId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.stop_receiving(stream);
        }
        if !stream.is_bidi() {
            self.incoming.forget(stream);
        } else if let Some(request) = self.requests.get_mut(&stream) {
            request.is_receiving_done = true;
            request.abandon(stream, &mut self.shared);
            self.forget_if_done(stream);
        }
    }

    /// Returns the state of a bidirectional stream that received something, created if needed as a
    /// server. `None` if the stream is no longer relevant.
    fn received_request(
        &mut self,
        stream: StreamId,
    ) -> Result<Option<(&mut RequestStream, &mut StreamContext)>, ConnectionError> {
        if !stream.is_request() {
            // Streams of existing sessions are handled elsewhere.
            //= RFC 9114 section 6.1
            //# Clients MUST treat receipt of a server-initiated bidirectional stream as a connection error of type
            //# H3_STREAM_CREATION_ERROR unless such an extension has been negotiated.
            return Err(ConnectionError::new(
                ErrorCode::H3_STREAM_CREATION_ERROR,
                "a bidirectional stream initiated by a server",
            ));
        }
        let shared = &mut self.shared;
        if shared.role == Role::Client {
            return Ok(self.requests.get_mut(&stream).map(|request| (request, shared)));
        }
        let request = self.requests.get_or_insert_with(stream, || {
            self.next_request =
                self.next_request.max(StreamId(stream.0 + 4).min(StreamId::MAX_REQUEST));
            let mut request = RequestStream::new();
            //= RFC 9114 section 4.1.1
            //# Servers MUST NOT use the H3_REQUEST_REJECTED error code for requests that were partially or fully
            //# processed.
            if matches!(self.shutdown, Shutdown::From(first) if stream >= first) {
                if self.sessions.as_ref().is_some_and(|sessions| sessions.has_any()) {
                    request.is_late = true;
                } else {
                    request.refuse(stream, REQUEST_REJECTED, shared);
                }
            }
            request
        });
        Ok(Some((request, shared)))
    }

    fn on_uni_data(&mut self, stream: StreamId, mut data: Bytes) -> Result<(), ConnectionError> {
        match self.incoming.sort(stream, &mut data, &mut self.shared)? {
            Classified::Session => {
                self.incoming.forget(stream);
                let Self { sessions, shared, .. } = self;
                let sessions = made(sessions, &shared.config);
                sessions.expect_session(stream);
                sessions.on_data(stream, data, &mut shared.events)?;
                shared.cost_balance.verdict()
            }
            Classified::AwaitingType => self.shared.cost_balance.verdict(),
            //= RFC 9114 section 6.2.3
            //# Endpoints MUST NOT consider these streams to have any meaning upon receipt.
            Classified::Known(Purpose::Ignored) => {
                self.shared.cost_balance.on_ignored_bytes(data.len());
                self.shared.cost_balance.verdict()
            }
            Classified::Unknown => {
                //= RFC 9114 section 6.2
                //# Recipients of unknown stream types MUST either abort reading of the stream or discard incoming data
                //# without further processing.
                //= RFC 9114 section 9
                //# Implementations MUST discard data or abort reading on unidirectional streams that have unknown or
                //# unsupported types.
                //= RFC 9114 section 6.2
                //# The recipient MUST NOT consider unknown stream types to be a connection error of any kind.
                let code = ErrorCode::H3_STREAM_CREATION_ERROR;
                self.shared.events.push_back(Event::StopUni { stream, code });
                self.shared.cost_balance.on_ignored_bytes(data.len());
                self.shared.cost_balance.verdict()
            }
            Classified::Known(Purpose::QpackEncoder) => {
                self.shared.decoder.handle_encoder_stream(&data)?;
                self.resume_unblocked()?;
                self.shared.cost_balance.verdict()
            }
            Classified::Known(Purpose::QpackDecoder) => {
                Ok(self.encoder.handle_decoder_stream(&data)?)
            }
            Classified::Known(Purpose::Control) => {
                while let Some(frame) =
                    self.incoming.control.read(&mut data, &mut self.shared.cost_balance)?
                {
                    self.on_control_frame(&frame)?;
                }
                Ok(())
            }
        }
    }

    fn resume_unblocked(&mut self) -> Result<(), ConnectionError> {
        while let Some(id) = self.shared.decoder.poll_unblocked() {
            let stream = StreamId(id);
            if let Some(request) = self.requests.get_mut(&stream) {
                request.resume(stream, &mut self.shared)?;
                if !request.is_blocked() {
                    self.unblocked.push_back(stream);
                }
                self.forget_if_done(stream);
            }
        }
        Ok(())
    }

    fn on_control_frame(&mut self, frame: &ControlFrame) -> Result<(), ConnectionError> {
        match *frame {
            ControlFrame::Settings(settings) => {
                // Not earlier: settings remembered from an earlier connection are not used for
                // 0-RTT, so there is nothing that these SETTINGS could contradict (RFC 9204 section
                // 3.2.3).
                self.encoder.set_peer_settings(
                    settings.qpack_max_table_capacity,
                    settings.qpack_blocked_streams,
                );
                self.peer_settings = Some(settings);
                self.shared.events.push_back(Event::Settings);
            }
            ControlFrame::GoAway { id } => {
                self.shared.events.push_back(Event::GoAway { id });
                if self.shared.role == Role::Client {
                    self.refuse_from(StreamId(id));
                }
            }
            ControlFrame::PriorityUpdate { stream, priority } => {
                self.on_priority_update(stream, priority)?;
            }
        }
        Ok(())
    }

    fn on_priority_update(
        &mut self,
        stream: StreamId,
        priority: Priority,
    ) -> Result<(), ConnectionError> {
        //= RFC 9218 section 7.2
        //# If a server receives a PRIORITY_UPDATE (type=0xF0700) with a stream ID that is beyond the stream limits, this
        //# SHOULD be treated as a connection error of type H3_ID_ERROR.
        // The transport never permits more requests than have arrived, plus the concurrency limit.
        if stream.0 / 4
            >= (self.next_request.0 / 4).saturating_add(self.shared.config.max_concurrent_requests)
        {
            return Err(ConnectionError::new(
                ErrorCode::H3_ID_ERROR,
                "a PRIORITY_UPDATE names a request beyond the limit",
            ));
        }
        match self.requests.get(&stream) {
            Some(request) if request.has_head() => {
                self.shared.events.push_back(Event::PriorityUpdate { stream, priority });
            }
            _ => self.early_priorities.insert(stream, priority),
        }
        Ok(())
    }

    /// Client role: marks requests from this one on as not processed by the server.
    fn refuse_from(&mut self, first: StreamId) {
        let mut refused: Vec<StreamId> =
            self.requests.keys().copied().filter(|stream| *stream >= first).collect();
        refused.sort_unstable();
        for stream in refused {
            if let Some(request) = self.requests.get_mut(&stream) {
                request.on_unprocessed(stream, &mut self.shared);
            }
        }
    }
}
