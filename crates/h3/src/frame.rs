//! Frame types, frame headers and payloads (RFC 9114 section 7), parsed from input that may be
//! split anywhere.

pub(crate) mod priority_update;
pub(crate) mod settings;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    error::{ConnectionError, ErrorCode},
    varint,
};

/// The type of a frame (RFC 9114 section 7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameType(pub u64);

impl FrameType {
    /// DATA.
    pub const DATA: Self = Self(0x00);
    /// HEADERS.
    pub const HEADERS: Self = Self(0x01);
    /// CANCEL_PUSH.
    pub const CANCEL_PUSH: Self = Self(0x03);
    /// SETTINGS.
    pub const SETTINGS: Self = Self(0x04);
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: Self = Self(0x05);
    /// GOAWAY.
    pub const GOAWAY: Self = Self(0x07);
    /// MAX_PUSH_ID.
    pub const MAX_PUSH_ID: Self = Self(0x0d);
    /// PRIORITY_UPDATE for a request (RFC 9218 section 7.2).
    pub const PRIORITY_UPDATE_REQUEST: Self = Self(0xf0700);
    /// PRIORITY_UPDATE for a push (RFC 9218 section 7.2).
    pub const PRIORITY_UPDATE_PUSH: Self = Self(0xf0701);
    /// Start of a bidirectional stream of a WebTransport session (draft-ietf-webtrans-http3 section
    /// 4.3). It looks like a frame type but is none: the session ID follows instead of a length,
    /// and then the stream's data up to its end.
    pub const WEBTRANSPORT_STREAM: Self = Self(0x41);

    /// Returns whether HTTP/2 used this type for a frame that HTTP/3 does not have.
    pub(crate) const fn is_http2_reserved(self) -> bool {
        matches!(self.0, 0x02 | 0x06 | 0x08 | 0x09)
    }
}

/// Frame type and payload length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) frame_type: FrameType,
    pub(crate) len: u64,
}

impl FrameHeader {
    pub(crate) fn encode(frame_type: FrameType, len: u64, out: &mut impl BufMut) {
        varint::encode(frame_type.0, out);
        varint::encode(len, out);
    }

    fn decode(input: &mut &[u8]) -> Option<Self> {
        let frame_type = FrameType(varint::decode(input)?);
        Some(Self { frame_type, len: varint::decode(input)? })
    }
}

/// Two varints of eight bytes.
const MAX_HEADER_LEN: usize = 16;

/// The beginning of an incomplete frame header.
#[derive(Debug, Default)]
pub(crate) struct HeaderReader {
    bytes: [u8; MAX_HEADER_LEN],
    filled: u8,
}

impl HeaderReader {
    /// Returns a reader for a header whose type was already read.
    pub(crate) fn after(frame_type: FrameType) -> Self {
        let mut reader = Self::default();
        varint::encode(frame_type.0, &mut &mut reader.bytes[..]);
        reader.filled = varint::encoded_len(frame_type.0) as u8;
        reader
    }

    /// Returns whether no part of a header has arrived.
    pub(crate) const fn is_at_boundary(&self) -> bool {
        self.filled == 0
    }

    /// Reads a header from the front of `data`. Returns `None` if all of `data` was used up and
    /// more is needed.
    #[inline]
    pub(crate) fn read(&mut self, data: &mut Bytes) -> Option<FrameHeader> {
        if self.filled == 0 {
            let mut input = &data[..];
            if let Some(header) = FrameHeader::decode(&mut input) {
                let taken = data.len() - input.len();
                data.advance(taken);
                return Some(header);
            }
        }
        self.read_cut(data)
    }

    fn read_cut(&mut self, data: &mut Bytes) -> Option<FrameHeader> {
        let filled = usize::from(self.filled);
        let copied = data.len().min(MAX_HEADER_LEN - filled);
        let end = filled + copied;
        self.bytes[filled..end].copy_from_slice(&data[..copied]);
        let mut input = &self.bytes[..end];
        if let Some(header) = FrameHeader::decode(&mut input) {
            let unused = input.len();
            data.advance(copied - unused);
            self.filled = 0;
            return Some(header);
        }
        // The longest header fits, so an incomplete one has used up all input.
        data.advance(copied);
        self.filled = end as u8;
        None
    }
}

