use std::collections::VecDeque;

use bytes::Bytes;
use pronghorn_qpack::{huffman, integer};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

const PREFACE_TEXT: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;
/// Static table indices of the names that requests need here.
const METHOD: u64 = 2;
const AUTHORITY: u64 = 1;
const PATH: u64 = 4;
const SCHEME: u64 = 7;

/// A field as a client sends it.
#[derive(Clone, Debug)]
struct Sent {
    name: &'static [u8],
    value: Vec<u8>,
    indexed: bool,
    huffman: bool,
    /// Uses indices of the dynamic table where possible.
    refers: bool,
}

impl Sent {
    fn is_right(&self) -> bool {
        match self.name {
            b":path" => std::str::from_utf8(&self.value).is_ok(),
            b":status" => false,
            name => {
                http::HeaderName::from_lowercase(name).is_ok()
                    && http::HeaderValue::from_bytes(&self.value).is_ok()
            }
        }
    }
}

/// A client's HPACK encoder, with the whole dynamic table.
#[derive(Default)]
struct Encoder {
    table: VecDeque<(&'static [u8], Vec<u8>)>,
}

impl Encoder {
    fn encode(&mut self, field: &Sent, out: &mut Vec<u8>) {
        let slot = |found: Option<usize>| found.map_or(0, |at| 62 + at as u64);
        let known = slot(
            self.table
                .iter()
                .position(|(name, value)| *name == field.name && *value == field.value),
        );
        if field.refers && known > 0 {
            return integer::encode(0x80, 7, known, out);
        }
        let name = if field.refers {
            slot(self.table.iter().position(|(name, _)| *name == field.name))
        } else {
            0
        };
        if field.indexed {
            integer::encode(0x40, 6, name, out);
        } else {
            integer::encode(0x10, 4, name, out);
        }
        if name == 0 {
            write_text(field.name, field.huffman, out);
        }
        write_text(&field.value, field.huffman, out);
        if field.indexed {
            self.table.push_front((field.name, field.value.clone()));
            while self
                .table
                .iter()
                .map(|(name, value)| name.len() + value.len() + 32)
                .sum::<usize>()
                > 4096
            {
                self.table.pop_back();
            }
        }
    }

    /// Encodes a request with these additional fields.
    fn request(&mut self, fields: &[Sent]) -> Vec<u8> {
        let mut block = Vec::new();
        integer::encode(0x80, 7, METHOD, &mut block);
        integer::encode(0x80, 7, SCHEME, &mut block);
        integer::encode(0x00, 4, AUTHORITY, &mut block);
        write_text(b"a.example", true, &mut block);
        if !fields.iter().any(|field| field.name == b":path") {
            integer::encode(0x80, 7, PATH, &mut block);
        }
        for field in fields {
            self.encode(field, &mut block);
        }
        block
    }
}

fn write_text(text: &[u8], huffman: bool, out: &mut Vec<u8>) {
    if huffman {
        integer::encode(0x80, 7, huffman::encoded_len(text) as u64, out);
        huffman::encode(text, out);
    } else {
        integer::encode(0, 7, text.len() as u64, out);
        out.extend_from_slice(text);
    }
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Returns what a client sends before its first request.
fn beginning() -> Vec<u8> {
    [PREFACE_TEXT, &frame(kind::SETTINGS, 0, 0, &[])].concat()
}

/// Puts a block into frames: with padding and priority, or in two.
fn frames(stream: u32, block: &[u8], shape: u8) -> Vec<u8> {
    let end = flags::END_STREAM;
    match shape % 5 {
        // A stream that depends on itself (RFC 7540, section 5.3.1).
        4 => {
            let content = [&stream.to_be_bytes()[..], &[15], block].concat();
            frame(kind::HEADERS, end | flags::END_HEADERS | flags::PRIORITY, stream, &content)
        }
        0 => frame(kind::HEADERS, end | flags::END_HEADERS, stream, block),
        1 => frame(
            kind::HEADERS,
            end | flags::END_HEADERS | flags::PADDED,
            stream,
            &[&[3], block, &[0; 3]].concat(),
        ),
        2 => {
            let all = flags::PADDED | flags::PRIORITY;
            let content = [&[1][..], &[0, 0, 0, 0, 15], block, &[0]].concat();
            frame(kind::HEADERS, end | flags::END_HEADERS | all, stream, &content)
        }
        _ => {
            let (first, second) = block.split_at(block.len() / 2);
            let first = frame(kind::HEADERS, end, stream, first);
            [first, frame(kind::CONTINUATION, flags::END_HEADERS, stream, second)].concat()
        }
    }
}

/// A request's stream, its path, and its fields without pseudo-header fields.
type Asked = (u32, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);

/// The result of serving a connection.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    requests: Vec<Asked>,
    /// Streams that were reset, with their error codes.
    resets: Vec<(u32, u32)>,
    /// The error code that the connection was closed with.
    closed: Option<u32>,
}

/// Lets h2 serve the bytes in `pieces`.
fn serve(pieces: &[&[u8]]) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let serving = tokio::spawn(serve_all(server));
        for piece in pieces {
            // The connection may have closed meanwhile.
            let _ = client.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
        let mut written = Vec::new();
        client.read_to_end(&mut written).await.unwrap();
        let mut seen = Seen { requests: serving.await.unwrap(), ..Seen::default() };
        let mut written = &written[..];
        while let Some(head) = Frame::begun(written) {
            let (content, rest) = written[HEAD..].split_at(head.length);
            let code = |at: usize| u32::from_be_bytes(content[at..at + 4].try_into().unwrap());
            match head.kind {
                kind::RST_STREAM => seen.resets.push((head.stream, code(0))),
                kind::GOAWAY => {
                    seen.closed = seen.closed.or(Some(code(4)).filter(|code| *code != 0));
                }
                _ => {}
            }
            written = rest;
        }
        seen
    })
}

