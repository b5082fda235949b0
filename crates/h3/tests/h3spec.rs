//! The HTTP/3 and QPACK cases of the public conformance suite h3spec, as frame scripts, each with
//! the suite's description. A script on a control stream runs in one piece and byte by byte.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use pronghorn_h3::ErrorCode;
use support::{REQUEST, Scripted, data, frame, get_with, headers, settings};

fn on_control(bytes: &[u8]) -> ErrorCode {
    let whole = Scripted::server().control(bytes).expect_err("the script breaks a rule");
    assert_eq!(Scripted::server().control_in_bytes(bytes), Err(whole));
    whole
}

fn malformed(bytes: &[u8]) -> Option<ErrorCode> {
    let mut server = Scripted::server();
    server.receive(REQUEST, bytes).expect("only the stream is in error");
    server.stream_error()
}

/// `H3_FRAME_UNEXPECTED`: DATA is received before HEADERS (HTTP/3 4.1)
//= RFC 9114 section 4.1
//# Receipt of an invalid sequence of frames MUST be treated as a connection error of type H3_FRAME_UNEXPECTED.
#[test]
fn data_before_headers_closes_connection() {
    assert_eq!(
        Scripted::server().receive(REQUEST, &data(b"a")),
        Err(ErrorCode::H3_FRAME_UNEXPECTED)
    );
}

/// `H3_MESSAGE_ERROR`: a pseudo-header is duplicated (HTTP/3 4.1.1)
#[test]
fn duplicated_pseudo_header_is_malformed() {
    for name in [":method", ":scheme", ":authority", ":path"] {
        let mut lines = support::GET.to_vec();
        lines.insert(0, (name, "GET"));
        assert_eq!(malformed(&headers(&lines)), Some(ErrorCode::H3_MESSAGE_ERROR), "{name}");
    }
}

/// `H3_MESSAGE_ERROR`: mandatory pseudo-header fields are absent (HTTP/3 4.1.3)
//= RFC 9114 section 4.3.1
//# All HTTP/3 requests MUST include exactly one value for the :method, :scheme, and :path pseudo-header fields, unless
//# the request is a CONNECT request; see Section 4.4.
#[test]
fn absent_mandatory_pseudo_header_is_malformed() {
    for missing in 0..support::GET.len() {
        let mut lines = support::GET.to_vec();
        lines.remove(missing);
        assert_eq!(
            malformed(&headers(&lines)),
            Some(ErrorCode::H3_MESSAGE_ERROR),
            "without line {missing}"
        );
    }
    assert_eq!(malformed(&headers(&[])), Some(ErrorCode::H3_MESSAGE_ERROR));
}

/// `H3_MESSAGE_ERROR`: prohibited pseudo-header fields are present (HTTP/3 4.1.3)
//= RFC 9114 section 4.3
//# Endpoints MUST treat a request or response that contains undefined or invalid pseudo-header fields as malformed.
#[test]
fn prohibited_pseudo_header_is_malformed() {
    for name in [":status", ":foo", ":", ":protocol"] {
        let mut lines = support::GET.to_vec();
        lines.push((name, "200"));
        assert_eq!(malformed(&headers(&lines)), Some(ErrorCode::H3_MESSAGE_ERROR), "{name}");
    }
}

/// `H3_MESSAGE_ERROR`: pseudo-header fields exist after fields (HTTP/3 4.1.3)
//= RFC 9114 section 4.3
//# Any request or response that contains a pseudo-header field that appears in a header section after a regular header
//# field MUST be treated as malformed.
#[test]
fn pseudo_header_after_fields_is_malformed() {
    let lines =
        [("accept", "*/*"), support::GET[0], support::GET[1], support::GET[2], support::GET[3]];
    assert_eq!(malformed(&headers(&lines)), Some(ErrorCode::H3_MESSAGE_ERROR));
    let lines = [support::GET[0], support::GET[1], support::GET[2], ("x-a", "b"), support::GET[3]];
    assert_eq!(malformed(&headers(&lines)), Some(ErrorCode::H3_MESSAGE_ERROR));
}

/// `H3_MISSING_SETTINGS`: the first control frame is not SETTINGS (HTTP/3 6.2.1)
//= RFC 9114 section 6.2.1
//# If the first frame of the control stream is any other frame type, this MUST be treated as a connection error of type
//# H3_MISSING_SETTINGS.
#[test]
fn control_stream_without_settings_first_closes_connection() {
    for frame_type in [0x00, 0x01, 0x07, 0x0d, 0x21, 0x03, 0x4040] {
        assert_eq!(
            on_control(&frame(frame_type, &[0])),
            ErrorCode::H3_MISSING_SETTINGS,
            "{frame_type:#x}"
        );
    }
}

/// `H3_FRAME_UNEXPECTED`: a DATA frame is received on a control stream (HTTP/3 7.2.1)
//= RFC 9114 section 7.2.1
//# If a DATA frame is received on a control stream, the recipient MUST respond with a connection error of type
//# H3_FRAME_UNEXPECTED.
#[test]
fn data_on_control_stream_closes_connection() {
    assert_eq!(on_control(&[settings(&[]), data(b"a")].concat()), ErrorCode::H3_FRAME_UNEXPECTED);
}

