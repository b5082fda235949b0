//! Limits on the cost of a peer: each limit is reached and named, and does not affect honest peers.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{
    Config, ConfigError, Connection, ConnectionError, ErrorCode, Event, FieldLine, Limit, Role,
    StreamId, UniStream, varint,
};
use support::{GET, REQUEST, data, frame, get_with, headers, post_with, settings, varints};

const CONTROL: StreamId = StreamId(2);

fn server(config: Config) -> Connection {
    Connection::new(Role::Server, config)
}

fn receive(
    connection: &mut Connection,
    stream: StreamId,
    bytes: &[u8],
) -> Result<(), ConnectionError> {
    connection.handle_data(stream, Bytes::copy_from_slice(bytes))
}

fn events(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.poll_event()).collect()
}

/// Repeats the call until the limit is exceeded, at most `most` times, and returns the number of
/// successful calls.
fn count_until_limit(
    limit: Limit,
    most: u64,
    mut call: impl FnMut(u64) -> Result<(), ConnectionError>,
) -> u64 {
    for count in 0..most {
        if let Err(error) = call(count) {
            assert_eq!(
                (error.code(), error.limit()),
                (ErrorCode::H3_EXCESSIVE_LOAD, Some(limit)),
                "{error}"
            );
            return count;
        }
    }
    most
}

/// Receives a complete request and sends its response.
fn complete_request(connection: &mut Connection, stream: StreamId) -> Result<(), ConnectionError> {
    receive(connection, stream, &get_with(&[]))?;
    connection.handle_fin(stream)?;
    events(connection);
    let mut out = BytesMut::new();
    connection
        .encode_headers(stream, [FieldLine::new(b":status", b"204")], &mut out)
        .expect("the request awaits its response");
    connection.finish_sending(stream);
    Ok(())
}

fn stream_limit(connection: &mut Connection) -> Option<Limit> {
    match events(connection).pop() {
        Some(Event::StreamError { code: ErrorCode::H3_EXCESSIVE_LOAD, limit, .. }) => limit,
        _ => None,
    }
}

#[test]
fn excess_of_unknown_frames_closes_connection() {
    let config = Config::default().with_max_useless_frames(50).unwrap();
    for unknown in [frame(0x21, &[]), frame(0x4040, b"abc"), data(&[])] {
        let mut server = server(config.clone());
        receive(&mut server, REQUEST, &post_with(&[])).unwrap();
        let count = count_until_limit(Limit::UselessFrames, 1000, |_| {
            receive(&mut server, REQUEST, &unknown)
        });
        assert_eq!(count, 50);
    }
}

#[test]
fn unknown_frames_on_the_control_stream_close_connection() {
    let mut server = server(Config::default().with_max_useless_frames(50).unwrap());
    receive(&mut server, CONTROL, &[varints(&[0x00]), settings(&[])].concat()).unwrap();
    let count = count_until_limit(Limit::UselessFrames, 1000, |_| {
        receive(&mut server, CONTROL, &frame(0x21, &[]))
    });
    assert_eq!(count, 50);
}

//= RFC 9114 section 10.5
//# An endpoint MAY treat activity that is suspicious as a connection error of type H3_EXCESSIVE_LOAD
#[test]
fn frame_flood_in_one_read_closes_connection() {
    let mut server = server(Config::default());
    let error = receive(&mut server, REQUEST, &[0x21, 0x00].repeat(32_768)).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::UselessFrames));
    assert!(events(&mut server).is_empty());
}

#[test]
fn one_unknown_frame_per_useful_frame_is_accepted() {
    let mut server = server(Config::default().with_max_useless_frames(16).unwrap());
    receive(&mut server, REQUEST, &post_with(&[])).unwrap();
    for _ in 0..10_000 {
        receive(&mut server, REQUEST, &[frame(0x21, b"a"), data(b"b")].concat()).unwrap();
        events(&mut server);
    }
}

#[test]
fn unknown_frame_bytes_count_when_announced() {
    let config = Config::default().with_max_useless_bytes(10_000).unwrap();
    let mut server = server(config);
    receive(&mut server, REQUEST, &frame(0x21, &[0; 9_000])).unwrap();
    let error = receive(&mut server, REQUEST, &varints(&[0x21, 1_001])).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::UselessBytes));
    let mut server = Connection::new(Role::Server, Config::default());
    assert_eq!(
        receive(&mut server, REQUEST, &varints(&[0x21, varint::MAX])).unwrap_err().limit(),
        Some(Limit::UselessBytes)
    );
}

