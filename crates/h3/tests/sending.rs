//! Sent messages obey the rules that received messages have to obey.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Connection, ErrorCode, FieldLine, Role, SendError, StreamId, varint};
use support::{GET, REQUEST, Scripted, data, frame, get_with, headers, settings};

/// A client that has opened a request and sent nothing.
fn client() -> Scripted {
    let mut client = Scripted::new(Role::Client);
    client.connection.open_request(REQUEST).expect("a new client takes requests");
    client
}

/// A server that has received a request.
fn server() -> Scripted {
    let mut server = Scripted::server();
    server.receive(REQUEST, &get_with(&[])).expect("the request is valid");
    server.events();
    server
}

/// Returns whether the section is refused. If so, checks that nothing was written.
fn is_refused(scripted: &mut Scripted, lines: &[(&str, &str)]) -> bool {
    let mut out = BytesMut::from(&b"before"[..]);
    let lines = lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
    let result = scripted.connection.encode_headers(REQUEST, lines, &mut out);
    let is_refused = matches!(result, Err(SendError::Malformed { .. }));
    assert_eq!(is_refused, out == b"before"[..], "{result:?}");
    is_refused
}

//= RFC 9114 section 4.3
//# Endpoints MUST NOT generate pseudo-header fields other than those defined in this document.
//= RFC 9114 section 4.3
//# All pseudo-header fields MUST appear in the header section before regular header fields.
//= RFC 9114 section 4.2
//# Characters in field names MUST be converted to lowercase prior to their encoding.
#[test]
fn malformed_requests_are_not_sent() {
    let [method, scheme, authority, path] = GET;
    let connect = (":method", "CONNECT");
    let heads: [&[(&str, &str)]; 18] = [
        &[],
        &[scheme, authority, path],
        &[method, authority, path],
        &[method, scheme, path],
        &[method, scheme, authority],
        &[method, scheme, (":authority", ""), path],
        &[method, scheme, (":authority", "user@example.com"), path],
        &[method, scheme, path, ("host", "")],
        &[method, method, scheme, authority, path],
        &[method, scheme, authority, path, (":status", "200")],
        &[method, scheme, authority, path, (":x", "y")],
        &[method, scheme, authority, ("a", "b"), path],
        &[method, scheme, authority, path, ("Accept", "*/*")],
        &[connect],
        &[connect, scheme, authority],
        &[connect, authority, path],
        &[connect, (":protocol", "websocket"), scheme, authority, path],
        &[method, (":protocol", "websocket"), scheme, authority, path],
    ];
    let mut client = client();
    for head in heads {
        assert!(is_refused(&mut client, head), "{head:?}");
    }
    // The request can still be sent.
    assert!(!is_refused(&mut client, &GET));
}

//= RFC 9114 section 7.2.4.2
//# An HTTP implementation MUST NOT send frames or requests that would be invalid based on its current understanding of the
//# peer's settings.
#[test]
fn extended_connect_is_sent_only_if_offered() {
    let head = [(":method", "CONNECT"), (":protocol", "websocket"), GET[1], GET[2], GET[3]];
    let mut client = client();
    assert!(is_refused(&mut client, &head));
    client.control(&settings(&[0x08, 1])).unwrap();
    assert!(!is_refused(&mut client, &head));
}

#[test]
fn malformed_responses_are_not_sent() {
    let status = (":status", "200");
    let mut server = server();
    for head in [
        &[][..],
        &[("a", "b")],
        &[status, status],
        &[("a", "b"), status],
        &[status, GET[0]],
        &[(":status", "101")],
    ] {
        assert!(is_refused(&mut server, head), "{head:?}");
    }
    assert!(!is_refused(&mut server, &[(":status", "100")]));
    assert!(!is_refused(&mut server, &[(":status", "103"), ("link", "</a>")]));
    assert!(!is_refused(&mut server, &[status]));
}

#[test]
fn trailers_with_pseudo_headers_are_not_sent() {
    for mut scripted in [Scripted::client("POST"), {
        let mut server = server();
        server.send(REQUEST, &[(":status", "200")]).unwrap();
        server
    }] {
        assert!(is_refused(&mut scripted, &[(":status", "200")]));
        assert!(is_refused(&mut scripted, &[(":method", "GET")]));
        assert!(!is_refused(&mut scripted, &[("x-sum", "1")]));
    }
}

/// Returns a server's first event for these bytes.
fn read_back(bytes: &[u8]) -> String {
    let mut server = Scripted::server();
    server.receive(REQUEST, bytes).expect("our own bytes are valid");
    server.events().remove(0)
}

