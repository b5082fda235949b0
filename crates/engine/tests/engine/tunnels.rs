//! Requests that are upgraded to another protocol: both directions at once, their ends,
//! back-pressure and timeouts.

mod http1;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use pronghorn_engine::{
    Body, Config, Connection, Error, Group, Incoming, Limits, Protocol, Request as EngineRequest,
    Responder, Response, Resumption, Stats, Target, Upgrade,
};

use crate::raw_tls::RawTls;
use crate::support::{Bench, PROTOCOLS, fetch, get, trust};

/// A body that the test feeds.
#[derive(Clone, Default)]
struct Feed(Rc<RefCell<FeedState>>);

#[derive(Default)]
struct FeedState {
    pieces: VecDeque<Bytes>,
    /// Number of pieces taken.
    fetched: usize,
    end: Option<Result<(), ()>>,
    waker: Option<Waker>,
    dropped: bool,
}

impl Feed {
    fn push(&self, piece: impl Into<Bytes>) {
        self.change(|fed| fed.pieces.push_back(piece.into()));
    }

    fn end(&self) {
        self.change(|fed| fed.end = Some(Ok(())));
    }

    fn fail(&self) {
        self.change(|fed| fed.end = Some(Err(())));
    }

    fn change(&self, change: impl FnOnce(&mut FeedState)) {
        let mut fed = self.0.borrow_mut();
        change(&mut fed);
        if let Some(waker) = fed.waker.take() {
            waker.wake();
        }
    }

    fn fetched(&self) -> usize {
        self.0.borrow().fetched
    }

    fn is_dropped(&self) -> bool {
        self.0.borrow().dropped
    }

    fn body(&self) -> Body {
        Body::stream(Fetching(self.clone()))
    }
}

struct Fetching(Feed);

impl http_body::Body for Fetching {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let mut fed = self.0.0.borrow_mut();
        if let Some(piece) = fed.pieces.pop_front() {
            fed.fetched += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match fed.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(())) => Poll::Ready(Some(Err(std::io::Error::other("given up")))),
            None => {
                fed.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.0.0.borrow_mut().dropped = true;
    }
}

/// Data received through a tunnel so far.
#[derive(Clone, Default)]
struct Received(Rc<RefCell<TunnelData>>);

#[derive(Default)]
struct TunnelData {
    bytes: Vec<u8>,
    end: Option<Result<(), String>>,
}

impl Received {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().bytes.clone()).unwrap()
    }

    fn len(&self) -> usize {
        self.0.borrow().bytes.len()
    }

    fn end(&self) -> Option<Result<(), String>> {
        self.0.borrow().end.clone()
    }

    async fn collect(self, mut body: Incoming) {
        let end = loop {
            match body.frame().await {
                None => break Ok(()),
                Some(Err(error)) => break Err(error.to_string()),
                Some(Ok(frame)) => {
                    self.0.borrow_mut().bytes.extend_from_slice(&frame.into_data().unwrap());
                }
            }
        };
        self.0.borrow_mut().end = Some(end);
    }
}

/// The server's side of the tunnel under test.
#[derive(Clone, Default)]
struct Side {
    outgoing: Feed,
    received: Received,
    /// The incoming body, unread until the test takes it.
    body: Rc<RefCell<Option<Incoming>>>,
    asked: Rc<RefCell<Option<String>>>,
}

type Answering = Box<dyn Fn(EngineRequest, Responder)>;

/// Accepts every upgrade at `/tunnel`, and reads at once unless `lazy`; other requests are answered
/// `hello`.
fn granting(side: &Side, lazy: bool) -> impl Fn(usize) -> Answering + use<> {
    let side = side.clone();
    move |_| {
        let side = side.clone();
        Box::new(move |mut request: EngineRequest, responder: Responder| {
            let Some(upgrade) = request.upgrade.take().filter(|_| request.uri.path() == "/tunnel")
            else {
                return responder.send(Response::new(StatusCode::OK).with_body("hello"));
            };
            *side.asked.borrow_mut() = Some(upgrade.protocol().to_owned());
            let handle = responder.handle().clone();
            responder.upgrade(HeaderMap::new(), side.outgoing.body());
            if lazy {
                *side.body.borrow_mut() = Some(request.body);
            } else {
                handle.spawn(side.received.clone().collect(request.body));
            }
        })
    }
}

fn asking(path: &str, outgoing: Body) -> Request<Body> {
    Request::get(format!("https://localhost{path}"))
        .extension(Upgrade::new("echo"))
        .body(outgoing)
        .unwrap()
}

