//! What the caller does with WebTransport sessions, and which input is for them.

use bytes::{Bytes, BytesMut};

use super::{
    Connection, Role,
    request_stream::{Preamble, Shared},
    sessions::Sessions,
};
use crate::{
    config::Config,
    error::{ConnectionError, ErrorCode, SendError},
    frame::FrameType,
    stream::{StreamId, StreamType},
    varint,
};

impl Connection {
    /// The extended CONNECT request on this stream has become a WebTransport session: a server accepts it, or a client sees it accepted.
    /// Streams that have waited for it are told of, and named by [`Connection::poll_unblocked`].
    pub fn begin_session(&mut self, session: StreamId) {
        let Self { sessions, shared, unblocked, .. } = self;
        if shared.config.speaks_webtransport() {
            unblocked.extend(made(sessions, &shared.config).begin(session, &mut shared.events));
        }
    }

    /// The session is over: each of its streams is refused. Also for a request that did not become one.
    pub fn end_session(&mut self, session: StreamId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.end(session, &mut self.shared.events);
        }
    }

    /// The transport has opened this stream for a session of ours: appends what it has to begin with to `out`. The stream's content is the
    /// caller's to write after that.
    ///
    /// # Errors
    /// If the session has not begun, or is over.
    pub fn open_session_stream(&mut self, session: StreamId, stream: StreamId, out: &mut BytesMut) -> Result<(), SendError> {
        let Some(sessions) = self.sessions.as_deref_mut().filter(|sessions| sessions.has_begun(session)) else {
            return Err(SendError::StreamNotOpen { stream: session });
        };
        //= draft-ietf-webtrans-http3-16 section 4.3
        //# Clients and servers use the signal value 0x41 to open a bidirectional WebTransport stream.
        let preamble = if stream.is_bidi() { FrameType::WEBTRANSPORT_STREAM.0 } else { StreamType::WEBTRANSPORT.0 };
        varint::encode(preamble, out);
        varint::encode(session.0, out);
        sessions.open(session, stream);
        Ok(())
    }

    /// Takes the payload of a QUIC DATAGRAM frame (RFC 9221).
    pub fn handle_datagram(&mut self, mut data: Bytes) -> Result<(), ConnectionError> {
        let Self { requests, sessions, shared, .. } = self;
        if !shared.config.speaks_webtransport() {
            return Err(ConnectionError::new(ErrorCode::H3_DATAGRAM_ERROR, "a datagram, which was not offered"));
        }
        let session = Sessions::session_of(&mut data)?;
        let sessions = made(sessions, &shared.config);
        if !sessions.has_begun(session)
            && let Some(request) = requests.get_mut(&session)
            && !request.takes_datagram(session, shared)
        {
            return shared.ledger.verdict();
        }
        sessions.on_datagram(session, data, &mut shared.events);
        Ok(())
    }

    /// Appends what a datagram of the session begins with to `out`; the caller's payload follows.
    ///
    /// # Errors
    /// If the session has not begun or is over, or the peer has not said that it takes datagrams (RFC 9297 section 2.1.1).
    pub fn encode_datagram_header(&self, session: StreamId, out: &mut BytesMut) -> Result<(), SendError> {
        let takes_datagrams = self.peer_settings.is_some_and(|settings| settings.h3_datagram);
        if !takes_datagrams || !self.sessions.as_ref().is_some_and(|sessions| sessions.has_begun(session)) {
            return Err(SendError::StreamNotOpen { stream: session });
        }
        varint::encode(session.0 / 4, out);
        Ok(())
    }

    /// Whether the stream is known to be one of a WebTransport session.
    pub fn is_session_stream(&self, stream: StreamId) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.knows(stream))
    }

    /// How many datagrams were dropped because too many waited for their sessions.
    pub fn dropped_datagrams(&self) -> u64 {
        self.sessions.as_ref().map_or(0, |sessions| sessions.dropped_datagrams())
    }

    /// The sessions, if what was received on this stream is for one of them.
    #[inline]
    pub(super) fn sessions_of(&mut self, stream: StreamId) -> Option<(&mut Sessions, &mut Shared)> {
        if self.sessions.is_none() && !self.is_servers_bidi(stream) {
            return None;
        }
        self.known_sessions_of(stream)
    }

    fn known_sessions_of(&mut self, stream: StreamId) -> Option<(&mut Sessions, &mut Shared)> {
        let is_new = self.is_servers_bidi(stream) && !self.sessions.as_ref().is_some_and(|sessions| sessions.knows(stream));
        let Self { sessions, shared, .. } = self;
        if is_new && shared.config.speaks_webtransport() {
            made(sessions, &shared.config).expect_session(stream);
        }
        sessions.as_deref_mut().filter(|sessions| sessions.knows(stream)).map(|sessions| (sessions, shared))
    }

    /// Whether it is a bidirectional stream that a server has opened, and we are its client.
    const fn is_servers_bidi(&self, stream: StreamId) -> bool {
        stream.is_bidi() && !stream.is_client_initiated() && matches!(self.shared.role, Role::Client)
    }

    /// A client's bidirectional stream turns out to be one of a session.
    pub(super) fn on_session_stream(&mut self, stream: StreamId, preamble: &Preamble) -> Result<(), ConnectionError> {
        self.requests.remove(&stream);
        let Self { sessions, shared, .. } = self;
        made(sessions, &shared.config).on_opened(stream, preamble.session, &preamble.rest, &mut shared.events)
    }

    /// Whether the stream waits for its WebTransport session to begin.
    pub fn is_early(&self, stream: StreamId) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.is_early(stream))
    }
}

/// The sessions, made now if there were none.
pub(super) fn made<'a>(sessions: &'a mut Option<Box<Sessions>>, config: &Config) -> &'a mut Sessions {
    sessions.get_or_insert_with(|| Box::new(Sessions::new(config.max_early_streams)))
}
