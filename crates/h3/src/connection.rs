//! The connection: converts stream bytes to events, and the application's messages to bytes.

mod control;
mod cost_balance;
mod events;
mod incoming;
mod outgoing;
mod priorities;
mod receiving;
mod request_stream;
mod sending;
mod sessions;
mod stream_context;
mod webtransport;

use std::collections::VecDeque;

use bytes::Bytes;
use pronghorn_qpack::{Encoder, FieldSection};

pub use outgoing::UniStream;

use crate::{
    config::Config,
    event::Event,
    frame::settings::{SettingId, Settings},
    head::Head,
    role::Role,
    stream::StreamId,
    stream_map::StreamMap,
};

use incoming::IncomingStreams;
use outgoing::OutgoingStreams;
use priorities::EarlyPriorities;
use request_stream::RequestStream;
use sessions::Sessions;
use stream_context::StreamContext;

/// One HTTP/3 connection, for both roles.
///
/// The caller owns the transport and keeps this order:
///
/// 1. Pass what the transport has read to the `handle_*` functions, each stream's bytes in order.
///    An error ends the connection: close it with the error's code, and call nothing else. Do not
///    read a stream that [`Connection::is_blocked`] until [`Connection::poll_unblocked`] returns
///    it.
/// 2. Call [`Connection::poll_event`] until it is empty, and [`Connection::poll_unblocked`].
/// 3. Encode the application's messages: [`Connection::encode_headers`] and
///    [`Connection::encode_data_header`] append to a buffer. Write it to the stream in order,
///    content after its header. Then call [`Connection::finish_sending`].
/// 4. Call [`Connection::poll_uni_write`] until it is empty, and [`Connection::set_uni_backlog`] if
///    the transport does not accept all bytes. Send these bytes before those of step 3, which may
///    refer to them.
///
/// A stream's state is dropped once both sides are done: the local side by
/// [`Connection::finish_sending`], the peer's by [`Connection::handle_fin`],
/// [`Connection::handle_reset`] or [`Connection::stop_receiving`]. After that the stream ID must
/// not be used again: a server would take it for a new request.
#[derive(Debug)]
pub struct Connection {
    requests: StreamMap<RequestStream>,
    shared: StreamContext,
    incoming: IncomingStreams,
    outgoing: OutgoingStreams,
    encoder: Encoder,
    /// Streams that the caller may read again.
    unblocked: VecDeque<StreamId>,
    /// Bytes of the local decoder stream that the transport has not accepted.
    decoder_backlog: usize,
    peer_settings: Option<Settings>,
    /// Server role: one above the highest request received.
    next_request: StreamId,
    early_priorities: EarlyPriorities,
    shutdown: Shutdown,
    /// Allocated for the first stream, datagram or request that belongs to a WebTransport session.
    sessions: Option<Box<Sessions>>,
}

/// Progress of the local graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// The peer was notified; requests are still accepted.
    Announced,
    /// Requests from this ID on are refused (server role).
    From(StreamId),
}