/// The client's side of a tunnel.
struct Open {
    connection: Connection,
    outgoing: Feed,
    incoming: Incoming,
}

fn open(bench: &mut Bench, protocol: Protocol) -> Open {
    let mut connection = bench.connect(protocol);
    let outgoing = Feed::default();
    let request = asking("/tunnel", outgoing.body());
    let (response, connection) =
        bench.run(async move { (connection.send(request).await, connection) });
    let response = response.unwrap_or_else(|error| panic!("{protocol}: {error}"));
    let expected =
        if protocol == Protocol::Http1 { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
    assert_eq!(response.status(), expected, "{protocol}");
    assert!(response.headers().get(CONTENT_LENGTH).is_none(), "{protocol}");
    Open { connection, outgoing, incoming: response.into_body() }
}

fn read(bench: &Bench, incoming: Incoming) -> Received {
    let received = Received::default();
    bench.client.handle().spawn(received.clone().collect(incoming));
    received
}

fn turns(bench: &mut Bench, count: usize) {
    for _ in 0..count {
        bench.turn();
    }
}

fn connections(stats: &Stats) -> u64 {
    stats.tcp_open.value() + stats.quic_open.value()
}

// ---- both directions

#[test]
fn both_directions_go_at_once() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let Open { connection: _connection, outgoing, incoming } = open(&mut bench, protocol);
        assert_eq!(side.asked.borrow().as_deref(), Some("echo"), "{protocol}");
        let received = read(&bench, incoming);
        // Neither side waits for the other to end, and each piece arrives before the next is sent.
        for number in 0..3 {
            outgoing.push(format!("up{number} "));
            side.outgoing.push(format!("down{number} "));
            let (up, down) = (4 * (number + 1), 6 * (number + 1));
            bench.turn_until(|_| side.received.len() == up && received.len() == down);
        }
        assert_eq!(
            (side.received.text().as_str(), received.text().as_str()),
            ("up0 up1 up2 ", "down0 down1 down2 "),
            "{protocol}"
        );
        assert_eq!((side.received.end(), received.end()), (None, None), "{protocol}");
        assert_eq!(bench.count(|stats| stats.tunnels_opened.value()), 1);
    }
}

#[test]
fn directions_end_independently() {
    for protocol in PROTOCOLS {
        for client_first in [true, false] {
            let side = Side::default();
            let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
            let Open { connection, outgoing, incoming } = open(&mut bench, protocol);
            let received = read(&bench, incoming);
            let (first, second) = if client_first {
                (&outgoing, &side.outgoing)
            } else {
                (&side.outgoing, &outgoing)
            };
            let (to_first, to_second) = if client_first {
                (&received, &side.received)
            } else {
                (&side.received, &received)
            };
            first.push("last words");
            first.end();
            bench.turn_until(|_| to_second.end().is_some());
            assert_eq!(
                (to_second.text().as_str(), to_second.end()),
                ("last words", Some(Ok(()))),
                "{protocol}"
            );
            turns(&mut bench, 20);
            assert_eq!(to_first.end(), None, "{protocol}: the other direction goes on");
            second.push("an answer");
            second.end();
            bench.turn_until(|_| to_first.end().is_some());
            assert_eq!(
                (to_first.text().as_str(), to_first.end()),
                ("an answer", Some(Ok(()))),
                "{protocol}"
            );
            drop(connection);
            bench.turn_until(|bench| bench.count(connections) == 0);
            assert_eq!(bench.count(|stats| stats.requests_aborted.value()), 0, "{protocol}");
        }
    }
}

#[test]
fn failure_of_what_is_sent_ends_both_directions_for_the_peer() {
    for protocol in PROTOCOLS {
        for client_fails in [true, false] {
            let side = Side::default();
            let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
            let Open { connection: _connection, outgoing, incoming } = open(&mut bench, protocol);
            let received = read(&bench, incoming);
            let (failing, other) = if client_fails {
                (&outgoing, &side.outgoing)
            } else {
                (&side.outgoing, &outgoing)
            };
            let to_other = if client_fails { &side.received } else { &received };
            failing.push("half a mess");
            bench.turn_until(|_| to_other.len() == 11);
            failing.fail();
            bench.turn_until(|_| to_other.end().is_some());
            assert!(to_other.end().unwrap().is_err(), "{protocol}: a failure is not an end");
            other.push(vec![b'x'; 1 << 20]);
            other.push(vec![b'x'; 1 << 20]);
            bench.turn_until(|_| other.is_dropped());
        }
    }
}

