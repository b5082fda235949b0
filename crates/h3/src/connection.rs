//! The connection: stream bytes in, events out, and the application's messages to bytes.

mod control;
mod events;
mod incoming;
mod ledger;
mod outgoing;
mod priorities;
mod request_stream;
mod sessions;
mod stream_map;
mod webtransport;

use std::{cell::RefCell, collections::VecDeque, fmt};

use bytes::{BufMut, Bytes, BytesMut};
use pronghorn_qpack::{Encoder, FieldSection, OutgoingLine, SectionTooLarge};

pub use outgoing::UniStream;

use crate::{
    config::Config,
    error::{ConnectionError, ErrorCode, SendError, StreamFault},
    event::Event,
    frame::{
        FrameHeader, FrameType,
        settings::{SettingId, Settings},
    },
    head::Head,
    limit::Limit,
    message::{OutgoingSection, SectionKind},
    priority::Priority,
    stream::StreamId,
    varint,
};

use control::ControlFrame;
use incoming::{IncomingStreams, Purpose, Sorted, closed_critical_stream};
use outgoing::OutgoingStreams;
use priorities::EarlyPriorities;
use request_stream::{RequestStream, Requested, Sent, Shared};
use sessions::Sessions;
use stream_map::StreamMap;
use webtransport::made;

/// Bytes of our decoder stream that may wait for the peer's flow control. An honest peer reads it all the time.
const MAX_DECODER_BACKLOG: usize = 64 * 1024;

/// Which side of the connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We answer requests.
    Server,
    /// We send requests.
    Client,
}

/// One HTTP/3 connection, for both roles.
///
/// The caller owns the transport and keeps this order:
///
/// 1. What the transport has read goes in by the `handle_*` functions, each stream's bytes in order. An error ends the
///    connection: close it with the error's code, and call nothing else.
///    A stream that [`Connection::is_blocked`] is not read further until [`Connection::poll_unblocked`] names it.
/// 2. [`Connection::poll_event`] until it is empty, and [`Connection::poll_unblocked`].
/// 3. The application's messages: [`Connection::encode_headers`] and [`Connection::encode_data_header`] append to a
///    buffer of the caller, who writes it to the stream in order, content after its header. Then
///    [`Connection::finish_sending`].
/// 4. [`Connection::poll_uni_write`] until it is empty, and [`Connection::set_uni_backlog`] when the transport does not take
///    all of it. These bytes should go out before those of step 3: what is sent there may refer to them.
///
/// Nothing of a stream is kept once both sides are done: ours by [`Connection::finish_sending`], the peer's by
/// [`Connection::handle_fin`], [`Connection::handle_reset`] or [`Connection::stop_receiving`]. After that the stream's ID
/// must not be used again; as a server would take it for a new request.
#[derive(Debug)]
pub struct Connection {
    requests: StreamMap<RequestStream>,
    shared: Shared,
    incoming: IncomingStreams,
    outgoing: OutgoingStreams,
    encoder: Encoder,
    /// Streams that the caller may read again.
    unblocked: VecDeque<StreamId>,
    /// Bytes of our decoder stream that the transport has not taken.
    decoder_backlog: usize,
    peer_settings: Option<Settings>,
    /// Server role: one above the highest request that has come.
    next_request: StreamId,
    early_priorities: EarlyPriorities,
    shutdown: Shutdown,
    /// There from the first stream, datagram or request on that has to do with a WebTransport session.
    sessions: Option<Box<Sessions>>,
}

/// How far our own graceful shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// The peer knows that it is coming; requests are still taken.
    Announced,
    /// Requests from this ID on are refused (server role).
    From(StreamId),
}

impl Connection {
    /// A new connection; its SETTINGS wait in [`Connection::poll_uni_write`].
    pub fn new(role: Role, config: Config) -> Self {
        let encoder_capacity = config.qpack_encoder_capacity;
        let shared = Shared::new(role, config);
        let mut outgoing = OutgoingStreams::default();
        //= RFC 9114 section 7.2.4.2
        //# Endpoints MUST NOT require any data to be received from the peer prior to sending the SETTINGS frame;
        //# settings MUST be sent as soon as the transport is ready to send data.
        //= RFC 9114 section 3.2
        //# After the QUIC connection is established, a SETTINGS frame MUST be sent by each endpoint as the initial
        //# frame of their respective HTTP control stream.
        outgoing.write_settings(&offered_settings(&shared), &shared.config);
        Self {
            requests: StreamMap::default(),
            shared,
            incoming: IncomingStreams::new(role),
            outgoing,
            encoder: Encoder::with_max_table_capacity(encoder_capacity),
            unblocked: VecDeque::new(),
            decoder_backlog: 0,
            peer_settings: None,
            next_request: StreamId(0),
            early_priorities: EarlyPriorities::default(),
            shutdown: Shutdown::No,
            sessions: None,
        }
    }

