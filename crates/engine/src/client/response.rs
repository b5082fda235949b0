//! The heads of HTTP/1.1 responses, where the library is lenient.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

use super::http1::Http1Error;

/// What the head of a response must not say; and takes out what does not count.
pub(super) fn check(status: StatusCode, headers: &mut HeaderMap, asks_upgrade: bool) -> Result<(), Http1Error> {
    if status == StatusCode::SWITCHING_PROTOCOLS && !asks_upgrade {
        return Err(Http1Error::Malformed("the server went on in another protocol unasked (101)".to_owned()));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    // RFC 9112, section 7.4: a client that takes others says so in `te`.
    if codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return Err(Http1Error::Malformed("the response has a transfer coding that nobody asked for".to_owned()));
    }
    // RFC 9112, section 6.3: it does not count, and whoever passes the response on has to take it out first.
    headers.remove(CONTENT_LENGTH);
    Ok(())
}
