//! WebTransport sessions: assigns streams and datagrams to them (draft-ietf-webtrans-http3 section
//! 4).

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

/// Maximum number of ended sessions that are remembered, so that late streams and datagrams do not
/// wait for them to begin.
const MAX_ENDED: usize = 32;

/// Sessions of a connection and their streams. Allocated for the first stream, datagram or request
/// that belongs to one.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Active sessions; there are few.
    begun: Vec<StreamId>,
    /// The latest ended sessions, including refused ones.
    ended: VecDeque<StreamId>,
    streams: StreamMap<SessionStream>,
    /// Streams that wait for their session, in order of arrival.
    waiting: VecDeque<StreamId>,
    waiting_datagrams: VecDeque<(StreamId, Bytes)>,
    dropped_datagrams: u64,
    max_waiting: usize,
}

/// A stream opened by either side.
#[derive(Debug)]
struct SessionStream {
    state: State,
    is_receiving_done: bool,
    is_sending_done: bool,
}

#[derive(Debug)]
enum State {
    /// The session ID is incomplete.
    AwaitingSession(HeaderReader),
    /// The session has not begun. Data that came with the stream's first bytes is buffered; no more
    /// is read.
    Early {
        session: StreamId,
        held: Bytes,
    },
    Open {
        session: StreamId,
    },
    /// Further data is ignored.
    Refused,
}

impl SessionStream {
    const fn is_done(&self) -> bool {
        self.is_receiving_done && self.is_sending_done
    }
}

impl Sessions {
    pub(super) fn new(max_waiting: u32) -> Self {
        Self {
            begun: Vec::new(),
            ended: VecDeque::new(),
            streams: StreamMap::default(),
            waiting: VecDeque::new(),
            waiting_datagrams: VecDeque::new(),
            dropped_datagrams: 0,
            max_waiting: max_waiting as usize,
        }
    }