    /// Takes bytes of a stream, in order.
    pub fn handle_data(&mut self, stream: StreamId, data: Bytes) -> Result<(), ConnectionError> {
        if self.decoder_backlog > MAX_DECODER_BACKLOG {
            return Err(ConnectionError::limit_reached(Limit::DecoderBacklog));
        }
        if let Some((sessions, shared)) = self.sessions_of(stream) {
            sessions.on_data(stream, data, &mut shared.events)?;
            return shared.ledger.verdict();
        }
        if stream.is_bidi() {
            if let Some((request, shared)) = self.received_request(stream)?
                && let Some(preamble) = request.on_data(stream, data, shared)?
            {
                self.on_session_stream(stream, &preamble)?;
            }
            self.shared.ledger.verdict()
        } else {
            self.on_uni_data(stream, data)
        }
    }

    /// The peer's side of the stream ended cleanly, after all its data.
    pub fn handle_fin(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        if let Some((sessions, shared)) = self.sessions_of(stream) {
            sessions.on_fin(stream, &mut shared.events);
            return Ok(());
        }
        if !stream.is_bidi() {
            return self.incoming.on_end(stream, &mut self.shared.ledger);
        }
        if let Some((request, shared)) = self.received_request(stream)? {
            request.on_fin(stream, shared)?;
            self.forget_if_done(stream);
        }
        self.shared.ledger.verdict()
    }

    /// The peer reset its side of the stream.
    pub fn handle_reset(&mut self, stream: StreamId, code: u64) -> Result<(), ConnectionError> {
        if let Some((sessions, shared)) = self.sessions_of(stream) {
            sessions.on_reset(stream, ErrorCode(code), &mut shared.events);
            return Ok(());
        }
        if !stream.is_bidi() {
            return self.incoming.on_end(stream, &mut self.shared.ledger);
        }
        if let Some((request, shared)) = self.received_request(stream)? {
            request.on_reset(stream, ErrorCode(code), shared);
            self.forget_if_done(stream);
        }
        self.shared.ledger.verdict()
    }

    /// The peer wants no more of what we send on the stream. Streams that we opened ourselves belong here too.
    pub fn handle_stop_sending(&mut self, stream: StreamId, code: u64) -> Result<(), ConnectionError> {
        if let Some(sessions) = self.sessions.as_deref_mut().filter(|sessions| sessions.knows(stream)) {
            sessions.on_stop_sending(stream, ErrorCode(code), &mut self.shared.events);
            return Ok(());
        }
        if !stream.is_bidi() {
            // All other unidirectional streams of ours are critical.
            return Err(closed_critical_stream());
        }
        if let Some(request) = self.requests.get_mut(&stream).filter(|request| !request.is_sending_done) {
            //= RFC 9114 section 4.1
            //# Clients MUST NOT discard complete responses as a result of having their request terminated abruptly,
            //# though clients can always discard responses at their discretion for other reasons.
            request.on_aborted(&mut self.shared);
            self.shared.events.push_back(Event::StopSending { stream, code: ErrorCode(code) });
        }
        self.shared.ledger.verdict()
    }

    /// Server: the peer takes a request back when its response is complete, and not all of it has arrived. Counts as an aborted request.
    pub fn handle_late_stop(&mut self) -> Result<(), ConnectionError> {
        // Once more for having been counted as one that ended well.
        self.shared.ledger.on_aborted_request();
        self.shared.ledger.on_aborted_request();
        self.shared.ledger.verdict()
    }

    /// Client: the next request will go on this stream, which the transport has opened.
    pub fn open_request(&mut self, stream: StreamId) -> Result<(), SendError> {
        //= RFC 9114 section 4.1
        //# A client MUST send only a single request on a given stream.
        if self.shared.role == Role::Server || !stream.is_request() || self.requests.contains_key(&stream) {
            return Err(SendError::StreamNotOpen { stream });
        }
        //= RFC 9114 section 5.2
        //# Endpoints MUST NOT initiate new requests or promise new pushes on the connection after receipt of a GOAWAY
        //# frame from the peer.
        if self.incoming.control.go_away().is_some() {
            return Err(SendError::GoingAway);
        }
        self.requests.insert(stream, RequestStream::new());
        Ok(())
    }

