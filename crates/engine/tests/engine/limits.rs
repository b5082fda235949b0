//! Each limit, where it acts. On a virtual clock.

mod content;
mod http2;

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
    Body, Config, Connection, Group, Handler, LimitError, Limits, Protocol, Request as Asked, Responder, Response, Stats,
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

/// Reads all content, then answers with its length; 500 when the content ends with an error.
fn reader(_: usize) -> impl Handler {
    |request: Asked, responder: Responder| {
        responder.respond(async move {
            match request.body.collect().await {
                Ok(content) => Response::new(StatusCode::OK).with_body(content.to_bytes().len().to_string()),
                Err(_) => Response::new(StatusCode::INTERNAL_SERVER_ERROR),
            }
        });
    }
}

/// Content of which a piece comes each time that the test allows one.
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

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
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

/// What came of a request that runs beside the test.
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

// ---- connections ------------------------------------------------------------------------------------------------------------

#[test]
fn connections_over_the_total_are_refused_whatever_the_protocol_and_worker() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(2, &limited(|limits| limits.with_connections(3)), hello);
        let mut held: Vec<_> = PROTOCOLS.into_iter().map(|protocol| bench.connect(protocol)).collect();
        assert!(bench.try_connect(protocol).is_err(), "{protocol}: a fourth connection");
        assert!(bench.count(|stats| stats.connections_refused.value()) > 0, "{protocol}");
        held.pop();
        bench.turn_until(|bench| bench.count(open) == 2);
        // A QUIC connection leaves its place when its closing period is over.
        bench.skip(Duration::from_secs(10));
        turns(&mut bench, 10);
        assert!(bench.try_connect(protocol).is_ok(), "{protocol}: a place was free");
    }
}

#[test]
fn client_over_its_share_is_refused_and_another_is_served() {
    let mut bench = Bench::new(2, &limited(|limits| limits.with_connections_per_client(2)), hello);
    let _held = [bench.connect(Protocol::Http2), bench.connect(Protocol::Http1)];
    for protocol in PROTOCOLS {
        let before = bench.count(|stats| stats.connections_refused_per_client.value());
        assert!(bench.try_connect(protocol).is_err(), "{protocol}: a third connection");
        // Over QUIC once for each datagram that the client begins with.
        assert!(bench.count(|stats| stats.connections_refused_per_client.value()) > before, "{protocol}");
    }
    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    other.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    other.connect(&bench.address.into()).unwrap();
    bench.turn_until(|bench| bench.count(|stats| stats.tcp_accepted.value()) == 3);
    let by_transport = (bench.count(|stats| stats.tcp_open.value()), bench.count(|stats| stats.quic_open.value()));
    assert_eq!(by_transport, (3, 0));
}

#[test]
fn quic_client_past_half_its_share_proves_its_address() {
    let mut bench = Bench::new(1, &limited(|limits| limits.with_connections_per_client(4)), hello);
    let _held = [bench.connect(Protocol::Http1), bench.connect(Protocol::Http1)];
    assert_eq!(bench.count(|stats| stats.quic_retries_sent.value()), 0);
    let mut connection = bench.connect(Protocol::Http3);
    // One for each datagram that the client begins with.
    let retries = bench.count(|stats| stats.quic_retries_sent.value());
    assert!(retries > 0);
    assert_eq!(bench.run(async move { fetch(&mut connection, get("/")).await }), Ok((StatusCode::OK, "hello".into())));
    // By now the client has a token, which proves it as well.
    let _again = bench.connect(Protocol::Http3);
    assert_eq!(bench.count(|stats| stats.quic_retries_sent.value()), retries);
    assert_eq!(bench.count(|stats| stats.tokens_accepted.value()), 1);
}

#[test]
fn tls_handshake_that_stalls_is_given_up() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    let _silent = TcpStream::connect(bench.address).unwrap();
    bench.turn_until(|bench| bench.count(open) == 1);
    bench.skip(Duration::from_secs(9));
    turns(&mut bench, 5);
    assert_eq!(bench.count(open), 1, "given up too early");
    bench.skip(Duration::from_secs(2));
    bench.turn_until(|bench| bench.count(open) == 0);
    assert_eq!(bench.count(|stats| stats.handshakes_timed_out.value()), 1);
}