/// `H3_FRAME_UNEXPECTED`: a HEADERS frame is received on a control stream (HTTP/3 7.2.2)
//= RFC 9114 section 7.2.2
//# If a HEADERS frame is received on a control stream, the recipient MUST respond with a connection error of type
//# H3_FRAME_UNEXPECTED.
#[test]
fn headers_on_control_stream_close_connection() {
    assert_eq!(
        on_control(&[settings(&[]), get_with(&[])].concat()),
        ErrorCode::H3_FRAME_UNEXPECTED
    );
}

/// `H3_FRAME_UNEXPECTED`: a second SETTINGS frame is received (HTTP/3 7.2.4)
//= RFC 9114 section 7.2.4
//# If an endpoint receives a second SETTINGS frame on the control stream, the endpoint MUST respond with a connection
//# error of type H3_FRAME_UNEXPECTED.
#[test]
fn second_settings_close_connection() {
    assert_eq!(
        on_control(&[settings(&[]), settings(&[])].concat()),
        ErrorCode::H3_FRAME_UNEXPECTED
    );
}

/// `H3_SETTINGS_ERROR`: duplicate setting identifiers exist (HTTP/3 7.2.4)
//= RFC 9114 section 7.2.4
//# The same setting identifier MUST NOT occur more than once in the SETTINGS frame.
#[test]
fn repeated_setting_closes_connection() {
    assert_eq!(on_control(&settings(&[0x06, 1000, 0x06, 1000])), ErrorCode::H3_SETTINGS_ERROR);
}

/// `H3_SETTINGS_ERROR`: HTTP/2 settings are included (HTTP/3 7.2.4.1)
//= RFC 9114 section 7.2.4.1
//# These reserved settings MUST NOT be sent, and their receipt MUST be treated as a connection error of type
//# H3_SETTINGS_ERROR.
#[test]
fn http2_setting_closes_connection() {
    for id in [0x00, 0x02, 0x03, 0x04, 0x05] {
        assert_eq!(on_control(&settings(&[id, 0])), ErrorCode::H3_SETTINGS_ERROR, "{id:#x}");
    }
}

/// `H3_FRAME_UNEXPECTED`: CANCEL_PUSH is received in a request stream (HTTP/3 7.2.5)
//= RFC 9114 section 7.2.3
//# Receiving a CANCEL_PUSH frame on a stream other than the control stream MUST be treated as a connection error of
//# type H3_FRAME_UNEXPECTED.
#[test]
fn cancel_push_on_request_stream_closes_connection() {
    let mut server = Scripted::server();
    assert_eq!(server.receive(REQUEST, &frame(0x03, &[0])), Err(ErrorCode::H3_FRAME_UNEXPECTED));
    let mut server = Scripted::server();
    let script = [get_with(&[]), frame(0x03, &[0])].concat();
    assert_eq!(server.receive(REQUEST, &script), Err(ErrorCode::H3_FRAME_UNEXPECTED));
}

/// `QPACK_DECOMPRESSION_FAILED`: an invalid static table index exits in a field line representation
/// (QPACK 3.1)
//= RFC 9204 section 3.1
//# When the decoder encounters an invalid static table index in a field line representation, it MUST treat this as a
//# connection error of type QPACK_DECOMPRESSION_FAILED.
#[test]
fn invalid_static_index_closes_connection() {
    let mut server = Scripted::server();
    // An indexed field line of the static table: 63 + 36 is 99.
    let script = frame(0x01, &[0x00, 0x00, 0xff, 0x24]);
    assert_eq!(server.receive(REQUEST, &script), Err(ErrorCode::QPACK_DECOMPRESSION_FAILED));
}

/// `QPACK_ENCODER_STREAM_ERROR`: a new dynamic table capacity value exceeds the limit (QPACK 4.1.3)
#[test]
fn dynamic_table_capacity_above_the_limit_closes_connection() {
    // 4096, then 4097.
    assert_eq!(Scripted::server().encoder_stream(&[0x3f, 0xe1, 0x1f]), Ok(()));
    assert_eq!(
        Scripted::server().encoder_stream(&[0x3f, 0xe2, 0x1f]),
        Err(ErrorCode::QPACK_ENCODER_STREAM_ERROR)
    );
}

/// `H3_CLOSED_CRITICAL_STREAM`: a control stream is closed (QPACK 4.2)
//= RFC 9204 section 4.2
//# Closure of either unidirectional stream type MUST be treated as a connection error of type H3_CLOSED_CRITICAL_STREAM.
#[test]
fn closed_control_stream_closes_connection() {
    let mut server = Scripted::server();
    server.control(&settings(&[])).unwrap();
    let control = server.peer().control;
    assert_eq!(server.fin(control), Err(ErrorCode::H3_CLOSED_CRITICAL_STREAM));
}

/// `QPACK_DECODER_STREAM_ERROR`: Insert Count Increment is 0 (QPACK 4.4.3)
#[test]
fn insert_count_increment_of_zero_closes_connection() {
    assert_eq!(
        Scripted::server().decoder_stream(&[0x00]),
        Err(ErrorCode::QPACK_DECODER_STREAM_ERROR)
    );
}