#[test]
fn received_content_offsets_useless_bytes() {
    let mut server = server(Config::default().with_max_useless_bytes(10_000).unwrap());
    receive(&mut server, REQUEST, &post_with(&[])).unwrap();
    for _ in 0..100 {
        receive(&mut server, REQUEST, &[frame(0x21, &[0; 9_000]), data(&[0; 9_000])].concat())
            .unwrap();
        events(&mut server);
    }
    // Announced content alone does not offset useless bytes.
    receive(&mut server, REQUEST, &frame(0x21, &[0; 9_000])).unwrap();
    receive(&mut server, REQUEST, &varints(&[0x00, 1 << 40])).unwrap();
    let error = receive(&mut server, StreamId(4), &frame(0x21, &[0; 9_000])).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::UselessBytes));
}

#[test]
fn bytes_on_streams_of_unknown_type_are_limited() {
    for stream_type in [0x21, 0x54] {
        let mut server = server(Config::default().with_max_useless_bytes(10_000).unwrap());
        receive(&mut server, CONTROL, &varints(&[stream_type])).unwrap();
        let count = count_until_limit(Limit::UselessBytes, 1000, |_| {
            receive(&mut server, CONTROL, &[0; 1000])
        });
        assert_eq!(count, 10);
    }
}

#[test]
fn streams_of_unknown_type_are_limited() {
    type Open = fn(&mut Connection, StreamId) -> Result<(), ConnectionError>;
    let ways: [Open; 4] = [
        |server, stream| {
            receive(server, stream, &varints(&[0x21])).and_then(|()| server.handle_fin(stream))
        },
        |server, stream| receive(server, stream, &[0x40]),
        |server, stream| server.handle_fin(stream),
        |server, stream| server.handle_reset(stream, 0x100),
    ];
    for open in ways {
        let mut server = server(Config::default().with_max_unknown_streams(20).unwrap());
        let count = count_until_limit(Limit::UnknownStreams, 1000, |count| {
            open(&mut server, StreamId(2 + 4 * count))
        });
        assert_eq!(count, 20);
    }
}

#[test]
fn one_unknown_stream_per_request_is_accepted() {
    let mut server = server(Config::default().with_max_unknown_streams(8).unwrap());
    for count in 0..1000 {
        let stream = StreamId(2 + 4 * count);
        receive(&mut server, stream, &varints(&[0x21])).unwrap();
        server.handle_fin(stream).unwrap();
        complete_request(&mut server, StreamId(4 * count)).unwrap();
    }
}

#[test]
fn critical_streams_do_not_count_as_unknown() {
    let mut server = server(Config::default().with_max_unknown_streams(8).unwrap());
    for (stream, stream_type) in [(2, 0x00), (6, 0x02), (10, 0x03)] {
        receive(&mut server, StreamId(stream), &varints(&[stream_type])).unwrap();
    }
    let count = count_until_limit(Limit::UnknownStreams, 100, |count| {
        server.handle_fin(StreamId(14 + 4 * count))
    });
    assert_eq!(count, 8);
}

#[test]
fn control_frame_flood_closes_connection() {
    let repeated = [
        (Role::Server, frame(0x07, &[0])),
        (Role::Server, frame(0x0d, &[0])),
        (Role::Server, frame(0xf0700, b"\x00u=1")),
        (Role::Client, frame(0x07, &[0])),
    ];
    for (role, repeated) in repeated {
        let mut connection =
            Connection::new(role, Config::default().with_max_control_frames(100).unwrap());
        let control =
            support::uni_ids(if role == Role::Server { Role::Client } else { Role::Server })
                .control;
        receive(&mut connection, control, &[varints(&[0x00]), settings(&[])].concat()).unwrap();
        let error = receive(&mut connection, control, &repeated.repeat(20_000)).unwrap_err();
        assert_eq!(error.limit(), Some(Limit::ControlFrames));
        assert!(events(&mut connection).len() <= 101);
    }
}

#[test]
fn four_control_frames_per_request_are_accepted() {
    let mut server = server(Config::default().with_max_control_frames(16).unwrap());
    receive(&mut server, CONTROL, &[varints(&[0x00]), settings(&[])].concat()).unwrap();
    for count in 0..1000 {
        receive(&mut server, CONTROL, &frame(0xf0700, b"\x00u=1").repeat(4)).unwrap();
        complete_request(&mut server, StreamId(4 * count)).unwrap();
    }
}

