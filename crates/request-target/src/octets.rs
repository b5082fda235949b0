//! Octets of a path, and the one form that each of them has.

/// What an octet is in a path.
const PLAIN: u8 = 0;
const SLASH: u8 = 1;
const DOT: u8 = 2;
/// It is looked at closely: an escape, `;`, or what no path may have as it is.
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

/// RFC 3986, section 3.3, without the percent sign: what may stand in a segment as it is.
pub(crate) const fn is_pchar(byte: u8) -> bool {
    is_unreserved(byte) || matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@')
}

/// RFC 3986, section 2.3: what means the same whether it is percent-encoded or not.
pub(crate) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a path is its own canonical form, and has no other reading: as nearly all are.
pub(crate) fn is_plain(path: &str) -> bool {
    let mut before = PLAIN;
    for (index, byte) in path.bytes().enumerate() {
        let class = CLASS[usize::from(byte)];
        // A segment that begins with a dot is looked at closely, and so is an empty one.
        if class == OTHER || (before == SLASH && class != PLAIN) || (index == 0 && class != SLASH) {
            return false;
        }
        before = class;
    }
    !path.is_empty()
}

/// The octet of the escape that `rest` begins with, or `None` if it is broken.
pub(crate) fn escape(rest: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = rest else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Writes an octet percent-encoded, in capitals (RFC 3986, section 2.1).
pub(crate) fn push_escape(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// The form in which segments are compared: what may stand there as it is stands so, and all else is percent-encoded in capitals.
///
/// `segment` has no broken escape.
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
