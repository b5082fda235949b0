//! Errors in a peer's QPACK data. Each type corresponds to one error code of RFC 9204 section 6.

use crate::{huffman, integer};

/// A field section cannot be decoded: `QPACK_DECOMPRESSION_FAILED`, a connection error, except for
/// [`DecompressionError::IntegerOverflow`] and [`DecompressionError::SectionTooLarge`], which
/// concern one message only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressionError {
    /// The section ends inside its prefix or a field line.
    #[error("the field section is truncated")]
    Truncated,
    /// An integer does not fit 62 bits.
    #[error("an integer in the field section is too large")]
    IntegerOverflow,
    /// The static table has no entry of this index.
    #[error("the field section names an entry the static table does not have")]
    InvalidStaticIndex,
    /// A field line refers to a dynamic table entry that was evicted, or that lies beyond the
    /// Required Insert Count.
    #[error("the field section names an entry the dynamic table does not have")]
    InvalidDynamicIndex,
    /// The Required Insert Count is invalid for the table's capacity.
    #[error("the required insert count is impossible")]
    InvalidRequiredInsertCount,
    /// The Base is negative.
    #[error("the base is negative")]
    NegativeBase,
    /// More streams are blocked than the local settings permit.
    #[error("more than {limit} streams are blocked")]
    TooManyBlockedStreams {
        /// The limit in the local settings.
        limit: u64,
    },
    /// A Huffman-coded string violates RFC 7541 section 5.2.
    #[error("a string is not valid Huffman code: {0}")]
    Huffman(#[from] huffman::DecodeError),
    /// The decoded section exceeds the size limit. Not a connection error.
    #[error("the field section is larger than {limit} bytes")]
    SectionTooLarge {
        /// The limit that was passed to [`crate::Decoder::decode`].
        limit: u64,
    },
}

impl From<integer::DecodeError> for DecompressionError {
    fn from(error: integer::DecodeError) -> Self {
        match error {
            integer::DecodeError::Truncated => Self::Truncated,
            integer::DecodeError::Overflow => Self::IntegerOverflow,
        }
    }
}

/// The peer's encoder stream is invalid: `QPACK_ENCODER_STREAM_ERROR`, a connection error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncoderStreamError {
    /// The peer sets a dynamic table capacity above the limit.
    #[error("the dynamic table capacity {capacity} exceeds the limit {limit}")]
    CapacityExceedsLimit {
        /// The requested capacity.
        capacity: u64,
        /// The limit in the local settings.
        limit: u64,
    },
    /// The peer inserts an entry that is larger than the dynamic table.
    #[error("an inserted entry does not fit the dynamic table")]
    EntryTooLarge,
    /// An instruction refers to a dynamic table entry that was evicted or never inserted.
    #[error("an instruction names an entry the dynamic table does not have")]
    InvalidIndex,
    /// The static table has no entry of this index.
    #[error("an instruction names an entry the static table does not have")]
    InvalidStaticIndex,
    /// An integer does not fit 62 bits.
    #[error("an integer on the encoder stream is too large")]
    IntegerOverflow,
    /// A Huffman-coded string violates RFC 7541 section 5.2.
    #[error("a string on the encoder stream is not valid Huffman code: {0}")]
    Huffman(#[from] huffman::DecodeError),
}

/// The peer's decoder stream is invalid: `QPACK_DECODER_STREAM_ERROR`, a connection error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecoderStreamError {
    /// An Insert Count Increment of zero.
    #[error("an insert count increment is zero")]
    IncrementIsZero,
    /// The peer acknowledges insertions that were never sent.
    #[error("an insert count increment exceeds what was sent")]
    IncrementExceedsInserts,
    /// The peer acknowledges a section that was never sent, or that needs no acknowledgment.
    #[error("a section acknowledgment for stream {stream_id}, which awaits none")]
    UnexpectedAcknowledgment {
        /// The stream.
        stream_id: u64,
    },
    /// An integer does not fit 62 bits.
    #[error("an integer on the decoder stream is too large")]
    IntegerOverflow,
}
