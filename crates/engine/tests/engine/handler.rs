//! What a face that collects requests, gives up exchanges, or stops to listen asks of the engine.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use http::StatusCode;
use pronghorn_engine::{Bind, Config, Handler, Identity, Listener, Protocol, Request, Responder, Response, Transports};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::support::{Bench, PROTOCOLS, Trust, fetch, get, hello};

/// Answers in `settle` what it has got, with how many there were.
#[derive(Default)]
struct Collecting {
    waiting: RefCell<Vec<Responder>>,
    open: Rc<Cell<i32>>,
}

impl Handler for Collecting {
    fn handle(&self, _: Request, responder: Responder) {
        self.waiting.borrow_mut().push(responder);
    }

    fn settle(&self) {
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
        assert_eq!(bench.run(async move { fetch(&mut connection, get("/")).await }), Ok((StatusCode::OK, "1".into())), "{protocol}");
    }
}

#[test]
fn connections_are_announced_and_reported_gone() {
    for protocol in PROTOCOLS {
        let open = Rc::<Cell<i32>>::default();
        let seen = open.clone();
        let mut bench = Bench::new(1, &Config::default(), move |_| Collecting { open: open.clone(), ..Collecting::default() });
        let mut connection = bench.connect(protocol);
        bench.run(async move {
            fetch(&mut connection, get("/")).await.unwrap();
            // Dropped, it closes.
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
        // HTTP/1.1 has no streams: its connection is gone.
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
    let bind = |transports, shared| Bind { transports, congestion: None, shared };
    let quic = Listener::bind(any_port, 2, bind(Transports::Quic, false)).unwrap();
    assert!(quic.is_secure());
    let tcp = Listener::bind(quic.address(), 1, bind(Transports::SecureTcp, false)).unwrap();
    assert_eq!(tcp.address(), quic.address());
    for transports in [Transports::Quic, Transports::SecureTcp, Transports::ClearTcp] {
        assert!(Listener::bind(quic.address(), 1, bind(transports, false)).is_err(), "{transports:?}");
        assert!(Listener::bind(quic.address(), 1, bind(transports, true)).is_ok(), "{transports:?}");
    }
}

/// Has a certificate once somebody has put it there.
#[derive(Debug)]
struct Changeable(Mutex<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Changeable {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn resolver_is_asked_for_each_handshake() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certified = CertifiedKey::from_der(vec![certificate.clone()], key.clone_key(), &pronghorn_engine::provider()).unwrap();
    let resolver = Arc::new(Changeable(Mutex::new(None)));
    let trusted = crate::support::trust_in(certificate, key);
    let trust = Trust { identity: Identity::with_resolver(resolver.clone()).unwrap(), ..trusted };
    let group = pronghorn_engine::Group::new(1);
    let mut bench = Bench::with_group(&group, &trust, &Config::default(), hello);
    for protocol in PROTOCOLS {
        assert!(bench.try_connect(protocol).is_err(), "{protocol}");
    }
    *resolver.0.lock().unwrap() = Some(Arc::new(certified));
    for protocol in PROTOCOLS {
        assert!(bench.try_connect(protocol).is_ok(), "{protocol}");
    }
}
