//! WebTransport sessions of a connection: links the transport's streams and datagrams to the
//! sessions' handles.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{
    self as h3, ConnectionError, ErrorCode, Limit, Priority, SessionEvent, StreamId, StreamMap,
    varint,
};

use super::Connection;
use crate::Upgrade;
use crate::http3::limits;
use crate::http3::session::{Session, WEBTRANSPORT, Work};
use crate::http3::session_stream::{End, SessionStream, SessionStreamError};
use crate::schedule::{QUANTUM_BYTES, SHARED};
use crate::stats::Stats;
use crate::transport::{DatagramWrite, Dir, Order, Transport, Write};

/// Number of finished streams to remember, so that a late STOP_SENDING for them is not a protocol
/// error.
const MAX_DONE: usize = 256;

/// Streams of sessions share the connection's capacity equally.
const PRIORITY: Priority = SHARED;

pub(super) fn is_webtransport(upgrade: &Upgrade) -> bool {
    upgrade.protocol() == WEBTRANSPORT
}

/// The sessions of one connection.
#[derive(Default)]
pub(super) struct Sessions {
    /// Session requests that are not done, including those not accepted yet.
    requests: Vec<StreamId>,
    begun: StreamMap<Rc<Session>>,
    streams: StreamMap<StreamDriver>,
    /// Streams that wait for stream credit from the peer.
    opening: VecDeque<Rc<SessionStream>>,
    /// Streams with data that the transport may accept, each once.
    writing: VecDeque<StreamId>,
    /// A datagram that did not fit into the transport's queue.
    held: Option<Bytes>,
    /// The last finished streams.
    done: VecDeque<StreamId>,
    counted_drops: u64,
}

/// The driver's part of a stream.
struct StreamDriver {
    stream: Rc<SessionStream>,
    /// Bytes that the transport has not accepted.
    wire: VecDeque<Bytes>,
    /// Whether the stream is in `writing`.
    scheduled: bool,
    /// Whether the stream ends after these bytes.
    fin: bool,
    sent: bool,
    received: bool,
}

impl Sessions {
    /// Called when the request's stream is done.
    pub(super) fn on_request_done(&mut self, id: StreamId) {
        self.requests.retain(|request| *request != id);
    }

    /// Counts datagrams that were dropped because they arrived before their session.
    pub(super) fn count_dropped(&mut self, h3: &h3::Connection, stats: &Stats) {
        let dropped = h3.dropped_datagrams();
        stats
            .webtransport_datagrams_dropped
            .add(dropped - std::mem::replace(&mut self.counted_drops, dropped));
    }

    pub(super) fn release_memory(&mut self) {
        self.streams.shrink_to_fit();
        self.opening.shrink_to_fit();
        self.writing.shrink_to_fit();
    }

    fn insert(
        &mut self,
        id: StreamId,
        stream: Rc<SessionStream>,
        is_ours: bool,
    ) -> &mut StreamDriver {
        let (sent, received) = (!id.is_bidi() && !is_ours, !id.is_bidi() && is_ours);
        let driven = StreamDriver {
            stream,
            wire: VecDeque::new(),
            scheduled: false,
            fin: false,
            sent,
            received,
        };
        self.streams.get_or_insert_with(id, || driven)
    }

