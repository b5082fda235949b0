//! Data that is received but not read when the other side disconnects. On a virtual clock.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use pronghorn_engine::{Body, Config, Group, Incoming, Protocol, Responder, Response};

use crate::support::{Bench, PROTOCOLS, get, trust};

/// More than is buffered outside of the transport for a reader that pauses, and less than the
/// transport's windows.
const CONTENT: usize = 300_000;
const GRACE: Duration = Duration::from_secs(20);
/// Passes with each turn.
const MOMENT: Duration = Duration::from_millis(1);

/// Reads content once allowed.
#[derive(Default)]
struct Reader {
    may_read: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
    size: Cell<usize>,
    end: RefCell<Option<Result<(), String>>>,
}

impl Reader {
    async fn read(self: Rc<Self>, mut body: Incoming) {
        // Reads a piece, so that more is requested.
        self.take(&mut body).await;
        poll_fn(|cx| {
            *self.waiting.borrow_mut() = Some(cx.waker().clone());
            if self.may_read.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        while self.end.borrow().is_none() {
            self.take(&mut body).await;
        }
    }

    async fn take(&self, body: &mut Incoming) {
        match body.frame().await {
            Some(Ok(frame)) => {
                self.size.set(self.size.get() + frame.into_data().map_or(0, |data| data.len()));
            }
            Some(Err(error)) => *self.end.borrow_mut() = Some(Err(error.to_string())),
            None => *self.end.borrow_mut() = Some(Ok(())),
        }
    }

    fn go_on(&self) {
        self.may_read.set(true);
        self.waiting.take().unwrap().wake();
    }

    /// Returns the number of bytes read, and how they ended.
    fn outcome(&self) -> (usize, Result<(), String>) {
        (self.size.get(), self.end.borrow().clone().unwrap())
    }
}

fn upload() -> Request<Body> {
    Request::post("https://localhost/").body(Body::from(vec![b'x'; CONTENT])).unwrap()
}

/// A server that responds at once, and lets `reader` continue reading.
fn reads_on(reader: &Rc<Reader>) -> Bench {
    let reader = reader.clone();
    Bench::with_group(&Group::new(1), &trust(), &Config::default(), move |_| {
        let reader = reader.clone();
        move |request: pronghorn_engine::Request, responder: Responder| {
            let handle = responder.handle().clone();
            responder.send(Response::new(StatusCode::OK).with_body("soon"));
            handle.spawn(reader.clone().read(request.body));
        }
    })
}

fn turn_until(bench: &mut Bench, mut done: impl FnMut(&mut Bench) -> bool) {
    bench.turn_until(|bench| {
        bench.skip(MOMENT);
        done(bench)
    });
}

/// Runs turns until no data has moved for a second.
fn settle(bench: &mut Bench) {
    let (mut before, mut quiet) = (0, Duration::ZERO);
    turn_until(bench, |bench| {
        let passed =
            bench.count(|stats| stats.datagrams_sent.value() + stats.datagrams_received.value());
        quiet = if passed == before { quiet + MOMENT } else { Duration::ZERO };
        before = passed;
        quiet >= Duration::from_secs(1)
    });
}

#[test]
fn request_is_read_to_its_end_although_the_client_has_left() {
    for protocol in PROTOCOLS {
        let reader = Rc::<Reader>::default();
        let mut bench = reads_on(&reader);
        let mut connection = bench.connect(protocol);
        let (_connection, body) = bench.run(async move {
            let response = connection.send(upload()).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (connection, body)
        });
        assert_eq!(body, Bytes::from("soon"), "{protocol}");
        settle(&mut bench);
        let now = bench.now();
        bench.client.shut_down(now, GRACE);
        turn_until(&mut bench, |bench| bench.client.is_finished());
        settle(&mut bench);
        assert!(reader.size.get() < CONTENT, "{protocol}: what is not read is what this is about");
        reader.go_on();
        bench.turn_until(|_| reader.end.borrow().is_some());
        assert_eq!(reader.outcome(), (CONTENT, Ok(())), "{protocol}");
    }
}

#[test]
fn response_is_read_to_its_end_although_the_server_has_left() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |_, responder: Responder| {
                responder.send(Response::new(StatusCode::OK).with_body(vec![b'x'; CONTENT]));
            }
        });
        let mut connection = bench.connect(protocol);
        let reader = Rc::<Reader>::default();
        let reading = reader.clone();
        let (_connection, response) = bench.run(async move {
            let response = connection.send(get("/")).await.unwrap();
            (connection, response)
        });
        bench.client.handle().spawn(reading.read(response.into_body()));
        settle(&mut bench);
        // Ends once everything sent is acknowledged.
        let now = bench.now();
        bench.servers[0].shut_down(now, GRACE);
        turn_until(&mut bench, |bench| bench.servers[0].is_finished());
        settle(&mut bench);
        assert!(reader.size.get() < CONTENT, "{protocol}: what is not read is what this is about");
        reader.go_on();
        bench.turn_until(|_| reader.end.borrow().is_some());
        assert_eq!(reader.outcome(), (CONTENT, Ok(())), "{protocol}");
    }
}

#[test]
fn request_is_read_to_its_end_although_the_connection_has_idled() {
    let reader = Rc::<Reader>::default();
    let mut bench = reads_on(&reader);
    let mut connection = bench.connect(Protocol::Http3);
    let _connection = bench.run(async move {
        let response = connection.send(upload()).await.unwrap();
        response.into_body().collect().await.unwrap();
        connection
    });
    settle(&mut bench);
    bench.skip(Duration::from_secs(3600));
    bench.turn_until(|bench| bench.count(|stats| stats.quic_open.value()) == 0);
    assert_eq!(bench.count(|stats| stats.quic_timed_out.value()), 1);
    reader.go_on();
    bench.turn_until(|_| reader.end.borrow().is_some());
    assert_eq!(reader.outcome(), (CONTENT, Ok(())));
}
