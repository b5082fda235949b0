//! Tests with the generator and a server on one thread and one clock, which the tests advance.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use http_body_util::BodyExt;
use pronghorn_engine::websocket::{Options, WebSocketUpgrade};
use pronghorn_engine::{
    Config, Connector, EarlyData, Group, Handler, Identity, Limits, Listener, Protocol, Request,
    Responder, Response, Resumption, Stats, Worker,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::generator::{Generator, RunState, Share};
use crate::run::conclude;
use crate::signal::Signal;
use crate::{ConnectionUse, Error, Plan, Report, Upload};

const PROTOCOLS: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];
const MILLISECOND: Duration = Duration::from_millis(1);

/// Maximum real time of a test. It matters only for a test that hangs.
const MAX_TEST_TIME: Duration = Duration::from_secs(300);

struct Bench {
    server: Worker,
    client: Worker,
    connector: Connector,
    stats: Arc<Stats>,
    interrupt: Arc<Signal<Instant>>,
    clock: Rc<Cell<Instant>>,
    plan: Plan,
}

impl Bench {
    /// A server, and a plan of one request to it.
    fn new(protocol: Protocol, config: Config, handler: impl Handler) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = CertificateDer::from(made.cert);
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let tls = rustls::ClientConfig::builder_with_provider(pronghorn_engine::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let identity = Identity::new(vec![certificate], key).unwrap();
        let listener =
            Listener::secure((Ipv4Addr::LOCALHOST, 0).into(), 1, config.congestion).unwrap();
        let mut plan = Plan::new(
            vec!["https://localhost/".parse().unwrap()],
            vec![listener.address()],
            tls.clone(),
        );
        (plan.protocol, plan.requests, plan.duration) = (Some(protocol), Some(1), None);
        let group = Group::new(1);
        let stats = group.stats().next().unwrap().clone();
        let mut server = Worker::new(0, &group, config, handler).unwrap();
        server.listen(listener.into_sockets().pop().unwrap(), Some(&identity)).unwrap();
        let refuse = |_, responder: Responder| drop(responder);
        let mut client = Worker::new(0, &Group::new(1), Config::default(), refuse).unwrap();
        let connector = client.connector(&tls).unwrap();
        let clock = Rc::new(Cell::new(Instant::now()));
        Self { server, client, connector, stats, interrupt: Arc::default(), clock, plan }
    }

    /// Runs the plan. Each round of turns lasts `step` on the clock of both sides.
    fn run(&mut self, step: Duration) -> Result<Report, Error> {
        self.run_with(step, |_| {})
    }

    fn run_with(
        &mut self,
        step: Duration,
        mut each: impl FnMut(&mut Self),
    ) -> Result<Report, Error> {
        self.plan.check()?;
        let shared = RunState::new(self.plan.clone(), self.interrupt.clone());
        let clock = self.clock.clone();
        let share = Share::of(&self.plan, 0);
        let generator = Generator::new(
            shared.clone(),
            share,
            self.client.handle().clone(),
            Rc::new(move || clock.get()),
        );
        let connector = self.connector.clone();
        let outcome = Rc::new(RefCell::new(None));
        let slot = outcome.clone();
        self.client.handle().spawn(async move {
            let done = generator.run(vec![connector]).await;
            *slot.borrow_mut() = Some(done);
        });
        let began = Instant::now();
        while outcome.borrow().is_none() {
            assert!(began.elapsed() < MAX_TEST_TIME, "nothing came of it");
            self.clock.set(self.clock.get() + step);
            self.server.turn(self.clock.get()).unwrap();
            self.client.turn(self.clock.get()).unwrap();
            each(self);
        }
        let outcome = outcome.take().unwrap();
        conclude(&shared, &[outcome])
    }

    fn served(&self) -> u64 {
        self.stats.requests_http1.value()
            + self.stats.requests_http2.value()
            + self.stats.requests_http3.value()
    }
}

fn hello(_: Request, responder: Responder) {
    responder.send(Response::new(StatusCode::OK).with_body("hello"));
}

/// Answers at once, except for the request with this number: it and all that arrive meanwhile are
/// answered `delay` later.
fn stalls_at(number: u64, delay: Duration) -> impl Handler {
    let count = Cell::new(0);
    let until = Cell::new(None::<Instant>);
    move |_, responder: Responder| {
        count.set(count.get() + 1);
        let handle = responder.handle().clone();
        if count.get() == number {
            until.set(Some(handle.now() + delay));
        }
        let left = until
            .get()
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(handle.now()));
        responder.respond(async move {
            handle.sleep(left).await;
            Response::new(StatusCode::OK).with_body("hello")
        });
    }
}

