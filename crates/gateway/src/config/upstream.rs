//! Upstreams: servers that requests are forwarded to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use pronghorn_client::UnixSocket;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::buffering::{Buffering, BufferingTable};
use super::health::{UpstreamCheck, UpstreamHealth};
use super::location::Location;
use super::retry::RetryBudget;
use super::short_form::{ShortForm, short_or_table};
use super::sticky::Sticky;
use super::values::{FieldName, FieldValue, Time, string_enum, string_type};

/// One of `[upstreams]`: a group of equivalent servers.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct Upstream {
    /// Addresses of the servers: clear text (`http://`), TLS (`https://`), a Unix socket of this
    /// machine (`unix:`), or FastCGI applications (`fastcgi://`).
    #[schemars(length(min = 1))]
    pub servers: Vec<UpstreamServer>,
    /// Load-balancing policy.
    #[serde(default)]
    pub policy: Policy,
    /// Request header field that the policy `header` uses.
    #[schemars(example = "x-user")]
    pub policy_header: Option<FieldName>,
    /// Protocol to use with the servers.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// Host to send to the servers.
    #[serde(default)]
    pub host: UpstreamHost,
    /// TLS settings for servers at `https://`.
    #[serde(default)]
    pub tls: UpstreamTls,
    /// Timeout for resolving a server's name, connecting and TLS, and for waiting for a free
    /// connection.
    #[serde(default = "ten_seconds")]
    #[schemars(default = "written_ten_seconds")]
    pub connect_timeout: Time,
    /// Timeout for a server to accept more of a request's body, and then to send the response head.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub head_timeout: Time,
    /// Timeout between two chunks of a response body.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub body_timeout: Time,
    /// Interval at which names of servers are resolved again, while there are connections to them.
    /// A connection whose address is no longer in the answers gets no new requests, after at most
    /// twice this time; `0s`: names are resolved only for new connections.
    #[serde(default = "half_a_minute")]
    #[schemars(default = "written_half_a_minute")]
    pub resolve: Time,
    /// Time for which an idle connection is kept open.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub idle_timeout: Time,
    /// Maximum number of HTTP/1.1 connections to each server from each worker, including those in
    /// use. HTTP/2 and HTTP/3 use one. WebSockets and other upgrades do not count.
    #[serde(default = "connections")]
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// Maximum number of HTTP/1.1 connections to each server from each worker in addition to
    /// `connections`, for exchanges that continue for more than a second after the response head or
    /// that wait for a slow client: event streams, long downloads, slow readers.
    #[serde(default = "long_responses")]
    pub long_responses: usize,
    /// Maximum number of requests to each server from each worker that wait for a connection;
    /// further requests are answered 503.
    #[serde(default = "waiting")]
    pub waiting: usize,
    /// Maximum number of retries of a request, on another server or the same one, if it cannot have
    /// had an effect or its method is idempotent.
    #[serde(default = "retries")]
    #[schemars(range(max = 16))]
    pub retries: u32,
    /// Share of all requests that may be retried.
    #[serde(default)]
    pub retry_budget: RetryBudget,
    /// Maximum number of open requests to each server, over all workers; further requests go to
    /// another server, or are answered 503. If left out, unlimited.
    #[schemars(range(min = 1))]
    pub requests: Option<u32>,
    /// When a failing server is ejected.
    #[serde(default)]
    pub health: UpstreamHealth,
    /// Active health checks of the servers; if left out, only client requests reveal failures.
    pub check: Option<UpstreamCheck>,
    /// Keeps clients on one server.
    pub sticky: Option<Sticky>,
    /// Whether responses are buffered for slow clients, so that servers are free sooner; if left
    /// out, only responses from FastCGI servers are. Data that has arrived is never delayed. It
    /// does not apply to responses of the types `text/event-stream` and `application/grpc`, or with
    /// the header field `x-accel-buffering: no`, which is then not passed to clients.
    pub buffering: Option<Buffering>,
    /// Whether a route runs scripts on it: checks then request a file instead of a path.
    #[serde(skip)]
    pub(crate) runs_scripts: bool,
    #[serde(skip)]
    pub(crate) location: Location,
}

const CONNECTIONS: usize = 64;
const LONG_RESPONSES: usize = 4096;
const WAITING: usize = 1024;
const RETRIES: u32 = 2;

impl Upstream {
    /// Returns whether its servers use FastCGI.
    pub(crate) fn speaks_fastcgi(&self) -> bool {
        let is_named = || self.servers.iter().any(|server| server.0.address.fastcgi);
        self.protocol == UpstreamProtocol::FastCgi
            || (self.protocol == UpstreamProtocol::Auto && is_named())
    }

