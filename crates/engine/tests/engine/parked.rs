//! Handshakes that wait for sessions shared with other machines, or for a slow signature.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use pronghorn_engine::{
    Config, EarlyData, Error, Group, Handler, Identity, Limits, OnSessions, Protocol, Request,
    Responder, Response, Resumption, SessionName, SharedSession, SharedSessions, SigningFailed,
    SlowKeys, TlsSummary,
};
use rustls::crypto::{ActiveKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{NamedGroup, SignatureAlgorithm, SignatureScheme};

use crate::support::{Bench, PROTOCOLS, Trust, fetch, get, trust};

/// A store whose lookups wait until the test lets them go on.
#[derive(Default)]
struct HeldStore {
    sessions: Mutex<HashMap<SessionName, Vec<u8>>>,
    lookups: Mutex<Vec<(Vec<SessionName>, OnSessions)>>,
    /// Whether another node might find a session again.
    is_unsure: bool,
}

impl fmt::Debug for HeldStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldStore").finish_non_exhaustive()
    }
}

impl HeldStore {
    fn waiting(&self) -> usize {
        self.lookups.lock().unwrap().len()
    }

    /// Answers the lookups, on another thread as a store does.
    fn answer(self: &Arc<Self>) {
        let store = self.clone();
        let thread = std::thread::spawn(move || {
            for (names, done) in store.lookups.lock().unwrap().drain(..) {
                let mut sessions = store.sessions.lock().unwrap();
                let found = names.iter().map(|name| {
                    let value = sessions.remove(name)?;
                    Some(SharedSession { value, is_taken_for_good: !store.is_unsure })
                });
                done(found.collect());
            }
        });
        thread.join().unwrap();
    }
}

impl SharedSessions for HeldStore {
    fn put(&self, name: SessionName, value: Vec<u8>, _: Duration) {
        self.sessions.lock().unwrap().insert(name, value);
    }

    fn take(&self, names: Vec<SessionName>, done: OnSessions) {
        self.lookups.lock().unwrap().push((names, done));
    }

    fn get(&self, name: SessionName, done: OnSessions) {
        let value = self.sessions.lock().unwrap().get(&name).cloned();
        done(vec![value.map(|value| SharedSession { value, is_taken_for_good: false })]);
    }
}

fn describe(_: usize) -> impl Handler {
    |request: Request, responder: Responder| {
        let text = format!("early={}", request.peer.early_data);
        responder.send(Response::new(StatusCode::OK).with_body(text));
    }
}

fn config() -> Config {
    Config { early_data: EarlyData::SafeMethods, ..Config::default() }
}

fn sharing(store: &Arc<HeldStore>) -> Trust {
    let Trust { identity, client } = trust();
    Trust { identity: identity.with_shared_sessions(store.clone(), [7; 32]), client }
}

fn parked_now(bench: &Bench) -> u64 {
    bench.count(|stats| {
        stats.quic_handshakes_parked_now.value() + stats.tcp_handshakes_parked_now.value()
    })
}

type Outcome = Rc<RefCell<Option<Result<(Bytes, TlsSummary), Error>>>>;

/// Begins a connection and sends a request on it.
fn begin(bench: &Bench, protocol: Protocol, resumption: Resumption) -> Outcome {
    let outcome = Outcome::default();
    let slot = outcome.clone();
    let connecting = bench.connecting(protocol, resumption);
    bench.client.handle().spawn(async move {
        let ask = async {
            let mut connection = connecting.await?;
            let (_, body) = fetch(&mut connection, get("/")).await.unwrap_or_default();
            connection.handshake().await?;
            // With this response, the tickets have arrived.
            let _ = fetch(&mut connection, get("/")).await;
            Ok((body, connection.tls().unwrap()))
        };
        let result = ask.await;
        *slot.borrow_mut() = Some(result);
    });
    outcome
}

fn finish(bench: &mut Bench, outcome: &Outcome) -> Result<(Bytes, TlsSummary), Error> {
    bench.turn_until(|_| outcome.borrow().is_some());
    outcome.take().unwrap()
}

fn begin_and_finish(bench: &mut Bench, protocol: Protocol, resumption: Resumption) -> Bytes {
    let outcome = begin(bench, protocol, resumption);
    finish(bench, &outcome).unwrap().0
}