#[test]
fn connection_that_vanishes_ends_both_directions_on_the_other_side() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let Open { connection, outgoing, incoming } = open(&mut bench, protocol);
        outgoing.push("x");
        bench.turn_until(|_| side.received.len() == 1);
        drop((connection, incoming));
        outgoing.fail();
        bench.turn_until(|_| side.received.end().is_some());
        side.outgoing.push(vec![b'x'; 1 << 20]);
        side.outgoing.push(vec![b'x'; 1 << 20]);
        bench.turn_until(|_| side.outgoing.is_dropped());
        bench.turn_until(|bench| bench.count(connections) == 0);
    }
}

#[test]
fn outgoing_that_ends_where_nobody_reads_ends_the_tunnel() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, true));
        let Open { connection: _connection, outgoing, incoming } = open(&mut bench, protocol);
        let received = read(&bench, incoming);
        drop(side.body.take());
        outgoing.push("for nobody");
        bench.turn_until(|_| outgoing.fetched() == 1);
        side.outgoing.push("bye");
        side.outgoing.end();
        bench.turn_until(|_| received.end().is_some());
        assert_eq!((received.text().as_str(), received.end()), ("bye", Some(Ok(()))), "{protocol}");
        // The client may not continue forever.
        bench.turn_until(|bench| {
            outgoing.push(vec![b'x'; 64 << 10]);
            bench.skip(Duration::from_millis(100));
            outgoing.is_dropped()
        });
    }
}

#[test]
fn reader_that_leaves_after_the_last_byte_was_sent_ends_the_tunnel() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, true));
        let Open { connection: _connection, outgoing, incoming } = open(&mut bench, protocol);
        let received = read(&bench, incoming);
        side.outgoing.end();
        bench.turn_until(|_| received.end().is_some());
        turns(&mut bench, 20);
        assert!(!outgoing.is_dropped(), "{protocol}: the client may go on");
        // No data from the client reveals its end. Over HTTP/1.1 it has some seconds to read what
        // was sent.
        drop(side.body.take());
        turns(&mut bench, 20);
        bench.skip(Duration::from_secs(60));
        turns(&mut bench, 20);
        if protocol == Protocol::Http1 {
            assert_eq!(bench.count(|stats| stats.tcp_open.value()), 0);
        }
        bench.turn_until(|_| {
            outgoing.push("x");
            outgoing.is_dropped()
        });
    }
}

#[test]
fn trailers_have_no_place_in_a_tunnel() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let mut connection = bench.connect(protocol);
        let trailers =
            async { Some(Ok(HeaderMap::from_iter([(UPGRADE, HeaderValue::from_static("x"))]))) };
        let outgoing = Body::stream(Full::new(Bytes::from("all")).with_trailers(trailers));
        let open = bench.run(async move {
            (connection.send(asking("/tunnel", outgoing)).await.unwrap(), connection)
        });
        bench.turn_until(|_| side.received.end().is_some());
        assert_eq!(
            (side.received.text().as_str(), side.received.end()),
            ("all", Some(Ok(()))),
            "{protocol}"
        );
        drop(open);
    }
}

// ---- back-pressure

/// More than all buffers between the two ends, including the system's.
const PIECES: usize = 1_000;

#[test]
fn reader_that_does_not_read_holds_the_sender_back() {
    for protocol in PROTOCOLS {
        for to_server in [true, false] {
            let side = Side::default();
            let mut bench = Bench::new(1, &Config::default(), granting(&side, true));
            let Open { connection: _connection, outgoing, incoming } = open(&mut bench, protocol);
            let sender = if to_server { &outgoing } else { &side.outgoing };
            for _ in 0..PIECES {
                sender.push(vec![b'x'; 64 << 10]);
            }
            let mut fetched = 0;
            // Until nothing has moved for many turns.
            for _ in 0.. {
                turns(&mut bench, 300);
                if std::mem::replace(&mut fetched, sender.fetched()) == fetched && fetched > 0 {
                    break;
                }
            }
            assert!(fetched < PIECES / 2, "{protocol}: {fetched} pieces of 64 KiB were taken");
            let body = if to_server { side.body.take().unwrap() } else { incoming };
            let received = if to_server {
                bench.servers[0].handle().spawn(side.received.clone().collect(body));
                side.received.clone()
            } else {
                read(&bench, body)
            };
            bench.turn_until(|_| received.len() == PIECES * (64 << 10));
        }
    }
}

