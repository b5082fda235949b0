//! The server builder.

use std::future::Future;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use http::HeaderValue;
use pronghorn_engine::{
    AltSvc, BodyError, Config, Congestion, EarlyData, Group, Identity, Limits, Qlog, Secret,
    Workers,
};
use tower_service::Service;

#[cfg(feature = "acme")]
use crate::acme::PendingOrders;
use crate::failure::{Failure, Failures, Hook};
use crate::handler::Tower;
use crate::peer::preallocated_extensions;
use crate::running::{LocalAddress, Running, Signal, Started};
use crate::setup::{Certificate, ListenAddress, bind, load};
use crate::{Body, Error};

/// Maximum number of workers: their number is one byte of a connection ID.
const MAX_WORKERS: usize = 256;

/// Default grace period of a graceful shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// A server builder: configure addresses and options, then pass a service to [`Server::serve`].
///
/// Nothing is bound or read before the server starts. Configuration errors are reported then, and
/// each message says what to do.
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
    listeners: Vec<ListenAddress>,
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
    /// Returns a server without addresses and with the engine's defaults, which are safe on the
    /// open internet.
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

    /// Listens on this address with TLS: HTTP/1.1 and HTTP/2 on the TCP port, HTTP/3 on the UDP
    /// port of the same number.
    ///
    /// Can be called more than once. `[::]` means all addresses, IPv4 included; port 0 means any
    /// free port.
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

    /// Listens on this address without TLS, for example behind a TLS terminator or to redirect to
    /// HTTPS.
    ///
    /// Cleartext listeners serve HTTP/1.1, and HTTP/2 with prior knowledge (see
    /// [`Server::http2_prior_knowledge`]). Can be called more than once.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").listen_clear("[::]:80");
    /// # let _ = server;
    /// ```
    pub fn listen_clear(self, address: impl ToSocketAddrs + std::fmt::Debug) -> Self {
        self.add(&address, false)
    }

    /// Redirects cleartext requests (308) to the same target over HTTPS, on the port of the first
    /// TLS address. The service does not receive these requests.
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
        self.listeners.push(ListenAddress { name, addresses, secure });
        self
    }

    /// Sets the certificate chain, leaf certificate first, and its key, both as PEM files.
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

    /// Sets the certificate chain and its key as PEM text, for example from a secret store.
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

    /// Sets a certificate and key that are already in memory, together with their TLS session
    /// cache.
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

    /// Uses a self-signed certificate for `localhost`.
    ///
    /// The certificate is created on first use and stored in the user's data folder, where the
    /// `pronghorn` program stores it too. Browsers show a warning; Chromium accepts the certificate
    /// if it is started with [`Running::spki_sha256`].
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

    /// Uses a self-signed certificate for `localhost`, stored in this folder.
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

    /// Orders certificates from an ACME authority, such as Let's Encrypt, and renews them. The
    /// certificates cannot be replaced while the server runs
    /// ([`Handle::set_identity`](crate::Handle::set_identity)).
    ///
    /// ```
    /// # use pronghorn_server::{Acme, Server};
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").terms_agreed();
    /// let server = Server::new().listen("[::]:443").acme(acme);
    /// # let _ = server;
    /// ```
    #[cfg(feature = "acme")]
    pub fn acme(mut self, acme: crate::Acme) -> Self {
        self.certificate = Certificate::Acme(Box::new(acme));
        self
    }

    /// Sets the number of worker threads, 1 to 256. Each worker has its own sockets, connections
    /// and tokio runtime. Default: one per core.
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

    /// Sets the limits on connections, bytes and time that clients may use. docs/limits.md lists
    /// all of them with their defaults.
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

    /// Sets the congestion controller for QUIC and TCP. Default: CUBIC for QUIC, the system's
    /// setting for TCP.
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

    /// Sets how requests in early data (0-RTT) are handled. Default: requests with a safe method
    /// are served, others get 425 and are repeated by the client after the handshake. With
    /// [`EarlyData::Hold`] the others wait until the handshake is complete.
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

    /// Sets whether cleartext addresses accept HTTP/2 with prior knowledge (RFC 9113, section 3.3),
    /// which load balancers use for gRPC backends. `Upgrade: h2c` is never accepted. Default: yes.
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

    /// Sets the `alt-svc` field of responses, which advertises HTTP/3, unless the application sets
    /// it. Default: HTTP/3 on the same port.
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

    /// Sets the `server` field of responses in which the application sets none. Default: no field.
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").server_header(http::HeaderValue::from_static("example"));
    /// # let _ = server;
    /// ```
    pub fn server_header(mut self, name: HeaderValue) -> Self {
        self.config.server = Some(name);
        self
    }

    /// Offers WebTransport over HTTP/3.
    ///
    /// Session requests carry a [`WebTransportUpgrade`](crate::WebTransportUpgrade) extension. The
    /// offer costs every connection some 30 bytes, so it is off by default. docs/webtransport.md
    /// describes the supported draft and the limits.
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

    /// Writes a qlog file for each QUIC connection to this folder. docs/qlog.md describes how to
    /// use the files.
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

    /// Calls `on_failure` when the service or a response body returns an error or panics (see
    /// [`Panicked`](crate::Panicked)).
    ///
    /// The client does not learn the cause: it receives 500 or a truncated response. The hook runs
    /// on the worker's thread and must not block. The counters `service_errors` and `body_errors`
    /// of [`Stats`](crate::Stats) count errors, and `handler_panics` counts panics, with or without
    /// a hook. Default: no hook.
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

    /// Sets the size of the kernel's send and receive buffers for each UDP socket, as far as the
    /// kernel permits. Default: 4 MiB.
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

    /// Sets the secret from which connection IDs and tokens are derived.
    ///
    /// A server that restarts with the same secret and the same number of workers resets
    /// connections of its predecessor immediately, instead of letting clients time out. Default:
    /// random.
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

    /// Shuts down gracefully when `signal` completes. Clients are notified, and requests in
    /// progress may finish within the [grace period](Server::grace_period).
    ///
    /// ```
    /// # use pronghorn_server::Server;
    /// let server = Server::new().listen("[::]:443").with_graceful_shutdown(async {
    ///     // Without signals, only Handle::shut_down ends it.
    ///     let _ = tokio::signal::ctrl_c().await;
    /// });
    /// # let _ = server;
    /// ```
    pub fn with_graceful_shutdown(
        mut self,
        signal: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        self.signal = Some(Box::pin(signal));
        self
    }

    /// Sets how long a graceful shutdown waits for requests in progress. Requests that take longer
    /// are dropped. Default: 10 seconds.
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

    /// Serves `service` until the server shuts down or fails.
    ///
    /// Each worker has a clone of the service and calls a new clone for each request. The futures
    /// stay on their worker and need not be `Send`. Inside them, `tokio::spawn`, `tokio::time` and
    /// `spawn_blocking` use the worker's own runtime. Blocking code stalls all connections of its
    /// worker; use `spawn_blocking` for it.
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
    /// Returns an error if the server cannot start or a worker fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the server without waiting for requests in progress.
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

    /// Starts serving `service` and returns once all addresses are bound. Needs no runtime.
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
    /// Returns an error if an address, the certificate or another option is invalid; the message
    /// says what to do.
    pub fn start<S, B>(self, service: S) -> Result<Running, Error>
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
        S::Error: Into<BodyError>,
        S::Future: 'static,
        B: http_body::Body + 'static,
        B::Error: Into<BodyError>,
    {
        let Self {
            listeners,
            certificate,
            workers,
            mut config,
            udp_buffer_bytes,
            secret,
            grace,
            signal,
            qlog,
            on_failure,
            redirects,
        } = self;
        let count = workers
            .unwrap_or_else(|| available_parallelism().map_or(1, usize::from).min(MAX_WORKERS));
        let secure = listeners.iter().any(|listen| listen.secure);
        // All configuration errors are reported together.
        let mut errors = Vec::new();
        if !(1..=MAX_WORKERS).contains(&count) {
            errors.push(Error::Workers(count));
        }
        #[cfg(feature = "acme")]
        let is_acme = matches!(certificate, Certificate::Acme(_));
        let has_clear = listeners.iter().any(|listen| !listen.secure);
        let loaded = secure
            .then(|| load(certificate, has_clear).map_err(|error| errors.push(error)).ok())
            .flatten();
        #[cfg(feature = "acme")]
        if !secure && is_acme {
            errors.push(Error::AcmeWithoutTls);
        }
        if redirects && !secure {
            errors.push(Error::NowhereToRedirect);
        }
        if redirects && !has_clear {
            errors.push(Error::NothingToRedirect);
        }
        if config.webtransport && !secure {
            errors.push(Error::WebTransportWithoutTls);
        }
        let workers = count.clamp(1, MAX_WORKERS);
        let listeners = bind(listeners, workers, config.congestion, &mut errors);
        if let Some(folder) = qlog {
            match Qlog::to_directory(&folder) {
                Ok(qlog) => config.qlog = Some(qlog),
                Err(source) => errors.push(Error::Qlog { folder, source }),
            }
        }
        Error::all(errors)?;
        if let Some(bytes) = udp_buffer_bytes {
            listeners
                .iter()
                .try_for_each(|listener| listener.set_udp_buffers(bytes).map(drop))
                .map_err(Error::Start)?;
        }
        let addresses: Vec<_> = listeners
            .iter()
            .map(|listener| LocalAddress {
                address: listener.address(),
                secure: listener.is_secure(),
            })
            .collect();
        let group = Group::with_secret(count, &secret.unwrap_or_else(Secret::random));
        let (identity, spki_sha256) = loaded.as_ref().map_or((None, None), |loaded| {
            (Some(loaded.identity.clone()), loaded.spki_sha256.clone())
        });
        #[cfg(feature = "acme")]
        let orders = loaded.and_then(|loaded| loaded.orders);
        #[cfg(feature = "acme")]
        let challenges = orders.as_ref().map(PendingOrders::challenges);
        // Only one worker clones it at a time, so it need not be `Sync`.
        let service = Mutex::new(service);
        let webtransport = config.webtransport;
        let failures = Failures::new(on_failure);
        let watched = failures.clone();
        let redirect_to =
            addresses.iter().find(|at| at.secure && redirects).map(|at| at.address.port());
        let handler = move |_| {
            let service = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Tower {
                service,
                webtransport,
                redirect_to,
                #[cfg(feature = "acme")]
                challenges: challenges.clone(),
                extensions_template: preallocated_extensions(),
                failures: watched.clone(),
            }
        };
        let workers = Workers::start(group, listeners, identity.as_ref(), &config, handler)
            .map_err(Error::Start)?;
        #[cfg(feature = "acme")]
        let orders = orders
            .map(PendingOrders::start)
            .transpose()
            .inspect_err(|_| workers.control().shut_down(Duration::ZERO))?;
        Ok(Running::new(
            workers,
            config.qlog,
            Started {
                addresses,
                spki_sha256,
                failures,
                #[cfg(feature = "acme")]
                orders,
            },
            grace,
            signal,
        ))
    }
}
