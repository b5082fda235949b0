//! WebTransport sessions: streams and datagrams with a session, and without one.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Config, Connection, ErrorCode, Event, Limit, Role, StreamId, varint};

use support::{data, describe, headers, settings, uni_ids, varints};

const SESSION: StreamId = StreamId(0);
/// Streams opened by the client and by the server.
const CLIENT_BIDI: StreamId = StreamId(4);
const CLIENT_UNI: StreamId = StreamId(14);
const SERVER_BIDI: StreamId = StreamId(1);
const SERVER_UNI: StreamId = StreamId(15);

const CONNECT: [(&str, &str); 5] = [
    (":method", "CONNECT"),
    (":protocol", "webtransport"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/"),
];

fn config() -> Config {
    Config::default()
        .with_webtransport_sessions(1)
        .expect("it is valid")
        .with_max_waiting_streams(3)
        .expect("it is valid")
}

fn server() -> Connection {
    Connection::new(Role::Server, config())
}

/// Returns a server with a request that has become a session.
fn with_session() -> Connection {
    let mut server = server();
    server.handle_data(SESSION, headers(&CONNECT).into()).expect("it is valid");
    assert!(matches!(server.poll_event(), Some(Event::Head { .. })));
    server.begin_session(SESSION);
    server
}

fn client_with_session() -> Connection {
    let mut client = Connection::new(Role::Client, config());
    let control = [vec![0], settings(&[0x08, 1, 0x33, 1, 0x2b60_3742, 1])].concat();
    client.handle_data(uni_ids(Role::Server).control, control.into()).expect("it is valid");
    assert!(matches!(client.poll_event(), Some(Event::Settings)));
    assert!(client.peer_settings().expect("it is valid").supports_webtransport());
    client.open_request(SESSION).expect("it is valid");
    client.begin_session(SESSION);
    client
}

/// Returns the preamble of a session's stream, with this content.
fn stream(signal: u64, session: StreamId, content: &[u8]) -> Bytes {
    [&varints(&[signal, session.0]), content].concat().into()
}

fn bidi(content: &[u8]) -> Bytes {
    stream(0x41, SESSION, content)
}

fn uni(content: &[u8]) -> Bytes {
    stream(0x54, SESSION, content)
}

fn datagram(session: StreamId, payload: &[u8]) -> Bytes {
    [&varints(&[session.0 / 4]), payload].concat().into()
}

/// Returns the pending events as short texts.
fn events(connection: &mut Connection) -> Vec<String> {
    std::iter::from_fn(|| connection.poll_event()).map(|event| describe(&event)).collect()
}

#[test]
fn session_streams_split_anywhere_are_reported_with_their_content() {
    for cut in [1, 2, 5, 100] {
        let mut server = with_session();
        for (stream, bytes) in [(CLIENT_BIDI, bidi(b"two ways")), (CLIENT_UNI, uni(b"one way"))] {
            for piece in bytes.chunks(cut) {
                server.handle_data(stream, Bytes::copy_from_slice(piece)).unwrap();
            }
            server.handle_fin(stream).unwrap();
            let events = events(&mut server);
            assert_eq!(events.first(), Some(&format!("{stream} opened for 0")));
            assert_eq!(events.last(), Some(&format!("{stream} finished")));
            let content: String = events[1..events.len() - 1]
                .iter()
                .map(|event| event.split_once(' ').unwrap().1)
                .collect();
            assert_eq!(content, if stream == CLIENT_BIDI { "two ways" } else { "one way" });
        }
    }
}

#[test]
fn server_initiated_streams_reach_the_client() {
    let mut client = client_with_session();
    client.handle_data(SERVER_BIDI, bidi(b"hello")).unwrap();
    client.handle_data(SERVER_UNI, uni(b"there")).unwrap();
    client.handle_reset(SERVER_UNI, ErrorCode::from_application(9).0).unwrap();
    let expected = ["1 opened for 0", "1 hello", "15 opened for 0", "15 there", "15 reset Some(9)"];
    assert_eq!(events(&mut client), expected);
}

//= draft-ietf-webtrans-http3-16 section 4.3
//# Clients and servers use the signal value 0x41 to open a bidirectional WebTransport stream.
#[test]
fn opened_session_streams_start_with_the_preamble_and_receive_data() {
    let mut server = with_session();
    let mut out = BytesMut::new();
    server.open_session_stream(SESSION, SERVER_BIDI, &mut out).unwrap();
    assert_eq!(out, &[0x40, 0x41, 0][..]);
    out.clear();
    server.open_session_stream(SESSION, SERVER_UNI, &mut out).unwrap();
    assert_eq!(out, &[0x40, 0x54, 0][..]);
    server.handle_data(SERVER_BIDI, Bytes::from_static(b"A plain answer")).unwrap();
    server.handle_stop_sending(SERVER_UNI, ErrorCode::from_application(77).0).unwrap();
    assert_eq!(events(&mut server), ["1 A plain answer", "15 stop Some(77)"]);
    assert!(server.open_session_stream(StreamId(8), StreamId(5), &mut out).is_err());
}

#[test]
fn early_stream_waits_for_its_session() {
    let mut server = server();
    server.handle_data(CLIENT_BIDI, bidi(b"early")).unwrap();
    server.handle_data(CLIENT_UNI, uni(b"bird")).unwrap();
    server.handle_datagram(datagram(SESSION, b"first")).unwrap();
    assert!(server.is_blocked(CLIENT_BIDI) && server.is_blocked(CLIENT_UNI));
    server.handle_data(SESSION, headers(&CONNECT).into()).unwrap();
    assert!(matches!(server.poll_event(), Some(Event::Head { .. })));
    assert_eq!(events(&mut server), [""; 0]);
    server.begin_session(SESSION);
    assert!(!server.is_blocked(CLIENT_BIDI) && !server.is_blocked(CLIENT_UNI));
    assert_eq!(
        [server.poll_unblocked(), server.poll_unblocked()],
        [Some(CLIENT_BIDI), Some(CLIENT_UNI)]
    );
    let expected =
        ["4 opened for 0", "4 early", "14 opened for 0", "14 bird", "datagram for 0: first"];
    assert_eq!(events(&mut server), expected);
    server.handle_data(CLIENT_BIDI, Bytes::from_static(b"more")).unwrap();
    assert_eq!(events(&mut server), ["4 more"]);
}

//= draft-ietf-webtrans-http3-16 section 4.6
//# To avoid resource exhaustion, endpoints MUST limit the number of buffered streams and datagrams.
//= draft-ietf-webtrans-http3-16 section 4.6
//# When the number of buffered streams is exceeded, a stream MUST be closed by sending a RESET_STREAM and/or STOP_SENDING with the
//# WT_BUFFERED_STREAM_REJECTED error code.
//= draft-ietf-webtrans-http3-16 section 4.6
//# When the number of buffered datagrams is exceeded, a datagram MUST be dropped.
#[test]
fn oldest_excess_early_stream_is_refused_and_datagram_is_dropped() {
    let mut server = server();
    for number in 1..=4 {
        server.handle_data(StreamId(4 * number), bidi(b"")).unwrap();
        server.handle_datagram(datagram(SESSION, &[b'0' + number as u8])).unwrap();
    }
    let code = ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED;
    assert_eq!(
        events(&mut server),
        [format!("4 refused {code} {:?}", Some(Limit::WaitingStreams))]
    );
    assert_eq!(server.dropped_datagrams(), 1);
    server.handle_data(SESSION, headers(&CONNECT).into()).unwrap();
    server.begin_session(SESSION);
    let events = events(&mut server);
    assert!(events[0].starts_with("0 CONNECT"));
    let expected = [
        "8 opened for 0",
        "12 opened for 0",
        "16 opened for 0",
        "datagram for 0: 2",
        "datagram for 0: 3",
        "datagram for 0: 4",
    ];
    assert_eq!(events[1..], expected);
}

#[test]
fn request_without_a_session_refuses_its_early_streams() {
    let mut server = server();
    server.handle_data(CLIENT_UNI, uni(b"in vain")).unwrap();
    server.handle_data(SESSION, headers(&CONNECT).into()).unwrap();
    server.handle_fin(SESSION).unwrap();
    let mut out = BytesMut::new();
    server
        .encode_headers(SESSION, [pronghorn_h3::FieldLine::new(b":status", b"404")], &mut out)
        .unwrap();
    events(&mut server);
    server.finish_sending(SESSION);
    assert_eq!(events(&mut server), ["14 refused WEBTRANSPORT_BUFFERED_STREAM_REJECTED None"]);
    assert!(!server.is_blocked(CLIENT_UNI));
}

//= draft-ietf-webtrans-http3-16 section 6
//# Upon learning that the session has been terminated, the endpoint MUST reset the send side and abort reading on the receive side of all
//# unidirectional and bidirectional streams associated with the session (see Section 2.4 of [RFC9000]) using the WT_SESSION_GONE error code;
//# it MUST NOT send any new datagrams or open any new streams.
#[test]
fn session_end_refuses_its_streams_and_new_ones() {
    let mut server = with_session();
    let control = [vec![0], settings(&[0x33, 1])].concat();
    server.handle_data(uni_ids(Role::Client).control, control.into()).unwrap();
    let mut out = BytesMut::new();
    server.encode_datagram_header(SESSION, &mut out).unwrap();
    server.handle_data(CLIENT_BIDI, bidi(b"")).unwrap();
    server.handle_data(CLIENT_UNI, uni(b"")).unwrap();
    server.open_session_stream(SESSION, SERVER_BIDI, &mut out).unwrap();
    events(&mut server);
    server.end_session(SESSION);
    let gone = |stream: u64| format!("{stream} refused WEBTRANSPORT_SESSION_GONE None");
    assert_eq!(events(&mut server), [gone(1), gone(4), gone(14)]);
    // Data still in flight.
    server.handle_data(CLIENT_BIDI, Bytes::from_static(b"late")).unwrap();
    server.handle_data(StreamId(8), bidi(b"later")).unwrap();
    server.handle_datagram(datagram(SESSION, b"latest")).unwrap();
    assert_eq!(events(&mut server), [gone(8)]);
    assert!(server.open_session_stream(SESSION, StreamId(5), &mut out).is_err());
    assert!(server.encode_datagram_header(SESSION, &mut out).is_err());
}

#[test]
fn datagrams_carry_the_quarter_stream_id_if_the_peer_supports_them() {
    let mut server = with_session();
    let mut out = BytesMut::new();
    assert!(server.encode_datagram_header(SESSION, &mut out).is_err());
    let control = [vec![0], settings(&[0x33, 1])].concat();
    server.handle_data(uni_ids(Role::Client).control, control.into()).unwrap();
    server.begin_session(StreamId(400));
    server.encode_datagram_header(StreamId(400), &mut out).unwrap();
    assert_eq!(varint::decode(&mut &out[..]), Some(100));
    events(&mut server);
    server.handle_datagram(datagram(StreamId(400), b"")).unwrap();
    assert_eq!(events(&mut server), ["datagram for 400: "]);
}

//= RFC 9297 section 2.1
//# Receipt of a QUIC DATAGRAM frame whose payload is too short to allow parsing the Quarter Stream ID field MUST be treated as an HTTP/3
//# connection error of type H3_DATAGRAM_ERROR (0x33).
//= RFC 9297 section 2.1
//# Receipt of an HTTP/3 Datagram that includes a larger value MUST be treated as an HTTP/3 connection error of type H3_DATAGRAM_ERROR (0x33).
#[test]
fn datagram_without_a_valid_stream_id_is_an_error() {
    for bytes in [vec![], vec![0x40], varints(&[1 << 60])] {
        assert_eq!(
            with_session().handle_datagram(bytes.into()).unwrap_err().code(),
            ErrorCode::H3_DATAGRAM_ERROR
        );
    }
    assert_eq!(with_session().handle_datagram(varints(&[(1 << 60) - 1]).into()), Ok(()));
    let mut without = Connection::new(Role::Server, Config::default());
    assert_eq!(
        without.handle_datagram(datagram(SESSION, b"")).unwrap_err().code(),
        ErrorCode::H3_DATAGRAM_ERROR
    );
}

//= RFC 9297 section 2
//# If an HTTP Datagram is received and it is associated with a request that has no known semantics for HTTP Datagrams, the receiver MUST
//# terminate the request. If HTTP/3 is in use, the request stream MUST be aborted with H3_DATAGRAM_ERROR (0x33).
#[test]
fn datagram_for_an_ordinary_request_ends_it() {
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")];
    let other = StreamId(4);
    for head in
        [&get[..], &[&[(":method", "CONNECT"), (":protocol", "websocket")], &get[1..]].concat()]
    {
        let mut server = with_session();
        // Before its headers, the request may still become a session.
        server.handle_datagram(datagram(other, b"early")).unwrap();
        server.handle_data(other, headers(head).into()).unwrap();
        assert_eq!(events(&mut server).len(), 1);
        server.handle_datagram(datagram(other, b"late")).unwrap();
        let Some(Event::StreamError { stream, code, .. }) = server.poll_event() else {
            panic!("{head:?}")
        };
        assert_eq!((stream, code), (other, ErrorCode::H3_DATAGRAM_ERROR));
        // Reported once; the session continues.
        server.handle_datagram(datagram(other, b"again")).unwrap();
        server.handle_datagram(datagram(SESSION, b"good")).unwrap();
        assert_eq!(events(&mut server), ["datagram for 0: good"]);
    }
    let mut client = client_with_session();
    client.open_request(other).unwrap();
    let lines = get
        .iter()
        .map(|(name, value)| pronghorn_qpack::FieldLine::new(name.as_bytes(), value.as_bytes()));
    client.encode_headers(other, lines, &mut BytesMut::new()).unwrap();
    client.handle_datagram(datagram(other, b"")).unwrap();
    assert!(matches!(
        client.poll_event(),
        Some(Event::StreamError { code: ErrorCode::H3_DATAGRAM_ERROR, .. })
    ));
}

//= draft-ietf-webtrans-http3-16 section 4
//# If an endpoint receives a session ID on a unidirectional stream, bidirectional stream, or datagram that does not correspond to a
//# client-initiated bidirectional stream ID, the endpoint MUST close the connection with an H3_ID_ERROR error code.
#[test]
fn session_id_of_no_request_stream_is_an_error() {
    for session in [1, 2, 3] {
        let session = StreamId(session);
        let error =
            with_session().handle_data(CLIENT_BIDI, stream(0x41, session, b"")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::H3_ID_ERROR);
        let error =
            client_with_session().handle_data(SERVER_UNI, stream(0x54, session, b"")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::H3_ID_ERROR);
    }
}

//= draft-ietf-webtrans-http3-16 section 4.3
//# Endpoints MUST NOT send WT_STREAM as a frame type on HTTP/3 streams other than the very first bytes of a request stream.
//= draft-ietf-webtrans-http3-16 section 4.3
//# Receiving this frame type in any other circumstances MUST be treated as a connection error of type H3_FRAME_ERROR.
#[test]
fn session_stream_preamble_elsewhere_is_an_error() {
    let mut server = with_session();
    assert_eq!(
        server.handle_data(SESSION, bidi(b"")).unwrap_err().code(),
        ErrorCode::H3_FRAME_ERROR
    );
    let mut server = with_session();
    let unknown = support::frame(0x21, b"");
    assert_eq!(
        server
            .handle_data(CLIENT_BIDI, [&unknown[..], &bidi(b"")].concat().into())
            .unwrap_err()
            .code(),
        ErrorCode::H3_FRAME_ERROR
    );
    let mut client = client_with_session();
    assert_eq!(
        client.handle_data(SESSION, bidi(b"")).unwrap_err().code(),
        ErrorCode::H3_FRAME_ERROR
    );
}

//= RFC 9114 section 6.1
//# Clients MUST treat receipt of a server-initiated bidirectional stream as a connection error of type H3_STREAM_CREATION_ERROR unless such
//# an extension has been negotiated.
#[test]
fn server_bidi_stream_without_a_preamble_is_an_error() {
    let error =
        client_with_session().handle_data(SERVER_BIDI, data(b"content").into()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::H3_STREAM_CREATION_ERROR);
    let error = Connection::new(Role::Client, Config::default())
        .handle_data(SERVER_BIDI, bidi(b""))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::H3_STREAM_CREATION_ERROR);
}