#[test]
fn te_and_host_are_sent_only_where_permitted() {
    let with = |more: &[(&str, &str)]| {
        let bytes = client().send(REQUEST, &[&GET[..], more].concat()).unwrap();
        read_back(&bytes)
    };
    let head = "0 GET https://example.com/index.html";
    assert_eq!(with(&[("te", "trailers"), ("a", "b")]), format!("{head} te=trailers a=b"));
    assert_eq!(with(&[("te", "gzip"), ("a", "b")]), format!("{head} a=b"));
    assert_eq!(with(&[("host", "example.org"), ("a", "b")]), format!("{head} a=b"));
    let host_only =
        client().send(REQUEST, &[GET[0], GET[1], GET[3], ("host", "example.com")]).unwrap();
    assert_eq!(read_back(&host_only), format!("{head} host=example.com"));
    let response = server().send(REQUEST, &[(":status", "200"), ("te", "trailers")]).unwrap();
    let mut client = Scripted::client("GET");
    client.receive(REQUEST, &response).unwrap();
    assert_eq!(client.events(), ["0 200"]);
}

//= RFC 9114 section 4.1
//# Clients MUST NOT discard complete responses as a result of having their request terminated abruptly, though clients can
//# always discard responses at their discretion for other reasons.
#[test]
fn response_arrives_after_the_server_stopped_the_request() {
    let mut client = Scripted::client("POST");
    client.receive(REQUEST, &headers(&[(":status", "413")])).unwrap();
    client.connection.handle_stop_sending(REQUEST, ErrorCode::H3_NO_ERROR.0).unwrap();
    client.connection.finish_sending(REQUEST);
    client.receive(REQUEST, &data(b"too large")).unwrap();
    client.fin(REQUEST).unwrap();
    let expected = ["0 413", "0 stop sending H3_NO_ERROR", "0 data too large", "0 finished"];
    assert_eq!(client.events(), expected);
}

//= RFC 9114 section 8
//# Because new error codes can be defined without negotiation (see Section 9), use of an error code in an unexpected
//# context or receipt of an unknown error code MUST be treated as equivalent to H3_NO_ERROR.
#[test]
fn unknown_error_codes_are_treated_as_no_error() {
    let outcome = |code: u64| {
        let mut server = server();
        server.connection.handle_reset(REQUEST, code).unwrap();
        server.connection.handle_stop_sending(REQUEST, code).unwrap();
        let kinds: Vec<_> = std::iter::from_fn(|| server.connection.poll_event())
            .map(|event| std::mem::discriminant(&event))
            .collect();
        server.connection.finish_sending(REQUEST);
        (kinds, server.connection.open_streams())
    };
    let expected = outcome(ErrorCode::H3_NO_ERROR.0);
    for code in [0x21, 0x1f * 1000 + 0x21, 0x0, 0x4242, varint::MAX, ErrorCode::H3_SETTINGS_ERROR.0]
    {
        assert_eq!(outcome(code), expected, "{code:#x}");
    }
    assert_eq!(ErrorCode(0x21).name(), None);
}

/// Reserved values everywhere a peer can send them have no effect.
//= RFC 9114 section 9
//# Implementations MUST ignore unknown or unsupported values in all extensible protocol elements.
//= RFC 9114 section 7.2.4.1
//# Endpoints MUST NOT consider such settings to have any meaning upon receipt.
//= RFC 9114 section 7.2.8
//# Endpoints MUST NOT consider these frames to have any meaning upon receipt.
//= RFC 9114 section 6.2.3
//# Endpoints MUST NOT consider these streams to have any meaning upon receipt.
#[test]
fn reserved_values_are_ignored_everywhere() {
    for number in [0, 1, 7, 1 << 20, (varint::MAX - 0x21) / 0x1f] {
        let reserved = 0x1f * number + 0x21;
        for role in [Role::Server, Role::Client] {
            let mut scripted =
                if role == Role::Server { Scripted::server() } else { Scripted::client("GET") };
            let other = scripted.peer().other;
            scripted.open_uni(other, reserved, b"anything").unwrap();
            scripted
                .control(
                    &[settings(&[reserved, 5, 0x06, 1000]), frame(reserved, b"anything")].concat(),
                )
                .unwrap();
            let head =
                if role == Role::Server { get_with(&[]) } else { headers(&[(":status", "200")]) };
            let script = [
                frame(reserved, b""),
                head,
                frame(reserved, b"a"),
                data(b"b"),
                frame(reserved, b"c"),
                headers(&[("d", "e")]),
            ];
            scripted.receive(REQUEST, &[script.concat(), frame(reserved, b"f")].concat()).unwrap();
            scripted.reset(other, ErrorCode(reserved)).unwrap();
            scripted.fin(REQUEST).unwrap();
            let head =
                if role == Role::Server { "0 GET https://example.com/index.html" } else { "0 200" };
            assert_eq!(
                scripted.events(),
                ["settings", head, "0 data b", "0 trailers d=e", "0 finished"]
            );
            assert_eq!(
                scripted.connection.peer_settings().unwrap().max_field_section_size,
                Some(1000)
            );
        }
    }
}

#[test]
fn goaway_after_the_largest_stream_id_is_sent() {
    let mut server = Connection::new(Role::Server, pronghorn_h3::Config::default());
    server.handle_data(StreamId::MAX_REQUEST, Bytes::from(get_with(&[]))).unwrap();
    server.go_away();
    server.go_away();
    assert!(server.poll_uni_write().is_some());
}
