//! Engine features for handlers that batch requests, abandon exchanges, or stop listening.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use pronghorn_engine::{
    Bind, Config, Handler, Identity, Listener, Protocol, Request, Responder, Response, Transports,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::raw_tls::RawTls;
use crate::support::{Bench, PROTOCOLS, Trust, fetch, get, hello};

/// Answers all collected requests in `flush`, with their number.
#[derive(Default)]
struct Collecting {
    waiting: RefCell<Vec<Responder>>,
    open: Rc<Cell<i32>>,
}

impl Handler for Collecting {
    fn handle(&self, _: Request, responder: Responder) {
        self.waiting.borrow_mut().push(responder);
    }

    fn flush(&self) {
        let waiting = self.waiting.take();
        let count = waiting.len();
        for responder in waiting {
            responder.send(Response::new(StatusCode::OK).with_body(count.to_string()));
        }
    }

    fn on_opened(&self, remote: SocketAddr) {
        assert_eq!(remote.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.open.set(self.open.get() + 1);
    }

    fn on_closed(&self, _: SocketAddr) {
        self.open.set(self.open.get() - 1);
    }
}

#[test]
fn request_that_was_collected_is_answered_in_the_same_turn() {
    let mut bench = Bench::new(1, &Config::default(), |_| Collecting::default());
    for protocol in PROTOCOLS {
        let mut connection = bench.connect(protocol);
        assert_eq!(
            bench.run(async move { fetch(&mut connection, get("/")).await }),
            Ok((StatusCode::OK, "1".into())),
            "{protocol}"
        );
    }
}

#[test]
fn handler_that_collects_is_asked_to_answer_some_of_many_requests() {
    let mut bench = Bench::new(1, &Config::default(), |_| Collecting::default());
    let connection = bench.connect(Protocol::Http3);
    let counts = Rc::<RefCell<Vec<usize>>>::default();
    for _ in 0..100 {
        let (mut connection, counts) = (connection.share().unwrap(), counts.clone());
        bench.client.handle().spawn(async move {
            let (_, collected) = fetch(&mut connection, get("/")).await.unwrap();
            counts.borrow_mut().push(std::str::from_utf8(&collected).unwrap().parse().unwrap());
        });
    }
    bench.turn_until(|_| counts.borrow().len() == 100);
    let most = counts.borrow().iter().copied().max();
    // All at once would exceed the caches, and one at a time would not be a batch.
    assert!(most.is_some_and(|most| (8..=32).contains(&most)), "{counts:?}");
}

/// A future that is ready at its `at`th poll. Counts its polls, and records that it was dropped.
struct Ready {
    at: i32,
    polls: Rc<Cell<i32>>,
    dropped: Rc<Cell<bool>>,
    waker: Rc<RefCell<Option<Waker>>>,
}

impl Future for Ready {
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        self.polls.set(self.polls.get() + 1);
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        if self.polls.get() < self.at {
            Poll::Pending
        } else {
            Poll::Ready(Response::new(StatusCode::OK).with_body("ready"))
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.dropped.set(true);
    }
}

/// The observed state of a [`Ready`].
#[derive(Clone, Default)]
struct HandlerLog {
    polls: Rc<Cell<i32>>,
    dropped: Rc<Cell<bool>>,
    waker: Rc<RefCell<Option<Waker>>>,
}

impl HandlerLog {
    fn ready(&self, at: i32) -> Ready {
        let Self { polls, dropped, waker } = self.clone();
        Ready { at, polls, dropped, waker }
    }
}

#[test]
fn ready_response_spawns_no_task() {
    for protocol in PROTOCOLS {
        let seen = HandlerLog::default();
        let asked = seen.clone();
        let mut bench = Bench::new(1, &Config::default(), |_| {
            let asked = asked.clone();
            move |_, responder: Responder| {
                responder.respond_eagerly(asked.ready(1));
                assert!(asked.dropped.get(), "it was kept");
            }
        });
        let mut connection = bench.connect(protocol);
        assert_eq!(
            bench.run(async move { fetch(&mut connection, get("/")).await }),
            Ok((StatusCode::OK, "ready".into())),
            "{protocol}"
        );
        assert_eq!(seen.polls.get(), 1, "{protocol}");
    }
}

#[test]
fn pending_response_is_polled_again_with_a_waker() {
    for protocol in PROTOCOLS {
        let seen = HandlerLog::default();
        let asked = seen.clone();
        let mut bench = Bench::new(1, &Config::default(), |_| {
            let asked = asked.clone();
            move |_, responder: Responder| responder.respond_eagerly(asked.ready(3))
        });
        let mut connection = bench.connect(protocol);
        let answer = Rc::new(RefCell::new(None));
        let slot = answer.clone();
        bench.client.handle().spawn(async move {
            *slot.borrow_mut() = Some(fetch(&mut connection, get("/")).await);
        });
        bench.turn_until(|_| seen.polls.get() == 2);
        for _ in 0..5 {
            bench.turn();
        }
        assert_eq!((seen.polls.get(), answer.borrow().is_some()), (2, false), "{protocol}");
        seen.waker.take().unwrap().wake();
        bench.turn_until(|_| answer.borrow().is_some());
        assert_eq!(answer.take(), Some(Ok((StatusCode::OK, "ready".into()))), "{protocol}");
    }
}

#[test]
fn pending_response_is_dropped_on_disconnect() {
    for protocol in PROTOCOLS {
        let seen = HandlerLog::default();
        let asked = seen.clone();
        let mut bench = Bench::new(1, &Config::default(), |_| {
            let asked = asked.clone();
            move |_, responder: Responder| responder.respond_eagerly(asked.ready(i32::MAX))
        });
        let mut connection = bench.connect(protocol);
        let gone = Rc::<Cell<bool>>::default();
        let leave = gone.clone();
        let polls = seen.polls.clone();
        bench.client.handle().spawn(async move {
            let mut asking = Box::pin(fetch(&mut connection, get("/")));
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                assert!(asking.as_mut().poll(cx).is_pending());
                if polls.get() > 1 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            drop(asking);
            drop(connection);
            leave.set(true);
        });
        bench.turn_until(|_| gone.get());
        bench.turn_until(|_| seen.dropped.get());
    }
}

#[test]
fn turn_that_has_done_its_share_leaves_first_polls_to_the_next() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let (turns, most) = (Rc::<RefCell<Vec<u64>>>::default(), 4);
        let polled = turns.clone();
        let mut config = Config::default();
        config.budget.polls = most;
        let mut bench = Bench::new(1, &config, |_| {
            let polled = polled.clone();
            move |_, responder: Responder| {
                let (polled, handle) = (polled.clone(), responder.handle().clone());
                responder.respond_eagerly(Box::pin(async move {
                    polled.borrow_mut().push(handle.turn());
                    Response::new(StatusCode::OK)
                }));
            }
        });
        let connection = bench.connect(protocol);
        let answered = Rc::<Cell<usize>>::default();
        for _ in 0..40 {
            let (mut connection, answered) = (connection.share().unwrap(), answered.clone());
            bench.client.handle().spawn(async move {
                fetch(&mut connection, get("/")).await.unwrap();
                answered.set(answered.get() + 1);
            });
        }
        bench.turn_until(|_| answered.get() == 40);
        let turns = turns.borrow();
        // First polls count against the turn's budget.
        let largest = turns.chunk_by(|one, next| one == next).map(<[u64]>::len).max();
        assert!(largest.is_some_and(|largest| largest <= 2 * most), "{protocol}: {turns:?}");
    }
}

