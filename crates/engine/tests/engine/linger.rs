//! Requests over HTTP/2 whose answer comes before their end. On a virtual clock.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use pronghorn_engine::{Body, Config, Protocol, Responder, Response};

use crate::support::{Bench, fetch, get};

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
    let refuse = |_, responder: Responder| responder.send(Response::new(StatusCode::PAYLOAD_TOO_LARGE));
    let mut bench = Bench::new(1, &Config::default(), |_| refuse);
    let mut connection = bench.connect(Protocol::Http2);
    let stopped = Rc::new(Cell::new(false));
    let request = http::Request::post("https://localhost/").body(Body::stream(Resting(stopped.clone()))).unwrap();
    let (response, mut connection) = bench.run(async move { (connection.send(request).await.unwrap(), connection) });
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);

    bench.skip(Duration::from_millis(4900));
    for _ in 0..50 {
        bench.turn();
    }
    assert!(!stopped.get(), "its end could still have come");
    bench.skip(Duration::from_millis(200));
    bench.turn_until(|_| stopped.get());
    let (status, _) = bench.run(async move { fetch(&mut connection, get("/")).await }).unwrap();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "the connection is of no use any more");
}