impl Connection {
    /// Returns a new connection, whose SETTINGS are ready in [`Connection::poll_uni_write`].
    pub fn new(role: Role, config: Config) -> Self {
        let encoder_capacity = config.qpack_encoder_capacity;
        let shared = StreamContext::new(role, config);
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

    /// Releases memory that is kept for later messages. Use it for an idle connection. The QPACK
    /// dynamic tables are kept.
    pub fn release_memory(&mut self) {
        self.requests.shrink_to_fit();
        self.shared.release_memory();
        self.encoder.release_memory();
        self.outgoing.release_memory();
        self.unblocked.shrink_to_fit();
    }

    /// Shuts down gracefully. A server calls it twice, a round trip apart: the first GOAWAY only
    /// announces the shutdown, so that requests in flight are not refused; the second names the
    /// first request that is. A client announces that it accepts no push. Further calls have no
    /// effect.
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
            // A push ID: no push was promised, and none will be accepted.
            (Role::Client, _) => {
                self.shutdown = Shutdown::From(StreamId(0));
                StreamId(0)
            }
        };
        self.outgoing.write_go_away(id.0);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let said_before = match self.shared.events.front() {
            Some(&Event::Head { stream, head: Head::Request(_), .. }) => {
                self.early_priorities.remove(stream).zip(Some(stream))
            }
            _ => None,
        };
        let Some((priority, stream)) = said_before else { return self.shared.events.pop_front() };
        let event = self.shared.events.pop_front();
        self.shared.events.push_front(Event::PriorityUpdate { stream, priority });
        event
    }

    /// Returns whether [`Connection::poll_uni_write`] has bytes.
    pub fn wants_uni_write(&self) -> bool {
        self.encoder.has_instructions()
            || self.shared.decoder.has_instructions()
            || self.outgoing.has_bytes()
    }

    /// Returns bytes for one of the local unidirectional streams. A stream's first bytes are its
    /// type.
    pub fn poll_uni_write(&mut self) -> Option<(UniStream, Bytes)> {
        if let Some(instructions) = self.encoder.take_instructions() {
            self.outgoing.open(UniStream::QpackEncoder).extend_from_slice(&instructions);
        }
        if let Some(instructions) = self.shared.decoder.take_instructions() {
            self.outgoing.open(UniStream::QpackDecoder).extend_from_slice(&instructions);
        }
        self.outgoing.poll()
    }

    /// Sets how many bytes of this stream, returned by [`Connection::poll_uni_write`], wait for the
    /// peer's flow control. Initially 0.
    ///
    /// While the encoder stream waits, field sections do not refer to anything on it. If more than
    /// 64 KiB of the decoder stream wait ([`crate::Limit::DecoderBacklog`]), the next data from the
    /// peer is an error.
    pub const fn set_uni_backlog(&mut self, stream: UniStream, bytes: usize) {
        match stream {
            UniStream::Control => {}
            UniStream::QpackEncoder => self.encoder.set_backlogged(bytes > 0),
            UniStream::QpackDecoder => self.decoder_backlog = bytes,
        }
    }

    /// Returns whether a field section on this stream waits for insertions into the dynamic table,
    /// or the stream for its session. Do not read a blocked stream, so that its data stays in the
    /// transport's flow-control window; still report its reset.
    //= RFC 9204 section 2.2.1
    //# While blocked, encoded field section data SHOULD remain in the blocked stream's flow-control window.
    pub fn is_blocked(&self, stream: StreamId) -> bool {
        self.shared.decoder.is_blocked(stream.0) || self.is_waiting(stream)
    }

    /// Returns a stream that is no longer blocked, to be read again.
    pub fn poll_unblocked(&mut self) -> Option<StreamId> {
        self.unblocked.pop_front()
    }

    /// Returns a section's memory, so that a later message need not allocate.
    pub fn recycle(&mut self, section: FieldSection) {
        self.shared.recycle(section);
    }

    /// Returns the number of request streams that are not done on both sides.
    pub fn open_streams(&self) -> usize {
        self.requests.len()
    }

    /// Returns the settings that this endpoint sends.
    pub fn own_settings(&self) -> Settings {
        let mut own = Settings::default();
        for (id, value) in offered_settings(&self.shared) {
            own.set(id, value).expect("invariant: what we offer is valid");
        }
        own
    }

    /// Server role: returns how many PRIORITY_UPDATE frames were dropped because too many waited
    /// for their requests.
    pub fn dropped_priority_updates(&self) -> u64 {
        self.early_priorities.dropped()
    }

    /// Returns the peer's SETTINGS, once they have arrived.
    pub fn peer_settings(&self) -> Option<&Settings> {
        self.peer_settings.as_ref()
    }

    fn forget_if_done(&mut self, stream: StreamId) {
        if self.requests.get(&stream).is_some_and(RequestStream::is_done) {
            self.forget(stream);
        }
    }

    fn forget(&mut self, stream: StreamId) {
        if let Some(request) = self.requests.remove(&stream) {
            request.on_done(&mut self.shared.cost_balance);
            // No stream can wait for this session any more.
            self.end_session(stream);
        }
    }
}

fn offered_settings(shared: &StreamContext) -> Vec<(SettingId, u64)> {
    let config = &shared.config;
    let mut settings = vec![(SettingId::MAX_FIELD_SECTION_SIZE, config.max_field_section_size)];
    //= RFC 9114 section 7.2.4.2
    //# The server MUST include all settings that differ from their default values.
    let defaults_to_zero = [
        (SettingId::QPACK_MAX_TABLE_CAPACITY, shared.decoder.max_table_capacity()),
        (SettingId::QPACK_BLOCKED_STREAMS, shared.decoder.max_blocked_streams()),
        (
            SettingId::ENABLE_CONNECT_PROTOCOL,
            u64::from(config.extended_connect && shared.role == Role::Server),
        ),
        // WebTransport drafts that do not conflict in anything else used here.
        (SettingId::H3_DATAGRAM, u64::from(config.has_webtransport())),
        (SettingId::ENABLE_WEBTRANSPORT, u64::from(config.has_webtransport())),
        (SettingId::WEBTRANSPORT_MAX_SESSIONS, config.max_sessions),
        // Always 1, whatever the limit: with more, a session would need its own flow control, and
        // clients would wait for its windows.
        (SettingId::WT_MAX_SESSIONS, u64::from(config.has_webtransport())),
    ];
    settings.extend(defaults_to_zero.into_iter().filter(|(_, value)| *value > 0));
    if config.grease {
        settings.push((SettingId(config.reserved_value(0)), config.reserved_value(2)));
    }
    settings
}
