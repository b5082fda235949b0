//! Client options.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::{Config, Protocol, Resumption};

use crate::tls::Roots;

/// When to try HTTP/3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http3 {
    /// If a response over HTTP/1.1 or HTTP/2 has advertised it (Alt-Svc, RFC 7838).
    #[default]
    AltSvc,
    /// Always, on the same port. Falls back to HTTP/2 or HTTP/1.1 if there is no answer.
    First,
    /// Always, without fallback. Cleartext requests, which cannot use HTTP/3, fail with
    /// [`Error::Uri`](crate::Error::Uri).
    Only,
    /// Never.
    Off,
}

type Resolver = dyn Fn(&str, u16) -> Lookup + Send + Sync;
type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>>>>;

/// A name resolver. The default uses the system's resolver, on a blocking thread of tokio.
#[derive(Clone)]
pub struct Resolve(Arc<Resolver>);

impl Resolve {
    /// Resolves names with `lookup`, which receives host and port. Addresses are tried in the
    /// returned order.
    ///
    /// ```
    /// use pronghorn_client::{Options, Resolve};
    ///
    /// // Whatever the name, this machine is asked.
    /// let resolve = Resolve::new(|_, port| async move { Ok(vec![([127, 0, 0, 1], port).into()]) });
    /// let options = Options { resolve, ..Options::default() };
    /// # let _ = options;
    /// ```
    pub fn new<F>(lookup: impl Fn(&str, u16) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + 'static,
    {
        Self(Arc::new(move |host, port| Box::pin(lookup(host, port))))
    }

    pub(crate) fn lookup(&self, host: &str, port: u16) -> Lookup {
        (self.0)(host, port)
    }
}

impl Default for Resolve {
    fn default() -> Self {
        Self::new(|host, port| {
            let host = host.to_owned();
            async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }
        })
    }
}

impl fmt::Debug for Resolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolve").finish_non_exhaustive()
    }
}

/// Client options. Together with the windows of the engine's client role, they bound the memory
/// that servers can make the client use.
///
/// ```
/// use std::time::Duration;
///
/// use pronghorn_client::{Http3, Options};
///
/// /// For servers behind a proxy: HTTP/2 or 1.1, soon given up, many requests at once.
/// fn upstream() -> Options {
///     Options {
///         http3: Http3::Off,
///         connect_timeout: Duration::from_secs(2),
///         head_timeout: Duration::from_secs(30),
///         connections_per_origin: 256,
///         waiting_per_origin: 4_096,
///         retries: 1,
///         ..Options::default()
///     }
/// }
/// # let _ = upstream();
/// ```
///
/// The engine has limits of its own for the connections themselves:
///
/// ```
/// use pronghorn_client::Options;
/// use pronghorn_engine::{Config, Limits};
///
/// // A server that is gone is noticed after five seconds at the latest.
/// let limits = Limits::default().with_idle_timeout(std::time::Duration::from_secs(5))?;
/// let options = Options { engine: Config { limits, ..Config::default() }, ..Options::default() };
/// # let _ = options;
/// # Ok::<(), pronghorn_engine::LimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Certificate roots to trust. Default: the system's.
    pub roots: Roots,
    /// When to try HTTP/3. Default: when a server has advertised it.
    pub http3: Http3,
    /// Protocol over TCP: HTTP/1.1 or HTTP/2 only. Also applies to cleartext, where HTTP/2 needs a
    /// server that is known to support it. Default: the server's preference with TLS, HTTP/1.1 in
    /// cleartext.
    pub tcp: Option<Protocol>,
    /// TLS session resumption and early data. Default: resume sessions, and send nothing before the
    /// handshake is complete.
    pub resumption: Resumption,
    /// Head start of HTTP/3 over TCP when both are tried. Default: 300 ms.
    pub http3_head_start: Duration,
    /// How long HTTP/3 is not tried with an origin after a failure. Default: 5 minutes.
    pub http3_pause: Duration,
    /// Head start of each address of a name over the next (RFC 8305). Default: 250 ms.
    pub address_head_start: Duration,
    /// Timeout for name lookup, connecting and TLS, and for a free connection. Over HTTP/2 and
    /// HTTP/3 it also covers waiting for a stream within the server's concurrency limit. Default:
    /// 10 s.
    pub connect_timeout: Duration,
    /// Timeout for the server to read more of the request body, and afterwards to send the response
    /// head. It does not run while the client waits for the producer of the body. Default: 60 s.
    pub head_timeout: Duration,
    /// Maximum time between two pieces of the response body while the server is not waiting for the
    /// request body. Over HTTP/1.1 also between two pieces of the request body after the response
    /// is complete; over HTTP/2 and HTTP/3 the engine's limit `response_timeout` applies to that.
    /// Default: 60 s.
    pub body_timeout: Duration,
    /// How long an idle connection is kept. Default: 60 s.
    pub idle_timeout: Duration,
    /// Maximum HTTP/1.1 connections to one origin, including those in use, excluding upgraded ones.
    /// HTTP/2 and HTTP/3 use one connection. Default: 64.
    pub connections_per_origin: usize,
    /// Maximum additional HTTP/1.1 connections to one origin, so that short exchanges need not wait
    /// for long ones. An exchange is long if more than a second has passed since its response head,
    /// or if it has waited that long for the producer of the request body. Default: 4,096.
    pub long_responses_per_origin: usize,
    /// Maximum requests to one origin that wait for a connection or a stream. Further requests
    /// fail. Default: 1,024.
    pub waiting_per_origin: usize,
    /// Maximum origins for which state is remembered, such as their HTTP/3 endpoint, not counting
    /// origins with connections in use. Default: 1,024.
    pub origins: usize,
    /// Maximum retries of a request, where a retry is safe. Default: 2.
    pub retries: u32,
    /// The name resolver.
    pub resolve: Resolve,
    /// How often names with open connections are looked up again.
    ///
    /// An address that no lookup has returned for this long gets no more requests, after twice this
    /// time at the latest, and its connection is closed once unused. If a lookup fails, the latest
    /// addresses stay in use, and new connections start with each in turn. Default: never; only new
    /// connections look up names.
    pub resolve_every: Option<Duration>,
    /// Settings of the engine's worker, such as congestion control and qlog. Used only by
    /// [`Client`](crate::Client), which has its own worker.
    pub engine: Config,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            roots: Roots::System,
            http3: Http3::default(),
            tcp: None,
            resumption: Resumption::Session,
            http3_head_start: Duration::from_millis(300),
            http3_pause: Duration::from_secs(300),
            address_head_start: Duration::from_millis(250),
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            connections_per_origin: 64,
            long_responses_per_origin: 4_096,
            waiting_per_origin: 1_024,
            origins: 1_024,
            retries: 2,
            resolve: Resolve::default(),
            resolve_every: None,
            engine: Config::default(),
        }
    }
}
