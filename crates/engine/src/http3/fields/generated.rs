//! Thousands of random heads with fragments that have broken other servers. Each head that a
//! handler gets, written as HTTP/1.1, must be one request with the same method, target, host and
//! lines, for any reader.

use bytes::BytesMut;
use http::HeaderMap;
use pronghorn_h3::{Config, Connection, Event, FieldLine, Head, Role, StreamId, varint};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::request;
use crate::admission::{Admitted, AuthorityCache};

/// Fragments that names and values are made of.
const PIECES: [&[u8]; 48] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"/",
    b"?",
    b"#",
    b"*",
    b"@",
    b"%0d%0a",
    b"\x7f",
    b"\xff",
    b"\xc3\xa9",
    b"a",
    b"B",
    b"localhost",
    b"LOCALHOST",
    b"example.com",
    b"[::1]",
    b":443",
    b":0443",
    b"user@",
    b"http://",
    b"https",
    b"//",
    b"/../",
    b"GET",
    b"POST",
    b"CONNECT",
    b"OPTIONS",
    b"HTTP/1.1",
    b"GET / HTTP/1.1\r\nhost: evil",
    b"0",
    b"5",
    b"+5",
    b"5, 5",
    b"chunked",
    b"identity",
    b"trailers",
    b"100-continue",
    b"close",
    b"content-length",
    b"transfer-encoding",
];

const NAMES: [&[u8]; 22] = [
    b":method",
    b":scheme",
    b":authority",
    b":path",
    b":status",
    b":protocol",
    b"host",
    b"Host",
    b"content-length",
    b"transfer-encoding",
    b"te",
    b"connection",
    b"cookie",
    b"expect",
    b"x",
    b"x y",
    b"x:",
    b"",
    b"x\r\ny",
    b"upgrade",
    b"trailer",
    b"content-length ",
];

type Line = (Vec<u8>, Vec<u8>);

fn valid() -> Vec<Line> {
    let lines: [(&[u8], &[u8]); 6] = [
        (b":method", b"POST"),
        (b":scheme", b"https"),
        (b":authority", b"localhost"),
        (b":path", b"/path?query"),
        (b"content-length", b"0"),
        (b"cookie", b"a=b"),
    ];
    lines.map(|(name, value)| (name.to_vec(), value.to_vec())).into()
}

/// Returns a valid head with a few changes.
fn draw(rng: &mut ChaCha8Rng) -> Vec<Line> {
    let mut lines = valid();
    for _ in 0..rng.random_range(1..=3) {
        let place = rng.random_range(0..lines.len().max(1)).min(lines.len().saturating_sub(1));
        match rng.random_range(0..6) {
            0 if lines.len() > 1 => drop(lines.remove(place)),
            1 => lines.push(lines[place].clone()),
            2 => lines.insert(place, (NAMES[rng.random_range(0..NAMES.len())].to_vec(), text(rng))),
            3 => lines.push((NAMES[rng.random_range(0..NAMES.len())].to_vec(), text(rng))),
            4 => {
                let (_, value) = &mut lines[place];
                let at = rng.random_range(0..=value.len());
                let piece = PIECES[rng.random_range(0..PIECES.len())];
                value.splice(at..at, piece.iter().copied());
            }
            _ => lines[place].1 = text(rng),
        }
    }
    lines
}

fn text(rng: &mut ChaCha8Rng) -> Vec<u8> {
    (0..rng.random_range(0..3))
        .flat_map(|_| PIECES[rng.random_range(0..PIECES.len())])
        .copied()
        .collect()
}

/// Returns what a handler would get of these lines, whether or not an earlier request has named the
/// same authority.
fn admit(lines: &[Line]) -> Option<Admitted> {
    let mut latest = AuthorityCache::default();
    let first = admit_after(&latest, lines);
    if let Some(first) = &first {
        latest.note(&first.uri, &first.headers);
    }
    let second = admit_after(&latest, lines);
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
    first
}

