//! The plan of a run.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Uri};
use pronghorn_engine::{Congestion, Protocol, Resumption};

/// Maximum number of connections of a run: each needs a file descriptor over TCP, and some 60 KiB.
pub const MAX_CONNECTIONS: usize = 100_000;
/// Maximum number of open requests of a run, over all connections; some 6 KiB each.
pub const MAX_STREAMS: usize = 1_000_000;
/// Maximum size of a WebSocket message, sent or received: 16 MiB.
pub const MAX_MESSAGE_BYTES: u64 = 16 << 20;
/// Message sent if the plan has no upload.
const MESSAGE: &[u8; 32] = b"pronghorn load: a short message.";

/// The plan of a run. [`Plan::new`] gives one connection and one request at a time, for ten
/// seconds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// URLs to request in turn, all with one scheme, host and port.
    pub urls: Vec<Uri>,
    /// Addresses of the host. The first one that accepts a connection is used.
    pub remotes: Vec<SocketAddr>,
    /// Protocol to use; `None` is HTTP/2 or HTTP/1.1, as the server prefers.
    pub protocol: Option<Protocol>,
    /// TLS settings, including the trusted roots.
    pub tls: rustls::ClientConfig,
    /// Request method.
    pub method: Method,
    /// Header fields of each request. `user-agent` and, with a body, `content-length` are added if
    /// missing.
    pub headers: HeaderMap,
    /// Body of each request, or each message; by default a message has 32 bytes.
    pub upload: Upload,
    /// Whether each stream uses a WebSocket: a request is then a message over it, and the response
    /// is the next message received. All are opened before the load begins.
    pub websocket: bool,
    /// Number of open connections, divided among the threads.
    pub connections: usize,
    /// Number of open requests on each connection.
    pub streams: usize,
    /// Reuse of connections.
    pub connection_use: ConnectionUse,
    /// Whether new connections resume the session of an earlier one. With one request per
    /// connection, one request for each of the concurrent connections is sent before the load to
    /// obtain sessions.
    pub resumption: Resumption,
    /// Requests per second, regardless of the server; `None` is as fast as it answers.
    pub rate: Option<f64>,
    /// Number of requests to measure; `None` is as many as fit into the duration.
    pub requests: Option<u64>,
    /// Time to measure; `None` is until all requests are done.
    pub duration: Option<Duration>,
    /// Time to run before measuring.
    pub warm_up: Duration,
    /// Congestion controller for sent data, over QUIC and TCP. `None` is CUBIC for QUIC and the
    /// system's default for TCP.
    pub congestion: Option<Congestion>,
    /// Number of threads, each with its own sockets.
    pub threads: usize,
    /// Timeout of a request, including the opening of a connection for it. Checked every twentieth
    /// of it.
    pub timeout: Duration,
}

/// The body of each request.
#[derive(Clone, Debug, Default)]
pub enum Upload {
    /// No body.
    #[default]
    None,
    /// These bytes.
    Bytes(Bytes),
    /// A generated body of this many bytes.
    Size(u64),
}

/// Reuse of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionUse {
    /// The connection carries further requests. All connections are opened before the load begins.
    #[default]
    Kept,
    /// Each request opens its own connection, which its latency includes.
    OneRequest,
}

/// The reason why a plan is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A URL has no host, or a scheme other than http or https.
    #[error("invalid URL {0}: use http or https, with a host")]
    Url(String),
    /// There is no URL.
    #[error("missing URL")]
    NoUrl,
    /// Two URLs have different hosts, ports or schemes.
    #[error("{0} and {1} have different origins")]
    Origins(String, String),
    /// There is no address of the host.
    #[error("missing address to connect to")]
    NoAddress,
    /// Nothing ends the run.
    #[error("neither a number of requests nor a duration is given")]
    Endless,
    /// A number is out of range.
    #[error("{what} must be between {least} and {most}")]
    Range {
        /// Name of the number.
        what: &'static str,
        /// Smallest valid value.
        least: u64,
        /// Largest valid value.
        most: u64,
    },
    /// Several concurrent requests on a connection that allows one.
    #[error("{0} allows only one request at a time on a connection")]
    Streams(&'static str),
    /// Early data in a plan that cannot use it.
    #[error("early data needs an https URL, an explicit protocol, and one request per connection")]
    EarlyData,
    /// WebSockets with unsupported settings.
    #[error("WebSockets need the method GET and connections that are kept")]
    WebSocket,
    /// HTTP/3 for an http URL.
    #[error("HTTP/3 needs an https URL")]
    ClearHttp3,
}

const DAY_SECONDS: f64 = 86_400.0;
/// A hundred million per second.
const MAX_RATE_PER_DAY: u64 = 86_400 * 100_000_000;