/// A payload that is needed in one piece. Memory grows with the received data, not with the
/// announced length.
#[derive(Debug, Default)]
pub(crate) struct PayloadReader {
    missing: usize,
    buffer: BytesMut,
}

impl PayloadReader {
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    pub(crate) fn start(&mut self, len: usize) {
        debug_assert!(self.buffer.is_empty());
        self.missing = len;
    }

    /// Reads payload bytes from the front of `data`. Returns the payload when complete, without a
    /// copy if it arrived in one piece.
    #[inline]
    pub(crate) fn read(&mut self, data: &mut Bytes) -> Option<Bytes> {
        let taken = data.len().min(self.missing);
        if taken == self.missing && self.buffer.is_empty() {
            return Some(data.split_to(taken));
        }
        self.buffer.extend_from_slice(&data[..taken]);
        data.advance(taken);
        self.missing -= taken;
        (self.missing == 0).then(|| std::mem::take(&mut self.buffer).freeze())
    }
}

/// Takes up to `left` bytes from the front of `data`, and subtracts them from `left`.
#[inline]
pub(crate) fn take_up_to(left: &mut u64, data: &mut Bytes) -> Bytes {
    let taken = usize::try_from(*left).map_or(data.len(), |left| left.min(data.len()));
    *left -= taken as u64;
    data.split_to(taken)
}

/// Parses the payload of GOAWAY, MAX_PUSH_ID and CANCEL_PUSH: one varint.
//= RFC 9114 section 7.1
//# A frame payload that contains additional bytes after the identified fields or a frame payload that terminates before
//# the end of the identified fields MUST be treated as a connection error of type H3_FRAME_ERROR.
//= RFC 9114 section 7.1
//# In particular, redundant length encodings MUST be verified to be self-consistent; see Section 10.8.
//= RFC 9114 section 7.1
//# Each frame's payload MUST contain exactly the fields identified in its description.
//= RFC 9114 section 10.8
//# An implementation MUST ensure that the length of a frame exactly matches the length of the fields it contains.
pub(crate) fn decode_single_varint(mut payload: &[u8]) -> Result<u64, ConnectionError> {
    match varint::decode(&mut payload) {
        Some(value) if payload.is_empty() => Ok(value),
        _ => Err(ConnectionError::new(
            ErrorCode::H3_FRAME_ERROR,
            "a frame's payload is not exactly one integer",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_headers_are_read_alike() {
        for (frame_type, len) in [(0, 0), (1, 300), (0xf0700, 70_000), (varint::MAX, varint::MAX)] {
            let mut bytes = Vec::new();
            FrameHeader::encode(FrameType(frame_type), len, &mut bytes);
            let header_len = bytes.len();
            bytes.extend(b"payload that is long enough");
            for cut in 0..=header_len {
                let mut reader = HeaderReader::default();
                let mut front = Bytes::copy_from_slice(&bytes[..cut]);
                let mut back = Bytes::copy_from_slice(&bytes[cut..]);
                let header = match reader.read(&mut front) {
                    Some(header) => header,
                    None => reader.read(&mut back).unwrap(),
                };
                assert_eq!(header, FrameHeader { frame_type: FrameType(frame_type), len });
                assert!(reader.is_at_boundary());
                assert_eq!(front.len() + back.len(), bytes.len() - header_len);
            }
        }
    }

    #[test]
    fn payload_in_one_piece_is_not_copied() {
        let mut data = Bytes::from_static(b"payload and more");
        let at = data.as_ptr();
        let mut reader = PayloadReader::default();
        reader.start(7);
        let payload = reader.read(&mut data).unwrap();
        assert_eq!(payload, "payload");
        assert_eq!(payload.as_ptr(), at);
        assert_eq!(data, " and more");
    }

    #[test]
    fn single_varint_has_to_fill_its_payload() {
        assert_eq!(decode_single_varint(&[0x40, 0x25]), Ok(37));
        for payload in [&[][..], &[0x40], &[0x25, 0x00]] {
            assert_eq!(
                decode_single_varint(payload).unwrap_err().code(),
                ErrorCode::H3_FRAME_ERROR
            );
        }
    }
}
