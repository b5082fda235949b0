//! A server and a client worker on one thread, driven directly, on a clock that the test can
//! advance.

use std::cell::RefCell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_engine::{
    Bind, Body, Claim, Config, Connection, Connector, Directory, Error, Group, Handler, Identity,
    Listener, Protocol, Responder, Response, Resumption, Sessions, Stats, Target, Transports,
    Worker,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum real time of any test. It only decides when a hung test is abandoned.
const PATIENCE: Duration = Duration::from_secs(60);
/// Duration of a turn of all workers by their clock.
const TURN: Duration = Duration::from_micros(100);

pub(crate) struct Trust {
    pub(crate) identity: Identity,
    pub(crate) client: rustls::ClientConfig,
}

/// Returns a self-signed certificate for `localhost`, and a client that trusts it.
pub(crate) fn trust() -> Trust {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    trust_in(
        CertificateDer::from(made.cert),
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
    )
}

pub(crate) fn trust_in(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Trust {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(pronghorn_engine::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Trust { identity: Identity::new(vec![certificate], key).unwrap(), client }
}

/// Workers that share one thread and one clock.
pub(crate) struct Bench {
    pub(crate) servers: Vec<Worker>,
    pub(crate) client: Worker,
    pub(crate) connector: Connector,
    pub(crate) address: SocketAddr,
    identity: Identity,
    pub(crate) stats: Vec<Arc<Stats>>,
    began: Instant,
    /// Time on the workers' clock since then: a busy machine delays no test.
    elapsed: Duration,
}

impl Bench {
    pub(crate) fn new<H: Handler>(
        servers: usize,
        config: &Config,
        handler: impl Fn(usize) -> H,
    ) -> Self {
        Self::with_group(&Group::new(servers), &trust(), config, handler)
    }

    /// Creates servers of `group` with the certificate of `trust`.
    pub(crate) fn with_group<H: Handler>(
        group: &Group,
        trust: &Trust,
        config: &Config,
        handler: impl Fn(usize) -> H,
    ) -> Self {
        Self::with_client(group, trust, config, Config::default(), handler)
    }

    /// Creates such servers, and a client with its own configuration.
    pub(crate) fn with_client<H: Handler>(
        group: &Group,
        trust: &Trust,
        config: &Config,
        client: Config,
        handler: impl Fn(usize) -> H,
    ) -> Self {
        let refuse = |_, responder: Responder| drop(responder);
        let mut client = Worker::new(0, &Group::new(1), client, refuse).unwrap();
        let connector = client.connector(&trust.client).unwrap();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let identity = trust.identity.clone();
        let (servers, stats) = (Vec::with_capacity(group.size()), Vec::new());
        let mut bench = Self {
            servers,
            client,
            connector,
            address,
            identity,
            stats,
            began: Instant::now(),
            elapsed: Duration::ZERO,
        };
        bench.start(group, config, handler);
        bench
    }

    fn start<H: Handler>(&mut self, group: &Group, config: &Config, handler: impl Fn(usize) -> H) {
        let listener = Listener::secure(self.address, group.size(), config.congestion).unwrap();
        self.address = listener.address();
        for (number, sockets) in listener.into_sockets().into_iter().enumerate() {
            let mut worker = Worker::new(number, group, config.clone(), handler(number)).unwrap();
            worker.listen(sockets, Some(&self.identity)).unwrap();
            self.servers.push(worker);
        }
        self.stats = group.stats().cloned().collect();
    }

    /// Creates a bench of servers that share the port as processes do, each with its own group;
    /// none at first.
    pub(crate) fn of_processes(trust: &Trust) -> Self {
        let mut bench = Self::with_group(&Group::new(1), trust, &Config::default(), hello);
        bench.servers.clear();
        bench.stats.clear();
        bench.address.set_port(0);
        bench
    }

    /// Adds a process to those of `directory`. The claim must be dropped after its server.
    pub(crate) fn join(&mut self, directory: &Arc<Directory>) -> Claim {
        let joining = directory.join().unwrap();
        let bind = Bind {
            transports: Transports::Secure,
            congestion: None,
            reuse_port: joining.has_members(),
        };
        let listener = Listener::bind(self.address, 1, bind).unwrap();
        self.address = listener.address();
        let group = Group::shared(directory);
        let claim = group.claim(&joining).unwrap();
        let mut worker = Worker::new(claim.number(), &group, Config::default(), hello(0)).unwrap();
        for sockets in listener.into_sockets() {
            worker.listen(sockets, Some(&self.identity)).unwrap();
        }
        self.servers.push(worker);
        self.stats.push(group.stats_of(claim.number()).clone());
        claim
    }

    /// Crashes the servers, and starts others on the same port with the same certificate and no
    /// state.
    pub(crate) fn restart<H: Handler>(&mut self, config: &Config, handler: impl Fn(usize) -> H) {
        self.restart_as(&Group::new(self.servers.len()), config, handler);
    }

    /// Restarts the servers as `group`.
    pub(crate) fn restart_as<H: Handler>(
        &mut self,
        group: &Group,
        config: &Config,
        handler: impl Fn(usize) -> H,
    ) {
        self.identity = self.identity.clone().with_sessions(Sessions::new(&config.limits));
        self.servers.clear();
        self.start(group, config, handler);
    }

    /// Replaces the servers on the same port, with the same certificate and sessions.
    pub(crate) fn replace<H: Handler>(&mut self, config: &Config, handler: impl Fn(usize) -> H) {
        let group = Group::new(self.servers.len());
        self.servers.clear();
        self.start(&group, config, handler);
    }

    /// Returns a gauge of the servers' session store.
    pub(crate) fn session_count(&self, wanted: &str) -> u64 {
        self.identity
            .sessions()
            .unwrap()
            .values()
            .into_iter()
            .find(|(name, _)| *name == wanted)
            .unwrap()
            .1
    }

    /// Advances the clock of all workers.
    pub(crate) fn skip(&mut self, duration: Duration) {
        self.elapsed += duration;
    }

    /// Returns the workers' running time by their clock.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    pub(crate) fn now(&self) -> Instant {
        self.began + self.elapsed
    }

    /// Runs one turn of every worker.
    pub(crate) fn turn(&mut self) {
        assert!(self.began.elapsed() < PATIENCE, "timed out");
        self.elapsed += TURN;
        let now = self.now();
        for server in &mut self.servers {
            server.turn(now).unwrap();
        }
        self.client.turn(now).unwrap();
    }

    /// Runs turns until `done` returns true.
    pub(crate) fn turn_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        while !done(self) {
            self.turn();
        }
    }

    /// Runs `future` on the client's worker.
    pub(crate) fn run<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.client.handle().spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        self.turn_until(|_| result.borrow().is_some());
        result.take().unwrap()
    }

    pub(crate) fn connect(&mut self, protocol: Protocol) -> Connection {
        self.connect_to(protocol, self.address)
    }

    /// Returns a future that connects to the server, to be awaited on the client's worker.
    pub(crate) fn connecting(
        &self,
        protocol: Protocol,
        resumption: Resumption,
    ) -> impl Future<Output = Result<Connection, Error>> + 'static {
        let connector = self.connector.clone();
        let target = Target {
            remote: self.address,
            server_name: "localhost".to_owned(),
            protocol: Some(protocol),
            secure: true,
            resumption,
        };
        async move { connector.connect(&target).await }
    }

    pub(crate) fn connect_to(&mut self, protocol: Protocol, remote: SocketAddr) -> Connection {
        self.try_connect_to(protocol, remote).unwrap()
    }

    pub(crate) fn try_connect(&mut self, protocol: Protocol) -> Result<Connection, Error> {
        self.try_connect_to(protocol, self.address)
    }

    fn try_connect_to(
        &mut self,
        protocol: Protocol,
        remote: SocketAddr,
    ) -> Result<Connection, Error> {
        let connector = self.connector.clone();
        let target = Target {
            remote,
            server_name: "localhost".to_owned(),
            protocol: Some(protocol),
            secure: true,
            resumption: Resumption::default(),
        };
        self.run(async move { connector.connect(&target).await })
    }

    /// Sums a counter over the servers.
    pub(crate) fn count(&self, counter: impl Fn(&Stats) -> u64) -> u64 {
        self.stats.iter().map(|stats| counter(stats)).sum()
    }
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(format!("https://localhost{path}")).body(Body::empty()).unwrap()
}

/// Sends a request and reads the whole response.
pub(crate) async fn fetch(
    connection: &mut Connection,
    request: Request<Body>,
) -> Result<(StatusCode, Bytes), String> {
    let response = connection.send(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
    Ok((status, body.to_bytes()))
}

/// Answers every request with `hello`.
pub(crate) fn hello(_: usize) -> impl Handler {
    |_, responder: Responder| responder.send(Response::new(StatusCode::OK).with_body("hello"))
}

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];

/// A body that fails at once.
pub(crate) struct Failing;

impl http_body::Body for Failing {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(Some(Err(std::io::Error::other("as planned"))))
    }
}