    /// Returns whether the settings are equal, regardless of their location in the files.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let at = |one: &Self| Self { location: Location::default(), ..one.clone() };
        at(self) == at(other)
    }

    /// Returns an upstream of one server, with default settings.
    pub(crate) fn of(server: ServerAddress) -> Self {
        Self {
            servers: vec![UpstreamServer(UpstreamServerTable { address: server, weight: 1 })],
            policy: Policy::default(),
            policy_header: None,
            protocol: UpstreamProtocol::default(),
            host: UpstreamHost::default(),
            tls: UpstreamTls::default(),
            connect_timeout: ten_seconds(),
            head_timeout: a_minute(),
            body_timeout: a_minute(),
            resolve: half_a_minute(),
            idle_timeout: a_minute(),
            connections: CONNECTIONS,
            long_responses: LONG_RESPONSES,
            waiting: WAITING,
            retries: RETRIES,
            retry_budget: RetryBudget::default(),
            requests: None,
            health: UpstreamHealth::default(),
            check: None,
            sticky: None,
            buffering: None,
            runs_scripts: false,
            location: Location::default(),
        }
    }

    /// Returns the buffer sizes for responses, or `None` if they are not buffered.
    pub(crate) fn buffers(&self) -> Option<BufferingTable> {
        match &self.buffering {
            Some(Buffering::On(table)) => Some(table.clone()),
            Some(Buffering::Off) => None,
            // Each FastCGI response occupies one of a few processes.
            None => self.speaks_fastcgi().then(BufferingTable::default),
        }
    }
}

fn ten_seconds() -> Time {
    Time::seconds(10)
}

fn written_ten_seconds() -> &'static str {
    "10s"
}

fn a_minute() -> Time {
    Time::seconds(60)
}

fn written_minute() -> &'static str {
    "1m"
}

fn half_a_minute() -> Time {
    Time::seconds(30)
}

fn written_half_a_minute() -> &'static str {
    "30s"
}

fn connections() -> usize {
    CONNECTIONS
}

fn long_responses() -> usize {
    LONG_RESPONSES
}

fn waiting() -> usize {
    WAITING
}

fn retries() -> u32 {
    RETRIES
}

string_enum! {
    /// A load-balancing policy.
    #[derive(Default)]
    Policy: "policy" {
        /// In turn, by weight.
        #[default]
        RoundRobin = "round-robin",
        /// Server with the fewest open requests of this worker, by weight.
        LeastRequests = "least-requests",
        /// Less busy one of two random servers.
        RandomOfTwo = "random-of-two",
        /// First server that is up.
        First = "first",
        /// Same server for the same client address, while the servers stay the same.
        ClientAddress = "client-address",
        /// Same server for the same path and query, while the servers stay the same: for servers
        /// that cache responses.
        Path = "path",
        /// Same server for the same value of the header field `policy_header`, while the servers
        /// stay the same; without the field, by the client's address.
        Header = "header",
    }
}

string_enum! {
    /// The protocol to use with an upstream's servers.
    #[derive(Default)]
    UpstreamProtocol: "protocol" {
        /// HTTP/2 or HTTP/1.1, as the server prefers; HTTP/1.1 in clear text.
        #[default]
        Auto = "auto",
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2, also in clear text.
        Http2 = "http2",
        /// HTTP/3.
        Http3 = "http3",
        /// FastCGI, as PHP-FPM uses it.
        FastCgi = "fastcgi",
    }
}

/// The host to send to an upstream's servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpstreamHost {
    /// The host that the client requested.
    #[default]
    Client,
    /// The server's own host.
    Server,
    /// A fixed host.
    Fixed(FieldValue),
}

impl FromStr for UpstreamHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "client" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            _ if text.parse::<Authority>().is_ok() && text.contains(['.', ':']) => {
                text.parse().map(Self::Fixed)
            }
            _ => Err(format!(
                "invalid host {text:?}: use client, server, or a name such as app.internal"
            )),
        }
    }
}
string_type!(
    UpstreamHost,
    "upstream_host",
    "client for the host that the client requested (the default), server for the server's own, or \
        a host.",
    "client"
);

/// Trust roots for servers at `https://`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct UpstreamTls {
    /// PEM file with trusted root certificates; if left out, the system's roots.
    pub trust: Option<PathBuf>,
}

