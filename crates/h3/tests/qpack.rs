//! Dynamic tables on a connection: blocked streams, cancellations, and bounded buffers.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Config, Connection, ErrorCode, FieldLine, Limit, Role, StreamId, UniStream};
use pronghorn_qpack::{Encoder, integer};
use proptest::{collection::vec, prelude::*, sample};
use support::{
    GET, Pair, REQUEST, Scripted, data, deliver, frame, get_with, headers, joined_events, settings,
    uni_ids,
};

/// A scripted client whose encoder uses the server's dynamic table.
struct Client {
    encoder: Encoder,
    server: Scripted,
    encoder_stream: StreamId,
}

impl Client {
    fn new() -> Self {
        Self::with_config(Config::default())
    }

    fn with_config(config: Config) -> Self {
        let mut encoder = Encoder::new();
        encoder.set_peer_settings(config.qpack_table_capacity(), config.qpack_blocked_streams());
        let mut server = Scripted::with_config(Role::Server, config);
        server.encoder_stream(&[]).expect("a stream's type alone");
        let encoder_stream = server.peer().encoder;
        while server.connection.poll_uni_write().is_some() {}
        Self { encoder, server, encoder_stream }
    }

    /// Returns a HEADERS frame that needs the insertions of [`Client::insert`].
    fn headers(&mut self, stream: StreamId, lines: &[(&str, &str)]) -> Vec<u8> {
        let mut section = BytesMut::new();
        let lines =
            lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
        self.encoder.encode(stream.0, lines, &mut section);
        assert_ne!(section[0], 0, "the section refers to the dynamic table");
        frame(0x01, &section)
    }

    fn get(&mut self, stream: StreamId, path: &str) -> Vec<u8> {
        self.headers(stream, &[GET[0], GET[1], GET[2], (":path", path), ("user-agent", path)])
    }

    fn insert(&mut self) {
        let instructions = self.encoder.take_instructions().expect("something was inserted");
        self.server
            .receive(self.encoder_stream, &instructions)
            .expect("our own instructions are valid");
    }

    /// Returns the output of the server's decoder stream.
    fn decoder_stream(&mut self) -> Vec<u8> {
        let written = std::iter::from_fn(|| self.server.connection.poll_uni_write());
        written
            .filter(|(stream, _)| *stream == UniStream::QpackDecoder)
            .flat_map(|(_, bytes)| bytes)
            .collect()
    }

    fn unblocked(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.server.connection.poll_unblocked())
            .map(|stream| stream.0)
            .collect()
    }
}

fn request(stream: u64, path: &str) -> String {
    format!("{stream} GET https://example.com{path} user-agent={path}")
}

#[test]
fn repeated_heads_shrink_in_both_directions() {
    let mut pair = Pair::new(10_000);
    pair.carry_uni();
    let agent = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36");
    let mut sizes = Vec::new();
    for id in [0, 4, 8] {
        let stream = StreamId(id);
        let mut out = BytesMut::new();
        pair.client.open_request(stream).unwrap();
        let lines = [GET[0], GET[1], GET[2], GET[3], agent];
        pair.client
            .encode_headers(
                stream,
                lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes())),
                &mut out,
            )
            .unwrap();
        pair.carry_uni();
        pair.feed_server(stream, &out);
        let mut answer = BytesMut::new();
        let lines = [
            (":status", "200"),
            ("server", "a-server-with-a-name"),
            ("x-policy", "a policy of some length"),
        ];
        pair.server
            .encode_headers(
                stream,
                lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes())),
                &mut answer,
            )
            .unwrap();
        pair.carry_uni();
        pair.feed_client(stream, &answer);
        sizes.push((out.len(), answer.len()));
        let head = format!("{id} GET https://example.com/index.html user-agent={}", agent.1);
        assert!(joined_events(&mut pair.server).contains(&head));
        let head = format!("{id} 200 server=a-server-with-a-name x-policy=a policy of some length");
        assert!(joined_events(&mut pair.client).contains(&head));
    }
    // Only a path of 11 characters is spelled out in the last request.
    assert!(sizes[2].0 < 20 && sizes[2].1 < 10, "{sizes:?}");
}

