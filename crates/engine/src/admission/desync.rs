//! Property test: a request that HTTP/3 delivers and the model admits is, written out over
//! HTTP/1.1, one request with the same meaning.
//!
//! The path is the real one: field lines through the HTTP/3 layer, the model, and the client's
//! HTTP/1.1 side. The reader at its end is written for this test and accepts nothing but what RFC
//! 9112 allows.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HOST};
use pronghorn_h3::{Connection, Event, Head as H3Head, Role, StreamId};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::{Admitted, AuthorityCache};
use crate::Body;
use crate::http3::request_head;

type Line = (Vec<u8>, Vec<u8>);

/// Field values with interesting bytes: those that end lines, separate messages, or look like
/// either.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => "[a-z0-9]{0,6}".prop_map(String::into_bytes),
        1 => prop::sample::select(vec!["\r\n", "\n", "\r", "\0", " ", "\t", ":", ",", "\r\n\r\n", "GET / HTTP/1.1", "\u{e9}", "\x7f"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ];
    vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

fn line() -> impl Strategy<Value = Line> {
    let text = |texts: &[&'static str]| {
        prop::sample::select(texts.to_vec()).prop_map(|text| text.as_bytes().to_vec())
    };
    prop_oneof![
        4 => ("x-[a-z]{1,3}".prop_map(String::into_bytes), value()),
        1 => (value(), value()),
        2 => (
            text(&["content-length", "transfer-encoding", "host", "te", "connection", "expect", "cookie", "trailer", "upgrade",
                "content-length ", "Transfer-Encoding", "transfer_encoding", "keep-alive", "proxy-connection", "priority"]),
            prop_oneof![
                text(&["0", "3", "5", "7", "+5", "5, 5", "chunked", "identity", "trailers", "a.example", "A.example", "b.example", "close",
                    "a.example\r\nx: y", "100-continue", "a=1", "host", "a.example:443", "a.example,b.example", "u@a.example"]),
                value(),
            ],
        ),
    ]
}

/// A request as a client may spell it: mostly valid, so that usually one thing at a time is wrong.
fn request() -> impl Strategy<Value = (Vec<Line>, Vec<Vec<u8>>)> {
    let mostly = |right: &[&'static str]| {
        let right = prop::sample::select(right.to_vec()).prop_map(|text| text.as_bytes().to_vec());
        prop_oneof![9 => right, 1 => value()]
    };
    let method = mostly(&["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "M-SEARCH"]);
    let path = mostly(&[
        "/",
        "/a?b=c",
        "/%0d%0a",
        "*",
        "/a b",
        "/#f",
        "http://b.example/",
        "//b.example",
        "/\u{e9}",
    ]);
    let authority = mostly(&[
        "a.example",
        "a.example:8443",
        "[::1]:80",
        "A.example",
        "a.example:",
        "u@a.example",
        "a.example, b.example",
    ]);
    let content = vec("[a-z\r\n]{1,5}".prop_map(String::into_bytes), 0..3);
    (method, path, authority, vec(line(), 0..5), content).prop_map(
        |(method, path, authority, lines, content)| {
            let pseudo = [
                ("method", method),
                ("scheme", b"https".to_vec()),
                ("authority", authority),
                ("path", path),
            ];
            let mut all: Vec<Line> = pseudo
                .into_iter()
                .map(|(name, value)| (format!(":{name}").into_bytes(), value))
                .collect();
            all.extend(lines);
            (all, content)
        },
    )
}

/// Passes a request through the server's side of HTTP/3. `None` if it is refused.
fn through_http3((lines, content): &(Vec<Line>, Vec<Vec<u8>>)) -> Option<(Admitted, Vec<Bytes>)> {
    let stream = StreamId(0);
    let mut bytes = BytesMut::new();
    let section = section(lines);
    pronghorn_h3::varint::encode(1, &mut bytes);
    pronghorn_h3::varint::encode(section.len() as u64, &mut bytes);
    bytes.extend_from_slice(&section);
    for piece in content {
        pronghorn_h3::varint::encode(0, &mut bytes);
        pronghorn_h3::varint::encode(piece.len() as u64, &mut bytes);
        bytes.extend_from_slice(piece);
    }
    let mut server = Connection::new(Role::Server, pronghorn_h3::Config::default());
    server.handle_data(stream, bytes.freeze()).ok()?;
    server.handle_fin(stream).ok()?;
    let mut admitted = None;
    let mut received = Vec::new();
    while let Some(event) = server.poll_event() {
        match event {
            Event::Head { head: H3Head::Request(mut head), .. } => {
                admitted = Some(
                    request_head(
                        &mut head,
                        &AuthorityCache::default(),
                        HeaderMap::new(),
                        &mut BytesMut::new(),
                    )?
                    .admit()
                    .ok()?,
                );
            }
            Event::Data { data, .. } => received.push(data),
            Event::StreamError { .. } => return None,
            _ => {}
        }
    }
    Some((admitted?, received))
}

/// A field section of literal lines (RFC 9204, section 4.5.6), which can have any bytes.
fn section(lines: &[Line]) -> BytesMut {
    let mut out = BytesMut::from(&[0, 0][..]);
    for (name, value) in lines {
        integer(&mut out, 0x20, 3, name.len());
        out.extend_from_slice(name);
        integer(&mut out, 0, 7, value.len());
        out.extend_from_slice(value);
    }
    out
}

fn integer(out: &mut BytesMut, first: u8, bits: u8, number: usize) {
    let most = (1_usize << bits) - 1;
    if number < most {
        out.extend_from_slice(&[first | number as u8]);
        return;
    }
    out.extend_from_slice(&[first | most as u8]);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.extend_from_slice(&[(rest as u8 & 0x7f) | 0x80]);
        rest >>= 7;
    }
    out.extend_from_slice(&[rest as u8]);
}

/// Returns the bytes that the client's HTTP/1.1 side writes for the request.
fn through_http1(admitted: &Admitted, content: &[Bytes]) -> Vec<u8> {
    let mut request = http::Request::new(Body::stream(Pieces(content.to_vec().into())));
    *request.method_mut() = admitted.method.clone();
    *request.uri_mut() = admitted.uri.clone();
    *request.headers_mut() = admitted.headers.clone();
    // An announced length is kept, since HTTP/3 has checked it. Another test covers lengths that
    // are not announced.
    crate::client::frame(&mut request).expect("an admitted request can be sent");
    crate::client::for_http1(&mut request);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (near, mut far) = duplex(1 << 20);
        let handshake =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(near)).await;
        let (mut sender, connection) = handshake.expect("there is nothing to agree on");
        tokio::task::spawn_local(async move { drop(connection.await) });
        tokio::task::spawn_local(async move { drop(sender.send_request(request).await) });
        let mut written = Vec::new();
        while !matches!(read(&written), Ok(Some(_)) | Err(_)) {
            assert!(
                far.read_buf(&mut written).await.expect("memory does not fail") > 0,
                "cut: {}",
                written.escape_ascii()
            );
        }
        far.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await
            .expect("room for an answer");
        far.read_to_end(&mut written).await.expect("memory does not fail");
        written
    })
}

struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<http_body::Frame<Bytes>>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

/// One request as the strict reader sees it.
#[derive(Debug, PartialEq)]
struct Seen {
    method: String,
    target: String,
    fields: BTreeSet<Line>,
    content: Vec<u8>,
    /// The bytes behind the request.
    rest: Vec<u8>,
}

/// Reads one request by RFC 9112 alone. `None` if it is incomplete.
fn read(bytes: &[u8]) -> Result<Option<Seen>, String> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head =
        std::str::from_utf8(&bytes[..end].iter().map(|byte| byte & 0x7f).collect::<Vec<_>>())
            .map_err(|e| e.to_string())?
            .to_owned();
    let raw = &bytes[..end];
    let mut lines =
        raw.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    if head.replace("\r\n", "").contains(['\r', '\n', '\0']) {
        return Err("a control character in the head".to_owned());
    }
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else {
        return Err(format!("request line {first:?}"));
    };
    let mut fields = BTreeSet::new();
    let (mut length, mut chunked) = (None, false);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').ok_or("a line without a colon")?;
        let (name, value) =
            (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_vec());
        match (&*name, &*value) {
            (b"content-length", value) => {
                let text = std::str::from_utf8(value).map_err(|e| e.to_string())?;
                if length.replace(text.parse::<usize>().map_err(|e| e.to_string())?).is_some() {
                    return Err("two lengths".to_owned());
                }
            }
            (b"transfer-encoding", b"chunked") if !chunked => chunked = true,
            (b"transfer-encoding", _) => return Err("an unknown coding".to_owned()),
            _ => {
                fields.insert((name, value));
            }
        }
    }
    let body = &bytes[end + 4..];
    let (content, used) = match (chunked, length) {
        (true, Some(_)) => return Err("both ways of framing".to_owned()),
        (true, None) => match unchunk(body)? {
            Some(unchunked) => unchunked,
            None => return Ok(None),
        },
        (false, length) => {
            let length = length.unwrap_or(0);
            if body.len() < length {
                return Ok(None);
            }
            (body[..length].to_vec(), length)
        }
    };
    let rest = body[used..].to_vec();
    Ok(Some(Seen { method: method.to_owned(), target: target.to_owned(), fields, content, rest }))
}

fn unchunk(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let Some(end) = bytes[at..].windows(2).position(|window| window == b"\r\n") else {
            return Ok(None);
        };
        let size = std::str::from_utf8(&bytes[at..at + end]).map_err(|e| e.to_string())?;
        let size = usize::from_str_radix(size, 16).map_err(|e| e.to_string())?;
        at += end + 2;
        let Some(chunk) = bytes.get(at..at + size + 2) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err("a chunk does not end at its size".to_owned());
        }
        content.extend_from_slice(&chunk[..size]);
        at += size + 2;
        if size == 0 {
            return Ok(Some((content, at)));
        }
    }
}

/// Returns what the reader has to see of the admitted request.
fn expected(admitted: &Admitted, content: &[Bytes]) -> Seen {
    let fields = admitted.headers.iter().filter(|(name, _)| *name != CONTENT_LENGTH);
    Seen {
        method: admitted.method.to_string(),
        target: admitted.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        fields: fields
            .map(|(name, value)| (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect(),
        content: content.concat(),
        rest: Vec::new(),
    }
}

proptest! {
    #[test]
    fn admitted_request_is_one_request_over_http1(asked in request()) {
        if let Some((admitted, content)) = through_http3(&asked) {
            let authority = admitted.uri.authority().expect("the host is always there").as_str();
            prop_assert!(admitted.headers[HOST].to_str().unwrap().eq_ignore_ascii_case(authority));
            prop_assert_eq!(admitted.headers.get_all(HOST).iter().count(), 1);
            let written = through_http1(&admitted, &content);
            prop_assert_eq!(read(&written), Ok(Some(expected(&admitted, &content))), "{}", written.escape_ascii());
        }
    }
}

#[test]
fn generated_requests_are_mostly_admitted() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let admitted = Cell::new(0);
    let counted = runner.run(&request(), |asked| {
        admitted.set(admitted.get() + u32::from(through_http3(&asked).is_some()));
        Ok(())
    });
    assert!(counted.is_ok());
    // Of 256. A generator whose requests are all refused would prove nothing.
    assert!(admitted.get() > 25, "{}", admitted.get());
}
