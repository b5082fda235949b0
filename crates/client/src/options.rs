//! What a client may be told.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::{Config, Protocol, Resumption};

use crate::tls::Roots;

/// When HTTP/3 is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http3 {
    /// Where a response over HTTP/1.1 or 2 has said that it is there (Alt-Svc, RFC 7838).
    #[default]
    AltSvc,
    /// Everywhere, on the same port; with HTTP/2 or 1.1 where it does not answer.
    First,
    /// Everywhere, and nothing else. A request in clear text, where there is no HTTP/3, is refused with [`Error::Uri`](crate::Error::Uri).
    Only,
    /// Nowhere.
    Off,
}

type Resolver = dyn Fn(&str, u16) -> Lookup + Send + Sync;
type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>>>>;

/// Looks up names. The default asks the system, on a thread of tokio's that may block.
#[derive(Clone)]
pub struct Resolve(Arc<Resolver>);

impl Resolve {
    /// Names are looked up by `lookup`, which gets host and port. Addresses are tried in their order.
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

/// How a client behaves. Memory that servers can make it hold is bounded by these and by the windows of the engine's client role.
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
/// What concerns the connections themselves is the engine's, which has limits of its own:
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
    /// Whom to trust. Default: whom the system trusts.
    pub roots: Roots,
    /// When HTTP/3 is tried. Default: where a server has said that it speaks it.
    pub http3: Http3,
    /// What is spoken over TCP: HTTP/1.1 or 2 alone, in clear text too, where servers have to be known to speak HTTP/2. Default: what the
    /// server prefers of both; HTTP/1.1 in clear text.
    pub tcp: Option<Protocol>,
    /// What is done with the session of an earlier connection. Default: it is resumed, and nothing is sent before the handshake is done.
    pub resumption: Resumption,
    /// How long HTTP/3 is ahead of TCP when both are tried. Default 300 ms.
    pub http3_head_start: Duration,
    /// For how long HTTP/3 is not tried with an origin where it did not answer. Default 5 minutes.
    pub http3_pause: Duration,
    /// How long one address of a name is ahead of the next (RFC 8305). Default 250 ms.
    pub address_head_start: Duration,
    /// Time for looking up the name, connecting and TLS, and for a connection to become free; over HTTP/2 and 3 also until the server
    /// allows the request beside those that are open. Default 10 s.
    pub connect_timeout: Duration,
    /// Time in which the server has to take more of the request's content, and after that to send the head of the response. It does not
    /// run while whoever produces the content is waited for. Default 60 s.
    pub head_timeout: Duration,
    /// Time between two pieces of the response's content, in which the server has all that it was sent of the request's. Over HTTP/1.1 also
    /// between two pieces of the request's when the response is complete; over HTTP/2 and 3 that is the engine's limit `response_timeout`.
    /// Default 60 s.
    pub body_timeout: Duration,
    /// How long a connection that nobody uses is kept. Default 60 s.
    pub idle_timeout: Duration,
    /// HTTP/1.1 connections to one origin, those in use included. Default 64. Over HTTP/2 and 3 there is one. Those that went on in another
    /// protocol are not counted.
    pub connections_per_origin: usize,
    /// HTTP/1.1 connections to one origin beside those, for exchanges that have gone on for more than a second since the head of the response
    /// came, or wait for whoever produces the content of the request, so that short ones need not wait for them. Default 4,096.
    pub long_responses_per_origin: usize,
    /// Requests to one origin that may wait for a connection, or for a place on one; the next one fails. Default 1,024.
    pub waiting_per_origin: usize,
    /// Origins that something is remembered of, such as where their HTTP/3 is; connections in use are not counted. Default 1,024.
    pub origins: usize,
    /// How often a request is sent again where that is safe. Default 2.
    pub retries: u32,
    /// Looks up names.
    pub resolve: Resolve,
    /// How often the addresses of a name are looked up again while there are connections to it. One whose address has not been in an
    /// answer for as long gets no more requests, after twice this time at the latest, and is closed when it has none. While a name cannot be looked up its latest addresses
    /// stay, and each of those is the first to be tried in its turn. Default: never; then only new connections look up.
    pub resolve_every: Option<Duration>,
    /// Settings of the engine's worker, such as congestion control and qlog. For [`Client`](crate::Client), which has its own.
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