#[test]
fn living_tunnel_is_never_cut_for_silence() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let Open { connection: _connection, outgoing, incoming } = open(&mut bench, protocol);
        let received = read(&bench, incoming);
        for _ in 0..200 {
            bench.skip(Duration::from_secs(3));
            turns(&mut bench, 20);
        }
        outgoing.push("still");
        side.outgoing.push("here");
        bench.turn_until(|_| side.received.len() == 5 && received.len() == 4);
        assert_eq!(
            bench.count(|stats| stats.idle_timeouts.value() + stats.body_timeouts.value()),
            0,
            "{protocol}"
        );
    }
}

#[test]
fn peer_that_does_not_read_times_out() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let Open { connection: _connection, outgoing: _outgoing, incoming: _incoming } =
            open(&mut bench, protocol);
        for _ in 0..PIECES {
            side.outgoing.push(vec![b'x'; 64 << 10]);
        }
        bench.turn_until(|bench| {
            bench.skip(Duration::from_millis(200));
            side.outgoing.is_dropped()
        });
        assert_eq!(bench.count(|stats| stats.response_timeouts.value()), 1, "{protocol}");
        bench.turn_until(|_| side.received.end().is_some());
        assert!(side.received.end().unwrap().is_err(), "{protocol}");
    }
}

#[test]
fn data_beyond_content_limit_passes_through() {
    let limits = Limits::default().with_request_body_bytes(1_000).unwrap();
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(
            1,
            &Config { limits: limits.clone(), ..Config::default() },
            granting(&side, false),
        );
        let Open { connection: _connection, outgoing, incoming: _incoming } =
            open(&mut bench, protocol);
        outgoing.push(vec![b'x'; 100_000]);
        bench.turn_until(|_| side.received.len() == 100_000);
    }
}

// ---- refusals

#[test]
fn success_without_tunnel_becomes_501() {
    for status in [StatusCode::OK, StatusCode::NO_CONTENT] {
        for protocol in PROTOCOLS {
            let answer = move |_| {
                move |_: EngineRequest, responder: Responder| responder.send(Response::new(status))
            };
            let mut bench = Bench::new(1, &Config::default(), answer);
            let mut connection = bench.connect(protocol);
            bench.run(async move {
                let (answer, _) = fetch(&mut connection, asking("/", Body::empty())).await.unwrap();
                // Over HTTP/1.1 a tunnel begins with 101.
                let expected =
                    if protocol == Protocol::Http1 { status } else { StatusCode::NOT_IMPLEMENTED };
                assert_eq!(answer, expected, "{protocol}");
                let (answer, _) = fetch(&mut connection, get("/")).await.unwrap();
                assert_eq!(answer, status, "{protocol}");
            });
        }
    }
}

#[test]
fn ordinary_answer_refuses_and_the_connection_goes_on() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let mut connection = bench.connect(protocol);
        bench.run(async move {
            for _ in 0..2 {
                let outgoing = Feed::default();
                let answer =
                    fetch(&mut connection, asking("/other", outgoing.body())).await.unwrap();
                let refused = (StatusCode::NOT_IMPLEMENTED, Bytes::new());
                let expected = if protocol == Protocol::Http1 {
                    (StatusCode::OK, Bytes::from("hello"))
                } else {
                    refused
                };
                assert_eq!(answer, expected, "{protocol}");
                let answer = fetch(&mut connection, get("/")).await.unwrap();
                assert_eq!(answer, (StatusCode::OK, Bytes::from("hello")), "{protocol}");
            }
        });
        assert_eq!(bench.count(|stats| stats.tunnels_opened.value()), 0);
    }
}

#[test]
fn tunnels_over_the_limit_are_refused_until_one_ends() {
    let limits = Limits::default().with_open_tunnels(1).unwrap().with_open_requests(1).unwrap();
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(
            1,
            &Config { limits: limits.clone(), ..Config::default() },
            granting(&side, false),
        );
        let first = open(&mut bench, protocol);
        let mut second = bench.connect(protocol);
        let (status, mut second) = bench.run(async move {
            let response = second.send(asking("/tunnel", Feed::default().body())).await.unwrap();
            (response.status(), second)
        });
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{protocol}");
        assert_eq!(bench.count(|stats| stats.tunnels_refused.value()), 1, "{protocol}");
        // A tunnel does not count as a request.
        let answer = bench.run(async move { fetch(&mut second, get("/")).await }).unwrap();
        assert_eq!(answer.0, StatusCode::OK, "{protocol}");
        side.outgoing.end();
        first.outgoing.end();
        bench.turn_until(|_| side.received.end().is_some());
        // Its slot is free once the last byte has been handed over.
        let mut third = bench.connect(protocol);
        bench.run(async move {
            while third.send(asking("/tunnel", Body::empty())).await.unwrap().status()
                == StatusCode::SERVICE_UNAVAILABLE
            {}
        });
    }
}

