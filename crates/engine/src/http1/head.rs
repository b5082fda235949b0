//! Strict parsing of a request's head (RFC 9112), which determines how its content is framed.
//!
//! hyper itself is as lenient as the RFC allows: it accepts a bare LF as the end of a line,
//! drops `content-length` beside `transfer-encoding`, and looks only at the last coding. A proxy in
//! front of this server or a server behind it may read such a message differently. The two would
//! then disagree on where the next message begins. So such messages are refused here.

use std::fmt;

/// How the content after a head is delimited (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    /// No content. Another protocol follows if the upgrade that the head may ask for is accepted.
    Upgrade,
}

/// Returns the end of the first head in `bytes`, searching from `from`. `Ok(None)` if it is
/// incomplete. `Err` for a NUL, or a CR or LF outside of a CRLF.
pub(super) fn end_of_head(bytes: &[u8], from: usize) -> Result<Option<usize>, Malformed> {
    const LONE_CR: Malformed = Malformed("CR without LF");
    if from > 0 && bytes.get(from).is_some_and(|byte| *byte != b'\n') && bytes[from - 1] == b'\r' {
        return Err(LONE_CR);
    }
    let mut at = from;
    // A tight loop skips the bytes that do not matter here.
    while let Some(offset) = first(&bytes[at..], |word| below(word, b'\r' + 1)) {
        at += offset;
        match bytes[at..] {
            [b'\r', b'\n', ..] if bytes[..at].ends_with(b"\r\n") => return Ok(Some(at + 2)),
            [b'\r', b'\n', ..] => at += 2,
            [b'\r', _, ..] => return Err(LONE_CR),
            [b'\n', ..] if at == 0 || bytes[at - 1] != b'\r' => {
                return Err(Malformed("LF without CR"));
            }
            // The bytes were split between CR and LF.
            [b'\n', ..] if bytes[..at].ends_with(b"\r\n\r") => return Ok(Some(at + 1)),
            [0, ..] => return Err(Malformed("NUL in the head")),
            _ => at += 1,
        }
    }
    Ok(None)
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(super) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Checks a whole head, including its last CRLF. Also returns its number of field lines.
pub(super) fn check(head: &[u8]) -> Result<(Framing, usize), Malformed> {
    let (framing, lines, after) = read(head)?;
    if after.is_empty() {
        Ok((framing, lines))
    } else {
        Err(Malformed("unexpected bytes after the head"))
    }
}

/// Returns how many complete requests without content `bytes` begin with, and where they end. Stops
/// before a request with more than `most_bytes` or `most_lines`, or with an upgrade.
pub(super) fn whole_requests(bytes: &[u8], most_bytes: usize, most_lines: usize) -> (u32, usize) {
    let (mut count, mut rest) = (0, bytes);
    while let Ok((Framing::Length(0), lines, after)) = read(rest)
        && rest.len() - after.len() <= most_bytes
        && lines <= most_lines
    {
        count += 1;
        rest = after;
    }
    (count, bytes.len() - rest.len())
}

/// Reads the first head in `bytes`. An incomplete head is an error. Returns its framing, its number
/// of field lines, and the bytes after it.
fn read(bytes: &[u8]) -> Result<(Framing, usize, &[u8]), Malformed> {
    let (request, mut rest) = read_request_line(bytes)?;
    let mut lines = 0;
    let mut length = None;
    let (mut is_chunked, mut has_upgrade) = (false, false);
    let after = loop {
        if let Some(after) = rest.strip_prefix(b"\r\n\r\n") {
            break after;
        }
        let (Field { name, value }, behind) = read_field(rest)?;
        rest = behind;
        lines += 1;
        if name.eq_ignore_ascii_case(b"content-length") {
            if length.replace(parse_length(trimmed(value))?).is_some() {
                return Err(Malformed("duplicate `content-length`"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            //= RFC 9112 section 6.1
            //# A server that receives a request message with a transfer coding it does not understand SHOULD respond with 501 (Not
            //# Implemented).
            // Only the one coding that every recipient understands, on one line.
            if is_chunked || !trimmed(value).eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed("`transfer-encoding` is not exactly `chunked`"));
            }
            is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            has_upgrade = true;
        }
    };
    let framing = match (is_chunked, length) {
        (false, None | Some(0))
            if has_upgrade && request.is_http_1_1 && request.method == b"GET" =>
        {
            Framing::Upgrade
        }
        (false, length) => Framing::Length(length.unwrap_or(0)),
        //= RFC 9112 section 6.1
        //# A server MAY reject a request that contains both Content-Length and Transfer-Encoding or process such a request in
        //# accordance with the Transfer-Encoding alone.
        (true, Some(_)) => {
            return Err(Malformed("both `content-length` and `transfer-encoding`"));
        }
        //= RFC 9112 section 6.1
        //# A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding header field MUST treat the message as
        //# if the framing is faulty, even if a Content-Length is present, and close the connection after processing the message.
        (true, None) if !request.is_http_1_1 => {
            return Err(Malformed("`transfer-encoding` in HTTP/1.0"));
        }
        (true, None) => Framing::Chunked,
    };
    Ok((framing, lines, after))
}

/// The parts of the request line that matter here.
struct RequestLine<'a> {
    method: &'a [u8],
    is_http_1_1: bool,
}

/// Parses the request line (RFC 9112, section 3). Also returns the rest: field lines, each with a
/// CRLF in front.
fn read_request_line(text: &[u8]) -> Result<(RequestLine<'_>, &[u8]), Malformed> {
    let (method, rest) = text.split_at(count_while(text, is_token));
    let Some((b' ', rest)) = rest.split_first().filter(|_| !method.is_empty()) else {
        return Err(Malformed("method is not a token followed by one space"));
    };
    // No part of the request target is a fragment (RFC 9110, section 7.1).
    let target =
        count_until(rest, |word| below(word, b'!') | above_ascii_graphic(word) | equal(word, b'#'));
    let Some((b' ', rest)) = rest[target..].split_first().filter(|_| target > 0) else {
        return Err(Malformed("target has invalid characters or is not followed by one space"));
    };
    let (is_http_1_1, rest) = match rest.split_first_chunk() {
        Some((b"HTTP/1.1", rest)) => (true, rest),
        Some((b"HTTP/1.0", rest)) => (false, rest),
        _ => return Err(Malformed("version is not HTTP/1.0 or HTTP/1.1")),
    };
    if !is_end_of_line(rest) {
        return Err(Malformed("unexpected bytes after the version in the request line"));
    }
    Ok((RequestLine { method, is_http_1_1 }, rest))
}

/// One field line. There may be white space around the value.
struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

/// Parses a field line (RFC 9112, section 5): `name: value`, without white space before the colon
/// and without line folding. Each of `lines` has a CRLF in front. Also returns the rest.
fn read_field(lines: &[u8]) -> Result<(Field<'_>, &[u8]), Malformed> {
    let line = lines.strip_prefix(b"\r\n").ok_or(Malformed("line without CRLF"))?;
    let (name, rest) = line.split_at(count_while(line, is_token));
    //= RFC 9112 section 5.1
    //# A server MUST reject, with a response status code of 400 (Bad Request), any received request message that contains whitespace
    //# between a header field name and colon.
    // White space in front of a name is line folding (section 5.2).
    let Some((b':', rest)) = rest.split_first().filter(|_| !name.is_empty()) else {
        return Err(Malformed("field name is not a token followed by a colon"));
    };
    let (value, rest) = rest.split_at(value_bytes(rest));
    if !is_end_of_line(rest) {
        return Err(Malformed("invalid character in a field value"));
    }
    Ok((Field { name, value }, rest))
}

/// A CR without LF does not end a line.
fn is_end_of_line(rest: &[u8]) -> bool {
    rest.starts_with(b"\r\n")
}

/// Returns how many bytes at the beginning are of a class.
fn count_while(bytes: &[u8], is_of_class: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !is_of_class(*byte)).unwrap_or(bytes.len())
}

