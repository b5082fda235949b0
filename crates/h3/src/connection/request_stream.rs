//! A request stream: converts received data to events, and tracks the state of the local side.

use bytes::{Bytes, BytesMut};
use pronghorn_qpack::{Decoded, FieldSection};

use super::{cost_balance::CostBalance, stream_context::StreamContext};
use crate::{
    config::Config,
    error::{ConnectionError, DecodeFault, ErrorCode, StreamFault},
    event::Event,
    frame::{FrameHeader, FrameType, HeaderReader, PayloadReader, take_up_to},
    head::Head,
    limit::Limit,
    message,
    role::Role,
    stream::StreamId,
};

/// A HEADERS payload may exceed the limit for decoded sections by this much: a reasonable encoder
/// needs no more than the prefix and the 32 bytes that each line counts anyway.
const ENCODED_SECTION_SLACK: u64 = 64;
/// Maximum bytes buffered for a blocked stream in addition to its section. If the caller keeps
/// reading the blocked stream beyond that, the connection ends.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Error of a request after the last one that the server accepts.
pub(super) const REQUEST_REJECTED: StreamFault = StreamFault::new(
    ErrorCode::H3_REQUEST_REJECTED,
    "the request came after the connection was shut down",
);

/// The state of a request stream.
///
/// ```text
///            HEADERS (1xx, client)
///              .----.
///              v    |   HEADERS             HEADERS
///   open ---> Head -'-----------> Content ----------> End
///              |                  |  ^ | DATA          |
///              | FIN: error       |  '-'               | FIN: Finished
///              v                  v FIN: Finished      v
///            Nothing  <----------------------------------      (also: reset, malformed, stop_receiving)
/// ```
#[derive(Debug)]
pub(super) struct RequestStream {
    awaiting: Awaiting,
    reading: Reading,
    /// Whether a frame header has arrived.
    has_begun: bool,
    /// Server role: whether the stream can only be one of a session, no longer a request.
    pub(super) is_late: bool,
    header: HeaderReader,
    payload: PayloadReader,
    /// Set while a field section is blocked on the dynamic table.
    blocked: Option<Box<Blocked>>,
    /// Content still expected according to `content-length`, if present.
    content_left: Option<u64>,
    /// After CONNECT: trailers are not permitted.
    is_tunnel: bool,
    /// Server role: the request's head excludes datagrams.
    has_no_datagrams: bool,
    interim_responses: u32,
    /// Server role: the request was cancelled or refused before its response was complete.
    is_aborted: bool,
    /// Client role: kind of request, which determines what the response may contain.
    pub(super) requested: Requested,
    pub(super) sent: Sent,
    /// Whether the transport has no more data to deliver.
    pub(super) is_receiving_done: bool,
    /// Whether the transport has no more data to send.
    pub(super) is_sending_done: bool,
}

/// First bytes of a WebTransport session's stream.
#[derive(Debug)]
pub(super) struct Preamble {
    pub(super) session: u64,
    /// Data received after the preamble.
    pub(super) rest: Bytes,
}

/// A stream that waits for insertions into the dynamic table (RFC 9204 section 2.2.1).
#[derive(Debug)]
struct Blocked {
    /// The encoded section.
    section: Bytes,
    /// Data received after the section.
    held: BytesMut,
    /// Whether the stream has ended after that data.
    fin: bool,
}

/// What the peer's message must contain next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    /// HEADERS with a request or a final response.
    Head,
    /// DATA, or HEADERS with trailers, or the end.
    Content,
    /// The end.
    End,
    /// Nothing: the message has ended or was abandoned, and further data is ignored.
    Nothing,
}

/// Position of the input within a frame.
#[derive(Debug)]
enum Reading {
    Header,
    Data { left: u64 },
    Headers,
    Skipped { left: u64 },
}

/// Kind of request sent by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    Head,
    Connect,
    Other,
}

/// Progress of the local message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing, or interim responses only.
    Nothing,
    Head,
    Trailers,
}

impl RequestStream {
    pub(super) fn new() -> Self {
        Self {
            awaiting: Awaiting::Head,
            reading: Reading::Header,
            has_begun: false,
            is_late: false,
            header: HeaderReader::default(),
            payload: PayloadReader::default(),
            blocked: None,
            content_left: None,
            is_tunnel: false,
            has_no_datagrams: false,
            interim_responses: 0,
            is_aborted: false,
            requested: Requested::Other,
            sent: Sent::Nothing,
            is_receiving_done: false,
            is_sending_done: false,
        }
    }

