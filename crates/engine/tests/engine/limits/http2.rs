//! Repeated resets and PRIORITY_UPDATE frames over HTTP/2.

use super::*;

#[test]
fn flood_of_resets_of_one_stream_is_stopped() {
    flood(
        "resets of one stream",
        |stats| stats.control_frame_floods.value(),
        |number| {
            let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
            if number == 0 {
                [frame(HEADERS, END_HEADERS | END_STREAM, 1, GET), reset].concat()
            } else {
                reset
            }
        },
    );
}

/// OkHttp and Jetty answer each frame that arrives on a cancelled stream with another RST_STREAM.
#[test]
fn reset_that_is_repeated_takes_nothing_back_again() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut raw = begin_http2(&mut bench, &trust);
    for stream in [1, 3] {
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
        turns(&mut bench, 3);
        for _ in 0..600 {
            raw.send(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        }
        turns(&mut bench, 3);
    }
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 5, GET));
    bench.turn_until(|_| {
        raw.step();
        assert!(!raw.is_closed, "{:?}", frames(&raw.received));
        frames(&raw.received).iter().any(|(kind, stream, _)| (*kind, *stream) == (DATA, 5))
    });
    assert_eq!(
        bench.count(|stats| stats.reset_floods.value() + stats.control_frame_floods.value()),
        0
    );
}

#[test]
fn malformed_priority_updates_are_errors_of_the_connection() {
    const PRIORITY_UPDATE: u8 = 16;
    let (protocol_error, frame_size_error) = (1, 6);
    let cases: [(u32, &[u8], u8); 3] = [
        (1, b"\0\0\0\x01u=1", protocol_error),
        (0, b"\0\0\0", frame_size_error),
        (0, b"\0\0\0\0u=1", protocol_error),
    ];
    for (stream, content, code) in cases {
        let trust = trust();
        let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
        let mut raw = begin_http2(&mut bench, &trust);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
        raw.send(&frame(PRIORITY_UPDATE, 0, stream, content));
        bench.turn_until(|_| {
            raw.step();
            raw.is_closed
        });
        let told = raw
            .received
            .windows(17)
            .any(|window| window[3] == 7 && window[13..17] == [0, 0, 0, code]);
        assert!(told, "{content:?} on stream {stream}: no GOAWAY with {code}");
    }
}

/// One for an open stream and two for later ones, where three streams may be open.
#[test]
fn more_priority_updates_than_streams_are_an_error_of_the_connection() {
    const PRIORITY_UPDATE: u8 = 16;
    for (updates, is_error) in [(&[3_u32, 5, 3][..], false), (&[3, 5, 7][..], true)] {
        let trust = trust();
        let config = limited(|limits| limits.with_concurrent_streams(3));
        let waiting = Rc::<RefCell<Vec<Responder>>>::default();
        let kept = waiting.clone();
        let waits = move |_| {
            let kept = kept.clone();
            move |_, responder: Responder| kept.borrow_mut().push(responder)
        };
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config, waits);
        let mut raw = begin_http2(&mut bench, &trust);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
        bench.turn_until(|_| !waiting.borrow().is_empty());
        for stream in updates {
            raw.send(&frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], b"u=1"].concat()));
        }
        raw.send(&frame(PING, 0, 0, &[0; 8]));
        bench.turn_until(|_| {
            raw.step();
            // The answer to a PING, or GOAWAY.
            frames(&raw.received).iter().any(|(kind, ..)| [PING, 7].contains(kind))
        });
        let told =
            raw.received.windows(17).any(|window| window[3] == 7 && window[13..17] == [0, 0, 0, 1]);
        assert_eq!(told, is_error, "{updates:?}");
    }
}
