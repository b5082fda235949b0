//! What the protocols' errors mean for the exchange that they ended.

use h2::Reason;
use pronghorn_h3::ErrorCode;

use super::Error;
use crate::{BodyError, StreamError};

/// `sent`: whether the request was on its way.
pub(super) fn http1(error: &hyper::Error, sent: bool) -> Error {
    let text = error.to_string();
    // The library says that it was cancelled of a request that waited when the connection ended.
    if !sent || error.is_canceled() {
        Error::Refused(text)
    } else if error.is_closed() || error.is_incomplete_message() || is_io(error) {
        Error::Closed(text)
    } else {
        Error::Exchange(text)
    }
}

/// `sent`: whether the request was on its way.
pub(super) fn http2(error: &h2::Error, sent: bool) -> Error {
    let text = error.to_string();
    let reason = error.reason();
    // RFC 9113, section 8.7: nothing was done for a refused stream.
    let unprocessed = (!sent && (error.is_io() || error.is_go_away())) || reason == Some(Reason::REFUSED_STREAM);
    // A request that the peer had begun with is not ended by a graceful GOAWAY: this one came after the last that it names.
    if unprocessed || (error.is_go_away() && error.is_remote() && reason == Some(Reason::NO_ERROR)) {
        Error::Refused(text)
    } else if error.is_reset() {
        Error::Reset(text)
    } else if error.is_io() || error.is_go_away() {
        Error::Closed(text)
    } else {
        Error::Exchange(text)
    }
}

pub(super) fn http3(error: &StreamError) -> Error {
    let text = error.to_string();
    match error {
        StreamError::Refused(_) | StreamError::Reset(ErrorCode::H3_REQUEST_REJECTED) => Error::Refused(text),
        StreamError::Reset(_) => Error::Reset(text),
        StreamError::ConnectionClosed(_) => Error::Closed(text),
        StreamError::ConnectionLost => Error::Lost(text),
        StreamError::NotOffered(upgrade) => Error::NoUpgrade(upgrade.to_string()),
        StreamError::Malformed(_) => Error::Exchange(text),
    }
}

/// Why the content of a response broke off.
impl From<&BodyError> for Error {
    fn from(error: &BodyError) -> Self {
        if let Some(error) = error.downcast_ref::<StreamError>() {
            http3(error)
        } else if let Some(error) = error.downcast_ref::<h2::Error>() {
            http2(error, true)
        } else if let Some(error) = error.downcast_ref::<hyper::Error>() {
            http1(error, true)
        } else {
            Self::Exchange(error.to_string())
        }
    }
}

fn is_io(error: &hyper::Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
}
