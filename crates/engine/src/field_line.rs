//! Field lines on their way to an encoder or a trace.

use http::{HeaderName, HeaderValue};
use pronghorn_h3::FieldLine;

/// Whether a field's value is a secret, so that no compression table, log or trace may hold it.
pub(crate) fn is_secret(name: &[u8]) -> bool {
    matches!(name, b"authorization" | b"proxy-authorization" | b"cookie" | b"set-cookie")
}

/// The line for an encoder, marked if it is a secret.
pub(crate) fn field_line<'a>(name: &'a HeaderName, value: &'a HeaderValue) -> FieldLine<'a> {
    let name = name.as_str().as_bytes();
    FieldLine {
        name,
        value: value.as_bytes(),
        never_index: value.is_sensitive() || is_secret(name),
    }
}
