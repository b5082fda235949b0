//! Message heads on a connection to a server: requests written, responses parsed.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode, request};

use super::content::Framing;
use super::error::Http1Error;
use crate::limits::Limits;

/// Number of field lines that are parsed without an allocation. A head with more is parsed a second
/// time.
const FEW_LINES: usize = 100;

/// Bytes of empty lines in front of a status line that are skipped if they arrive together.
const MAX_BLANK: usize = 4;

/// The beginning of a status line, up to the minor version.
const VERSION: &[u8] = b"HTTP/1.";

/// Writes the head of a request, in the form that [`for_http1`](crate::client::for_http1) gives it.
pub(super) fn write(head: &request::Parts, out: &mut Vec<u8>) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    let target = head.uri.path_and_query().map_or("/", |path| path.as_str());
    if !target.starts_with(['/', '*']) {
        // The URI has a query but no path.
        out.push(b'/');
    }
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(&head.headers, out);
    out.extend_from_slice(b"\r\n");
}

/// Writes field lines, without the empty line after them.
pub(super) fn write_fields(fields: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// The head of a response, final or interim.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    is_http_1_1: bool,
}

/// Removes the head of a response from the front of `input` once it is complete. `scanned`: number
/// of bytes without an end of the head; it is updated.
pub(super) fn take(
    input: &mut BytesMut,
    scanned: &mut usize,
    limits: &Limits,
) -> Result<Option<ResponseHead>, Http1Error> {
    // Some servers end a body with an extra empty line.
    let blank = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if *scanned == 0 && blank <= MAX_BLANK {
        input.advance(blank);
    }
    if !input.iter().zip(VERSION).all(|(byte, wanted)| byte == wanted) {
        return Err(Http1Error::Malformed("the response is not HTTP/1.1".to_owned()));
    }
    let max_bytes = limits.field_section_bytes() as usize;
    match end_of_head(input, *scanned) {
        Some(end) if end <= max_bytes => {
            *scanned = 0;
            parse(&input.split_to(end).freeze(), limits).map(Some)
        }
        None if input.len() <= max_bytes => {
            *scanned = input.len();
            Ok(None)
        }
        _ => Err(Http1Error::HeadTooLarge),
    }
}

/// Returns the number of bytes up to the end of the empty line. RFC 9112, section 2.2, allows lines
/// that end without CR.
fn end_of_head(bytes: &[u8], scanned: usize) -> Option<usize> {
    // The last three bytes may be part of the end.
    let mut at = scanned.saturating_sub(3);
    while let Some(line) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += line + 1;
        match bytes.get(at..) {
            Some([b'\n', ..]) => return Some(at + 1),
            Some([b'\r', b'\n', ..]) => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// Parses a complete head.
fn parse(head: &Bytes, limits: &Limits) -> Result<ResponseHead, Http1Error> {
    let mut few = [const { MaybeUninit::uninit() }; FEW_LINES];
    let most = limits.field_lines() as usize;
    let few = &mut few[..most.min(FEW_LINES)];
    match parse_into(head, few) {
        Err(httparse::Error::TooManyHeaders) if most > FEW_LINES => {
            let mut many = vec![MaybeUninit::uninit(); most];
            parse_into(head, &mut many)
        }
        parsed => parsed,
    }
    .map_err(|error| match error {
        httparse::Error::TooManyHeaders => Http1Error::HeadTooLarge,
        error => Http1Error::Malformed(format!("malformed response head: {error}")),
    })
}

fn parse_into<'a>(
    head: &'a Bytes,
    fields: &mut [MaybeUninit<httparse::Header<'a>>],
) -> Result<ResponseHead, httparse::Error> {
    let mut response = httparse::Response::new(&mut []);
    let mut parser = httparse::ParserConfig::default();
    //= RFC 9112 section 5.1
    //# A proxy MUST remove any such whitespace from a response message before forwarding the message downstream.
    parser.allow_spaces_after_header_name_in_responses(true);
    if parser.parse_response_with_uninit_headers(&mut response, head, fields)?.is_partial() {
        // An empty line within the head, such as after a folded one.
        return Err(httparse::Error::HeaderValue);
    }
    let status = response
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or(httparse::Error::Status)?;
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    for field in &*response.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes())
            .map_err(|_| httparse::Error::HeaderName)?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value))
            .map_err(|_| httparse::Error::HeaderValue)?;
        headers.append(name, value);
    }
    Ok(ResponseHead { status, headers, is_http_1_1: response.version == Some(1) })
}