#[test]
fn session_of_another_node_gives_early_data_and_its_lookup_holds_up_no_other_client() {
    for protocol in PROTOCOLS {
        let store = Arc::new(HeldStore::default());
        let mut bench = Bench::with_group(&Group::new(1), &sharing(&store), &config(), describe);
        begin_and_finish(&mut bench, protocol, Resumption::Session);
        bench.restart(&config(), describe);
        let resumed = begin(&bench, protocol, Resumption::EarlyData);
        bench.turn_until(|_| store.waiting() == 1);
        assert_eq!(parked_now(&bench), 1);
        let other = begin_and_finish(&mut bench, protocol, Resumption::Off);
        assert_eq!(other, "early=false", "{protocol}");
        assert!(resumed.borrow().is_none(), "{protocol}");
        store.answer();
        let (body, tls) = finish(&mut bench, &resumed).unwrap();
        assert_eq!((body, tls.resumed), ("early=true".into(), true), "{protocol}");
        assert_eq!(tls.early_data_accepted, Some(true), "{protocol}");
        assert_eq!(bench.count(|stats| stats.early_data_accepted.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.sessions_taken.value()), 1, "{protocol}");
        assert_eq!(parked_now(&bench), 0, "{protocol}");
    }
}

#[test]
fn session_that_another_node_might_find_too_is_resumed_without_early_data() {
    for protocol in PROTOCOLS {
        let store = Arc::new(HeldStore { is_unsure: true, ..HeldStore::default() });
        let mut bench = Bench::with_group(&Group::new(1), &sharing(&store), &config(), describe);
        begin_and_finish(&mut bench, protocol, Resumption::Session);
        let resumed = begin(&bench, protocol, Resumption::EarlyData);
        bench.turn_until(|_| store.waiting() == 1);
        store.answer();
        let (body, tls) = finish(&mut bench, &resumed).unwrap();
        assert_eq!((body, tls.resumed), ("early=false".into(), true), "{protocol}");
        assert_eq!(tls.early_data_accepted, Some(false), "{protocol}");
    }
}

#[test]
fn unknown_session_costs_a_full_handshake() {
    for protocol in PROTOCOLS {
        let store = Arc::new(HeldStore::default());
        let mut bench = Bench::with_group(&Group::new(1), &sharing(&store), &config(), describe);
        begin_and_finish(&mut bench, protocol, Resumption::Session);
        store.sessions.lock().unwrap().clear();
        let outcome = begin(&bench, protocol, Resumption::EarlyData);
        bench.turn_until(|_| store.waiting() == 1);
        store.answer();
        let (body, tls) = finish(&mut bench, &outcome).unwrap();
        assert_eq!((body, tls.resumed), ("early=false".into(), false), "{protocol}");
        assert_eq!(bench.count(|stats| stats.sessions_unknown.value()), 1, "{protocol}");
    }
}

#[test]
fn store_that_never_answers_costs_the_handshake_and_nothing_else() {
    for protocol in PROTOCOLS {
        let store = Arc::new(HeldStore::default());
        let mut bench = Bench::with_group(&Group::new(1), &sharing(&store), &config(), describe);
        begin_and_finish(&mut bench, protocol, Resumption::Session);
        let _outcome = begin(&bench, protocol, Resumption::EarlyData);
        bench.turn_until(|_| store.waiting() == 1);
        bench.skip(Limits::default().handshake_timeout() + Duration::from_secs(1));
        bench.turn_until(|bench| parked_now(bench) == 0);
        assert_eq!(bench.count(|stats| stats.handshakes_timed_out.value()), 1, "{protocol}");
        // The late answer reaches nothing.
        store.answer();
        let other = begin_and_finish(&mut bench, protocol, Resumption::Off);
        assert_eq!(other, "early=false", "{protocol}");
    }
}

#[test]
fn session_that_cannot_wait_for_its_lookup_costs_a_full_handshake() {
    for protocol in PROTOCOLS {
        let store = Arc::new(HeldStore::default());
        let limits = Limits::default().with_parked_handshakes(1).unwrap();
        let limited = Config { limits, ..config() };
        let mut bench = Bench::with_group(&Group::new(1), &sharing(&store), &limited, describe);
        for _ in 0..2 {
            begin_and_finish(&mut bench, protocol, Resumption::Off);
        }
        begin_and_finish(&mut bench, protocol, Resumption::Session);
        let parked = begin(&bench, protocol, Resumption::EarlyData);
        bench.turn_until(|_| store.waiting() == 1);
        // The connection has brought several tickets.
        let other = begin(&bench, protocol, Resumption::EarlyData);
        let (body, tls) = finish(&mut bench, &other).unwrap();
        assert_eq!((body, tls.resumed), ("early=false".into(), false), "{protocol}");
        assert_eq!(bench.count(|stats| stats.parked_handshakes_refused.value()), 1, "{protocol}");
        store.answer();
        assert_eq!(finish(&mut bench, &parked).unwrap().0, "early=true", "{protocol}");
    }
}

