//! Checks of HTTP/1.1 response heads beyond parsing.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

use super::http1::Http1Error;

/// Refuses invalid response heads, and removes fields that have no effect.
pub(super) fn check(
    status: StatusCode,
    headers: &mut HeaderMap,
    asks_upgrade: bool,
) -> Result<(), Http1Error> {
    if status == StatusCode::SWITCHING_PROTOCOLS && !asks_upgrade {
        return Err(Http1Error::Malformed(
            "the server switched protocols without an upgrade request (101)".to_owned(),
        ));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    // RFC 9112, section 7.4: a client that accepts other codings lists them in `te`.
    if codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
    {
        return Err(Http1Error::Malformed(
            "unsupported transfer coding in the response".to_owned(),
        ));
    }
    // RFC 9112, section 6.3: it has no effect beside `transfer-encoding`, and has to be removed
    // before the response is forwarded.
    headers.remove(CONTENT_LENGTH);
    Ok(())
}
