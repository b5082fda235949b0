//! The WebTransport sessions of a connection: between the transport's streams and datagrams and the handles of sessions.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{self as h3, ConnectionError, ErrorCode, Limit, Priority, SessionEvent, StreamId, StreamMap, varint};

use super::Connection;
use crate::Upgrade;
use crate::http3::session::{Session, Work};
use crate::http3::session_stream::{End, SessionStream, SessionStreamError};
use crate::http3::{WEBTRANSPORT, limits};
use crate::schedule::{QUANTUM_BYTES, SHARED};
use crate::stats::Stats;
use crate::transport::{DatagramWrite, Dir, Order, Transport, Write};

/// Streams that are done and remembered, so that it is no error of the peer's to want no more of them.
const MAX_DONE: usize = 256;

/// Streams of sessions share what the connection can send.
const PRIORITY: Priority = SHARED;

pub(super) fn is_webtransport(upgrade: &Upgrade) -> bool {
    upgrade.protocol() == WEBTRANSPORT
}

/// The sessions of one connection.
#[derive(Default)]
pub(super) struct Sessions {
    /// Requests for a session that are not done, those included that nobody has accepted yet.
    requests: Vec<StreamId>,
    begun: StreamMap<Rc<Session>>,
    streams: StreamMap<Driven>,
    /// Streams that wait until the peer allows another one.
    opening: VecDeque<Rc<SessionStream>>,
    /// Streams with bytes to write that the transport may take, each once.
    writing: VecDeque<StreamId>,
    /// A datagram that the transport had no room for.
    held: Option<Bytes>,
    /// The streams that were done last.
    done: VecDeque<StreamId>,
    counted_drops: u64,
}

/// The driver's part of a stream.
struct Driven {
    stream: Rc<SessionStream>,
    /// Bytes that wait for the transport.
    wire: VecDeque<Bytes>,
    /// It is in the queue of those that are written.
    scheduled: bool,
    /// The stream ends after these bytes.
    fin: bool,
    sent: bool,
    received: bool,
}

impl Sessions {
    /// Nothing more happens on the request's stream.
    pub(super) fn on_request_done(&mut self, id: StreamId) {
        self.requests.retain(|request| *request != id);
    }

    /// Counts the datagrams that were dropped because they came too early.
    pub(super) fn count_dropped(&mut self, h3: &h3::Connection, stats: &Stats) {
        let dropped = h3.dropped_datagrams();
        stats.webtransport_datagrams_dropped.add(dropped - std::mem::replace(&mut self.counted_drops, dropped));
    }

    pub(super) fn release_memory(&mut self) {
        self.streams.shrink_to_fit();
        self.opening.shrink_to_fit();
        self.writing.shrink_to_fit();
    }

    fn insert(&mut self, id: StreamId, stream: Rc<SessionStream>, is_ours: bool) -> &mut Driven {
        let (sent, received) = (!id.is_bidi() && !is_ours, !id.is_bidi() && is_ours);
        let driven = Driven { stream, wire: VecDeque::new(), scheduled: false, fin: false, sent, received };
        self.streams.get_or_insert_with(id, || driven)
    }

    /// Whether the stream is driven already.
    pub(super) fn has_stream(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    fn schedule(&mut self, id: StreamId) {
        if let Some(driven) = self.streams.get_mut(&id)
            && !driven.sent
            && !std::mem::replace(&mut driven.scheduled, true)
        {
            self.writing.push_back(id);
        }
    }

    fn forget_if_done(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|driven| driven.sent && driven.received) {
            self.streams.remove(&id);
            if self.done.len() == MAX_DONE {
                self.done.pop_front();
            }
            self.done.push_back(id);
        }
    }
}

impl Connection {
    /// Whether another request for a session may come to be one; it is noted then.
    pub(super) fn expect_session(&mut self, id: StreamId) -> bool {
        let config = &self.context.config;
        if !config.webtransport {
            // A handler may know what to do with such a request all the same.
            return true;
        }
        let sessions = self.sessions.get_or_insert_default();
        if sessions.requests.len() as u64 >= config.limits.webtransport_sessions() {
            self.context.stats.webtransport_sessions_refused.add(1);
            return false;
        }
        sessions.requests.push(id);
        true
    }

