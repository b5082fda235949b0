//! WebTransport sessions: which stream and which datagram belongs to which (draft-ietf-webtrans-http3 section 4).

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use super::events::EventQueue;
use crate::{
    error::{ConnectionError, ErrorCode},
    event::{Event, SessionEvent},
    frame::{FrameType, HeaderReader},
    limit::Limit,
    stream::{StreamId, StreamType},
    stream_map::StreamMap,
    varint,
};

/// Sessions that have ended and are remembered, so that what still comes for them does not wait for a session to come.
const MAX_ENDED: usize = 32;

/// The sessions of a connection and their streams. Made for the first stream, datagram or request that has to do with one.
#[derive(Debug)]
pub(super) struct Sessions {
    /// There are few.
    begun: Vec<StreamId>,
    /// The latest that are over, refused ones included.
    ended: VecDeque<StreamId>,
    streams: StreamMap<SessionStream>,
    /// Streams that wait for their session, in the order in which they came.
    early: VecDeque<StreamId>,
    early_datagrams: VecDeque<(StreamId, Bytes)>,
    dropped_datagrams: u64,
    max_early: usize,
}

/// One stream, of either side.
#[derive(Debug)]
struct SessionStream {
    state: State,
    is_receiving_done: bool,
    is_sending_done: bool,
}

#[derive(Debug)]
enum State {
    /// Its session's ID has not come completely.
    AwaitingSession(HeaderReader),
    /// The session has not begun. What came with the stream's first bytes waits; more is not read.
    Early {
        session: StreamId,
        held: Bytes,
    },
    Open {
        session: StreamId,
    },
    /// What still comes is ignored.
    Refused,
}

impl SessionStream {
    const fn is_done(&self) -> bool {
        self.is_receiving_done && self.is_sending_done
    }
}

impl Sessions {
    pub(super) fn new(max_early: u32) -> Self {
        Self {
            begun: Vec::new(),
            ended: VecDeque::new(),
            streams: StreamMap::default(),
            early: VecDeque::new(),
            early_datagrams: VecDeque::new(),
            dropped_datagrams: 0,
            max_early: max_early as usize,
        }
    }

    /// Whether the stream is one of a session, as far as can be told.
    pub(super) fn knows(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    pub(super) fn is_early(&self, stream: StreamId) -> bool {
        !self.early.is_empty() && self.early.contains(&stream)
    }

    pub(super) fn has_begun(&self, session: StreamId) -> bool {
        self.begun.contains(&session)
    }

    pub(super) const fn has_any(&self) -> bool {
        !self.begun.is_empty()
    }

    pub(super) const fn dropped_datagrams(&self) -> u64 {
        self.dropped_datagrams
    }

    /// The peer has opened a stream that has to say its session: a unidirectional one whose type was read, or a bidirectional one of a
    /// server.
    pub(super) fn expect_session(&mut self, stream: StreamId) {
        let header = if stream.is_bidi() { HeaderReader::default() } else { HeaderReader::after(FrameType(StreamType::WEBTRANSPORT.0)) };
        self.insert(stream, State::AwaitingSession(header));
    }

    /// The peer has opened a bidirectional stream for a session.
    pub(super) fn on_opened(
        &mut self,
        stream: StreamId,
        session: u64,
        rest: &[u8],
        events: &mut EventQueue,
    ) -> Result<(), ConnectionError> {
        self.insert(stream, State::Refused);
        self.assign(stream, session, rest, events)
    }

    /// We have opened a stream.
    pub(super) fn open(&mut self, session: StreamId, stream: StreamId) {
        let is_receiving_done = !stream.is_bidi();
        self.streams.insert(stream, SessionStream { state: State::Open { session }, is_receiving_done, is_sending_done: false });
    }

    fn insert(&mut self, stream: StreamId, state: State) {
        let is_sending_done = !stream.is_bidi();
        self.streams.insert(stream, SessionStream { state, is_receiving_done: false, is_sending_done });
    }

    /// Takes bytes of a stream that is known.
    pub(super) fn on_data(&mut self, stream: StreamId, mut data: Bytes, events: &mut EventQueue) -> Result<(), ConnectionError> {
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(()) };
        match &mut known.state {
            State::AwaitingSession(header) => {
                let Some(header) = header.read(&mut data) else { return Ok(()) };
                //= RFC 9114 section 6.1
                //# Clients MUST treat receipt of a server-initiated bidirectional stream as a connection error of type
                //# H3_STREAM_CREATION_ERROR unless such an extension has been negotiated.
                if stream.is_bidi() && header.frame_type != FrameType::WEBTRANSPORT_STREAM {
                    let reason = "a bidirectional stream initiated by a server that belongs to no session";
                    return Err(ConnectionError::new(ErrorCode::H3_STREAM_CREATION_ERROR, reason));
                }
                self.assign(stream, header.len, &data, events)?;
            }
            // Only a caller that reads it although it was told not to comes here.
            State::Early { .. } => self.refuse(stream, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED, None, events),
            State::Open { .. } if data.is_empty() => {}
            State::Open { .. } => events.push_back(Event::Session(SessionEvent::Data { stream, data })),
            State::Refused => {}
        }
        Ok(())
    }

