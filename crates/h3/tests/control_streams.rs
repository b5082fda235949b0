//! Unidirectional streams, SETTINGS, GOAWAY and the frames around push.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use pronghorn_h3::{
    Config, Connection, ErrorCode, FieldLine, Role, SendError, StreamId, UniStream, varint,
};
use support::{REQUEST, Scripted, frame, get_with, settings, varints};

const ROLES: [Role; 2] = [Role::Server, Role::Client];

/// Runs the script in one piece and byte by byte; both give the same result.
fn control(role: Role, frames: &[Vec<u8>]) -> Result<Vec<String>, ErrorCode> {
    let script = frames.concat();
    let run = |in_bytes: bool| {
        let mut scripted = Scripted::new(role);
        let result =
            if in_bytes { scripted.control_in_bytes(&script) } else { scripted.control(&script) };
        result.map(|()| scripted.events())
    };
    let whole = run(false);
    assert_eq!(run(true), whole);
    whole
}

/// Returns the frames on our control stream as pairs of type and payload, after checking the stream
/// type.
fn written_frames(connection: &mut Connection) -> Vec<(u64, Vec<u8>)> {
    let (stream, bytes) = connection.poll_uni_write().expect("SETTINGS are pending");
    assert_eq!(stream, UniStream::Control);
    let mut input = &bytes[..];
    assert_eq!(varint::decode(&mut input), Some(0x00));
    frames(input)
}

fn frames(mut input: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut frames = Vec::new();
    while !input.is_empty() {
        let frame_type = varint::decode(&mut input).expect("a frame has a type");
        let len = varint::decode(&mut input).expect("a frame has a length") as usize;
        frames.push((frame_type, input[..len].to_vec()));
        input = &input[len..];
    }
    frames
}

//= RFC 9114 section 7.2.4
//# SETTINGS frames MUST NOT be sent on any stream other than the control stream.
//= RFC 9114 section 7.2.4
//# A SETTINGS frame MUST be sent as the first frame of each control stream (see Section 6.2.1) by each peer, and it
//# MUST NOT be sent subsequently.
//= RFC 9114 section 6.2.1
//# Each side MUST initiate a single control stream at the beginning of the connection and send its SETTINGS frame as
//# the first frame on this stream.
//= RFC 9114 section 7.2.4.2
//# Endpoints MUST NOT require any data to be received from the peer prior to sending the SETTINGS frame; settings MUST
//# be sent as soon as the transport is ready to send data.
//= RFC 9114 section 3.2
//# After the QUIC connection is established, a SETTINGS frame MUST be sent by each endpoint as the initial frame of
//# their respective HTTP control stream.
#[test]
fn settings_frame_is_sent_first_and_once() {
    for role in ROLES {
        let mut connection = Connection::new(role, Config::default().with_grease(false));
        assert_eq!(
            written_frames(&mut connection),
            [(0x04, varints(&[0x06, 65_536, 0x01, 4096, 0x07, 16]))]
        );
        assert!(connection.poll_uni_write().is_none());
    }
}

#[test]
fn grease_values_are_reserved_and_depend_on_the_seed() {
    let mut seen = Vec::new();
    for seed in [0, 1, 2, u64::MAX, 0x1234_5678_9abc_def0] {
        let mut connection =
            Connection::new(Role::Server, Config::default().with_grease_seed(seed));
        let frames = written_frames(&mut connection);
        assert_eq!(frames.len(), 2);
        let mut pairs = &frames[0].1[..];
        let ids: Vec<u64> = std::iter::from_fn(|| varint::decode(&mut pairs)).step_by(2).collect();
        let last = *ids.last().expect("there are settings");
        let is_reserved = |id: u64| id >= 0x21 && (id - 0x21).is_multiple_of(0x1f);
        assert_eq!(ids[0], 0x06);
        assert!(is_reserved(last) && is_reserved(frames[1].0), "{frames:x?}");
        seen.push((last, frames[1].0));
    }
    seen.dedup();
    assert_eq!(seen.len(), 5, "{seen:x?}");
}

