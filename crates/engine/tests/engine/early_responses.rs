//! Requests that are answered before their end. On a virtual clock.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use pronghorn_engine::{Body, Config, Group, LimitError, Limits, Protocol, Responder, Response};

use crate::raw_tls::RawTls;
use crate::support::{Bench, fetch, get, trust};

const PIECE: &[u8] = &[0; 4 << 10];

fn limited(set: impl FnOnce(Limits) -> Result<Limits, LimitError>) -> Config {
    Config { limits: set(Limits::default()).unwrap(), ..Config::default() }
}

/// A body that yields a piece for each one that the test allows, and records that it was dropped.
#[derive(Default)]
struct Paced {
    pieces: Rc<Cell<usize>>,
    dropped: Rc<Cell<bool>>,
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.dropped.set(true);
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if self.pieces.get() == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.pieces.set(self.pieces.get() - 1);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(PIECE)))))
    }
}

/// A body that never continues, and records that it was dropped.
struct Resting(Rc<Cell<bool>>);

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

impl http_body::Body for Resting {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Pending
    }
}

#[test]
fn upload_that_rests_after_its_answer_is_stopped_in_time() {
    for (config, seconds) in [
        (Config::default(), 5),
        (limited(|limits| limits.with_linger_timeout(Duration::from_secs(1))), 1),
    ] {
        stops_in_time(&config, Duration::from_secs(seconds));
    }
}

fn refuse(_: pronghorn_engine::Request, responder: Responder) {
    responder.send(Response::new(StatusCode::PAYLOAD_TOO_LARGE));
}

fn stops_in_time(config: &Config, timeout: Duration) {
    let mut bench = Bench::new(1, config, |_| refuse);
    let mut connection = bench.connect(Protocol::Http2);
    let stopped = Rc::new(Cell::new(false));
    let request = http::Request::post("https://localhost/")
        .body(Body::stream(Resting(stopped.clone())))
        .unwrap();
    let (response, mut connection) =
        bench.run(async move { (connection.send(request).await.unwrap(), connection) });
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);

    bench.skip(timeout.checked_sub(Duration::from_millis(100)).unwrap());
    for _ in 0..50 {
        bench.turn();
    }
    assert!(!stopped.get(), "its end could still have come");
    bench.skip(Duration::from_millis(200));
    bench.turn_until(|_| stopped.get());
    assert_eq!(bench.count(|stats| stats.linger_timeouts.value()), 1);
    let (status, _) = bench.run(async move { fetch(&mut connection, get("/")).await }).unwrap();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "the connection is of no use any more");
}

#[test]
fn upload_that_goes_on_after_its_answer_is_stopped_by_its_bytes() {
    // The window lets one piece through before the client could read the response.
    let config =
        limited(|limits| limits.with_linger_bytes(8 << 10)?.with_stream_window_bytes(4 << 10));
    let mut bench = Bench::new(1, &config, |_| refuse);
    let mut connection = bench.connect(Protocol::Http2);
    let upload = Paced::default();
    let (pieces, stopped) = (upload.pieces.clone(), upload.dropped.clone());
    let request = http::Request::post("https://localhost/").body(Body::stream(upload)).unwrap();
    let (response, mut connection) =
        bench.run(async move { (connection.send(request).await.unwrap(), connection) });
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);

    pieces.set(2);
    for _ in 0..50 {
        bench.turn();
    }
    assert!(!stopped.get(), "8 KiB of 12 KiB came");
    pieces.set(1);
    bench.turn_until(|_| stopped.get());
    assert_eq!(bench.count(|stats| stats.linger_overruns.value()), 1);
    assert_eq!(bench.count(|stats| stats.linger_timeouts.value()), 0);
    let (status, _) = bench.run(async move { fetch(&mut connection, get("/")).await }).unwrap();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "the connection is of no use any more");
}

#[test]
fn answer_over_http1_is_whole_though_the_upload_was_not_read_and_the_client_is_slow() {
    /// More than a socket buffers.
    const ANSWER_BYTES: usize = 20 << 20;
    let trust = trust();
    let answer = |_: pronghorn_engine::Request, responder: Responder| {
        responder.send(Response::new(StatusCode::OK).with_body(vec![b'x'; ANSWER_BYTES]));
    };
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| answer);
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    client.send(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000\r\n\r\n");
    for _ in 0..50 {
        bench.turn();
    }
    bench.turn_until(|_| {
        client.step();
        client.is_closed
    });
    let head = client.received.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    assert_eq!(client.received.len() - head - 4, ANSWER_BYTES);
}