fn admit_after(latest: &AuthorityCache, lines: &[Line]) -> Option<Admitted> {
    let mut section = BytesMut::new();
    let lines = lines.iter().map(|(name, value)| FieldLine::new(name, value));
    encode(lines, &mut section);
    let mut wire = BytesMut::new();
    varint::encode(0x01, &mut wire);
    varint::encode(section.len() as u64, &mut wire);
    wire.extend_from_slice(&section);
    let mut server = Connection::new(Role::Server, Config::default());
    server.handle_data(StreamId(0), wire.freeze()).ok()?;
    server.handle_fin(StreamId(0)).ok()?;
    match server.poll_event()? {
        Event::Head { head: Head::Request(mut head), .. } => {
            request(&mut head, latest, HeaderMap::new(), &mut BytesMut::new())?.admit().ok()
        }
        _ => None,
    }
}

/// Encodes the lines as literals: a real encoder would omit forbidden ones.
fn encode<'a>(lines: impl Iterator<Item = FieldLine<'a>>, section: &mut BytesMut) {
    section.extend_from_slice(&[0, 0]);
    for line in lines {
        prefixed(0x20, 3, line.name.len(), section);
        section.extend_from_slice(line.name);
        prefixed(0, 7, line.value.len(), section);
        section.extend_from_slice(line.value);
    }
}

/// RFC 7541, section 5.1, for lengths that need less than two more bytes.
fn prefixed(flags: u8, bits: u32, value: usize, section: &mut BytesMut) {
    let most = (1 << bits) - 1;
    if value < most {
        section.extend_from_slice(&[flags | value as u8]);
    } else {
        assert!(value - most < 128);
        section.extend_from_slice(&[flags | most as u8, (value - most) as u8]);
    }
}

fn write_out(admitted: &Admitted) -> Vec<u8> {
    let target = match admitted.uri.path_and_query() {
        Some(path) => path.as_str(),
        None => admitted.uri.authority().unwrap().as_str(),
    };
    let mut out = format!("{} {target} HTTP/1.1\r\n", admitted.method).into_bytes();
    for (name, value) in &admitted.headers {
        out.extend_from_slice(
            &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat(),
        );
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Reads the head like the most lenient reader: every byte that some reader accepts as an end or
/// separator counts.
fn check(out: &[u8], admitted: &Admitted) {
    let text = || out.escape_ascii().to_string();
    assert!(!out.contains(&0), "{}", text());
    let lines: Vec<&[u8]> = out
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .collect();
    assert!(lines.iter().all(|line| !line.contains(&b'\r')), "{}", text());
    // The request line, the fields, the empty line, and nothing after it.
    assert_eq!(lines.len(), admitted.headers.len() + 3, "{}", text());
    assert!(lines[lines.len() - 2].is_empty() && lines[lines.len() - 1].is_empty(), "{}", text());
    let words: Vec<&[u8]> = lines[0].split(u8::is_ascii_whitespace).collect();
    assert_eq!((words.len(), words[0]), (3, admitted.method.as_str().as_bytes()), "{}", text());
    assert!(
        words[1].starts_with(b"/") || [&b"OPTIONS"[..], b"CONNECT"].contains(&words[0]),
        "{}",
        text()
    );
    let mut read = HeaderMap::new();
    for line in &lines[1..lines.len() - 2] {
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        read.append(
            http::HeaderName::from_bytes(name).unwrap(),
            http::HeaderValue::from_bytes(value).unwrap(),
        );
    }
    assert_eq!(read, admitted.headers, "{}", text());
    assert_eq!(read.get_all("host").iter().count(), 1, "{}", text());
    assert_eq!(
        read["host"].as_bytes(),
        admitted.uri.authority().unwrap().as_str().as_bytes(),
        "{}",
        text()
    );
    assert!(
        !read.contains_key("transfer-encoding") && !read.contains_key("connection"),
        "{}",
        text()
    );
    let mut lengths = read.get_all("content-length").iter();
    assert!(
        lengths.next().is_none_or(|length| length.as_bytes().iter().all(u8::is_ascii_digit))
            && lengths.next().is_none(),
        "{}",
        text()
    );
}

#[test]
fn admitted_head_is_one_request_over_http1() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut admitted_count = 0;
    for _ in 0..20_000 {
        let lines = draw(&mut rng);
        if let Some(admitted) = admit(&lines) {
            admitted_count += 1;
            check(&write_out(&admitted), &admitted);
        }
    }
    assert!(
        (1_000..19_000).contains(&admitted_count),
        "{admitted_count} heads admitted: the test is not meaningful"
    );
    assert!(admit(&valid()).is_some());
}
