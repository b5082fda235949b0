//! The Huffman code of RFC 7541 section 5.2, with tables built at compile time.

mod table;

use bytes::BufMut;

use table::{CODE, CODE_LEN, EOS, FAST, FAST_BITS, Fast, MAX_LEN, RANGES, SYMBOLS_BY_CODE};

/// Reason why a string is not valid Huffman code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The string contains the end-of-string symbol.
    #[error("it contains the end-of-string symbol")]
    EndOfString,
    /// The string ends with more than seven bits of padding, or with bits that are not all ones.
    #[error("its padding is wrong")]
    Padding,
}

/// Returns the number of bytes that [`encode`] writes.
#[inline]
pub fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(CODE_LEN[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the Huffman code of `text`.
pub fn encode(text: &[u8], out: &mut impl BufMut) {
    // The low `pending` bits of `buffer` are not written yet; there are at most 31 before a symbol
    // of at most 30.
    let mut buffer = 0_u64;
    let mut pending = 0_u32;
    for &byte in text {
        let len = u32::from(CODE_LEN[usize::from(byte)]);
        buffer = buffer << len | u64::from(CODE[usize::from(byte)]);
        pending += len;
        if pending >= 32 {
            pending -= 32;
            out.put_u32((buffer >> pending) as u32);
        }
    }
    //= RFC 7541 section 5.2
    //# Upon decoding, an incomplete code at the end of the encoded data is to be considered as padding and discarded.
    // The padding is the most significant bits of the end-of-string symbol: ones.
    let rest = (buffer << (32 - pending)) as u32 | u32::MAX.checked_shr(pending).unwrap_or(0);
    out.put_slice(&rest.to_be_bytes()[..pending.div_ceil(8) as usize]);
}

/// Decodes `code` and appends the text. After an error, part of the text may have been appended.
pub fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    // The shortest code has five bits. One extra byte, because two symbols are written at a time
    // even if only one counts.
    out.resize(start + code.len() * 8 / 5 + 2, 0);
    let result = decode_into(code, &mut out[start..]);
    out.truncate(start + result.unwrap_or(0));
    result.map(|_| ())
}

/// Remaining bits, the next one on top.
struct Bits<'a> {
    /// The top `available` bits are input. Below them are the following input, or zeros.
    buffer: u64,
    available: u32,
    rest: &'a [u8],
}

impl Bits<'_> {
    /// Makes at least 56 bits available if eight bytes are left.
    #[inline]
    fn refill(&mut self) -> bool {
        let Some(chunk) = self.rest.first_chunk::<8>() else { return false };
        self.buffer |= u64::from_be_bytes(*chunk) >> self.available;
        let bytes = (63 - self.available) / 8;
        self.rest = &self.rest[bytes as usize..];
        self.available += bytes * 8;
        true
    }

    /// Makes at least 56 bits available, or all remaining ones if less than eight bytes are left.
    #[inline]
    fn refill_last(&mut self) {
        let room = (63 - self.available) as usize / 8;
        let (bytes, rest) = self.rest.split_at(room.min(self.rest.len()));
        self.buffer |= top_aligned(bytes) >> self.available;
        self.available += bytes.len() as u32 * 8;
        self.rest = rest;
    }

    #[inline]
    fn next_fast(&self) -> Fast {
        FAST[(self.buffer >> (64 - FAST_BITS)) as usize]
    }

    #[inline]
    fn consume(&mut self, bits: u32) {
        self.buffer <<= bits;
        self.available -= bits;
    }
}

/// Loads less than eight bytes into the top of a number, above zeros.
#[inline]
fn top_aligned(bytes: &[u8]) -> u64 {
    match *bytes {
        [] => 0,
        [first] => u64::from(first) << 56,
        [first, second] => u64::from(first) << 56 | u64::from(second) << 48,
        [first, second, third] => {
            u64::from(first) << 56 | u64::from(second) << 48 | u64::from(third) << 40
        }
        _ => {
            // Two halves without a loop, which may overlap.
            let half = |half: Option<&[u8; 4]>| {
                u64::from(u32::from_be_bytes(*half.expect("invariant: at least four bytes")))
            };
            half(bytes.first_chunk()) << 32 | half(bytes.last_chunk()) << (64 - 8 * bytes.len())
        }
    }
}