#[test]
fn quic_handshake_that_stalls_is_given_up_and_no_more_than_three_times_is_sent() {
    let trust = large_trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let stalled = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stalled.set_nonblocking(true).unwrap();
    // The client speaks to this socket, which passes on its first flight only and never an answer.
    let connector = bench.connector.clone();
    let target = pronghorn_engine::Target {
        remote: stalled.local_addr().unwrap(),
        server_name: "localhost".to_owned(),
        protocol: Some(Protocol::Http3),
        secure: true,
        resumption: pronghorn_engine::Resumption::default(),
    };
    bench.client.handle().spawn(async move { drop(connector.connect(&target).await) });
    let relay = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    relay.set_nonblocking(true).unwrap();
    let (mut passed, mut came) = (0, 0);
    let mut buffer = vec![0; 65_535];
    bench.turn_until(|bench| {
        if passed < 2_400
            && let Ok(length) = stalled.recv(&mut buffer)
        {
            relay.send_to(&buffer[..length], bench.address).unwrap();
            passed += length;
        }
        passed >= 2_400 && bench.count(|stats| stats.quic_accepted.value()) == 1
    });
    for _ in 0..12 {
        turns(&mut bench, 20);
        while let Ok(length) = relay.recv(&mut buffer) {
            came += length;
        }
        assert!(came <= 3 * passed, "{came} bytes for {passed}");
        bench.skip(Duration::from_secs(1));
    }
    assert!(came > 2 * passed, "the certificate does not need more than is allowed: {came} bytes for {passed}");
    assert_eq!(bench.count(|stats| stats.handshakes_timed_out.value()), 1);
    assert_eq!(bench.count(|stats| stats.quic_open.value()), 0);
}

/// A certificate that does not fit into three times a client's first flight.
fn large_trust() -> crate::support::Trust {
    let mut names = vec!["localhost".to_owned()];
    names.extend((0..400).map(|number| format!("host-{number}.example.com")));
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = CertificateDer::from(made.cert);
    assert!(certificate.len() > 8_000);
    crate::support::trust_in(certificate, PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap())
}

#[test]
fn windows_shrink_when_their_budget_runs_low() {
    let mut bench = Bench::new(1, &limited(|limits| limits.with_window_budget_bytes(64 << 20)), reader);
    let _held: Vec<_> = (0..8).map(|_| bench.connect(Protocol::Http3)).collect();
    assert!(bench.count(|stats| stats.windows_reduced.value()) > 0);
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let connection = bench.connect(protocol);
        let request = Request::post("https://localhost/").body(vec![7; 3 << 20].into()).unwrap();
        let outcome = start(&bench, connection, request);
        assert_eq!(status_of(&mut bench, &outcome), Ok(StatusCode::OK), "{protocol}: a small window still carries all");
    }
}

// ---- heads ------------------------------------------------------------------------------------------------------------------

#[test]
fn head_with_too_many_lines_is_answered_431() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &limited(|limits| limits.with_field_lines(20)), hello);
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        for number in 0..30 {
            request.headers_mut().insert(HeaderName::try_from(format!("x-{number}")).unwrap(), 1.into());
        }
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert_eq!(answer.unwrap().0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{protocol}");
        assert_eq!(bench.count(|stats| stats.heads_too_many_lines.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_refused.value()), 1, "{protocol}");
    }
}

#[test]
fn heads_of_many_lines_are_answered_in_turn_with_those_of_few() {
    let waiting = Rc::<RefCell<Vec<Responder>>>::default();
    let held = waiting.clone();
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let held = held.clone();
        move |request: Asked, responder: Responder| match request.uri.path() {
            "/held" => held.borrow_mut().push(responder),
            path => responder.send(Response::new(StatusCode::OK).with_body(format!("{path} has {}", request.headers.len()))),
        }
    });
    let mut raw = RawTls::connect(&mut bench, &trust, b"http/1.1");
    let head = |path: &str, lines: usize| {
        let others: Vec<_> = (1..lines).map(|number| format!("x-{number}: y\r\n")).collect();
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", others.concat())
    };
    // All at once, as a client may that does not wait: the second is more than the library has room for at first.
    let heads = [head("/held", 2), head("/a", 150), head("/b", 2), head("/c", 200)];
    raw.send(heads.concat().as_bytes());
    bench.turn_until(|_| waiting.borrow().len() == 1);
    turns(&mut bench, 5);
    raw.step();
    assert!(raw.received.is_empty(), "{:?}", String::from_utf8_lossy(&raw.received));
    waiting.take().into_iter().for_each(|responder| responder.send(Response::new(StatusCode::OK).with_body("held")));
    let bodies = ["held", "/a has 150", "/b has 2", "/c has 200"];
    bench.turn_until(|_| {
        raw.step();
        raw.received.ends_with(bodies[3].as_bytes())
    });
    let text = String::from_utf8_lossy(&raw.received).into_owned();
    let places = bodies.map(|body| text.find(body));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    raw.send(head("/d", 201).as_bytes());
    bench.turn_until(|_| {
        raw.step();
        raw.is_closed
    });
    assert!(String::from_utf8_lossy(&raw.received[text.len()..]).starts_with("HTTP/1.1 431 "));
    assert_eq!(bench.count(|stats| stats.heads_too_many_lines.value()), 1);
}

