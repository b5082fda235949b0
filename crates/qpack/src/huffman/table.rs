//! The code of RFC 7541 Appendix B, derived at compile time from the code lengths. It is canonical:
//! codes of one length are consecutive in the order of their symbols, and shorter codes precede
//! longer ones.

/// The number of symbols: 256 bytes and the end-of-string symbol.
pub(super) const SYMBOLS: usize = 257;
/// The end-of-string symbol.
pub(super) const EOS: u16 = 256;
/// The longest code, in bits.
pub(super) const MAX_LEN: usize = 30;
/// Number of bits of one lookup in [`FAST`]: enough for two common symbols, and the table fits a
/// first-level cache.
pub(super) const FAST_BITS: u32 = 12;

/// The length in bits of each symbol's code.
#[rustfmt::skip]
pub(super) static CODE_LEN: [u8; SYMBOLS] = LENGTHS;

/// The code of each symbol, in the low bits.
pub(super) static CODE: [u32; SYMBOLS] = {
    let mut codes = [0; SYMBOLS];
    let mut place = 0;
    let mut next = 0_u32;
    let mut len = 0;
    while place < SYMBOLS {
        let symbol = BY_CODE[place] as usize;
        next <<= LENGTHS[symbol] as usize - len;
        len = LENGTHS[symbol] as usize;
        codes[symbol] = next;
        next += 1;
        place += 1;
    }
    assert!(next == 1 << MAX_LEN, "the code is not complete");
    codes
};

/// The symbols in the order of their codes.
pub(super) static SYMBOLS_BY_CODE: [u16; SYMBOLS] = BY_CODE;

/// The codes of one length, left-aligned in 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Range {
    /// The first value beyond the codes of this length; 0 stands for 2^32.
    pub(super) end: u32,
    /// The first code of this length.
    pub(super) start: u32,
    /// Index of the first code's symbol in [`SYMBOLS_BY_CODE`].
    pub(super) place: u16,
}

/// The range for each length from 0 to [`MAX_LEN`].
pub(super) static RANGES: [Range; MAX_LEN + 1] = {
    let mut ranges = [Range { end: 0, start: 0, place: 0 }; MAX_LEN + 1];
    let mut place = 0;
    let mut start = 0_u64;
    let mut len = 1;
    while len <= MAX_LEN {
        let mut end = start;
        let first = place;
        while place < SYMBOLS && LENGTHS[BY_CODE[place] as usize] as usize == len {
            end += 1 << (32 - len);
            place += 1;
        }
        ranges[len] = Range { end: end as u32, start: start as u32, place: first as u16 };
        start = end;
        len += 1;
    }
    ranges
};

/// The symbols in the next [`FAST_BITS`] bits.
#[derive(Clone, Copy)]
pub(super) struct Fast {
    /// The complete symbols; the second counts only if `symbols` is 2.
    pub(super) first: u8,
    pub(super) second: u8,
    /// Number of symbols: 0 (the code is longer), 1 or 2.
    pub(super) symbols: u8,
    /// Length of all symbols in bits; the length of the first alone in the high four bits.
    bits: u8,
}

impl Fast {
    /// Returns the number of bits of all symbols.
    #[inline]
    pub(super) const fn total_bits(self) -> u32 {
        (self.bits & 0xf) as u32
    }

    /// Returns the number of bits of the first symbol.
    #[inline]
    pub(super) const fn first_bits(self) -> u32 {
        (self.bits >> 4) as u32
    }
}

/// Indexed by the next [`FAST_BITS`] bits.
pub(super) static FAST: [Fast; 1 << FAST_BITS] = {
    let mut table = [Fast { first: 0, second: 0, symbols: 0, bits: 0 }; 1 << FAST_BITS];
    // One symbol each.
    let mut place = 0;
    let mut at = 0;
    while LENGTHS[BY_CODE[place] as usize] as u32 <= FAST_BITS {
        let symbol = BY_CODE[place] as usize;
        let len = LENGTHS[symbol];
        let end = at + (1 << (FAST_BITS - len as u32));
        while at < end {
            table[at] = Fast { first: symbol as u8, second: 0, symbols: 1, bits: len << 4 | len };
            at += 1;
        }
        place += 1;
    }
    // Add a second symbol where it fits. The entry looked up may already have its second symbol;
    // its first one stays the same.
    let mut at = 0;
    while at < 1 << FAST_BITS {
        let first = table[at];
        if first.symbols > 0 {
            let next = table[(at << first.first_bits()) & ((1 << FAST_BITS) - 1)];
            if next.symbols > 0 && first.first_bits() + next.first_bits() <= FAST_BITS {
                table[at].second = next.first;
                table[at].symbols = 2;
                table[at].bits =
                    (first.first_bits() << 4 | (first.first_bits() + next.first_bits())) as u8;
            }
        }
        at += 1;
    }
    table
};

const BY_CODE: [u16; SYMBOLS] = {
    let mut by_code = [0; SYMBOLS];
    let mut place = 0;
    let mut len = 1;
    while len <= MAX_LEN {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == len {
                by_code[place] = symbol as u16;
                place += 1;
            }
            symbol += 1;
        }
        len += 1;
    }
    by_code
};

#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