#[test]
fn upgrade_of_a_request_that_asks_for_none_is_answered_500() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |_, responder: Responder| responder.upgrade(HeaderMap::new(), Body::empty())
        });
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await }).unwrap();
        assert_eq!(answer.0, StatusCode::INTERNAL_SERVER_ERROR, "{protocol}");
    }
}

#[test]
fn accepted_protocol_equals_requested() {
    let mut bench = Bench::new(1, &Config::default(), |_| {
        |_, responder: Responder| {
            let lines = [
                (CONNECTION, HeaderValue::from_static("upgrade")),
                (UPGRADE, HeaderValue::from_static("h2c")),
            ];
            responder.upgrade(HeaderMap::from_iter(lines), Body::empty());
        }
    });
    // Whatever the handler answers.
    let mut connection = bench.connect(Protocol::Http1);
    let response =
        bench.run(async move { connection.send(asking("/", Body::empty())).await }).unwrap();
    assert_eq!(response.headers().get(UPGRADE).unwrap(), "echo");
}

// ---- shutdown

#[test]
fn tunnel_goes_on_until_the_grace_period_ends() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let Open { connection: _connection, outgoing, incoming } = open(&mut bench, protocol);
        let received = read(&bench, incoming);
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::from_secs(10));
        for _ in 0..9 {
            bench.skip(Duration::from_secs(1));
            turns(&mut bench, 20);
        }
        outgoing.push("up");
        side.outgoing.push("down");
        bench.turn_until(|_| side.received.len() == 2 && received.len() == 4);
        assert_eq!(received.end(), None, "{protocol}");
        bench.skip(Duration::from_secs(2));
        bench.turn_until(|bench| bench.servers[0].is_finished());
        bench.servers.clear();
        bench.turn_until(|_| received.end().is_some() && side.outgoing.is_dropped());
        assert!(received.end().unwrap().is_err(), "{protocol}: cut off is not an end");
    }
}

#[test]
fn tunnel_that_ends_in_the_grace_period_ends_the_worker() {
    for protocol in PROTOCOLS {
        let side = Side::default();
        let mut bench = Bench::new(1, &Config::default(), granting(&side, false));
        let Open { connection, outgoing, incoming } = open(&mut bench, protocol);
        let received = read(&bench, incoming);
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::from_secs(600));
        side.outgoing.end();
        outgoing.end();
        bench.turn_until(|_| received.end().is_some() && side.received.end().is_some());
        assert_eq!(
            (received.end(), side.received.end()),
            (Some(Ok(())), Some(Ok(()))),
            "{protocol}"
        );
        bench.skip(Duration::from_secs(10));
        bench.turn_until(|bench| bench.count(connections) == 0);
        drop(connection);
    }
}

// ---- servers without extended CONNECT

/// A clear-text HTTP/2 server that acknowledges SETTINGS and answers PINGs, and supports nothing
/// else.
fn plain_http2() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 24]).unwrap();
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        let mut head = [0; 9];
        while socket.read_exact(&mut head).is_ok() {
            let mut content = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            socket.read_exact(&mut content).unwrap();
            let (kind, is_answer) = (head[3], head[4] & 1 != 0);
            assert_ne!(kind, 1, "a request was sent");
            if kind == 4 && !is_answer {
                socket.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).unwrap();
            } else if kind == 6 && !is_answer {
                socket.write_all(&[&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &content].concat()).unwrap();
            }
        }
    });
    address
}

#[test]
fn server_that_offers_no_extended_connect_is_not_asked() {
    let remote = plain_http2();
    let mut bench = Bench::new(1, &Config::default(), granting(&Side::default(), false));
    let connector = bench.connector.clone();
    let target = Target {
        remote,
        server_name: "localhost".to_owned(),
        protocol: Some(Protocol::Http2),
        secure: false,
        resumption: Resumption::default(),
    };
    bench.run(async move {
        let connection = connector.connect(&target).await.unwrap();
        // The refusal is remembered.
        for _ in 0..2 {
            let mut shared = connection.share().unwrap();
            let answer = shared.send(asking("/tunnel", Body::empty())).await;
            assert!(matches!(answer, Err(Error::NoUpgrade(_))), "{answer:?}");
        }
    });
}
