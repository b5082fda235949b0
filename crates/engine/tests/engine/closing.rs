//! Connections that a running worker closes.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{Bench, PROTOCOLS, fetch, get, hello};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_engine::{
    Body, Config, Connection, Error, Protocol, Request, Responder, Response, Stats, Upgrade,
};

fn open(stats: &Stats) -> u64 {
    stats.tcp_open.value() + stats.quic_open.value()
}

type Handle = Box<dyn Fn(Request, Responder)>;

/// Requests that wait for their responses.
type Held = Rc<RefCell<Vec<Responder>>>;

/// Answers `/` with `hello`; other requests wait in the returned list.
fn held() -> (impl Fn(usize) -> Handle, Held) {
    let held = Held::default();
    let keep = held.clone();
    let handler = move |_| {
        let keep = keep.clone();
        let handle = move |request: Request, responder: Responder| match request.uri.path() {
            "/" => responder.send(Response::new(StatusCode::OK).with_body("hello")),
            _ => keep.borrow_mut().push(responder),
        };
        Box::new(handle) as Handle
    };
    (handler, held)
}

/// A body that never yields.
struct Silence;

impl http_body::Body for Silence {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Pending
    }
}

/// A server with three connections: one with an answered request, one without requests, and one
/// with a waiting request.
struct Scene {
    bench: Bench,
    held: Held,
    idle: Connection,
    unused: Connection,
    /// The response to the waiting request, with its connection.
    answer: Rc<RefCell<Option<Answered>>>,
}

type Answered = (Result<(StatusCode, Bytes), String>, Connection);

impl Scene {
    fn new(protocol: Protocol) -> Self {
        let (handler, held) = held();
        let mut bench = Bench::new(1, &Config::default(), handler);
        let (mut idle, mut busy, unused) =
            (bench.connect(protocol), bench.connect(protocol), bench.connect(protocol));
        let (answered, idle) = bench.run(async move { (fetch(&mut idle, get("/")).await, idle) });
        assert!(answered.is_ok(), "{protocol}");
        let answer = Rc::new(RefCell::new(None));
        let slot = answer.clone();
        bench.client.handle().spawn(async move {
            let answered = fetch(&mut busy, get("/held")).await;
            *slot.borrow_mut() = Some((answered, busy));
        });
        bench.turn_until(|_| !held.borrow().is_empty());
        Self { bench, held, idle, unused, answer }
    }
}

#[test]
fn all_connections_are_closed_and_new_ones_served() {
    for protocol in PROTOCOLS {
        let Scene { mut bench, held, idle, unused, answer } = Scene::new(protocol);
        assert_eq!(bench.count(open), 3, "{protocol}");
        let now = bench.now();
        bench.servers[0].close_connections(now);
        // No timer was needed.
        let latest = bench.elapsed() + Duration::from_secs(1);
        bench.turn_until(|bench| bench.count(open) == 0 && answer.borrow().is_some());
        assert!(bench.elapsed() < latest, "{protocol}");
        assert!(answer.take().unwrap().0.is_err(), "{protocol}");
        held.take().into_iter().for_each(|responder| responder.send(Response::new(StatusCode::OK)));
        bench.turn_until(|_| !idle.is_usable() && !unused.is_usable());
        let mut next = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut next, get("/")).await });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "{protocol}");
    }
}

#[test]
fn only_connections_that_have_nothing_to_do_are_closed_as_idle() {
    for protocol in PROTOCOLS {
        let Scene { mut bench, held, idle, unused, answer } = Scene::new(protocol);
        // Waits until the end of the response is acknowledged.
        let latest = bench.elapsed() + Duration::from_secs(5);
        bench.turn_until(|bench| {
            let now = bench.now();
            bench.servers[0].close_idle_connections(now);
            bench.count(open) == 2
        });
        assert!(bench.elapsed() < latest, "{protocol}");
        bench.turn_until(|_| !idle.is_usable());
        assert!(unused.is_usable(), "{protocol}: closed before its first request");
        held.take()
            .into_iter()
            .for_each(|responder| responder.send(Response::new(StatusCode::OK).with_body("late")));
        bench.turn_until(|_| answer.borrow().is_some());
        let (answered, mut busy) = answer.take().unwrap();
        assert_eq!(answered, Ok((StatusCode::OK, "late".into())), "{protocol}");
        // The connection was busy when the others were closed.
        let answer = bench.run(async move { fetch(&mut busy, get("/")).await });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "{protocol}");
    }
}

#[test]
fn http3_request_on_its_way_to_an_idle_connection_that_closes_is_refused_and_may_be_sent_again() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    let mut connection = bench.connect(Protocol::Http3);
    let (answer, mut connection) =
        bench.run(async move { (fetch(&mut connection, get("/")).await, connection) });
    assert!(answer.is_ok());
    // Waits until the end of the response is acknowledged.
    (0..50).for_each(|_| bench.turn());
    let answer = Rc::new(RefCell::new(None));
    let slot = answer.clone();
    bench.client.handle().spawn(async move {
        let answered = connection.send(get("/")).await.map(|response| response.status());
        *slot.borrow_mut() = Some(answered);
    });
    let now = bench.now();
    bench.client.turn(now).unwrap();
    bench.servers[0].close_idle_connections(now);
    bench.turn_until(|_| answer.borrow().is_some());
    let answer = answer.take().unwrap();
    assert!(matches!(answer, Err(Error::Refused(_))), "{answer:?}");
}

#[test]
fn tunnels_end_with_all_connections_and_stay_when_idle_ones_are_closed() {
    for protocol in PROTOCOLS {
        let granted = Rc::<RefCell<Vec<Request>>>::default();
        let keep = granted.clone();
        let mut bench = Bench::new(1, &Config::default(), move |_| {
            let keep = keep.clone();
            move |request: Request, responder: Responder| {
                // The tunnel would end without its body.
                keep.borrow_mut().push(request);
                responder.upgrade(HeaderMap::new(), Body::stream(Silence));
            }
        });
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        *request.body_mut() = Body::stream(Silence);
        request.extensions_mut().insert(Upgrade::new("echo"));
        let (body, connection) = bench
            .run(async move { (connection.send(request).await.unwrap().into_body(), connection) });
        assert_eq!(granted.borrow().len(), 1, "{protocol}");
        let now = bench.now();
        bench.servers[0].close_idle_connections(now);
        (0..50).for_each(|_| bench.turn());
        assert_eq!(bench.count(open), 1, "{protocol}: a tunnel is not idle");
        let now = bench.now();
        bench.servers[0].close_connections(now);
        bench.turn_until(|bench| bench.count(open) == 0);
        let end = bench.run(async move { body.collect().await.map(|rest| rest.to_bytes().len()) });
        assert!(protocol == Protocol::Http1 || end.is_err(), "{protocol}: {end:?}");
        drop(connection);
    }
}