//= RFC 9114 section 7.2.4.2
//# The server MUST include all settings that differ from their default values.
#[test]
fn extended_connect_is_offered_by_servers_only() {
    let config = Config::default().with_grease(false).with_extended_connect(true);
    let mut server = Connection::new(Role::Server, config.clone());
    assert_eq!(
        written_frames(&mut server),
        [(0x04, varints(&[0x06, 65_536, 0x01, 4096, 0x07, 16, 0x08, 1]))]
    );
    let mut client = Connection::new(Role::Client, config);
    assert_eq!(
        written_frames(&mut client),
        [(0x04, varints(&[0x06, 65_536, 0x01, 4096, 0x07, 16]))]
    );
}

//= RFC 9114 section 7.2.4
//# An implementation MUST ignore any parameter with an identifier it does not understand.
#[test]
fn peer_settings_are_kept() {
    for role in ROLES {
        let mut scripted = Scripted::new(role);
        assert!(scripted.connection.peer_settings().is_none());
        scripted
            .control(&settings(&[0x01, 4096, 0x07, 16, 0x06, 9999, 0x33, 1, 0x4040, 5]))
            .unwrap();
        assert_eq!(scripted.events(), ["settings"]);
        let kept = scripted.connection.peer_settings().unwrap();
        assert_eq!(kept.max_field_section_size, Some(9999));
        assert_eq!((kept.qpack_max_table_capacity, kept.qpack_blocked_streams), (4096, 16));
        assert!(kept.h3_datagram && !kept.enable_connect_protocol);
    }
}

#[test]
fn oversized_settings_close_connection_before_they_arrive() {
    let announced = varints(&[0x04, 5000]);
    assert_eq!(control(Role::Server, &[announced]), Err(ErrorCode::H3_EXCESSIVE_LOAD));
}

#[test]
fn unknown_frames_are_skipped_at_any_length() {
    for role in ROLES {
        let script =
            [settings(&[]), frame(0x21, &[]), frame(0x4040, &vec![7; 70_000]), frame(0x07, &[0])];
        assert_eq!(control(role, &script), Ok(vec!["settings".to_string(), "go away 0".into()]));
    }
}

//= RFC 9114 section 7.2.8
//# These frame types MUST NOT be sent, and their receipt MUST be treated as a connection error of type
//# H3_FRAME_UNEXPECTED.
#[test]
fn http2_frames_close_connection_everywhere() {
    for frame_type in [0x02, 0x06, 0x08, 0x09] {
        for role in ROLES {
            let script = [settings(&[]), frame(frame_type, &[])];
            assert_eq!(control(role, &script), Err(ErrorCode::H3_FRAME_UNEXPECTED));
        }
        let mut server = Scripted::server();
        assert_eq!(
            server.receive(REQUEST, &frame(frame_type, &[])),
            Err(ErrorCode::H3_FRAME_UNEXPECTED)
        );
    }
}

//= RFC 9114 section 6.2.1
//# Only one control stream per peer is permitted; receipt of a second stream claiming to be a control stream MUST be
//# treated as a connection error of type H3_STREAM_CREATION_ERROR.
//= RFC 9204 section 4.2
//# Receipt of a second instance of either stream type MUST be treated as a connection error of type
//# H3_STREAM_CREATION_ERROR.
#[test]
fn second_critical_stream_closes_connection() {
    for role in ROLES {
        for stream_type in [0x00, 0x02, 0x03] {
            let mut scripted = Scripted::new(role);
            let (first, second) = (scripted.peer().encoder, scripted.peer().other);
            scripted.open_uni(first, stream_type, &[]).unwrap();
            assert_eq!(
                scripted.open_uni(second, stream_type, &[]),
                Err(ErrorCode::H3_STREAM_CREATION_ERROR)
            );
        }
    }
}

//= RFC 9114 section 6.2.1
//# If either control stream is closed at any point, this MUST be treated as a connection error of type
//# H3_CLOSED_CRITICAL_STREAM.
#[test]
fn ended_or_reset_critical_stream_closes_connection() {
    for role in ROLES {
        for stream_type in [0x00, 0x02, 0x03] {
            let opened = || {
                let mut scripted = Scripted::new(role);
                let stream = scripted.peer().other;
                scripted.open_uni(stream, stream_type, &[]).unwrap();
                (scripted, stream)
            };
            let (mut scripted, stream) = opened();
            assert_eq!(scripted.fin(stream), Err(ErrorCode::H3_CLOSED_CRITICAL_STREAM));
            let (mut scripted, stream) = opened();
            assert_eq!(
                scripted.reset(stream, ErrorCode::H3_NO_ERROR),
                Err(ErrorCode::H3_CLOSED_CRITICAL_STREAM)
            );
        }
        // Our own streams are critical too.
        let mut scripted = Scripted::new(role);
        let own = support::uni_ids(role).control;
        let error = scripted.connection.handle_stop_sending(own, 0x100).unwrap_err();
        assert_eq!(error.code(), ErrorCode::H3_CLOSED_CRITICAL_STREAM);
    }
}

