//! Memory of a connection under attack: the bounds that `Config` documents.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Config, Connection, ErrorCode, Event, FieldLine, Head, Role, StreamId};
use support::{data, frame, get_with, headers, post_with, settings, varints};

const KIB: u64 = 1024;
const STREAMS: u64 = 100;
/// Memory of a connection and its streams, excluding field sections and pending events.
const STATE: u64 = 64 * KIB;

/// Size of one read of the engine, which it passes in before it polls.
const READ: usize = 64 * 1024;

fn drain(connection: &mut Connection) {
    while connection.poll_event().is_some() {}
    while connection.poll_uni_write().is_some() {}
}

/// Returns the peak memory while the peer's bytes are processed as by the engine, excluding these
/// bytes.
fn peak(bytes: Vec<u8>, stream: StreamId) -> u64 {
    let bytes = Bytes::from(bytes);
    let mut connection = Connection::new(Role::Server, Config::default());
    let info = measure(|| {
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            if connection.handle_data(stream, rest.split_to(READ.min(rest.len()))).is_err() {
                break;
            }
            drain(&mut connection);
        }
    });
    info.bytes_max
}

#[test]
fn unfinished_heads_allocate_no_more_than_their_limit() {
    let announced = varints(&[0x01, 64 * KIB]);
    let piece = Bytes::from(vec![0xff; 100]);
    let mut connection = Connection::new(Role::Server, Config::default());
    let info = measure(|| {
        for stream in (0..STREAMS).map(|number| StreamId(4 * number)) {
            connection
                .handle_data(stream, Bytes::copy_from_slice(&announced))
                .expect("the frame may be that long");
            // Less than announced, in small pieces.
            for _ in 0..655 {
                connection.handle_data(stream, piece.clone()).expect("the frame is not complete");
            }
        }
    });
    let bound = STREAMS * 2 * 64 * KIB + STATE;
    assert!(info.bytes_max <= bound, "{} of {bound}", info.bytes_max);
    // Cancelled requests free their memory.
    let info = measure(|| {
        for stream in (0..STREAMS).map(|number| StreamId(4 * number)) {
            connection
                .handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0)
                .expect("a hundred may be cancelled");
            connection.finish_sending(stream);
        }
        drain(&mut connection);
    });
    assert!(info.bytes_current <= -(STREAMS.cast_signed() * 64 * 1024), "{}", info.bytes_current);
}

#[test]
fn announced_lengths_allocate_nothing() {
    for frame_type in [0x00, 0x01, 0x21] {
        let script = [post_with(&[]), varints(&[frame_type, (1 << 62) - 1])].concat();
        assert!(peak(script, StreamId(0)) <= STATE);
    }
    assert!(peak([varints(&[0x00, 0x04, 4096])].concat(), StreamId(2)) <= STATE);
}

#[test]
fn floods_hold_little_whatever_they_consist_of() {
    const FLOOD: usize = 1 << 20;
    let request = |piece: Vec<u8>| [post_with(&[]), piece.repeat(FLOOD / piece.len())].concat();
    let control = |piece: Vec<u8>| {
        [varints(&[0x00]), settings(&[]), piece.repeat(FLOOD / piece.len())].concat()
    };
    let encoder = |piece: Vec<u8>| {
        [vec![0x02, 0x3f, 0xe1, 0x1f], piece.repeat(FLOOD / piece.len().max(1))].concat()
    };
    let floods = [
        ("tiny content", request(data(b"a")), StreamId(0)),
        ("empty content", request(data(b"")), StreamId(0)),
        ("small content", request(data(&[0; 1000])), StreamId(0)),
        (
            "just too large to be joined",
            request([data(&[0; 1024]), data(b"a")].concat()),
            StreamId(0),
        ),
        ("unknown frames", request(frame(0x21, b"")), StreamId(0)),
        (
            "unknown and useful frames",
            request([frame(0x21, b""), data(b"a")].concat()),
            StreamId(0),
        ),
        ("requests on one stream", request(get_with(&[])), StreamId(0)),
        ("trailers", request(headers(&[("a", "b")])), StreamId(0)),
        ("GOAWAY", control(frame(0x07, &[0])), StreamId(2)),
        ("MAX_PUSH_ID", control(frame(0x0d, &[0])), StreamId(2)),
        ("PRIORITY_UPDATE", control(frame(0xf0700, b"\x00u=1")), StreamId(2)),
        ("unknown control frames", control(frame(0x21, b"")), StreamId(2)),
        ("settings", [varints(&[0x00, 0x04, 4096]), vec![0x21; 4096]].concat(), StreamId(2)),
        ("an unknown stream", vec![0x21; FLOOD], StreamId(2)),
        ("an encoder stream", [vec![0x02], vec![0x20; FLOOD]].concat(), StreamId(2)),
        (
            "insertions",
            encoder([vec![0xc0, 0x7f, 0x81, 0x01], vec![b'v'; 256]].concat()),
            StreamId(2),
        ),
        ("empty insertions", encoder(vec![0x40, 0x00]), StreamId(2)),
        (
            "duplicates of a large entry",
            [encoder(vec![]), vec![0xc0, 0x7f, 0xb1, 0x1d], vec![b'v'; 3888], vec![0x00; FLOOD]]
                .concat(),
            StreamId(2),
        ),
        ("capacities", encoder(vec![0x20, 0x3f, 0xe1, 0x1f]), StreamId(2)),
        (
            "a value that never ends",
            [encoder(vec![]), vec![0xc0, 0xff, 0xff, 0x6f], vec![0; FLOOD]].concat(),
            StreamId(2),
        ),
        ("cancellations", [vec![0x03], vec![0x44; FLOOD]].concat(), StreamId(2)),
        ("noise", (0..FLOOD).map(|place| (place * 7 % 251) as u8).collect(), StreamId(0)),
    ];
    for (name, flood, stream) in floods {
        // The joined content of one read, its growth while joining, and the events.
        let bound = STATE + 3 * READ as u64;
        let held = peak(flood, stream);
        assert!(held <= bound, "{name}: {held} of {bound}");
    }
}

