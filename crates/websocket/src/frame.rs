//! Frame headers (RFC 6455 section 5.2).

use bytes::{Buf, BufMut, Bytes};

use crate::Error;

/// Maximum payload of a control frame (RFC 6455 section 5.5).
pub(crate) const MAX_CONTROL_BYTES: usize = 125;
/// Two bytes, eight bytes of length, four bytes of mask.
const MAX_HEAD_BYTES: usize = 14;

/// Frame opcode (RFC 6455 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) fin: bool,
    /// RSV1: the message is compressed (RFC 7692 section 6).
    pub(crate) compressed: bool,
    pub(crate) opcode: Opcode,
    pub(crate) length: u64,
    pub(crate) mask: Option<[u8; 4]>,
}

impl Head {
    pub(crate) fn write(&self, out: &mut impl BufMut) {
        out.put_u8(u8::from(self.fin) << 7 | u8::from(self.compressed) << 6 | self.opcode.bits());
        let masked = u8::from(self.mask.is_some()) << 7;
        match self.length {
            0..=125 => out.put_u8(masked | self.length as u8),
            126..=0xffff => {
                out.put_u8(masked | 0x7e);
                out.put_u16(self.length as u16);
            }
            _ => {
                out.put_u8(masked | 0x7f);
                out.put_u64(self.length);
            }
        }
        if let Some(mask) = self.mask {
            out.put_slice(&mask);
        }
    }

    fn read(bytes: &[u8]) -> Result<Self, Error> {
        let (&[first, second], rest) =
            bytes.split_first_chunk().expect("invariant: a head has two bytes");
        let opcode = Opcode::from_bits(first & 0xf).ok_or(Error::Protocol("reserved opcode"))?;
        if first & 0x30 != 0 {
            return Err(Error::Protocol("reserved bit is set"));
        }
        let (length, rest) = match second & 0x7f {
            126 => {
                let (length, rest) =
                    rest.split_first_chunk().expect("invariant: the head is whole");
                (u64::from(u16::from_be_bytes(*length)), rest)
            }
            127 => {
                let (length, rest) =
                    rest.split_first_chunk().expect("invariant: the head is whole");
                (u64::from_be_bytes(*length), rest)
            }
            length => (u64::from(length), rest),
        };
        //= RFC 6455 section 5.2
        //# If 127, the following 8 bytes interpreted as a 64-bit unsigned integer (the most significant bit MUST be 0) are the payload length.
        if length >> 63 != 0 {
            return Err(Error::Protocol("the most significant bit of the length is set"));
        }
        //= RFC 6455 section 5.2
        //# Note that in all cases, the minimal number of bytes MUST be used to encode the length
        if matches!((second & 0x7f, length), (126, 0..=125) | (127, 0..=0xffff)) {
            return Err(Error::Protocol("the length is not minimally encoded"));
        }
        let (fin, compressed) = (first & 0x80 != 0, first & 0x40 != 0);
        //= RFC 6455 section 5.5
        //# All control frames MUST have a payload length of 125 bytes or less and MUST NOT be fragmented.
        if opcode.is_control() && (!fin || length > MAX_CONTROL_BYTES as u64) {
            return Err(Error::Protocol("the control frame is fragmented or too long"));
        }
        Ok(Self { fin, compressed, opcode, length, mask: rest.first_chunk().copied() })
    }
}

/// A partially received frame header.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartialHead {
    bytes: [u8; MAX_HEAD_BYTES],
    length: u8,
}

impl PartialHead {
    /// Reads header bytes from `input`. Returns `None` if more are needed.
    pub(crate) fn read(&mut self, input: &mut Bytes) -> Result<Option<Head>, Error> {
        loop {
            let length = usize::from(self.length);
            let wanted = self.wanted();
            if length == wanted {
                self.length = 0;
                return Head::read(&self.bytes[..wanted]).map(Some);
            }
            let taken = input.len().min(wanted - length);
            if taken == 0 {
                return Ok(None);
            }
            input.copy_to_slice(&mut self.bytes[length..length + taken]);
            self.length += taken as u8;
        }
    }

    /// Returns the header's length, as far as the bytes so far determine it.
    fn wanted(&self) -> usize {
        if self.length < 2 {
            return 2;
        }
        let length = match self.bytes[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.bytes[1] & 0x80 == 0 { 0 } else { 4 }
    }
}

/// Masks or unmasks `data`, whose first byte is the one at `offset` of its frame.
//= RFC 6455 section 5.3
//# Octet i of the transformed data ("transformed-octet-i") is the XOR of octet i of the original data ("original-octet-i") with octet at
//# index i modulo 4 of the masking key ("masking-key-octet-j")
pub(crate) fn apply_mask(data: &mut [u8], mask: [u8; 4], offset: u64) {
    let turned = std::array::from_fn(|index| mask[(index + (offset % 4) as usize) % 4]);
    let [a, b, c, d]: [u8; 4] = turned;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = data.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(turned.into_iter().cycle()) {
        *byte ^= mask;
    }
}
