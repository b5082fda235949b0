//! Settings of the server as a whole.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::buffering::ServerBuffering;
use super::values::{Listen, Network, Size, Time, Timestamp, string_enum};

/// The table `[server]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Server {
    /// Addresses to listen on: `[::]:443` for TLS with HTTP/1.1, 2 and 3 (TCP and UDP on one port),
    /// `http://[::]:80` for clear text.
    #[schemars(default = "written_listen")]
    pub listen: Vec<Listen>,
    /// Number of worker threads, each with its own sockets; if left out, one per core.
    #[schemars(range(min = 1, max = 256))]
    pub workers: Option<u16>,
    /// Congestion controller of QUIC and TCP; if left out, CUBIC for QUIC and the system's default
    /// for TCP.
    pub congestion: Option<Congestion>,
    /// Initial congestion window of QUIC, in datagrams of 1472 bytes.
    #[schemars(range(min = 2, max = 1000))]
    pub initial_window: u16,
    /// Size of the kernel's buffers for each UDP socket, per direction.
    #[schemars(default = "written_udp_buffer")]
    pub udp_buffer: Size,
    /// Handling of requests that arrive before the handshake completes (0-RTT), for routes that do
    /// not set it themselves; `"off"` accepts no early data at all.
    pub early_data: EarlyData,
    /// Whether clear-text listeners accept HTTP/2 with prior knowledge, as gRPC clients behind a
    /// load balancer use it.
    pub http2_prior_knowledge: bool,
    /// Whether to serve HTTP/3, for sites that do not set it themselves.
    pub http3: bool,
    /// Minimum TLS version over TCP; QUIC always uses 1.3.
    pub min_tls: MinTls,
    /// Announcement of HTTP/3 in responses.
    pub alt_svc: AltSvc,
    /// Value of the `server` header field in responses; empty for none.
    pub name: String,
    /// Folder for state that must survive a restart; if left out, `pronghorn` in the user's state
    /// folder.
    pub state_dir: Option<PathBuf>,
    /// Time that running requests may take to finish during a graceful shutdown.
    #[schemars(default = "written_grace")]
    pub grace: Time,
    /// Load balancers whose TCP connections must begin with a PROXY protocol header (version 2);
    /// connections without it are closed.
    pub proxy_protocol: Vec<Network>,
    /// Proxies whose `Forwarded` and `X-Forwarded-*` header fields are trusted.
    pub trusted_proxies: Vec<Network>,
    /// Total buffer for responses to slow clients, over all upstreams with `buffering`.
    pub buffering: ServerBuffering,
}

impl Default for Server {
    fn default() -> Self {
        let listen = |text: &str| text.parse().expect("invariant: it is an address");
        Self {
            listen: vec![listen("[::]:443"), listen("http://[::]:80")],
            workers: None,
            congestion: None,
            initial_window: 20,
            udp_buffer: Size(4 << 20),
            early_data: EarlyData::Safe,
            http2_prior_knowledge: true,
            http3: true,
            min_tls: MinTls::Tls12,
            alt_svc: AltSvc::default(),
            name: "pronghorn".to_owned(),
            state_dir: None,
            grace: Time::seconds(10),
            proxy_protocol: Vec::new(),
            trusted_proxies: Vec::new(),
            buffering: ServerBuffering::default(),
        }
    }
}

fn written_listen() -> [&'static str; 2] {
    ["[::]:443", "http://[::]:80"]
}

fn written_udp_buffer() -> &'static str {
    "4MiB"
}

fn written_grace() -> &'static str {
    "10s"
}

string_enum! {
    /// A congestion controller.
    Congestion: "congestion controller" {
        /// CUBIC (RFC 9438).
        Cubic = "cubic",
        /// New Reno (RFC 9002).
        NewReno = "newreno",
        /// BBR.
        Bbr = "bbr",
    }
}

impl From<Congestion> for pronghorn_engine::Congestion {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Cubic => Self::Cubic,
            Congestion::NewReno => Self::NewReno,
            Congestion::Bbr => Self::Bbr,
        }
    }
}

string_enum! {
    /// A version of TLS.
    MinTls: "version of TLS" {
        /// TLS 1.2 (RFC 5246), with secure cipher suites only.
        Tls12 = "1.2",
        /// TLS 1.3 (RFC 8446).
        Tls13 = "1.3",
    }
}

string_enum! {
    /// Handling of requests that arrive before the handshake completes.
    EarlyData: "policy for early data" {
        /// No request is answered before that: all get 425.
        Off = "off",
        /// Requests with a safe method are answered; others get 425.
        Safe = "safe",
        /// Requests with a safe method are answered; others wait until the handshake is complete.
        Hold = "hold",
        /// All requests are answered; upstreams see `Early-Data: 1`.
        All = "all",
    }
}

impl From<EarlyData> for pronghorn_engine::EarlyData {
    fn from(policy: EarlyData) -> Self {
        match policy {
            EarlyData::Off => Self::Off,
            EarlyData::Safe => Self::SafeMethods,
            EarlyData::Hold => Self::Hold,
            EarlyData::All => Self::All,
        }
    }
}

/// Announcement of HTTP/3 in responses (RFC 7838).
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct AltSvc {
    /// Port that clients connect to, if it differs from the listening port, such as behind port
    /// forwarding.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Time that clients remember the announcement. Begin with minutes when you introduce HTTP/3 on
    /// a site, so that a mistake is soon forgotten.
    #[schemars(default = "written_max_age")]
    pub max_age: Time,
    /// Whether to tell clients to forget the announcement (`Alt-Svc: clear`).
    pub clear: bool,
    /// Announces HTTP/3 to a growing share of clients, for a growing `max_age`, while HTTP/3 is
    /// new.
    pub ramp_up: Option<RampUp>,
}

/// Gradual announcement of HTTP/3.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct RampUp {
    /// Start time; before it, HTTP/3 is not announced.
    pub since: Timestamp,
    /// Time until HTTP/3 is announced to all clients with the full `max_age`. The first
    /// announcements last for a minute.
    pub takes: Time,
}

impl Default for AltSvc {
    fn default() -> Self {
        Self { port: None, max_age: Time::seconds(86_400), clear: false, ramp_up: None }
    }
}

fn written_max_age() -> &'static str {
    "24h"
}

/// A value of the table `[limits]`: a string or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitValue(pub String);

impl<'de> Deserialize<'de> for LimitValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = LimitValue;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, or text with a unit such as \"64KiB\" or \"30s\"")
            }

            fn visit_str<E>(self, text: &str) -> Result<LimitValue, E> {
                Ok(LimitValue(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<LimitValue, E> {
                Ok(LimitValue(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<LimitValue, E> {
                Ok(LimitValue(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The table `[limits]`, by the names in docs/limits.md.
pub(crate) type LimitTable = BTreeMap<String, LimitValue>;

/// Schema of a limit's value.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum NumberOrText {
    Number(u64),
    Text(String),
}