/// Ways to make a server do useless work: rapid reset first; with the last one, the server itself
/// resets the stream.
#[test]
fn aborted_requests_close_connection() {
    type Abort = fn(&mut Connection, StreamId) -> Result<(), ConnectionError>;
    let ways: [Abort; 6] = [
        |server, stream| server.handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0),
        |server, stream| {
            receive(server, stream, &get_with(&[]))?;
            server.handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0)?;
            server.handle_stop_sending(stream, ErrorCode::H3_REQUEST_CANCELLED.0)
        },
        |server, stream| {
            receive(server, stream, &get_with(&[]))?;
            server.handle_fin(stream)?;
            server.handle_stop_sending(stream, ErrorCode::H3_REQUEST_CANCELLED.0)
        },
        |server, stream| receive(server, stream, &headers(&[("a", "b")])),
        |server, stream| receive(server, stream, &varints(&[0x01, 1 << 30])),
        |server, stream| {
            receive(server, stream, &[post_with(&[("content-length", "1")]), data(b"ab")].concat())
        },
    ];
    for abort in ways {
        let mut server = server(Config::default().with_max_aborted_requests(30).unwrap());
        let count = count_until_limit(Limit::AbortedRequests, 1000, |count| {
            let stream = StreamId(4 * count);
            abort(&mut server, stream)?;
            events(&mut server);
            server.stop_receiving(stream);
            server.finish_sending(stream);
            assert_eq!(server.open_streams(), 0);
            Ok(())
        });
        assert_eq!(count, 30);
    }
}

#[test]
fn completed_request_offsets_an_aborted_one() {
    let mut server = server(Config::default().with_max_aborted_requests(1).unwrap());
    for count in 0..1000 {
        let stream = StreamId(8 * count);
        server.handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0).unwrap();
        server.finish_sending(stream);
        complete_request(&mut server, StreamId(stream.0 + 4)).unwrap();
    }
}

#[test]
fn cancellation_after_the_response_does_not_count_as_aborted() {
    let mut server = server(Config::default().with_max_aborted_requests(1).unwrap());
    for count in 0..100 {
        let stream = StreamId(4 * count);
        receive(&mut server, stream, &post_with(&[])).unwrap();
        server.finish_sending(stream);
        server.handle_stop_sending(stream, ErrorCode::H3_REQUEST_CANCELLED.0).unwrap();
        server.handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0).unwrap();
    }
}

#[test]
fn server_resets_do_not_count_as_aborted() {
    let mut client =
        Connection::new(Role::Client, Config::default().with_max_aborted_requests(1).unwrap());
    for count in 0..100 {
        let stream = StreamId(4 * count);
        client.open_request(stream).unwrap();
        client.handle_stop_sending(stream, ErrorCode::H3_NO_ERROR.0).unwrap();
        client.handle_reset(stream, ErrorCode::H3_REQUEST_REJECTED.0).unwrap();
        client.finish_sending(stream);
    }
}

#[test]
fn field_lines_are_limited_in_heads_and_trailers() {
    let config = Config::default().with_max_field_lines(20).unwrap();
    let with_lines =
        |count: usize| [&GET[..], &[("accept", "*/*"); 100][..count - GET.len()]].concat();
    let mut server = server(config.clone());
    receive(&mut server, REQUEST, &headers(&with_lines(20))).unwrap();
    assert_eq!(stream_limit(&mut server), None);
    receive(&mut server, StreamId(4), &headers(&with_lines(21))).unwrap();
    assert_eq!(stream_limit(&mut server), Some(Limit::FieldLines));
    receive(&mut server, StreamId(8), &[post_with(&[]), headers(&[("a", "b"); 20])].concat())
        .unwrap();
    assert_eq!(stream_limit(&mut server), None);
    receive(&mut server, StreamId(12), &[post_with(&[]), headers(&[("a", "b"); 21])].concat())
        .unwrap();
    assert_eq!(stream_limit(&mut server), Some(Limit::FieldLines));
    let mut client = Connection::new(Role::Client, config);
    client.open_request(REQUEST).unwrap();
    let response = [&[(":status", "200")], &[("a", "b"); 20][..]].concat();
    receive(&mut client, REQUEST, &headers(&response)).unwrap();
    assert_eq!(stream_limit(&mut client), Some(Limit::FieldLines));
}

#[test]
fn oversized_field_section_names_its_limit() {
    let mut server = server(Config::default());
    receive(&mut server, REQUEST, &varints(&[0x01, 1 << 30])).unwrap();
    assert_eq!(stream_limit(&mut server), Some(Limit::FieldSectionSize));
}