impl Plan {
    /// Creates a plan with one connection and one request at a time, for ten seconds.
    pub fn new(urls: Vec<Uri>, remotes: Vec<SocketAddr>, tls: rustls::ClientConfig) -> Self {
        Self {
            urls,
            remotes,
            protocol: None,
            tls,
            method: Method::GET,
            headers: HeaderMap::new(),
            upload: Upload::None,
            websocket: false,
            connections: 1,
            streams: 1,
            connection_use: ConnectionUse::Kept,
            resumption: Resumption::Off,
            rate: None,
            requests: None,
            duration: Some(Duration::from_secs(10)),
            warm_up: Duration::ZERO,
            congestion: None,
            threads: 1,
            timeout: Duration::from_secs(30),
        }
    }

    /// Checks that the plan is valid.
    ///
    /// # Errors
    ///
    /// Returns the first reason why it is invalid.
    pub fn check(&self) -> Result<(), PlanError> {
        let first = self.urls.first().ok_or(PlanError::NoUrl)?;
        for url in &self.urls {
            if url.authority().is_none()
                || !matches!(url.scheme(), Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS)
            {
                return Err(PlanError::Url(url.to_string()));
            }
            if origin(url) != origin(first) {
                return Err(PlanError::Origins(first.to_string(), url.to_string()));
            }
        }
        if self.remotes.is_empty() {
            return Err(PlanError::NoAddress);
        }
        if self.protocol == Some(Protocol::Http3) && !self.secure() {
            return Err(PlanError::ClearHttp3);
        }
        if self.requests.is_none() && self.duration.is_none() {
            return Err(PlanError::Endless);
        }
        range("the number of connections", self.connections as u64, 1, MAX_CONNECTIONS as u64)?;
        range(
            "the number of streams on all connections",
            self.slots() as u64,
            1,
            MAX_STREAMS as u64,
        )?;
        range("the number of threads", self.threads as u64, 1, 256.min(self.connections as u64))?;
        range("the number of requests", self.requests.unwrap_or(1), 1, u64::MAX)?;
        // Per day, so that rates below one per second are valid and times stay within the range of
        // the clock. NaN becomes zero.
        range(
            "the rate in requests per day",
            self.rate.map_or(1, |rate| (rate * DAY_SECONDS) as u64),
            1,
            MAX_RATE_PER_DAY,
        )?;
        let milliseconds =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        range("the timeout in milliseconds", milliseconds(self.timeout), 1, 86_400_000)?;
        range(
            "the duration in milliseconds",
            self.duration.map_or(1, milliseconds),
            1,
            31_536_000_000,
        )?;
        range("the warm-up in milliseconds", milliseconds(self.warm_up), 0, 31_536_000_000)?;
        if self.websocket {
            if self.method != Method::GET || self.connection_use == ConnectionUse::OneRequest {
                return Err(PlanError::WebSocket);
            }
            range("the bytes of a message", self.upload.size().unwrap_or(0), 0, MAX_MESSAGE_BYTES)?;
        }
        let early = self.resumption == Resumption::EarlyData;
        if early
            && !(self.secure()
                && self.protocol.is_some()
                && self.connection_use == ConnectionUse::OneRequest)
        {
            return Err(PlanError::EarlyData);
        }
        match (self.streams, self.connection_use, self.protocol) {
            (1, _, _) => Ok(()),
            (_, ConnectionUse::OneRequest, _) => {
                Err(PlanError::Streams("a connection for each request"))
            }
            (_, _, Some(Protocol::Http1)) => Err(PlanError::Streams("HTTP/1.1")),
            (_, _, None) if !self.secure() => Err(PlanError::Streams("HTTP/1.1")),
            _ => Ok(()),
        }
    }

    pub(crate) fn secure(&self) -> bool {
        self.urls.first().is_some_and(|url| url.scheme() == Some(&Scheme::HTTPS))
    }

    pub(crate) fn server_name(&self) -> &str {
        let host = self.urls.first().and_then(Uri::host).unwrap_or_default();
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns whether sessions are needed before the load.
    pub(crate) fn needs_sessions(&self) -> bool {
        self.connection_use == ConnectionUse::OneRequest && self.resumption != Resumption::Off
    }

    /// Returns the message to send over WebSockets in place of requests.
    pub(crate) fn message(&self) -> Option<Bytes> {
        self.websocket.then(|| match &self.upload {
            Upload::None => Bytes::from_static(MESSAGE),
            Upload::Bytes(bytes) => bytes.clone(),
            Upload::Size(size) => {
                vec![b'p'; usize::try_from(*size).expect("invariant: the plan was checked")].into()
            }
        })
    }

    /// Returns the number of open requests.
    pub(crate) fn slots(&self) -> usize {
        self.connections.saturating_mul(self.streams)
    }

    /// Returns the complete header fields of each request.
    pub(crate) fn fields(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(concat!(
            "pronghorn-load/",
            env!("CARGO_PKG_VERSION")
        )));
        if let Some(size) = self.upload.size().filter(|_| !self.websocket) {
            headers.entry(CONTENT_LENGTH).or_insert(size.into());
        }
        headers
    }
}