#[test]
fn handshakes_beyond_the_limit_of_slow_signatures_are_refused() {
    for protocol in PROTOCOLS {
        let (trust, waiting) = slow_trust();
        let limits = Limits::default().with_parked_handshakes(1).unwrap();
        let limited = Config { limits, ..config() };
        let mut bench = Bench::with_group(&Group::new(1), &trust, &limited, describe);
        let parked = begin(&bench, protocol, Resumption::Off);
        let signature = next_signature(&mut bench, &waiting);
        let refused = begin(&bench, protocol, Resumption::Off);
        assert!(finish(&mut bench, &refused).is_err(), "{protocol}");
        assert!(bench.count(|stats| stats.parked_handshakes_refused.value()) > 0, "{protocol}");
        if protocol == Protocol::Http3 {
            // Its address was validated first.
            assert!(bench.count(|stats| stats.quic_retries_sent.value()) > 0);
        }
        signature.send(true).unwrap();
        assert!(finish(&mut bench, &parked).is_ok(), "{protocol}");
    }
}

/// The worker must not wait for a signature, however the ClientHello is cut into records.
#[test]
fn client_hello_in_several_records_waits_for_its_signature_elsewhere() {
    for cut in [1, 4, 60, 300] {
        let (identity, certificate, waiting) = slow_identity();
        let client = client(&certificate, pronghorn_engine::provider());
        let trust = Trust { identity, client: client.clone() };
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config(), describe);
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        let (header, content) = hello.split_first_chunk::<5>().unwrap();
        let mut socket = TcpStream::connect(bench.address).unwrap();
        socket.set_nodelay(true).unwrap();
        for part in [&content[..cut], &content[cut..]] {
            socket.write_all(&header[..3]).unwrap();
            socket.write_all(&(part.len() as u16).to_be_bytes()).unwrap();
            socket.write_all(part).unwrap();
            // The server reads them one after the other.
            (0..20).for_each(|_| bench.turn());
        }
        // Another thread waits for it: the worker goes on.
        let signature = next_signature(&mut bench, &waiting);
        signature.send(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut answer = [0; 1];
        bench.turn_until(|_| socket.peek(&mut answer).is_ok());
        assert_eq!(answer, [22], "a record of the handshake");
    }
}

/// A key that signs when the test allows it.
struct GatedKey {
    inner: Arc<dyn SigningKey>,
    signing: mpsc::Sender<mpsc::Sender<bool>>,
}

struct GatedSigner {
    inner: Box<dyn Signer>,
    signing: mpsc::Sender<mpsc::Sender<bool>>,
}

impl fmt::Debug for GatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatedKey").finish_non_exhaustive()
    }
}

impl fmt::Debug for GatedSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatedSigner").finish_non_exhaustive()
    }
}

impl SigningKey for GatedKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let inner = self.inner.choose_scheme(offered)?;
        Some(Box::new(GatedSigner { inner, signing: self.signing.clone() }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.inner.algorithm()
    }
}

impl Signer for GatedSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let (allow, allowed) = mpsc::channel();
        self.signing.send(allow).unwrap();
        if allowed.recv().unwrap_or(false) {
            self.inner.sign(message)
        } else {
            Err(SigningFailed("as the test wants".to_owned()).into())
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.inner.scheme()
    }
}

#[derive(Debug)]
struct OneKey(Arc<CertifiedKey>);

impl ResolvesServerCert for OneKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Keys for the name `localhost` are slow.
#[derive(Debug)]
struct LocalhostIsSlow;

impl SlowKeys for LocalhostIsSlow {
    fn is_slow(&self, server_name: Option<&str>) -> bool {
        server_name == Some("localhost")
    }
}

type Signatures = mpsc::Receiver<mpsc::Sender<bool>>;