#[test]
fn settings_of_each_draft_are_sent_and_understood() {
    for sessions in [1, 7] {
        let server = Connection::new(
            Role::Server,
            Config::default().with_webtransport_sessions(sessions).unwrap(),
        );
        let own = server.own_settings();
        let seen = (own.enable_webtransport, own.webtransport_max_sessions, own.wt_max_sessions);
        // For drafts 13 and 14, more than one would promise flow control per session.
        assert_eq!(seen, (true, sessions, 1));
    }
    for draft in [0x2b60_3742, 0xc671_706a, 0x14e9_cd29] {
        let mut client = Connection::new(Role::Client, config());
        let control = [vec![0], settings(&[0x08, 1, 0x33, 1, draft, 1])].concat();
        client.handle_data(uni_ids(Role::Server).control, control.into()).unwrap();
        assert!(client.peer_settings().unwrap().supports_webtransport(), "{draft:#x}");
    }
}

#[test]
fn session_streams_are_unknown_without_webtransport() {
    let mut server = Connection::new(Role::Server, Config::default());
    server.handle_data(CLIENT_UNI, uni(b"")).unwrap();
    assert!(matches!(server.poll_event(), Some(Event::StopUni { stream: CLIENT_UNI, .. })));
    // Here, the preamble is a frame of unknown type with length 0.
    server.handle_data(CLIENT_BIDI, bidi(b"")).unwrap();
    assert_eq!(events(&mut server), [""; 0]);
    let own = server.own_settings();
    assert!(!own.h3_datagram && !own.enable_connect_protocol && !own.supports_webtransport());
}

