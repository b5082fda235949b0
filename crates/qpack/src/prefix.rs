//! The prefix of an encoded field section: Required Insert Count and Base (RFC 9204 section 4.5.1).

use bytes::BufMut;

use crate::{error::DecompressionError, integer};

/// The entries that a section refers to, and the base of its indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// Number of insertions that the decoder needs; zero for a section without dynamic references.
    pub(crate) required_insert_count: u64,
    /// Relative indices count down from here, post-base indices up.
    pub(crate) base: u64,
}

impl Prefix {
    /// Appends the prefix. `max_entries` follows from the decoder's maximum capacity, not from the
    /// capacity in use.
    pub(crate) fn encode(self, max_entries: u64, out: &mut impl BufMut) {
        let required = self.required_insert_count;
        if required == 0 {
            out.put_slice(&[0, 0]);
            return;
        }
        integer::encode(0, 8, required % (2 * max_entries) + 1, out);
        match self.base.checked_sub(required) {
            Some(delta) => integer::encode(0, 7, delta, out),
            None => integer::encode(0x80, 7, required - self.base - 1, out),
        }
    }

    /// Reads the prefix from the front of `input`. `insert_count` is the number of insertions
    /// received.
    pub(crate) fn decode(
        input: &mut &[u8],
        max_entries: u64,
        insert_count: u64,
    ) -> Result<Self, DecompressionError> {
        let encoded = integer::decode(8, input)?;
        let required = required_insert_count(encoded, max_entries, insert_count)?;
        let is_negative = input.first().is_some_and(|byte| byte & 0x80 != 0);
        let delta = integer::decode(7, input)?;
        let base = if is_negative {
            //= RFC 9204 section 4.5.1.2
            //# The value of Base MUST NOT be negative.
            //= RFC 9204 section 4.5.1.2
            //# An endpoint MUST treat a field block with a Sign bit of 1 as invalid if the value of Required Insert Count
            //# is less than or equal to the value of Delta Base.
            required
                .checked_sub(delta)
                .and_then(|base| base.checked_sub(1))
                .ok_or(DecompressionError::NegativeBase)?
        } else {
            // Both are far below 2^63.
            required + delta
        };
        Ok(Self { required_insert_count: required, base })
    }
}

/// RFC 9204 section 4.5.1.1: the count is sent modulo twice the number of entries that the table
/// can have.
fn required_insert_count(
    encoded: u64,
    max_entries: u64,
    insert_count: u64,
) -> Result<u64, DecompressionError> {
    if encoded == 0 {
        return Ok(0);
    }
    //= RFC 9204 section 4.5.1.1
    //# If the decoder encounters a value of EncodedInsertCount that could not have been produced by a conformant encoder,
    //# it MUST treat this as a connection error of type QPACK_DECOMPRESSION_FAILED.
    let impossible = DecompressionError::InvalidRequiredInsertCount;
    let full_range = 2 * max_entries;
    if encoded > full_range {
        return Err(impossible);
    }
    // The one value with this remainder in the range of `full_range` values that ends here.
    let largest = insert_count + max_entries;
    let wrapped = largest / full_range * full_range;
    let mut required = wrapped + encoded - 1;
    if required > largest {
        required = required.checked_sub(full_range).ok_or(impossible)?;
    }
    if required == 0 { Err(impossible) } else { Ok(required) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 9204 section 4.5.1.1: 100 bytes, so modulo 6; ten insertions; 4 stands
    /// for 9.
    #[test]
    fn example_of_the_rfc_is_decoded() {
        assert_eq!(required_insert_count(4, 3, 10), Ok(9));
    }

    /// The example of RFC 9204 section 4.5.1.2: 9, sign 1 and delta 2 make a base of 6.
    #[test]
    fn base_below_the_count_is_decoded() {
        let prefix = Prefix { required_insert_count: 9, base: 6 };
        let mut bytes = Vec::new();
        prefix.encode(3, &mut bytes);
        assert_eq!(bytes, [4, 0x82]);
        assert_eq!(Prefix::decode(&mut &bytes[..], 3, 10), Ok(prefix));
    }

    #[test]
    fn every_count_in_reach_survives_the_round_trip() {
        for max_entries in [1, 3, 128] {
            for insert_count in 0..1000_u64 {
                // A conformant encoder refers neither to what was evicted nor further ahead than
                // the table is long.
                for required in
                    insert_count.saturating_sub(max_entries - 1).max(1)..=insert_count + max_entries
                {
                    for base in [required.saturating_sub(3), required, required + 200] {
                        let prefix = Prefix { required_insert_count: required, base };
                        let mut bytes = Vec::new();
                        prefix.encode(max_entries, &mut bytes);
                        let mut input = &bytes[..];
                        assert_eq!(
                            Prefix::decode(&mut input, max_entries, insert_count),
                            Ok(prefix)
                        );
                        assert!(input.is_empty());
                    }
                }
            }
        }
    }

    //= RFC 9204 section 4.5.1.1
    //# If the decoder encounters a value of EncodedInsertCount that could not have been produced by a conformant encoder,
    //# it MUST treat this as a connection error of type QPACK_DECOMPRESSION_FAILED.
    #[test]
    fn impossible_counts_are_refused() {
        let impossible = Err(DecompressionError::InvalidRequiredInsertCount);
        // No table; beyond the range; a count of zero that is not sent as zero; below zero.
        assert_eq!(required_insert_count(1, 0, 0), impossible);
        assert_eq!(required_insert_count(7, 3, 10), impossible);
        assert_eq!(required_insert_count(1, 3, 0), impossible);
        assert_eq!(required_insert_count(5, 3, 0), impossible);
        assert_eq!(required_insert_count(1, 3, 3), Ok(6));
    }

    //= RFC 9204 section 4.5.1.2
    //# The value of Base MUST NOT be negative.
    //= RFC 9204 section 4.5.1.2
    //# An endpoint MUST treat a field block with a Sign bit of 1 as invalid if the value of Required Insert Count is less
    //# than or equal to the value of Delta Base.
    #[test]
    fn negative_bases_are_refused() {
        let decode = |bytes: &[u8]| Prefix::decode(&mut &bytes[..], 3, 10);
        assert_eq!(decode(&[4, 0x88]), Ok(Prefix { required_insert_count: 9, base: 0 }));
        assert_eq!(decode(&[4, 0x89]), Err(DecompressionError::NegativeBase));
        assert_eq!(decode(&[0, 0x80]), Err(DecompressionError::NegativeBase));
        assert_eq!(decode(&[0, 0x05]), Ok(Prefix { required_insert_count: 0, base: 5 }));
    }
}
