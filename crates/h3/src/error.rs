//! Error codes of the wire, and the errors of this crate.

use std::fmt;

use pronghorn_qpack::{DecoderStreamError, DecompressionError, EncoderStreamError};

use crate::{limit::Limit, stream::StreamId};

/// An application error code (RFC 9114 section 8.1, RFC 9204 section 6, RFC 9297 section 5.2, draft-ietf-webtrans-http3 section 9.5).
/// Peers may use any other value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u64);

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The name in the RFC, if it has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    /// A datagram or capsule breaks its rules.
    H3_DATAGRAM_ERROR = 0x33;
    /// Nothing is wrong; the connection or stream is simply not needed any more.
    H3_NO_ERROR = 0x100;
    /// A rule was broken for which there is no better code.
    H3_GENERAL_PROTOCOL_ERROR = 0x101;
    /// The fault is ours.
    H3_INTERNAL_ERROR = 0x102;
    /// The peer opened a stream that we do not accept.
    H3_STREAM_CREATION_ERROR = 0x103;
    /// The peer closed a stream that the connection needs.
    H3_CLOSED_CRITICAL_STREAM = 0x104;
    /// A frame is not permitted in this state or on this stream.
    H3_FRAME_UNEXPECTED = 0x105;
    /// A frame's layout or size is wrong.
    H3_FRAME_ERROR = 0x106;
    /// The peer behaves in a way that costs too much.
    H3_EXCESSIVE_LOAD = 0x107;
    /// A stream ID or push ID is used against its rules.
    H3_ID_ERROR = 0x108;
    /// A SETTINGS frame's payload is wrong.
    H3_SETTINGS_ERROR = 0x109;
    /// The control stream does not begin with SETTINGS.
    H3_MISSING_SETTINGS = 0x10a;
    /// The request was not processed at all; it may be retried.
    H3_REQUEST_REJECTED = 0x10b;
    /// The request or its response is not needed any more.
    H3_REQUEST_CANCELLED = 0x10c;
    /// The request ended before it was complete.
    H3_REQUEST_INCOMPLETE = 0x10d;
    /// The message is malformed.
    H3_MESSAGE_ERROR = 0x10e;
    /// The connection behind a CONNECT request was reset.
    H3_CONNECT_ERROR = 0x10f;
    /// The operation cannot be served over HTTP/3: retry over HTTP/1.1.
    H3_VERSION_FALLBACK = 0x110;
    /// A field section cannot be decoded.
    QPACK_DECOMPRESSION_FAILED = 0x200;
    /// The encoder stream breaks the rules.
    QPACK_ENCODER_STREAM_ERROR = 0x201;
    /// The decoder stream breaks the rules.
    QPACK_DECODER_STREAM_ERROR = 0x202;
    /// The stream belongs to a WebTransport session that has ended.
    WEBTRANSPORT_SESSION_GONE = 0x170d_7b68;
    /// The stream belongs to a WebTransport session that is not there, and too many such streams wait for theirs.
    WEBTRANSPORT_BUFFERED_STREAM_REJECTED = 0x3994_bd84;
}

/// The code of application error 0 on a WebTransport stream.
const FIRST_APPLICATION_ERROR: u64 = 0x52e4_a40f_a8db;
/// The code of application error 2^32 - 1.
const LAST_APPLICATION_ERROR: u64 = 0x52e5_ac98_3162;

impl ErrorCode {
    /// What the reset of a WebTransport stream carries for an error of the application (draft-ietf-webtrans-http3 section 4.4). Codes of
    /// the form 0x1f * N + 0x21, which HTTP/3 reserves, are left out.
    pub const fn from_application(code: u32) -> Self {
        let code = code as u64;
        Self(FIRST_APPLICATION_ERROR + code + code / 0x1e)
    }

    /// The application's error that the reset of a WebTransport stream carries; `None` if it is an error of the protocol.
    pub const fn to_application(self) -> Option<u32> {
        if self.0 < FIRST_APPLICATION_ERROR || self.0 > LAST_APPLICATION_ERROR || (self.0 - 0x21).is_multiple_of(0x1f) {
            return None;
        }
        let shifted = self.0 - FIRST_APPLICATION_ERROR;
        Some((shifted - shifted / 0x1f) as u32)
    }
}

impl From<ErrorCode> for u64 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

//= RFC 9114 section 8
//# Because new error codes can be defined without negotiation (see Section 9), use of an error code in an unexpected
//# context or receipt of an unknown error code MUST be treated as equivalent to H3_NO_ERROR.
impl From<u64> for ErrorCode {
    fn from(code: u64) -> Self {
        Self(code)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The peer broke a rule that ends the connection: close it with this code and reason.
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

    /// The peer went beyond a limit.
    pub(crate) const fn limit_reached(limit: Limit) -> Self {
        Self { code: limit.code(), reason: limit.reason(), limit: Some(limit) }
    }

    /// What CONNECTION_CLOSE has to carry.
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// What the peer did, in a few words.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }

    /// The limit that the peer has reached, if that is what it did.
    pub const fn limit(&self) -> Option<Limit> {
        self.limit
    }
}

/// What is wrong with one request or response; the connection goes on.
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

