//! Servers behind this one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use pronghorn_client::UnixSocket;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::buffering::Buffering;
use super::either::{Short, either};
use super::health::{UpstreamCheck, UpstreamHealth};
use super::retry::RetryBudget;
use super::site::{FieldName, FieldValue};
use super::source::Place;
use super::sticky::Sticky;
use super::values::{Time, choice, written};

/// One of `[upstreams]`: servers that answer the same.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct Upstream {
    /// The servers: in clear text (`http://`), over TLS (`https://`), on a Unix socket of this machine (`unix:`), or
    /// applications (`fastcgi://`).
    #[schemars(length(min = 1))]
    pub servers: Vec<UpstreamServer>,
    /// Which of them a request goes to.
    #[serde(default)]
    pub policy: Policy,
    /// The field of requests that the policy `header` goes by.
    #[schemars(example = "x-user")]
    pub policy_header: Option<FieldName>,
    /// What is spoken with them.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// The host that they are asked for.
    #[serde(default)]
    pub host: UpstreamHost,
    /// Whom to trust, for servers at `https://`.
    #[serde(default)]
    pub tls: UpstreamTls,
    /// Time for looking up a server's name, connecting and TLS, and for a connection to become free.
    #[serde(default = "ten_seconds")]
    #[schemars(default = "written_ten_seconds")]
    pub connect_timeout: Time,
    /// Time in which a server has to take more of a request's content, and after that to send the head of the response.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub head_timeout: Time,
    /// Time between two pieces of a response's content.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub body_timeout: Time,
    /// How often names of servers are looked up again, while there are connections to them. A connection whose address is not in the
    /// answers any more gets no new requests, after twice this time at the latest; `0s`: only new connections look up.
    #[serde(default = "half_a_minute")]
    #[schemars(default = "written_half_a_minute")]
    pub resolve: Time,
    /// How long a connection that nobody uses is kept.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub idle_timeout: Time,
    /// HTTP/1.1 connections to each server from each worker, those in use included. Over HTTP/2 and 3 there is one. WebSockets and other
    /// upgrades are not counted.
    #[serde(default = "connections")]
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// HTTP/1.1 connections to each server from each worker that may be open beside `connections`, for what has gone on for more than a
    /// second since the head of the response came, or waits for a client that sends slowly: event streams, long downloads, slow readers.
    #[serde(default = "long_responses")]
    pub long_responses: usize,
    /// Requests to each server from each worker that may wait for a connection; the next one is answered 503.
    #[serde(default = "waiting")]
    pub waiting: usize,
    /// How many more servers, or times, a request is tried when nothing can have happened for it, or its method may be repeated.
    #[serde(default = "retries")]
    #[schemars(range(max = 16))]
    pub retries: u32,
    /// Which share of all requests may be tried again.
    #[serde(default)]
    pub retry_budget: RetryBudget,
    /// Requests that each server may have open, over all workers; the next one goes to another server, or is answered 503. If it is left
    /// out, any number.
    #[schemars(range(min = 1))]
    pub requests: Option<u32>,
    /// When a server that fails is left alone.
    #[serde(default)]
    pub health: UpstreamHealth,
    /// How the servers are asked how they are; without it only requests of clients tell.
    pub check: Option<UpstreamCheck>,
    /// Has clients stay with a server.
    pub sticky: Option<Sticky>,
    /// Whether responses are taken in ahead of clients that read slowly, so that servers are free again; if it is left out, those of servers
    /// that speak FastCGI are. What has come is never kept back. Not for responses of the types `text/event-stream` and `application/grpc`, nor
    /// those with the field `x-accel-buffering: no`, which clients are not shown then.
    pub buffering: Option<Buffering>,
    /// Whether a route has them run scripts: such are asked for a file, others for a path.
    #[serde(skip)]
    pub(crate) runs_scripts: bool,
    #[serde(skip)]
    pub(crate) place: Place,
}

const CONNECTIONS: usize = 64;
const LONG_RESPONSES: usize = 4096;
const WAITING: usize = 1024;
const RETRIES: u32 = 2;

impl Upstream {
    /// Whether FastCGI is spoken with its servers.
    pub(crate) fn speaks_fastcgi(&self) -> bool {
        let is_named = || self.servers.iter().any(|server| server.0.address.fastcgi);
        self.protocol == UpstreamProtocol::FastCgi || (self.protocol == UpstreamProtocol::Auto && is_named())
    }

    /// Whether it says the same, wherever it stands.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let at = |one: &Self| Self { place: Place::default(), ..one.clone() };
        at(self) == at(other)
    }

    /// One server, and the defaults.
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
            place: Place::default(),
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