#[test]
fn requests_of_one_packet_are_no_more_than_a_turn_has_polls_for() {
    let (turns, most) = (Rc::<RefCell<Vec<u64>>>::default(), 4);
    let polled = turns.clone();
    let mut config = Config::default();
    config.budget.polls = most;
    let trust = crate::support::trust();
    let mut bench = Bench::with_group(&pronghorn_engine::Group::new(1), &trust, &config, |_| {
        let polled = polled.clone();
        move |_, responder: Responder| {
            let (polled, handle) = (polled.clone(), responder.handle().clone());
            responder.respond(async move {
                polled.borrow_mut().push(handle.turn());
                Response::new(StatusCode::OK)
            });
        }
    });
    let mut clients: Vec<_> =
        (0..8).map(|_| RawTls::connect(&mut bench, &trust, b"http/1.1")).collect();
    for client in &mut clients {
        client.send(&b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100));
    }
    bench.turn_until(|_| turns.borrow().len() == 8 * 100);
    let turns = turns.borrow();
    // One more for each of the turn's tasks.
    let largest = turns.chunk_by(|one, next| one == next).map(<[u64]>::len).max();
    assert!(largest.is_some_and(|largest| largest <= 2 * most), "{largest:?}");
}

#[test]
fn buffered_data_does_not_time_out() {
    let mut config = Config::default();
    config.budget.polls = 1;
    config.limits = config.limits.with_response_timeout(Duration::from_secs(8)).unwrap();
    let mut bench = Bench::new(1, &config, |_| {
        |request: Request, responder: Responder| {
            let size = if request.uri.path() == "/large" { 40 << 20 } else { 0 };
            responder.respond_eagerly(std::future::ready(
                Response::new(StatusCode::OK).with_body(vec![b'x'; size]),
            ));
        }
    });
    let late = |bench: &Bench| {
        bench.count(|stats| stats.response_timeouts.value() + stats.responses_too_slow.value())
    };
    let mut slow = bench.connect(Protocol::Http3);
    let (slow, response) = bench.run(async move {
        let response = slow.send(get("/large")).await.unwrap();
        (slow, response)
    });
    let others: Vec<_> = (0..4).map(|_| bench.connect(Protocol::Http3)).collect();
    // Until the peer's window is full.
    for _ in 0..300 {
        bench.turn();
    }
    bench.skip(Duration::from_secs(6));
    bench.turn();
    let answered = Rc::<Cell<usize>>::default();
    for index in 0..400 {
        let (mut connection, answered) =
            (others[index % others.len()].share().unwrap(), answered.clone());
        bench.client.handle().spawn(async move {
            fetch(&mut connection, get("/")).await.unwrap();
            answered.set(answered.get() + 1);
        });
    }
    let now = bench.now();
    bench.client.turn(now).unwrap();
    let whole = Rc::<Cell<Option<bool>>>::default();
    let mark = whole.clone();
    bench.client.handle().spawn(async move {
        let _slow = slow;
        mark.set(Some(http_body_util::BodyExt::collect(response.into_body()).await.is_ok()));
    });
    for _ in 0..3 {
        let now = bench.now();
        bench.client.turn(now).unwrap();
    }
    // The peer has read the data in time, but the worker processes that only after all those
    // requests, and late.
    assert_eq!(late(&bench), 0);
    bench.skip(Duration::from_secs(3));
    bench.turn_until(|_| whole.get().is_some() && answered.get() == 400);
    assert_eq!((whole.get(), late(&bench)), (Some(true), 0));
}