    /// Returns whether the stream is known to belong to a session.
    pub(super) fn contains_stream(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    pub(super) fn is_waiting(&self, stream: StreamId) -> bool {
        !self.waiting.is_empty() && self.waiting.contains(&stream)
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

    /// Registers a stream of the peer that must send its session ID: a unidirectional one whose
    /// type was read, or a bidirectional one of a server.
    pub(super) fn expect_session(&mut self, stream: StreamId) {
        let header = if stream.is_bidi() {
            HeaderReader::default()
        } else {
            HeaderReader::after(FrameType(StreamType::WEBTRANSPORT.0))
        };
        self.insert(stream, State::AwaitingSession(header));
    }

    /// Registers a bidirectional stream that the peer opened for a session.
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

    /// Registers a stream opened by this endpoint.
    pub(super) fn open(&mut self, session: StreamId, stream: StreamId) {
        let is_receiving_done = !stream.is_bidi();
        self.streams.insert(
            stream,
            SessionStream {
                state: State::Open { session },
                is_receiving_done,
                is_sending_done: false,
            },
        );
    }

    fn insert(&mut self, stream: StreamId, state: State) {
        let is_sending_done = !stream.is_bidi();
        self.streams
            .insert(stream, SessionStream { state, is_receiving_done: false, is_sending_done });
    }

    /// Handles received bytes of a known stream.
    pub(super) fn on_data(
        &mut self,
        stream: StreamId,
        mut data: Bytes,
        events: &mut EventQueue,
    ) -> Result<(), ConnectionError> {
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(()) };
        match &mut known.state {
            State::AwaitingSession(header) => {
                let Some(header) = header.read(&mut data) else { return Ok(()) };
                //= RFC 9114 section 6.1
                //# Clients MUST treat receipt of a server-initiated bidirectional stream as a connection error of type
                //# H3_STREAM_CREATION_ERROR unless such an extension has been negotiated.
                if stream.is_bidi() && header.frame_type != FrameType::WEBTRANSPORT_STREAM {
                    let reason =
                        "a bidirectional stream initiated by a server that belongs to no session";
                    return Err(ConnectionError::new(ErrorCode::H3_STREAM_CREATION_ERROR, reason));
                }
                self.assign(stream, header.len, &data, events)?;
            }
            // Only reached by a caller that reads a blocked stream.
            State::Early { .. } => {
                self.refuse(stream, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED, None, events);
            }
            State::Open { .. } if data.is_empty() => {}
            State::Open { .. } => {
                events.push_back(Event::Session(SessionEvent::Data { stream, data }));
            }
            State::Refused => {}
        }
        Ok(())
    }

    /// Assigns the stream to a session; `rest` is the data after the session ID.
    fn assign(
        &mut self,
        stream: StreamId,
        session: u64,
        rest: &[u8],
        events: &mut EventQueue,
    ) -> Result<(), ConnectionError> {
        //= draft-ietf-webtrans-http3-16 section 4
        //# If an endpoint receives a session ID on a unidirectional stream, bidirectional stream, or datagram that does not correspond to a
        //# client-initiated bidirectional stream ID, the endpoint MUST close the connection with an H3_ID_ERROR error code.
        let session = StreamId(session);
        if !session.is_request() {
            return Err(ConnectionError::new(
                ErrorCode::H3_ID_ERROR,
                "a session's ID is not that of a request",
            ));
        }
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(()) };
        // Copy, because a slice of a datagram would keep all of it allocated.
        let held = Bytes::copy_from_slice(rest);
        if self.begun.contains(&session) {
            known.state = State::Open { session };
            deliver(session, stream, held, events);
        } else if self.ended.contains(&session) {
            self.refuse(stream, ErrorCode::WEBTRANSPORT_SESSION_GONE, None, events);
        } else {
            known.state = State::Early { session, held };
            self.waiting.push_back(stream);
            //= draft-ietf-webtrans-http3-16 section 4.6
            //# To avoid resource exhaustion, endpoints MUST limit the number of buffered streams and datagrams.
            //= draft-ietf-webtrans-http3-16 section 4.6
            //# When the number of buffered streams is exceeded, a stream MUST be closed by sending a RESET_STREAM and/or STOP_SENDING with
            //# the WT_BUFFERED_STREAM_REJECTED error code.
            if self.waiting.len() > self.max_waiting
                && let Some(oldest) = self.waiting.front().copied()
            {
                let code = ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED;
                self.refuse(oldest, code, Some(Limit::WaitingStreams), events);
            }
        }
        Ok(())
    }

    /// Handles the clean end of the peer's side.
    pub(super) fn on_fin(&mut self, stream: StreamId, events: &mut EventQueue) {
        self.on_end(stream, SessionEvent::Finished { stream }, events);
    }

    /// Handles a reset of the peer's side.
    pub(super) fn on_reset(&mut self, stream: StreamId, code: ErrorCode, events: &mut EventQueue) {
        self.on_end(stream, SessionEvent::Reset { stream, code }, events);
    }

