//! Complete exchanges between a client and a server, split into pieces of every size.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Config, Connection, FieldLine, Role, SendError, StreamId, UniStream};
use support::{GET, Pair, REQUEST, Scripted, joined_events};

fn line<'a>((name, value): &'a (&str, &str)) -> FieldLine<'a> {
    FieldLine::new(name.as_bytes(), value.as_bytes())
}

fn put_headers(
    connection: &mut Connection,
    stream: StreamId,
    lines: &[(&str, &str)],
    out: &mut BytesMut,
) {
    connection.encode_headers(stream, lines.iter().map(line), out).expect("the stream is open");
}

fn put_data(connection: &mut Connection, stream: StreamId, content: &[u8], out: &mut BytesMut) {
    connection.encode_data_header(stream, content.len() as u64, out);
    out.extend_from_slice(content);
}

/// A POST with trailers, and a response with two interim heads and trailers.
#[test]
fn messages_split_anywhere_arrive_complete() {
    // The longest message has fewer bytes than the largest cut.
    for cut in (1..200).chain([10_000]) {
        let mut pair = Pair::new(cut);
        pair.carry_uni();
        assert_eq!(joined_events(&mut pair.client), ["settings"]);
        assert_eq!(joined_events(&mut pair.server), ["settings"]);

        pair.client.open_request(REQUEST).unwrap();
        let mut out = BytesMut::new();
        let head = [
            (":method", "POST"),
            GET[1],
            GET[2],
            GET[3],
            ("content-length", "11"),
            ("x-long", &"v".repeat(100)),
        ];
        put_headers(&mut pair.client, REQUEST, &head, &mut out);
        put_data(&mut pair.client, REQUEST, b"hello ", &mut out);
        put_data(&mut pair.client, REQUEST, b"", &mut out);
        put_data(&mut pair.client, REQUEST, b"world", &mut out);
        put_headers(&mut pair.client, REQUEST, &[("x-sum", "1")], &mut out);
        pair.client.finish_sending(REQUEST);
        // Dynamic table entries that the field sections refer to.
        pair.carry_uni();
        pair.feed_server(REQUEST, &out);
        pair.server.handle_fin(REQUEST).unwrap();
        let long = format!("x-long={}", "v".repeat(100));
        assert_eq!(
            joined_events(&mut pair.server),
            [
                &format!("0 POST https://example.com/index.html content-length=11 {long}"),
                "0 data hello world",
                "0 trailers x-sum=1",
                "0 finished",
            ],
            "cut {cut}"
        );

        let mut out = BytesMut::new();
        put_headers(&mut pair.server, REQUEST, &[(":status", "100")], &mut out);
        put_headers(&mut pair.server, REQUEST, &[(":status", "103"), ("link", "</a>")], &mut out);
        put_headers(&mut pair.server, REQUEST, &[(":status", "200"), ("server", "x")], &mut out);
        put_data(&mut pair.server, REQUEST, b"answer", &mut out);
        put_headers(&mut pair.server, REQUEST, &[("x-end", "2")], &mut out);
        pair.server.finish_sending(REQUEST);
        pair.carry_uni();
        pair.feed_client(REQUEST, &out);
        assert_eq!(pair.client.open_streams(), 1);
        pair.client.handle_fin(REQUEST).unwrap();
        assert_eq!(
            joined_events(&mut pair.client),
            [
                "0 100",
                "0 103 link=</a>",
                "0 200 server=x",
                "0 data answer",
                "0 trailers x-end=2",
                "0 finished"
            ],
            "cut {cut}"
        );
        assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
    }
}

#[test]
fn fin_right_after_the_head_is_reported_with_it() {
    let mut server = Scripted::server();
    server.receive(REQUEST, &support::get_with(&[])).unwrap();
    server.fin(REQUEST).unwrap();
    assert_eq!(server.events(), ["0 GET https://example.com/index.html end"]);
}

#[test]
fn fin_after_the_head_was_polled_is_reported_separately() {
    let mut server = Scripted::server();
    server.receive(REQUEST, &support::get_with(&[])).unwrap();
    assert_eq!(server.events(), ["0 GET https://example.com/index.html"]);
    server.fin(REQUEST).unwrap();
    assert_eq!(server.events(), ["0 finished"]);
}

