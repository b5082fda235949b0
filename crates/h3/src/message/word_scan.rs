//! Scans text eight bytes at a time: most names and values are short and scanned often.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Iterates over the text as words, of which the last two may overlap.
#[inline]
fn any_word(text: &[u8], filler: u8, test: impl Fn(u64) -> u64) -> bool {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("invariant: eight bytes"));
    let Some(last) = text.last_chunk::<8>() else {
        return test(short_word(text, filler)) != 0;
    };
    let found = text.chunks_exact(8).fold(0, |found, bytes| found | test(word(bytes)));
    found | test(u64::from_le_bytes(*last)) != 0
}

/// Loads less than eight bytes into a word without a loop. Some bytes occur more than once, in
/// arbitrary order.
#[inline]
fn short_word(text: &[u8], filler: u8) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
    }
    match *text {
        [] => u64::from_le_bytes([filler; 8]),
        [first, .., last] => {
            u64::from_le_bytes([first, text[1], last, filler, filler, filler, filler, filler])
        }
        [only] => {
            u64::from_le_bytes([only, filler, filler, filler, filler, filler, filler, filler])
        }
    }
}

/// Returns whether there is a control character: below a space, including tabs, or DEL.
#[inline]
pub(super) fn has_controls(text: &[u8]) -> bool {
    any_word(text, b' ', |word| {
        // A byte's high bit is set in the difference if it was smaller; borrows only reach bytes
        // above one that was.
        let below_space = word.wrapping_sub(ONES * 0x20) & !word;
        let other_than_del = word ^ (ONES * 0x7f);
        (below_space | (other_than_del.wrapping_sub(ONES) & !other_than_del)) & HIGH
    })
}

/// Returns whether there is an upper-case ASCII letter.
#[inline]
pub(super) fn has_capitals(text: &[u8]) -> bool {
    any_word(text, b'a', |word| {
        let low_bits = word & !HIGH;
        let from_a = low_bits + ONES * u64::from(0x80 - b'A');
        let beyond_z = low_bits + ONES * u64::from(0x7f - b'Z');
        (from_a ^ beyond_z) & !word & HIGH
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_told_at_each_place() {
        for len in 1..30 {
            for place in 0..len {
                for byte in 0..=u8::MAX {
                    for around in [b'a', 0x80, 0xff, b' '] {
                        let mut text = vec![around; len];
                        text[place] = byte;
                        assert_eq!(has_controls(&text), byte.is_ascii_control(), "{text:?}");
                        assert_eq!(has_capitals(&text), byte.is_ascii_uppercase(), "{text:?}");
                    }
                }
            }
        }
        assert!(!has_controls(b"") && !has_capitals(b""));
    }
}