#[test]
fn settings_match_the_configuration() {
    let config = Config::default().with_grease(false);
    let config =
        config.with_qpack_table_capacity(0).unwrap().with_qpack_blocked_streams(0).unwrap();
    let (_, bytes) = Connection::new(Role::Server, config).poll_uni_write().unwrap();
    assert_eq!(bytes[1..], settings(&[0x06, 65_536]));
    assert!(Config::default().with_qpack_table_capacity((1 << 20) + 1).is_err());
    assert!(Config::default().with_qpack_encoder_capacity((1 << 20) + 1).is_err());
    assert!(Config::default().with_qpack_blocked_streams(1025).is_err());
}

//= RFC 9204 section 4.2
//# An endpoint MUST allow its peer to create an encoder stream and a decoder stream even if the connection's settings prevent
//# their use.
//= RFC 9204 section 4.2
//# The sender MUST NOT close either of these streams, and the receiver MUST NOT request that the sender close either of these
//# streams.
#[test]
fn qpack_streams_are_allowed_without_a_table() {
    let config = Config::default()
        .with_qpack_table_capacity(0)
        .unwrap()
        .with_qpack_encoder_capacity(0)
        .unwrap();
    let mut server = Scripted::with_config(Role::Server, config);
    server.encoder_stream(&[0x20]).unwrap();
    server.decoder_stream(&[0x44]).unwrap();
    // No event asks the caller to stop them, and the caller cannot end its own.
    assert!(server.events().is_empty());
}

//= RFC 9204 section 3.2.3
//# When the maximum table capacity is zero, the encoder MUST NOT insert entries into the dynamic table and MUST NOT send any
//# encoder instructions on the encoder stream.
#[test]
fn nothing_is_inserted_before_settings_or_with_zero_capacity() {
    let streams = |connection: &mut Connection| {
        std::iter::from_fn(|| connection.poll_uni_write())
            .map(|(stream, _)| stream)
            .collect::<Vec<_>>()
    };
    for (capacity, with_settings) in [(4096, false), (0, true)] {
        let mut client = Scripted::with_config(
            Role::Client,
            Config::default().with_qpack_encoder_capacity(capacity).unwrap(),
        );
        if with_settings {
            client.control(&settings(&[0x01, 4096, 0x07, 16])).unwrap();
        }
        client.connection.open_request(REQUEST).unwrap();
        client.send(REQUEST, &GET).unwrap();
        assert_eq!(streams(&mut client.connection), [UniStream::Control]);
    }
}

//= RFC 9204 section 4.2
//# Each endpoint MUST initiate, at most, one encoder stream and, at most, one decoder stream.
#[test]
fn own_streams_are_opened_once() {
    let mut client = Scripted::new(Role::Client);
    client.control(&settings(&[0x01, 4096, 0x07, 16])).unwrap();
    let mut written = Vec::new();
    for (id, agent) in [(0, "a"), (4, "b"), (8, "c")] {
        client.connection.open_request(StreamId(id)).unwrap();
        client
            .send(StreamId(id), &[GET[0], GET[1], GET[2], GET[3], ("user-agent", agent)])
            .unwrap();
        let bytes = std::iter::from_fn(|| client.connection.poll_uni_write())
            .filter(|(stream, _)| *stream == UniStream::QpackEncoder);
        written.push(bytes.map(|(_, bytes)| bytes).collect::<Vec<_>>().concat());
    }
    // First the stream type and the capacity, then only insertions.
    assert_eq!(written[0][..4], [0x02, 0x3f, 0xe1, 0x1f]);
    assert!(written[1..].iter().all(|bytes| bytes[0] & 0x80 != 0), "{written:x?}");
}

