//! Octets of a path and their canonical form.

/// Class of an octet in a path.
const PLAIN: u8 = 0;
const SLASH: u8 = 1;
const DOT: u8 = 2;
/// Needs the slow path: an escape, `;`, or an octet that must be percent-encoded.
const OTHER: u8 = 4;

static CLASS: [u8; 256] = {
    let mut table = [OTHER; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        table[byte as usize] = match byte {
            b'/' => SLASH,
            b'.' => DOT,
            b';' => OTHER,
            _ if is_pchar(byte) => PLAIN,
            _ => OTHER,
        };
        byte += 1;
    }
    table
};

/// Returns whether an octet may occur unencoded in a segment (RFC 3986, section 3.3, without the
/// percent sign).
pub(crate) const fn is_pchar(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
        )
}

/// Returns whether an octet means the same percent-encoded or not (RFC 3986, section 2.3).
pub(crate) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns whether a path is canonical and has no other reading, as nearly all paths.
pub(crate) fn is_plain(path: &str) -> bool {
    let mut before = PLAIN;
    for (index, byte) in path.bytes().enumerate() {
        let class = CLASS[usize::from(byte)];
        // Segments that are empty or start with a dot need the slow path.
        if class == OTHER || (before == SLASH && class != PLAIN) || (index == 0 && class != SLASH) {
            return false;
        }
        before = class;
    }
    !path.is_empty()
}

/// Returns the octet of the escape at the start of `rest`, or `None` if the escape is malformed.
pub(crate) fn escape(rest: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = rest else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Writes an octet percent-encoded, in upper case (RFC 3986, section 2.1).
pub(crate) fn push_escape(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Writes a segment in the form in which segments are compared: octets that may occur unencoded are
/// unencoded, all others are percent-encoded in upper case.
///
/// `segment` has no malformed escape.
pub(crate) fn push_comparable(text: &mut String, segment: &str) {
    let mut bytes = segment.as_bytes();
    while let Some((&first, after)) = bytes.split_first() {
        let (byte, rest) = match escape(bytes) {
            Some(byte) => (byte, &bytes[3..]),
            None => (first, after),
        };
        if is_pchar(byte) {
            text.push(char::from(byte));
        } else {
            push_escape(text, byte);
        }
        bytes = rest;
    }
}
