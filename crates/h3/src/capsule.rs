//! The capsule protocol (RFC 9297 section 3), and the capsules of WebTransport sessions.
//!
//! Capsules are the content of an extended CONNECT request and its response. [`Reader`] parses them
//! from pieces of content, however these are split, and the `encode_*` functions append them to a
//! buffer.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    error::ErrorCode,
    frame::{FrameHeader, FrameType, HeaderReader, PayloadReader, take_up_to},
};

/// The type of a capsule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CapsuleType(pub u64);

impl CapsuleType {
    /// DATAGRAM (RFC 9297 section 3.5).
    pub const DATAGRAM: Self = Self(0x00);
    /// CLOSE_WEBTRANSPORT_SESSION (draft-ietf-webtrans-http3 section 6).
    pub const CLOSE_WEBTRANSPORT_SESSION: Self = Self(0x2843);
    /// DRAIN_WEBTRANSPORT_SESSION (draft-ietf-webtrans-http3 section 4.7).
    pub const DRAIN_WEBTRANSPORT_SESSION: Self = Self(0x78ae);
}

/// Maximum length of a session's close reason, in bytes of UTF-8.
pub const MAX_REASON: usize = 1024;

/// Maximum payload of a DATAGRAM capsule. Larger ones are dropped, as a datagram may be: no QUIC
/// datagram is larger.
const MAX_DATAGRAM: u64 = 65_535;

/// Length of an application error code.
const CODE_LEN: usize = 4;

/// A supported capsule; others are skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capsule {
    /// A datagram received on the stream.
    Datagram(Bytes),
    /// The peer closes the session.
    Close {
        /// The application's error code.
        code: u32,
        /// The close reason, at most [`MAX_REASON`] bytes.
        reason: String,
    },
    /// The peer asks to wind the session down.
    Drain,
}

/// The content is not a valid sequence of capsules. The stream is reset with [`Error::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The content ends inside a capsule.
    #[error("the content ends inside a capsule")]
    Truncated,
    /// A CLOSE_WEBTRANSPORT_SESSION capsule without a complete error code.
    #[error("the session close capsule has no error code")]
    MissingCode,
    /// A close reason of more than [`MAX_REASON`] bytes.
    #[error("the session close reason is too long")]
    ReasonTooLong,
    /// A close reason that is not UTF-8.
    #[error("the session close reason is not UTF-8")]
    ReasonNotText,
    /// Content after the capsule that closes the session.
    #[error("content follows the session close capsule")]
    AfterClose,
    /// A DRAIN_WEBTRANSPORT_SESSION capsule with a payload.
    #[error("the session drain capsule is not empty")]
    DrainNotEmpty,
}

impl Error {
    /// Error code for the stream reset: the message is malformed (RFC 9297 section 3.3).
    pub const fn code(self) -> ErrorCode {
        ErrorCode::H3_MESSAGE_ERROR
    }
}

/// Parses capsules. It buffers at most one capsule, and of that only the received bytes.
#[derive(Debug, Default)]
pub struct Reader {
    reading: Reading,
    header: HeaderReader,
    payload: PayloadReader,
}

/// What the reader expects next.
#[derive(Debug, Default)]
enum Reading {
    #[default]
    Header,
    Payload(CapsuleType),
    Skipped {
        left: u64,
    },
    /// The session is closed; no content may follow.
    Nothing,
}

impl Reader {
    /// Reads bytes until a supported capsule is complete. Returns `None` when all bytes are used
    /// up.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer violates the protocol. Nothing may be read after that.
    pub fn read(&mut self, data: &mut Bytes) -> Result<Option<Capsule>, Error> {
        loop {
            match &mut self.reading {
                // The previous capsule's payload may be empty.
                Reading::Header | Reading::Skipped { .. } | Reading::Nothing if data.is_empty() => {
                    return Ok(None);
                }
                Reading::Header => {
                    if let Some(header) = self.header.read(data) {
                        self.reading = self.on_header(header)?;
                    }
                }
                Reading::Skipped { left } => {
                    take_up_to(left, data);
                    if *left == 0 {
                        self.reading = Reading::Header;
                    }
                }
                Reading::Payload(capsule_type) => {
                    let capsule_type = *capsule_type;
                    let Some(payload) = self.payload.read(data) else { return Ok(None) };
                    self.reading = Reading::Header;
                    return self.on_payload(capsule_type, payload).map(Some);
                }
                //= draft-ietf-webtrans-http3-16 section 6
                //# If any additional stream data is received on the CONNECT stream after receiving a WT_CLOSE_SESSION capsule, the stream
                //# MUST be reset with code H3_MESSAGE_ERROR.
                Reading::Nothing => return Err(Error::AfterClose),
            }
        }
    }