#[test]
fn every_request_is_answered_and_counted_over_each_protocol() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(protocol, Config::default(), hello);
        (bench.plan.requests, bench.plan.connections) = (Some(300), 3);
        bench.plan.streams = if protocol == Protocol::Http1 { 1 } else { 5 };
        let report = bench.run(MILLISECOND / 10).unwrap();
        assert_eq!(report.requests.begun, 300, "{protocol}");
        assert_eq!(report.requests.status.successful, 300, "{protocol}: {report:#?}");
        assert_eq!(report.body.received_bytes, 300 * 5, "{protocol}");
        assert_eq!((report.latency_us.response.count, report.latency_us.head.count), (300, 300));
        assert_eq!((report.connections.opened, report.latency_us.connect.count), (3, 3));
        assert_eq!(report.connections.protocols.get(&protocol.to_string()), Some(&3));
        assert!(
            report.transport.sent_packets > 0 && report.transport.received_bytes > 300 * 5,
            "{protocol}: {report:#?}"
        );
        assert_eq!(bench.served(), 300);
    }
}

#[test]
fn stall_of_the_server_shows_in_the_percentiles_at_a_fixed_rate() {
    let stall = Duration::from_millis(500);
    for protocol in PROTOCOLS {
        // At 1,000 requests per second, half a second of silence is a quarter of two seconds'
        // requests.
        let mut bench = Bench::new(protocol, Config::default(), stalls_at(500, stall));
        (bench.plan.requests, bench.plan.rate) = (Some(2_000), Some(1_000.0));
        let fixed = bench.run(MILLISECOND / 2).unwrap();
        assert_eq!(fixed.requests.status.successful, 2_000, "{protocol}");
        let latency = fixed.latency_us.response;
        // A request due in the middle of the stall waited for half of it, whether or not it could
        // be sent.
        assert!(
            latency.p90 > 200_000.0 && latency.p99 > 400_000.0 && latency.max >= 500_000.0,
            "{protocol}: {latency:?}"
        );
        assert!(latency.p50 < 50_000.0, "{protocol}: {latency:?}");
        assert!(
            fixed.warnings.iter().any(|warning| warning.kind == "streams_taken"),
            "{protocol}: {:?}",
            fixed.warnings
        );

        // As fast as the server answers, only one request sees the stall.
        let mut bench = Bench::new(protocol, Config::default(), stalls_at(500, stall));
        bench.plan.requests = Some(2_000);
        let closed = bench.run(MILLISECOND / 2).unwrap();
        let latency = closed.latency_us.response;
        assert!(latency.p99 < 50_000.0 && latency.max >= 500_000.0, "{protocol}: {latency:?}");
    }
}

#[test]
fn fixed_rate_sends_each_request_when_it_is_due() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(protocol, Config::default(), hello);
        (bench.plan.requests, bench.plan.duration) = (None, Some(Duration::from_secs(2)));
        (bench.plan.rate, bench.plan.connections, bench.plan.warm_up) =
            (Some(200.0), 4, Duration::from_secs(1));
        let report = bench.run(MILLISECOND / 2).unwrap();
        assert_eq!((report.requests.warm_up, report.requests.begun), (200, 400), "{protocol}");
        assert_eq!(bench.served(), 600, "{protocol}");
        // A step of the clock and the turn after it.
        assert!(
            report.latency_us.schedule_lag.max <= 1_500.0,
            "{protocol}: {:?}",
            report.latency_us.schedule_lag
        );
        assert!((report.measured_seconds - 2.0).abs() < 1e-9);
        assert!(
            (report.requests.per_second - 200.0).abs() <= 1.0,
            "{protocol}: {:?}",
            report.requests
        );
        assert_eq!(report.requests.not_started, 0);
    }
}

#[test]
fn warm_up_is_left_out_of_everything_but_its_own_number() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(protocol, Config::default(), hello);
        (bench.plan.requests, bench.plan.warm_up) = (Some(50), Duration::from_millis(100));
        let report = bench.run(MILLISECOND / 2).unwrap();
        assert!(report.requests.warm_up > 10, "{protocol}: {:?}", report.requests);
        assert_eq!(
            (report.requests.begun, report.latency_us.response.count, report.body.received_bytes),
            (50, 50, 250),
            "{protocol}"
        );
        assert_eq!(report.requests.warm_up + 50, bench.served(), "{protocol}");
    }
}