#[test]
fn head_with_too_many_bytes_is_answered_431() {
    // Over HTTP/3 this client knows the limit and sends no such head.
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut bench = Bench::new(1, &limited(|limits| limits.with_field_section_bytes(4 << 10)), hello);
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        request.headers_mut().insert("x-large", "x".repeat(5_000).try_into().unwrap());
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert_eq!(answer.unwrap().0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{protocol}");
        assert_eq!(bench.count(|stats| stats.heads_too_large.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_refused.value()), 1, "{protocol}");
    }
}

#[test]
fn slow_head_over_http1_is_given_up_though_bytes_come() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut slow = RawTls::connect(&mut bench, &trust, b"http/1.1");
    slow.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n");
    for _ in 0..9 {
        bench.skip(Duration::from_secs(1));
        slow.send(b"x");
        turns(&mut bench, 5);
    }
    assert_eq!(bench.count(open), 1, "given up too early");
    bench.skip(Duration::from_secs(2));
    slow.wait_for_close(&mut bench);
    assert_eq!(bench.count(|stats| stats.head_timeouts.value()), 1);
    assert_eq!(bench.count(|stats| stats.idle_timeouts.value()), 0);
}

#[test]
fn client_that_asks_again_later_is_not_slow() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    for count in 1..4 {
        client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        bench.turn_until(|_| {
            client.step();
            client.received.windows(5).filter(|window| window == b"hello").count() == count
        });
        bench.skip(Duration::from_secs(20));
        turns(&mut bench, 5);
    }
    assert!(!client.is_closed);
    assert_eq!(bench.count(|stats| stats.head_timeouts.value()), 0);
}

#[test]
fn slow_head_over_http2_is_given_up_though_bytes_come() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut slow = begin_http2(&mut bench, &trust);
    slow.send(&frame(HEADERS, 0, 1, &GET[..1]));
    for byte in &GET[1..] {
        bench.skip(Duration::from_secs(2));
        slow.send(&frame(PING, 0, 0, &[0; 8])[..1]);
        turns(&mut bench, 5);
        let _ = byte;
    }
    bench.skip(Duration::from_secs(5));
    turns(&mut bench, 5);
    assert_eq!(bench.count(|stats| stats.head_timeouts.value()), 1);
}

// ---- requests and responses -------------------------------------------------------------------------------------------------

#[test]
fn requests_over_what_a_worker_has_open_are_answered_503() {
    for protocol in PROTOCOLS {
        let config = limited(|limits| limits.with_open_requests(2));
        let mut bench = Bench::new(1, &config, |_| |_, responder: Responder| responder.respond(std::future::pending()));
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let connection = bench.connect(protocol);
                start(&bench, connection, get("/"))
            })
            .collect();
        turns(&mut bench, 20);
        assert!(waiting.iter().all(|outcome| outcome.borrow().is_none()));
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer.unwrap().0, StatusCode::SERVICE_UNAVAILABLE, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_shed.value()), 1, "{protocol}");
    }
}

#[test]
fn answered_requests_make_room() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &limited(|limits| limits.with_open_requests(1)), hello);
        let mut connection = bench.connect(protocol);
        for _ in 0..5 {
            let (answer, back) = bench.run(async move { (fetch(&mut connection, get("/")).await, connection) });
            assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "{protocol}");
            connection = back;
        }
    }
}

#[test]
fn response_that_is_not_taken_is_given_up_and_its_memory_freed() {
    for (protocol, in_memory) in PROTOCOLS.into_iter().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let alive = Rc::new(());
        let held = alive.clone();
        let config = limited(|limits| limits.with_response_timeout(Duration::from_secs(5)));
        let mut bench = Bench::new(1, &config, |_| {
            let held = held.clone();
            move |_, responder: Responder| {
                let held = held.clone();
                let body = if in_memory { Body::from(vec![0; 40 << 20]) } else { Body::stream(Endless) };
                responder.send(Response::new(StatusCode::OK).with_body(body.on_end(move |_| drop(held))));
            }
        });
        drop(held);
        let mut connection = bench.connect(protocol);
        // The client's worker goes on, so that it acknowledges what it gets; its application reads nothing.
        let _response = bench.run(async move { (connection.send(get("/")).await.unwrap(), connection) });
        turns(&mut bench, 300);
        assert_eq!(bench.count(|stats| stats.response_timeouts.value() + stats.responses_too_slow.value()), 0, "{protocol}: too early");
        // On a busy machine the windows are not full by then: what they still take is progress.
        let began = Instant::now();
        let mut counted = std::iter::from_fn(|| {
            bench.skip(Duration::from_secs(6));
            turns(&mut bench, 20);
            let counted = bench.count(|stats| stats.response_timeouts.value() + stats.responses_too_slow.value());
            (began.elapsed() < Duration::from_secs(30)).then_some(counted)
        });
        assert_eq!(counted.find(|counted| *counted > 0), Some(1), "{protocol}, in memory: {in_memory}");
    }
}