    /// Appends a HEADERS frame to `out`: a request, a response, an interim response, or trailers if the head was sent
    /// already. Connection-specific fields, which HTTP/3 does not have, are left out, and so is `host` beside `:authority`. After
    /// an error `out` is as before.
    pub fn encode_headers<'a>(
        &mut self,
        stream: StreamId,
        lines: impl IntoIterator<Item: Into<OutgoingLine<'a>>>,
        out: &mut BytesMut,
    ) -> Result<(), SendError> {
        let request =
            self.requests.get_mut(&stream).filter(|request| !request.is_sending_done).ok_or(SendError::StreamNotOpen { stream })?;
        if request.sent == Sent::Trailers {
            return Err(SendError::MessageComplete { stream });
        }
        let frame_start = out.len();
        let section_kind = match (request.sent, self.shared.role) {
            (Sent::Nothing, Role::Client) => SectionKind::Request,
            (Sent::Nothing, Role::Server) => SectionKind::Response,
            _ => SectionKind::Trailers,
        };
        let offers_extended_connect = self.peer_settings.is_some_and(|settings| settings.enable_connect_protocol);
        let section = RefCell::new(OutgoingSection::new(section_kind, offers_extended_connect));
        let mut kind = HeadKind::Final;
        let mut requested = Requested::Other;
        let lines =
            lines.into_iter().map(Into::into).filter(|line| section.borrow_mut().takes(line)).inspect(|OutgoingLine { line, .. }| {
                if line.name.first() == Some(&b':') {
                    match line.name {
                        b":status" if line.value.first() == Some(&b'1') => kind = HeadKind::Interim,
                        b":method" => requested = Requested::from_method(line.value),
                        _ => {}
                    }
                }
            });
        //= RFC 9114 section 7.2.4.2
        //# Once a server has provided new settings, clients MUST comply with those values.
        //= RFC 9114 section 7.2.4.2
        //# A client MUST comply with stored settings -- or default values if no values are stored -- when attempting
        //# 0-RTT.
        let limit = self.peer_settings.and_then(|settings| settings.max_field_section_size).unwrap_or(u64::MAX);
        //= RFC 9114 section 4.2.2
        //# An implementation that has received this parameter SHOULD NOT send an HTTP message header that exceeds the
        //# indicated size, as the peer will likely refuse to process it.
        let check = || match section.borrow().fault() {
            Some(reason) => Err(Unsendable::Malformed(reason)),
            None => Ok(()),
        };
        if let Err(unsendable) = encode_headers_frame(&mut self.encoder, limit, stream, lines, out, check) {
            out.truncate(frame_start);
            return Err(match unsendable {
                Unsendable::Malformed(reason) => SendError::Malformed { reason },
                Unsendable::TooLarge(size) => SendError::FieldSectionTooLarge { size, limit },
            });
        }
        match (request.sent, kind) {
            (Sent::Nothing, HeadKind::Interim) => {}
            (Sent::Nothing, HeadKind::Final) => {
                request.sent = Sent::Head;
                request.requested = requested;
            }
            _ => request.sent = Sent::Trailers,
        }
        Ok(())
    }

    /// Appends the header of a DATA frame to `out`; the caller writes `len` bytes of content after it. Only between the
    /// head and the trailers.
    ///
    /// # Panics
    /// If `len` exceeds 2^62 - 1.
    pub fn encode_data_header(&mut self, stream: StreamId, len: u64, out: &mut BytesMut) {
        debug_assert!(
            self.requests.get(&stream).is_none_or(|request| request.sent == Sent::Head),
            "content is sent after the head and before the trailers"
        );
        FrameHeader::encode(FrameType::DATA, len, out);
    }

    /// Our side of the stream is done: its end is queued, or it was reset. No encoding may follow.
    pub fn finish_sending(&mut self, stream: StreamId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.finish_sending(stream);
        }
        if let Some(request) = self.requests.get_mut(&stream) {
            request.is_sending_done = true;
            // Our side was reset before the blocked head came: nobody waits for it any more.
            if self.shared.role == Role::Server && request.is_blocked() && !request.has_head() {
                request.abandon(stream, &mut self.shared);
            }
            self.forget_if_done(stream);
        }
    }

    /// The caller reads the stream no more: it sent STOP_SENDING. No data of it may follow; what is queued as events
    /// already still comes.
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

    /// Gives back memory that is kept so that the next messages need none: for a connection that has nothing to do. The dynamic tables of
    /// QPACK stay.
    pub fn release_memory(&mut self) {
        self.requests.shrink_to_fit();
        self.shared.release_memory();
        self.encoder.release_memory();
        self.outgoing.release_memory();
        self.unblocked.shrink_to_fit();
    }

    /// Shuts down gracefully. As a server call it twice, a round trip apart: the first GOAWAY only announces the end, so
    /// that requests under way are not refused; the second names the first request that is. As a client it says that no
    /// push is taken. Further calls do nothing.
    pub fn go_away(&mut self) {
        let id = match (self.shared.role, self.shutdown) {
            (_, Shutdown::From(_)) => return,
            //= RFC 9114 section 5.2
            //# An endpoint that is attempting to gracefully shut down a connection can send a GOAWAY frame with a value
            //# set to the maximum possible value (2^62-4 for servers, 2^62-1 for clients).
            (Role::Server, Shutdown::No) => {
                self.shutdown = Shutdown::Announced;
                StreamId::MAX_REQUEST
            }
            //= RFC 9114 section 5.2
            //# An endpoint MAY send multiple GOAWAY frames indicating different identifiers, but the identifier in each
            //# frame MUST NOT be greater than the identifier in any previous frame, since clients might already have
            //# retried unprocessed requests on another HTTP connection.
            (Role::Server, Shutdown::Announced) => {
                self.shutdown = Shutdown::From(self.next_request);
                self.next_request
            }
            // A push ID: no push was promised, and none will be taken.
            (Role::Client, _) => {
                self.shutdown = Shutdown::From(StreamId(0));
                StreamId(0)
            }
        };
        self.outgoing.write_go_away(id.0);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.shared.events.pop_front();
        if let Some(Event::Head { stream, head: Head::Request(_), .. }) = event
            && let Some(priority) = self.early_priorities.remove(stream)
        {
            self.shared.events.push_front(Event::PriorityUpdate { stream, priority });
        }
        event
    }

    /// Whether [`Connection::poll_uni_write`] has bytes.
    pub fn wants_uni_write(&self) -> bool {
        self.encoder.has_instructions() || self.shared.decoder.has_instructions() || self.outgoing.has_bytes()
    }

    /// Bytes for one of our unidirectional streams. The first bytes of a stream say its type.
    pub fn poll_uni_write(&mut self) -> Option<(UniStream, Bytes)> {
        if let Some(instructions) = self.encoder.take_instructions() {
            self.outgoing.open(UniStream::QpackEncoder).extend_from_slice(&instructions);
        }
        if let Some(instructions) = self.shared.decoder.take_instructions() {
            self.outgoing.open(UniStream::QpackDecoder).extend_from_slice(&instructions);
        }
        self.outgoing.poll()
    }

    /// How much of what [`Connection::poll_uni_write`] gave for this stream waits for the peer's flow control; none at first.
    ///
    /// While the encoder stream waits, field sections refer to nothing that it carries. If more than 64 KiB of the
    /// decoder stream wait ([`Limit::DecoderBacklog`]), the next data that comes from the peer is an error.
    pub const fn set_uni_backlog(&mut self, stream: UniStream, bytes: usize) {
        match stream {
            UniStream::Control => {}
            UniStream::QpackEncoder => self.encoder.set_held_up(bytes > 0),
            UniStream::QpackDecoder => self.decoder_backlog = bytes,
        }
    }

    /// Whether a field section on this stream waits for insertions into the dynamic table, or the stream for its session. The caller reads the
    /// stream no further, so that what follows stays in the transport's flow control window; its reset is still of interest.
    //= RFC 9204 section 2.2.1
    //# While blocked, encoded field section data SHOULD remain in the blocked stream's flow-control window.
    pub fn is_blocked(&self, stream: StreamId) -> bool {
        self.shared.decoder.is_blocked(stream.0) || self.is_early(stream)
    }

    /// A stream that is not blocked any more: the caller reads it again.
    pub fn poll_unblocked(&mut self) -> Option<StreamId> {
        self.unblocked.pop_front()
    }

    /// Gives a section's memory back, so that a later message needs no new one.
    pub fn recycle(&mut self, section: FieldSection) {
        self.shared.recycle(section);
    }

    /// Request streams that are not done on both sides.
    pub fn open_streams(&self) -> usize {
        self.requests.len()
    }

    /// What our SETTINGS say.
    pub fn own_settings(&self) -> Settings {
        let mut own = Settings::default();
        for (id, value) in offered_settings(&self.shared) {
            own.set(id, value).expect("invariant: what we offer is valid");
        }
        own
    }

    /// Server role: how many PRIORITY_UPDATE frames were forgotten because too many waited for their requests.
    pub fn dropped_priority_updates(&self) -> u64 {
        self.early_priorities.dropped()
    }

    /// The peer's SETTINGS, once they have arrived.
    pub fn peer_settings(&self) -> Option<&Settings> {
        self.peer_settings.as_ref()
    }

    /// The state of a bidirectional stream on which something was received; for a server perhaps a new one. `None` if
    /// the stream is of no interest any more.
    fn received_request(&mut self, stream: StreamId) -> Result<Option<(&mut RequestStream, &mut Shared)>, ConnectionError> {
        if !stream.is_request() {
            // Where it has been, its streams do not come here.
            //= RFC 9114 section 6.1
            //# Clients MUST treat receipt of a server-initiated bidirectional stream as a connection error of type
            //# H3_STREAM_CREATION_ERROR unless such an extension has been negotiated.
            return Err(ConnectionError::new(ErrorCode::H3_STREAM_CREATION_ERROR, "a bidirectional stream initiated by a server"));
        }
        let shared = &mut self.shared;
        if shared.role == Role::Client {
            return Ok(self.requests.get_mut(&stream).map(|request| (request, shared)));
        }
        let request = self.requests.entry(stream).or_insert_with(|| {
            self.next_request = self.next_request.max(StreamId(stream.0 + 4).min(StreamId::MAX_REQUEST));
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

    fn forget_if_done(&mut self, stream: StreamId) {
        if self.requests.get(&stream).is_some_and(RequestStream::is_done)
            && let Some(request) = self.requests.remove(&stream)
        {
            request.on_done(&mut self.shared.ledger);
            // Nothing can wait for it any more.
            self.end_session(stream);
        }
    }

    fn on_uni_data(&mut self, stream: StreamId, mut data: Bytes) -> Result<(), ConnectionError> {
        match self.incoming.sort(stream, &mut data, &mut self.shared)? {
            Sorted::Session => {
                self.incoming.forget(stream);
                let Self { sessions, shared, .. } = self;
                let sessions = made(sessions, &shared.config);
                sessions.expect_session(stream);
                sessions.on_data(stream, data, &mut shared.events)?;
                shared.ledger.verdict()
            }
            Sorted::AwaitingType => self.shared.ledger.verdict(),
            //= RFC 9114 section 6.2.3
            //# Endpoints MUST NOT consider these streams to have any meaning upon receipt.
            Sorted::Known(Purpose::Ignored) => {
                self.shared.ledger.on_ignored_bytes(data.len());
                self.shared.ledger.verdict()
            }
            Sorted::Unknown => {
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
                self.shared.ledger.on_ignored_bytes(data.len());
                self.shared.ledger.verdict()
            }
            Sorted::Known(Purpose::QpackEncoder) => {
                self.shared.decoder.handle_encoder_stream(&data)?;
                self.resume_unblocked()?;
                self.shared.ledger.verdict()
            }
            Sorted::Known(Purpose::QpackDecoder) => Ok(self.encoder.handle_decoder_stream(&data)?),
            Sorted::Known(Purpose::Control) => {
                while let Some(frame) = self.incoming.control.read(&mut data, &mut self.shared.ledger)? {
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
                // Not before: values remembered from an earlier connection are not used for 0-RTT, so there is nothing that
                // the SETTINGS could contradict (RFC 9204 section 3.2.3).
                self.encoder.set_peer_settings(settings.qpack_max_table_capacity, settings.qpack_blocked_streams);
                self.peer_settings = Some(settings);
                self.shared.events.push_back(Event::Settings);
            }
            ControlFrame::GoAway { id } => {
                self.shared.events.push_back(Event::GoAway { id });
                if self.shared.role == Role::Client {
                    self.refuse_from(StreamId(id));
                }
            }
            ControlFrame::PriorityUpdate { stream, priority } => self.on_priority_update(stream, priority)?,
        }
        Ok(())
    }

    fn on_priority_update(&mut self, stream: StreamId, priority: Priority) -> Result<(), ConnectionError> {
        //= RFC 9218 section 7.2
        //# If a server receives a PRIORITY_UPDATE (type=0xF0700) with a stream ID that is beyond the stream limits, this
        //# SHOULD be treated as a connection error of type H3_ID_ERROR.
        // The transport never allows more than what came already and as many again.
        if stream.0 / 4 >= (self.next_request.0 / 4).saturating_add(self.shared.config.max_concurrent_requests) {
            return Err(ConnectionError::new(ErrorCode::H3_ID_ERROR, "a PRIORITY_UPDATE names a request beyond the limit"));
        }
        match self.requests.get(&stream) {
            Some(request) if request.has_head() => self.shared.events.push_back(Event::PriorityUpdate { stream, priority }),
            _ => self.early_priorities.insert(stream, priority),
        }
        Ok(())
    }

    /// Client: the server will not process requests from this one on.
    fn refuse_from(&mut self, first: StreamId) {
        let mut refused: Vec<StreamId> = self.requests.keys().copied().filter(|stream| *stream >= first).collect();
        refused.sort_unstable();
        for stream in refused {
            if let Some(request) = self.requests.get_mut(&stream) {
                request.on_unprocessed(stream, &mut self.shared);
            }
        }
    }
}

/// What becomes of a request after the last one that was promised.
const REQUEST_REJECTED: StreamFault =
    StreamFault::new(ErrorCode::H3_REQUEST_REJECTED, "the request came after the connection was shut down");

/// Whether another head follows the one that is encoded.
#[derive(Clone, Copy)]
enum HeadKind {
    Interim,
    Final,
}

impl Requested {
    fn from_method(method: &[u8]) -> Self {
        match method {
            b"HEAD" => Self::Head,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

fn offered_settings(shared: &Shared) -> Vec<(SettingId, u64)> {
    let config = &shared.config;
    let mut settings = vec![(SettingId::MAX_FIELD_SECTION_SIZE, config.max_field_section_size)];
    //= RFC 9114 section 7.2.4.2
    //# The server MUST include all settings that differ from their default values.
    let defaults_to_zero = [
        (SettingId::QPACK_MAX_TABLE_CAPACITY, shared.decoder.max_table_capacity()),
        (SettingId::QPACK_BLOCKED_STREAMS, shared.decoder.max_blocked_streams()),
        (SettingId::ENABLE_CONNECT_PROTOCOL, u64::from(config.extended_connect && shared.role == Role::Server)),
        // Two drafts of WebTransport that do not disagree on anything else. Later ones want RESET_STREAM_AT of the transport.
        (SettingId::H3_DATAGRAM, u64::from(config.speaks_webtransport())),
        (SettingId::ENABLE_WEBTRANSPORT, u64::from(config.speaks_webtransport())),
        (SettingId::WEBTRANSPORT_MAX_SESSIONS, config.max_sessions),
    ];
    settings.extend(defaults_to_zero.into_iter().filter(|(_, value)| *value > 0));
    if config.grease {
        settings.push((SettingId(config.reserved_value(0)), config.reserved_value(2)));
    }
    settings
}

/// Appends a HEADERS frame. After an error a part of it may be there.
fn encode_headers_frame<'a, E: From<SectionTooLarge>>(
    encoder: &mut Encoder,
    limit: u64,
    stream: StreamId,
    lines: impl IntoIterator<Item = OutgoingLine<'a>>,
    out: &mut BytesMut,
    check: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    // Two bytes for the length hold most sections; they are written when it is known.
    const LEN_BYTES: usize = 2;
    varint::encode(FrameType::HEADERS.0, out);
    let len_start = out.len();
    out.put_bytes(0, LEN_BYTES);
    let section_start = out.len();
    encoder.encode_if(limit, stream.0, lines, out, check)?;
    let section_end = out.len();
    let len = (section_end - section_start) as u64;
    if len < 1 << 14 {
        let mut len_bytes = &mut out[len_start..section_start];
        len_bytes.put_u16(len as u16 | 0x4000);
    } else {
        let missing = varint::encoded_len(len) - LEN_BYTES;
        out.put_bytes(0, missing);
        out.copy_within(section_start..section_end, section_start + missing);
        let mut len_bytes = &mut out[len_start..section_start + missing];
        varint::encode(len, &mut len_bytes);
    }
    Ok(())
}

/// Why a section of ours stays unsent.
enum Unsendable {
    Malformed(&'static str),
    TooLarge(u64),
}

impl From<SectionTooLarge> for Unsendable {
    fn from(error: SectionTooLarge) -> Self {
        Self::TooLarge(error.size)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}