#[test]
fn connection_for_each_request_is_opened_within_its_latency() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(protocol, Config::default(), hello);
        (bench.plan.requests, bench.plan.connections, bench.plan.connection_use) =
            (Some(20), 2, ConnectionUse::OneRequest);
        let report = bench.run(MILLISECOND).unwrap();
        assert_eq!(report.requests.status.successful, 20, "{protocol}: {report:#?}");
        assert_eq!(
            (report.connections.opened, report.latency_us.connect.count),
            (20, 20),
            "{protocol}"
        );
        assert!(report.latency_us.response.min >= report.latency_us.connect.min, "{protocol}");
        assert!(report.transport.sent_bytes > 20 * 100, "{protocol}: {report:#?}");
        let accepted = bench.stats.tcp_accepted.value() + bench.stats.quic_accepted.value();
        assert_eq!(accepted, 20, "{protocol}");
    }
}

#[test]
fn connections_resume_and_send_early_as_the_plan_says() {
    for (protocol, resumption) in PROTOCOLS.into_iter().flat_map(|protocol| {
        [Resumption::Off, Resumption::Session, Resumption::EarlyData]
            .map(|resumption| (protocol, resumption))
    }) {
        let config = Config { early_data: EarlyData::SafeMethods, ..Config::default() };
        let mut bench = Bench::new(protocol, config, hello);
        (bench.plan.requests, bench.plan.connections, bench.plan.connection_use) =
            (Some(12), 3, ConnectionUse::OneRequest);
        bench.plan.resumption = resumption;
        let report = bench.run(MILLISECOND).unwrap();
        let connections = &report.connections;
        let counted = (
            connections.opened,
            connections.resumed,
            connections.early_data_accepted,
            connections.early_data_refused,
        );
        let expected = match resumption {
            Resumption::Off => (12, 0, 0, 0),
            Resumption::Session => (12, 12, 0, 0),
            Resumption::EarlyData => (12, 12, 12, 0),
        };
        assert_eq!(counted, expected, "{protocol} {resumption:?}");
        assert_eq!(report.requests.status.successful, 12, "{protocol} {resumption:?}: {report:#?}");
        // One request for each concurrent connection, to obtain sessions.
        let sessions = if resumption == Resumption::Off { 0 } else { 3 };
        assert_eq!(
            (report.requests.warm_up, bench.served()),
            (sessions, 12 + sessions),
            "{protocol} {resumption:?}"
        );
        assert_eq!(
            bench.stats.early_data_accepted.value(),
            connections.early_data_accepted,
            "{protocol} {resumption:?}"
        );
    }
}

#[test]
fn request_that_takes_too_long_is_an_error_and_the_next_is_sent() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(protocol, Config::default(), stalls_at(2, Duration::from_millis(1_500)));
        (bench.plan.requests, bench.plan.timeout) = (Some(3), Duration::from_secs(1));
        let report = bench.run(MILLISECOND).unwrap();
        assert_eq!(
            (report.requests.status.successful, report.requests.errors.timed_out),
            (2, 1),
            "{protocol}: {report:#?}"
        );
        assert!(report.requests.errors.first["timed_out"].contains("in time"));
        assert_eq!(report.latency_us.response.count, 2);
    }
}

#[test]
fn requests_due_while_the_server_is_silent_are_reported_when_they_cannot_be_sent() {
    let mut bench =
        Bench::new(Protocol::Http2, Config::default(), stalls_at(1, Duration::from_secs(3_600)));
    (bench.plan.requests, bench.plan.duration) = (None, Some(Duration::from_secs(2)));
    (bench.plan.rate, bench.plan.timeout) = (Some(10.0), Duration::from_secs(1));
    let report = bench.run(MILLISECOND).unwrap();
    let requests = &report.requests;
    // One second each, on one stream: twenty were due.
    assert_eq!(requests.begun + requests.not_started, 20, "{requests:?}");
    assert!(requests.not_started >= 15, "{requests:?}");
    assert_eq!(requests.errors.timed_out, requests.begun);
    assert!(report.warnings.iter().any(|warning| warning.kind == "not_started"));
}

