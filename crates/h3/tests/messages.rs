//! Valid messages, and the handling of malformed ones.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use pronghorn_h3::{Config, ErrorCode, Role};
use support::{GET, REQUEST, Scripted, data, frame, get_with, headers, post_with, varints};

/// Returns a server's events for a request stream with these frames and a FIN.
fn request(frames: &[Vec<u8>]) -> Result<Vec<String>, ErrorCode> {
    let mut server = Scripted::server();
    server.receive(REQUEST, &frames.concat())?;
    server.fin(REQUEST)?;
    Ok(server.events())
}

fn is_malformed(frames: &[Vec<u8>]) -> bool {
    let events = request(frames).expect("only the stream is in error");
    events.last().is_some_and(|event| event == "0 error H3_MESSAGE_ERROR")
}

fn assert_heads_malformed(heads: &[&[(&str, &str)]]) {
    for head in heads {
        assert!(is_malformed(&[headers(head)]), "{head:?}");
    }
}

/// Returns a client's events for a response with these frames and a FIN.
fn response(method: &'static str, frames: &[Vec<u8>]) -> Result<Vec<String>, ErrorCode> {
    let mut client = Scripted::client(method);
    client.receive(REQUEST, &frames.concat())?;
    client.fin(REQUEST)?;
    Ok(client.events())
}

fn status(status: &'static str, more: &[(&'static str, &'static str)]) -> Vec<u8> {
    let mut lines = vec![(":status", status)];
    lines.extend_from_slice(more);
    headers(&lines)
}

//= RFC 9114 section 4.2
//# A request or response containing uppercase characters in field names MUST be treated as malformed.
//= RFC 9114 section 10.3
//# Requests or responses containing invalid field names MUST be treated as malformed.
#[test]
fn field_names_are_lower_case_tokens() {
    for name in ["Accept", "x y", "x\u{0}", "", "x:", "x\u{e9}", "(", "x\t"] {
        let lines = [GET[0], GET[1], GET[2], GET[3], (name, "v")];
        assert!(is_malformed(&[headers(&lines)]), "{name:?}");
    }
    assert_eq!(request(&[get_with(&[("x!#$%&'*+-.^_`|~09az", "v")])]).unwrap().len(), 1);
}

//= RFC 9114 section 10.3
//# Any request or response that contains a character not permitted in a field value MUST be treated as malformed.
#[test]
fn field_value_with_controls_or_outer_space_is_malformed() {
    for value in [" v", "v ", "\tv", "v\t", "a\0b", "a\rb", "a\nb", "a\u{7f}b", "a\u{1}b", " "] {
        let lines = [GET[0], GET[1], GET[2], GET[3], ("x-a", value)];
        assert!(is_malformed(&[headers(&lines)]), "{value:?}");
    }
    for value in ["", "a b", "a\tb", "gr\u{fc}n"] {
        let lines = [GET[0], GET[1], GET[2], GET[3], ("x-a", value)];
        assert!(!is_malformed(&[headers(&lines)]), "{value:?}");
    }
}