//= RFC 9114 section 6.2
//# A receiver MUST tolerate unidirectional streams being closed or reset prior to the reception of the unidirectional
//# stream header.
#[test]
fn stream_that_ends_before_its_type_is_tolerated() {
    for role in ROLES {
        let mut scripted = Scripted::new(role);
        let stream = scripted.peer().other;
        scripted.receive(stream, &[0x40]).unwrap();
        scripted.fin(stream).unwrap();
        let stream = StreamId(stream.0 + 4);
        scripted.reset(stream, ErrorCode::H3_NO_ERROR).unwrap();
        let stream = StreamId(stream.0 + 4);
        scripted.fin(stream).unwrap();
        assert!(scripted.events().is_empty());
    }
}

//= RFC 9114 section 9
//# Implementations MUST discard data or abort reading on unidirectional streams that have unknown or unsupported types.
//= RFC 9114 section 6.2
//# The recipient MUST NOT consider unknown stream types to be a connection error of any kind.
//= RFC 9114 section 6.2
//# Recipients of unknown stream types MUST either abort reading of the stream or discard incoming data without further
//# processing.
#[test]
fn unknown_stream_type_is_stopped_once() {
    let mut server = Scripted::server();
    let stream = server.peer().other;
    server.receive(stream, &[0x40]).unwrap();
    server.receive(stream, &[0x54, 1, 2, 3]).unwrap();
    server.receive(stream, &[0x00, 0x00]).unwrap();
    assert_eq!(server.events(), ["14 stop uni H3_STREAM_CREATION_ERROR"]);
    server.connection.stop_receiving(stream);
    server.fin(stream).unwrap();
}

#[test]
fn reserved_stream_type_is_ignored() {
    let mut server = Scripted::server();
    let stream = server.peer().other;
    server.open_uni(stream, 0x1f * 7 + 0x21, b"anything").unwrap();
    server.receive(stream, b"more").unwrap();
    server.fin(stream).unwrap();
    assert!(server.events().is_empty());
}

//= RFC 9114 section 6.2.2
//# Only servers can push; if a server receives a client-initiated push stream, this MUST be treated as a connection
//# error of type H3_STREAM_CREATION_ERROR.
//= RFC 9114 section 4.6
//# A client MUST treat receipt of a push stream as a connection error of type H3_ID_ERROR when no MAX_PUSH_ID frame has
//# been sent or when the stream references a push ID that is greater than the maximum push ID.
#[test]
fn push_streams_close_connection() {
    let mut server = Scripted::server();
    assert_eq!(server.open_uni(StreamId(2), 0x01, &[0]), Err(ErrorCode::H3_STREAM_CREATION_ERROR));
    let mut client = Scripted::client("GET");
    assert_eq!(client.open_uni(StreamId(3), 0x01, &[0]), Err(ErrorCode::H3_ID_ERROR));
}

//= RFC 9114 section 7.2.5
//# If a PUSH_PROMISE frame is received on the control stream, the client MUST respond with a connection error of type
//# H3_FRAME_UNEXPECTED.
//= RFC 9114 section 7.2.5
//# A server MUST treat the receipt of a PUSH_PROMISE frame as a connection error of type H3_FRAME_UNEXPECTED.
//= RFC 9114 section 7.2.5
//# A client MUST treat receipt of a PUSH_PROMISE frame that contains a larger push ID than the client has advertised as
//# a connection error of H3_ID_ERROR.
#[test]
fn push_promise_closes_connection() {
    let mut server = Scripted::server();
    assert_eq!(server.receive(REQUEST, &frame(0x05, &[0])), Err(ErrorCode::H3_FRAME_UNEXPECTED));
    let mut client = Scripted::client("GET");
    assert_eq!(client.receive(REQUEST, &frame(0x05, &[0])), Err(ErrorCode::H3_ID_ERROR));
    for role in ROLES {
        let script = [settings(&[]), frame(0x05, &[0])];
        assert_eq!(control(role, &script), Err(ErrorCode::H3_FRAME_UNEXPECTED));
    }
}