//= RFC 9204 section 2.2.1
//# While blocked, encoded field section data SHOULD remain in the blocked stream's flow-control window.
#[test]
fn blocked_stream_resumes_where_it_stopped() {
    let mut client = Client::new();
    let stream = StreamId(4);
    let head = client.headers(
        stream,
        &[
            (":method", "POST"),
            GET[1],
            GET[2],
            GET[3],
            ("user-agent", "a"),
            ("content-length", "5"),
        ],
    );
    client.server.receive(stream, &[head, data(b"hel")].concat()).unwrap();
    assert!(client.server.connection.is_blocked(stream));
    assert!(client.server.events().is_empty());
    // Data that the caller has already read is not lost.
    client.server.receive(stream, &data(b"lo")).unwrap();
    client.server.fin(stream).unwrap();
    assert!(client.server.events().is_empty());
    client.insert();
    assert!(!client.server.connection.is_blocked(stream));
    assert_eq!(client.unblocked(), [4]);
    let head = "4 POST https://example.com/index.html user-agent=a content-length=5";
    assert_eq!(joined_events(&mut client.server.connection), [head, "4 data hello", "4 finished"]);
    // The type of our decoder stream and the acknowledgment.
    assert_eq!(client.decoder_stream(), [0x03, 0x84]);
}

#[test]
fn fin_of_a_blocked_stream_is_reported_with_its_head() {
    let mut client = Client::new();
    let head = client.get(REQUEST, "/a");
    client.server.receive(REQUEST, &head).unwrap();
    client.server.fin(REQUEST).unwrap();
    client.insert();
    assert_eq!(client.server.events(), [format!("{} end", request(0, "/a"))]);
}

#[test]
fn blocked_trailers_of_an_answered_request_are_reported() {
    let mut client = Client::new();
    let trailers = client.headers(REQUEST, &[("server", "b")]);
    client.server.receive(REQUEST, &[get_with(&[]), trailers].concat()).unwrap();
    client.server.fin(REQUEST).unwrap();
    client.server.events();
    client.server.connection.finish_sending(REQUEST);
    assert_eq!(client.server.connection.open_streams(), 1);
    client.insert();
    assert_eq!(client.server.events(), ["0 trailers server=b", "0 finished"]);
    assert_eq!(client.server.connection.open_streams(), 0);
}

#[test]
fn streams_resume_in_the_order_in_which_they_were_blocked() {
    let mut client = Client::new();
    let heads: Vec<_> =
        [8, 0, 4].map(|id| (StreamId(id), client.get(StreamId(id), &format!("/{id}")))).into();
    for (stream, head) in heads {
        client.server.receive(stream, &head).unwrap();
    }
    // A section without dynamic references does not wait.
    client.server.receive(StreamId(12), &get_with(&[])).unwrap();
    assert_eq!(client.server.events(), ["12 GET https://example.com/index.html"]);
    client.insert();
    assert_eq!(client.unblocked(), [8, 0, 4]);
    assert_eq!(client.server.events(), [request(8, "/8"), request(0, "/0"), request(4, "/4")]);
}

#[test]
fn head_and_trailers_can_both_be_blocked() {
    let mut client = Client::new();
    let head = client.get(REQUEST, "/a");
    let first = client.encoder.take_instructions().unwrap();
    let trailers = client.headers(REQUEST, &[("server", "b")]);
    client.server.receive(REQUEST, &[head, data(b"c"), trailers].concat()).unwrap();
    client.server.fin(REQUEST).unwrap();
    client.server.receive(client.encoder_stream, &first).unwrap();
    assert_eq!(client.server.events(), [request(0, "/a"), "0 data c".into()]);
    assert!(client.server.connection.is_blocked(REQUEST));
    assert!(client.unblocked().is_empty());
    client.insert();
    assert_eq!(client.server.events(), ["0 trailers server=b", "0 finished"]);
    assert_eq!(client.unblocked(), [0]);
}

/// Both streams byte by byte give the same result.
#[test]
fn insertions_split_anywhere_unblock() {
    let mut client = Client::new();
    let head = client.get(REQUEST, "/a");
    let instructions = client.encoder.take_instructions().unwrap();
    for byte in head {
        client.server.receive(REQUEST, &[byte]).unwrap();
    }
    for byte in instructions {
        assert!(client.server.events().is_empty());
        client.server.receive(client.encoder_stream, &[byte]).unwrap();
    }
    assert_eq!(client.server.events(), [request(0, "/a")]);
}

