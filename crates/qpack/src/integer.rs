//! Integers with a prefix (RFC 7541 section 5.1), as RFC 9204 section 4.1.1 uses them.

use bytes::BufMut;

/// The largest accepted integer: 62 bits, as in QUIC.
//= RFC 9204 section 4.1.1
//# QPACK implementations MUST be able to decode integers up to and including 62 bits long.
pub const MAX: u64 = (1 << 62) - 1;

/// No integer up to [`MAX`] needs a continuation byte beyond this shift; longer forms only waste
/// time.
const MAX_SHIFT: u32 = 63;

/// Reason why an integer cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the integer does.
    #[error("an integer is truncated")]
    Truncated,
    /// The integer exceeds [`MAX`], or its encoding is longer than [`MAX`] needs.
    #[error("an integer is too large")]
    Overflow,
}

/// Writes `value` with a prefix of `prefix_bits` (1 to 8); `flags` are the bits above the prefix.
#[inline]
pub fn encode(flags: u8, prefix_bits: u32, value: u64, out: &mut impl BufMut) {
    let mask = prefix_mask(prefix_bits);
    debug_assert_eq!(flags & mask, 0, "the flags reach into the prefix");
    if value < u64::from(mask) {
        out.put_u8(flags | value as u8);
        return;
    }
    out.put_u8(flags | mask);
    let mut rest = value - u64::from(mask);
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

/// Reads an integer from the front of `input`; the bits above the prefix are ignored.
#[inline]
pub fn decode(prefix_bits: u32, input: &mut &[u8]) -> Result<u64, DecodeError> {
    let (&first, mut rest) = input.split_first().ok_or(DecodeError::Truncated)?;
    let mut integer = match Progress::start(prefix_bits, first) {
        Step::Complete(value) => {
            *input = rest;
            return Ok(value);
        }
        Step::NeedsMore(integer) => integer,
    };
    loop {
        let (&byte, after) = rest.split_first().ok_or(DecodeError::Truncated)?;
        rest = after;
        match integer.next(byte)? {
            Step::Complete(value) => {
                *input = rest;
                return Ok(value);
            }
            Step::NeedsMore(progress) => integer = progress,
        }
    }
}

/// A partially received integer, for streams that may be split anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    value: u64,
    shift: u32,
}

/// Result of one more byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The integer is complete.
    Complete(u64),
    /// More bytes are needed.
    NeedsMore(Progress),
}

impl Progress {
    /// Starts with the byte that contains the prefix; the bits above the prefix are ignored.
    #[inline]
    pub fn start(prefix_bits: u32, byte: u8) -> Step {
        let mask = prefix_mask(prefix_bits);
        let value = byte & mask;
        if value == mask {
            Step::NeedsMore(Self { value: u64::from(value), shift: 0 })
        } else {
            Step::Complete(u64::from(value))
        }
    }

    /// Adds the next byte.
    #[inline]
    pub fn next(self, byte: u8) -> Result<Step, DecodeError> {
        let bits = u64::from(byte & 0x7f);
        if self.shift >= MAX_SHIFT {
            return Err(DecodeError::Overflow);
        }
        // Below a shift of 63 at most the top bits of `bits` can be lost; shifting back shows
        // whether they were.
        let shifted = bits << self.shift;
        if shifted >> self.shift != bits {
            return Err(DecodeError::Overflow);
        }
        let value = self
            .value
            .checked_add(shifted)
            .filter(|value| *value <= MAX)
            .ok_or(DecodeError::Overflow)?;
        if byte & 0x80 == 0 {
            Ok(Step::Complete(value))
        } else {
            Ok(Step::NeedsMore(Self { value, shift: self.shift + 7 }))
        }
    }
}

const fn prefix_mask(prefix_bits: u32) -> u8 {
    debug_assert!(prefix_bits >= 1 && prefix_bits <= 8);
    (0xff_u16 >> (8 - prefix_bits)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(flags: u8, prefix_bits: u32, value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        encode(flags, prefix_bits, value, &mut out);
        out
    }

    //= RFC 9204 section 4.1.1
    //# QPACK implementations MUST be able to decode integers up to and including 62 bits long.
    #[test]
    fn largest_value_is_read_back() {
        for prefix_bits in 1..=8 {
            let bytes = encoded(0, prefix_bits, MAX);
            assert_eq!(decode(prefix_bits, &mut &bytes[..]), Ok(MAX));
        }
    }

    #[test]
    fn value_above_62_bits_overflows() {
        let bytes = encoded(0, 8, MAX + 1);
        assert_eq!(decode(8, &mut &bytes[..]), Err(DecodeError::Overflow));
        assert_eq!(decode(8, &mut &[0xff; 40][..]), Err(DecodeError::Overflow));
    }

    #[test]
    fn zero_padding_is_bounded() {
        let mut bytes = vec![0xff];
        bytes.extend([0x80; 20]);
        assert_eq!(decode(8, &mut &bytes[..]), Err(DecodeError::Overflow));
    }
}
