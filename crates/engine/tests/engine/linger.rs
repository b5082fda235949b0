//! Requests whose answer comes before their end. On a virtual clock.

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

/// A body of which a piece comes whenever the test has set one more, and which says when it was given up.
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

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if self.pieces.get() == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.pieces.set(self.pieces.get() - 1);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(PIECE)))))
    }
}

/// A body that never goes on, and says when it was given up.
struct Resting(Rc<Cell<bool>>);

impl Drop for Resting {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

impl http_body::Body for Resting {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Pending
    }
}

#[test]
fn upload_that_rests_after_its_answer_is_stopped_in_time() {
    for (config, seconds) in [(Config::default(), 5), (limited(|limits| limits.with_linger_timeout(Duration::from_secs(1))), 1)] {
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
    let request = http::Request::post("https://localhost/").body(Body::stream(Resting(stopped.clone()))).unwrap();
    let (response, mut connection) = bench.run(async move { (connection.send(request).await.unwrap(), connection) });
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
    // One piece is what the window lets through before the client could see the answer.
    let config = limited(|limits| limits.with_linger_bytes(8 << 10)?.with_stream_window_bytes(4 << 10));
    let mut bench = Bench::new(1, &config, |_| refuse);
    let mut connection = bench.connect(Protocol::Http2);
    let upload = Paced::default();
    let (pieces, stopped) = (upload.pieces.clone(), upload.dropped.clone());
    let request = http::Request::post("https://localhost/").body(Body::stream(upload)).unwrap();
    let (response, mut connection) = bench.run(async move { (connection.send(request).await.unwrap(), connection) });
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
    /// More than a socket holds.
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