#[test]
fn blocked_streams_hold_their_sections_and_no_more() {
    const SECTION: usize = 60 * 1024;
    let mut connection = Connection::new(Role::Server, Config::default());
    // Required Insert Count 1, then data that is not parsed while blocked.
    let section = Bytes::from(frame(0x01, &[vec![0x02, 0x00], vec![0x80; SECTION]].concat()));
    let info = measure(|| {
        for stream in (0..16).map(|number| StreamId(4 * number)) {
            connection.handle_data(stream, section.clone()).expect("sixteen may be blocked");
            assert!(connection.is_blocked(stream));
        }
        connection.handle_data(StreamId(64), section.clone()).expect_err("one more may not");
    });
    assert!(info.bytes_max <= 16 * SECTION as u64 + STATE, "{}", info.bytes_max);
    let info = measure(|| {
        for stream in (0..16).map(|number| StreamId(4 * number)) {
            connection
                .handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0)
                .expect("a few may be cancelled");
        }
        drain(&mut connection);
    });
    assert!(info.bytes_current <= -(15 * SECTION as i64), "{}", info.bytes_current);
}

/// Memory of our encoder for a peer that offers a large table, accepts everything and acknowledges
/// nothing.
#[test]
fn unacknowledged_heads_allocate_little() {
    let mut connection = Connection::new(Role::Server, Config::default());
    let offer = [varints(&[0x00]), settings(&[0x01, 1 << 30, 0x07, 1 << 30])].concat();
    connection.handle_data(StreamId(2), Bytes::from(offer)).expect("valid");
    let info = measure(|| {
        for number in 0..5000 {
            let stream = StreamId(4 * number);
            connection.handle_data(stream, Bytes::from(get_with(&[]))).expect("valid");
            connection.handle_fin(stream).expect("whole");
            drain(&mut connection);
            let value = format!("{} a value of some length", number / 3);
            let lines = [
                FieldLine::new(b":status", b"200"),
                FieldLine::new(b"server", b"a"),
                FieldLine::new(b"x-a", value.as_bytes()),
            ];
            connection.encode_headers(stream, lines, &mut BytesMut::new()).expect("open");
            connection.finish_sending(stream);
        }
    });
    assert!(info.bytes_max <= STATE, "{}", info.bytes_max);
}

#[test]
fn connection_releases_its_caches_and_continues() {
    let mut connection = Connection::new(Role::Server, Config::default());
    let offer = [varints(&[0x00]), settings(&[0x01, 4096, 0x07, 16])].concat();
    connection.handle_data(StreamId(2), Bytes::from(offer)).expect("valid");
    drain(&mut connection);
    connection.release_memory();
    let exchange = |connection: &mut Connection, number: u64| {
        let stream = StreamId(4 * number);
        connection.handle_data(stream, Bytes::from(get_with(&[("x-a", "b")]))).expect("valid");
        connection.handle_fin(stream).expect("whole");
        while let Some(event) = connection.poll_event() {
            if let Event::Head { head: Head::Request(head), .. } = event {
                connection.recycle(head.into_section());
            }
        }
        let lines = [FieldLine::new(b":status", b"200"), FieldLine::new(b"x-a", b"once")];
        connection.encode_headers(stream, lines, &mut BytesMut::new()).expect("open");
        connection.finish_sending(stream);
        drain(connection);
    };
    let kept = measure(|| exchange(&mut connection, 0)).bytes_current;
    let given_back = -measure(|| connection.release_memory()).bytes_current;
    assert!(given_back > 1000 && kept - given_back < 64, "{given_back} of {kept}");
    // The connection works as before.
    exchange(&mut connection, 1);
}

#[test]
fn long_lived_connection_does_not_grow() {
    let mut connection = Connection::new(Role::Server, Config::default());
    let mut exchange = |number: u64| {
        let stream = StreamId(4 * number);
        let cancelled = StreamId(4 * number + 4);
        connection.handle_data(stream, Bytes::from(get_with(&[]))).expect("valid");
        connection.handle_fin(stream).expect("whole");
        connection
            .handle_data(
                cancelled,
                Bytes::from([post_with(&[]), data(b"a"), frame(0x21, b"b")].concat()),
            )
            .expect("valid");
        connection
            .handle_reset(cancelled, ErrorCode::H3_REQUEST_CANCELLED.0)
            .expect("each second one");
        connection
            .handle_data(StreamId(2 + 4 * number), Bytes::from(varints(&[0x21])))
            .expect("ignored");
        connection.handle_fin(StreamId(2 + 4 * number)).expect("ignored");
        drain(&mut connection);
        let mut out = BytesMut::new();
        connection
            .encode_headers(stream, [FieldLine::new(b":status", b"204")], &mut out)
            .expect("open");
        connection.finish_sending(stream);
        connection.finish_sending(cancelled);
        // Stream cancellations for the peer's encoder.
        while connection.poll_uni_write().is_some() {}
    };
    for number in 0..100 {
        exchange(2 * number);
    }
    let info = measure(|| {
        for number in 100..10_000 {
            exchange(2 * number);
        }
    });
    assert!(info.bytes_current.abs() <= 4096, "{}", info.bytes_current);
}