/// Returns how many bytes at the beginning are allowed in a field value.
fn value_bytes(bytes: &[u8]) -> usize {
    let mut valid = 0;
    loop {
        valid += count_until(&bytes[valid..], |word| below(word, b' ') | equal(word, 0x7f));
        if bytes.get(valid) != Some(&b'\t') {
            return valid;
        }
        valid += 1;
    }
}

/// Returns how many bytes precede the first flagged one: see [`first`].
fn count_until(bytes: &[u8], flags: impl Fn(u64) -> u64) -> usize {
    first(bytes, flags).unwrap_or(bytes.len())
}

/// Returns the position of the first flagged byte. `flags` examines eight bytes at once and sets
/// the highest bit of each flagged one. Above the first flagged byte, its result may be wrong.
fn first(bytes: &[u8], flags: impl Fn(u64) -> u64) -> Option<usize> {
    let place = |flagged: u64| flagged.trailing_zeros() as usize / 8;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let flagged = flags(u64::from_le_bytes(*word));
        if flagged != 0 {
            return Some(index * 8 + place(flagged));
        }
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let offset = place(flags(u64::from_le_bytes(last)));
    (offset < rest.len()).then(|| words.len() * 8 + offset)
}

/// Returns a word of eight such bytes.
const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

const HIGHEST: u64 = repeated(0x80);

