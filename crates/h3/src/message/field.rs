//! Rules for every field line, in headers and trailers, requests and responses.

use pronghorn_qpack::{SectionLine, static_table};

use super::word_scan::has_controls;
use crate::error::StreamFault;

/// Kind of a field line, as far as this layer distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
    ContentLength,
    Host,
    Te,
    Other,
}

impl Name {
    pub(super) const fn is_pseudo(self) -> bool {
        matches!(
            self,
            Self::Method
                | Self::Scheme
                | Self::Authority
                | Self::Path
                | Self::Protocol
                | Self::Status
        )
    }
}

/// Checks a line's name and value in isolation and returns its kind.
#[inline]
pub(super) fn classify(line: &SectionLine<'_>) -> Result<Name, StreamFault> {
    let name = match line.static_name_index() {
        Some(index) => STATIC_NAMES[usize::from(index)],
        None => classify_spelled(line.name)?,
    };
    //= RFC 9114 section 10.3
    //# Any request or response that contains a character not permitted in a field value MUST be treated as malformed.
    // Values of the static table are valid.
    if line.has_static_value() || is_valid_value(line.value) {
        Ok(name)
    } else {
        Err(StreamFault::malformed("a field value has invalid characters"))
    }
}

/// [`Name`] for each index of the static table.
static STATIC_NAMES: [Name; static_table::LEN] = {
    let mut names = [Name::Other; static_table::LEN];
    let mut index = 0;
    while index < static_table::LEN {
        names[index] = match static_table::name(index as u8) {
            b":method" => Name::Method,
            b":scheme" => Name::Scheme,
            b":authority" => Name::Authority,
            b":path" => Name::Path,
            b":status" => Name::Status,
            b"content-length" => Name::ContentLength,
            _ => Name::Other,
        };
        index += 1;
    }
    names
};

fn classify_spelled(name: &[u8]) -> Result<Name, StreamFault> {
    if name.first() == Some(&b':') {
        return match name {
            b":method" => Ok(Name::Method),
            b":scheme" => Ok(Name::Scheme),
            b":authority" => Ok(Name::Authority),
            b":path" => Ok(Name::Path),
            b":protocol" => Ok(Name::Protocol),
            b":status" => Ok(Name::Status),
            //= RFC 9114 section 4.3
            //# Endpoints MUST treat a request or response that contains undefined or invalid pseudo-header fields as
            //# malformed.
            _ => Err(StreamFault::malformed("undefined pseudo-header field")),
        };
    }
    //= RFC 9114 section 4.2
    //# A request or response containing uppercase characters in field names MUST be treated as malformed.
    //= RFC 9114 section 10.3
    //# Requests or responses containing invalid field names MUST be treated as malformed.
    if name.is_empty() || !name.iter().all(|&byte| is_lowercase_token(byte)) {
        return Err(StreamFault::malformed("a field name has invalid characters"));
    }
    //= RFC 9114 section 4.2
    //# An endpoint MUST NOT generate an HTTP/3 field section containing connection-specific fields; any message
    //# containing connection-specific fields MUST be treated as malformed.
    if is_connection_specific(name) {
        return Err(StreamFault::malformed("a connection-specific field is present"));
    }
    Ok(match name {
        b"content-length" => Name::ContentLength,
        b"host" => Name::Host,
        b"te" => Name::Te,
        _ => Name::Other,
    })
}

/// Returns whether HTTP/3 does not permit this field (RFC 9114 section 4.2).
#[inline]
pub(super) fn is_connection_specific(name: &[u8]) -> bool {
    match name.len() {
        7 => name == b"upgrade",
        10 => name == b"connection" || name == b"keep-alive",
        16 => name == b"proxy-connection",
        17 => name == b"transfer-encoding",
        _ => false,
    }
}

/// Checks a `te` field of a request; anywhere else it is connection-specific, whatever its value.
pub(super) fn check_te(value: &[u8]) -> Result<(), StreamFault> {
    //= RFC 9114 section 4.2
    //# The only exception to this is the TE header field, which MAY be present in an HTTP/3 request header; when it is,
    //# it MUST NOT contain any value other than "trailers".
    if value.eq_ignore_ascii_case(b"trailers") {
        Ok(())
    } else {
        Err(StreamFault::malformed("te has a value other than trailers"))
    }
}

pub(super) const STRAY_TE: StreamFault =
    StreamFault::malformed("te is only permitted in request headers");

/// Records a `content-length`.
pub(super) fn set_content_length(noted: &mut Option<u64>, value: &[u8]) -> Result<(), StreamFault> {
    let length =
        parse_decimal(value).ok_or(StreamFault::malformed("content-length is not a number"))?;
    //= RFC 9110 section 8.6
    //# a recipient of a Content-Length header field value consisting of the same decimal value repeated as a
    //# comma-separated list (e.g, "Content-Length: 42, 42") MAY either reject the message as invalid or replace that
    //# invalid field value with a single instance of the decimal value
    if noted.replace(length).is_some() {
        return Err(StreamFault::malformed("duplicate content-length"));
    }
    Ok(())
}

fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// A character of a token (RFC 9110 section 5.6.2).
pub(super) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// [`is_token`] without upper-case letters, as a lookup table: names are frequent.
#[inline]
fn is_lowercase_token(byte: u8) -> bool {
    static TABLE: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = is_token(byte as u8) && !(byte as u8).is_ascii_uppercase();
            byte += 1;
        }
        table
    };
    TABLE[usize::from(byte)]
}

/// RFC 9110 section 5.5: no control characters except tabs, no white space around the value.
#[inline]
fn is_valid_value(value: &[u8]) -> bool {
    let has_controls =
        has_controls(value) && value.iter().any(|&byte| byte != b'\t' && byte.is_ascii_control());
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !has_controls && !is_space(value.first()) && !is_space(value.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_static_table_need_no_check() {
        assert!(
            (0..static_table::LEN as u8).all(|index| is_valid_value(static_table::value(index)))
        );
    }
}