async fn serve_all(io: DuplexStream) -> Vec<Asked> {
    let mut requests = Vec::new();
    let limits = Limits::default();
    let mut builder = h2::server::Builder::new();
    builder.max_header_list_size(limits.field_section_bytes() as u32);
    let Ok(mut connection) =
        builder.handshake::<_, Bytes>(CheckedFieldBlocks::of_client(io, &limits)).await
    else {
        return requests;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let fields = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().into(), value.as_bytes().into()));
        requests.push((
            respond.stream_id().as_u32(),
            request.uri().path().into(),
            fields.collect(),
        ));
        respond.send_response(http::Response::new(()), true).unwrap();
    }
    requests
}

fn sent(name: &'static [u8], value: &[u8]) -> Sent {
    Sent { name, value: value.into(), indexed: true, huffman: true, refers: true }
}

fn wire(requests: &[Vec<Sent>]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    let mut wire = beginning();
    for (number, fields) in requests.iter().enumerate() {
        wire.extend(frames(2 * number as u32 + 1, &encoder.request(fields), 0));
    }
    wire
}

#[test]
fn each_kind_of_wrong_field_ends_its_stream_alone() {
    let wrong: [(&'static [u8], &[u8]); 11] = [
        (b"X-Capital", b"a"),
        (b"a b", b"a"),
        (b"", b"ab"),
        (b":unknown", b"a"),
        (b"x-value", b"a\x01b"),
        (b"x-value", b"\x7f"),
        (b":path", b"/\xe9t\xe9"),
        (b":method", b"G T"),
        (b":method", b""),
        (b":status", b"20"),
        (b":status", b""),
    ];
    for (name, value) in wrong {
        for (indexed, huffman) in [(true, true), (true, false), (false, true), (false, false)] {
            let one = Sent { indexed, huffman, ..sent(name, value) };
            let good = vec![sent(b"x-good", b"good")];
            let seen =
                serve(&[&wire(&[good.clone(), vec![one.clone()], good.clone(), vec![one], good])]);
            let asked: Vec<_> = seen.requests.iter().map(|(stream, ..)| *stream).collect();
            let what = (String::from_utf8_lossy(name), indexed, huffman);
            assert_eq!(
                (asked, &seen.resets[..]),
                (vec![1, 5, 9], &[(3, PROTOCOL_ERROR), (7, PROTOCOL_ERROR)][..]),
                "{what:?}"
            );
            assert!(
                seen.requests
                    .iter()
                    .all(|(_, _, fields)| fields == &[(b"x-good".to_vec(), b"good".to_vec())]),
                "{what:?}"
            );
            assert_eq!(seen.closed, None, "{what:?}");
        }
    }
}

#[test]
fn name_of_a_wrong_value_can_be_used_again() {
    let requests = [
        vec![sent(b"x-user", b"a\nb")],
        // Refers to the name alone.
        vec![sent(b"x-user", b"good")],
        // Refers to the whole field.
        vec![sent(b"x-user", b"a\nb")],
        vec![sent(b"x-user", b"good")],
    ];
    let seen = serve(&[&wire(&requests)]);
    let user = vec![(b"x-user".to_vec(), b"good".to_vec())];
    assert_eq!(seen.requests, [(3, b"/".to_vec(), user.clone()), (7, b"/".to_vec(), user)]);
    assert_eq!(seen.resets, [(1, PROTOCOL_ERROR), (5, PROTOCOL_ERROR)]);
}

#[test]
fn what_cannot_be_followed_ends_the_connection() {
    let whole = flags::END_STREAM | flags::END_HEADERS;
    let good = Encoder::default().request(&[]);
    let broken = [
        // An index without an entry.
        frame(kind::HEADERS, whole, 1, &[0xff, 0x00]),
        // An empty field, which no other field can replace.
        frame(kind::HEADERS, whole, 1, &[0x40, 0, 0]),
        frame(kind::PUSH_PROMISE, flags::END_HEADERS, 1, &[0, 0, 0, 2, 0x82]),
        // A frame of another stream within a block whose beginning is malformed.
        [
            frame(kind::HEADERS, flags::END_STREAM, 1, FORBIDDEN),
            frame(kind::HEADERS, whole, 3, &good),
        ]
        .concat(),
        frame(kind::HEADERS, whole | flags::PADDED, 1, &[9, 0x82]),
        frame(kind::HEADERS, whole, 0, &good),
    ];
    for (number, broken) in broken.into_iter().enumerate() {
        let after = frame(kind::HEADERS, whole, 5, &good);
        let seen = serve(&[&beginning(), &broken, &after]);
        assert!(seen.closed.is_some() && seen.requests.is_empty(), "{number}: {seen:?}");
    }
}

/// h2 counts the frames of a block too and closes the connection with ENHANCE_YOUR_CALM, even if
/// all frames arrive in one read.
#[test]
fn block_in_more_frames_than_are_taken_ends_the_connection_with_the_code_for_that() {
    let mut flood =
        [beginning(), frame(kind::HEADERS, flags::END_STREAM, 1, &Encoder::default().request(&[]))]
            .concat();
    for _ in 0..100 {
        flood.extend(frame(kind::CONTINUATION, 0, 1, &[]));
    }
    for size in [1, HEAD, 100, flood.len()] {
        let seen = serve(&flood.chunks(size).collect::<Vec<_>>());
        assert_eq!(
            (seen.closed, seen.requests.len()),
            (Some(ENHANCE_YOUR_CALM), 0),
            "in pieces of {size}"
        );
    }
}

#[test]
fn block_that_is_malformed_in_its_first_frame_ends_its_stream_alone() {
    let block = Encoder::default().request(&[sent(b"te", b"gzip"), sent(b"x-good", b"good")]);
    // Cut in the middle of the last field, behind the malformed one, and at the end.
    for cut in [block.len(), block.len() - 1] {
        let (first, second) = block.split_at(cut);
        let wire = [
            frame(kind::HEADERS, flags::END_STREAM, 1, first),
            frame(kind::CONTINUATION, flags::END_HEADERS, 1, second),
            frame(
                kind::HEADERS,
                flags::END_STREAM | flags::END_HEADERS,
                3,
                &Encoder::default().request(&[]),
            ),
        ];
        let seen = serve(&[&beginning(), &wire.concat()]);
        assert_eq!(
            (seen.requests.len(), &seen.resets[..], seen.closed),
            (1, &[(1, PROTOCOL_ERROR)][..], None),
            "{cut}"
        );
    }
}

#[test]
fn what_is_replaced_takes_little_more_room_than_what_came() {
    // One long invalid name, and many fields that refer to it.
    let mut block = Vec::new();
    integer::encode(0x40, 6, 0, &mut block);
    write_text(&[b'A'; 4000], false, &mut block);
    write_text(b"", false, &mut block);
    let named = [0x7e, 0x00].repeat(5000);
    let mut table = Table::default();
    let changed = [table.check(&block, usize::MAX), table.check(&named, usize::MAX)]
        .map(|changed| changed.ok().flatten().unwrap().len());
    assert!(changed[0] < block.len() && changed[1] < named.len() * 2, "{changed:?}");
    // A block that would become longer than a frame is refused.
    assert!(Table::default().check(&[0x40, 1, b'A', 1, 1].repeat(4000), MAX_FRAME_BYTES).is_err());
}

#[test]
fn ten_ones_are_found_wherever_they_are() {
    for bytes in 2..20 {
        for at in 0..bytes * 8 - 10 {
            for ones in [9, 10, 11] {
                let mut code = vec![0_u8; bytes + 1];
                (at..at + ones).for_each(|bit| code[bit / 8] |= 0x80 >> (bit % 8));
                assert_eq!(hpack::has_ten_ones(&code), ones >= 10, "{ones} at {at} of {bytes}");
            }
        }
    }
}

#[test]
fn every_text_that_is_wrong_is_looked_at() {
    for byte in 0..=u8::MAX {
        let (mut code, is_control) = (Vec::new(), byte < b' ' && byte != b'\t' || byte == 0x7f);
        huffman::encode(&[b'a', byte, b'a'], &mut code);
        assert!(hpack::has_ten_ones(&code) || !is_control && byte.is_ascii(), "{byte}");
    }
}

fn field() -> impl Strategy<Value = Sent> {
    const NAMES: [&[u8]; 10] = [
        b"x-one",
        b"x-two",
        b"cookie",
        b"user-agent",
        b"X-Capital",
        b"",
        b":unknown",
        b":path",
        b":status",
        b"Y",
    ];
    // Mostly valid names.
    let name = prop_oneof![6 => 0..4_usize, 1 => 4..10_usize];
    let text = prop::collection::vec(
        prop_oneof![20 => b' '..0x7f, 1 => 0x80..=0xff_u8, 1 => 0..b' '],
        2..60,
    );
    let long = (0..2000_usize).prop_map(|length| vec![b'z'; length + 2]);
    let value = prop_oneof![8 => "[a-z/]{2,40}".prop_map(String::into_bytes), 3 => text, 1 => long];
    (name, value, any::<[bool; 3]>()).prop_map(|(name, value, [indexed, huffman, refers])| {
        let path = NAMES[name] == b":path";
        let value = if path { [b"/", &value[..]].concat() } else { value };
        Sent { name: NAMES[name], value, indexed, huffman, refers }
    })
}

proptest! {
    #[test]
    fn messages_are_what_was_sent_or_refused_whatever_the_table_has(
        requests in prop::collection::vec((prop::collection::vec(field(), 0..5), any::<u8>()), 1..20),
        size in 1..4000_usize,
    ) {
        let mut encoder = Encoder::default();
        let mut wire = beginning();
        let (mut served, mut refused) = (Vec::new(), Vec::new());
        for (number, (fields, shape)) in requests.iter().enumerate() {
            // Pseudo-header fields come first, and only once.
            let (mut pseudo, rest): (Vec<_>, Vec<_>) = fields.iter().cloned().partition(|field| field.name.first() == Some(&b':'));
            pseudo.truncate(1);
            let fields = [pseudo, rest].concat();
            let stream = 2 * number as u32 + 1;
            wire.extend(frames(stream, &encoder.request(&fields), *shape));
            let path = fields.iter().find(|field| field.name == b":path").map_or(&b"/"[..], |field| &field.value);
            // How h2 interprets a path is not tested here.
            let path = std::str::from_utf8(path).ok().and_then(|path| path.parse::<http::Uri>().ok());
            match path.filter(|_| shape % 5 != 4 && fields.iter().all(Sent::is_right)) {
                None => refused.push((stream, PROTOCOL_ERROR)),
                Some(path) => {
                    let fields = fields.iter().filter(|field| field.name != b":path").map(|field| (field.name.to_vec(), field.value.clone()));
                    served.push((stream, path.path().as_bytes().to_vec(), fields.collect::<Vec<_>>()));
                }
            }
        }
        let pieces: Vec<&[u8]> = wire.chunks(size).collect();
        let mut seen = serve(&pieces);
        // The header map groups fields of the same name.
        for (_, _, fields) in seen.requests.iter_mut().chain(&mut served) {
            fields.sort();
        }
        prop_assert_eq!(seen, Seen { requests: served, resets: refused, closed: None });
    }

    #[test]
    fn no_bytes_are_too_strange(
        requests in prop::collection::vec((prop::collection::vec(field(), 0..5), any::<u8>()), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        size in 1..400_usize,
    ) {
        let mut encoder = Encoder::default();
        let mut wire = Vec::new();
        for (number, (fields, shape)) in requests.iter().enumerate() {
            wire.extend(frames(2 * number as u32 + 1, &encoder.request(fields), *shape));
        }
        let length = wire.len();
        for (at, byte) in &changes {
            wire[at.index(length)] = *byte;
        }
        let beginning = beginning();
        let pieces: Vec<&[u8]> = std::iter::once(&beginning[..]).chain(wire.chunks(size)).collect();
        // The connection has to end.
        serve(&pieces);
    }
}