/// Flags bytes below `limit`, which is at most 128. Subtracting from a byte below the limit borrows
/// from the next byte, which may then be flagged too.
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(repeated(limit)) & !word & HIGHEST
}

const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ repeated(byte), 1)
}

/// Flags DEL and non-ASCII bytes.
const fn above_ascii_graphic(word: u64) -> u64 {
    (word & HIGHEST) | equal(word, 0x7f)
}

/// Trims the white space around a value: spaces and tabs, since it can contain no other.
fn trimmed(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

/// Accepts at most nineteen digits: a larger number does not fit every reader's integer.
fn parse_length(value: &[u8]) -> Result<u64, Malformed> {
    let digits = (1..=19).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let number = digits
        .then(|| value.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0')));
    number.ok_or(Malformed("content-length is not a number"))
}

/// RFC 9110, section 5.6.2.
pub(super) const fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
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
            );
        byte += 1;
    }
    table
};

/// RFC 9110, section 5.5.
pub(super) const fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(head: &str) -> Result<Framing, &'static str> {
        let end = end_of_head(head.as_bytes(), 0).map_err(|malformed| malformed.0)?;
        assert_eq!(end, Some(head.len()), "{head:?}");
        check(head.as_bytes()).map(|(framing, _)| framing).map_err(|malformed| malformed.0)
    }

    #[test]
    fn heads_are_framed_as_they_say() {
        assert_eq!(checked("GET / HTTP/1.1\r\n\r\n"), Ok(Framing::Length(0)));
        assert_eq!(
            checked("POST /p?q HTTP/1.0\r\nContent-Length:\t 12 \r\nx:\r\n\r\n"),
            Ok(Framing::Length(12))
        );
        assert_eq!(
            checked("POST * HTTP/1.1\r\nx: a\tb\u{e9}\r\nTransfer-Encoding: Chunked\r\n\r\n"),
            Ok(Framing::Chunked)
        );
    }

    #[test]
    fn heads_that_others_may_read_otherwise_are_refused() {
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\ncontent-length: 6",
            "Content-Length: +5",
            "Content-Length: -0",
            "Content-Length: 5, 5",
            "Content-Length: 0x5",
            "Content-Length:",
            "Content-Length: 5 5",
            "Content-Length: 18446744073709551616",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: \"chunked\"",
            "Transfer-Encoding: chunked;q=1",
            "Transfer-Encoding: \u{b}chunked",
            "Transfer-Encoding:",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding\t: chunked",
            " Transfer-Encoding: chunked",
            "x: a\r\n b",
            "x: a\r\n\tContent-Length: 5",
            "Transfer-Encoding\u{0}: chunked",
            "x: a\u{0}b",
            "x: a\u{7f}b",
            "x y: a",
            ": a",
            "x",
            "x: a\ry: b",
            "x: a\ny: b",
            "x: a\r\r\ny: b",
            "(x): a",
        ] {
            let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{lines}\r\n\r\n");
            assert!(checked(&head).is_err(), "{lines:?}");
        }
        assert!(checked("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn request_line_has_one_form() {
        for line in [
            "GET  / HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET\t/ HTTP/1.1",
            " GET / HTTP/1.1",
            "GET /",
            "GET / HTTP/1.2",
            "GET / HTTP/2.0",
            "GET / http/1.1",
            "GET / HTTP/01.1",
            "G(T / HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET /#f HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET /\u{1} HTTP/1.1",
        ] {
            assert!(checked(&format!("{line}\r\n\r\n")).is_err(), "{line:?}");
        }
    }

    #[test]
    fn lone_control_is_found_wherever_the_bytes_are_cut() {
        for head in [
            "GET / HTTP/1.1\r\nx: a\rb\r\n\r\n",
            "x: a\r\r\n\r\n",
            "x: a\nb: c\r\n\r\n",
            "x: \0\r\n\r\n",
            "\n",
            "x\r\n\r\r\n",
        ] {
            for cut in 0..head.len() {
                let first = end_of_head(&head.as_bytes()[..cut], 0);
                assert!(
                    first.is_err() || end_of_head(head.as_bytes(), cut).is_err(),
                    "{head:?} at {cut}"
                );
            }
        }
    }

    #[test]
    fn each_byte_is_of_its_class_wherever_it_stands() {
        for at in 0..20 {
            for byte in 0..=u8::MAX {
                let mut bytes = [b'a'; 20];
                bytes[at] = byte;
                // The flag of a byte must not depend on the next one.
                for neighbour in [b'a', b' ', b'\t', b'\r', 0, 0x7f, 0x80, 0xff] {
                    if let Some(next) = bytes.get_mut(at + 1) {
                        *next = neighbour;
                    }
                    let wanted =
                        bytes.iter().position(|byte| !is_value(*byte)).unwrap_or(bytes.len());
                    assert_eq!(value_bytes(&bytes), wanted, "{bytes:?}");
                    let wanted = bytes.iter().position(|byte| *byte <= b'\r');
                    assert_eq!(first(&bytes, |word| below(word, b'\r' + 1)), wanted, "{bytes:?}");
                    let is_target = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
                    let head = [b"GET ", &bytes[..], b" HTTP/1.1\r\n\r\n"].concat();
                    assert_eq!(
                        check(&head).is_ok(),
                        bytes.iter().all(|byte| is_target(*byte)),
                        "{bytes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_passes_the_check_is_one_head_and_nothing_else() {
        let head = b"GET /a HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n";
        let additions: [&[u8]; 9] =
            [b"\r", b"\n", b"\0", b"\r\n", b"\n\n", b"\r\n\r\n", b" ", b"a: b\r\n", head];
        for at in 0..=head.len() {
            for addition in additions {
                let bytes = [&head[..at], addition, &head[at..]].concat();
                if check(&bytes).is_ok() {
                    assert_eq!(
                        end_of_head(&bytes, 0),
                        Ok(Some(bytes.len())),
                        "{:?}",
                        String::from_utf8_lossy(&bytes)
                    );
                }
            }
        }
    }

    #[test]
    fn whole_requests_are_counted_up_to_what_is_none() {
        let request = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
        let long = "GET /a HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n";
        let others = [
            "",
            "\r\n",
            &request[..request.len() - 1],
            "GET /a HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n",
            "GET /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET /a HTTP/1.1\r\nupgrade: websocket\r\n\r\n",
            "GET /a HTTP/1.1\nhost: a\n\n",
            long,
        ];
        for other in others {
            for count in 0..3 {
                let bytes = [&request.repeat(count), other, request].concat();
                let found = (count as u32, count * request.len());
                assert_eq!(
                    whole_requests(&bytes.as_bytes()[..bytes.len() - request.len()], 1000, 1),
                    found,
                    "{other:?}"
                );
                // Requests behind such a one are not counted either.
                let found = if other.is_empty() { (count as u32 + 1, bytes.len()) } else { found };
                assert_eq!(whole_requests(bytes.as_bytes(), 1000, 1), found, "{other:?}");
            }
        }
        assert_eq!(
            whole_requests([request, long].concat().as_bytes(), request.len(), 2),
            (1, request.len())
        );
    }

    #[test]
    fn end_is_found_wherever_the_bytes_are_cut() {
        let head = b"GET / HTTP/1.1\r\nx: y\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(end_of_head(&head[..cut], 0), Ok(None), "{cut}");
            assert_eq!(end_of_head(head, cut), Ok(Some(head.len())), "{cut}");
        }
    }
}