/// Returns an identity with a slow key, its certificate, and where its signatures wait.
fn slow_identity() -> (Identity, CertificateDer<'static>, Signatures) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let inner = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let (signing, waiting) = mpsc::channel();
    let key = CertifiedKey::new(vec![certificate.clone()], Arc::new(GatedKey { inner, signing }));
    let identity = Identity::with_resolver(Arc::new(OneKey(Arc::new(key))))
        .unwrap()
        .with_slow_keys(Arc::new(LocalhostIsSlow));
    (identity, certificate, waiting)
}

/// Returns a client of such an identity, with other key exchange groups.
fn client(
    certificate: &CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn slow_trust() -> (Trust, Signatures) {
    let (identity, certificate, waiting) = slow_identity();
    let client = client(&certificate, pronghorn_engine::provider());
    (Trust { identity, client }, waiting)
}

/// Waits for the next signature that a handshake needs.
fn next_signature(bench: &mut Bench, waiting: &Signatures) -> mpsc::Sender<bool> {
    let mut next = None;
    bench.turn_until(|_| {
        next = waiting.try_recv().ok();
        next.is_some()
    });
    next.unwrap()
}

#[test]
fn slow_signature_holds_up_no_other_connection() {
    for protocol in PROTOCOLS {
        let (trust, waiting) = slow_trust();
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config(), describe);
        let first = bench.connecting(protocol, Resumption::Off);
        let connected = Rc::new(RefCell::new(None));
        let slot = connected.clone();
        bench.client.handle().spawn(async move {
            let connection = first.await;
            *slot.borrow_mut() = Some(connection);
        });
        next_signature(&mut bench, &waiting).send(true).unwrap();
        bench.turn_until(|_| connected.borrow().is_some());
        let mut first = connected.take().unwrap().unwrap();
        let second = begin(&bench, protocol, Resumption::Off);
        let signature = next_signature(&mut bench, &waiting);
        let third = begin(&bench, protocol, Resumption::Off);
        let other = next_signature(&mut bench, &waiting);
        let body = bench.run(async move { fetch(&mut first, get("/")).await.unwrap().1 });
        assert_eq!(body, "early=false", "{protocol}");
        assert_eq!(parked_now(&bench), 2, "{protocol}");
        other.send(true).unwrap();
        assert!(finish(&mut bench, &third).is_ok(), "{protocol}");
        assert!(second.borrow().is_none(), "{protocol}");
        signature.send(true).unwrap();
        assert!(finish(&mut bench, &second).is_ok(), "{protocol}");
    }
}

#[test]
fn failed_signature_fails_its_handshake_alone() {
    for protocol in PROTOCOLS {
        let (trust, waiting) = slow_trust();
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config(), describe);
        let outcome = begin(&bench, protocol, Resumption::Off);
        next_signature(&mut bench, &waiting).send(false).unwrap();
        let error = finish(&mut bench, &outcome).unwrap_err();
        let named = ["InternalError", "error 80"];
        let text = error.to_string();
        assert!(named.iter().any(|alert| text.contains(alert)), "{protocol}: {text}");
        let outcome = begin(&bench, protocol, Resumption::Off);
        next_signature(&mut bench, &waiting).send(true).unwrap();
        assert!(finish(&mut bench, &outcome).is_ok(), "{protocol}");
    }
}

/// A group that servers do not support: a client that prefers it gets a HelloRetryRequest.
#[derive(Debug)]
struct UnknownGroup;

impl SupportedKxGroup for UnknownGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        Ok(Box::new(Self))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X448
    }
}

impl ActiveKeyExchange for UnknownGroup {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, rustls::Error> {
        Err(rustls::Error::General("no server has this group".to_owned()))
    }

    fn pub_key(&self) -> &[u8] {
        &[7; 56]
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X448
    }
}

#[test]
fn second_client_hello_waits_for_its_signature_too() {
    for protocol in PROTOCOLS {
        let (identity, certificate, waiting) = slow_identity();
        let mut provider = CryptoProvider::clone(&pronghorn_engine::provider());
        provider.kx_groups.insert(0, &UnknownGroup);
        let trust = Trust { identity, client: client(&certificate, Arc::new(provider)) };
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config(), describe);
        let outcome = begin(&bench, protocol, Resumption::Off);
        let signature = next_signature(&mut bench, &waiting);
        assert!(outcome.borrow().is_none());
        signature.send(true).unwrap();
        let (_, tls) = finish(&mut bench, &outcome).unwrap();
        assert!(!tls.resumed, "{protocol}");
    }
}