#[test]
fn interim_responses_are_limited() {
    let mut client =
        Connection::new(Role::Client, Config::default().with_max_interim_responses(10).unwrap());
    client.open_request(REQUEST).unwrap();
    receive(&mut client, REQUEST, &headers(&[(":status", "103")]).repeat(10)).unwrap();
    assert_eq!(events(&mut client).len(), 10);
    receive(&mut client, REQUEST, &headers(&[(":status", "103")])).unwrap();
    assert_eq!(stream_limit(&mut client), Some(Limit::InterimResponses));
    // The limit applies to each request separately.
    client.open_request(StreamId(4)).unwrap();
    receive(
        &mut client,
        StreamId(4),
        &[headers(&[(":status", "103")]), headers(&[(":status", "200")])].concat(),
    )
    .unwrap();
    assert_eq!(events(&mut client).len(), 2);
}

#[test]
fn oversized_settings_and_priority_updates_name_their_limit() {
    for (frame_type, len, limit) in
        [(0x04, 4097, Limit::SettingsSize), (0xf0700, 1025, Limit::PriorityUpdateSize)]
    {
        let mut server = server(Config::default());
        let script = if frame_type == 0x04 {
            varints(&[0x00])
        } else {
            [varints(&[0x00]), settings(&[])].concat()
        };
        receive(&mut server, CONTROL, &script).unwrap();
        let error = receive(&mut server, CONTROL, &varints(&[frame_type, len])).unwrap_err();
        assert_eq!((error.code(), error.limit()), (ErrorCode::H3_EXCESSIVE_LOAD, Some(limit)));
    }
}

#[test]
fn blocked_stream_and_decoder_backlogs_name_their_limit() {
    // A blocked section: GET, https, a reference to the first entry of the still empty dynamic
    // table, and the path.
    let blocked = frame(0x01, &[0x02, 0x80, 0xd1, 0xd7, 0x10, 0xc1]);
    let mut connection = server(Config::default());
    receive(&mut connection, REQUEST, &blocked).unwrap();
    let count = count_until_limit(Limit::BlockedStreamBytes, 1000, |_| {
        receive(&mut connection, REQUEST, &data(&[0; 1024]))
    });
    assert_eq!(count, 64 * 1024 / 1027);
    let mut connection = server(Config::default());
    connection.set_uni_backlog(UniStream::QpackDecoder, 64 * 1024 + 1);
    assert_eq!(
        receive(&mut connection, REQUEST, &blocked).unwrap_err().limit(),
        Some(Limit::DecoderBacklog)
    );
}

#[test]
fn tiny_data_frames_are_joined_into_few_events() {
    let mut server = server(Config::default());
    receive(&mut server, REQUEST, &post_with(&[])).unwrap();
    events(&mut server);
    receive(&mut server, REQUEST, &data(b"a").repeat(21_845)).unwrap();
    let pieces = events(&mut server);
    assert!(pieces.len() <= 2, "{}", pieces.len());
    // The worst case: pieces just too large to be joined alternate with small ones.
    receive(&mut server, REQUEST, &[data(&[0; 1024]), data(b"a")].concat().repeat(63)).unwrap();
    assert_eq!(events(&mut server).len(), 126);
}

#[test]
fn other_errors_name_no_limit() {
    let mut server = server(Config::default());
    receive(&mut server, StreamId(4), &headers(&[])).unwrap();
    assert!(matches!(events(&mut server)[..], [Event::StreamError { limit: None, .. }]));
    assert_eq!(receive(&mut server, REQUEST, &data(b"a")).unwrap_err().limit(), None);
}

#[test]
fn out_of_range_limit_is_refused_by_name() {
    type Set = fn(Config) -> Result<Config, ConfigError>;
    let setters: [(Limit, Set); 9] = [
        (Limit::FieldSectionSize, |config| config.with_max_field_section_size(1023)),
        (Limit::FieldSectionSize, |config| config.with_max_field_section_size((1 << 30) + 1)),
        (Limit::FieldLines, |config| config.with_max_field_lines(15)),
        (Limit::InterimResponses, |config| config.with_max_interim_responses(0)),
        (Limit::UselessFrames, |config| config.with_max_useless_frames(15)),
        (Limit::UselessBytes, |config| config.with_max_useless_bytes(4095)),
        (Limit::UnknownStreams, |config| config.with_max_unknown_streams(7)),
        (Limit::ControlFrames, |config| config.with_max_control_frames(15)),
        (Limit::AbortedRequests, |config| config.with_max_aborted_requests(0)),
    ];
    for (expected, set) in setters {
        let error = set(Config::default()).unwrap_err();
        assert!(
            matches!(error, ConfigError::OutOfRange { limit, .. } if limit == expected),
            "{error}"
        );
        assert!(error.to_string().starts_with(expected.name()), "{error}");
    }
}
