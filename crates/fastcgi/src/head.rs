//! Parsing of a CGI response head (RFC 3875, section 6).

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, LOCATION, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

/// Maximum size of a response head, in bytes.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of field lines in a response head.
pub const MAX_HEAD_LINES: usize = 256;

/// Connection-specific fields, which have no meaning over FastCGI.
const OF_NO_CONNECTION: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// An error in a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// The head exceeds [`MAX_HEAD_BYTES`] or [`MAX_HEAD_LINES`].
    #[error("response head exceeds {MAX_HEAD_BYTES} bytes or {MAX_HEAD_LINES} field lines")]
    Long,
    /// The head has no fields, or a malformed field.
    #[error("invalid CGI response head")]
    Malformed,
    /// `status` is not a number from 200 to 599.
    #[error("invalid status: expected 200 to 599")]
    Status,
    /// `content-length` is not a number, or has several values.
    #[error("invalid content-length")]
    Length,
}

/// Collects and parses a response head.
#[derive(Default)]
pub struct Head {
    bytes: BytesMut,
    /// Number of bytes already searched for the end of the head.
    searched: usize,
}

impl Head {
    /// Adds the next piece. Returns the response, with the beginning of its body, once the head is
    /// complete. Connection-specific fields (`transfer-encoding`, `connection` and the like) are
    /// removed.
    ///
    /// # Errors
    ///
    /// If the head is malformed or too large.
    pub fn push(&mut self, piece: &[u8]) -> Result<Option<Response<Bytes>>, HeadError> {
        self.bytes.extend_from_slice(piece);
        let Some(end) = self.end() else {
            return if self.bytes.len() > MAX_HEAD_BYTES { Err(HeadError::Long) } else { Ok(None) };
        };
        if end > MAX_HEAD_BYTES {
            return Err(HeadError::Long);
        }
        let head = self.bytes.split_to(end);
        let response = parse(&head)?;
        Ok(Some(response.map(|()| std::mem::take(&mut self.bytes).freeze())))
    }

    /// Returns the offset of the body, after the empty line.
    fn end(&mut self) -> Option<usize> {
        let start = self.searched;
        for (at, _) in self.bytes.iter().enumerate().skip(start).filter(|(_, byte)| **byte == b'\n')
        {
            self.searched = at;
            let is_first = at == 0 || (at == 1 && self.bytes[0] == b'\r');
            match &self.bytes[at + 1..] {
                _ if is_first => return Some(at + 1),
                [b'\n', ..] => return Some(at + 2),
                [b'\r', b'\n', ..] => return Some(at + 3),
                // The rest of the empty line may not have arrived yet.
                [] | [b'\r'] => return None,
                _ => {}
            }
        }
        self.searched = self.searched.max(self.bytes.len().saturating_sub(2));
        None
    }
}

fn parse(head: &[u8]) -> Result<Response<()>, HeadError> {
    let head = without_blanks(head);
    let mut lines = [httparse::EMPTY_HEADER; MAX_HEAD_LINES];
    let lines = match httparse::parse_headers(&head, &mut lines) {
        Ok(httparse::Status::Complete((_, lines))) => lines,
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::Long),
        Ok(httparse::Status::Partial) | Err(_) => return Err(HeadError::Malformed),
    };
    // RFC 3875, section 6.3: at least one field is required.
    if lines.is_empty() {
        return Err(HeadError::Malformed);
    }
    let mut headers = HeaderMap::with_capacity(lines.len());
    let mut status = None;
    for line in lines {
        if line.name.eq_ignore_ascii_case("status") {
            status.get_or_insert(read_status(line.value)?);
            continue;
        }
        let name =
            HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| HeadError::Malformed)?;
        let value = HeaderValue::from_bytes(line.value).map_err(|_| HeadError::Malformed)?;
        headers.append(name, value);
    }
    for name in &OF_NO_CONNECTION {
        headers.remove(name);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(first) = lengths.next() {
        // `parse` would accept a sign.
        let is_number = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
        };
        if !first.to_str().is_ok_and(is_number) || lengths.any(|other| other != first) {
            return Err(HeadError::Length);
        }
        let first = first.clone();
        headers.insert(CONTENT_LENGTH, first);
    }
    // RFC 3875, section 6.2.3: `location` without a status is a redirect.
    let otherwise = if headers.contains_key(LOCATION) { StatusCode::FOUND } else { StatusCode::OK };
    let mut response = Response::new(());
    *response.status_mut() = status.unwrap_or(otherwise);
    *response.headers_mut() = headers;
    Ok(response)
}

/// Removes whitespace between a field name and the colon, as a proxy must do for responses over
/// HTTP (RFC 9112, section 5.1). PHP sends the name as the script spells it.
fn without_blanks(head: &[u8]) -> Cow<'_, [u8]> {
    if !head.windows(2).any(|pair| matches!(pair, b" :" | b"\t:")) {
        return Cow::Borrowed(head);
    }
    let mut out = Vec::with_capacity(head.len());
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, rest) = line.split_at(colon);
        // A line that starts with whitespace continues the previous one and has no name.
        let has_name = !rest.is_empty() && !name.starts_with(b" ") && !name.starts_with(b"\t");
        out.extend_from_slice(if has_name { name.trim_ascii_end() } else { name });
        out.extend_from_slice(rest);
    }
    Cow::Owned(out)
}