//= RFC 9204 section 2.1.2
//# If a decoder encounters more blocked streams than it promised to support, it MUST treat this as a connection error of
//# type QPACK_DECOMPRESSION_FAILED.
#[test]
fn more_blocked_streams_than_promised_close_connection() {
    let config = Config::default().with_qpack_blocked_streams(2).unwrap();
    let mut server = Scripted::with_config(Role::Server, config);
    let blocked = frame(0x01, &[2, 0x00, 0x80]);
    assert_eq!(server.receive(StreamId(0), &blocked), Ok(()));
    assert_eq!(server.receive(StreamId(4), &blocked), Ok(()));
    let error =
        server.connection.handle_data(StreamId(8), Bytes::copy_from_slice(&blocked)).unwrap_err();
    assert_eq!(
        (error.code(), error.limit()),
        (ErrorCode::QPACK_DECOMPRESSION_FAILED, Some(Limit::QpackBlockedStreams))
    );
}

#[test]
fn table_capacity_above_the_offer_names_its_limit() {
    let config = Config::default().with_qpack_table_capacity(100).unwrap();
    let mut server = Scripted::with_config(Role::Server, config);
    server.encoder_stream(&[0x3f, 100 - 31]).unwrap();
    let error = server
        .connection
        .handle_data(server.peer().encoder, Bytes::from_static(&[0x3f, 101 - 31]))
        .unwrap_err();
    assert_eq!(
        (error.code(), error.limit()),
        (ErrorCode::QPACK_ENCODER_STREAM_ERROR, Some(Limit::QpackTableCapacity))
    );
}

#[test]
fn data_received_on_a_blocked_stream_is_bounded() {
    let mut client = Client::new();
    let head = client.get(REQUEST, "/a");
    client.server.receive(REQUEST, &head).unwrap();
    let piece = data(&[0; 1000]);
    let outcome = (0..1000).try_for_each(|_| client.server.receive(REQUEST, &piece));
    assert_eq!(outcome, Err(ErrorCode::H3_EXCESSIVE_LOAD));
}

#[test]
fn reset_of_a_blocked_stream_is_reported_and_cancelled() {
    let mut client = Client::new();
    let head = client.get(REQUEST, "/a");
    client.server.receive(REQUEST, &head).unwrap();
    client.server.reset(REQUEST, ErrorCode::H3_REQUEST_CANCELLED).unwrap();
    assert_eq!(client.server.events(), ["0 reset H3_REQUEST_CANCELLED"]);
    assert_eq!(client.decoder_stream(), [0x03, 0x40]);
    client.insert();
    assert!(client.unblocked().is_empty() && client.server.events().is_empty());
    // Only the insertions are acknowledged.
    assert_eq!(client.decoder_stream(), [0x02]);
    let outcome = client.encoder.handle_decoder_stream(&[0x40, 0x02]);
    assert_eq!(outcome, Ok(()));
}

#[test]
fn abandoned_streams_are_cancelled_once() {
    let mut client = Client::new();
    client.server.receive(StreamId(0), &get_with(&[])).unwrap();
    client.server.connection.stop_receiving(StreamId(0));
    assert_eq!(client.decoder_stream(), [0x03, 0x40]);
    // A malformed message; the caller then stops both directions.
    client.server.receive(StreamId(4), &headers(&[("x-a", "b")])).unwrap();
    client.server.connection.stop_receiving(StreamId(4));
    client.server.connection.finish_sending(StreamId(4));
    // Reset, and then stopped by a caller that has not seen the reset.
    client.server.receive(StreamId(8), &get_with(&[])).unwrap();
    client.server.reset(StreamId(8), ErrorCode::H3_REQUEST_CANCELLED).unwrap();
    client.server.connection.stop_receiving(StreamId(8));
    // Reset before any data: a HEADERS frame may have been lost.
    client.server.reset(StreamId(12), ErrorCode::H3_REQUEST_CANCELLED).unwrap();
    assert_eq!(client.decoder_stream(), [0x44, 0x48, 0x4c]);
}

#[test]
fn complete_messages_are_not_cancelled() {
    let mut client = Client::new();
    client.server.receive(REQUEST, &get_with(&[])).unwrap();
    client.server.fin(REQUEST).unwrap();
    client.server.connection.stop_receiving(REQUEST);
    client.server.connection.finish_sending(REQUEST);
    assert_eq!(client.server.connection.open_streams(), 0);
    assert!(client.decoder_stream().is_empty());
}