    /// Returns whether the transport needs the stream no longer, so that its state can be dropped.
    /// Events of a blocked stream are still pending.
    pub(super) const fn is_done(&self) -> bool {
        self.is_receiving_done && self.is_sending_done && self.blocked.is_none()
    }

    /// Abandons the message with a stream error.
    //= RFC 9114 section 4.1.2
    //# Malformed requests or responses that are detected MUST be treated as a stream error of type H3_MESSAGE_ERROR.
    pub(super) fn refuse(
        &mut self,
        stream: StreamId,
        fault: StreamFault,
        shared: &mut StreamContext,
    ) {
        if self.awaiting != Awaiting::Nothing {
            self.abandon(stream, shared);
            self.on_aborted(shared);
            shared.fault(stream, fault);
        }
    }

    /// Client role: handles a request that the server did not process.
    //= RFC 9114 section 4.1.1
    //# Clients MUST NOT use the H3_REQUEST_REJECTED error code, except when a server has requested closure of the
    //# request stream with this error code.
    pub(super) fn on_unprocessed(&mut self, stream: StreamId, shared: &mut StreamContext) {
        if self.awaiting != Awaiting::Nothing {
            self.abandon(stream, shared);
            shared.events.push_back(Event::Unprocessed { stream });
        }
    }

    /// Counts the request as aborted if work may have been started that is now useless.
    pub(super) fn on_aborted(&mut self, shared: &mut StreamContext) {
        if shared.role == Role::Server && !self.is_sending_done && !self.is_aborted {
            self.is_aborted = true;
            shared.cost_balance.on_aborted_request();
        }
    }

    /// Records that both sides are done.
    pub(super) const fn on_done(&self, cost_balance: &mut CostBalance) {
        if !self.is_aborted {
            cost_balance.on_completed_request();
        }
    }

    /// Stops reading the message, and notifies the peer's encoder if it had not ended.
    pub(super) fn abandon(&mut self, stream: StreamId, shared: &mut StreamContext) {
        if self.awaiting != Awaiting::Nothing {
            self.ignore();
            shared.decoder.cancel_stream(stream.0);
        }
    }

    /// Returns whether a field section is blocked on the dynamic table.
    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Ignores further data, and frees buffered data.
    fn ignore(&mut self) {
        self.awaiting = Awaiting::Nothing;
        self.payload = PayloadReader::default();
        self.blocked = None;
    }

    /// Handles received bytes, which may turn out to be the preamble of a session's stream instead
    /// of a message.
    pub(super) fn on_data(
        &mut self,
        stream: StreamId,
        mut data: Bytes,
        shared: &mut StreamContext,
    ) -> Result<Option<Preamble>, ConnectionError> {
        while self.awaiting != Awaiting::Nothing {
            if let Some(blocked) = &mut self.blocked {
                return blocked.hold(&data).map(|()| None);
            }
            match &mut self.reading {
                Reading::Header if data.is_empty() => break,
                Reading::Header => {
                    if let Some(header) = self.header.read(&mut data) {
                        if header.frame_type == FrameType::WEBTRANSPORT_STREAM
                            && shared.config.has_webtransport()
                        {
                            return self.on_preamble(header.len, data, shared.role).map(Some);
                        }
                        self.has_begun = true;
                        if self.is_late {
                            self.refuse(stream, REQUEST_REJECTED, shared);
                            break;
                        }
                        self.on_frame_header(stream, header, shared)?;
                    }
                }
                Reading::Data { left: 0 } | Reading::Skipped { left: 0 } => {
                    self.reading = Reading::Header;
                }
                Reading::Data { .. } | Reading::Skipped { .. } if data.is_empty() => break,
                Reading::Data { left } => {
                    let piece = take_up_to(left, &mut data);
                    shared.cost_balance.on_useful_bytes(piece.len());
                    shared.events.push_data(stream, piece);
                }
                Reading::Skipped { left } => {
                    take_up_to(left, &mut data);
                }
                Reading::Headers => {
                    let Some(payload) = self.payload.read(&mut data) else { break };
                    self.reading = Reading::Header;
                    shared.cost_balance.on_useful_bytes(payload.len());
                    self.on_headers(stream, &payload, shared)?;
                }
            }
        }
        Ok(None)
    }