/// Parses the number of a status such as `404 Not Found`.
fn read_status(value: &[u8]) -> Result<StatusCode, HeadError> {
    let digits = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    let status = StatusCode::from_bytes(digits).map_err(|_| HeadError::Status)?;
    if (200..600).contains(&status.as_u16()) { Ok(status) } else { Err(HeadError::Status) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = (u16, Vec<(String, String)>, Vec<u8>);

    /// Parses a response in pieces of this size: status, fields and body.
    fn read(bytes: &[u8], size: usize) -> Result<Option<Read>, HeadError> {
        let mut head = Head::default();
        let mut pieces = bytes.chunks(size);
        for piece in pieces.by_ref() {
            if let Some(response) = head.push(piece)? {
                let text = |value: &HeaderValue| value.to_str().unwrap_or("?").to_owned();
                let fields = response
                    .headers()
                    .iter()
                    .map(|(name, value)| (name.to_string(), text(value)))
                    .collect();
                let rest = pieces.flatten();
                let content = response.body().iter().chain(rest).copied().collect();
                return Ok(Some((response.status().as_u16(), fields, content)));
            }
        }
        Ok(None)
    }

    #[test]
    fn head_ends_at_the_empty_line_with_any_line_ending() {
        for (end, size) in [("\n", 1), ("\r\n", 1), ("\n", 100), ("\r\n", 3)] {
            let bytes = format!(
                "Status: 404 Not Found{end}Content-Type: text/html{end}X-A: b: c{end}{end}\n\nno"
            );
            let (status, fields, content) =
                read(bytes.as_bytes(), size).expect("a head").expect("whole");
            assert_eq!((status, content.as_slice()), (404, &b"\n\nno"[..]));
            assert_eq!(
                fields,
                [("content-type".into(), "text/html".into()), ("x-a".into(), "b: c".into())]
            );
        }
    }

    #[test]
    fn missing_status_has_a_default_and_invalid_status_is_an_error() {
        let status =
            |head: &str| read(head.as_bytes(), 100).map(|read| read.map(|(status, ..)| status));
        assert_eq!(status("content-type: a/b\n\n"), Ok(Some(200)));
        assert_eq!(status("location: /x\n\n"), Ok(Some(302)));
        assert_eq!(status("location: /x\nstatus: 201\n\n"), Ok(Some(201)));
        for wrong in
            ["status: 100 Continue\n\n", "status: 999\n\n", "status: ok\n\n", "status:\n\n"]
        {
            assert_eq!(status(wrong), Err(HeadError::Status), "{wrong}");
        }
    }

    #[test]
    fn whitespace_before_a_colon_is_removed() {
        let (status, fields, _) =
            read(b"Status : 404\nX-A \t: b : c\r\nx-b: d :\n\n", 100).unwrap().unwrap();
        assert_eq!(
            (status, fields),
            (404, vec![("x-a".into(), "b : c".into()), ("x-b".into(), "d :".into())])
        );
        for wrong in [" : x\n\n", "a: b\n x : c\n\n", "a b : c\n\n"] {
            assert_eq!(read(wrong.as_bytes(), 100), Err(HeadError::Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn connection_specific_fields_are_removed() {
        let (_, fields, _) =
            read(b"connection: close\ntransfer-encoding: chunked\nkeep-alive: 5\nx-a: b\n\n", 100)
                .unwrap()
                .unwrap();
        assert_eq!(fields, [("x-a".into(), "b".into())]);
    }

    #[test]
    fn conflicting_or_invalid_content_length_is_an_error() {
        let fields = |head: &str| read(head.as_bytes(), 100).map(|read| read.unwrap().1.len());
        assert_eq!(fields("content-length: 5\ncontent-length: 5\n\n"), Ok(1));
        for wrong in [
            "content-length: 5\ncontent-length: 6\n\n",
            "content-length: 5, 5\n\n",
            "content-length: +5\n\n",
            "content-length: 18446744073709551616\n\n",
            "content-length:\n\n",
        ] {
            assert_eq!(fields(wrong), Err(HeadError::Length), "{wrong}");
        }
    }

    #[test]
    fn malformed_head_is_an_error() {
        for wrong in [
            "\n",
            "\r\n\r\n",
            "<html>\n\n",
            "a b: c\n\n",
            "a: b\n folded\n\n",
            ": x\n\n",
            "a: \u{1}\n\n",
        ] {
            assert_eq!(read(wrong.as_bytes(), 100), Err(HeadError::Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn oversized_head_is_an_error() {
        let long = "a: b\n".repeat(MAX_HEAD_BYTES / 5 + 1);
        assert_eq!(read(long.as_bytes(), 1000), Err(HeadError::Long));
        assert_eq!(
            read(format!("{}\n", "a: b\n".repeat(MAX_HEAD_LINES + 1)).as_bytes(), 1000),
            Err(HeadError::Long)
        );
        assert_eq!(
            read(format!("a: {}\n\n", "b".repeat(MAX_HEAD_BYTES)).as_bytes(), 100_000),
            Err(HeadError::Long)
        );
        assert!(matches!(
            read(format!("{}\n", "a: b\n".repeat(MAX_HEAD_LINES)).as_bytes(), 1000),
            Ok(Some(_))
        ));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_result(bytes in "([a-c:\r\n ]|status: 2|\n\n){0,60}", size in 1usize..20) {
            prop_assert_eq!(read(bytes.as_bytes(), size), read(bytes.as_bytes(), bytes.len().max(1)));
        }
    }
}