#[test]
fn connections_are_announced_and_reported_gone() {
    for protocol in PROTOCOLS {
        let open = Rc::<Cell<i32>>::default();
        let seen = open.clone();
        let mut bench = Bench::new(1, &Config::default(), move |_| Collecting {
            open: open.clone(),
            ..Collecting::default()
        });
        let mut connection = bench.connect(protocol);
        bench.run(async move {
            fetch(&mut connection, get("/")).await.unwrap();
            // Dropping the connection closes it.
        });
        bench.turn_until(|_| seen.get() == 0);
        let mut connection = bench.connect(protocol);
        let counted = seen.clone();
        let while_open = bench.run(async move {
            fetch(&mut connection, get("/")).await.unwrap();
            counted.get()
        });
        assert_eq!(while_open, 1, "{protocol}");
    }
}

#[test]
fn aborted_exchange_has_no_response_and_leaves_the_others() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |request: Request, responder: Responder| match request.uri.path() {
                "/abort" => responder.abort(),
                _ => responder.send(Response::new(StatusCode::OK)),
            }
        });
        let mut connection = bench.connect(protocol);
        let (aborted, after) = bench.run(async move {
            let aborted = fetch(&mut connection, get("/abort")).await;
            (aborted, fetch(&mut connection, get("/")).await)
        });
        assert!(aborted.is_err(), "{protocol}: {aborted:?}");
        // HTTP/1.1 has no streams, so its connection is closed.
        assert_eq!(after.is_ok(), protocol != Protocol::Http1, "{protocol}: {after:?}");
        assert_eq!(bench.count(|stats| stats.tcp_protocol_errors.value()), 0, "{protocol}");
    }
}

#[test]
fn worker_that_stops_listening_keeps_its_connections() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), hello);
        let mut connection = bench.connect(protocol);
        bench.servers[0].stop_listening();
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "{protocol}");
        assert!(bench.try_connect(protocol).is_err(), "{protocol}");
        bench.turn_until(|bench| bench.servers[0].is_idle());
    }
}

