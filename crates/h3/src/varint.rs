//! Variable-length integers (RFC 9000 section 16).

use bytes::BufMut;

/// The largest value of a varint.
pub const MAX: u64 = (1 << 62) - 1;

/// Returns the number of bytes that [`encode`] writes for this value.
///
/// # Panics
/// Panics if the value exceeds [`MAX`].
pub const fn encoded_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        0x4000_0000..=MAX => 8,
        _ => panic!("a varint has at most 62 bits"),
    }
}

/// Appends a value in its shortest form.
///
/// # Panics
/// Panics if the value exceeds [`MAX`].
#[inline]
pub fn encode(value: u64, out: &mut impl BufMut) {
    match encoded_len(value) {
        1 => out.put_u8(value as u8),
        2 => out.put_u16(value as u16 | 0x4000),
        4 => out.put_u32(value as u32 | 0x8000_0000),
        _ => out.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// Reads a value from the front of `input`. Returns `None` and leaves `input` unchanged if it is
/// incomplete.
#[inline]
pub fn decode(input: &mut &[u8]) -> Option<u64> {
    let len = len_from_first(*input.first()?);
    let (bytes, rest) = input.split_at_checked(len)?;
    *input = rest;
    let first = u64::from(bytes[0] & 0x3f);
    Some(bytes[1..].iter().fold(first, |value, &byte| value << 8 | u64::from(byte)))
}

/// Returns the length of a varint from its first byte.
#[inline]
pub const fn len_from_first(first: u8) -> usize {
    1 << (first >> 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 Appendix A.1.
    #[test]
    fn vectors_of_rfc9000_appendix_a1() {
        let vectors: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (mut bytes, value) in vectors {
            assert_eq!(decode(&mut bytes), Some(value));
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn bounds_survive_and_truncation_is_noticed() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut bytes = Vec::new();
            encode(value, &mut bytes);
            assert_eq!(bytes.len(), encoded_len(value));
            assert_eq!(decode(&mut &bytes[..]), Some(value));
            for cut in 0..bytes.len() {
                let mut input = &bytes[..cut];
                assert_eq!(decode(&mut input), None);
                assert_eq!(input.len(), cut);
            }
        }
    }
}
