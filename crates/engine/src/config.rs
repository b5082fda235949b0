//! A worker's settings.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderValue;

use crate::limits::Limits;
use crate::qlog::Qlog;
use crate::tls::TlsOptions;

/// A congestion controller, for QUIC and TCP alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// New Reno (RFC 9002, section 7; RFC 6582).
    NewReno,
    /// BBR, version 1, as implemented by the QUIC transport.
    Bbr,
}

impl Congestion {
    /// All controllers, for messages and help texts.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::NewReno, Self::Bbr];

    /// Returns the Linux kernel's name of this controller, for TCP.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Bbr => "bbr",
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Bbr => "bbr",
        })
    }
}

impl FromStr for Congestion {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|congestion| congestion.to_string() == name)
            .ok_or_else(|| format!("unknown congestion controller {name:?}: cubic, newreno or bbr"))
    }
}

/// How to treat requests that arrive before the handshake is complete (0-RTT).
///
/// An attacker on the network may replay them. This server refuses the replay, because it resumes a
/// session only once. What remains is a client that sends a request again because the first one got
/// no response: the server then sees it twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyData {
    /// Accept no early data. Sessions are still resumed.
    Off,
    /// Answer requests with a safe method (RFC 9110, section 9.2.1), which may be repeated. The
    /// others get 425 (Too Early).
    #[default]
    SafeMethods,
    /// Answer requests with a safe method. The others wait until the handshake is complete, for
    /// clients that do not repeat a request after 425.
    Hold,
    /// Answer all. Handlers check [`Peer::early_data`](crate::Peer::early_data) themselves.
    All,
}

impl EarlyData {
    /// All policies, for messages and help texts.
    pub const ALL: [Self; 4] = [Self::Off, Self::SafeMethods, Self::Hold, Self::All];
}

impl fmt::Display for EarlyData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::SafeMethods => "safe",
            Self::Hold => "hold",
            Self::All => "all",
        })
    }
}

impl FromStr for EarlyData {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|policy| policy.to_string() == name);
        known.ok_or_else(|| {
            format!("unknown policy {name:?} for early data: off, safe, hold or all")
        })
    }
}

/// What responses announce of the server's HTTP/3 in `alt-svc` (RFC 7838), unless their handler
/// sets the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AltSvc {
    /// HTTP/3 on the port of the request, for a day. Clear-text listeners announce nothing.
    #[default]
    SamePort,
    /// No announcement. Clients find HTTP/3 by other means, such as an HTTPS record, or not at all.
    Off,
    /// This field value, for example where a port is forwarded: `h3=":443"; ma=3600`.
    Value(HeaderValue),
}

impl AltSvc {
    pub(crate) fn value(&self, port: u16) -> Option<HeaderValue> {
        match self {
            Self::SamePort => Some(
                HeaderValue::from_str(&format!("h3=\":{port}\"; ma=86400"))
                    .expect("invariant: a port is visible ASCII"),
            ),
            Self::Off => None,
            Self::Value(value) => Some(value.clone()),
        }
    }
}

/// Load balancers in front of this server. Their TCP connections begin with a PROXY protocol
/// header, version 2, which names the client. That address becomes
/// [`Peer::remote`](crate::Peer::remote), and limits count for it. A connection from a balancer
/// without the header is closed.
#[derive(Clone)]
pub struct TrustedProxies(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl TrustedProxies {
    /// Selects the balancers by their address. Workers call `are`, so it must not block.
    pub fn new(are: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(are))
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        (self.0)(address)
    }
}

impl fmt::Debug for TrustedProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedProxies").finish_non_exhaustive()
    }
}

/// Settings of one worker. The default is safe on the open internet.
#[derive(Clone, Debug)]
pub struct Config {
    /// Limits on what peers may use.
    pub limits: Limits,
    /// Congestion controller of QUIC, and of the TCP connections that this side opens. Accepted TCP
    /// connections have that of the [`Listener`](crate::Listener). `None`, the default, means CUBIC
    /// for QUIC and the system's setting for TCP.
    pub congestion: Option<Congestion>,
    /// Initial congestion window of QUIC, in datagrams of 1472 bytes. Datagrams of 1200 bytes fill
    /// it until the path has shown that it carries larger ones. The first ten leave at once, the
    /// others within half a round trip.
    ///
    /// Default 20, where RFC 9002, section 7.2, recommends 10: a document of 14 to 25 KB then takes
    /// one round trip instead of two. `docs/transport.md` shows the effect by link. TCP uses the
    /// window of the system's routes (`initcwnd`).
    pub initial_window_datagrams: u16,
    /// Treatment of requests that arrive before the handshake is complete. Default: those with a
    /// safe method are answered.
    pub early_data: EarlyData,
    /// `server` field of responses whose handler sets none. Default: none.
    pub server: Option<HeaderValue>,
    /// `alt-svc` field of responses. Default: HTTP/3 on the same port.
    pub alt_svc: AltSvc,
    /// Whether to offer WebTransport over HTTP/3, as server and as client. Default: no. It costs
    /// some 30 bytes of SETTINGS, extended CONNECT and QUIC datagrams on every connection, whether
    /// the peer uses it or not.
    pub webtransport: bool,
    /// Whether clear-text listeners accept HTTP/2 with prior knowledge (RFC 9113, section 3.3), as
    /// load balancers in front of gRPC servers use it. Default: yes. A client that sends `Upgrade:
    /// h2c` stays on HTTP/1.1: RFC 9113 has removed that upgrade.
    pub http2_prior_knowledge: bool,
    /// Where each QUIC connection writes its qlog. Default: none is written.
    pub qlog: Option<Qlog>,
    /// Load balancers whose TCP connections begin with a PROXY protocol header. Default: none.
    pub trusted_proxies: Option<TrustedProxies>,
    /// Limits on the work of one turn, after which the worker returns to its host.
    pub budget: Budget,
}

impl Config {
    pub(crate) fn tls_options(&self) -> TlsOptions<'_> {
        TlsOptions {
            limits: &self.limits,
            early_data: self.early_data != EarlyData::Off,
            datagrams: self.webtransport,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            congestion: None,
            initial_window_datagrams: 20,
            early_data: EarlyData::default(),
            server: None,
            alt_svc: AltSvc::default(),
            webtransport: false,
            http2_prior_knowledge: true,
            qlog: None,
            trusted_proxies: None,
            budget: Budget::default(),
        }
    }
}

/// Limits on the work of one turn. Small numbers share the thread more fairly, large ones cost
/// fewer system calls.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// TCP connections accepted. Default 32.
    pub accepts: usize,
    /// Batches of received datagrams, one per system call. Default 4.
    pub receive_batches: usize,
    /// Polls of futures. Default 512.
    pub polls: usize,
    /// System calls that send datagrams. Default 512.
    pub sends: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { accepts: 32, receive_batches: 4, polls: 512, sends: 512 }
    }
}
