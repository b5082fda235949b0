//! What a peer can do wrong.

use crate::CloseCode;

/// Why a connection failed. It is the peer's fault in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A frame or a sequence of frames that the protocol does not allow.
    #[error("{0}")]
    Protocol(&'static str),
    /// Text, or the reason of a close, that is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A message of more bytes than are taken.
    #[error("the message is too large")]
    TooLarge,
    /// A compressed message that is none.
    #[error("the compressed message is not valid")]
    NotDeflate,
}

impl Error {
    /// What the peer is told.
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::Protocol(_) => CloseCode::PROTOCOL_ERROR,
            Self::NotUtf8 | Self::NotDeflate => CloseCode::INVALID_PAYLOAD,
            Self::TooLarge => CloseCode::TOO_LARGE,
        }
    }
}