//= RFC 9114 section 7.2.7
//# A client MUST treat the receipt of a MAX_PUSH_ID frame as a connection error of type H3_FRAME_UNEXPECTED.
//= RFC 9114 section 7.2.7
//# A MAX_PUSH_ID frame cannot reduce the maximum push ID; receipt of a MAX_PUSH_ID frame that contains a smaller value
//# than previously received MUST be treated as a connection error of type H3_ID_ERROR.
#[test]
fn max_push_id_may_grow_but_not_shrink() {
    let script = [settings(&[]), frame(0x0d, &[3]), frame(0x0d, &[3]), frame(0x0d, &[4])];
    assert_eq!(control(Role::Server, &script), Ok(vec!["settings".to_string()]));
    let script = [settings(&[]), frame(0x0d, &[3]), frame(0x0d, &[2])];
    assert_eq!(control(Role::Server, &script), Err(ErrorCode::H3_ID_ERROR));
    let script = [settings(&[]), frame(0x0d, &[3])];
    assert_eq!(control(Role::Client, &script), Err(ErrorCode::H3_FRAME_UNEXPECTED));
}

//= RFC 9114 section 7.2.3
//# If a server receives a CANCEL_PUSH frame for a push ID that has not yet been mentioned by a PUSH_PROMISE frame, this
//# MUST be treated as a connection error of type H3_ID_ERROR.
//= RFC 9114 section 7.2.3
//# If a CANCEL_PUSH frame is received that references a push ID greater than currently allowed on the connection, this
//# MUST be treated as a connection error of type H3_ID_ERROR.
#[test]
fn cancel_push_without_a_push_closes_connection() {
    for role in ROLES {
        let script = [settings(&[]), frame(0x03, &[0])];
        assert_eq!(control(role, &script), Err(ErrorCode::H3_ID_ERROR));
    }
}

//= RFC 9114 section 7.1
//# In particular, redundant length encodings MUST be verified to be self-consistent; see Section 10.8.
//= RFC 9114 section 7.1
//# A frame payload that contains additional bytes after the identified fields or a frame payload that terminates before
//# the end of the identified fields MUST be treated as a connection error of type H3_FRAME_ERROR.
//= RFC 9114 section 7.1
//# Each frame's payload MUST contain exactly the fields identified in its description.
//= RFC 9114 section 10.8
//# An implementation MUST ensure that the length of a frame exactly matches the length of the fields it contains.
#[test]
fn payload_of_wrong_length_is_a_frame_error() {
    for frame_type in [0x03, 0x07, 0x0d] {
        for payload in [&[][..], &[0x40], &[0, 0], &[0; 9]] {
            let script = [settings(&[]), frame(frame_type, payload)];
            assert_eq!(
                control(Role::Server, &script),
                Err(ErrorCode::H3_FRAME_ERROR),
                "{frame_type:#x} {payload:?}"
            );
        }
    }
}

//= RFC 9218 section 7.2
//# The request-stream variant of PRIORITY_UPDATE (type=0xF0700) MUST reference a request stream. If a server receives a
//# PRIORITY_UPDATE (type=0xF0700) for a stream ID that is not a request stream, this MUST be treated as a connection
//# error of type H3_ID_ERROR.
#[test]
fn invalid_priority_update_closes_connection() {
    let update = |frame_type, id: u64| {
        let payload = [varints(&[id]), b"u=1, i".to_vec()].concat();
        control(Role::Server, &[settings(&[]), frame(frame_type, &payload)])
    };
    assert_eq!(update(0xf0700, 8), Ok(vec!["settings".to_string()]));
    for id in [1, 2, 3] {
        assert_eq!(update(0xf0700, id), Err(ErrorCode::H3_ID_ERROR));
    }
    assert_eq!(update(0xf0701, 0), Err(ErrorCode::H3_ID_ERROR));
    let script = [settings(&[]), frame(0xf0700, &[])];
    assert_eq!(control(Role::Server, &script), Err(ErrorCode::H3_FRAME_ERROR));
    let script = [settings(&[]), varints(&[0xf0700, 1025])];
    assert_eq!(control(Role::Server, &script), Err(ErrorCode::H3_EXCESSIVE_LOAD));
    let script = [settings(&[]), frame(0xf0700, &[0])];
    assert_eq!(control(Role::Client, &script), Err(ErrorCode::H3_FRAME_UNEXPECTED));
    let mut server = Scripted::server();
    assert_eq!(server.receive(REQUEST, &frame(0xf0700, &[0])), Err(ErrorCode::H3_FRAME_UNEXPECTED));
}

