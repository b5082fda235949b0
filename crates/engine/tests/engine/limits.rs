//! Each limit, and what it does. On a virtual clock.

mod connections;
mod content;
mod heads;
mod http2;
mod memory;
mod responses;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_engine::{
    Body, Config, Connection, Group, Handler, LimitError, Limits, Protocol,
    Request as EngineRequest, Responder, Response, Stats,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::raw_tls::RawTls;
use crate::support::{Bench, PROTOCOLS, fetch, get, hello, trust};

fn limited(set: impl FnOnce(Limits) -> Result<Limits, LimitError>) -> Config {
    Config { limits: set(Limits::default()).unwrap(), ..Config::default() }
}

fn open(stats: &Stats) -> u64 {
    stats.tcp_open.value() + stats.quic_open.value()
}

/// Reads all content, then answers with its length; 500 if the content ends with an error.
fn reader(_: usize) -> impl Handler {
    |request: EngineRequest, responder: Responder| {
        responder.respond(async move {
            match request.body.collect().await {
                Ok(content) => {
                    Response::new(StatusCode::OK).with_body(content.to_bytes().len().to_string())
                }
                Err(_) => Response::new(StatusCode::INTERNAL_SERVER_ERROR),
            }
        });
    }
}

/// A body that yields a piece each time that the test allows one.
#[derive(Clone, Default)]
struct Drip {
    pieces: Rc<Cell<usize>>,
    ended: Rc<Cell<bool>>,
    waker: Rc<RefCell<Option<std::task::Waker>>>,
}

impl Drip {
    fn let_go(&self, pieces: usize) {
        self.pieces.set(self.pieces.get() + pieces);
        self.wake();
    }

    fn end(&self) {
        self.ended.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl http_body::Body for Drip {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if self.pieces.get() == 0 {
            if self.ended.get() {
                return Poll::Ready(None);
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.pieces.set(self.pieces.get() - 1);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))))
    }
}

/// Result of a request that runs in the background.
type Outcome = Rc<RefCell<Option<Result<(StatusCode, Bytes), String>>>>;

fn start(bench: &Bench, mut connection: Connection, request: Request<Body>) -> Outcome {
    let outcome = Outcome::default();
    let slot = outcome.clone();
    bench.client.handle().spawn(async move {
        let result = fetch(&mut connection, request).await;
        *slot.borrow_mut() = Some(result);
        // Kept open until the test ends.
        std::future::pending::<()>().await;
    });
    outcome
}

fn status_of(bench: &mut Bench, outcome: &Outcome) -> Result<StatusCode, String> {
    bench.turn_until(|_| outcome.borrow().is_some());
    outcome.take().unwrap().map(|(status, _)| status)
}

fn turns(bench: &mut Bench, count: usize) {
    for _ in 0..count {
        bench.turn();
    }
}

// ---- floods over HTTP/2

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;

/// A head in HPACK: GET, https, /, and the authority `localhost`.
const GET: &[u8] = b"\x82\x87\x84\x41\x09localhost";

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Returns type, stream and length of the complete frames in `bytes`.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, usize)> {
    let mut frames = Vec::new();
    while let Some((&[high, middle, low, kind, _, a, b, c, d], rest)) = bytes.split_first_chunk() {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let Some(after) = rest.get(length..) else { break };
        frames.push((kind, u32::from_be_bytes([a, b, c, d]), length));
        bytes = after;
    }
    frames
}

fn begin_http2(bench: &mut Bench, trust: &crate::support::Trust) -> RawTls {
    let mut raw = RawTls::connect(bench, trust, b"h2");
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    raw.send(&frame(SETTINGS, 0, 0, &[]));
    turns(bench, 5);
    raw
}

/// Sends what `flood` returns for growing numbers until the connection is closed, and serves
/// another client meanwhile.
fn flood(name: &str, counter: impl Fn(&Stats) -> u64, flood: impl Fn(u32) -> Vec<u8>) {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut attacker = begin_http2(&mut bench, &trust);
    let mut honest = bench.connect(Protocol::Http2);
    let mut sent = 0;
    while !attacker.is_closed {
        for _ in 0..100 {
            attacker.send(&flood(sent));
            sent += 1;
        }
        turns(&mut bench, 3);
        attacker.step();
        assert!(sent < 30_000, "{name}: {sent} frames and no end");
        let (answer, back) = bench.run(async move { (fetch(&mut honest, get("/")).await, honest) });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "{name}: the honest client");
        honest = back;
    }
    assert_eq!(bench.count(counter), 1, "{name}");
    // GOAWAY with ENHANCE_YOUR_CALM.
    let told = attacker
        .received
        .windows(17)
        .any(|window| window[3] == 7 && window[13..17] == [0, 0, 0, 11]);
    assert!(told, "{name}: closed without GOAWAY");
}

#[test]
fn rapid_reset_is_stopped() {
    flood(
        "rapid reset",
        |stats| stats.reset_floods.value() + stats.reset_floods_before_accept.value(),
        |number| {
            let stream = 2 * number + 1;
            [
                frame(HEADERS, END_HEADERS | END_STREAM, stream, GET),
                frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
            ]
            .concat()
        },
    );
}

#[test]
fn ping_flood_is_stopped() {
    flood("PING", |stats| stats.control_frame_floods.value(), |_| frame(PING, 0, 0, &[0; 8]));
}

