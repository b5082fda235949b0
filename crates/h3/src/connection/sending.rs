//! Encodes the application's messages.

use std::cell::RefCell;

use bytes::{BufMut, BytesMut};
use pronghorn_qpack::{Encoder, OutgoingLine, SectionTooLarge};

use super::{
    Connection,
    request_stream::{RequestStream, Requested, Sent},
};
use crate::{
    error::SendError,
    frame::{FrameHeader, FrameType},
    message::{OutgoingSection, SectionKind},
    role::Role,
    stream::StreamId,
    varint,
};

impl Connection {
    /// Client role: registers a stream that the transport has opened for the next request.
    pub fn open_request(&mut self, stream: StreamId) -> Result<(), SendError> {
        //= RFC 9114 section 4.1
        //# A client MUST send only a single request on a given stream.
        if self.shared.role == Role::Server
            || !stream.is_request()
            || self.requests.contains_key(&stream)
        {
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

    /// Appends a HEADERS frame to `out`: a request, a response, an interim response, or trailers if
    /// the head was already sent. Connection-specific fields, which HTTP/3 does not have, are
    /// omitted, and so is `host` next to `:authority`. On error `out` is unchanged.
    pub fn encode_headers<'a>(
        &mut self,
        stream: StreamId,
        lines: impl IntoIterator<Item: Into<OutgoingLine<'a>>>,
        out: &mut BytesMut,
    ) -> Result<(), SendError> {
        let request = self
            .requests
            .get_mut(&stream)
            .filter(|request| !request.is_sending_done)
            .ok_or(SendError::StreamNotOpen { stream })?;
        if request.sent == Sent::Trailers {
            return Err(SendError::MessageComplete { stream });
        }
        let frame_start = out.len();
        let section_kind = match (request.sent, self.shared.role) {
            (Sent::Nothing, Role::Client) => SectionKind::Request,
            (Sent::Nothing, Role::Server) => SectionKind::Response,
            _ => SectionKind::Trailers,
        };
        let offers_extended_connect =
            self.peer_settings.is_some_and(|settings| settings.enable_connect_protocol);
        let section = RefCell::new(OutgoingSection::new(section_kind, offers_extended_connect));
        let mut kind = HeadKind::Final;
        let mut requested = Requested::Other;
        let lines = lines
            .into_iter()
            .map(Into::into)
            .filter(|line| section.borrow_mut().takes(line))
            .inspect(|OutgoingLine { line, .. }| {
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
        let limit = self
            .peer_settings
            .and_then(|settings| settings.max_field_section_size)
            .unwrap_or(u64::MAX);
        //= RFC 9114 section 4.2.2
        //# An implementation that has received this parameter SHOULD NOT send an HTTP message header that exceeds the
        //# indicated size, as the peer will likely refuse to process it.
        let check = || match section.borrow().fault() {
            Some(reason) => Err(Unsendable::Malformed(reason)),
            None => Ok(()),
        };
        if let Err(unsendable) =
            encode_headers_frame(&mut self.encoder, limit, stream, lines, out, check)
        {
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

    /// Appends a DATA frame header to `out`; the caller writes `len` bytes of content after it.
    /// Only permitted between the head and the trailers.
    ///
    /// # Panics
    /// Panics if `len` exceeds 2^62 - 1.
    pub fn encode_data_header(&mut self, stream: StreamId, len: u64, out: &mut BytesMut) {
        debug_assert!(
            self.requests.get(&stream).is_none_or(|request| request.sent == Sent::Head),
            "content is sent after the head and before the trailers"
        );
        FrameHeader::encode(FrameType::DATA, len, out);
    }

    /// Ends the local side of the stream: its end is queued, or it was reset. Nothing may be
    /// encoded after that.
    pub fn finish_sending(&mut self, stream: StreamId) {
        if let Some(sessions) = &mut self.sessions {
            sessions.finish_sending(stream);
        }
        if let Some(request) = self.requests.get_mut(&stream) {
            request.is_sending_done = true;
            // The local side was reset before the blocked head arrived: the application no longer
            // needs it.
            if self.shared.role == Role::Server && request.is_blocked() && !request.has_head() {
                request.abandon(stream, &mut self.shared);
            }
            if request.is_done() {
                self.forget(stream);
            }
        }
    }
}

/// Kind of the encoded head: whether another head follows.
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

/// Appends a HEADERS frame. On error a part of it may remain.
fn encode_headers_frame<'a, E: From<SectionTooLarge>>(
    encoder: &mut Encoder,
    limit: u64,
    stream: StreamId,
    lines: impl IntoIterator<Item = OutgoingLine<'a>>,
    out: &mut BytesMut,
    check: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    // Two bytes for the length suffice for most sections; the length is written at the end.
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

/// Reason why a section was not sent.
enum Unsendable {
    Malformed(&'static str),
    TooLarge(u64),
}

impl From<SectionTooLarge> for Unsendable {
    fn from(error: SectionTooLarge) -> Self {
        Self::TooLarge(error.size)
    }
}
