//! The builder.

use std::future::Future;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use http::HeaderValue;
use pronghorn_engine::{AltSvc, BodyError, Config, Congestion, EarlyData, Group, Identity, Limits, Qlog, Secret, Workers};
use tower_service::Service;

use crate::failure::{Failure, Failures, Hook};
use crate::handler::Tower;
use crate::parts::{Certificate, Listen, bind, load};
use crate::peer::roomy;
use crate::running::{At, LocalAddress, Running, Signal};
use crate::{Body, Error};

/// How long a shutdown waits for what runs, unless it is told otherwise.
const GRACE: Duration = Duration::from_secs(10);

/// A server that is to be started: where it listens and how, then [`Server::serve`] with what answers.
///
/// Nothing is bound or read before it starts. What is wrong is told then, and the error says what to do about it.
///
/// ```
/// use pronghorn_server::{Body, Server};
/// # use std::convert::Infallible;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), pronghorn_server::Error> {
/// # let home = tempfile::tempdir().unwrap();
/// let hello = tower::service_fn(|_: http::Request<Body>| async { Ok::<_, Infallible>(http::Response::new(Body::from("hello\n"))) });
/// let server = Server::new().listen("127.0.0.1:0").development_certificate_in(home.path()).start(hello)?;
/// println!("listening on https://{}", server.local_addresses()[0].address);
/// server.handle().shut_down(std::time::Duration::ZERO);
/// server.finished().await
/// # }
/// ```
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    listeners: Vec<Listen>,
    certificate: Certificate,
    workers: Option<usize>,
    config: Config,
    udp_buffer_bytes: Option<usize>,
    secret: Option<Secret>,
    grace: Duration,
    signal: Option<Signal>,
    qlog: Option<PathBuf>,
    on_failure: Option<Hook>,
    redirects: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A server without an address, with the engine's defaults: they are safe on the open internet.
    ///
    /// ```
    /// let server = pronghorn_server::Server::new().listen("[::]:8443");
    /// # let _ = server;
    /// ```
    pub fn new() -> Self {
        Self {
            listeners: Vec::new(),
            certificate: Certificate::None,
            workers: None,
            config: Config::default(),
            udp_buffer_bytes: None,
            secret: None,
            grace: GRACE,
            signal: None,
            qlog: None,
            on_failure: None,
            redirects: false,
        }
    }

    /// Listens on this address with TLS: HTTP/1.1 and HTTP/2 on the TCP port, HTTP/3 on the UDP port of the same number. May be called
    /// more than once. `[::]` is every address, IPv4 too; port 0 is any port.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let everywhere = Server::new().listen("[::]:443");
    /// let here = Server::new().listen("127.0.0.1:8443").listen("[::1]:8443");
    /// # let _ = (everywhere, here);
    /// ```
    pub fn listen(self, address: impl ToSocketAddrs + std::fmt::Debug) -> Self {
        self.add(&address, true)
    }

    /// Listens on this address in clear text, as behind something that ends TLS, or to redirect: for HTTP/1.1, and for HTTP/2 with clients
    /// that begin with it (see [`Server::http2_prior_knowledge`]). May be called more than once.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").listen_clear("[::]:80");
    /// # let _ = server;
    /// ```
    pub fn listen_clear(self, address: impl ToSocketAddrs + std::fmt::Debug) -> Self {
        self.add(&address, false)
    }

    /// Answers requests in clear text with a redirect (308) to the same target over HTTPS, on the port of the first address with TLS; the
    /// service sees none of them.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").listen_clear("[::]:80").redirect_to_https();
    /// # let _ = server;
    /// ```
    pub fn redirect_to_https(mut self) -> Self {
        self.redirects = true;
        self
    }

    fn add(mut self, address: &(impl ToSocketAddrs + std::fmt::Debug), secure: bool) -> Self {
        let name = format!("{address:?}").trim_matches('"').to_owned();
        let mut addresses = address.to_socket_addrs().map(Vec::from_iter);
        if let Ok(addresses) = &mut addresses {
            addresses.dedup();
        }
        self.listeners.push(Listen { name, addresses, secure });
        self
    }

    /// The certificate chain, the server's own first, and its key, both in PEM form.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").certificate_files("/etc/ssl/site/fullchain.pem", "/etc/ssl/site/key.pem");
    /// # let _ = server;
    /// ```
    pub fn certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Certificate::Files(chain.into(), key.into());
        self
    }

    /// The same as text, as it comes out of a store of secrets.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// # let (chain, key) = ("", "");
    /// let server = Server::new().listen("[::]:443").certificate_pem(chain, key);
    /// # let _ = server;
    /// ```
    pub fn certificate_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.certificate = Certificate::Pem(chain.into(), key.into());
        self
    }

    /// A certificate and key that are in memory already, with the sessions that may be resumed with them.
    ///
    /// ```
    /// # use pronghorn_server::{Identity, Server};
    /// use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    ///
    /// fn server(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Server, rustls::Error> {
    ///     Ok(Server::new().listen("[::]:443").identity(Identity::new(chain, key)?))
    /// }
    /// # let _ = server;
    /// ```
    pub fn identity(mut self, identity: Identity) -> Self {
        self.certificate = Certificate::Identity(identity);
        self
    }

    /// A self-signed certificate for `localhost`, made when it is first needed and kept where the program `pronghorn` keeps it, in the
    /// user's data folder. Browsers warn of it; [`Running::spki_sha256`] is what Chromium takes to be content.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("localhost:8443").development_certificate();
    /// # let _ = server;
    /// ```
    #[cfg(feature = "development-certificate")]
    pub fn development_certificate(mut self) -> Self {
        self.certificate = Certificate::Development(None);
        self
    }

    /// The same, kept in this folder.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("localhost:8443").development_certificate_in("target/certificate");
    /// # let _ = server;
    /// ```
    #[cfg(feature = "development-certificate")]
    pub fn development_certificate_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.certificate = Certificate::Development(Some(folder.into()));
        self
    }

    /// Threads, each with its own sockets, connections and tokio runtime; 256 at the most. Default: one for each core.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").workers(4);
    /// # let _ = server;
    /// ```
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// What clients may take: connections, bytes, time. docs/limits.md has all of them, with their defaults.
    ///
    /// ```
    /// # use pronghorn_server::{Limits, Server};
    /// let limits = Limits::default().with_connections(5_000)?.with_request_body_bytes(1 << 20)?;
    /// let server = Server::new().listen("[::]:443").limits(limits);
    /// # let _ = server;
    /// # Ok::<(), pronghorn_server::LimitError>(())
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// The congestion controller for QUIC and TCP. Default: CUBIC over QUIC, over TCP what the system is set to.
    ///
    /// ```
    /// # use pronghorn_server::{Congestion, Server};
    /// let server = Server::new().listen("[::]:443").congestion(Congestion::NewReno);
    /// # let _ = server;
    /// ```
    pub fn congestion(mut self, congestion: Congestion) -> Self {
        self.config.congestion = Some(congestion);
        self
    }

    /// What becomes of requests that come before the handshake is done (0-RTT). Default: those with a safe method are answered, others
    /// get 425 and come again.
    ///
    /// ```
    /// # use pronghorn_server::{EarlyData, Server};
    /// let server = Server::new().listen("[::]:443").early_data(EarlyData::Off);
    /// # let _ = server;
    /// ```
    pub fn early_data(mut self, policy: EarlyData) -> Self {
        self.config.early_data = policy;
        self
    }

    /// Whether addresses of [`Server::listen_clear`] speak HTTP/2 with clients that begin with it, without asking (RFC 9113, section 3.3), as
    /// balancers with gRPC behind them do. `Upgrade: h2c` asks in vain. Default: yes.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen_clear("[::]:80").http2_prior_knowledge(false);
    /// # let _ = server;
    /// ```
    pub fn http2_prior_knowledge(mut self, is_spoken: bool) -> Self {
        self.config.http2_prior_knowledge = is_spoken;
        self
    }

    /// What responses say of HTTP/3, unless the application says it itself. Default: that it is on the same port.
    ///
    /// ```
    /// # use pronghorn_server::{AltSvc, Server};
    /// use http::HeaderValue;
    ///
    /// // Port 443 is forwarded to this one.
    /// let server = Server::new().listen("[::]:8443").alt_svc(AltSvc::Value(HeaderValue::from_static("h3=\":443\"; ma=3600")));
    /// # let _ = server;
    /// ```
    pub fn alt_svc(mut self, alt_svc: AltSvc) -> Self {
        self.config.alt_svc = alt_svc;
        self
    }

    /// The field `server` of responses in which the application gives none. Default: there is none.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").server_name(http::HeaderValue::from_static("example"));
    /// # let _ = server;
    /// ```
    pub fn server_name(mut self, name: HeaderValue) -> Self {
        self.config.server = Some(name);
        self
    }

    /// Offers WebTransport over HTTP/3: requests for a session have a [`WebTransportUpgrade`](crate::WebTransportUpgrade) among their extensions.
    /// Every connection pays for the offer with some 30 bytes, so it is off by default. docs/webtransport.md says what is spoken, and what
    /// bounds it.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").webtransport();
    /// # let _ = server;
    /// ```
    pub fn webtransport(mut self) -> Self {
        self.config.webtransport = true;
        self
    }

    /// Writes a qlog file for each QUIC connection into this folder. docs/qlog.md says what to do with them.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("localhost:8443").qlog("target/qlog");
    /// # let _ = server;
    /// ```
    pub fn qlog(mut self, folder: impl Into<PathBuf>) -> Self {
        self.qlog = Some(folder.into());
        self
    }

    /// Calls `on_failure` when the service gives an error instead of a response, and when the body of a response does, or one of them
    /// panics ([`Panicked`](crate::Panicked)): the client learns of none of them why, and gets 500 or a response that is cut off. It runs on
    /// the worker's thread and must not block. The counters `service_errors` and `body_errors` of [`Stats`](crate::Stats) count the errors,
    /// and `handler_panics` the panics, with or without it. Default: nothing is called.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").on_failure(|failure| eprintln!("{failure}"));
    /// # let _ = server;
    /// ```
    pub fn on_failure(mut self, on_failure: impl Fn(&Failure<'_>) + Send + Sync + 'static) -> Self {
        self.on_failure = Some(Box::new(on_failure));
        self
    }

    /// Size of the kernel's buffers for each UDP socket, in either direction, as far as the kernel grants it. Default: 4 MiB.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").udp_buffer_bytes(1 << 20);
    /// # let _ = server;
    /// ```
    pub fn udp_buffer_bytes(mut self, bytes: usize) -> Self {
        self.udp_buffer_bytes = Some(bytes);
        self
    }

    /// What connection IDs and tokens are derived from. Started anew with the same secret and as many workers, a server ends connections
    /// of its predecessor at once instead of leaving clients to wait. Default: a random one.
    ///
    /// ```
    /// # use pronghorn_server::{Secret, Server};
    /// # fn kept() -> [u8; Secret::BYTES] { [7; Secret::BYTES] }
    /// let server = Server::new().listen("[::]:443").secret(Secret::new(kept()));
    /// # let _ = server;
    /// ```
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Ends gracefully when `signal` is ready: clients are told, what runs is finished within the [grace period](Server::grace_period).
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").with_graceful_shutdown(async {
    ///     // Without signals, only Handle::shut_down ends it.
    ///     let _ = tokio::signal::ctrl_c().await;
    /// });
    /// # let _ = server;
    /// ```
    pub fn with_graceful_shutdown(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.signal = Some(Box::pin(signal));
        self
    }

    /// How long a graceful shutdown waits for what runs; what is left then is dropped. Default: 10 seconds.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// use std::time::Duration;
    ///
    /// let server = Server::new().listen("[::]:443").grace_period(Duration::from_secs(60));
    /// # let _ = server;
    /// ```
    pub fn grace_period(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Serves `service` until the server is told to end, or fails.
    ///
    /// Each worker has a clone of the service, and asks a clone of that for each request. Its futures stay on their worker, so they need
    /// not be `Send`; inside of them `tokio::spawn`, `tokio::time` and `spawn_blocking` are those of the worker's own runtime. What blocks
    /// holds all connections of its worker: `spawn_blocking` is for that.
    ///
    /// ```no_run
    /// # #[cfg(feature = "axum")]
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), pronghorn_server::Error> {
    /// # use pronghorn_server::Server;
    /// let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" }));
    /// Server::new().listen("[::]:8443").development_certificate().serve(app).await
    /// # }
    /// # #[cfg(not(feature = "axum"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// When it cannot start, or a worker fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the server; what runs is not waited for.
    pub async fn serve<S, B>(self, service: S) -> Result<(), Error>
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
        S::Error: Into<BodyError>,
        S::Future: 'static,
        B: http_body::Body + 'static,
        B::Error: Into<BodyError>,
    {
        self.start(service)?.finished().await
    }

    /// Starts to serve `service`, and returns when the addresses are bound. Needs no runtime.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use pronghorn_server::{Body, Server};
    ///
    /// let hello = tower::service_fn(|_: http::Request<Body>| async { Ok::<_, Infallible>(http::Response::new(Body::from("hello"))) });
    /// let running = Server::new().listen_clear("127.0.0.1:0").workers(1).start(hello)?;
    /// println!("http://{}", running.local_addresses()[0].address);
    /// running.handle().shut_down(Duration::ZERO);
    /// # Ok::<(), pronghorn_server::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When an address, the certificate or something else is not as it has to be; the message says what to do about it.
    pub fn start<S, B>(self, service: S) -> Result<Running, Error>
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
        S::Error: Into<BodyError>,
        S::Future: 'static,
        B: http_body::Body + 'static,
        B::Error: Into<BodyError>,
    {
        let Self { listeners, certificate, workers, mut config, udp_buffer_bytes, secret, grace, signal, qlog, on_failure, redirects } =
            self;
        let count = workers.unwrap_or_else(|| available_parallelism().map_or(1, usize::from)).clamp(1, 256);
        let secure = listeners.iter().any(|listen| listen.secure);
        // All that is wrong is told at once.
        let mut errors = Vec::new();
        let loaded = secure.then(|| load(certificate).map_err(|error| errors.push(error)).ok()).flatten();
        if redirects && !secure {
            errors.push(Error::NowhereToRedirect);
        }
        let listeners = bind(listeners, count, config.congestion, &mut errors);
        if let Some(folder) = qlog {
            match Qlog::to_folder(&folder) {
                Ok(qlog) => config.qlog = Some(qlog),
                Err(source) => errors.push(Error::Qlog { folder, source }),
            }
        }
        Error::all(errors)?;
        if let Some(bytes) = udp_buffer_bytes {
            listeners.iter().try_for_each(|listener| listener.set_udp_buffers(bytes).map(drop)).map_err(Error::Start)?;
        }
        let addresses: Vec<_> =
            listeners.iter().map(|listener| LocalAddress { address: listener.address(), secure: listener.is_secure() }).collect();
        let group = Group::with_secret(count, &secret.unwrap_or_else(Secret::random));
        let (identity, spki_sha256) = loaded.map_or((None, None), |(identity, spki)| (Some(identity), spki));
        // Cloned by one worker at a time, so that it need not be `Sync`.
        let service = Mutex::new(service);
        let webtransport = config.webtransport;
        let failures = Failures::new(on_failure);
        let watched = failures.clone();
        let redirect_to = addresses.iter().find(|at| at.secure && redirects).map(|at| at.address.port());
        let handler = move |_| {
            let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Tower { service, webtransport, redirect_to, room: roomy(), failures: watched.clone() }
        };
        let workers = Workers::start(group, listeners, identity.as_ref(), &config, handler).map_err(Error::Start)?;
        Ok(Running::new(workers, config.qlog, At { addresses, spki_sha256, failures }, grace, signal))
    }
}