#[test]
fn streams_beyond_the_servers_limit_wait_and_none_fails() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let limits = Limits::default().with_concurrent_streams(4).unwrap();
        let mut bench = Bench::new(protocol, Config { limits, ..Config::default() }, hello);
        (bench.plan.requests, bench.plan.streams) = (Some(500), 50);
        let report = bench.run(MILLISECOND / 10).unwrap();
        assert_eq!(report.requests.status.successful, 500, "{protocol}: {report:#?}");
        assert_eq!(report.connections.opened, 1);
    }
}

#[test]
fn connection_that_the_server_closes_is_replaced_and_no_request_is_lost() {
    for protocol in PROTOCOLS {
        // A connection that is idle for a second is closed; requests are two seconds apart.
        let second = Duration::from_secs(1);
        let limits = Limits::default().with_idle_timeout(second).unwrap();
        let config = Config { limits, ..Config::default() };
        let mut bench = Bench::new(protocol, config, hello);
        (bench.plan.requests, bench.plan.rate) = (Some(5), Some(0.5));
        let report = bench.run(10 * MILLISECOND).unwrap();
        assert_eq!(report.requests.status.successful, 5, "{protocol}: {report:#?}");
        assert_eq!(report.connections.opened, 5, "{protocol}: {report:#?}");
    }
}

/// Accepts every WebSocket, echoes each message, and closes after `messages` of them.
fn echoes(messages: u64) -> impl Handler {
    move |request: Request, responder: Responder| {
        let upgrade = WebSocketUpgrade::from_request(&request, &Options::default()).unwrap();
        let handle = responder.handle().clone();
        let mut websocket = upgrade.accept(responder, request.body);
        handle.spawn(async move {
            let mut left = messages;
            while left > 0
                && let Some(Ok(message)) = websocket.recv().await
            {
                websocket.send(message).await.unwrap();
                left -= 1;
            }
        });
    }
}

#[test]
fn messages_over_websockets_are_counted_as_requests_are() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(protocol, Config::default(), echoes(u64::MAX));
        let streams = if protocol == Protocol::Http1 { 1 } else { 3 };
        (bench.plan.websocket, bench.plan.connections, bench.plan.streams) = (true, 2, streams);
        (bench.plan.requests, bench.plan.upload) = (Some(60), Upload::Size(1_000));
        let report = bench.run(MILLISECOND / 2).unwrap();
        assert_eq!(
            (report.requests.begun, report.requests.status.successful),
            (60, 60),
            "{protocol}: {report:#?}"
        );
        assert_eq!(
            (report.body.sent_bytes, report.body.received_bytes),
            (60_000, 60_000),
            "{protocol}"
        );
        let websockets = report.websockets;
        let opened = 2 * streams as u64;
        assert_eq!(
            (websockets.opened, websockets.failed, websockets.ended),
            (opened, 0, 0),
            "{protocol}"
        );
        assert_eq!((bench.served(), report.connections.opened), (opened, 2), "{protocol}");
        assert_eq!(report.latency_us.response.count, 60);
    }
}

#[test]
fn websocket_that_the_server_ends_is_counted_and_opened_anew() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(protocol, Config::default(), echoes(5));
        // The server's close is seen between two messages.
        (bench.plan.websocket, bench.plan.requests, bench.plan.rate) = (true, Some(12), Some(10.0));
        let report = bench.run(MILLISECOND).unwrap();
        assert_eq!(report.requests.status.successful, 12, "{protocol}: {report:#?}");
        assert_eq!(
            (report.websockets.opened, report.websockets.ended),
            (3, 2),
            "{protocol}: {report:#?}"
        );
    }
}

#[test]
fn idle_websockets_answer_the_servers_pings() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(protocol, Config::default(), echoes(u64::MAX));
        (bench.plan.websocket, bench.plan.requests, bench.plan.rate) = (true, Some(3), Some(0.002));
        let report = bench.run(10 * MILLISECOND).unwrap();
        assert_eq!(report.requests.status.successful, 3, "{protocol}: {report:#?}");
        assert_eq!(
            (report.websockets.opened, report.websockets.ended),
            (1, 0),
            "{protocol}: {report:#?}"
        );
    }
}

#[test]
fn server_that_grants_no_websocket_leaves_no_report() {
    for protocol in PROTOCOLS {
        let none = |_, responder: Responder| responder.send(Response::new(StatusCode::NOT_FOUND));
        let mut bench = Bench::new(protocol, Config::default(), none);
        bench.plan.websocket = true;
        let error = bench.run(MILLISECOND).unwrap_err();
        assert!(error.to_string().contains("answered 404"), "{protocol}: {error}");
    }
}

