//! What holds for the server as a whole.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::buffering::ServerBuffering;
use super::values::{Listen, Moment, Network, Size, Time, choice};

/// The table `[server]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Server {
    /// Where to listen: `[::]:443` for TLS with HTTP/1.1, 2 and 3 (TCP and UDP on one port), `http://[::]:80` for clear text.
    #[schemars(default = "written_listen")]
    pub listen: Vec<Listen>,
    /// Threads, each with its own sockets; as many as there are cores if it is left out.
    #[schemars(range(min = 1, max = 256))]
    pub workers: Option<u16>,
    /// Congestion controller of QUIC and TCP; if it is left out, CUBIC over QUIC and the system's over TCP.
    pub congestion: Option<Congestion>,
    /// Initial congestion window of QUIC, in datagrams of 1472 bytes.
    #[schemars(range(min = 2, max = 1000))]
    pub initial_window: u16,
    /// Size of the kernel's buffers for each UDP socket, in either direction.
    #[schemars(default = "written_udp_buffer")]
    pub udp_buffer: Size,
    /// Requests that come before the handshake is done (0-RTT): none, those with a safe method, or all.
    pub early_data: EarlyData,
    /// Whether clear-text listeners speak HTTP/2 with clients that begin with it (prior knowledge), as gRPC behind a balancer does.
    pub http2_prior_knowledge: bool,
    /// Whether HTTP/3 is served, for sites that do not say it themselves.
    pub http3: bool,
    /// The oldest version of TLS that is spoken over TCP; over QUIC it is always 1.3.
    pub min_tls: MinTls,
    /// What responses say of HTTP/3.
    pub alt_svc: AltSvc,
    /// Value of the field `server` in responses; empty for none.
    pub name: String,
    /// Folder for what has to survive a restart; if it is left out, `pronghorn` in the user's folder for state.
    pub state_dir: Option<PathBuf>,
    /// How long requests that run may go on when the server is told to end.
    #[schemars(default = "written_grace")]
    pub grace: Time,
    /// Balancers in front of this server, whose TCP connections all begin with a PROXY protocol header (version 2), and are closed without it.
    pub proxy_protocol: Vec<Network>,
    /// Proxies in front of this server, whose `Forwarded` and `X-Forwarded-*` fields are believed.
    pub trusted_proxies: Vec<Network>,
    /// What is held at most of responses that clients read slowly, over all upstreams that say `buffering`.
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

choice! {
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

choice! {
    /// A version of TLS.
    MinTls: "version of TLS" {
        /// TLS 1.2 (RFC 5246), with the ciphers that are still good.
        Tls12 = "1.2",
        /// TLS 1.3 (RFC 8446).
        Tls13 = "1.3",
    }
}

choice! {
    /// What is done with requests that come before the handshake is done.
    EarlyData: "policy for early data" {
        /// None is taken.
        Off = "off",
        /// Those whose method is safe are answered, the others get 425.
        Safe = "safe",
        /// All are answered; upstreams see `Early-Data: 1`.
        All = "all",
    }
}

impl From<EarlyData> for pronghorn_engine::EarlyData {
    fn from(policy: EarlyData) -> Self {
        match policy {
            EarlyData::Off => Self::Off,
            EarlyData::Safe => Self::SafeMethods,
            EarlyData::All => Self::All,
        }
    }
}

/// What responses say of HTTP/3 (RFC 7838).
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct AltSvc {
    /// The port that clients reach, where it is not the one that is listened on, as behind a forwarded port.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// How long clients remember it. Begin with minutes when HTTP/3 is new to a site, so that a mistake is soon forgotten.
    #[schemars(default = "written_max_age")]
    pub max_age: Time,
    /// Tell clients to forget it (`Alt-Svc: clear`) instead.
    pub clear: bool,
    /// Tells more and more clients, to remember it for longer and longer, where HTTP/3 is new.
    pub ramp_up: Option<RampUp>,
}

/// From when on more and more clients hear of HTTP/3.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct RampUp {
    /// When it begins; before that nobody hears of HTTP/3.
    pub since: Moment,
    /// How long it takes until all clients hear of it, and for `max_age`. The first hear of it for a minute.
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

/// A value of the table `[limits]`, as text or as a number.
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

/// The table `[limits]`: what clients may take, by the names of docs/limits.md.
pub(crate) type LimitTable = BTreeMap<String, LimitValue>;