#[test]
fn stream_that_ends_before_its_session_id_leaves_nothing_behind() {
    let mut server = with_session();
    server.handle_data(CLIENT_UNI, Bytes::from_static(&[0x40, 0x54])).unwrap();
    server.handle_reset(CLIENT_UNI, 0).unwrap();
    assert_eq!(events(&mut server), [""; 0]);
    let mut client = client_with_session();
    client.handle_fin(SERVER_BIDI).unwrap();
    // Our side of the stream has to end too.
    assert_eq!(events(&mut client), ["1 refused WEBTRANSPORT_BUFFERED_STREAM_REJECTED None"]);
}

/// After GOAWAY, sessions continue and may open new streams; new requests are refused.
#[test]
fn connection_after_goaway_accepts_session_streams_and_no_requests() {
    let mut server = with_session();
    server.go_away();
    server.go_away();
    server.handle_data(CLIENT_BIDI, bidi(b"still here")).unwrap();
    assert_eq!(events(&mut server), ["4 opened for 0", "4 still here"]);
    server.handle_data(StreamId(8), headers(&CONNECT).into()).unwrap();
    assert_eq!(events(&mut server), ["8 error H3_REQUEST_REJECTED"]);
    server.end_session(SESSION);
    server.handle_data(StreamId(12), bidi(b"")).unwrap();
    assert_eq!(events(&mut server).last().unwrap(), "12 error H3_REQUEST_REJECTED");
}

