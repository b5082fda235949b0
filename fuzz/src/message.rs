//! Headers and trailers: field lines accepted from a peer must be valid in every HTTP version.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use pronghorn_h3::{
    Config, Connection, Event, FieldLine, Head, Role, SectionLine, StreamId, varint,
};
use pronghorn_qpack::Encoder;

const STREAM: StreamId = StreamId(0);

/// Input format: one byte for the role and options, then lines that end with LF and separate name
/// and value with TAB. A line that contains only `=` begins the trailers.
pub(crate) fn run(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else { return };
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let mut connection = Connection::new(role, Config::default());
    if role == Role::Client {
        let method: &[u8] = if choice & 2 == 0 { b"GET" } else { b"HEAD" };
        let lines =
            [(":method", method), (":scheme", b"https"), (":authority", b"a"), (":path", b"/")];
        let lines = lines.map(|(name, value)| FieldLine::new(name.as_bytes(), value));
        connection.open_request(STREAM).expect("invariant: a new client takes requests");
        connection
            .encode_headers(STREAM, lines, &mut BytesMut::new())
            .expect("invariant: the request is open");
    }
    let content_length = usize::from(choice >> 4);
    let mut wire = BytesMut::new();
    for (place, section) in text
        .split_inclusive(|byte| *byte == b'\n')
        .collect::<Vec<_>>()
        .split(|line| *line == b"=\n")
        .enumerate()
    {
        if place == 1 {
            frame(0x00, &vec![b'.'; content_length], &mut wire);
        }
        let mut encoded = BytesMut::new();
        Encoder::new().encode(0, section.iter().map(|line| parse(line)), &mut encoded);
        frame(0x01, &encoded, &mut wire);
    }
    // A connection error is a valid outcome; events before it must still be correct.
    let is_alive = connection.handle_data(STREAM, wire.freeze()).is_ok()
        && connection.handle_fin(STREAM).is_ok();
    check(&mut connection, role, is_alive);
}

fn parse(line: &[u8]) -> FieldLine<'_> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let tab = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len());
    FieldLine::new(&line[..tab], line.get(tab + 1..).unwrap_or_default())
}

fn frame(frame_type: u64, payload: &[u8], wire: &mut BytesMut) {
    varint::encode(frame_type, wire);
    varint::encode(payload.len() as u64, wire);
    wire.extend_from_slice(payload);
}

fn check(connection: &mut Connection, role: Role, is_alive: bool) {
    let mut promised = None;
    let mut received = 0;
    let mut is_complete = false;
    let mut is_refused = false;
    while let Some(event) = connection.poll_event() {
        assert!(!is_complete && !is_refused, "{event:?} after the end");
        match event {
            Event::Head { head: Head::Request(head), end, .. } => {
                assert_eq!(role, Role::Server);
                assert!(Method::from_bytes(head.method()).is_ok(), "{head:?}");
                assert!(head.authority().is_some() || head.path().is_some(), "{head:?}");
                // Parts of a request line must not contain bytes that end it or split it.
                for part in [head.scheme(), head.authority(), head.path()].into_iter().flatten() {
                    assert!(part.iter().all(|byte| *byte > b' ' && *byte != 0x7f), "{head:?}");
                }
                head.fields().for_each(check_field);
                promised = head.content_length();
                is_complete = end;
            }
            Event::Head { head: Head::Response(head), end, .. } => {
                assert_eq!(role, Role::Client);
                assert!(StatusCode::from_u16(head.status()).is_ok());
                head.fields().for_each(check_field);
                promised = head.content_length().filter(|_| !head.is_interim());
                is_complete = end;
            }
            Event::Data { data, .. } => received += data.len() as u64,
            Event::Trailers { section, .. } => section.iter().for_each(check_field),
            Event::Finished { .. } => is_complete = true,
            Event::StreamError { .. } => is_refused = true,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        is_complete || is_refused || !is_alive,
        "an ended message is neither complete nor refused"
    );
    if is_complete && role == Role::Server {
        assert!(
            promised.is_none_or(|promised| promised == received),
            "{received} bytes where {promised:?} were promised"
        );
    }
}

fn check_field(line: SectionLine<'_>) {
    assert!(HeaderName::from_bytes(line.name).is_ok(), "{}", line.name.escape_ascii());
    assert!(!line.name.iter().any(u8::is_ascii_uppercase), "{}", line.name.escape_ascii());
    assert!(
        ![&b"connection"[..], b"transfer-encoding", b"upgrade", b"keep-alive", b"proxy-connection"]
            .contains(&line.name)
    );
    assert!(HeaderValue::from_bytes(line.value).is_ok(), "{}", line.value.escape_ascii());
    assert!(
        !line.value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')),
        "{}",
        line.value.escape_ascii()
    );
    let _: Bytes = Bytes::copy_from_slice(line.value);
}
