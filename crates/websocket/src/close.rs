//! Close reasons (RFC 6455 section 7.4).

use crate::Error;
use crate::close_code::CloseCode;
use crate::frame::MAX_CONTROL_BYTES;

/// The content of a close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// The status code.
    pub code: CloseCode,
    /// Explanation for people. At most 123 bytes are sent.
    pub text: String,
}

impl CloseReason {
    pub(crate) fn read(payload: &[u8]) -> Result<Option<Self>, Error> {
        match payload {
            [] => Ok(None),
            [_] => Err(Error::Protocol("the close frame has a one-byte payload")),
            [high, low, text @ ..] => {
                let code = CloseCode::new(u16::from_be_bytes([*high, *low]))
                    .ok_or(Error::Protocol("the close code is not permitted"))?;
                let text = std::str::from_utf8(text).map_err(|_| Error::NotUtf8)?.to_owned();
                Ok(Some(Self { code, text }))
            }
        }
    }

    /// Truncated to the size of a control frame.
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
