//! Slow uploads.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_client::{Error, Options, Phase};
use pronghorn_engine::{
    Body, Config, Handle, Limits, Protocol, Request, Responder, Response, Sleep,
};

use crate::support::{Bench, PROTOCOLS, only};

/// A body of `left` pieces with a pause before each.
struct Slow {
    handle: Handle,
    pause: Duration,
    left: usize,
    sleep: Pin<Box<Sleep>>,
}

impl Slow {
    fn new(handle: &Handle, pieces: usize, pause: Duration) -> Self {
        Self { handle: handle.clone(), pause, left: pieces, sleep: Box::pin(handle.sleep(pause)) }
    }
}

impl http_body::Body for Slow {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        std::task::ready!(self.sleep.as_mut().poll(cx));
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.sleep = Box::pin(self.handle.sleep(self.pause));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 10_000])))))
    }
}

fn post(bench: &Bench, body: Body) -> http::Request<Body> {
    http::Request::post(format!("https://localhost:{}/", bench.address.port())).body(body).unwrap()
}

/// Answers with the size of the request body.
fn count(request: Request, responder: Responder) {
    responder.respond(async move {
        let size = request.body.collect().await.unwrap().to_bytes().len();
        Response::new(StatusCode::OK).with_body(size.to_string())
    });
}

#[test]
fn head_timeout_does_not_run_during_the_upload() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(Options { head_timeout: Duration::from_secs(20), ..only(protocol) }, &count);
        let content = Slow::new(bench.client.handle(), 5, Duration::from_secs(12));
        let outcome = bench.begin(post(&bench, Body::stream(content)));
        bench.turn_until(|bench| bench.requests() == 1);
        bench.pass(20, Duration::from_secs(4));
        bench.turn_until(|_| outcome.borrow().is_some());
        assert_eq!(outcome.take().unwrap().unwrap(), "50000", "{protocol}");
    }
}

#[test]
fn head_timeout_runs_after_the_upload() {
    for protocol in PROTOCOLS {
        let silent = |request: Request, responder: Responder| {
            responder.respond(async move {
                request.body.collect().await.unwrap();
                std::future::pending().await
            });
        };
        let mut bench = Bench::new(
            Options { head_timeout: Duration::from_secs(20), ..only(protocol) },
            &silent,
        );
        let content = Slow::new(bench.client.handle(), 2, Duration::from_secs(12));
        let outcome = bench.begin(post(&bench, Body::stream(content)));
        bench.turn_until(|bench| bench.requests() == 1);
        bench.pass(13, Duration::from_secs(4));
        assert!(outcome.borrow().is_none(), "{protocol}: 52 s, of which 16 s after the upload");
        bench.pass(2, Duration::from_secs(4));
        bench.turn_until(|_| outcome.borrow().is_some());
        assert!(matches!(*outcome.borrow(), Some(Err(Error::TimedOut(Phase::Head)))), "{protocol}");
    }
}

#[test]
fn stalled_upload_times_out() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(Options { head_timeout: Duration::from_secs(8), ..only(protocol) }, &count);
        // More than all buffers on the path.
        let outcome = bench.begin(post(&bench, Body::from(vec![b'x'; 64 << 20])));
        bench.turn_until(|bench| bench.requests() == 1);
        for _ in 0..10 {
            bench.skipped += Duration::from_secs(1);
            for _ in 0..20 {
                bench.client.turn(Instant::now() + bench.skipped).unwrap();
            }
        }
        assert!(
            matches!(*outcome.borrow(), Some(Err(Error::TimedOut(Phase::Head)))),
            "{protocol}: {outcome:?}"
        );
    }
}

#[test]
fn large_body_in_memory_arrives_complete() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(only(protocol), &count);
        for size in [64 << 10, (64 << 10) + 1, 1_000_000] {
            let outcome = bench.begin(post(&bench, Body::from(vec![b'x'; size])));
            bench.turn_until(|_| outcome.borrow().is_some());
            assert_eq!(outcome.take().unwrap().unwrap(), size.to_string(), "{protocol}");
        }
        assert_eq!(bench.accepted(), 1, "{protocol}");
    }
}

