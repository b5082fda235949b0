//! Close codes (RFC 6455 section 7.4.1).

use std::fmt;

/// A status code defined in RFC 6455 section 7.4, registered, or private.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(pub(crate) u16);

impl CloseCode {
    /// Normal closure.
    pub const NORMAL: Self = Self(1000);
    /// The server is shutting down, or the browser is leaving the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// Data of an unsupported type.
    pub const UNSUPPORTED: Self = Self(1003);
    /// Data that does not match its type, such as text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A message that violates the receiver's policy.
    pub const POLICY: Self = Self(1008);
    /// A message that is too large.
    pub const TOO_LARGE: Self = Self(1009);
    /// Unexpected condition in the server.
    pub const INTERNAL_ERROR: Self = Self(1011);

    /// Returns a code that is permitted in a close frame.
    pub fn new(code: u16) -> Option<Self> {
        //= RFC 6455 section 7.4.1
        //# 1005 is a reserved value and MUST NOT be set as a status code in a Close control frame by an endpoint.
        // Not permitted are 1004, 1006, 1015 and unregistered codes (section 7.4.2).
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(code))
    }

    /// Returns the number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
