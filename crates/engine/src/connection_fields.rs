//! Fields that belong to one HTTP/1.1 connection and are not forwarded.

use http::{HeaderMap, HeaderName};

/// Removes the fields of one HTTP/1.1 connection (RFC 9110, section 7.6.1), but keeps `te`, which a
/// request may have.
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    remove_any(headers, |name| {
        matches!(
            name.as_str(),
            "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection"
        )
    });
}

/// Like [`remove_connection_fields`], for responses and trailers, and removes `te` too: it would
/// make the message malformed (RFC 9113, section 8.2.2).
pub(crate) fn remove_connection_fields_of_response(headers: &mut HeaderMap) {
    remove_any(headers, |name| {
        matches!(
            name.as_str(),
            "connection"
                | "transfer-encoding"
                | "upgrade"
                | "keep-alive"
                | "proxy-connection"
                | "te"
        )
    });
}

fn remove_any(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    // One look at each name, instead of one map lookup for each of these fields.
    while let Some(name) = headers.keys().find(|name| is_removed(name)).cloned() {
        headers.remove(name);
    }
}
