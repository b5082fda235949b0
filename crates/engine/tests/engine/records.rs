//! TLS records of HTTP/2: few, and full.

use bytes::Bytes;
use http::StatusCode;
use pronghorn_engine::{Config, Group, Responder, Response};

use crate::raw_tls::RawTls;
use crate::support::{Bench, hello, trust};

const WINDOW: u32 = 1 << 30;

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// The beginning of a connection with maximum windows.
fn opening() -> Vec<u8> {
    let settings = [&[0, 4][..], &WINDOW.to_be_bytes()].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &settings),
        frame(8, 0, 0, &WINDOW.to_be_bytes()),
    ]
    .concat()
}

/// GET https://localhost/
fn request(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &[&[0x82, 0x87, 0x84, 0x01, 9][..], b"localhost"].concat())
}

/// Counts the ends of streams among the frames in `bytes`, and the bytes of content.
fn answers(mut bytes: &[u8]) -> (usize, usize) {
    let (mut ends, mut content) = (0, 0);
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some(rest) = rest.get(length..) else { break };
        if head[3] == 0 {
            content += length;
            ends += usize::from(head[4] & 1);
        }
        bytes = rest;
    }
    (ends, content)
}

#[test]
fn answers_to_requests_that_come_together_leave_together() {
    const REQUESTS: usize = 50;
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
    raw.send(&opening());
    for _ in 0..20 {
        bench.turn();
        raw.step();
    }
    let before = raw.records().len();
    raw.send(&(0..REQUESTS).flat_map(|index| request(2 * index as u32 + 1)).collect::<Vec<u8>>());
    bench.turn_until(|_| {
        raw.step();
        answers(&raw.received).0 == REQUESTS
    });
    let records = raw.records().len() - before;
    assert!(records <= 3, "{REQUESTS} answers came in {records} records");
}

#[test]
fn large_content_fills_its_records() {
    const BYTES: usize = 1 << 20;
    let trust = trust();
    let content = Bytes::from(vec![b'x'; BYTES]);
    let handler = move |_| {
        let content = content.clone();
        move |_, responder: Responder| {
            responder.send(Response::new(StatusCode::OK).with_body(content.clone()));
        }
    };
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), handler);
    let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
    raw.send(&[opening(), request(1)].concat());
    bench.turn_until(|_| {
        raw.step();
        answers(&raw.received) == (1, BYTES)
    });
    let records = raw.records();
    // The first ones fit into a segment each, as does the first one after each flush.
    let is_full = |length: &usize| *length > 16 << 10;
    let full = records.iter().filter(|length| is_full(length)).count();
    let begun = records.iter().position(is_full).unwrap();
    assert!((40..70).contains(&begun), "{records:?}");
    let rest = records.len() - begun - full;
    assert!(
        full >= (BYTES - (192 << 10)) / (16 << 10) && rest <= 24,
        "{full} of {} are full: {records:?}",
        records.len()
    );
}

/// A record can be decrypted only when it is complete, and a server may send ten segments at first.
#[test]
fn response_of_fewer_segments_than_the_initial_window_has_needs_no_second_one() {
    let trust = trust();
    let content = Bytes::from(vec![b'x'; 13_000]);
    let handler = move |_| {
        let content = content.clone();
        move |_, responder: Responder| {
            responder.send(Response::new(StatusCode::OK).with_body(content.clone()));
        }
    };
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), handler);
    let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
    let before = raw.records().len();
    raw.send(&[opening(), request(1)].concat());
    bench.turn_until(|_| {
        raw.step();
        answers(&raw.received) == (1, 13_000)
    });
    let records = raw.records().split_off(before);
    // With its five bytes of header.
    assert!(records.iter().all(|length| length + 5 <= 1_448), "{records:?}");
    // Tickets and SETTINGS take no segments of their own.
    assert!(records.iter().map(|length| length + 5).sum::<usize>() <= 10 * 1_448, "{records:?}");
}