/// Parses the field lines of a complete trailer section.
pub(super) fn parse_trailers(section: &[u8]) -> Result<HeaderMap, Http1Error> {
    let malformed = || Http1Error::Malformed("malformed trailers in the response".to_owned());
    let mut fields = [httparse::EMPTY_HEADER; FEW_LINES];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(section, &mut fields)
    else {
        return Err(malformed());
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| malformed())?;
        trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| malformed())?);
    }
    Ok(trailers)
}

impl ResponseHead {
    /// Whether the server takes no further request on the connection (RFC 9112, section 9.3).
    pub(super) fn closes(&self) -> bool {
        has_option(&self.headers, b"close")
            || (!self.is_http_1_1 && !has_option(&self.headers, b"keep-alive"))
    }

    /// Returns the framing of the content (RFC 9112, section 6.3), `None` if there is none.
    /// Transfer codings have been checked.
    pub(super) fn framing(&mut self, method: &Method) -> Result<Option<Framing>, Http1Error> {
        let has_none = matches!(
            self.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::SWITCHING_PROTOCOLS
        );
        if *method == Method::HEAD || has_none {
            return Ok(None);
        }
        if self.headers.contains_key(TRANSFER_ENCODING) {
            //= RFC 9112 section 6.1
            //# A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding header field MUST treat the message as if
            //# the framing is faulty, even if a Content-Length is present, and close the connection after processing the message.
            let faulty =
                || Http1Error::Malformed("transfer coding in an HTTP/1.0 response".to_owned());
            return self.is_http_1_1.then(|| Some(Framing::chunked())).ok_or_else(faulty);
        }
        let mut lengths = self
            .headers
            .get_all(CONTENT_LENGTH)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        let Some(first) = lengths.next() else { return Ok(Some(Framing::UntilClose)) };
        let different = || {
            Http1Error::Malformed(
                "invalid or conflicting `content-length` in the response".to_owned(),
            )
        };
        let length = parse_length(first).ok_or_else(different)?;
        let mut is_repeated = false;
        for other in lengths {
            if parse_length(other) != Some(length) {
                return Err(different());
            }
            is_repeated = true;
        }
        if is_repeated {
            self.headers.insert(CONTENT_LENGTH, length.into());
        }
        Ok((length > 0).then_some(Framing::Length(length)))
    }
}

/// Whether `connection` lists this option.
pub(super) fn has_option(fields: &HeaderMap, option: &[u8]) -> bool {
    let mut listed = fields
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    listed.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(option))
}