    /// Assigns the stream to a session, if it carried nothing else before.
    //= draft-ietf-webtrans-http3-16 section 4.3
    //# Endpoints MUST NOT send WT_STREAM as a frame type on HTTP/3 streams other than the very first bytes of a request stream.
    //= draft-ietf-webtrans-http3-16 section 4.3
    //# Receiving this frame type in any other circumstances MUST be treated as a connection error of type H3_FRAME_ERROR.
    fn on_preamble(
        &self,
        session: u64,
        rest: Bytes,
        role: Role,
    ) -> Result<Preamble, ConnectionError> {
        if self.has_begun || self.awaiting != Awaiting::Head || role == Role::Client {
            return Err(ConnectionError::new(
                ErrorCode::H3_FRAME_ERROR,
                "a WebTransport preamble in the middle of a stream",
            ));
        }
        Ok(Preamble { session, rest })
    }

    /// Handles the clean end of the peer's side.
    pub(super) fn on_fin(
        &mut self,
        stream: StreamId,
        shared: &mut StreamContext,
    ) -> Result<(), ConnectionError> {
        self.is_receiving_done = true;
        if self.awaiting == Awaiting::Nothing {
            return Ok(());
        }
        if let Some(blocked) = &mut self.blocked {
            blocked.fin = true;
            return Ok(());
        }
        let is_at_boundary = match self.reading {
            Reading::Header => self.header.is_at_boundary(),
            Reading::Data { left } | Reading::Skipped { left } => left == 0,
            Reading::Headers => false,
        };
        //= RFC 9114 section 7.1
        //# When a stream terminates cleanly, if the last frame on the stream was truncated, this MUST be treated as a
        //# connection error of type H3_FRAME_ERROR.
        if !is_at_boundary {
            return Err(ConnectionError::new(
                ErrorCode::H3_FRAME_ERROR,
                "a stream ends inside a frame",
            ));
        }
        if self.awaiting == Awaiting::Head {
            let fault = match shared.role {
                Role::Server => StreamFault::new(
                    ErrorCode::H3_REQUEST_INCOMPLETE,
                    "the stream ends before the request's head",
                ),
                Role::Client => {
                    StreamFault::malformed("the stream ends before the response's head")
                }
            };
            self.refuse(stream, fault, shared);
        } else if self.has_missing_content() {
            self.refuse(stream, MISSING_CONTENT, shared);
        } else {
            self.ignore();
            match shared.events.back_mut() {
                Some(Event::Head { stream: last, end, .. }) if *last == stream => *end = true,
                _ => shared.events.push_back(Event::Finished { stream }),
            }
        }
        Ok(())
    }

    /// Handles a reset of the peer's side.
    pub(super) fn on_reset(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
        shared: &mut StreamContext,
    ) {
        self.is_receiving_done = true;
        if self.awaiting != Awaiting::Nothing {
            self.abandon(stream, shared);
            self.on_aborted(shared);
            shared.events.push_back(Event::Reset { stream, code });
        }
    }

    /// Handles a datagram for a request that is no session. If the request may still become one,
    /// the datagram waits.
    //= RFC 9297 section 2
    //# If an HTTP Datagram is received and it is associated with a request that has no known semantics for HTTP Datagrams, the receiver
    //# MUST terminate the request. If HTTP/3 is in use, the request stream MUST be aborted with H3_DATAGRAM_ERROR (0x33).
    pub(super) fn takes_datagram(&mut self, stream: StreamId, shared: &mut StreamContext) -> bool {
        let is_ordinary = match shared.role {
            Role::Server => self.has_no_datagrams,
            Role::Client => self.sent != Sent::Nothing && self.requested != Requested::Connect,
        };
        if is_ordinary {
            self.refuse(stream, UNWANTED_DATAGRAM, shared);
        }
        !is_ordinary
    }

    /// Returns whether the head of the peer's message has arrived or never will.
    pub(super) fn has_head(&self) -> bool {
        self.awaiting != Awaiting::Head
    }

    /// Continues after the required insertions have arrived.
    pub(super) fn resume(
        &mut self,
        stream: StreamId,
        shared: &mut StreamContext,
    ) -> Result<(), ConnectionError> {
        let Some(blocked) = self.blocked.take() else { return Ok(()) };
        let Blocked { section, held, fin } = *blocked;
        self.on_headers(stream, &section, shared)?;
        // A message has begun, so the data is no preamble.
        self.on_data(stream, held.freeze(), shared)?;
        if fin { self.on_fin(stream, shared) } else { Ok(()) }
    }

    fn has_missing_content(&self) -> bool {
        self.content_left.is_some_and(|left| left > 0)
    }

