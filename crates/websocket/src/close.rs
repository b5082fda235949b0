//! Why a connection is closed (RFC 6455 section 7.4).

use std::fmt;

use crate::Error;
use crate::frame::MAX_CONTROL_BYTES;

/// A status code of RFC 6455 section 7.4, or one that is registered or private.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose was fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server goes down, or the browser leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The other side broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// Data of a kind that is not taken.
    pub const UNSUPPORTED: Self = Self(1003);
    /// Data that is not what its kind says, such as text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A message that the receiver's policy does not allow.
    pub const POLICY: Self = Self(1008);
    /// A message that is too large.
    pub const TOO_LARGE: Self = Self(1009);
    /// The server met something that it did not expect.
    pub const INTERNAL_ERROR: Self = Self(1011);

    /// A code that may stand in a close frame.
    pub fn new(code: u16) -> Option<Self> {
        //= RFC 6455 section 7.4.1
        //# 1005 is a reserved value and MUST NOT be set as a status code in a Close control frame by an endpoint.
        // So are 1004, 1006 and 1015, and all that is not registered (section 7.4.2).
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(code))
    }

    /// The number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a close frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// Why.
    pub code: CloseCode,
    /// The same for people. At most 123 bytes are sent.
    pub text: String,
}

impl CloseReason {
    pub(crate) fn read(payload: &[u8]) -> Result<Option<Self>, Error> {
        match payload {
            [] => Ok(None),
            [_] => Err(Error::Protocol("a close frame has half a code")),
            [high, low, text @ ..] => {
                let code = CloseCode::new(u16::from_be_bytes([*high, *low])).ok_or(Error::Protocol("the close code is not allowed"))?;
                let text = std::str::from_utf8(text).map_err(|_| Error::NotUtf8)?.to_owned();
                Ok(Some(Self { code, text }))
            }
        }
    }

    /// Cut to what a control frame holds.
    pub(crate) fn write(&self) -> Vec<u8> {
        let text = &self.text[..self.text.floor_char_boundary(MAX_CONTROL_BYTES - 2)];
        [&self.code.0.to_be_bytes()[..], text.as_bytes()].concat()
    }
}

impl From<CloseCode> for CloseReason {
    fn from(code: CloseCode) -> Self {
        Self { code, text: String::new() }
    }
}