#[test]
fn connection_specific_fields_are_malformed() {
    for line in [
        ("connection", "close"),
        ("keep-alive", "a"),
        ("proxy-connection", "a"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "a"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ] {
        assert!(is_malformed(&[get_with(&[line])]), "{line:?}");
        assert!(is_malformed(&[post_with(&[]), headers(&[line])]), "trailers {line:?}");
        assert_eq!(
            response("GET", &[status("200", &[line])]).unwrap(),
            ["0 error H3_MESSAGE_ERROR"]
        );
    }
    assert!(!is_malformed(&[get_with(&[("te", "trailers")])]));
}

//= RFC 9114 section 4.3.1
//# This pseudo-header field MUST NOT be empty for "http" or "https" URIs;
//= RFC 9114 section 4.3.1
//# "http" or "https" URIs that do not contain a path component MUST include a value of / (ASCII 0x2f).
#[test]
fn invalid_path_is_malformed() {
    for path in ["", "a", "*", "/a b", "/a#b", "http://example.com/"] {
        assert!(is_malformed(&[headers(&[GET[0], GET[1], GET[2], (":path", path)])]), "{path:?}");
    }
    let asterisk = [(":method", "OPTIONS"), GET[1], GET[2], (":path", "*")];
    assert_eq!(request(&[headers(&asterisk)]).unwrap(), ["0 OPTIONS https://example.com* end"]);
    let query = [GET[0], GET[1], GET[2], (":path", "/?a=b")];
    assert_eq!(request(&[headers(&query)]).unwrap(), ["0 GET https://example.com/?a=b end"]);
}

#[test]
fn invalid_method_or_scheme_is_malformed() {
    assert_heads_malformed(&[
        &[(":method", ""), GET[1], GET[2], GET[3]],
        &[(":method", "GE T"), GET[1], GET[2], GET[3]],
        &[(":method", "GET/"), GET[1], GET[2], GET[3]],
        &[GET[0], (":scheme", ""), GET[2], GET[3]],
        &[GET[0], (":scheme", "https:"), GET[2], GET[3]],
        &[GET[0], (":scheme", "1a"), GET[2], GET[3]],
    ]);
}

//= RFC 9114 section 4.3.1
//# If both fields are present, they MUST contain the same value.
//= RFC 9114 section 4.3.1
//# If these fields are present, they MUST NOT be empty.
#[test]
fn empty_or_conflicting_host_is_malformed() {
    assert_heads_malformed(&[
        &[GET[0], GET[1], GET[2], GET[3], ("host", "example.org")],
        &[GET[0], GET[1], GET[2], GET[3], ("host", "example.com"), ("host", "example.com")],
        &[GET[0], GET[1], GET[2], GET[3], ("host", "")],
        &[GET[0], GET[1], GET[3], ("host", "")],
        &[GET[0], GET[1], (":authority", ""), GET[3]],
        &[GET[0], GET[1], (":authority", ""), GET[3], ("host", "example.com")],
        &[GET[0], GET[1], (":authority", "a@example.com"), GET[3]],
        &[GET[0], GET[1], (":authority", "example.com/a"), GET[3]],
    ]);
    let host_only = [GET[0], GET[1], GET[3], ("host", "example.com")];
    assert_eq!(
        request(&[headers(&host_only)]).unwrap(),
        ["0 GET https://example.com/index.html host=example.com end"]
    );
    assert!(!is_malformed(&[get_with(&[("host", "EXAMPLE.com")])]));
}

//= RFC 9114 section 4.4
//# A CONNECT request MUST be constructed as follows:
//= RFC 9114 section 4.4
//# The :scheme and :path pseudo-header fields are omitted
#[test]
fn connect_requires_authority_and_no_scheme_or_path() {
    let connect = [(":method", "CONNECT"), (":authority", "example.com:443")];
    assert_eq!(
        request(&[headers(&connect), data(b"abc")]).unwrap(),
        ["0 CONNECT -://example.com:443-", "0 data abc", "0 finished"]
    );
    assert_heads_malformed(&[
        &[connect[0], connect[1], (":scheme", "https")],
        &[connect[0], connect[1], (":path", "/")],
        &[connect[0]],
        &[connect[0], (":authority", "")],
        &[connect[0], ("host", "example.com:443")],
    ]);
}

//= RFC 9114 section 4.4
//# Receipt of any other known frame type MUST be treated as a connection error of type H3_FRAME_UNEXPECTED.
#[test]
fn tunnel_accepts_only_data_frames() {
    let connect = headers(&[(":method", "CONNECT"), (":authority", "example.com:443")]);
    assert_eq!(
        request(&[connect.clone(), headers(&[("a", "b")])]),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
    assert_eq!(request(&[connect, frame(0x4040, b"a"), data(b"b")]).unwrap().len(), 3);
    let ok = status("200", &[("content-length", "1")]);
    assert_eq!(
        response("CONNECT", &[ok.clone(), data(b"abc")]).unwrap().last().unwrap(),
        "0 finished"
    );
    assert_eq!(
        response("CONNECT", &[ok, headers(&[("a", "b")])]),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
    // A refused CONNECT gets an ordinary response.
    let refused = [status("403", &[("content-length", "1")]), data(b"a"), headers(&[("a", "b")])];
    assert_eq!(response("CONNECT", &refused).unwrap().last().unwrap(), "0 finished");
}

#[test]
fn extended_connect_is_accepted_only_if_offered() {
    let head =
        headers(&[(":method", "CONNECT"), (":protocol", "websocket"), GET[1], GET[2], GET[3]]);
    assert!(is_malformed(std::slice::from_ref(&head)));
    let mut server =
        Scripted::with_config(Role::Server, Config::default().with_extended_connect(true));
    server.receive(REQUEST, &head).unwrap();
    assert_eq!(server.events(), ["0 CONNECT https://example.com/index.html"]);
    let other = headers(&[(":method", "GET"), (":protocol", "websocket"), GET[1], GET[2], GET[3]]);
    let mut server =
        Scripted::with_config(Role::Server, Config::default().with_extended_connect(true));
    server.receive(REQUEST, &other).unwrap();
    assert_eq!(server.stream_error(), Some(ErrorCode::H3_MESSAGE_ERROR));
}

//= RFC 9114 section 4.1.2
//# A request or response that is defined as having content when it contains a Content-Length header field (Section 8.6 of
//# [HTTP]) is malformed if the value of the Content-Length header field does not equal the sum of the DATA frame lengths
//# received.
#[test]
fn content_of_wrong_length_is_malformed() {
    let five = || post_with(&[("content-length", "5")]);
    assert_eq!(
        request(&[five(), data(b"ab"), data(b"cde")]).unwrap().last().unwrap(),
        "0 finished"
    );
    assert!(is_malformed(&[five(), data(b"abcd")]));
    assert!(is_malformed(&[five(), data(b"abcd"), headers(&[("a", "b")])]));
    assert!(is_malformed(&[five()]));
    assert!(is_malformed(&[post_with(&[("content-length", "0")]), data(b"a")]));
    // Excess content is detected at the frame's header, and no data of the frame is passed on.
    let events = request(&[five(), data(b"abc"), data(b"def")]).unwrap();
    assert_eq!(events[1..], ["0 data abc", "0 error H3_MESSAGE_ERROR"]);
}

//= RFC 9110 section 8.6
//# a recipient of a Content-Length header field value consisting of the same decimal value repeated as a comma-separated
//# list (e.g, "Content-Length: 42, 42") MAY either reject the message as invalid or replace that invalid field value with a
//# single instance of the decimal value
#[test]
fn invalid_or_repeated_content_length_is_malformed() {
    for value in ["", "a", "-1", "+1", "5, 5", "0x5", "18446744073709551616"] {
        let lines = [GET[0], GET[1], GET[2], GET[3], ("content-length", value)];
        assert!(is_malformed(&[headers(&lines)]), "{value:?}");
    }
    for second in ["5", "6"] {
        assert!(
            is_malformed(&[
                post_with(&[("content-length", "5"), ("content-length", second)]),
                data(b"abcde")
            ]),
            "{second}"
        );
        let twice = status("200", &[("content-length", "5"), ("content-length", second)]);
        assert_eq!(
            response("GET", &[twice, data(b"abcde")]).unwrap(),
            ["0 error H3_MESSAGE_ERROR"]
        );
    }
}

//= RFC 9114 section 4.3
//# Pseudo-header fields MUST NOT appear in trailer sections.
#[test]
fn pseudo_header_in_trailers_is_malformed() {
    for line in [(":path", "/"), (":status", "200"), (":x", "y")] {
        assert!(is_malformed(&[post_with(&[]), headers(&[line])]), "{line:?}");
    }
}

#[test]
fn known_frame_after_trailers_closes_connection() {
    let trailers = || headers(&[("a", "b")]);
    assert_eq!(
        request(&[post_with(&[]), trailers(), data(b"a")]),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
    assert_eq!(
        request(&[post_with(&[]), trailers(), trailers()]),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
    let events = request(&[
        frame(0x21, b"x"),
        post_with(&[]),
        frame(0x40, b""),
        trailers(),
        frame(0x4242, b"yy"),
    ]);
    assert_eq!(events.unwrap()[1..], ["0 trailers a=b", "0 finished"]);
}

//= RFC 9114 section 7.2.7
//# Receipt of a MAX_PUSH_ID frame on any other stream MUST be treated as a connection error of type
//# H3_FRAME_UNEXPECTED.
//= RFC 9114 section 7.2.6
//# A client MUST treat a GOAWAY frame on a stream other than the control stream as a connection error of type
//# H3_FRAME_UNEXPECTED.
//= RFC 9114 section 7.2.4
//# If an endpoint receives a SETTINGS frame on a different stream, the endpoint MUST respond with a connection error of
//# type H3_FRAME_UNEXPECTED.
#[test]
fn control_frame_on_request_stream_closes_connection() {
    for frame_type in [0x04, 0x07, 0x0d, 0x03, 0xf0701] {
        assert_eq!(
            request(&[frame(frame_type, &[0])]),
            Err(ErrorCode::H3_FRAME_UNEXPECTED),
            "{frame_type:#x}"
        );
        assert_eq!(
            response("GET", &[frame(frame_type, &[0])]),
            Err(ErrorCode::H3_FRAME_UNEXPECTED),
            "{frame_type:#x}"
        );
    }
}

//= RFC 9114 section 7.1
//# When a stream terminates cleanly, if the last frame on the stream was truncated, this MUST be treated as a connection
//# error of type H3_FRAME_ERROR.
#[test]
fn stream_that_ends_inside_a_frame_closes_connection() {
    let script = [post_with(&[]), data(b"abc"), frame(0x4040, b"unknown"), headers(&[("a", "b")])];
    let bytes = script.concat();
    let mut boundaries = vec![0];
    for frame in &script {
        boundaries.push(boundaries.last().unwrap() + frame.len());
    }
    for cut in 0..=bytes.len() {
        let result = request(&[bytes[..cut].to_vec()]);
        if boundaries.contains(&cut) {
            assert!(result.is_ok(), "{cut}");
        } else {
            assert_eq!(result, Err(ErrorCode::H3_FRAME_ERROR), "{cut}");
        }
    }
}

#[test]
fn stream_that_ends_without_a_head_is_incomplete() {
    assert_eq!(request(&[]).unwrap(), ["0 error H3_REQUEST_INCOMPLETE"]);
    assert_eq!(request(&[frame(0x21, b"x")]).unwrap(), ["0 error H3_REQUEST_INCOMPLETE"]);
    assert_eq!(response("GET", &[]).unwrap(), ["0 error H3_MESSAGE_ERROR"]);
    assert_eq!(
        response("GET", &[status("103", &[])]).unwrap(),
        ["0 103", "0 error H3_MESSAGE_ERROR"]
    );
}

#[test]
fn reset_anywhere_in_a_message_is_reported() {
    let bytes = [post_with(&[]), data(b"abc")].concat();
    for cut in 0..=bytes.len() {
        let mut server = Scripted::server();
        server.receive(REQUEST, &bytes[..cut]).unwrap();
        server.reset(REQUEST, ErrorCode::H3_REQUEST_CANCELLED).unwrap();
        assert_eq!(server.events().last().unwrap(), "0 reset H3_REQUEST_CANCELLED");
        server.connection.finish_sending(REQUEST);
        assert_eq!(server.connection.open_streams(), 0);
    }
}

#[test]
fn section_above_the_limit_is_a_stream_error() {
    let config = Config::default().with_max_field_section_size(1024).unwrap();
    let mut server = Scripted::with_config(Role::Server, config);
    // Above the limit by its decoded size: static lines take one byte each on the wire.
    let mut many = GET.to_vec();
    many.extend([("accept", "*/*"); 30]);
    server.receive(REQUEST, &headers(&many)).unwrap();
    server.receive(REQUEST, &data(b"ignored")).unwrap();
    server.fin(REQUEST).unwrap();
    assert_eq!(server.events(), ["0 error H3_EXCESSIVE_LOAD"]);
    // Above the limit by its encoded size, detected at the frame's header.
    server.receive(pronghorn_h3::StreamId(4), &varints(&[0x01, 1 << 40])).unwrap();
    server.receive(pronghorn_h3::StreamId(4), &[0xff; 5000]).unwrap();
    assert_eq!(server.events(), ["4 error H3_EXCESSIVE_LOAD"]);
    server.receive(pronghorn_h3::StreamId(8), &get_with(&[])).unwrap();
    assert_eq!(server.events().len(), 1);
}

//= RFC 9114 section 4.1.2
//# Malformed requests or responses that are detected MUST be treated as a stream error of type H3_MESSAGE_ERROR.
#[test]
fn malformed_message_is_a_stream_error() {
    let mut server = Scripted::server();
    server.receive(REQUEST, &[headers(&[]), data(b"ignored"), vec![0xff; 30]].concat()).unwrap();
    assert_eq!(server.events(), ["0 error H3_MESSAGE_ERROR"]);
    // A server may still send a response, for example 400.
    server.send(REQUEST, &[(":status", "400")]).unwrap();
    server.receive(pronghorn_h3::StreamId(4), &get_with(&[])).unwrap();
    assert_eq!(server.events().len(), 1);
}

//= RFC 9114 section 4.5
//# HTTP/3 does not support the HTTP Upgrade mechanism (Section 7.8 of [HTTP]) or the 101 (Switching Protocols)
//# informational status code (Section 15.2.2 of [HTTP]).
#[test]
fn invalid_status_is_malformed() {
    for value in ["", "20", "2000", "abc", "2 0", "099", "101"] {
        let head = headers(&[(":status", value)]);
        assert_eq!(response("GET", &[head]).unwrap(), ["0 error H3_MESSAGE_ERROR"], "{value:?}");
    }
    assert_eq!(response("GET", &[status("999", &[])]).unwrap(), ["0 999 end"]);
}

//= RFC 9114 section 4.3
//# Pseudo-header fields defined for requests MUST NOT appear in responses; pseudo-header fields defined for responses
//# MUST NOT appear in requests.
//= RFC 9114 section 4.3.2
//# This pseudo-header field MUST be included in all responses; otherwise, the response is malformed (see Section
//# 4.1.2).
//= RFC 9114 section 4.1.2
//# Clients MUST NOT accept a malformed response.
#[test]
fn response_with_wrong_pseudo_headers_is_malformed() {
    let heads: [&[(&str, &str)]; 5] = [
        &[],
        &[("a", "b")],
        &[("a", "b"), (":status", "200")],
        &[(":status", "200"), (":status", "200")],
        &[(":status", "200"), (":path", "/")],
    ];
    for head in heads {
        assert_eq!(
            response("GET", &[headers(head)]).unwrap(),
            ["0 error H3_MESSAGE_ERROR"],
            "{head:?}"
        );
    }
}

//= RFC 9114 section 7.2.1
//# DATA frames MUST be associated with an HTTP request or response.
#[test]
fn data_before_the_final_head_closes_connection() {
    assert_eq!(
        response("GET", &[status("103", &[]), data(b"a")]),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
}

#[test]
fn content_in_a_response_without_content_is_malformed() {
    let with_length = [("content-length", "5")];
    for (method, code) in [("HEAD", "200"), ("GET", "304"), ("GET", "204")] {
        let head = response(method, &[status(code, &with_length)]).unwrap();
        assert_eq!(head, [format!("0 {code} content-length=5 end")]);
        let events = response(method, &[status(code, &with_length), data(b"abcde")]).unwrap();
        assert_eq!(events.last().unwrap(), "0 error H3_MESSAGE_ERROR");
    }
    let events = response("GET", &[status("200", &with_length), data(b"abcde")]).unwrap();
    assert_eq!(events.last().unwrap(), "0 finished");
}

//= RFC 9114 section 4.3.1
//# The authority MUST NOT include the deprecated userinfo subcomponent for URIs of scheme "http" or "https".
#[test]
fn invalid_authority_is_malformed() {
    let with_authority = |authority| {
        request(&[headers(&[GET[0], GET[1], (":authority", authority), GET[3]])]).unwrap()
    };
    let with_host = |host| request(&[headers(&[GET[0], GET[1], GET[3], ("host", host)])]).unwrap();
    for text in ["example.com", "example.com:8443", "192.0.2.1", "[2001:db8::1]:443", "a_b.example"]
    {
        assert!(with_authority(text)[0].ends_with(" end"), "{text}");
        assert!(with_host(text)[0].ends_with(" end"), "{text}");
    }
    for text in [
        "user@example.com",
        "user:word@example.com",
        "@example.com",
        ":443",
        "example.com:https",
        "example.com:65536",
        "example.com:443:443",
        "example.com,example.org",
        "[::1",
        "::1",
        "example.com/",
        "example.com?",
        "example.com#",
        "example.com\\",
        "b\u{fc}cher.example",
    ] {
        // A comma is a valid character of a host name, even if a list is meant.
        let is_valid = text.contains(',');
        assert_eq!(with_authority(text)[0] == "0 error H3_MESSAGE_ERROR", !is_valid, "{text}");
        assert_eq!(with_host(text)[0] == "0 error H3_MESSAGE_ERROR", !is_valid, "{text}");
    }
}

//= RFC 9114 section 4.4
//# The :authority pseudo-header field contains the host and port to connect to
#[test]
fn connect_without_a_valid_port_is_malformed() {
    for authority in [
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:x",
        ":443",
    ] {
        assert_heads_malformed(&[&[(":method", "CONNECT"), (":authority", authority)]]);
    }
    let v6 = [(":method", "CONNECT"), (":authority", "[::1]:443")];
    assert_eq!(request(&[headers(&v6)]).unwrap(), ["0 CONNECT -://[::1]:443- end"]);
    let host =
        [(":method", "CONNECT"), (":authority", "example.com:443"), ("host", "example.org:443")];
    assert_heads_malformed(&[&host]);
}

//= RFC 9114 section 4.2
//# The only exception to this is the TE header field, which MAY be present in an HTTP/3 request header; when it is, it
//# MUST NOT contain any value other than "trailers".
#[test]
fn te_outside_of_request_headers_is_malformed() {
    assert!(is_malformed(&[post_with(&[]), headers(&[("te", "trailers")])]));
    assert_eq!(
        response("GET", &[status("200", &[("te", "trailers")])]).unwrap(),
        ["0 error H3_MESSAGE_ERROR"]
    );
}

#[test]
fn content_length_or_host_in_trailers_is_malformed() {
    for line in [("content-length", "0"), ("content-length", "3"), ("host", "example.com")] {
        assert!(is_malformed(&[post_with(&[]), data(b"abc"), headers(&[line])]), "{line:?}");
        let events = response("GET", &[status("200", &[]), headers(&[line])]).unwrap();
        assert_eq!(events.last().unwrap(), "0 error H3_MESSAGE_ERROR", "{line:?}");
    }
}

//= RFC 9114 section 4.3.1
//# If the :scheme pseudo-header field identifies a scheme that has a mandatory authority component (including "http"
//# and "https"), the request MUST contain either an :authority pseudo-header field or a Host header field.
#[test]
fn schemes_other_than_http_need_no_authority() {
    let other = [GET[0], (":scheme", "urn"), (":path", "example:a")];
    assert_eq!(request(&[headers(&other)]).unwrap(), ["0 GET urn://-example:a end"]);
    assert_heads_malformed(&[
        &[GET[0], (":scheme", "urn"), (":authority", ""), (":path", "a")],
        &[GET[0], (":scheme", "urn"), (":path", "a"), ("host", "")],
        &[GET[0], (":scheme", "HTTPS"), GET[3]],
        &[GET[0], (":scheme", "http"), (":path", "/")],
    ]);
}

#[test]
fn invalid_protocol_of_extended_connect_is_malformed() {
    for protocol in ["", "web socket", "a/b"] {
        let head =
            headers(&[(":method", "CONNECT"), (":protocol", protocol), GET[1], GET[2], GET[3]]);
        let mut server =
            Scripted::with_config(Role::Server, Config::default().with_extended_connect(true));
        server.receive(REQUEST, &head).unwrap();
        assert_eq!(server.stream_error(), Some(ErrorCode::H3_MESSAGE_ERROR), "{protocol:?}");
    }
}

//= RFC 9114 section 4.1
//# On a given stream, receipt of multiple requests or receipt of an additional HTTP response following a final HTTP
//# response MUST be treated as malformed.
#[test]
fn second_request_or_response_on_a_stream_is_malformed() {
    assert!(is_malformed(&[get_with(&[]), get_with(&[])]));
    let events = response("GET", &[status("200", &[]), data(b"a"), status("200", &[])]).unwrap();
    assert_eq!(events, ["0 200", "0 data a", "0 error H3_MESSAGE_ERROR"]);
    let interim_after_final = response("GET", &[status("200", &[]), status("103", &[])]).unwrap();
    assert_eq!(interim_after_final, ["0 200", "0 error H3_MESSAGE_ERROR"]);
}