#[test]
fn settings_flood_is_stopped() {
    flood("SETTINGS", |stats| stats.control_frame_floods.value(), |_| frame(SETTINGS, 0, 0, &[]));
}

#[test]
fn priority_flood_is_stopped() {
    flood(
        "PRIORITY",
        |stats| stats.control_frame_floods.value(),
        |_| frame(PRIORITY, 0, 1, &[0; 5]),
    );
}

#[test]
fn flood_of_tiny_window_updates_is_stopped() {
    flood(
        "WINDOW_UPDATE",
        |stats| stats.control_frame_floods.value(),
        |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
    );
}

#[test]
fn continuation_flood_is_stopped() {
    flood(
        "CONTINUATION",
        |stats| stats.continuation_floods.value(),
        |number| {
            if number == 0 { frame(HEADERS, 0, 1, GET) } else { frame(CONTINUATION, 0, 1, &[]) }
        },
    );
}

#[test]
fn flood_of_empty_data_is_stopped() {
    flood(
        "empty DATA",
        |stats| stats.control_frame_floods.value(),
        |number| {
            if number == 0 { frame(HEADERS, END_HEADERS, 1, GET) } else { frame(DATA, 0, 1, &[]) }
        },
    );
}

/// MadeYouReset: the client makes the server reset streams itself.
#[test]
fn flood_of_stream_errors_is_stopped() {
    flood(
        "stream errors",
        |stats| stats.stream_error_floods.value() + stats.control_frame_floods.value(),
        |number| {
            let stream = 2 * number + 1;
            [
                frame(HEADERS, END_HEADERS, stream, GET),
                frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]),
            ]
            .concat()
        },
    );
}

#[test]
fn pings_that_content_pays_for_are_answered() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), reader);
    let mut client = begin_http2(&mut bench, &trust);
    client.send(&frame(HEADERS, END_HEADERS, 1, GET));
    for _ in 0..12_000 {
        client.send(&frame(DATA, 0, 1, &[0; 4096]));
        client.send(&frame(PING, 0, 0, &[0; 8]));
        bench.turn();
        client.step();
        client.received.clear();
    }
    assert!(!client.is_closed);
    assert_eq!(bench.count(|stats| stats.control_frame_floods.value()), 0);
}

#[test]
fn streams_over_the_limit_are_refused_and_counted() {
    let trust = trust();
    let config = limited(|limits| limits.with_concurrent_streams(4));
    let mut bench = Bench::with_group(&Group::new(1), &trust, &config, |_| {
        |_, responder: Responder| responder.respond(std::future::pending())
    });
    let mut client = begin_http2(&mut bench, &trust);
    for stream in 0..6 {
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * stream + 1, GET));
    }
    bench.turn_until(|bench| bench.count(|stats| stats.streams_refused.value()) == 2);
    assert_eq!(bench.count(|stats| stats.requests_http2.value()), 4);
}

#[test]
fn streams_of_a_connection_share_what_may_wait_to_be_sent() {
    const STREAMS: usize = 200;
    let trust = trust();
    let produced = Rc::new(Cell::new(0));
    let config = limited(|limits| limits.with_send_window_bytes(256 << 10));
    let mut bench = Bench::with_group(&Group::new(1), &trust, &config, |_| {
        let produced = produced.clone();
        move |_, responder: Responder| {
            let body = Body::stream(Metered { produced: produced.clone() });
            responder.send(Response::new(StatusCode::OK).with_body(body));
        }
    });
    let mut client = begin_http2(&mut bench, &trust);
    // The windows are at their maximum, and the client reads nothing.
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    client.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    for number in 0..STREAMS as u32 {
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, GET));
    }
    turns(&mut bench, 300);
    assert_eq!(bench.count(|stats| stats.requests_http2.value()), STREAMS as u64);
    let before = produced.get();
    turns(&mut bench, 300);
    assert_eq!(produced.get(), before, "the response continues although the client does not read");
    // The kernel's buffers take some megabytes. Without a common limit it would be 50 MiB.
    assert!(before < 16 << 20, "{before} bytes");
    assert!(before > 256 << 10, "{before} bytes");
}

/// An endless body that counts the bytes taken from it.
struct Metered {
    produced: Rc<Cell<usize>>,
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.produced.set(self.produced.get() + 4096);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 4096])))))
    }
}

#[test]
fn content_beyond_the_window_is_counted() {
    let trust = trust();
    let config = limited(|limits| limits.with_stream_window_bytes(16 << 10));
    let kept = Rc::new(RefCell::new(Vec::new()));
    let mut bench = Bench::with_group(&Group::new(1), &trust, &config, |_| {
        let kept = kept.clone();
        move |request, responder| kept.borrow_mut().push((request, responder))
    });
    let mut client = begin_http2(&mut bench, &trust);
    client.send(&frame(SETTINGS, 1, 0, &[]));
    client.send(&frame(HEADERS, END_HEADERS, 1, GET));
    turns(&mut bench, 5);
    for _ in 0..3 {
        client.send(&frame(DATA, 0, 1, &[0; 16 << 10]));
    }
    turns(&mut bench, 10);
    assert_eq!(
        bench
            .count(|stats| stats.stream_window_overruns.value()
                + stats.connection_window_overruns.value()),
        1
    );
    kept.borrow_mut().clear();
}
