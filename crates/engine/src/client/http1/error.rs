//! Errors of exchanges over HTTP/1.1.

use std::io;

use crate::http1::Malformed;

/// The error that ended an exchange over HTTP/1.1.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Http1Error {
    #[error("incomplete response")]
    Incomplete,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(String),
    /// The head has more bytes or field lines than the limits allow.
    #[error("response head too large")]
    HeadTooLarge,
    /// Nothing of the request was sent.
    #[error("{0}")]
    Refused(String),
    /// The body of the request could not be produced.
    #[error("the request body broke off: {0}")]
    Content(String),
}

impl From<Malformed> for Http1Error {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(format!("malformed response body: {malformed}"))
    }
}