/// The client takes much of some responses and nothing of others, as HTTP/2 has it on a slow path: none of them is the client's choice.
#[test]
fn response_that_waits_for_others_is_not_given_up() {
    let trust = trust();
    let config = limited(|limits| limits.with_response_timeout(Duration::from_secs(5)));
    let handler = |_| |_, responder: Responder| responder.send(Response::new(StatusCode::OK).with_body(Body::stream(Endless)));
    let mut bench = Bench::with_group(&Group::new(1), &trust, &config, handler);
    let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
    let open = [&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat();
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    raw.send(&frame(SETTINGS, 0, 0, &open));
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    for stream in 0..20 {
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * stream + 1, GET));
    }
    for _ in 0..60 {
        take(&mut bench, &mut raw, 1 << 20);
        bench.skip(Duration::from_secs(1));
    }
    assert!(!raw.is_closed);
    assert_eq!(bench.count(|stats| stats.response_timeouts.value() + stats.responses_too_slow.value()), 0);
    // And each has its turns.
    let mut bytes = BTreeMap::<u32, usize>::new();
    for (kind, stream, length) in frames(&raw.received) {
        if kind == DATA {
            *bytes.entry(stream).or_default() += length;
        }
    }
    let fair_share = bytes.values().sum::<usize>() / 20;
    assert!(bytes.len() == 20 && bytes.values().all(|taken| *taken > fair_share / 10), "{bytes:?}");
}

/// What others get is no progress of a response for which the client opens no window.
#[test]
fn response_without_a_window_is_given_up_while_others_move() {
    let trust = trust();
    let config = limited(|limits| limits.with_response_timeout(Duration::from_secs(5)));
    for in_memory in [true, false] {
        let handler = move |_| {
            move |_, responder: Responder| {
                let body = if in_memory { Body::from(vec![0; 400 << 20]) } else { Body::stream(Endless) };
                responder.send(Response::new(StatusCode::OK).with_body(body));
            }
        };
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config, handler);
        let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // No stream has a window by itself.
        raw.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
        for stream in [1, 3, 5] {
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
        }
        for stream in [3, 5] {
            raw.send(&frame(WINDOW_UPDATE, 0, stream, &0x7fff_0000_u32.to_be_bytes()));
        }
        for _ in 0..20 {
            take(&mut bench, &mut raw, 1 << 20);
            bench.skip(Duration::from_secs(1));
        }
        assert!(!raw.is_closed);
        assert_eq!(bench.count(|stats| stats.response_timeouts.value()), 1, "in memory: {in_memory}");
        let frames = frames(&raw.received);
        assert!(frames.iter().any(|(kind, stream, _)| (*kind, *stream) == (RST_STREAM, 1)), "in memory: {in_memory}");
    }
}

