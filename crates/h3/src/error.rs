//! Error codes of the wire, and the errors of this crate.

mod code;

use pronghorn_qpack::{DecoderStreamError, DecompressionError, EncoderStreamError};

pub use code::ErrorCode;

use crate::{limit::Limit, stream::StreamId};

/// A protocol violation that ends the connection: close it with this code and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct ConnectionError {
    code: ErrorCode,
    reason: &'static str,
    limit: Option<Limit>,
}

impl ConnectionError {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason, limit: None }
    }

    /// The peer exceeded a limit.
    pub(crate) const fn limit_reached(limit: Limit) -> Self {
        Self { code: limit.code(), reason: limit.reason(), limit: Some(limit) }
    }

    /// Returns the code for CONNECTION_CLOSE.
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// Returns a short description of the violation.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }

    /// Returns the limit that the peer exceeded, if any.
    pub const fn limit(&self) -> Option<Limit> {
        self.limit
    }
}

/// An error of one request or response; the connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamFault {
    pub(crate) code: ErrorCode,
    pub(crate) reason: &'static str,
    pub(crate) limit: Option<Limit>,
}

impl StreamFault {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> Self {
        Self { code, reason, limit: None }
    }

    /// The message exceeded a limit.
    pub(crate) const fn limit_reached(limit: Limit) -> Self {
        Self { code: limit.code(), reason: limit.reason(), limit: Some(limit) }
    }

    /// The message is malformed (RFC 9114 section 4.1.2).
    pub(crate) const fn malformed(reason: &'static str) -> Self {
        Self::new(ErrorCode::H3_MESSAGE_ERROR, reason)
    }
}

/// A message that cannot be sent. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The stream is not a request stream, was never opened for sending, or is already finished.
    #[error("stream {stream} is not open for sending")]
    StreamNotOpen {
        /// The stream.
        stream: StreamId,
    },
    /// The peer accepts no more requests on this connection: retry on another one.
    #[error("the peer accepts no new requests on this connection")]
    GoingAway,
    /// The section violates RFC 9114 section 4.2 or 4.3, so that the peer would have to reject it.
    #[error("the field section is malformed: {reason}")]
    Malformed {
        /// Short description of the violation.
        reason: &'static str,
    },
    /// The field section exceeds the peer's limit.
    #[error("the field section of {size} bytes exceeds the peer's limit of {limit}")]
    FieldSectionTooLarge {
        /// Size as defined in RFC 9114 section 4.2.2.
        size: u64,
        /// The peer's SETTINGS_MAX_FIELD_SECTION_SIZE.
        limit: u64,
    },
    /// Trailers were already sent, or the frame is not permitted at this point of the message.
    #[error("the message on stream {stream} has ended with its trailers")]
    MessageComplete {
        /// The stream.
        stream: StreamId,
    },
}

/// Whether a decompression error concerns the message or the connection.
pub(crate) enum DecodeFault {
    Stream(StreamFault),
    Connection(ConnectionError),
}

impl From<DecompressionError> for DecodeFault {
    fn from(error: DecompressionError) -> Self {
        match error {
            DecompressionError::SectionTooLarge { .. } => {
                Self::Stream(StreamFault::limit_reached(Limit::FieldSectionSize))
            }
            //= RFC 9204 section 7.4
            //# If an implementation encounters a value larger than it is able to decode, this MUST be treated as a stream error
            //# of type QPACK_DECOMPRESSION_FAILED if on a request stream or a connection error of the appropriate type if on
            //# the encoder or decoder stream.
            DecompressionError::IntegerOverflow => Self::Stream(StreamFault::new(
                ErrorCode::QPACK_DECOMPRESSION_FAILED,
                "an integer in the field section is too large",
            )),
            DecompressionError::TooManyBlockedStreams { .. } => {
                Self::Connection(ConnectionError::limit_reached(Limit::QpackBlockedStreams))
            }
            _ => Self::Connection(ConnectionError::new(
                ErrorCode::QPACK_DECOMPRESSION_FAILED,
                match error {
                    DecompressionError::Truncated => "a field section is truncated",
                    DecompressionError::InvalidStaticIndex => {
                        "a field section refers to an invalid static table entry"
                    }
                    DecompressionError::InvalidDynamicIndex => {
                        "a field section refers to an invalid dynamic table entry"
                    }
                    DecompressionError::InvalidRequiredInsertCount => {
                        "invalid required insert count"
                    }
                    DecompressionError::NegativeBase => "the base of a field section is negative",
                    DecompressionError::Huffman(_) => "invalid Huffman coding",
                    DecompressionError::SectionTooLarge { .. }
                    | DecompressionError::IntegerOverflow
                    | DecompressionError::TooManyBlockedStreams { .. } => {
                        unreachable!("invariant: matched above")
                    }
                },
            )),
        }
    }
}

impl From<EncoderStreamError> for ConnectionError {
    fn from(error: EncoderStreamError) -> Self {
        let reason = match error {
            EncoderStreamError::CapacityExceedsLimit { .. } => {
                return Self::limit_reached(Limit::QpackTableCapacity);
            }
            EncoderStreamError::EntryTooLarge => "an inserted entry does not fit the dynamic table",
            EncoderStreamError::InvalidIndex => {
                "an instruction refers to an invalid dynamic table entry"
            }
            EncoderStreamError::InvalidStaticIndex => {
                "an instruction refers to an invalid static table entry"
            }
            EncoderStreamError::Huffman(_) => "invalid Huffman coding on the encoder stream",
            EncoderStreamError::IntegerOverflow => "an integer on the encoder stream is too large",
        };
        Self::new(ErrorCode::QPACK_ENCODER_STREAM_ERROR, reason)
    }
}

impl From<DecoderStreamError> for ConnectionError {
    fn from(error: DecoderStreamError) -> Self {
        let reason = match error {
            DecoderStreamError::IncrementIsZero => "an insert count increment is zero",
            DecoderStreamError::IncrementExceedsInserts => {
                "an insert count increment exceeds the sent insertions"
            }
            DecoderStreamError::UnexpectedAcknowledgment { .. } => {
                "unexpected section acknowledgment"
            }
            DecoderStreamError::IntegerOverflow => "an integer on the decoder stream is too large",
        };
        Self::new(ErrorCode::QPACK_DECODER_STREAM_ERROR, reason)
    }
}