impl Upload {
    /// Returns the size of the body, or `None` without a body.
    pub(crate) fn size(&self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Size(size) => Some(*size),
        }
    }
}

fn origin(url: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let default = if url.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    (url.scheme_str(), url.host().map(str::to_ascii_lowercase), url.port_u16().or(Some(default)))
}

fn range(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), PlanError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(PlanError::Range { what, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn plan(urls: &[&str]) -> Plan {
        let tls = rustls::ClientConfig::builder_with_provider(pronghorn_engine::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        Plan::new(urls, vec![([127, 0, 0, 1], 443).into()], tls)
    }

    #[test]
    fn urls_of_one_origin_are_taken() {
        assert_eq!(plan(&["https://A.test/x", "https://a.test:443/y?z"]).check(), Ok(()));
        assert!(matches!(
            plan(&["https://a.test/", "https://b.test/"]).check(),
            Err(PlanError::Origins(..))
        ));
        assert!(matches!(
            plan(&["https://a.test/", "http://a.test/"]).check(),
            Err(PlanError::Origins(..))
        ));
        assert!(matches!(plan(&["ftp://a.test/"]).check(), Err(PlanError::Url(_))));
        assert!(matches!(plan(&["/path"]).check(), Err(PlanError::Url(_))));
        assert_eq!(plan(&[]).check(), Err(PlanError::NoUrl));
    }

    #[test]
    fn plan_that_cannot_be_carried_out_is_refused() {
        let wrong = |change: &dyn Fn(&mut Plan)| {
            let mut plan = plan(&["https://a.test/"]);
            change(&mut plan);
            plan.check().unwrap_err()
        };
        assert_eq!(wrong(&|plan| plan.duration = None), PlanError::Endless);
        assert!(matches!(wrong(&|plan| plan.connections = 0), PlanError::Range { .. }));
        assert!(matches!(wrong(&|plan| plan.threads = 2), PlanError::Range { .. }));
        assert!(matches!(wrong(&|plan| plan.rate = Some(0.0)), PlanError::Range { .. }));
        for rate in [f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, -1.0, 1e-9] {
            assert!(
                matches!(wrong(&|plan| plan.rate = Some(rate)), PlanError::Range { .. }),
                "{rate}"
            );
        }
        assert!(matches!(wrong(&|plan| plan.requests = Some(0)), PlanError::Range { .. }));
        assert!(matches!(wrong(&|plan| plan.timeout = Duration::ZERO), PlanError::Range { .. }));
        assert_eq!(
            wrong(&|plan| (plan.streams, plan.protocol) = (2, Some(Protocol::Http1))),
            PlanError::Streams("HTTP/1.1")
        );
        assert_eq!(wrong(&|plan| plan.remotes.clear()), PlanError::NoAddress);
        assert_eq!(wrong(&|plan| plan.resumption = Resumption::EarlyData), PlanError::EarlyData);
        let several =
            wrong(&|plan| (plan.streams, plan.connection_use) = (2, ConnectionUse::OneRequest));
        assert!(matches!(several, PlanError::Streams(_)));
    }

    #[test]
    fn websockets_are_asked_for_with_get_on_kept_connections() {
        let mut plan = plan(&["https://a.test/"]);
        (plan.websocket, plan.upload) = (true, Upload::Size(MAX_MESSAGE_BYTES));
        assert_eq!(plan.check(), Ok(()));
        plan.upload = Upload::Size(MAX_MESSAGE_BYTES + 1);
        assert!(matches!(plan.check(), Err(PlanError::Range { .. })));
        plan.upload = Upload::None;
        plan.method = Method::POST;
        assert_eq!(plan.check(), Err(PlanError::WebSocket));
        (plan.method, plan.connection_use) = (Method::GET, ConnectionUse::OneRequest);
        assert_eq!(plan.check(), Err(PlanError::WebSocket));
    }

    #[test]
    fn clear_text_urls_have_no_http3() {
        let mut plan = plan(&["http://a.test/"]);
        plan.protocol = Some(Protocol::Http3);
        assert_eq!(plan.check(), Err(PlanError::ClearHttp3));
    }
}
