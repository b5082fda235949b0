//! The connection: stream bytes in, events out, and the application's messages to bytes.

mod control;
mod events;
mod incoming;
mod ledger;
mod outgoing;
mod priorities;
mod receiving;
mod request_stream;
mod sending;
mod sessions;
mod webtransport;

use std::{collections::VecDeque, fmt};

use bytes::Bytes;
use pronghorn_qpack::{Encoder, FieldSection};

pub use outgoing::UniStream;

use crate::{
    config::Config,
    event::Event,
    frame::settings::{SettingId, Settings},
    head::Head,
    stream::StreamId,
    stream_map::StreamMap,
};

use incoming::IncomingStreams;
use outgoing::OutgoingStreams;
use priorities::EarlyPriorities;
use receiving::REQUEST_REJECTED;
use request_stream::{RequestStream, Shared};
use sessions::Sessions;

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
        let said_before = match self.shared.events.front() {
            Some(&Event::Head { stream, head: Head::Request(_), .. }) => self.early_priorities.remove(stream).zip(Some(stream)),
            _ => None,
        };
        let Some((priority, stream)) = said_before else { return self.shared.events.pop_front() };
        let event = self.shared.events.pop_front();
        self.shared.events.push_front(Event::PriorityUpdate { stream, priority });
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
    /// decoder stream wait ([`crate::Limit::DecoderBacklog`]), the next data that comes from the peer is an error.
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

    fn forget_if_done(&mut self, stream: StreamId) {
        if self.requests.get(&stream).is_some_and(RequestStream::is_done) {
            self.forget(stream);
        }
    }

    fn forget(&mut self, stream: StreamId) {
        if let Some(request) = self.requests.remove(&stream) {
            request.on_done(&mut self.shared.ledger);
            // Nothing can wait for it any more.
            self.end_session(stream);
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
        // Drafts of WebTransport that do not disagree on anything else that is used here.
        (SettingId::H3_DATAGRAM, u64::from(config.speaks_webtransport())),
        (SettingId::ENABLE_WEBTRANSPORT, u64::from(config.speaks_webtransport())),
        (SettingId::WEBTRANSPORT_MAX_SESSIONS, config.max_sessions),
        // One, however many there may be: with more, a session would have flow control of its own, and clients would wait for its windows.
        (SettingId::WT_MAX_SESSIONS, u64::from(config.speaks_webtransport())),
    ];
    settings.extend(defaults_to_zero.into_iter().filter(|(_, value)| *value > 0));
    if config.grease {
        settings.push((SettingId(config.reserved_value(0)), config.reserved_value(2)));
    }
    settings
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}