    /// Ends the content.
    ///
    /// # Errors
    ///
    /// Returns an error if the content ends inside a capsule.
    pub fn finish(&self) -> Result<(), Error> {
        let is_at_boundary = match self.reading {
            Reading::Header => self.header.is_at_boundary(),
            Reading::Skipped { left } => left == 0,
            Reading::Payload(_) => false,
            Reading::Nothing => true,
        };
        if is_at_boundary { Ok(()) } else { Err(Error::Truncated) }
    }

    fn on_header(&mut self, header: FrameHeader) -> Result<Reading, Error> {
        let capsule_type = CapsuleType(header.frame_type.0);
        match capsule_type {
            CapsuleType::CLOSE_WEBTRANSPORT_SESSION if header.len < CODE_LEN as u64 => {
                Err(Error::MissingCode)
            }
            //= draft-ietf-webtrans-http3-16 section 6
            //# If the Application Error Message exceeds 1024 bytes or is not valid UTF-8, the receiver MUST reset the stream with code
            //# H3_MESSAGE_ERROR.
            CapsuleType::CLOSE_WEBTRANSPORT_SESSION
                if header.len > (CODE_LEN + MAX_REASON) as u64 =>
            {
                Err(Error::ReasonTooLong)
            }
            CapsuleType::DRAIN_WEBTRANSPORT_SESSION if header.len > 0 => Err(Error::DrainNotEmpty),
            CapsuleType::DATAGRAM if header.len > MAX_DATAGRAM => {
                Ok(Reading::Skipped { left: header.len })
            }
            CapsuleType::DATAGRAM
            | CapsuleType::CLOSE_WEBTRANSPORT_SESSION
            | CapsuleType::DRAIN_WEBTRANSPORT_SESSION => {
                self.payload.start(header.len as usize);
                Ok(Reading::Payload(capsule_type))
            }
            //= RFC 9297 section 3.2
            //# Endpoints that receive a Capsule with an unknown Capsule Type MUST silently drop that Capsule and skip over it to parse the
            //# next Capsule.
            _ => Ok(Reading::Skipped { left: header.len }),
        }
    }

    fn on_payload(&mut self, capsule_type: CapsuleType, payload: Bytes) -> Result<Capsule, Error> {
        Ok(match capsule_type {
            CapsuleType::CLOSE_WEBTRANSPORT_SESSION => {
                self.reading = Reading::Nothing;
                let (code, reason) =
                    payload.split_first_chunk::<CODE_LEN>().ok_or(Error::MissingCode)?;
                let reason = std::str::from_utf8(reason).map_err(|_| Error::ReasonNotText)?;
                Capsule::Close { code: u32::from_be_bytes(*code), reason: reason.to_owned() }
            }
            CapsuleType::DRAIN_WEBTRANSPORT_SESSION => Capsule::Drain,
            _ => Capsule::Datagram(payload),
        })
    }
}

/// Appends the capsule that closes a session. A reason that is too long is truncated.
//= draft-ietf-webtrans-http3-16 section 6
//# Senders that truncate an application-supplied message MUST do so at a UTF-8 character boundary.
pub fn encode_close(code: u32, reason: &str, out: &mut BytesMut) {
    let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
    encode_header(CapsuleType::CLOSE_WEBTRANSPORT_SESSION, CODE_LEN + reason.len(), out);
    out.put_u32(code);
    out.put_slice(reason.as_bytes());
}

/// Appends the capsule that asks to wind a session down.
pub fn encode_drain(out: &mut BytesMut) {
    encode_header(CapsuleType::DRAIN_WEBTRANSPORT_SESSION, 0, out);
}

/// Appends a DATAGRAM capsule, for a peer or a path without QUIC datagrams.
pub fn encode_datagram(payload: &[u8], out: &mut BytesMut) {
    encode_header(CapsuleType::DATAGRAM, payload.len(), out);
    out.put_slice(payload);
}

