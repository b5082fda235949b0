//! The `sec-websocket-extensions` field (RFC 6455 section 9.1).

use super::window::MAX_WINDOW_BITS;

/// One element of the list.
pub(super) struct Extension<'a> {
    pub(super) name: &'a str,
    /// Parameter names and unquoted values.
    parameters: Vec<(&'a str, Option<&'a str>)>,
}

/// Returns the elements of a field value. A malformed element gets an unknown name.
pub(super) fn list(value: &str) -> impl Iterator<Item = Extension<'_>> {
    // Known parameter values contain no quoted commas or semicolons. Splitting a value that does
    // yields malformed elements only.
    value.split(',').map(|element| {
        let mut parts = element.split(';').map(str::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let parameters = parts.map(|part| match part.split_once('=') {
            Some((name, value)) => {
                (name.trim_ascii_end(), Some(unquoted(value.trim_ascii_start())))
            }
            None => (part, None),
        });
        Extension { name, parameters: parameters.collect() }
    })
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// Parameters of permessage-deflate (RFC 7692 section 7.1). A window without a value means the
/// largest.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) server_no_context_takeover: bool,
    pub(super) client_no_context_takeover: bool,
    pub(super) server_max_window_bits: Option<u8>,
    pub(super) client_max_window_bits: Option<u8>,
}

impl Parameters {
    /// Returns `None` if the element must be declined because a parameter is unknown, repeated, or
    /// has an invalid value.
    pub(super) fn read(extension: &Extension<'_>) -> Option<Self> {
        let mut read = Self::default();
        for (name, value) in &extension.parameters {
            let is_new = match (*name, value) {
                ("server_no_context_takeover", None) => {
                    !std::mem::replace(&mut read.server_no_context_takeover, true)
                }
                ("client_no_context_takeover", None) => {
                    !std::mem::replace(&mut read.client_no_context_takeover, true)
                }
                ("server_max_window_bits", Some(value)) => {
                    read.server_max_window_bits.replace(window_bits(value)?).is_none()
                }
                ("client_max_window_bits", Some(value)) => {
                    read.client_max_window_bits.replace(window_bits(value)?).is_none()
                }
                ("client_max_window_bits", None) => {
                    read.client_max_window_bits.replace(MAX_WINDOW_BITS).is_none()
                }
                _ => false,
            };
            if !is_new {
                return None;
            }
        }
        Some(read)
    }
}

/// RFC 7692, section 7.1.2.1: a decimal number between 8 and 15 without leading zeroes.
fn window_bits(value: &str) -> Option<u8> {
    let number = value.parse().ok().filter(|bits| (8..=15).contains(bits))?;
    (value == format!("{number}")).then_some(number)
}