#[test]
fn fin_of_another_stream_leaves_the_last_head_open() {
    let mut server = Scripted::server();
    server.receive(REQUEST, &support::get_with(&[])).unwrap();
    server.receive(StreamId(4), &support::get_with(&[])).unwrap();
    server.fin(REQUEST).unwrap();
    let head = "GET https://example.com/index.html";
    assert_eq!(server.events(), [format!("0 {head}"), format!("4 {head}"), "0 finished".into()]);
}

#[test]
fn content_is_passed_on_without_copying() {
    let mut server = Scripted::server();
    server.receive(REQUEST, &support::post_with(&[])).unwrap();
    server.events();
    let bytes = bytes::Bytes::from(support::data(b"some content"));
    server.connection.handle_data(REQUEST, bytes.clone()).unwrap();
    match server.connection.poll_event() {
        Some(pronghorn_h3::Event::Data { data, .. }) => {
            assert_eq!(data.as_ptr(), bytes[2..].as_ptr());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn large_section_has_a_longer_frame_length() {
    let mut pair = Pair::new(1000);
    pair.client.open_request(REQUEST).unwrap();
    // Characters that Huffman coding does not shorten.
    let value = "\u{7e}".repeat(40_000);
    let mut out = BytesMut::new();
    let lines = [GET[0], GET[1], GET[2], GET[3], ("x-a", &value)];
    put_headers(&mut pair.client, REQUEST, &lines, &mut out);
    pair.feed_server(REQUEST, &out);
    let expected = format!("0 GET https://example.com/index.html x-a={value}");
    assert_eq!(joined_events(&mut pair.server), [expected]);
}

#[test]
fn finished_streams_leave_nothing_behind() {
    let mut pair = Pair::new(10_000);
    for number in 0..10_000 {
        let stream = StreamId(number * 4);
        pair.client.open_request(stream).unwrap();
        let mut out = BytesMut::new();
        put_headers(&mut pair.client, stream, &GET, &mut out);
        pair.client.finish_sending(stream);
        pair.feed_server(stream, &out);
        pair.server.handle_fin(stream).unwrap();
        match pair.server.poll_event() {
            Some(pronghorn_h3::Event::Head {
                head: pronghorn_h3::Head::Request(head),
                end: true,
                ..
            }) => {
                pair.server.recycle(head.into_section());
            }
            other => panic!("{other:?}"),
        }
        let mut out = BytesMut::new();
        put_headers(&mut pair.server, stream, &[(":status", "204")], &mut out);
        pair.server.finish_sending(stream);
        pair.feed_client(stream, &out);
        pair.client.handle_fin(stream).unwrap();
        assert_eq!(joined_events(&mut pair.client), [format!("{stream} 204 end")]);
        assert_eq!((pair.client.open_streams(), pair.server.open_streams()), (0, 0));
    }
}

#[test]
fn each_way_of_ending_frees_the_stream() {
    type End = fn(&mut Connection);
    let ends: [End; 3] = [
        |connection| connection.handle_fin(REQUEST).unwrap(),
        |connection| connection.handle_reset(REQUEST, 0x10c).unwrap(),
        |connection| connection.stop_receiving(REQUEST),
    ];
    for end in ends {
        for sending_first in [false, true] {
            let mut server = Scripted::server();
            server.receive(REQUEST, &support::get_with(&[])).unwrap();
            if sending_first {
                server.connection.finish_sending(REQUEST);
            }
            assert_eq!(server.connection.open_streams(), 1);
            end(&mut server.connection);
            server.connection.finish_sending(REQUEST);
            assert_eq!(server.connection.open_streams(), 0);
        }
    }
}

#[test]
fn nothing_is_sent_on_a_stream_that_is_not_open() {
    let mut server = Scripted::server();
    let not_open = Err(SendError::StreamNotOpen { stream: REQUEST });
    assert_eq!(server.send(REQUEST, &[(":status", "200")]), not_open);
    server.receive(REQUEST, &support::get_with(&[])).unwrap();
    server.connection.finish_sending(REQUEST);
    assert_eq!(server.send(REQUEST, &[(":status", "200")]), not_open);
}

#[test]
fn nothing_is_sent_after_trailers() {
    let mut client = Scripted::client("POST");
    client.send(REQUEST, &[("x-sum", "1")]).unwrap();
    assert_eq!(
        client.send(REQUEST, &[("x-sum", "1")]),
        Err(SendError::MessageComplete { stream: REQUEST })
    );
}

//= RFC 9114 section 7.2.4.2
//# Once a server has provided new settings, clients MUST comply with those values.
//= RFC 9114 section 7.2.4.2
//# A client MUST comply with stored settings -- or default values if no values are stored -- when attempting 0-RTT.
//= RFC 9114 section 4.2.2
//# An implementation that has received this parameter SHOULD NOT send an HTTP message header that exceeds the indicated
//# size, as the peer will likely refuse to process it.
#[test]
fn section_above_the_peers_limit_is_not_sent() {
    let mut client = Scripted::client("POST");
    client.control(&support::settings(&[0x06, 40])).unwrap();
    let mut out = BytesMut::from(&b"before"[..]);
    let result =
        client.connection.encode_headers(REQUEST, [FieldLine::new(b"x-a", b"123456")], &mut out);
    assert_eq!(result, Err(SendError::FieldSectionTooLarge { size: 41, limit: 40 }));
    assert_eq!(&out[..], b"before");
    let result =
        client.connection.encode_headers(REQUEST, [FieldLine::new(b"x-a", b"12345")], &mut out);
    assert_eq!(result, Ok(()));
}

//= RFC 9114 section 4.2
//# An endpoint MUST NOT generate an HTTP/3 field section containing connection-specific fields; any message containing
//# connection-specific fields MUST be treated as malformed.
//= RFC 9114 section 4.1
//# Transfer codings (see Section 7 of [HTTP/1.1]) are not defined for HTTP/3; the Transfer-Encoding header field MUST
//# NOT be used.
#[test]
fn connection_specific_fields_are_not_sent() {
    let lines = [
        (":status", "200"),
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("server", "x"),
    ];
    let mut server = Scripted::server();
    server.receive(REQUEST, &support::get_with(&[])).unwrap();
    let bytes = server.send(REQUEST, &lines).unwrap();
    let mut client = Scripted::client("GET");
    client.receive(REQUEST, &bytes).unwrap();
    assert_eq!(client.events(), ["0 200 server=x"]);
}

//= RFC 9114 section 4.1
//# A client MUST send only a single request on a given stream.
#[test]
fn only_clients_open_requests() {
    let mut server = Connection::new(Role::Server, Config::default());
    assert!(server.open_request(REQUEST).is_err());
    let mut client = Connection::new(Role::Client, Config::default());
    for stream in [1, 2, 3] {
        assert!(client.open_request(StreamId(stream)).is_err());
    }
    assert_eq!(client.open_request(REQUEST), Ok(()));
    assert!(client.open_request(REQUEST).is_err());
}

#[test]
fn blocked_request_with_a_stopped_response_is_cancelled() {
    let mut server = Scripted::server();
    while server.connection.poll_uni_write().is_some() {}
    // GET, https, a reference to the first entry of the still empty dynamic table, and the path.
    server.receive(REQUEST, &support::frame(0x01, &[0x02, 0x80, 0xd1, 0xd7, 0x10, 0xc1])).unwrap();
    server.fin(REQUEST).unwrap();
    assert!(server.connection.is_blocked(REQUEST));
    server.connection.handle_stop_sending(REQUEST, 0x10c).unwrap();
    assert_eq!(server.events(), ["0 stop sending H3_REQUEST_CANCELLED"]);
    server.connection.finish_sending(REQUEST);
    assert_eq!(server.connection.open_streams(), 0);
    assert!(!server.connection.is_blocked(REQUEST));
    // The decoder stream's type, and a Stream Cancellation for stream 0.
    assert_eq!(
        server.connection.poll_uni_write(),
        Some((UniStream::QpackDecoder, Bytes::from_static(&[0x03, 0x40])))
    );
}