    /// Whether the stream is registered.
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
    /// Registers a session request. Returns false if the limit of sessions is reached.
    pub(super) fn expect_session(&mut self, id: StreamId) -> bool {
        let config = &self.context.config;
        if !config.webtransport {
            // A handler may have its own way to answer such a request.
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

    /// Returns how many more bytes the application accepts of a session's stream; `None` for other
    /// streams.
    pub(super) fn session_stream_room(&self, id: StreamId) -> Option<usize> {
        self.sessions.as_ref()?.streams.get(&id).map(|driven| driven.stream.inbound_room())
    }

    pub(super) fn schedule_session_stream(&mut self, id: StreamId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.schedule(id);
            self.wants_to_write = true;
        }
    }

    /// Processes the work of a handle.
    pub(in crate::http3) fn on_work(
        &mut self,
        transport: &mut impl Transport,
        work: &Work,
    ) -> Result<(), ConnectionError> {
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

    fn on_session_work(
        &mut self,
        transport: &mut impl Transport,
        session: &Rc<Session>,
    ) -> Result<(), ConnectionError> {
        let Some(id) = session.id() else { return Ok(()) };
        if session.begin() && !session.is_over() {
            if !self.requests.contains_key(&id) {
                session.lose("the peer cancelled the session's request".to_owned());
                return Ok(());
            }
            self.begin_session(transport, session, id);
            // Streams that arrived before the session can be read now.
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

    fn begin_session(
        &mut self,
        transport: &mut impl Transport,
        session: &Rc<Session>,
        id: StreamId,
    ) {
        let limits = &self.context.config.limits;
        transport.allow_streams(
            self.key,
            Dir::Uni,
            limits.uni_streams() + limits.webtransport_streams(),
        );
        if self.client.is_some() {
            transport.allow_streams(self.key, Dir::Bidi, limits.webtransport_streams());
        }
        self.context.stats.webtransport_sessions.add(1);
        self.sessions.get_or_insert_default().begun.insert(id, session.clone());
        session.set_datagram_size(self.datagram_size(transport, id));
        self.h3.begin_session(id);
        self.on_events(transport);
    }

    fn on_session_stream_work(
        &mut self,
        transport: &mut impl Transport,
        stream: &Rc<SessionStream>,
    ) -> Result<(), ConnectionError> {
        let Some(id) = stream.id() else {
            self.sessions.get_or_insert_default().opening.push_back(stream.clone());
            self.open_session_streams(transport);
            return Ok(());
        };
        let Some(sessions) = &mut self.sessions else { return Ok(()) };
        let Some(driven) = sessions.streams.get_mut(&id) else { return Ok(()) };
        if !driven.received
            && let Some(code) = stream.stop_code()
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

    /// Opens waiting streams, as far as the peer's limits allow.
    pub(super) fn open_session_streams(&mut self, transport: &mut impl Transport) {
        let Some(sessions) = &mut self.sessions else { return };
        // A full limit of one stream type does not hold up the other.
        let mut full = [false; 2];
        for stream in std::mem::take(&mut sessions.opening) {
            let dir = stream.dir();
            let Some(session) =
                stream.session().filter(|session| sessions.begun.contains_key(session))
            else {
                stream.on_session_end();
                continue;
            };
            if stream.is_abandoned() {
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
                // The peer has just ended the session, and the session's task does not know yet.
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
            // Data written meanwhile follows through the work queue.
            driven.stream.queue_work();
        }
    }

    /// Writes what the transport accepts, each stream in its turn.
    pub(super) fn write_session_streams(&mut self, transport: &mut impl Transport) {
        let Some(sessions) = &mut self.sessions else { return };
        while let Some(id) = sessions.writing.pop_front() {
            let Some(driven) = sessions.streams.get_mut(&id) else { continue };
            driven.scheduled = false;
            if driven.sent {
                continue;
            }
            let order = Order { priority: PRIORITY, is_new: false };
            let written = transport.write(
                self.key,
                id,
                &mut driven.wire,
                QUANTUM_BYTES,
                driven.fin,
                Some(order),
            );
            match written {
                Write::Done if driven.fin => {
                    driven.sent = true;
                    self.unacknowledged += 1;
                    self.h3.finish_sending(id);
                }
                // The transport reports a stopped stream by an event.
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

    /// Handles STOP_SENDING for a session's stream. Returns whether it was one.
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
            // HTTP/3's own streams are known. Any other unidirectional stream was a session's,
            // finished too long ago to be remembered.
            None if !id.is_bidi() && self.uni.iter().all(|uni| uni.id != Some(id)) => true,
            None => return Ok(false),
        };
        if sent {
            // The stream's end was sent but not acknowledged, and will not be acknowledged any
            // more.
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
            // Streams may arrive before any session exists.
            if let SessionEvent::Refused { stream, code, limit } = event {
                self.refuse_session_stream(transport, stream, code, limit);
            }
            return;
        };
        match event {
            SessionEvent::Opened { session, stream } => {
                self.on_session_stream_opened(transport, session, stream);
            }
            SessionEvent::Data { stream, data } => {
                if let Some(driven) = sessions.streams.get(&stream) {
                    driven.stream.on_data(data);
                }
            }
            SessionEvent::Finished { stream } => self.on_session_stream_end(stream, Ok(())),
            SessionEvent::Reset { stream, code } => {
                self.on_session_stream_end(
                    stream,
                    Err(SessionStreamError::Reset { code: code.to_application() }),
                );
            }
            SessionEvent::StopSending { stream, code } => {
                if let Some(driven) = sessions.streams.get_mut(&stream)
                    && !std::mem::replace(&mut driven.sent, true)
                {
                    driven.wire.clear();
                    //= RFC 9000 section 3.5
                    //# An endpoint that receives a STOP_SENDING frame MUST send a RESET_STREAM frame if the stream is in the "Ready" or "Send" state.
                    transport.reset(self.key, stream, code.0);
                    driven
                        .stream
                        .on_send_end(SessionStreamError::Stopped { code: code.to_application() });
                    self.h3.finish_sending(stream);
                    sessions.forget_if_done(stream);
                }
            }
            SessionEvent::Refused { stream, code, limit } => {
                self.refuse_session_stream(transport, stream, code, limit);
            }
            SessionEvent::Datagram { session, payload } => {
                if let Some(session) = sessions.begun.get(&session) {
                    session.on_datagram(&payload);
                }
            }
        }
    }

    fn on_session_stream_opened(
        &mut self,
        transport: &mut impl Transport,
        session: StreamId,
        id: StreamId,
    ) {
        self.deadlines.end_head(id);
        let dir = if id.is_bidi() { Dir::Bidi } else { Dir::Uni };
        let sessions = self.sessions.get_or_insert_default();
        let Some(session) =
            sessions.begun.get(&session).filter(|session| !session.is_over()).cloned()
        else {
            return self.refuse_session_stream(
                transport,
                id,
                ErrorCode::WEBTRANSPORT_SESSION_GONE,
                None,
            );
        };
        let stream = Rc::new(SessionStream::new(
            self.key,
            session.id(),
            Some(id),
            dir,
            self.work_queue.clone(),
        ));
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

    /// Refuses a stream whose session has not arrived in time.
    pub(super) fn refuse_early_stream(&mut self, transport: &mut impl Transport, id: StreamId) {
        self.refuse_session_stream(
            transport,
            id,
            ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED,
            Some(Limit::WaitingStreams),
        );
    }

    /// Ends both sides of a stream whose session does not exist or has ended.
    fn refuse_session_stream(
        &mut self,
        transport: &mut impl Transport,
        id: StreamId,
        code: ErrorCode,
        limit: Option<Limit>,
    ) {
        if let Some(counter) = limit.and_then(|limit| limits::counter(limit, &self.context.stats)) {
            counter.add(1);
        }
        self.deadlines.end_head(id);
        let driven = self.sessions.as_mut().and_then(|sessions| sessions.streams.get_mut(&id));
        let (sent, received) = match driven {
            Some(driven) => {
                driven.wire.clear();
                driven.stream.on_session_end();
                (
                    std::mem::replace(&mut driven.sent, true),
                    std::mem::replace(&mut driven.received, true),
                )
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

    pub(in crate::http3) fn on_datagram(
        &mut self,
        transport: &mut impl Transport,
        data: Bytes,
    ) -> Result<(), ConnectionError> {
        self.h3.handle_datagram(data)?;
        self.on_events(transport);
        Ok(())
    }

    /// Passes datagrams to the transport until its queue is full.
    pub(in crate::http3) fn send_datagrams(&mut self, transport: &mut impl Transport) {
        let Some(sessions) = &mut self.sessions else { return };
        let mut waiting = sessions.held.take();
        let begun: Vec<_> =
            sessions.begun.iter().map(|(id, session)| (*id, session.clone())).collect();
        while let Some(data) = waiting
            .take()
            .or_else(|| begun.iter().find_map(|(id, session)| self.framed_datagram(*id, session)))
        {
            match transport.send_datagram(self.key, data) {
                DatagramWrite::Done => {}
                DatagramWrite::Blocked(data) => {
                    waiting = Some(data);
                    break;
                }
                // The path's MTU has shrunk.
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

    /// Returns the next datagram of a session, with its header.
    fn framed_datagram(&self, id: StreamId, session: &Session) -> Option<Bytes> {
        let payload = session.next_datagram()?;
        let mut framed = BytesMut::with_capacity(varint::encoded_len(id.0 / 4) + payload.len());
        if self.h3.encode_datagram_header(id, &mut framed).is_err() {
            // The session's request is done, and its handle does not know yet.
            self.context.stats.webtransport_datagrams_dropped.add(1);
            return None;
        }
        framed.extend_from_slice(&payload);
        Some(framed.freeze())
    }

    /// Returns the current maximum payload of the session's datagrams.
    fn datagram_size(&self, transport: &mut impl Transport, session: StreamId) -> Option<usize> {
        let takes_datagrams = self.h3.peer_settings().is_some_and(|settings| settings.h3_datagram);
        let size = transport.datagram_size(self.key).filter(|_| takes_datagrams)?;
        size.checked_sub(varint::encoded_len(session.0 / 4))
    }

    /// Called when the connection is going away: asks sessions to drain.
    pub(super) fn drain_sessions(&self) {
        for session in self.sessions.iter().flat_map(|sessions| sessions.begun.values()) {
            session.on_drain();
        }
    }

    /// Called when the connection is gone.
    pub(super) fn end_sessions(&mut self, reason: &str) {
        let Some(sessions) = self.sessions.take() else { return };
        for session in sessions.begun.into_values() {
            session.lose(reason.to_owned());
        }
        for stream in
            sessions.streams.into_values().map(|driven| driven.stream).chain(sessions.opening)
        {
            stream.on_session_end();
        }
    }
}