    fn on_frame_header(
        &mut self,
        stream: StreamId,
        header: FrameHeader,
        shared: &mut StreamContext,
    ) -> Result<(), ConnectionError> {
        match header.frame_type {
            FrameType::DATA => {
                //= RFC 9114 section 4.1
                //# Receipt of an invalid sequence of frames MUST be treated as a connection error of type
                //# H3_FRAME_UNEXPECTED.
                //= RFC 9114 section 7.2.1
                //# DATA frames MUST be associated with an HTTP request or response.
                if self.awaiting != Awaiting::Content {
                    return Err(unexpected("a DATA frame before the head or after the trailers"));
                }
                if let Some(left) = &mut self.content_left {
                    //= RFC 9114 section 4.1.2
                    //# A request or response that is defined as having content when it contains a Content-Length header
                    //# field (Section 8.6 of [HTTP]) is malformed if the value of the Content-Length header field does not
                    //# equal the sum of the DATA frame lengths received.
                    let Some(rest) = left.checked_sub(header.len) else {
                        self.refuse(
                            stream,
                            StreamFault::malformed("more content than permitted"),
                            shared,
                        );
                        return Ok(());
                    };
                    *left = rest;
                }
                self.reading = Reading::Data { left: header.len };
                if header.len > 0 {
                    shared.cost_balance.on_useful_frame();
                } else {
                    shared.cost_balance.on_useless_frame(0);
                    shared.cost_balance.verdict()?;
                }
            }
            FrameType::HEADERS => {
                if self.awaiting == Awaiting::End {
                    return Err(unexpected("a HEADERS frame after the trailers"));
                }
                //= RFC 9114 section 4.4
                //# Receipt of any other known frame type MUST be treated as a connection error of type
                //# H3_FRAME_UNEXPECTED.
                if self.is_tunnel {
                    return Err(unexpected("a HEADERS frame in a tunnel"));
                }
                shared.cost_balance.on_useful_frame();
                self.start_headers(stream, header.len, shared);
            }
            FrameType::PUSH_PROMISE if shared.role == Role::Client => {
                //= RFC 9114 section 7.2.5
                //# A client MUST treat receipt of a PUSH_PROMISE frame that contains a larger push ID than the client
                //# has advertised as a connection error of H3_ID_ERROR.
                return Err(ConnectionError::new(
                    ErrorCode::H3_ID_ERROR,
                    "a PUSH_PROMISE frame, but no push is allowed",
                ));
            }
            //= RFC 9114 section 7.2.5
            //# A server MUST treat the receipt of a PUSH_PROMISE frame as a connection error of type
            //# H3_FRAME_UNEXPECTED.
            //= RFC 9114 section 7.2.7
            //# Receipt of a MAX_PUSH_ID frame on any other stream MUST be treated as a connection error of type
            //# H3_FRAME_UNEXPECTED.
            //= RFC 9114 section 7.2.6
            //# A client MUST treat a GOAWAY frame on a stream other than the control stream as a connection error of
            //# type H3_FRAME_UNEXPECTED.
            //= RFC 9114 section 7.2.4
            //# If an endpoint receives a SETTINGS frame on a different stream, the endpoint MUST respond with a
            //# connection error of type H3_FRAME_UNEXPECTED.
            //= RFC 9114 section 7.2.3
            //# Receiving a CANCEL_PUSH frame on a stream other than the control stream MUST be treated as a connection
            //# error of type H3_FRAME_UNEXPECTED.
            FrameType::CANCEL_PUSH
            | FrameType::SETTINGS
            | FrameType::PUSH_PROMISE
            | FrameType::GOAWAY
            | FrameType::MAX_PUSH_ID
            | FrameType::PRIORITY_UPDATE_REQUEST
            | FrameType::PRIORITY_UPDATE_PUSH => {
                return Err(unexpected("a frame that is not permitted on a request stream"));
            }
            //= RFC 9114 section 7.2.8
            //# These frame types MUST NOT be sent, and their receipt MUST be treated as a connection error of type
            //# H3_FRAME_UNEXPECTED.
            frame_type if frame_type.is_http2_reserved() => {
                return Err(unexpected("a reserved HTTP/2 frame type"));
            }
            //= RFC 9114 section 7.2.8
            //# Endpoints MUST NOT consider these frames to have any meaning upon receipt.
            _ => {
                shared.cost_balance.on_useless_frame(header.len);
                shared.cost_balance.verdict()?;
                self.reading = Reading::Skipped { left: header.len };
            }
        }
        Ok(())
    }

    fn start_headers(&mut self, stream: StreamId, len: u64, shared: &mut StreamContext) {
        let limit = shared.config.max_field_section_size + ENCODED_SECTION_SLACK;
        match usize::try_from(len) {
            Ok(payload_len) if len <= limit => {
                self.payload.start(payload_len);
                self.reading = Reading::Headers;
            }
            _ => self.refuse(stream, StreamFault::limit_reached(Limit::FieldSectionSize), shared),
        }
    }