/// The address of a server: `http://127.0.0.1:3000`, `unix:/run/app.sock`, or
/// `fastcgi://127.0.0.1:9000`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// Whether the server uses TLS.
    pub secure: bool,
    /// Whether the address was written as `fastcgi://`. A Unix socket may use FastCGI as well.
    pub fastcgi: bool,
    /// Host and port; `localhost` for a Unix socket.
    pub authority: Authority,
    /// Unix socket that the server listens on.
    pub socket: Option<Arc<Path>>,
}

impl ServerAddress {
    /// The system's limit for a socket path, without the zero byte at the end.
    const MAX_SOCKET_PATH_BYTES: usize = 107;

    /// `path`: the part after `unix:`.
    fn unix(path: &str) -> Result<Self, &'static str> {
        const SHAPE: &str = "use a form such as unix:/run/app.sock, with an absolute path";
        // A path is often written like a URL.
        let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
        if path.starts_with('@') {
            return Err(
                "abstract sockets are not supported because any user may bind them: use a path \
                    such as unix:/run/app.sock",
            );
        }
        if !path.starts_with('/')
            || path.starts_with("//")
            || path.ends_with('/')
            || path.contains(|c: char| c.is_control())
        {
            return Err(SHAPE);
        }
        if path.ends_with(':') || path.contains(":/") {
            return Err("it must end with the socket; the requested path is passed on");
        }
        if path.len() > Self::MAX_SOCKET_PATH_BYTES {
            return Err(
                "the socket path is longer than 107 bytes, the system's limit: use another folder",
            );
        }
        Ok(Self {
            secure: false,
            fastcgi: false,
            authority: Authority::from_static("localhost"),
            socket: Some(Path::new(path).into()),
        })
    }

    /// Directs a request, whose URI names the authority, to this address.
    pub(crate) fn direct<B>(&self, request: &mut http::Request<B>) {
        if let Some(path) = &self.socket {
            request.extensions_mut().insert(UnixSocket(path.clone()));
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.socket {
            return write!(f, "unix:{}", path.display());
        }
        let scheme = match self {
            Self { fastcgi: true, .. } => "fastcgi",
            Self { secure: true, .. } => "https",
            _ => "http",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |reason: &str| format!("invalid server address {text:?}: {reason}");
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::unix(path).map_err(wrong);
        }
        if text.starts_with("unix")
            || text.starts_with("http://unix:")
            || text.starts_with("https://unix:")
        {
            return Err(wrong("use unix:/run/app.sock; HTTP over it is in clear text"));
        }
        let uri: http::Uri =
            text.parse().map_err(|_| wrong("use a form such as http://127.0.0.1:3000"))?;
        let (secure, fastcgi) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => (false, false),
            Some(scheme) if *scheme == Scheme::HTTPS => (true, false),
            Some(scheme) if scheme.as_str() == "fastcgi" => (false, true),
            _ => return Err(wrong("it must begin with http://, https://, unix: or fastcgi://")),
        };
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(wrong("remove the path; the requested path is passed on"));
        }
        let authority = uri.authority().cloned().ok_or_else(|| wrong("missing host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("remove the user name and password"));
        }
        Ok(Self { secure, fastcgi, authority, socket: None })
    }
}
string_type!(
    ServerAddress,
    "server_address",
    "Scheme, host and port of a server, or unix: and the path of its socket.",
    "http://127.0.0.1:3000",
    "https://app.internal",
    "unix:/run/app.sock"
);

/// A server of an upstream: its address, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamServer(pub UpstreamServerTable);

/// A server of an upstream.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct UpstreamServerTable {
    /// Address of the server.
    pub address: ServerAddress,
    /// Share of the requests, relative to the other servers.
    #[serde(default = "one", deserialize_with = "weight")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        weight @ 1..=1000 => Ok(weight),
        other => Err(de::Error::custom(format!("invalid weight {other}: must be from 1 to 1000"))),
    }
}

impl ShortForm for UpstreamServer {
    type Table = UpstreamServerTable;

    const EXPECTED: &'static str =
        "an address such as \"http://127.0.0.1:3000\", or { address = …, weight = 2 }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(UpstreamServerTable { address: text.parse()?, weight: 1 }))
    }

    fn from_table(table: UpstreamServerTable) -> Self {
        Self(table)
    }
}
short_or_table!(
    UpstreamServer,
    "upstream_server",
    "http://127.0.0.1:3000",
    "https://app.internal",
    "unix:/run/app.sock",
    "fastcgi://127.0.0.1:9000"
);