//= RFC 9114 section 7.2.6
//# A client MUST treat receipt of a GOAWAY frame containing a stream ID of any other type as a connection error of type
//# H3_ID_ERROR.
//= RFC 9114 section 5.2
//# Receiving a GOAWAY containing a larger identifier than previously received MUST be treated as a connection error of
//# type H3_ID_ERROR.
#[test]
fn goaway_with_invalid_or_larger_id_closes_connection() {
    let go_away = |id| frame(0x07, &varints(&[id]));
    let script = [settings(&[]), go_away((1 << 62) - 4), go_away(8), go_away(8), go_away(4)];
    assert_eq!(control(Role::Client, &script).unwrap().len(), 5);
    assert_eq!(
        control(Role::Client, &[settings(&[]), go_away(4), go_away(8)]),
        Err(ErrorCode::H3_ID_ERROR)
    );
    assert_eq!(
        control(Role::Server, &[settings(&[]), go_away(4), go_away(8)]),
        Err(ErrorCode::H3_ID_ERROR)
    );
    for id in [1, 2, 3] {
        assert_eq!(
            control(Role::Client, &[settings(&[]), go_away(id)]),
            Err(ErrorCode::H3_ID_ERROR)
        );
        // For a server, the ID is a push ID, which can be any number.
        assert_eq!(
            control(Role::Server, &[settings(&[]), go_away(id)]).unwrap()[1],
            format!("go away {id}")
        );
    }
}

//= RFC 9114 section 5.2
//# Endpoints MUST NOT initiate new requests or promise new pushes on the connection after receipt of a GOAWAY frame
//# from the peer.
//= RFC 9114 section 4.1.1
//# Clients MUST NOT use the H3_REQUEST_REJECTED error code, except when a server has requested closure of the request
//# stream with this error code.
#[test]
fn goaway_stops_new_requests_and_reports_unprocessed_ones() {
    let mut client = Scripted::new(Role::Client);
    for stream in [0, 4, 8] {
        client.connection.open_request(StreamId(stream)).unwrap();
    }
    client.control(&[settings(&[]), frame(0x07, &[4])].concat()).unwrap();
    let refused = ["settings", "go away 4", "4 unprocessed", "8 unprocessed"];
    assert_eq!(client.events(), refused);
    assert_eq!(client.connection.open_request(StreamId(12)), Err(SendError::GoingAway));
    client.send(REQUEST, &support::GET).unwrap();
    client.receive(REQUEST, &support::headers(&[(":status", "200")])).unwrap();
    assert_eq!(client.events(), ["0 200"]);
}