#[test]
fn connect_timeout_limits_the_wait_for_a_stream() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let limits = Limits::default().with_concurrent_streams(1).unwrap();
        let config = Config { limits, ..Config::default() };
        let late = |_: Request, responder: Responder| {
            let handle = responder.handle().clone();
            responder.respond(async move {
                handle.sleep(Duration::from_secs(15)).await;
                Response::new(StatusCode::OK).with_body("late")
            });
        };
        let times = (Duration::from_secs(20), Duration::from_secs(25));
        let options = Options {
            head_timeout: times.0,
            connect_timeout: times.1,
            waiting_per_origin: 2,
            ..only(protocol)
        };
        let mut bench = Bench::with_config(1, &config, options, &late);
        let first = bench.begin(bench.request());
        bench.turn_until(|bench| bench.requests() == 1);
        let others: Vec<_> = (0..3).map(|_| bench.begin(bench.request())).collect();
        bench.turns(20);
        assert!(matches!(*others[2].borrow(), Some(Err(Error::Busy(_)))), "{protocol}: {others:?}");
        bench.pass(10, Duration::from_secs(4));
        bench.turn_until(|_| others[0].borrow().is_some());
        // 15 s in the queue and 15 s with the server.
        assert!(
            matches!((&*first.borrow(), &*others[0].borrow()), (Some(Ok(_)), Some(Ok(_)))),
            "{protocol}: {others:?}"
        );
        assert!(
            matches!(*others[1].borrow(), Some(Err(Error::TimedOut(Phase::Queue)))),
            "{protocol}: {others:?}"
        );
    }
}

/// A body that stays pending until the flag is set, then ends.
struct Endless(Rc<Cell<bool>>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if self.0.get() {
            return Poll::Ready(None);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[test]
fn http1_upload_ends_when_its_response_is_dropped() {
    let early = |request: Request, responder: Responder| {
        let handle = responder.handle().clone();
        // Endless, like the request.
        responder.send(Response::new(StatusCode::OK).with_body(Body::stream(Slow::new(
            &handle,
            usize::MAX,
            Duration::from_secs(1),
        ))));
        handle.spawn(async move { drop(request.body.collect().await) });
    };
    let mut bench = Bench::new(only(Protocol::Http1), &early);
    let request = post(&bench, Body::stream(Endless(Rc::default())));
    let response = bench.send(request).unwrap();
    bench.turns(20);
    assert_eq!(bench.open(), 1);
    drop(response);
    // Before any timeout, when the server sends more.
    bench.pass(5, Duration::from_secs(1));
    assert_eq!(bench.open(), 0);
}

#[test]
fn http1_upload_ends_when_its_response_is_dropped_unread() {
    let early = |request: Request, responder: Responder| {
        let handle = responder.handle().clone();
        responder.send(Response::new(StatusCode::OK).with_body("hello"));
        handle.spawn(async move { drop(request.body.collect().await) });
    };
    let mut bench = Bench::new(only(Protocol::Http1), &early);
    let request = post(&bench, Body::stream(Endless(Rc::default())));
    let response = bench.send(request).unwrap();
    bench.turns(20);
    assert_eq!(bench.open(), 1);
    // The whole response has arrived.
    drop(response);
    bench.turns(50);
    assert_eq!(bench.open(), 0);
}

#[test]
fn http1_upload_that_progresses_continues_after_its_response() {
    let early = |request: Request, responder: Responder| {
        let handle = responder.handle().clone();
        responder.send(Response::new(StatusCode::OK).with_body("hello"));
        handle.spawn(async move { drop(request.body.collect().await) });
    };
    let mut bench = Bench::new(
        Options { body_timeout: Duration::from_secs(10), ..only(Protocol::Http1) },
        &early,
    );
    let content = Slow::new(bench.client.handle(), 10, Duration::from_secs(4));
    let outcome = bench.begin(post(&bench, Body::stream(content)));
    bench.turn_until(|_| outcome.borrow().is_some());
    assert_eq!(outcome.take().unwrap().unwrap(), "hello");
    bench.pass(50, Duration::from_secs(1));
    assert_eq!(bench.fetch(), "hello");
    assert_eq!(bench.accepted(), 1, "the connection is reused");
}

#[test]
fn http1_connection_is_reused_only_after_its_upload_ends() {
    for ends in [true, false] {
        let early = |request: Request, responder: Responder| {
            let handle = responder.handle().clone();
            responder.send(Response::new(StatusCode::OK).with_body("hello"));
            handle.spawn(async move { drop(request.body.collect().await) });
        };
        let mut bench = Bench::new(
            Options { body_timeout: Duration::from_secs(10), ..only(Protocol::Http1) },
            &early,
        );
        let end = Rc::new(Cell::new(false));
        let outcome = bench.begin(post(&bench, Body::stream(Endless(end.clone()))));
        bench.turn_until(|_| outcome.borrow().is_some());
        assert_eq!(outcome.take().unwrap().unwrap(), "hello");
        assert_eq!(bench.fetch(), "hello");
        assert_eq!(bench.accepted(), 2, "the first connection is still in use");
        if ends {
            end.set(true);
            bench.turns(50);
        } else {
            bench.pass(3, Duration::from_secs(4));
            bench.turn_until(|bench| bench.open() < 2);
        }
        let both = [bench.begin(bench.request()), bench.begin(bench.request())];
        bench.turn_until(|_| both.iter().all(|one| one.borrow().is_some()));
        assert_eq!(bench.accepted(), if ends { 2 } else { 3 });
    }
}