/// Drops the content at once, or in the poll that makes the response.
fn refusing(eagerly: bool) -> impl Fn(pronghorn_engine::Request, Responder) {
    move |request: pronghorn_engine::Request, responder: Responder| {
        if eagerly {
            responder.respond_eagerly(Box::pin(async move {
                drop(request);
                Response::new(StatusCode::PAYLOAD_TOO_LARGE)
            }));
        } else {
            refuse(request, responder);
        }
    }
}

fn http1(eagerly: bool) -> (Bench, RawTls) {
    let (trust, config) = (trust(), Config::default());
    let mut bench = Bench::with_group(&Group::new(1), &trust, &config, move |_| refusing(eagerly));
    let client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    (bench, client)
}

/// Returns the head of the next response.
fn answer(bench: &mut Bench, client: &mut RawTls) -> String {
    let before = client.received.len();
    bench.turn_until(|_| {
        client.step();
        client.received[before..].ends_with(b"\r\n\r\n")
    });
    String::from_utf8(client.received[before..].to_vec()).unwrap()
}

/// Returns an HTTP/1.1 client whose upload was answered before its end.
fn answered_early(eagerly: bool) -> (Bench, RawTls) {
    let (mut bench, mut client) = http1(eagerly);
    client.send(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000\r\n\r\n");
    let head = answer(&mut bench, &mut client);
    assert!(
        head.starts_with("HTTP/1.1 413 ") && head.contains("\r\nconnection: close\r\n"),
        "{head}"
    );
    (bench, client)
}

#[test]
fn connection_goes_on_after_content_that_has_come_and_was_not_read() {
    for eagerly in [false, true] {
        let (mut bench, mut client) = http1(eagerly);
        for _ in 0..3 {
            client.send(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 7\r\n\r\ncontent");
            let head = answer(&mut bench, &mut client);
            assert!(
                head.starts_with("HTTP/1.1 413 ") && !head.contains("\r\nconnection:"),
                "{head}"
            );
        }
        client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        answer(&mut bench, &mut client);
        // No content is left to be sent, so the connection ends like any other.
        bench.skip(Config::default().limits.idle_timeout() + Duration::from_secs(1));
        client.wait_for_close(&mut bench);
    }
}

#[test]
fn shutdown_does_not_wait_for_a_client_that_sends_on_after_its_answer() {
    let (mut bench, mut client) = answered_early(true);
    client.send(PIECE);
    let now = bench.now();
    bench.servers[0].shut_down(now, Duration::from_secs(60));
    client.wait_for_close(&mut bench);
}

#[test]
fn client_that_ends_after_its_early_answer_gets_the_end_of_the_other_direction() {
    let (mut bench, mut client) = answered_early(true);
    client.send(PIECE);
    client.leave();
    client.wait_for_close(&mut bench);
    assert!(client.is_closed_in_order(), "with the end that TLS has for it");
}

/// Some clients cannot send any more once the server has closed its direction, and read the
/// response only after they have sent everything.
#[test]
fn http1_client_may_send_for_half_a_minute_after_early_response() {
    // If the machine stalls for that long, the client counts as finished; the test then runs again.
    for eagerly in [false, true].into_iter().cycle() {
        let (mut bench, mut client) = answered_early(eagerly);
        let (begin, mut latest, mut gap) = (bench.elapsed(), bench.elapsed(), Duration::ZERO);
        while !client.is_closed {
            bench.skip(Duration::from_millis(300));
            client.send(PIECE);
            for _ in 0..10 {
                bench.turn();
            }
            client.step();
            gap = gap.max(bench.elapsed().checked_sub(latest).unwrap());
            latest = bench.elapsed();
        }
        if gap < Duration::from_millis(600) {
            let seconds = latest.checked_sub(begin).unwrap().as_secs_f64();
            assert!((29.9..32.0).contains(&seconds), "{seconds} s");
            if eagerly {
                break;
            }
        }
    }
}

#[test]
fn connection_of_an_http1_client_that_rests_after_its_answer_ends_soon() {
    let (mut bench, mut client) = answered_early(false);
    assert!(!client.is_closed, "it may go on at once");
    bench.skip(Duration::from_millis(1100));
    client.wait_for_close(&mut bench);
}

#[test]
fn error_response_arrives_although_content_follows() {
    // A malformed field line, and an invalid host.
    for wrong in ["host : a", "host: a b"] {
        let (trust, config) = (trust(), Config::default());
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config, |_| refuse);
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send(
            format!("POST / HTTP/1.1\r\n{wrong}\r\ncontent-length: 10000000\r\n\r\n").as_bytes(),
        );
        bench.turn_until(|_| {
            client.step();
            client.received.ends_with(b"\r\n\r\n")
        });
        assert!(client.received.starts_with(b"HTTP/1.1 400 "), "{wrong}");
        for _ in 0..100 {
            client.send(PIECE);
            bench.turn();
        }
        assert!(!client.is_reset(), "{wrong}");
    }
}