/// A few bytes that decode to many copies of a large entry are refused by their decoded size. The
/// stream is cancelled, so that the peer can evict the entry.
#[test]
fn repeated_references_count_with_their_decoded_size() {
    let mut server = Client::new().server;
    let value = vec![b'v'; 4000];
    let mut insertion = vec![0x3f, 0xe1, 0x1f, 0xc0 | 5];
    integer::encode(0, 7, value.len() as u64, &mut insertion);
    insertion.extend(&value);
    let encoder = server.peer().encoder;
    server.receive(encoder, &insertion).unwrap();
    let mut bomb = vec![2, 0, 0xd1, 0xd7, 0xc1];
    bomb.extend([0x80; 1000]);
    server.receive(REQUEST, &frame(0x01, &bomb)).unwrap();
    assert_eq!(server.events(), ["0 error H3_EXCESSIVE_LOAD"]);
    let mut client = Client { encoder: Encoder::new(), server, encoder_stream: encoder };
    assert_eq!(client.decoder_stream(), [0x03, 0x40, 0x01]);
}

//= RFC 9204 section 7.4
//# If an implementation encounters a value larger than it is able to decode, this MUST be treated as a stream error of type
//# QPACK_DECOMPRESSION_FAILED if on a request stream or a connection error of the appropriate type if on the encoder or
//# decoder stream.
#[test]
fn oversized_integer_fails_its_request_or_the_connection() {
    let mut endless = vec![0, 0];
    endless.extend([0xff; 12]);
    let mut server = Scripted::server();
    server.receive(REQUEST, &frame(0x01, &endless)).unwrap();
    assert_eq!(server.stream_error(), Some(ErrorCode::QPACK_DECOMPRESSION_FAILED));
    assert_eq!(
        Scripted::server().encoder_stream(&endless[2..]),
        Err(ErrorCode::QPACK_ENCODER_STREAM_ERROR)
    );
    assert_eq!(
        Scripted::server().decoder_stream(&endless[2..]),
        Err(ErrorCode::QPACK_DECODER_STREAM_ERROR)
    );
}

#[test]
fn decoder_stream_backlog_closes_connection() {
    let mut client = Client::new();
    client.server.connection.set_uni_backlog(UniStream::QpackDecoder, 64 * 1024);
    client.server.receive(REQUEST, &get_with(&[])).unwrap();
    client.server.connection.set_uni_backlog(UniStream::QpackDecoder, 64 * 1024 + 1);
    assert_eq!(
        client.server.receive(StreamId(4), &get_with(&[])),
        Err(ErrorCode::H3_EXCESSIVE_LOAD)
    );
}

#[test]
fn encoder_stream_backlog_stops_references_to_unsent_entries() {
    let mut client = Scripted::new(Role::Client);
    client.control(&settings(&[0x01, 4096, 0x07, 16])).unwrap();
    let mut get = |id: u64, backlog: usize| {
        client.connection.set_uni_backlog(UniStream::QpackEncoder, backlog);
        client.connection.open_request(StreamId(id)).unwrap();
        // The frame type and a length of two bytes, then the Required Insert Count.
        client.send(StreamId(id), &GET).unwrap()[3]
    };
    assert_eq!((get(0, 0), get(4, 10), get(8, 0)), (2, 0, 2));
}

/// Data in flight to one side.
#[derive(Default)]
struct Wire {
    streams: Vec<(StreamId, VecDeque<u8>)>,
}

impl Wire {
    fn push(&mut self, stream: StreamId, bytes: &[u8]) {
        match self.streams.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, queue)) => queue.extend(bytes),
            None => self.streams.push((stream, bytes.iter().copied().collect())),
        }
    }

    fn collect_uni(&mut self, from: &mut Connection, role: Role) {
        let ids = uni_ids(role);
        while let Some((uni, bytes)) = from.poll_uni_write() {
            let stream = match uni {
                UniStream::Control => ids.control,
                UniStream::QpackEncoder => ids.encoder,
                UniStream::QpackDecoder => ids.decoder,
            };
            self.push(stream, &bytes);
        }
    }

    /// Delivers some bytes of one of the readable streams.
    fn deliver(&mut self, to: &mut Connection, choice: usize, count: usize) -> bool {
        let readable: Vec<_> = (0..self.streams.len())
            .filter(|place| {
                !self.streams[*place].1.is_empty() && !to.is_blocked(self.streams[*place].0)
            })
            .collect();
        if readable.is_empty() {
            return false;
        }
        let (stream, queue) = &mut self.streams[readable[choice % readable.len()]];
        let bytes: Vec<u8> = queue.drain(..count.min(queue.len())).collect();
        deliver(to, *stream, &bytes, usize::MAX);
        while to.poll_unblocked().is_some() {}
        true
    }
}