    pub(super) fn is_session_stream(&self, id: StreamId) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.has_stream(id))
    }

    /// How many more bytes the application takes of the stream, if it is one of a session.
    pub(super) fn session_stream_room(&self, id: StreamId) -> Option<usize> {
        self.sessions.as_ref()?.streams.get(&id).map(|driven| driven.stream.inbound_room())
    }

    pub(super) fn schedule_session_stream(&mut self, id: StreamId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.schedule(id);
            self.wants_to_write = true;
        }
    }

    /// Carries out what a handle asks for.
    pub(in crate::http3) fn on_work(&mut self, transport: &mut impl Transport, work: &Work) -> Result<(), ConnectionError> {
        match work {
            Work::Session(session) => {
                session.unqueue();
                self.on_session_work(transport, session)
            }
            Work::Stream(stream) => {
                stream.unqueue();
                self.on_session_stream_work(transport, stream)
            }
        }
    }

    fn on_session_work(&mut self, transport: &mut impl Transport, session: &Rc<Session>) -> Result<(), ConnectionError> {
        let Some(id) = session.id() else { return Ok(()) };
        if session.begin() && !session.is_over() {
            if !self.requests.contains_key(&id) {
                session.lose("the peer has taken its request back".to_owned());
                return Ok(());
            }
            self.begin_session(transport, session, id);
            // What came before the session did can be read on.
            while let Some(unblocked) = self.h3.poll_unblocked() {
                self.read(transport, unblocked)?;
            }
        }
        if session.is_over() {
            if let Some(sessions) = &mut self.sessions
                && sessions.begun.remove(&id).is_some()
            {
                self.h3.end_session(id);
                self.on_events(transport);
            }
        } else {
            self.send_datagrams(transport);
        }
        Ok(())
    }

    fn begin_session(&mut self, transport: &mut impl Transport, session: &Rc<Session>, id: StreamId) {
        let limits = &self.context.config.limits;
        transport.allow_streams(self.key, Dir::Uni, limits.uni_streams() + limits.webtransport_streams());
        if self.client.is_some() {
            transport.allow_streams(self.key, Dir::Bidi, limits.webtransport_streams());
        }
        self.context.stats.webtransport_sessions.add(1);
        self.sessions.get_or_insert_default().begun.insert(id, session.clone());
        session.set_datagram_size(self.datagram_size(transport, id));
        self.h3.begin_session(id);
        self.on_events(transport);
    }

    fn on_session_stream_work(&mut self, transport: &mut impl Transport, stream: &Rc<SessionStream>) -> Result<(), ConnectionError> {
        let Some(id) = stream.id() else {
            self.sessions.get_or_insert_default().opening.push_back(stream.clone());
            self.open_session_streams(transport);
            return Ok(());
        };
        let Some(sessions) = &mut self.sessions else { return Ok(()) };
        let Some(driven) = sessions.streams.get_mut(&id) else { return Ok(()) };
        if !driven.received
            && let Some(code) = stream.stop_asked()
        {
            driven.received = true;
            transport.stop(self.key, id, code.0);
            self.h3.stop_receiving(id);
        }
        let end = if driven.sent { None } else { stream.take_outbound(&mut driven.wire) };
        match end {
            Some(End::Reset(code)) => {
                driven.wire.clear();
                driven.sent = true;
                transport.reset(self.key, id, code.0);
                self.h3.finish_sending(id);
            }
            Some(End::Fin) => driven.fin = true,
            None => {}
        }
        let resumes = !driven.received && stream.is_paused();
        if driven.fin || !driven.wire.is_empty() {
            sessions.schedule(id);
            self.wants_to_write = true;
        }
        sessions.forget_if_done(id);
        if resumes { self.on_readable(transport, id) } else { Ok(()) }
    }

    /// Opens the streams that wait for it, as far as the peer allows.
    pub(super) fn open_session_streams(&mut self, transport: &mut impl Transport) {
        let Some(sessions) = &mut self.sessions else { return };
        // A kind that the peer allows no more of does not hold the other one up.
        let mut full = [false; 2];
        for stream in std::mem::take(&mut sessions.opening) {
            let dir = stream.dir();
            let Some(session) = stream.session().filter(|session| sessions.begun.contains_key(session)) else {
                stream.on_session_end();
                continue;
            };
            if stream.is_given_up() {
                stream.on_send_end(SessionStreamError::Closed);
                continue;
            }
            let is_full = &mut full[usize::from(dir == Dir::Uni)];
            let opened = if *is_full { None } else { transport.open(self.key, dir) };
            let Some(id) = opened else {
                *is_full = true;
                sessions.opening.push_back(stream);
                continue;
            };
            let mut preamble = BytesMut::new();
            if self.h3.open_session_stream(session, id, &mut preamble).is_err() {
                // The peer has just ended it, which the session's own task has not heard yet.
                transport.reset(self.key, id, ErrorCode::WEBTRANSPORT_SESSION_GONE.0);
                if dir == Dir::Bidi {
                    transport.stop(self.key, id, ErrorCode::WEBTRANSPORT_SESSION_GONE.0);
                }
                stream.on_session_end();
                continue;
            }
            transport.set_priority(self.key, id, PRIORITY);
            stream.on_opened(id);
            let driven = sessions.insert(id, stream, true);
            driven.wire.push_back(preamble.freeze());
            // What has been written meanwhile follows by way of the queue of work.
            driven.stream.mark_dirty();
        }
    }

    /// Gives the transport what it takes, each stream in its turn.
    pub(super) fn write_session_streams(&mut self, transport: &mut impl Transport) {
        let Some(sessions) = &mut self.sessions else { return };
        while let Some(id) = sessions.writing.pop_front() {
            let Some(driven) = sessions.streams.get_mut(&id) else { continue };
            driven.scheduled = false;
            if driven.sent {
                continue;
            }
            let order = Order { priority: PRIORITY, is_new: false };
            let written = transport.write(self.key, id, &mut driven.wire, QUANTUM_BYTES, driven.fin, Some(order));
            match written {
                Write::Done if driven.fin => {
                    driven.sent = true;
                    self.unacknowledged += 1;
                    self.h3.finish_sending(id);
                }
                // Of one that was stopped the transport tells by an event.
                Write::Done | Write::Blocked | Write::Stopped => {}
                Write::More => {
                    driven.scheduled = true;
                    sessions.writing.push_back(id);
                }
            }
            driven.stream.wrote(driven.wire.iter().map(Bytes::len).sum());
            sessions.forget_if_done(id);
        }
    }

    /// Whether the stream was one of a session, so that nothing else is to be done.
    pub(super) fn on_session_stream_stopped(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        code: u64,
    ) -> Result<bool, ConnectionError> {
        let Some(sessions) = &self.sessions else { return Ok(false) };
        let sent = match sessions.streams.get(&id) {
            Some(driven) => driven.sent,
            None if sessions.done.contains(&id) => true,
            // Those of HTTP/3 itself are three; others are remembered as long as they may be.
            None if !id.is_bidi() && self.uni.iter().all(|uni| uni.id != Some(id)) => true,
            None => return Ok(false),
        };
        if sent {
            // Its end was sent and has not arrived, and will not be acknowledged now.
            if transport.reset(self.key, id, code) {
                self.unacknowledged = self.unacknowledged.saturating_sub(1);
            }
        } else {
            self.h3.handle_stop_sending(id, code)?;
            self.on_events(transport);
        }
        Ok(true)
    }

    pub(super) fn on_session_event(&mut self, transport: &mut impl Transport, event: SessionEvent) {
        let Some(sessions) = &mut self.sessions else {
            // Streams can come before anything else that has to do with sessions.
            if let SessionEvent::Refused { stream, code, limit } = event {
                self.refuse_session_stream(transport, stream, code, limit);
            }
            return;
        };
        match event {
            SessionEvent::Opened { session, stream } => self.on_session_stream_opened(transport, session, stream),
            SessionEvent::Data { stream, data } => {
                if let Some(driven) = sessions.streams.get(&stream) {
                    driven.stream.on_data(data);
                }
            }
            SessionEvent::Finished { stream } => self.on_session_stream_end(stream, Ok(())),
            SessionEvent::Reset { stream, code } => {
                self.on_session_stream_end(stream, Err(SessionStreamError::Reset { code: code.to_application() }));
            }
            SessionEvent::StopSending { stream, code } => {
                if let Some(driven) = sessions.streams.get_mut(&stream)
                    && !std::mem::replace(&mut driven.sent, true)
                {
                    driven.wire.clear();
                    //= RFC 9000 section 3.5
                    //# An endpoint that receives a STOP_SENDING frame MUST send a RESET_STREAM frame if the stream is in the "Ready" or "Send" state.
                    transport.reset(self.key, stream, code.0);
                    driven.stream.on_send_end(SessionStreamError::Stopped { code: code.to_application() });
                    self.h3.finish_sending(stream);
                    sessions.forget_if_done(stream);
                }
            }
            SessionEvent::Refused { stream, code, limit } => self.refuse_session_stream(transport, stream, code, limit),
            SessionEvent::Datagram { session, payload } => {
                if let Some(session) = sessions.begun.get(&session) {
                    session.on_datagram(&payload);
                }
            }
        }
    }

    fn on_session_stream_opened(&mut self, transport: &mut impl Transport, session: StreamId, id: StreamId) {
        self.patience.end_head(id);
        let dir = if id.is_bidi() { Dir::Bidi } else { Dir::Uni };
        let sessions = self.sessions.get_or_insert_default();
        let Some(session) = sessions.begun.get(&session).filter(|session| !session.is_over()).cloned() else {
            return self.refuse_session_stream(transport, id, ErrorCode::WEBTRANSPORT_SESSION_GONE, None);
        };
        let stream = Rc::new(SessionStream::new(self.key, session.id(), Some(id), dir, self.dirty.clone()));
        stream.await_acceptance();
        sessions.insert(id, stream.clone(), false);
        if id.is_bidi() {
            transport.set_priority(self.key, id, PRIORITY);
        }
        session.on_opened(stream, dir);
    }

    fn on_session_stream_end(&mut self, id: StreamId, end: Result<(), SessionStreamError>) {
        if let Some(sessions) = &mut self.sessions
            && let Some(driven) = sessions.streams.get_mut(&id)
        {
            driven.received = true;
            driven.stream.on_inbound_end(end);
            sessions.forget_if_done(id);
        }
    }

    /// The session of a stream has not come in time.
    pub(super) fn give_up_early(&mut self, transport: &mut impl Transport, id: StreamId) {
        self.refuse_session_stream(transport, id, ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED, Some(Limit::EarlyStreams));
    }

    /// Ends both sides of a stream that has no session, or none any more.
    fn refuse_session_stream(&mut self, transport: &mut impl Transport, id: StreamId, code: ErrorCode, limit: Option<Limit>) {
        if let Some(counter) = limit.and_then(|limit| limits::counter(limit, &self.context.stats)) {
            counter.add(1);
        }
        self.patience.end_head(id);
        let driven = self.sessions.as_mut().and_then(|sessions| sessions.streams.get_mut(&id));
        let (sent, received) = match driven {
            Some(driven) => {
                driven.wire.clear();
                driven.stream.on_session_end();
                (std::mem::replace(&mut driven.sent, true), std::mem::replace(&mut driven.received, true))
            }
            None => (!id.is_bidi(), false),
        };
        if !received {
            transport.stop(self.key, id, code.0);
        }
        if !sent {
            transport.reset(self.key, id, code.0);
        }
        self.h3.stop_receiving(id);
        self.h3.finish_sending(id);
        if let Some(sessions) = &mut self.sessions {
            sessions.forget_if_done(id);
        }
    }

    pub(in crate::http3) fn on_datagram(&mut self, transport: &mut impl Transport, data: Bytes) -> Result<(), ConnectionError> {
        self.h3.handle_datagram(data)?;
        self.on_events(transport);
        Ok(())
    }

    /// Gives the transport the datagrams that it has room for.
    pub(in crate::http3) fn send_datagrams(&mut self, transport: &mut impl Transport) {
        let Some(sessions) = &mut self.sessions else { return };
        let mut waiting = sessions.held.take();
        let begun: Vec<_> = sessions.begun.iter().map(|(id, session)| (*id, session.clone())).collect();
        while let Some(data) = waiting.take().or_else(|| begun.iter().find_map(|(id, session)| self.framed_datagram(*id, session))) {
            match transport.send_datagram(self.key, data) {
                DatagramWrite::Done => {}
                DatagramWrite::Blocked(data) => {
                    waiting = Some(data);
                    break;
                }
                // The path has become smaller.
                DatagramWrite::Refused => self.context.stats.webtransport_datagrams_dropped.add(1),
            }
        }
        for (id, session) in begun {
            session.set_datagram_size(self.datagram_size(transport, id));
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.held = waiting;
        }
    }

    /// The next datagram of a session, as it is sent.
    fn framed_datagram(&self, id: StreamId, session: &Session) -> Option<Bytes> {
        let payload = session.next_datagram()?;
        let mut framed = BytesMut::with_capacity(varint::encoded_len(id.0 / 4) + payload.len());
        if self.h3.encode_datagram_header(id, &mut framed).is_err() {
            // The session's request is done, and its handle has yet to hear of it.
            self.context.stats.webtransport_datagrams_dropped.add(1);
            return None;
        }
        framed.extend_from_slice(&payload);
        Some(framed.freeze())
    }

    /// The most that a datagram of the session may carry now.
    fn datagram_size(&self, transport: &mut impl Transport, session: StreamId) -> Option<usize> {
        let takes_datagrams = self.h3.peer_settings().is_some_and(|settings| settings.h3_datagram);
        let size = transport.datagram_size(self.key).filter(|_| takes_datagrams)?;
        size.checked_sub(varint::encoded_len(session.0 / 4))
    }

    /// The connection comes to an end: sessions should, too.
    pub(super) fn drain_sessions(&self) {
        for session in self.sessions.iter().flat_map(|sessions| sessions.begun.values()) {
            session.on_drain();
        }
    }

    /// The connection is gone.
    pub(super) fn end_sessions(&mut self, reason: &str) {
        let Some(sessions) = self.sessions.take() else { return };
        for session in sessions.begun.into_values() {
            session.lose(reason.to_owned());
        }
        for stream in sessions.streams.into_values().map(|driven| driven.stream).chain(sessions.opening) {
            stream.on_session_end();
        }
    }
}
