//! What can be wrong with a peer's QPACK bytes. Each type is one wire error code of RFC 9204 section 6.

use crate::{huffman, integer};

/// A field section cannot be decoded: `QPACK_DECOMPRESSION_FAILED`, an error of the connection, except for
/// [`DecompressionError::IntegerOverflow`] and [`DecompressionError::SectionTooLarge`], which concern one message only.
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
    /// A field line refers to a dynamic table entry that was evicted, or that lies beyond the Required Insert Count.
    #[error("the field section names an entry the dynamic table does not have")]
    InvalidDynamicIndex,
    /// The Required Insert Count cannot be right for the table's capacity.
    #[error("the required insert count is impossible")]
    InvalidRequiredInsertCount,
    /// The Base lies below zero.
    #[error("the base is negative")]
    NegativeBase,
    /// More streams wait for the dynamic table than our settings allow.
    #[error("more than {limit} streams are blocked")]
    TooManyBlockedStreams {
        /// What our settings allow.
        limit: u64,
    },
    /// A Huffman-coded string breaks RFC 7541 section 5.2.
    #[error("a string is not valid Huffman code: {0}")]
    Huffman(#[from] huffman::DecodeError),
    /// The decoded section exceeds the size we are willing to hold. Not a connection error.
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

/// The peer's encoder stream breaks the rules: `QPACK_ENCODER_STREAM_ERROR`, an error of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncoderStreamError {
    /// The peer sets a dynamic table capacity above what we allowed.
    #[error("the dynamic table capacity {capacity} exceeds the limit {limit}")]
    CapacityExceedsLimit {
        /// What the peer asked for.
        capacity: u64,
        /// What our settings allow.
        limit: u64,
    },
    /// The peer inserts an entry that is larger than the dynamic table.
    #[error("an inserted entry does not fit the dynamic table")]
    EntryTooLarge,
    /// An instruction names a dynamic table entry that was evicted or never inserted.
    #[error("an instruction names an entry the dynamic table does not have")]
    InvalidIndex,
    /// The static table has no entry of this index.
    #[error("an instruction names an entry the static table does not have")]
    InvalidStaticIndex,
    /// An integer does not fit 62 bits.
    #[error("an integer on the encoder stream is too large")]
    IntegerOverflow,
    /// A Huffman-coded string breaks RFC 7541 section 5.2.
    #[error("a string on the encoder stream is not valid Huffman code: {0}")]
    Huffman(#[from] huffman::DecodeError),
}

/// The peer's decoder stream breaks the rules: `QPACK_DECODER_STREAM_ERROR`, an error of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecoderStreamError {
    /// An Insert Count Increment of zero.
    #[error("an insert count increment is zero")]
    IncrementIsZero,
    /// The peer says it received insertions that we never sent.
    #[error("an insert count increment exceeds what was sent")]
    IncrementExceedsInserts,
    /// The peer acknowledges a section that we never sent, or that needs no acknowledgment.
    #[error("a section acknowledgment for stream {stream_id}, which awaits none")]
    UnexpectedAcknowledgment {
        /// The stream that the peer named.
        stream_id: u64,
    },
    /// An integer does not fit 62 bits.
    #[error("an integer on the decoder stream is too large")]
    IntegerOverflow,
}
