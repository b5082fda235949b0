//! The capsule protocol (RFC 9297 section 3), and the capsules of WebTransport sessions.
//!
//! Capsules are what the content of an extended CONNECT request and its response is made of: [`Reader`] takes them off pieces of content,
//! however these are cut, and the `encode_*` functions append them to a buffer.

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

/// The longest reason that a session is closed with, in bytes of UTF-8.
pub const MAX_REASON: usize = 1024;

/// A DATAGRAM capsule may carry this much. What is larger is thrown away, as a datagram may be: no QUIC datagram is larger.
const MAX_DATAGRAM: u64 = 65_535;

/// The length of an application's error code.
const CODE_LEN: usize = 4;

/// A capsule that means something here; others are skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capsule {
    /// A datagram that comes by the stream.
    Datagram(Bytes),
    /// The peer ends the session.
    Close {
        /// The application's error code.
        code: u32,
        /// Its reason, of at most [`MAX_REASON`] bytes.
        reason: String,
    },
    /// The peer wants the session to come to an end.
    Drain,
}

/// The content is no sequence of capsules, or one of them breaks its rules: the stream is reset with [`Error::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The content ends inside a capsule.
    #[error("the content ends inside a capsule")]
    Truncated,
    /// The capsule that ends a session has no complete code.
    #[error("the capsule that closes a session has no code")]
    MissingCode,
    /// The capsule that ends a session has a reason of more than [`MAX_REASON`] bytes.
    #[error("the reason that a session is closed with is too long")]
    ReasonTooLong,
    /// The reason is not UTF-8.
    #[error("the reason that a session is closed with is not UTF-8")]
    ReasonNotText,
    /// Something comes after the capsule that ends the session.
    #[error("content follows the capsule that closes a session")]
    AfterClose,
    /// The capsule that asks for an end carries something.
    #[error("the capsule that drains a session is not empty")]
    DrainNotEmpty,
}

impl Error {
    /// What the reset of the stream carries: the message is malformed (RFC 9297 section 3.3).
    pub const fn code(self) -> ErrorCode {
        ErrorCode::H3_MESSAGE_ERROR
    }
}

/// Reads capsules. It holds one at the most, and of that no more than has come.
#[derive(Debug, Default)]
pub struct Reader {
    reading: Reading,
    header: HeaderReader,
    payload: PayloadReader,
}

/// What is awaited.
#[derive(Debug, Default)]
enum Reading {
    #[default]
    Header,
    Payload(CapsuleType),
    Skipped {
        left: u64,
    },
    /// The session is over.
    Nothing,
}

impl Reader {
    /// Takes bytes until a capsule that means something is complete; `None` when all are taken.
    ///
    /// # Errors
    ///
    /// When the peer breaks a rule. Nothing may be read after that.
    pub fn read(&mut self, data: &mut Bytes) -> Result<Option<Capsule>, Error> {
        loop {
            match &mut self.reading {
                // The payload of the last one may be empty.
                Reading::Header | Reading::Skipped { .. } | Reading::Nothing if data.is_empty() => return Ok(None),
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

    /// The content has ended.
    ///
    /// # Errors
    ///
    /// When it ends inside a capsule.
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
            CapsuleType::CLOSE_WEBTRANSPORT_SESSION if header.len < CODE_LEN as u64 => Err(Error::MissingCode),
            //= draft-ietf-webtrans-http3-16 section 6
            //# If the Application Error Message exceeds 1024 bytes or is not valid UTF-8, the receiver MUST reset the stream with code
            //# H3_MESSAGE_ERROR.
            CapsuleType::CLOSE_WEBTRANSPORT_SESSION if header.len > (CODE_LEN + MAX_REASON) as u64 => Err(Error::ReasonTooLong),
            CapsuleType::DRAIN_WEBTRANSPORT_SESSION if header.len > 0 => Err(Error::DrainNotEmpty),
            CapsuleType::DATAGRAM if header.len > MAX_DATAGRAM => Ok(Reading::Skipped { left: header.len }),
            CapsuleType::DATAGRAM | CapsuleType::CLOSE_WEBTRANSPORT_SESSION | CapsuleType::DRAIN_WEBTRANSPORT_SESSION => {
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
                let (code, reason) = payload.split_first_chunk::<CODE_LEN>().ok_or(Error::MissingCode)?;
                let reason = std::str::from_utf8(reason).map_err(|_| Error::ReasonNotText)?;
                Capsule::Close { code: u32::from_be_bytes(*code), reason: reason.to_owned() }
            }
            CapsuleType::DRAIN_WEBTRANSPORT_SESSION => Capsule::Drain,
            _ => Capsule::Datagram(payload),
        })
    }
}

/// Appends the capsule that ends a session. Of a reason that is too long as much is sent as there is room for.
//= draft-ietf-webtrans-http3-16 section 6
//# Senders that truncate an application-supplied message MUST do so at a UTF-8 character boundary.
pub fn encode_close(code: u32, reason: &str, out: &mut BytesMut) {
    let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
    encode_header(CapsuleType::CLOSE_WEBTRANSPORT_SESSION, CODE_LEN + reason.len(), out);
    out.put_u32(code);
    out.put_slice(reason.as_bytes());
}

/// Appends the capsule that asks for the end of a session.
pub fn encode_drain(out: &mut BytesMut) {
    encode_header(CapsuleType::DRAIN_WEBTRANSPORT_SESSION, 0, out);
}

/// Appends a capsule with a datagram, for a peer or a path that takes no QUIC datagrams.
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

    /// The same bytes, cut into pieces of `cut`.
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
        assert_eq!(read(&capsule(close, &[b'a'; CODE_LEN + MAX_REASON + 1]), 1), Err(Error::ReasonTooLong));
        assert_eq!(read(&capsule(close, &[0, 0, 0, 0, 0xff]), 1), Err(Error::ReasonNotText));
        assert_eq!(read(&capsule(CapsuleType::DRAIN_WEBTRANSPORT_SESSION.0, b"x"), 1), Err(Error::DrainNotEmpty));
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