    fn on_end(&mut self, stream: StreamId, end: SessionEvent, events: &mut EventQueue) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        known.is_receiving_done = true;
        match known.state {
            State::Open { .. } => events.push_back(Event::Session(end)),
            // Its session will never be known. For a unidirectional stream there is nothing to end.
            State::AwaitingSession(_) | State::Early { .. } if !known.is_sending_done => {
                self.refuse(stream, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED, None, events);
            }
            State::AwaitingSession(_) | State::Early { .. } | State::Refused => {}
        }
        self.forget_if_done(stream);
    }

    /// Handles STOP_SENDING.
    pub(super) fn on_stop_sending(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
        events: &mut EventQueue,
    ) {
        if self.streams.get(&stream).is_some_and(|known| {
            !known.is_sending_done && matches!(known.state, State::Open { .. })
        }) {
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
            self.waiting.retain(|waiting| *waiting != stream);
        }
    }

    fn refuse(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
        limit: Option<Limit>,
        events: &mut EventQueue,
    ) {
        if let Some(known) = self.streams.get_mut(&stream) {
            known.state = State::Refused;
            self.waiting.retain(|waiting| *waiting != stream);
            events.push_back(Event::Session(SessionEvent::Refused { stream, code, limit }));
        }
    }

    /// Begins a session. Returns the streams that were waiting for it and can be read again.
    pub(super) fn begin(&mut self, session: StreamId, events: &mut EventQueue) -> Vec<StreamId> {
        self.begun.push(session);
        let mut waited = Vec::new();
        for stream in std::mem::take(&mut self.waiting) {
            let Some(known) = self.streams.get_mut(&stream) else { continue };
            match &mut known.state {
                State::Early { session: its, held } if *its == session => {
                    deliver(session, stream, std::mem::take(held), events);
                    known.state = State::Open { session };
                    waited.push(stream);
                }
                _ => self.waiting.push_back(stream),
            }
        }
        for (its, payload) in std::mem::take(&mut self.waiting_datagrams) {
            if its == session {
                events.push_back(Event::Session(SessionEvent::Datagram { session, payload }));
            } else {
                self.waiting_datagrams.push_back((its, payload));
            }
        }
        waited
    }

    /// Ends a session, or marks that it will not begin.
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
        self.waiting_datagrams.retain(|(its, _)| *its != session);
        let is_its = |known: &SessionStream| match &known.state {
            State::Early { session: its, .. } | State::Open { session: its } => *its == session,
            State::AwaitingSession(_) | State::Refused => false,
        };
        let mut streams: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, known)| is_its(known))
            .map(|(stream, _)| *stream)
            .collect();
        streams.sort_unstable();
        let code = if has_begun {
            ErrorCode::WEBTRANSPORT_SESSION_GONE
        } else {
            ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED
        };
        for stream in streams {
            self.refuse(stream, code, None, events);
        }
    }

    /// Reads the request stream of a datagram from the front of a QUIC DATAGRAM frame's payload
    /// (RFC 9297 section 2.1).
    pub(super) fn session_of(data: &mut Bytes) -> Result<StreamId, ConnectionError> {
        let mut input = &data[..];
        //= RFC 9297 section 2.1
        //# Receipt of a QUIC DATAGRAM frame whose payload is too short to allow parsing the Quarter Stream ID field MUST be treated as an
        //# HTTP/3 connection error of type H3_DATAGRAM_ERROR (0x33).
        let Some(quarter) = varint::decode(&mut input) else {
            return Err(ConnectionError::new(
                ErrorCode::H3_DATAGRAM_ERROR,
                "a datagram ends inside its quarter stream ID",
            ));
        };
        //= RFC 9297 section 2.1
        //# Receipt of an HTTP/3 Datagram that includes a larger value MUST be treated as an HTTP/3 connection error of type
        //# H3_DATAGRAM_ERROR
        //# (0x33).
        if quarter > varint::MAX / 4 {
            return Err(ConnectionError::new(
                ErrorCode::H3_DATAGRAM_ERROR,
                "a datagram has an invalid quarter stream ID",
            ));
        }
        let taken = data.len() - input.len();
        data.advance(taken);
        Ok(StreamId(quarter * 4))
    }

    /// Handles a datagram's payload.
    pub(super) fn on_datagram(&mut self, session: StreamId, data: Bytes, events: &mut EventQueue) {
        if self.begun.contains(&session) {
            events.push_back(Event::Session(SessionEvent::Datagram { session, payload: data }));
        } else if !self.ended.contains(&session) {
            //= draft-ietf-webtrans-http3-16 section 4.6
            //# When the number of buffered datagrams is exceeded, a datagram MUST be dropped.
            if self.waiting_datagrams.len() >= self.max_waiting {
                self.waiting_datagrams.pop_front();
                self.dropped_datagrams += 1;
            }
            self.waiting_datagrams.push_back((session, Bytes::copy_from_slice(&data)));
        }
    }
}

fn deliver(session: StreamId, stream: StreamId, data: Bytes, events: &mut EventQueue) {
    events.push_back(Event::Session(SessionEvent::Opened { session, stream }));
    if !data.is_empty() {
        events.push_back(Event::Session(SessionEvent::Data { stream, data }));
    }
}
