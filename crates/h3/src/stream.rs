//! Stream IDs and the types of unidirectional streams.

use std::fmt;

/// The ID of a QUIC stream (RFC 9000 section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The largest ID of a client-initiated bidirectional stream, used in the first GOAWAY of a
    /// graceful shutdown.
    pub const MAX_REQUEST: Self = Self((1 << 62) - 4);

    /// Returns whether both endpoints send on the stream.
    pub const fn is_bidi(self) -> bool {
        self.0 & 0b10 == 0
    }

    /// Returns whether the client opened the stream.
    pub const fn is_client_initiated(self) -> bool {
        self.0 & 0b01 == 0
    }

    /// Returns whether it carries a request: client-initiated and bidirectional.
    pub const fn is_request(self) -> bool {
        self.is_bidi() && self.is_client_initiated()
    }
}

impl From<u64> for StreamId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl From<StreamId> for u64 {
    fn from(id: StreamId) -> Self {
        id.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of a unidirectional stream (RFC 9114 section 6.2): its first varint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamType(pub u64);

impl StreamType {
    /// Control stream (RFC 9114 section 6.2.1).
    pub const CONTROL: Self = Self(0x00);
    /// Push stream (RFC 9114 section 6.2.2).
    pub const PUSH: Self = Self(0x01);
    /// QPACK encoder stream (RFC 9204 section 4.2).
    pub const QPACK_ENCODER: Self = Self(0x02);
    /// QPACK decoder stream (RFC 9204 section 4.2).
    pub const QPACK_DECODER: Self = Self(0x03);
    /// Stream of a WebTransport session (draft-ietf-webtrans-http3 section 4.2, the same in all
    /// drafts).
    pub const WEBTRANSPORT: Self = Self(0x54);

    /// Returns whether the type is reserved to exercise the rule that unknown types are ignored
    /// (RFC 9114 section 6.2.3).
    pub(crate) const fn is_reserved(self) -> bool {
        self.0 >= 0x21 && (self.0 - 0x21).is_multiple_of(0x1f)
    }
}