//= RFC 9114 section 5.2
//# An endpoint MAY send multiple GOAWAY frames indicating different identifiers, but the identifier in each frame MUST
//# NOT be greater than the identifier in any previous frame, since clients might already have retried unprocessed
//# requests on another HTTP connection.
//= RFC 9114 section 4.1.1
//# Servers MUST NOT use the H3_REQUEST_REJECTED error code for requests that were partially or fully processed.
//= RFC 9114 section 5.2
//# An endpoint that is attempting to gracefully shut down a connection can send a GOAWAY frame with a value set to the
//# maximum possible value (2^62-4 for servers, 2^62-1 for clients).
#[test]
fn server_sends_goaway_in_two_steps() {
    let mut server = Scripted::with_config(Role::Server, Config::default().with_grease(false));
    written_frames(&mut server.connection);
    server.connection.go_away();
    let announced = server.connection.poll_uni_write().unwrap().1;
    assert_eq!(frames(&announced), [(0x07, varints(&[(1 << 62) - 4]))]);
    // Requests are still accepted, also out of order.
    server.receive(StreamId(8), &get_with(&[])).unwrap();
    server.receive(StreamId(4), &get_with(&[])).unwrap();
    server.connection.go_away();
    assert_eq!(frames(&server.connection.poll_uni_write().unwrap().1), [(0x07, varints(&[12]))]);
    server.connection.go_away();
    assert!(server.connection.poll_uni_write().is_none());
    assert_eq!(server.events().len(), 2);
    // Below the ID: accepted. From the ID on: rejected, and only once.
    server.receive(StreamId(0), &get_with(&[])).unwrap();
    server.receive(StreamId(12), &get_with(&[])).unwrap();
    server.receive(StreamId(12), &support::data(b"a")).unwrap();
    server.fin(StreamId(12)).unwrap();
    let head = "0 GET https://example.com/index.html";
    assert_eq!(server.events(), [head, "12 error H3_REQUEST_REJECTED"]);
    server.connection.finish_sending(StreamId(12));
    assert_eq!(server.connection.open_streams(), 3);
}

#[test]
fn client_sends_goaway_once() {
    let mut client = Connection::new(Role::Client, Config::default());
    written_frames(&mut client);
    client.go_away();
    client.go_away();
    assert_eq!(frames(&client.poll_uni_write().unwrap().1), [(0x07, vec![0])]);
}

//= RFC 9114 section 6.1
//# Clients MUST treat receipt of a server-initiated bidirectional stream as a connection error of type
//# H3_STREAM_CREATION_ERROR unless such an extension has been negotiated.
#[test]
fn server_initiated_bidi_stream_closes_connection() {
    let mut client = Scripted::client("GET");
    assert_eq!(client.receive(StreamId(1), b"a"), Err(ErrorCode::H3_STREAM_CREATION_ERROR));
}

#[test]
fn stop_sending_is_reported_only_while_sending() {
    let mut server = Scripted::server();
    server.receive(REQUEST, &get_with(&[])).unwrap();
    server.events();
    server.connection.handle_stop_sending(REQUEST, 0x10c).unwrap();
    assert_eq!(server.events(), ["0 stop sending H3_REQUEST_CANCELLED"]);
    server.connection.finish_sending(REQUEST);
    server.connection.handle_stop_sending(REQUEST, 0x10c).unwrap();
    assert!(server.events().is_empty());
}

#[test]
fn qpack_instructions_split_anywhere_are_parsed() {
    let mut server = Scripted::server();
    server.encoder_stream(&[0x20]).unwrap();
    server.decoder_stream(&[0x40, 0x7f]).unwrap();
    let (encoder, decoder) = (server.peer().encoder, server.peer().decoder);
    server.receive(encoder, &[0x3f]).unwrap();
    server.receive(encoder, &[0xe2]).unwrap();
    assert_eq!(server.receive(encoder, &[0x1f]), Err(ErrorCode::QPACK_ENCODER_STREAM_ERROR));
    server.receive(decoder, &[0x01, 0xff]).unwrap();
    assert_eq!(server.receive(decoder, &[0x00]), Err(ErrorCode::QPACK_DECODER_STREAM_ERROR));
}

#[test]
fn error_codes_have_their_names() {
    assert_eq!(ErrorCode::H3_FRAME_UNEXPECTED.to_string(), "H3_FRAME_UNEXPECTED");
    assert_eq!(ErrorCode(0x202).to_string(), "QPACK_DECODER_STREAM_ERROR");
    assert_eq!(ErrorCode(0xabc).to_string(), "0xabc");
    let mut server = Connection::new(Role::Server, Config::default());
    let error = server.handle_data(REQUEST, bytes::Bytes::from_static(&[0x00, 0x00])).unwrap_err();
    assert_eq!(error.to_string(), format!("H3_FRAME_UNEXPECTED: {}", error.reason()));
    let mut out = bytes::BytesMut::new();
    let error =
        server.encode_headers(StreamId(8), [FieldLine::new(b"a", b"b")], &mut out).unwrap_err();
    assert_eq!(error.to_string(), "stream 8 is not open for sending");
}