    /// The stream says which session it belongs to; `rest` has come after that.
    fn assign(&mut self, stream: StreamId, session: u64, rest: &[u8], events: &mut EventQueue) -> Result<(), ConnectionError> {
        //= draft-ietf-webtrans-http3-16 section 4
        //# If an endpoint receives a session ID on a unidirectional stream, bidirectional stream, or datagram that does not correspond to a
        //# client-initiated bidirectional stream ID, the endpoint MUST close the connection with an H3_ID_ERROR error code.
        let session = StreamId(session);
        if !session.is_request() {
            return Err(ConnectionError::new(ErrorCode::H3_ID_ERROR, "a session's ID is not that of a request"));
        }
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(()) };
        // A copy, because a piece of a datagram would keep all of it.
        let held = Bytes::copy_from_slice(rest);
        if self.begun.contains(&session) {
            known.state = State::Open { session };
            deliver(session, stream, held, events);
        } else if self.ended.contains(&session) {
            self.refuse(stream, ErrorCode::WEBTRANSPORT_SESSION_GONE, None, events);
        } else {
            known.state = State::Early { session, held };
            self.early.push_back(stream);
            //= draft-ietf-webtrans-http3-16 section 4.6
            //# To avoid resource exhaustion, endpoints MUST limit the number of buffered streams and datagrams.
            //= draft-ietf-webtrans-http3-16 section 4.6
            //# When the number of buffered streams is exceeded, a stream MUST be closed by sending a RESET_STREAM and/or STOP_SENDING with
            //# the WT_BUFFERED_STREAM_REJECTED error code.
            if self.early.len() > self.max_early
                && let Some(oldest) = self.early.front().copied()
            {
                let code = ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED;
                self.refuse(oldest, code, Some(Limit::EarlyStreams), events);
            }
        }
        Ok(())
    }

    /// The peer's side has ended cleanly.
    pub(super) fn on_fin(&mut self, stream: StreamId, events: &mut EventQueue) {
        self.on_end(stream, SessionEvent::Finished { stream }, events);
    }

    /// The peer has reset its side.
    pub(super) fn on_reset(&mut self, stream: StreamId, code: ErrorCode, events: &mut EventQueue) {
        self.on_end(stream, SessionEvent::Reset { stream, code }, events);
    }

    fn on_end(&mut self, stream: StreamId, end: SessionEvent, events: &mut EventQueue) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        known.is_receiving_done = true;
        match known.state {
            State::Open { .. } => events.push_back(Event::Session(end)),
            // Nobody will know what it was for; and nobody waits for a unidirectional one.
            State::AwaitingSession(_) | State::Early { .. } if !known.is_sending_done => {
                self.refuse(stream, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED, None, events);
            }
            State::AwaitingSession(_) | State::Early { .. } | State::Refused => {}
        }
        self.forget_if_done(stream);
    }

    /// The peer wants no more of what we send.
    pub(super) fn on_stop_sending(&mut self, stream: StreamId, code: ErrorCode, events: &mut EventQueue) {
        if self.streams.get(&stream).is_some_and(|known| !known.is_sending_done && matches!(known.state, State::Open { .. })) {
            events.push_back(Event::Session(SessionEvent::StopSending { stream, code }));
        }
    }

    pub(super) fn stop_receiving(&mut self, stream: StreamId) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.is_receiving_done = true;
            self.forget_if_done(stream);
        }
    }

    pub(super) fn finish_sending(&mut self, stream: StreamId) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.is_sending_done = true;
            self.forget_if_done(stream);
        }
    }

    fn forget_if_done(&mut self, stream: StreamId) {
        if self.streams.get(&stream).is_some_and(SessionStream::is_done) {
            self.streams.remove(&stream);
            self.early.retain(|early| *early != stream);
        }
    }

    fn refuse(&mut self, stream: StreamId, code: ErrorCode, limit: Option<Limit>, events: &mut EventQueue) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.state = State::Refused;
            self.early.retain(|early| *early != stream);
            events.push_back(Event::Session(SessionEvent::Refused { stream, code, limit }));
        }
    }

    /// The request has become a session. Returns the streams that have waited for it, which can be read again.
    pub(super) fn begin(&mut self, session: StreamId, events: &mut EventQueue) -> Vec<StreamId> {
        self.begun.push(session);
        let mut waited = Vec::new();
        for stream in std::mem::take(&mut self.early) {
            let Some(known) = self.streams.get_mut(&stream) else { continue };
            match &mut known.state {
                State::Early { session: its, held } if *its == session => {
                    deliver(session, stream, std::mem::take(held), events);
                    known.state = State::Open { session };
                    waited.push(stream);
                }
                _ => self.early.push_back(stream),
            }
        }
        for (its, payload) in std::mem::take(&mut self.early_datagrams) {
            if its == session {
                events.push_back(Event::Session(SessionEvent::Datagram { session, payload }));
            } else {
                self.early_datagrams.push_back((its, payload));
            }
        }
        waited
    }

    /// The session is over, or will not be.
    //= draft-ietf-webtrans-http3-16 section 6
    //# Upon learning that the session has been terminated, the endpoint MUST reset the send side and abort reading on the receive side of
    //# all
    //# unidirectional and bidirectional streams associated with the session (see Section 2.4 of [RFC9000]) using the WT_SESSION_GONE error
    //# code; it MUST NOT send any new datagrams or open any new streams.
    pub(super) fn end(&mut self, session: StreamId, events: &mut EventQueue) {
        if self.ended.contains(&session) {
            return;
        }
        let has_begun = self.has_begun(session);
        self.begun.retain(|begun| *begun != session);
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(session);
        self.early_datagrams.retain(|(its, _)| *its != session);
        let is_its = |known: &SessionStream| match &known.state {
            State::Early { session: its, .. } | State::Open { session: its } => *its == session,
            State::AwaitingSession(_) | State::Refused => false,
        };
        let mut streams: Vec<StreamId> = self.streams.iter().filter(|(_, known)| is_its(known)).map(|(stream, _)| *stream).collect();
        streams.sort_unstable();
        let code = if has_begun { ErrorCode::WEBTRANSPORT_SESSION_GONE } else { ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED };
        for stream in streams {
            self.refuse(stream, code, None, events);
        }
    }

    /// Takes the request that a datagram is for off the front of a QUIC DATAGRAM frame's payload (RFC 9297 section 2.1).
    pub(super) fn session_of(data: &mut Bytes) -> Result<StreamId, ConnectionError> {
        let mut input = &data[..];
        //= RFC 9297 section 2.1
        //# Receipt of a QUIC DATAGRAM frame whose payload is too short to allow parsing the Quarter Stream ID field MUST be treated as an
        //# HTTP/3 connection error of type H3_DATAGRAM_ERROR (0x33).
        let Some(quarter) = varint::decode(&mut input) else {
            return Err(ConnectionError::new(ErrorCode::H3_DATAGRAM_ERROR, "a datagram ends inside its quarter stream ID"));
        };
        //= RFC 9297 section 2.1
        //# Receipt of an HTTP/3 Datagram that includes a larger value MUST be treated as an HTTP/3 connection error of type
        //# H3_DATAGRAM_ERROR
        //# (0x33).
        if quarter > varint::MAX / 4 {
            return Err(ConnectionError::new(ErrorCode::H3_DATAGRAM_ERROR, "a datagram names no stream that can be"));
        }
        let taken = data.len() - input.len();
        data.advance(taken);
        Ok(StreamId(quarter * 4))
    }

    /// Takes what a datagram carries.
    pub(super) fn on_datagram(&mut self, session: StreamId, data: Bytes, events: &mut EventQueue) {
        if self.begun.contains(&session) {
            events.push_back(Event::Session(SessionEvent::Datagram { session, payload: data }));
        } else if !self.ended.contains(&session) {
            //= draft-ietf-webtrans-http3-16 section 4.6
            //# When the number of buffered datagrams is exceeded, a datagram MUST be dropped.
            if self.early_datagrams.len() >= self.max_early {
                self.early_datagrams.pop_front();
                self.dropped_datagrams += 1;
            }
            self.early_datagrams.push_back((session, Bytes::copy_from_slice(&data)));
        }
    }
}

fn deliver(session: StreamId, stream: StreamId, data: Bytes, events: &mut EventQueue) {
    events.push_back(Event::Session(SessionEvent::Opened { session, stream }));
    if !data.is_empty() {
        events.push_back(Event::Session(SessionEvent::Data { stream, data }));
    }
}