/// Parses digits alone: the standard library would accept a sign.
fn parse_length(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the head at the front of `bytes`, received in pieces of this size, and the number of
    /// bytes behind it.
    fn taken(bytes: &[u8], size: usize) -> Result<Option<(ResponseHead, usize)>, Http1Error> {
        let (mut input, mut scanned) = (BytesMut::new(), 0);
        for (index, piece) in bytes.chunks(size).enumerate() {
            input.extend_from_slice(piece);
            if let Some(head) = take(&mut input, &mut scanned, &Limits::default())? {
                return Ok(Some((
                    head,
                    input.len() + bytes.len().saturating_sub((index + 1) * size),
                )));
            }
        }
        Ok(None)
    }

    fn head(fields: &str) -> ResponseHead {
        let (head, _) = taken(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), usize::MAX)
            .unwrap()
            .unwrap();
        head
    }

    #[test]
    fn head_is_the_same_in_pieces_of_any_size() {
        for text in [
            "HTTP/1.1 404 Not Found\r\nA : b\r\nc:\td \r\n\r\nrest",
            "\r\nHTTP/1.0 404\nA: b\nc: d\n\nrest",
        ] {
            for size in 1..=text.len() {
                let (head, left) = taken(text.as_bytes(), size).unwrap().unwrap();
                assert_eq!((head.status, left), (StatusCode::NOT_FOUND, 4), "{text:?} {size}");
                assert_eq!(
                    (&head.headers["a"], &head.headers["c"]),
                    (&"b".parse().unwrap(), &"d".parse().unwrap()),
                    "{text:?} {size}"
                );
            }
            let end = text.len() - "rest".len();
            assert!(
                (1..end).all(|cut| taken(&text.as_bytes()[..cut], usize::MAX).unwrap().is_none()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn target_of_a_query_alone_has_a_path() {
        for (uri, target) in
            [("http://a", "/"), ("http://a?x=1", "/?x=1"), ("/b?x", "/b?x"), ("*", "*")]
        {
            let (head, ()) = http::Request::options(uri).body(()).unwrap().into_parts();
            let mut out = Vec::new();
            write(&head, &mut out);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("OPTIONS {target} HTTP/1.1\r\n\r\n")
            );
        }
    }

    #[test]
    fn what_is_no_head_of_a_response_is_an_error_at_once() {
        for text in [
            "220 mail.example.org ESMTP\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "\0\0\x12",
            "GET",
            "HTTP/1.1 99 x\r\n\r\n",
        ] {
            assert!(matches!(taken(text.as_bytes(), 1), Err(Http1Error::Malformed(_))), "{text:?}");
        }
        for field in ["no colon", ": x", "a\0: b", "a: b\r\n folded", "a: \u{1}"] {
            let text = format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n");
            assert!(
                matches!(taken(text.as_bytes(), usize::MAX), Err(Http1Error::Malformed(_))),
                "{field:?}"
            );
        }
    }

    #[test]
    fn head_is_limited_in_bytes_and_field_lines() {
        let limits = Limits::default();
        let lines = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
        let most = limits.field_lines() as usize;
        assert!(most > FEW_LINES);
        for count in [FEW_LINES, FEW_LINES + 1, most] {
            assert_eq!(
                taken(lines(count).as_bytes(), usize::MAX).unwrap().unwrap().0.headers.len(),
                count
            );
        }
        assert!(matches!(
            taken(lines(most + 1).as_bytes(), usize::MAX),
            Err(Http1Error::HeadTooLarge)
        ));
        let long =
            format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(limits.field_section_bytes() as usize));
        for text in [long.clone(), long + "\r\n\r\n"] {
            assert!(matches!(taken(text.as_bytes(), 1000), Err(Http1Error::HeadTooLarge)));
        }
    }

    #[test]
    fn content_is_as_long_as_the_head_says() {
        let framing = |method: Method, fields: &str| {
            head(fields).framing(&method).map(|framing| framing.map(|framing| framing.missing()))
        };
        assert_eq!(framing(Method::GET, "content-length: 5\r\n").unwrap(), Some(Some(5)));
        assert_eq!(
            framing(Method::GET, "content-length: 5, 5\r\ncontent-length: 5\r\n").unwrap(),
            Some(Some(5))
        );
        assert_eq!(framing(Method::GET, "content-length: 0\r\n").unwrap(), None);
        assert_eq!(framing(Method::HEAD, "content-length: 5\r\n").unwrap(), None);
        assert_eq!(framing(Method::GET, "transfer-encoding: chunked\r\n").unwrap(), Some(None));
        assert_eq!(framing(Method::GET, "").unwrap(), Some(None));
        for fields in [
            "content-length: 5, 6",
            "content-length: +5",
            "content-length: ",
            "content-length: 5\r\ncontent-length: 6",
        ] {
            assert!(framing(Method::GET, &format!("{fields}\r\n")).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn connection_is_kept_as_its_version_and_options_say() {
        assert!(!head("").closes());
        assert!(head("connection: x, Close\r\n").closes());
        let old = |fields: &str| {
            taken(format!("HTTP/1.0 200 OK\r\n{fields}\r\n").as_bytes(), usize::MAX)
                .unwrap()
                .unwrap()
                .0
        };
        assert!(old("").closes());
        assert!(old("connection: keep-alive, close\r\n").closes());
        assert!(!old("connection: Keep-Alive\r\n").closes());
    }
}