#[test]
fn http3_alone_leaves_the_tcp_port_to_others() {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bind = |transports, reuse_port| Bind { transports, congestion: None, reuse_port };
    let quic = Listener::bind(any_port, 2, bind(Transports::Quic, false)).unwrap();
    assert!(quic.is_secure());
    let tcp = Listener::bind(quic.address(), 1, bind(Transports::SecureTcp, false)).unwrap();
    assert_eq!(tcp.address(), quic.address());
    for transports in [Transports::Quic, Transports::SecureTcp, Transports::ClearTcp] {
        assert!(
            Listener::bind(quic.address(), 1, bind(transports, false)).is_err(),
            "{transports:?}"
        );
        assert!(
            Listener::bind(quic.address(), 1, bind(transports, true)).is_ok(),
            "{transports:?}"
        );
    }
}

/// A resolver without a certificate until the test sets one.
#[derive(Debug)]
struct Changeable(Mutex<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Changeable {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap().clone()
    }
}

/// Panics instead of returning its certificate, while that is wanted.
#[derive(Debug)]
struct Panicking {
    certified: Arc<CertifiedKey>,
    panics: AtomicBool,
}

impl ResolvesServerCert for Panicking {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        assert!(!self.panics.load(Ordering::Relaxed), "as planned");
        Some(self.certified.clone())
    }
}

#[test]
fn resolver_that_panics_costs_only_its_connection() {
    let (trusted, certified) = certified();
    let resolver = Arc::new(Panicking { certified, panics: AtomicBool::new(false) });
    let trust = Trust { identity: Identity::with_resolver(resolver.clone()).unwrap(), ..trusted };
    let group = pronghorn_engine::Group::new(1);
    let mut bench = Bench::with_group(&group, &trust, &Config::default(), hello);
    let mut open: Vec<_> =
        PROTOCOLS.into_iter().map(|protocol| (protocol, bench.connect(protocol))).collect();
    for (number, protocol) in (1..).zip(PROTOCOLS) {
        resolver.panics.store(true, Ordering::Relaxed);
        assert!(bench.try_connect(protocol).is_err(), "{protocol}");
        assert_eq!(bench.count(|stats| stats.handler_panics.value()), number, "{protocol}");
        resolver.panics.store(false, Ordering::Relaxed);
        assert!(bench.try_connect(protocol).is_ok(), "{protocol}");
    }
    for (protocol, mut connection) in open.drain(..) {
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer.unwrap().0, StatusCode::OK, "{protocol}");
    }
}

/// Panics when connections open and close, and at each flush.
struct PanickingHooks;

impl Handler for PanickingHooks {
    fn handle(&self, _: Request, responder: Responder) {
        responder.send(Response::new(StatusCode::OK));
    }

    fn flush(&self) {
        panic!("as planned");
    }

    fn on_opened(&self, _: SocketAddr) {
        panic!("as planned");
    }

    fn on_closed(&self, _: SocketAddr) {
        panic!("as planned");
    }
}

#[test]
fn handler_whose_hooks_panic_still_answers() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| PanickingHooks);
        for _ in 0..2 {
            let mut connection = bench.connect(protocol);
            let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
            assert_eq!(answer.unwrap().0, StatusCode::OK, "{protocol}");
        }
        assert!(bench.count(|stats| stats.handler_panics.value()) > 3, "{protocol}");
    }
}

/// Returns a certificate for localhost with its key, and what trusts it.
fn certified() -> (Trust, Arc<CertifiedKey>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certified = CertifiedKey::from_der(
        vec![certificate.clone()],
        key.clone_key(),
        &pronghorn_engine::provider(),
    )
    .unwrap();
    (crate::support::trust_in(certificate, key), Arc::new(certified))
}

#[test]
fn resolver_is_asked_for_each_handshake() {
    let (trusted, certified) = certified();
    let resolver = Arc::new(Changeable(Mutex::new(None)));
    let trust = Trust { identity: Identity::with_resolver(resolver.clone()).unwrap(), ..trusted };
    let group = pronghorn_engine::Group::new(1);
    let mut bench = Bench::with_group(&group, &trust, &Config::default(), hello);
    for protocol in PROTOCOLS {
        assert!(bench.try_connect(protocol).is_err(), "{protocol}");
    }
    *resolver.0.lock().unwrap() = Some(certified);
    for protocol in PROTOCOLS {
        assert!(bench.try_connect(protocol).is_ok(), "{protocol}");
    }
}