#[test]
fn application_error_codes_skip_reserved_values() {
    // The limits of the range in draft-ietf-webtrans-http3 section 4.4.
    assert_eq!(ErrorCode::from_application(0).0, 0x52e4_a40f_a8db);
    assert_eq!(ErrorCode::from_application(u32::MAX).0, 0x52e5_ac98_3162);
    for code in (0..1000).chain(u32::MAX - 1000..=u32::MAX) {
        let mapped = ErrorCode::from_application(code);
        assert_ne!((mapped.0 - 0x21) % 0x1f, 0, "{code} maps to a reserved value");
        assert_eq!(mapped.to_application(), Some(code));
    }
    let reserved =
        (0x52e4_a40f_a8db..0x52e4_a40f_a8ff).find(|code| (code - 0x21) % 0x1f == 0).unwrap();
    for code in [
        0,
        0x10c,
        0x52e4_a40f_a8da,
        0x52e5_ac98_3163,
        reserved,
        ErrorCode::WEBTRANSPORT_SESSION_GONE.0,
    ] {
        assert_eq!(ErrorCode(code).to_application(), None);
    }
}

/// Finished streams do not accumulate.
#[test]
fn finished_session_streams_are_freed() {
    let mut server = with_session();
    let mut waiting = VecDeque::new();
    for number in 1..10_000 {
        let (bidi_stream, uni_stream) = (StreamId(4 * number), StreamId(4 * number + 14));
        server.handle_data(bidi_stream, bidi(b"x")).unwrap();
        server.handle_data(uni_stream, uni(b"x")).unwrap();
        server.handle_fin(bidi_stream).unwrap();
        server.handle_fin(uni_stream).unwrap();
        waiting.push_back(bidi_stream);
        while server.poll_event().is_some() {}
        server.finish_sending(waiting.pop_front().unwrap());
    }
    server.end_session(SESSION);
    assert_eq!(events(&mut server), [""; 0]);
    assert_eq!(server.open_streams(), 1);
}
