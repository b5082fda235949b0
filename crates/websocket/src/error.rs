//! Errors caused by the peer.

use crate::close_code::CloseCode;

/// Reason why a connection failed. It is always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid frame or sequence of frames.
    #[error("{0}")]
    Protocol(&'static str),
    /// Text or a close reason that is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A message that exceeds the size limit.
    #[error("the message is too large")]
    TooLarge,
    /// Invalid compressed data.
    #[error("invalid compressed message")]
    NotDeflate,
}

impl Error {
    /// Returns the close code to send.
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::Protocol(_) => CloseCode::PROTOCOL_ERROR,
            Self::NotUtf8 | Self::NotDeflate => CloseCode::INVALID_PAYLOAD,
            Self::TooLarge => CloseCode::TOO_LARGE,
        }
    }
}