    /// The message went beyond a limit.
    pub(crate) const fn limit_reached(limit: Limit) -> Self {
        Self { code: limit.code(), reason: limit.reason(), limit: Some(limit) }
    }

    /// The message is malformed (RFC 9114 section 4.1.2).
    pub(crate) const fn malformed(reason: &'static str) -> Self {
        Self::new(ErrorCode::H3_MESSAGE_ERROR, reason)
    }
}

/// The caller cannot send this. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The stream is not a request stream, or not open for sending: never opened, or finished already.
    #[error("stream {stream} is not open for sending")]
    StreamNotOpen {
        /// The stream that was named.
        stream: StreamId,
    },
    /// The peer said that it takes no requests any more: retry on another connection.
    #[error("the peer takes no new requests on this connection")]
    GoingAway,
    /// The section breaks a rule of RFC 9114 section 4.2 or 4.3, and the peer would have to refuse it.
    #[error("the field section is malformed: {reason}")]
    Malformed {
        /// What is wrong, in a few words.
        reason: &'static str,
    },
    /// The field section exceeds what the peer says it takes.
    #[error("the field section of {size} bytes exceeds the peer's limit of {limit}")]
    FieldSectionTooLarge {
        /// The size as RFC 9114 section 4.2.2 counts it.
        size: u64,
        /// SETTINGS_MAX_FIELD_SECTION_SIZE of the peer.
        limit: u64,
    },
    /// Trailers were sent already, or the frame may not come at this point of the message.
    #[error("the message on stream {stream} has ended with its trailers")]
    MessageComplete {
        /// The stream that was named.
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
            DecompressionError::SectionTooLarge { .. } => Self::Stream(StreamFault::limit_reached(Limit::FieldSectionSize)),
            //= RFC 9204 section 7.4
            //# If an implementation encounters a value larger than it is able to decode, this MUST be treated as a stream error
            //# of type QPACK_DECOMPRESSION_FAILED if on a request stream or a connection error of the appropriate type if on
            //# the encoder or decoder stream.
            DecompressionError::IntegerOverflow => {
                Self::Stream(StreamFault::new(ErrorCode::QPACK_DECOMPRESSION_FAILED, "an integer in the field section is too large"))
            }
            DecompressionError::TooManyBlockedStreams { .. } => {
                Self::Connection(ConnectionError::limit_reached(Limit::QpackBlockedStreams))
            }
            _ => Self::Connection(ConnectionError::new(
                ErrorCode::QPACK_DECOMPRESSION_FAILED,
                match error {
                    DecompressionError::Truncated => "a field section is truncated",
                    DecompressionError::InvalidStaticIndex => "a field section names no entry of the static table",
                    DecompressionError::InvalidDynamicIndex => "a field section names no entry of the dynamic table",
                    DecompressionError::InvalidRequiredInsertCount => "a required insert count is impossible",
                    DecompressionError::NegativeBase => "the base of a field section is negative",
                    DecompressionError::Huffman(_) => "a string is not valid Huffman code",
                    DecompressionError::SectionTooLarge { .. }
                    | DecompressionError::IntegerOverflow
                    | DecompressionError::TooManyBlockedStreams { .. } => unreachable!("invariant: matched above"),
                },
            )),
        }
    }
}

impl From<EncoderStreamError> for ConnectionError {
    fn from(error: EncoderStreamError) -> Self {
        let reason = match error {
            EncoderStreamError::CapacityExceedsLimit { .. } => return Self::limit_reached(Limit::QpackTableCapacity),
            EncoderStreamError::EntryTooLarge => "an inserted entry does not fit the dynamic table",
            EncoderStreamError::InvalidIndex => "an instruction names no entry of the dynamic table",
            EncoderStreamError::InvalidStaticIndex => "an instruction names no entry of the static table",
            EncoderStreamError::Huffman(_) => "a string on the encoder stream is not valid Huffman code",
            EncoderStreamError::IntegerOverflow => "an integer on the encoder stream is too large",
        };
        Self::new(ErrorCode::QPACK_ENCODER_STREAM_ERROR, reason)
    }
}

impl From<DecoderStreamError> for ConnectionError {
    fn from(error: DecoderStreamError) -> Self {
        let reason = match error {
            DecoderStreamError::IncrementIsZero => "an insert count increment is zero",
            DecoderStreamError::IncrementExceedsInserts => "an insert count increment exceeds what was sent",
            DecoderStreamError::UnexpectedAcknowledgment { .. } => "a section acknowledgment that nothing awaits",
            DecoderStreamError::IntegerOverflow => "an integer on the decoder stream is too large",
        };
        Self::new(ErrorCode::QPACK_DECODER_STREAM_ERROR, reason)
    }
}
