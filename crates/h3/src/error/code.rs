//! Error codes of the wire.

use std::fmt;

/// An application error code (RFC 9114 section 8.1, RFC 9204 section 6, RFC 9297 section 5.2,
/// draft-ietf-webtrans-http3 section 9.5). Peers may use any other value.
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
    /// No error; the connection or stream is no longer needed.
    H3_NO_ERROR = 0x100;
    /// A protocol violation without a more specific code.
    H3_GENERAL_PROTOCOL_ERROR = 0x101;
    /// An internal error of this endpoint.
    H3_INTERNAL_ERROR = 0x102;
    /// The peer opened a stream that we do not accept.
    H3_STREAM_CREATION_ERROR = 0x103;
    /// The peer closed a stream that the connection needs.
    H3_CLOSED_CRITICAL_STREAM = 0x104;
    /// A frame is not permitted in this state or on this stream.
    H3_FRAME_UNEXPECTED = 0x105;
    /// A frame's layout or size is wrong.
    H3_FRAME_ERROR = 0x106;
    /// The peer causes excessive load.
    H3_EXCESSIVE_LOAD = 0x107;
    /// A stream ID or push ID is used against its rules.
    H3_ID_ERROR = 0x108;
    /// A SETTINGS frame's payload is wrong.
    H3_SETTINGS_ERROR = 0x109;
    /// The control stream does not begin with SETTINGS.
    H3_MISSING_SETTINGS = 0x10a;
    /// The request was not processed at all; it may be retried.
    H3_REQUEST_REJECTED = 0x10b;
    /// The request or its response is no longer needed.
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
    /// The stream's WebTransport session does not exist, and too many such streams are waiting.
    WEBTRANSPORT_BUFFERED_STREAM_REJECTED = 0x3994_bd84;
}

/// The code of application error 0 on a WebTransport stream.
const FIRST_APPLICATION_ERROR: u64 = 0x52e4_a40f_a8db;
/// The code of application error 2^32 - 1.
const LAST_APPLICATION_ERROR: u64 = 0x52e5_ac98_3162;

impl ErrorCode {
    /// Returns the code for a reset of a WebTransport stream with an application error
    /// (draft-ietf-webtrans-http3 section 4.4). Codes of the form 0x1f * N + 0x21, which HTTP/3
    /// reserves, are skipped.
    pub const fn from_application(code: u32) -> Self {
        let code = code as u64;
        Self(FIRST_APPLICATION_ERROR + code + code / 0x1e)
    }

    /// Returns the application error of a WebTransport stream's reset. `None` if the code is a
    /// protocol error.
    pub const fn to_application(self) -> Option<u32> {
        if self.0 < FIRST_APPLICATION_ERROR
            || self.0 > LAST_APPLICATION_ERROR
            || (self.0 - 0x21).is_multiple_of(0x1f)
        {
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