fn encode_header(capsule_type: CapsuleType, len: usize, out: &mut BytesMut) {
    FrameHeader::encode(FrameType(capsule_type.0), len as u64, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint;

    /// Reads `bytes` in pieces of `cut` bytes.
    fn read(bytes: &[u8], cut: usize) -> Result<Vec<Capsule>, Error> {
        let mut reader = Reader::default();
        let mut capsules = Vec::new();
        for piece in bytes.chunks(cut) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(capsule) = reader.read(&mut piece)? {
                capsules.push(capsule);
            }
            assert!(piece.is_empty());
        }
        reader.finish().map(|()| capsules)
    }

    fn capsule(capsule_type: u64, payload: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        varint::encode(capsule_type, &mut out);
        varint::encode(payload.len() as u64, &mut out);
        out.extend_from_slice(payload);
        out
    }

    //= RFC 9297 section 3.2
    //# Endpoints that receive a Capsule with an unknown Capsule Type MUST silently drop that Capsule and skip over it to parse the next
    //# Capsule.
    #[test]
    fn capsules_are_read_however_they_are_cut_and_unknown_ones_skipped() {
        let mut bytes = BytesMut::new();
        encode_drain(&mut bytes);
        bytes.extend_from_slice(&capsule(0x17, &[7; 300]));
        encode_datagram(b"over the stream", &mut bytes);
        bytes.extend_from_slice(&capsule(0x29, b""));
        encode_datagram(b"", &mut bytes);
        bytes.extend_from_slice(&capsule(0, &vec![1; MAX_DATAGRAM as usize + 1]));
        encode_close(0xdead_beef, "grüße", &mut bytes);
        let expected = vec![
            Capsule::Drain,
            Capsule::Datagram(Bytes::from_static(b"over the stream")),
            Capsule::Datagram(Bytes::new()),
            Capsule::Close { code: 0xdead_beef, reason: "grüße".to_owned() },
        ];
        for cut in [1, 2, 3, 7, 1000, usize::MAX] {
            assert_eq!(read(&bytes, cut).as_ref(), Ok(&expected), "cut into pieces of {cut}");
        }
    }

    #[test]
    fn truncation_is_noticed_wherever_it_is() {
        let mut bytes = BytesMut::new();
        encode_close(1, "reason", &mut bytes);
        for end in 1..bytes.len() {
            assert_eq!(read(&bytes[..end], usize::MAX), Err(Error::Truncated), "{end} bytes");
        }
        assert_eq!(read(&capsule(0x17, &[0; 9])[..5], usize::MAX), Err(Error::Truncated));
        assert_eq!(Error::Truncated.code(), ErrorCode::H3_MESSAGE_ERROR);
    }

    //= draft-ietf-webtrans-http3-16 section 6
    //# If the Application Error Message exceeds 1024 bytes or is not valid UTF-8, the receiver MUST reset the stream with code
    //# H3_MESSAGE_ERROR.
    //= draft-ietf-webtrans-http3-16 section 6
    //# If any additional stream data is received on the CONNECT stream after receiving a WT_CLOSE_SESSION capsule, the stream MUST be reset
    //# with code H3_MESSAGE_ERROR.
    #[test]
    fn capsules_that_break_their_rules_are_refused() {
        let close = CapsuleType::CLOSE_WEBTRANSPORT_SESSION.0;
        assert_eq!(read(&capsule(close, &[0; 3]), 1), Err(Error::MissingCode));
        assert_eq!(
            read(&capsule(close, &[b'a'; CODE_LEN + MAX_REASON + 1]), 1),
            Err(Error::ReasonTooLong)
        );
        assert_eq!(read(&capsule(close, &[0, 0, 0, 0, 0xff]), 1), Err(Error::ReasonNotText));
        assert_eq!(
            read(&capsule(CapsuleType::DRAIN_WEBTRANSPORT_SESSION.0, b"x"), 1),
            Err(Error::DrainNotEmpty)
        );
        let mut twice = capsule(close, &[0; 4]);
        twice.extend_from_slice(&[0]);
        assert_eq!(read(&twice, 1), Err(Error::AfterClose));
    }

    #[test]
    fn endless_capsule_is_skipped_without_being_held() {
        let mut head = BytesMut::new();
        varint::encode(0x17, &mut head);
        varint::encode(varint::MAX, &mut head);
        let mut reader = Reader::default();
        assert_eq!(reader.read(&mut head.freeze()), Ok(None));
        for _ in 0..1000 {
            assert_eq!(reader.read(&mut Bytes::from(vec![0; 60_000])), Ok(None));
        }
        assert_eq!(reader.payload.capacity(), 0);
    }

    //= draft-ietf-webtrans-http3-16 section 6
    //# Senders that truncate an application-supplied message MUST do so at a UTF-8 character boundary.
    #[test]
    fn long_reason_is_cut_between_characters() {
        let mut bytes = BytesMut::new();
        encode_close(1, &"ü".repeat(600), &mut bytes);
        let expected = Capsule::Close { code: 1, reason: "ü".repeat(512) };
        assert_eq!(read(&bytes, usize::MAX), Ok(vec![expected]));
        let mut bytes = BytesMut::new();
        encode_close(1, &format!("x{}", "ü".repeat(600)), &mut bytes);
        let expected = Capsule::Close { code: 1, reason: format!("x{}", "ü".repeat(511)) };
        assert_eq!(read(&bytes, usize::MAX), Ok(vec![expected]));
    }
}
