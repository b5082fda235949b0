//! WebTransport functions of a connection.

use bytes::{Bytes, BytesMut};

use super::{
    Connection, request_stream::Preamble, sessions::Sessions, stream_context::StreamContext,
};
use crate::{
    config::Config,
    error::{ConnectionError, ErrorCode, SendError},
    frame::FrameType,
    role::Role,
    stream::{StreamId, StreamType},
    varint,
};

impl Connection {
    /// Begins a WebTransport session on the stream of an extended CONNECT request: a server has
    /// accepted it, or a client has received the acceptance. Streams that were waiting for it get
    /// events and are returned by [`Connection::poll_unblocked`].
    pub fn begin_session(&mut self, session: StreamId) {
        let Self { sessions, shared, unblocked, .. } = self;
        if shared.config.has_webtransport() {
            unblocked.extend(made(sessions, &shared.config).begin(session, &mut shared.events));
        }
    }

    /// Ends a session: each of its streams is refused. Also call it for a request that did not
    /// become a session.
    pub fn end_session(&mut self, session: StreamId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.end(session, &mut self.shared.events);
        }
    }

    /// Registers a stream that the transport has opened for a session, and appends its first bytes
    /// to `out`. The caller writes the stream's data after that.
    ///
    /// # Errors
    /// Returns an error if the session has not begun or has ended.
    pub fn open_session_stream(
        &mut self,
        session: StreamId,
        stream: StreamId,
        out: &mut BytesMut,
    ) -> Result<(), SendError> {
        let Some(sessions) =
            self.sessions.as_deref_mut().filter(|sessions| sessions.has_begun(session))
        else {
            return Err(SendError::StreamNotOpen { stream: session });
        };
        //= draft-ietf-webtrans-http3-16 section 4.3
        //# Clients and servers use the signal value 0x41 to open a bidirectional WebTransport stream.
        let preamble = if stream.is_bidi() {
            FrameType::WEBTRANSPORT_STREAM.0
        } else {
            StreamType::WEBTRANSPORT.0
        };
        varint::encode(preamble, out);
        varint::encode(session.0, out);
        sessions.open(session, stream);
        Ok(())
    }

    /// Handles the payload of a QUIC DATAGRAM frame (RFC 9221).
    pub fn handle_datagram(&mut self, mut data: Bytes) -> Result<(), ConnectionError> {
        let Self { requests, sessions, shared, .. } = self;
        if !shared.config.has_webtransport() {
            return Err(ConnectionError::new(
                ErrorCode::H3_DATAGRAM_ERROR,
                "a datagram although datagrams were not offered",
            ));
        }
        let session = Sessions::session_of(&mut data)?;
        let sessions = made(sessions, &shared.config);
        if !sessions.has_begun(session)
            && let Some(request) = requests.get_mut(&session)
            && !request.takes_datagram(session, shared)
        {
            return shared.cost_balance.verdict();
        }
        sessions.on_datagram(session, data, &mut shared.events);
        Ok(())
    }

    /// Appends the header of a session's datagram to `out`; the caller appends the payload.
    ///
    /// # Errors
    /// Returns an error if the session has not begun or has ended, or the peer does not support
    /// datagrams (RFC 9297 section 2.1.1).
    pub fn encode_datagram_header(
        &self,
        session: StreamId,
        out: &mut BytesMut,
    ) -> Result<(), SendError> {
        let takes_datagrams = self.peer_settings.is_some_and(|settings| settings.h3_datagram);
        if !takes_datagrams
            || !self.sessions.as_ref().is_some_and(|sessions| sessions.has_begun(session))
        {
            return Err(SendError::StreamNotOpen { stream: session });
        }
        varint::encode(session.0 / 4, out);
        Ok(())
    }

    /// Returns whether the stream is known to belong to a WebTransport session.
    pub fn is_session_stream(&self, stream: StreamId) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.contains_stream(stream))
    }

    /// Returns how many datagrams were dropped because too many waited for their sessions.
    pub fn dropped_datagrams(&self) -> u64 {
        self.sessions.as_ref().map_or(0, |sessions| sessions.dropped_datagrams())
    }

    /// Returns the sessions, if data on this stream belongs to one.
    #[inline]
    pub(super) fn sessions_of(
        &mut self,
        stream: StreamId,
    ) -> Option<(&mut Sessions, &mut StreamContext)> {
        if self.sessions.is_none() && !self.is_servers_bidi(stream) {
            return None;
        }
        self.known_sessions_of(stream)
    }

    fn known_sessions_of(
        &mut self,
        stream: StreamId,
    ) -> Option<(&mut Sessions, &mut StreamContext)> {
        let is_new = self.is_servers_bidi(stream)
            && !self.sessions.as_ref().is_some_and(|sessions| sessions.contains_stream(stream));
        let Self { sessions, shared, .. } = self;
        if is_new && shared.config.has_webtransport() {
            made(sessions, &shared.config).expect_session(stream);
        }
        sessions
            .as_deref_mut()
            .filter(|sessions| sessions.contains_stream(stream))
            .map(|sessions| (sessions, shared))
    }

    /// Returns whether this endpoint is a client and a server opened the bidirectional stream.
    const fn is_servers_bidi(&self, stream: StreamId) -> bool {
        stream.is_bidi()
            && !stream.is_client_initiated()
            && matches!(self.shared.role, Role::Client)
    }

    /// Handles a client's bidirectional stream that turned out to belong to a session.
    pub(super) fn on_session_stream(
        &mut self,
        stream: StreamId,
        preamble: &Preamble,
    ) -> Result<(), ConnectionError> {
        self.requests.remove(&stream);
        let Self { sessions, shared, .. } = self;
        made(sessions, &shared.config).on_opened(
            stream,
            preamble.session,
            &preamble.rest,
            &mut shared.events,
        )
    }

    /// Returns whether the stream waits for its WebTransport session to begin.
    pub fn is_waiting(&self, stream: StreamId) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.is_waiting(stream))
    }
}

/// Returns the sessions, allocated if needed.
pub(super) fn made<'a>(
    sessions: &'a mut Option<Box<Sessions>>,
    config: &Config,
) -> &'a mut Sessions {
    sessions.get_or_insert_with(|| Box::new(Sessions::new(config.max_waiting_streams)))
}