    fn on_headers(
        &mut self,
        stream: StreamId,
        payload: &[u8],
        shared: &mut StreamContext,
    ) -> Result<(), ConnectionError> {
        let mut section = shared.spare_sections.pop().unwrap_or_default();
        let limit = shared.config.max_field_section_size;
        let result = match shared.decoder.decode(stream.0, payload, limit, &mut section) {
            Ok(Decoded::Blocked) => {
                shared.recycle(section);
                // Copy, because a slice of a datagram would keep all of it allocated.
                let section = Bytes::copy_from_slice(payload);
                self.blocked =
                    Some(Box::new(Blocked { section, held: BytesMut::new(), fin: false }));
                Ok(())
            }
            Ok(Decoded::Complete) if self.awaiting == Awaiting::Content => {
                self.on_trailers(stream, section, shared)
            }
            Ok(Decoded::Complete) => self.on_head(stream, section, shared),
            Err(error) => match DecodeFault::from(error) {
                DecodeFault::Connection(error) => return Err(error),
                DecodeFault::Stream(fault) => Err(fault),
            },
        };
        if let Err(fault) = result {
            self.refuse(stream, fault, shared);
        }
        Ok(())
    }

    fn on_head(
        &mut self,
        stream: StreamId,
        section: FieldSection,
        shared: &mut StreamContext,
    ) -> Result<(), StreamFault> {
        check_lines(&section, &shared.config)?;
        let head = match shared.role {
            Role::Server => {
                let head = message::request_head(
                    section,
                    shared.config.extended_connect,
                    &mut shared.latest_authority,
                )?;
                self.is_tunnel = head.is_connect;
                self.has_no_datagrams = !self.is_tunnel || head.protocol() != Some(b"webtransport");
                self.content_left = if self.is_tunnel { None } else { head.content_length() };
                self.awaiting = Awaiting::Content;
                Head::Request(head)
            }
            Role::Client => {
                //= RFC 9114 section 4.1.2
                //# Clients MUST NOT accept a malformed response.
                let head = message::response_head(section)?;
                if head.is_interim() {
                    self.on_interim(&shared.config)?;
                } else {
                    self.on_final_status(head.status(), head.content_length());
                }
                Head::Response(head)
            }
        };
        shared.cost_balance.on_message();
        shared.events.push_back(Event::Head { stream, head, end: false });
        Ok(())
    }

    fn on_interim(&mut self, config: &Config) -> Result<(), StreamFault> {
        self.interim_responses += 1;
        if self.interim_responses > config.max_interim_responses {
            return Err(StreamFault::limit_reached(Limit::InterimResponses));
        }
        Ok(())
    }

    /// Determines which content a final response may have (RFC 9110 sections 6.4.1 and 8.6).
    fn on_final_status(&mut self, status: u16, content_length: Option<u64>) {
        self.is_tunnel = self.requested == Requested::Connect && (200..300).contains(&status);
        self.content_left = match (self.requested, status) {
            _ if self.is_tunnel => None,
            (Requested::Head, _) | (_, 204 | 304) => Some(0),
            _ => content_length,
        };
        self.awaiting = Awaiting::Content;
    }

    fn on_trailers(
        &mut self,
        stream: StreamId,
        section: FieldSection,
        shared: &mut StreamContext,
    ) -> Result<(), StreamFault> {
        check_lines(&section, &shared.config)?;
        message::check_trailers(&section)?;
        if self.has_missing_content() {
            return Err(MISSING_CONTENT);
        }
        self.awaiting = Awaiting::End;
        shared.events.push_back(Event::Trailers { stream, section });
        Ok(())
    }
}

fn check_lines(section: &FieldSection, config: &Config) -> Result<(), StreamFault> {
    if section.len() > config.max_field_lines as usize {
        return Err(StreamFault::limit_reached(Limit::FieldLines));
    }
    Ok(())
}

impl Blocked {
    fn hold(&mut self, data: &[u8]) -> Result<(), ConnectionError> {
        if self.held.len() + data.len() > MAX_HELD_BYTES {
            return Err(ConnectionError::limit_reached(Limit::BlockedStreamBytes));
        }
        self.held.extend_from_slice(data);
        Ok(())
    }
}

const UNWANTED_DATAGRAM: StreamFault =
    StreamFault::new(ErrorCode::H3_DATAGRAM_ERROR, "a datagram for a request without datagrams");

const MISSING_CONTENT: StreamFault = StreamFault::malformed("less content than content-length");

const fn unexpected(reason: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::H3_FRAME_UNEXPECTED, reason)
}