/// The kernel holds much of what the server has written when it has nothing left to do, and its client says now and then what it has taken.
#[test]
fn response_over_http2_is_whole_though_it_is_taken_slowly_after_a_shutdown() {
    const SIZE: usize = 12 << 20;
    let trust = trust();
    let handler = |_| |_, responder: Responder| responder.send(Response::new(StatusCode::OK).with_body(Body::from(vec![0; SIZE])));
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), handler);
    let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
    raw.let_in_at_most(64 << 10);
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    raw.send(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat()));
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7f00_0000_u32.to_be_bytes()));
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
    take(&mut bench, &mut raw, 1 << 20);
    let now = bench.now();
    bench.servers[0].shut_down(now, Duration::from_secs(600));
    let content = |raw: &RawTls| -> usize {
        frames(&raw.received).into_iter().filter(|(kind, stream, _)| (*kind, *stream) == (DATA, 1)).map(|(_, _, length)| length).sum()
    };
    let (mut is_answered, mut arrived) = (false, 0);
    while !raw.is_closed {
        // The client reads slowly at the end, when the kernel has buffered the rest. Time then advances only once the server's kernel has seen the
        // client's window open.
        let is_slow = raw.received.len() >= SIZE - (400 << 10);
        if is_slow {
            raw.step_at_most(8 << 10);
        } else {
            take(&mut bench, &mut raw, 256 << 10);
        }
        // The server asks whether its goodbye has come before it ends. The content has no such bytes.
        let ping = raw.received.windows(17).find(|bytes| bytes.starts_with(&[0, 0, 8, PING, 0, 0, 0, 0, 0])).map(|ping| ping[9..].to_vec());
        if let Some(ping) = ping.filter(|_| !is_answered) {
            raw.send_alone(&frame(PING, ACK, 0, &ping));
            is_answered = true;
        }
        raw.send_alone(&frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
        let before = std::mem::replace(&mut arrived, raw.arrived());
        if !is_slow || arrived > before || content(&raw) == SIZE {
            bench.skip(Duration::from_secs(6));
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        turns(&mut bench, 3);
    }
    let taken = content(&raw);
    assert_eq!(taken, SIZE);
    assert!(bench.elapsed() < Duration::from_secs(600), "by itself, and not by the end of what is granted");
}

/// Lets a client take so many bytes. The workers' clock barely moves until the kernel has carried them.
fn take(bench: &mut Bench, raw: &mut RawTls, bytes: usize) {
    let wanted = raw.received.len() + bytes;
    while raw.received.len() < wanted && !raw.is_closed {
        let before = raw.received.len();
        bench.turn();
        raw.step_at_most(wanted - before);
        if raw.received.len() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Content without an end.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 4096])))))
    }
}

// ---- floods over HTTP/2 -----------------------------------------------------------------------------------------------------

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

/// Kind, stream and length of the whole frames in `bytes`.
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

/// Sends what `flood` makes of a growing number until the connection is closed, and serves somebody else meanwhile.
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
    let told = attacker.received.windows(17).any(|window| window[3] == 7 && window[13..17] == [0, 0, 0, 11]);
    assert!(told, "{name}: closed without a word");
}

#[test]
fn rapid_reset_is_stopped() {
    flood(
        "rapid reset",
        |stats| stats.reset_floods.value() + stats.reset_floods_before_accept.value(),
        |number| {
            let stream = 2 * number + 1;
            [frame(HEADERS, END_HEADERS | END_STREAM, stream, GET), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
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
    flood("PRIORITY", |stats| stats.control_frame_floods.value(), |_| frame(PRIORITY, 0, 1, &[0; 5]));
}

#[test]
fn flood_of_tiny_window_updates_is_stopped() {
    flood("WINDOW_UPDATE", |stats| stats.control_frame_floods.value(), |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
}

#[test]
fn continuation_flood_is_stopped() {
    flood(
        "CONTINUATION",
        |stats| stats.continuation_floods.value(),
        |number| if number == 0 { frame(HEADERS, 0, 1, GET) } else { frame(CONTINUATION, 0, 1, &[]) },
    );
}

#[test]
fn flood_of_empty_data_is_stopped() {
    flood(
        "empty DATA",
        |stats| stats.control_frame_floods.value(),
        |number| if number == 0 { frame(HEADERS, END_HEADERS, 1, GET) } else { frame(DATA, 0, 1, &[]) },
    );
}

/// MadeYouReset: the server is made to reset streams itself.
#[test]
fn flood_of_stream_errors_is_stopped() {
    flood(
        "stream errors",
        |stats| stats.stream_error_floods.value() + stats.control_frame_floods.value(),
        |number| {
            let stream = 2 * number + 1;
            [frame(HEADERS, END_HEADERS, stream, GET), frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])].concat()
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
    let mut bench =
        Bench::with_group(&Group::new(1), &trust, &config, |_| |_, responder: Responder| responder.respond(std::future::pending()));
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
    // Windows as wide as they can be, and nothing is read.
    client.send(&frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    client.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    for number in 0..STREAMS as u32 {
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, GET));
    }
    turns(&mut bench, 300);
    assert_eq!(bench.count(|stats| stats.requests_http2.value()), STREAMS as u64);
    let before = produced.get();
    turns(&mut bench, 300);
    assert_eq!(produced.get(), before, "it goes on, though nobody reads");
    // The kernel's buffers take some megabytes. Without a common limit it would be 50 MiB.
    assert!(before < 16 << 20, "{before} bytes");
    assert!(before > 256 << 10, "{before} bytes");
}

/// Content without an end, which counts what was taken of it.
struct Metered {
    produced: Rc<Cell<usize>>,
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
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
    assert_eq!(bench.count(|stats| stats.stream_window_overruns.value() + stats.connection_window_overruns.value()), 1);
    kept.borrow_mut().clear();
}
