//! PRIORITY_UPDATE frames (RFC 9218 section 7).

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use pronghorn_h3::{Config, ErrorCode, Priority, Role, StreamId};
use support::{GET, REQUEST, Scripted, frame, get_with, headers, settings, varints};

fn update(stream: u64, value: &str) -> Vec<u8> {
    frame(0xf0700, &[varints(&[stream]), value.as_bytes().to_vec()].concat())
}

#[test]
fn invalid_priority_parameters_are_ignored() {
    //= RFC 9218 section 4
    //# Where the Dictionary is successfully parsed, this document places the additional requirement that unknown priority
    //# parameters, priority parameters with out-of-range values, or values of unexpected types MUST be ignored.
    for (value, expected) in [
        ("u=9, i, x=\"text\"", "u=3, i"),
        ("u=-1", "u=3"),
        ("u=1.0, i=1", "u=3"),
        ("i=(?1), u=4", "u=4"),
        ("u=2, u=9", "u=3"),
    ] {
        assert_eq!(Priority::from_field(value.as_bytes()).to_string(), expected, "{value}");
    }
}

#[test]
fn update_after_the_head_is_reported() {
    let mut server = Scripted::server();
    server.control(&settings(&[])).unwrap();
    server.receive(REQUEST, &get_with(&[("priority", "u=1")])).unwrap();
    server.events();
    server.receive(server.peer().control, &update(0, "u=6, i")).unwrap();
    assert_eq!(server.events(), ["0 priority u=6, i"]);
}

#[test]
fn update_before_the_request_is_reported_after_its_head() {
    let mut server = Scripted::server();
    server
        .control(&[settings(&[]), update(0, "u=6"), update(4, "i"), update(0, "u=5")].concat())
        .unwrap();
    assert_eq!(server.events(), ["settings"]);
    // Streams may arrive in any order, and headers in pieces.
    server.receive(StreamId(4), &headers(&GET)).unwrap();
    server.fin(StreamId(4)).unwrap();
    assert_eq!(server.events(), ["4 GET https://example.com/index.html end", "4 priority u=3, i"]);
    let head = headers(&GET);
    server.receive(REQUEST, &head[..3]).unwrap();
    server.receive(server.peer().control, &update(0, "u=2")).unwrap();
    assert!(server.events().is_empty());
    server.receive(REQUEST, &head[3..]).unwrap();
    assert_eq!(server.events(), ["0 GET https://example.com/index.html", "0 priority u=2"]);
}

#[test]
fn updates_for_missing_requests_are_bounded() {
    let mut server = Scripted::server();
    server.control(&settings(&[])).unwrap();
    for request in 0..900 {
        server.receive(server.peer().control, &update(4 * request, "u=1")).unwrap();
    }
    // The newest 64 are kept; the others were dropped and counted.
    assert_eq!(server.connection.dropped_priority_updates(), 900 - 64);
    server.events();
    server.receive(StreamId(4 * (900 - 65)), &headers(&GET)).unwrap();
    assert_eq!(server.events().len(), 1);
    server.receive(StreamId(4 * (900 - 64)), &headers(&GET)).unwrap();
    assert_eq!(server.events().len(), 2);
}

#[test]
fn update_beyond_the_stream_limit_is_an_id_error() {
    //= RFC 9218 section 7.2
    //# If a server receives a PRIORITY_UPDATE (type=0xF0700) with a stream ID that is beyond the stream limits, this SHOULD
    //# be treated as a connection error of type H3_ID_ERROR.
    let mut server =
        Scripted::with_config(Role::Server, Config::default().with_max_concurrent_requests(10));
    server.control(&[settings(&[]), update(4 * 9, "u=1")].concat()).unwrap();
    server.receive(REQUEST, &headers(&GET)).unwrap();
    server.receive(server.peer().control, &update(4 * 10, "u=1")).unwrap();
    assert_eq!(
        server.receive(server.peer().control, &update(4 * 11, "u=1")),
        Err(ErrorCode::H3_ID_ERROR)
    );
}

#[test]
fn update_for_a_finished_request_is_ignored() {
    let mut server = Scripted::server();
    server.control(&settings(&[])).unwrap();
    server.receive(REQUEST, &headers(&GET)).unwrap();
    server.fin(REQUEST).unwrap();
    server.connection.finish_sending(REQUEST);
    server.events();
    server.receive(server.peer().control, &update(0, "u=1")).unwrap();
    assert!(server.events().is_empty());
}