/// Decodes and returns the number of symbols written.
fn decode_into(code: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let mut bits = Bits { buffer: 0, available: 0, rest: code };
    let mut written = 0;
    while bits.refill() {
        // Four look-ups take at most 48 bits of the 56.
        for _ in 0..4 {
            let fast = bits.next_fast();
            if fast.symbols == 0 {
                break;
            }
            out[written] = fast.first;
            out[written + 1] = fast.second;
            written += usize::from(fast.symbols);
            bits.consume(fast.total_bits());
        }
        // Whatever ended the lookups, the next code may be long, and there may not be enough bits
        // for it yet.
        if bits.available >= MAX_LEN as u32 && bits.next_fast().symbols == 0 {
            let (symbol, len) = long_symbol((bits.buffer >> 32) as u32);
            out[written] = literal(symbol)?;
            written += 1;
            bits.consume(len);
        }
    }
    finish(bits, written, out)
}

/// Decodes the last bytes: each symbol is checked against the available bits.
fn finish(mut bits: Bits<'_>, mut written: usize, out: &mut [u8]) -> Result<usize, DecodeError> {
    loop {
        if bits.available < MAX_LEN as u32 {
            bits.refill_last();
        }
        if bits.available == 0 {
            return Ok(written);
        }
        // Fill the bits below the input with ones, like padding: a symbol found there is longer
        // than the available bits.
        let padded = bits.buffer | u64::MAX >> bits.available;
        let fast = FAST[(padded >> (64 - FAST_BITS)) as usize];
        if fast.symbols > 0 && fast.total_bits() <= bits.available {
            out[written] = fast.first;
            out[written + 1] = fast.second;
            written += usize::from(fast.symbols);
            bits.consume(fast.total_bits());
            continue;
        }
        let (symbol, len) = match fast.symbols {
            0 => long_symbol((padded >> 32) as u32),
            _ => (u16::from(fast.first), fast.first_bits()),
        };
        if len > bits.available {
            //= RFC 7541 section 5.2
            //# A padding strictly longer than 7 bits MUST be treated as a decoding error.  A padding not corresponding
            //# to the most significant bits of the code for the EOS symbol MUST be treated as a decoding error.
            return if bits.available < 8 && padded == u64::MAX {
                Ok(written)
            } else {
                Err(DecodeError::Padding)
            };
        }
        out[written] = literal(symbol)?;
        written += 1;
        bits.consume(len);
    }
}

fn literal(symbol: u16) -> Result<u8, DecodeError> {
    //= RFC 7541 section 5.2
    //# A Huffman-encoded string literal containing the EOS symbol MUST be treated as a decoding error.
    debug_assert!(symbol <= EOS);
    u8::try_from(symbol).map_err(|_| DecodeError::EndOfString)
}

/// Returns the symbol whose code of more than [`FAST_BITS`] bits starts these 32 bits, and its
/// length.
#[cold]
fn long_symbol(top: u32) -> (u16, u32) {
    let mut len = FAST_BITS as usize + 1;
    while len < MAX_LEN && top >= RANGES[len].end {
        len += 1;
    }
    let range = &RANGES[len];
    let place = usize::from(range.place) + ((top - range.start) >> (32 - len)) as usize;
    (SYMBOLS_BY_CODE[place], len as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(code: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let mut out = b"before".to_vec();
        decode(code, &mut out)?;
        Ok(out.split_off(6))
    }

    #[test]
    fn every_symbol_survives_alone_and_repeated() {
        for byte in 0..=u8::MAX {
            for count in [1, 2, 3, 17] {
                let text = vec![byte; count];
                let mut code = Vec::new();
                encode(&text, &mut code);
                assert_eq!(code.len(), encoded_len(&text));
                assert_eq!(decoded(&code), Ok(text));
            }
        }
    }

    #[test]
    fn last_bytes_are_taken_whole() {
        let bytes = [1, 2, 3, 4, 5, 6, 7];
        for len in 0..=bytes.len() {
            let mut all = [0; 8];
            all[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(top_aligned(&bytes[..len]), u64::from_be_bytes(all), "{len} bytes");
        }
    }

    #[test]
    fn end_of_string_symbol_is_refused() {
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(DecodeError::EndOfString));
        assert_eq!(decoded(&[0xff; 40]), Err(DecodeError::EndOfString));
    }

    #[test]
    fn padding_of_eight_bits_is_refused() {
        // '0' is 00000; three ones complete the byte.
        assert_eq!(decoded(&[0b0000_0111]), Ok(b"0".to_vec()));
        assert_eq!(decoded(&[0b0000_0111, 0xff]), Err(DecodeError::Padding));
        assert_eq!(decoded(&[0xff]), Err(DecodeError::Padding));
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    #[test]
    fn padding_with_a_zero_is_refused() {
        assert_eq!(decoded(&[0b0000_0110]), Err(DecodeError::Padding));
        assert_eq!(decoded(&[0b0000_0011]), Err(DecodeError::Padding));
    }
}