proptest! {
    /// Requests over streams without mutual order, with lines from a small set: each arrives as
    /// sent, whatever was blocked meanwhile.
    #[test]
    fn requests_survive_any_order_of_delivery(
        requests in vec((0..4_usize, 0..4_usize, 1..4_usize), 1..30),
        deliveries in vec((any::<usize>(), 1..60_usize, any::<bool>()), 0..300),
        blocked_streams in sample::select(vec![0_u64, 1, 16]),
    ) {
        let values = ["a", "another value", "a third value of some length", "4"];
        let mut client = Connection::new(Role::Client, Config::default());
        let config = Config::default().with_qpack_blocked_streams(blocked_streams).unwrap().with_qpack_table_capacity(200).unwrap();
        let mut server = Connection::new(Role::Server, config);
        let (mut to_server, mut to_client) = (Wire::default(), Wire::default());
        let (mut expected, mut events) = (Vec::new(), Vec::new());
        let mut requests = requests.into_iter().enumerate();
        let mut deliveries = deliveries.into_iter();
        loop {
            let delivery = deliveries.next();
            if delivery.is_none_or(|(choice, ..)| choice % 4 == 0) && let Some((number, (agent, other, repeat))) = requests.next() {
                let stream = StreamId(number as u64 * 4);
                let mut lines = vec![GET[0], GET[1], GET[2], GET[3], ("user-agent", values[agent])];
                lines.extend(std::iter::repeat_n(("x-a", values[other]), repeat));
                client.open_request(stream).expect("the client takes requests");
                let mut out = BytesMut::new();
                let field_lines = lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
                client.encode_headers(stream, field_lines, &mut out).expect("the request is open");
                to_server.push(stream, &out);
                let fields: String = lines[4..].iter().flat_map(|(name, value)| [" ", name, "=", value]).collect();
                expected.push(format!("{stream} GET https://example.com/index.html{fields}"));
            }
            to_server.collect_uni(&mut client, Role::Client);
            to_client.collect_uni(&mut server, Role::Server);
            let (choice, count, is_to_server) = delivery.unwrap_or((0, usize::MAX, true));
            let mut delivered = is_to_server && to_server.deliver(&mut server, choice, count);
            delivered = delivered || to_client.deliver(&mut client, choice, count);
            delivered = delivered || to_server.deliver(&mut server, choice, count);
            events.extend(joined_events(&mut server));
            if !delivered && delivery.is_none() && requests.len() == 0 {
                break;
            }
        }
        events.retain(|event| event != "settings");
        events.sort();
        expected.sort();
        prop_assert_eq!(events, expected);
    }

    /// Arbitrary bytes on the QPACK streams and in field sections, with tables in use, give errors
    /// and never a panic.
    #[test]
    fn hostile_tables_never_panic(pieces in vec((0..3_u64, vec(any::<u8>(), 0..30)), 0..30)) {
        let mut client = Client::new();
        let head = client.get(REQUEST, "/a");
        client.server.receive(REQUEST, &head).expect("a valid request");
        client.insert();
        for (number, (kind, mut bytes)) in (1..).zip(pieces) {
            let stream = match kind {
                0 => client.encoder_stream,
                1 => client.server.peer().decoder,
                _ => {
                    if let Some(first) = bytes.first_mut() {
                        *first %= 6;
                    }
                    bytes = frame(0x01, &bytes);
                    StreamId(number * 4)
                }
            };
            if client.server.connection.handle_data(stream, Bytes::from(bytes)).is_err() {
                break;
            }
            while client.server.connection.poll_event().is_some() {}
            while client.server.connection.poll_uni_write().is_some() {}
        }
    }
}