choice! {
    /// Which server of an upstream a request goes to.
    #[derive(Default)]
    Policy: "policy" {
        /// Each in its turn, by weight.
        #[default]
        RoundRobin = "round-robin",
        /// The one with the fewest open requests of this worker, by weight.
        LeastRequests = "least-requests",
        /// The less busy of two that are drawn.
        RandomOfTwo = "random-of-two",
        /// The first one that is up.
        First = "first",
        /// The same one for the same client address, as long as the servers stay.
        ClientAddress = "client-address",
        /// The same one for the same path and query, as long as the servers stay: for servers that keep what they have answered.
        Path = "path",
        /// The same one for the same value of the field `policy_header`, as long as the servers stay; without it by the client's address.
        Header = "header",
    }
}

choice! {
    /// What is spoken with the servers of an upstream.
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
        /// FastCGI, as PHP-FPM does.
        FastCgi = "fastcgi",
    }
}

/// The host that an upstream's servers are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpstreamHost {
    /// The one that the client asked for.
    #[default]
    Client,
    /// The server's own.
    Server,
    /// This one.
    Fixed(FieldValue),
}

impl FromStr for UpstreamHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "client" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            _ if text.parse::<Authority>().is_ok() && text.contains(['.', ':']) => text.parse().map(Self::Fixed),
            _ => Err(format!("{text:?} is no host: write client, server, or a name such as app.internal")),
        }
    }
}
written!(
    UpstreamHost,
    "upstream_host",
    "client for the host that the client asked for (the default), server for the server's own, or a host.",
    "client"
);

/// Whom to trust, for servers at `https://`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct UpstreamTls {
    /// A file with the certificates of whom to trust, in PEM form; if it is left out, whom the system trusts.
    pub trust: Option<PathBuf>,
}

/// The address of a server: `http://127.0.0.1:3000`, `unix:/run/app.sock`, or `fastcgi://127.0.0.1:9000`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// Whether TLS is spoken.
    pub secure: bool,
    /// Whether it was written as one that speaks FastCGI. One on a Unix socket may.
    pub fastcgi: bool,
    /// Host and port; `localhost` for one that is reached over a Unix socket.
    pub authority: Authority,
    /// The Unix socket that it listens on.
    pub socket: Option<Arc<Path>>,
}

impl ServerAddress {
    /// The system takes no more, with a zero byte at the end.
    const MAX_SOCKET_PATH_BYTES: usize = 107;

    /// `path`: what stood after `unix:`.
    fn unix(path: &str) -> Result<Self, &'static str> {
        const SHAPE: &str = "write it as unix:/run/app.sock, with the whole path from / on";
        // Many write it like a URL.
        let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
        if path.starts_with('@') {
            return Err("abstract sockets, which any user may take, are not used: name one in a folder, as unix:/run/app.sock");
        }
        if !path.starts_with('/') || path.starts_with("//") || path.ends_with('/') || path.contains(|c: char| c.is_control()) {
            return Err(SHAPE);
        }
        if path.ends_with(':') || path.contains(":/") {
            return Err("it ends with the socket; the path that was asked for is passed on");
        }
        if path.len() > Self::MAX_SOCKET_PATH_BYTES {
            return Err("the system takes no path of a socket longer than 107 bytes: put it into another folder");
        }
        Ok(Self { secure: false, fastcgi: false, authority: Authority::from_static("localhost"), socket: Some(Path::new(path).into()) })
    }

    /// Has a request, whose URI names the authority, go there.
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
        let wrong = |reason: &str| format!("{text:?} is no address of a server: {reason}");
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::unix(path).map_err(wrong);
        }
        if text.starts_with("unix") || text.starts_with("http://unix:") || text.starts_with("https://unix:") {
            return Err(wrong("write it as unix:/run/app.sock; HTTP is spoken there in clear text"));
        }
        let uri: http::Uri = text.parse().map_err(|_| wrong("write it as http://127.0.0.1:3000"))?;
        let (secure, fastcgi) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => (false, false),
            Some(scheme) if *scheme == Scheme::HTTPS => (true, false),
            Some(scheme) if scheme.as_str() == "fastcgi" => (false, true),
            _ => return Err(wrong("it begins with http://, https://, unix: or fastcgi://")),
        };
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(wrong("it has no path; the path that was asked for is passed on"));
        }
        let authority = uri.authority().cloned().ok_or_else(|| wrong("a host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a name and password do not belong there"));
        }
        Ok(Self { secure, fastcgi, authority, socket: None })
    }
}
written!(
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
    /// Where it is.
    pub address: ServerAddress,
    /// Its share of the requests, beside the others.
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
        other => Err(de::Error::custom(format!("{other} is no weight: 1 to 1000"))),
    }
}

impl Short for UpstreamServer {
    type Table = UpstreamServerTable;

    const EXPECTED: &'static str = "an address such as \"http://127.0.0.1:3000\", or { address = …, weight = 2 }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(UpstreamServerTable { address: text.parse()?, weight: 1 }))
    }

    fn from_table(table: UpstreamServerTable) -> Self {
        Self(table)
    }
}
either!(
    UpstreamServer,
    "upstream_server",
    "http://127.0.0.1:3000",
    "https://app.internal",
    "unix:/run/app.sock",
    "fastcgi://127.0.0.1:9000"
);