#[test]
fn upload_is_sent_whole_and_counted() {
    const SIZE: u64 = 300_000;
    for (protocol, upload) in PROTOCOLS.into_iter().flat_map(|protocol| {
        [Upload::Size(SIZE), Upload::Bytes(vec![b'x'; SIZE as usize].into())]
            .map(|upload| (protocol, upload))
    }) {
        let seen = Rc::new(Cell::new(0));
        let total = seen.clone();
        let mut bench = Bench::new(
            protocol,
            Config::default(),
            move |request: Request, responder: Responder| {
                assert_eq!(request.headers["content-length"], SIZE.to_string());
                let total = total.clone();
                responder.respond(async move {
                    let size = request.body.collect().await.unwrap().to_bytes().len() as u64;
                    total.set(total.get() + size);
                    Response::new(StatusCode::CREATED)
                });
            },
        );
        (bench.plan.requests, bench.plan.method, bench.plan.upload) =
            (Some(4), http::Method::PUT, upload);
        let report = bench.run(MILLISECOND / 10).unwrap();
        assert_eq!(report.requests.status.successful, 4, "{protocol}: {report:#?}");
        assert_eq!((report.body.sent_bytes, seen.get()), (4 * SIZE, 4 * SIZE), "{protocol}");
    }
}

#[test]
fn interruption_reports_what_was_measured() {
    let mut bench =
        Bench::new(Protocol::Http3, Config::default(), stalls_at(5, Duration::from_secs(3_600)));
    (bench.plan.requests, bench.plan.duration) = (None, Some(Duration::from_secs(100)));
    let mut told = false;
    let report = bench.run_with(MILLISECOND, |bench| {
        if !told && bench.served() == 5 {
            told = true;
            bench.interrupt.set(bench.clock.get());
        }
    });
    let report = report.unwrap();
    assert!(report.interrupted);
    assert_eq!(
        (report.requests.status.successful, report.requests.given_up, report.requests.begun),
        (4, 1, 5),
        "{report:#?}"
    );
    assert!(report.measured_seconds < 99.0, "{report:#?}");
}

#[test]
fn server_that_cannot_be_reached_is_an_error_and_no_report() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut bench = Bench::new(protocol, Config::default(), hello);
        let free =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        bench.plan.remotes = vec![free];
        assert!(
            matches!(
                bench.run(MILLISECOND),
                Err(Error::Unreachable(pronghorn_engine::Error::Connect { .. }))
            ),
            "{protocol}"
        );
    }
}

#[test]
fn server_that_answers_nothing_is_given_up_after_one_timeout_whatever_the_number_of_connections() {
    let mut bench = Bench::new(Protocol::Http3, Config::default(), hello);
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    (bench.plan.remotes, bench.plan.connections) = (vec![silent.local_addr().unwrap()], 1_000);
    let began = bench.clock.get();
    let error = bench.run(100 * MILLISECOND).unwrap_err();
    assert!(error.to_string().contains("in time"), "{error}");
    let waited = bench.clock.get() - began;
    assert!(waited < 2 * bench.plan.timeout, "{waited:?}");
}

#[test]
fn second_address_is_used_where_the_first_does_not_answer() {
    let mut bench = Bench::new(Protocol::Http2, Config::default(), hello);
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    bench.plan.remotes.insert(0, free);
    assert_eq!(bench.run(MILLISECOND).unwrap().requests.status.successful, 1);
}

#[test]
fn urls_are_asked_for_in_turn() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let paths = seen.clone();
    let mut bench = Bench::new(
        Protocol::Http3,
        Config::default(),
        move |request: Request, responder: Responder| {
            paths.borrow_mut().push(request.uri.path().to_owned());
            responder.send(Response::new(StatusCode::NOT_FOUND));
        },
    );
    bench.plan.urls = ["https://localhost/a", "https://localhost/b", "https://localhost/c"]
        .map(|url| url.parse().unwrap())
        .to_vec();
    bench.plan.requests = Some(7);
    let report = bench.run(MILLISECOND).unwrap();
    assert_eq!(report.requests.status.client_error, 7);
    assert_eq!(*seen.borrow(), ["/a", "/b", "/c", "/a", "/b", "/c", "/a"]);
}
