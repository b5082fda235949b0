//! What a worker can be told.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderValue;

use crate::limits::Limits;
use crate::qlog::Qlog;

/// A congestion controller, for QUIC and TCP alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// New Reno (RFC 9002, section 7; RFC 6582).
    NewReno,
    /// BBR, version 1, as the transport has it.
    Bbr,
}

impl Congestion {
    /// All controllers, for messages and help texts.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::NewReno, Self::Bbr];

    /// The name that the Linux kernel gives to its controller for TCP.
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

/// What to do with requests that come before the handshake is done (0-RTT).
///
/// A network attacker may send them a second time. This server does not take them then, because it resumes a session once. What is left
/// is that the client itself, not having heard of the first, sends the request again: the server then sees it twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyData {
    /// Take none. Sessions are resumed all the same.
    Off,
    /// Answer those whose method is safe (RFC 9110, section 9.2.1), which may be asked any number of times; the others get 425 Too Early.
    #[default]
    SafeMethods,
    /// Answer all; handlers look at [`Peer::early_data`](crate::Peer::early_data) themselves.
    All,
}

impl EarlyData {
    /// All policies, for messages and help texts.
    pub const ALL: [Self; 3] = [Self::Off, Self::SafeMethods, Self::All];
}

impl fmt::Display for EarlyData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::SafeMethods => "safe",
            Self::All => "all",
        })
    }
}

impl FromStr for EarlyData {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|policy| policy.to_string() == name);
        known.ok_or_else(|| format!("unknown policy {name:?} for early data: off, safe or all"))
    }
}

/// What responses say of the server's HTTP/3 (RFC 7838), unless their handler says something itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AltSvc {
    /// That it is on the port that the request came to, for a day. The clear-text listeners say nothing.
    #[default]
    SamePort,
    /// Nothing: clients find it by other means, such as an HTTPS record, or are not to find it.
    Off,
    /// This value of the field, as where a port is forwarded: `h3=":443"; ma=3600`.
    Value(HeaderValue),
}

impl AltSvc {
    pub(crate) fn value(&self, port: u16) -> Option<HeaderValue> {
        match self {
            Self::SamePort => {
                Some(HeaderValue::from_str(&format!("h3=\":{port}\"; ma=86400")).expect("invariant: a port is visible ASCII"))
            }
            Self::Off => None,
            Self::Value(value) => Some(value.clone()),
        }
    }
}

/// Balancers in front of this server, whose TCP connections begin with a header of the PROXY protocol, version 2, which says whom they
/// speak for: that is [`Peer::remote`](crate::Peer::remote) then, and who counts for limits. A connection of theirs without it is closed.
#[derive(Clone)]
pub struct Balancers(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl Balancers {
    /// Those whose address `are` says yes to. Workers ask it, so it must not wait.
    pub fn new(are: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(are))
    }

    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        (self.0)(address)
    }
}

impl fmt::Debug for Balancers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancers").finish_non_exhaustive()
    }
}

/// Settings of one worker. The default is safe on the open internet.
#[derive(Clone, Debug)]
pub struct Config {
    /// What peers may take.
    pub limits: Limits,
    /// The congestion controller of QUIC, and of the TCP connections that this side opens; those that it accepts have the
    /// [`Listener`](crate::Listener)'s. `None`, the default, is CUBIC for QUIC, and for TCP what the system is set to.
    pub congestion: Option<Congestion>,
    /// The initial congestion window of QUIC, in datagrams of 1472 bytes. Datagrams of 1200 bytes fill it until the path has shown that it
    /// carries larger ones; the first ten leave at once, the others within half a round trip.
    ///
    /// Default 20, where RFC 9002, section 7.2, recommends 10: a document of 14 to 25 KB then takes one round trip and not two.
    /// `docs/transport.md` has what it brings on which links. TCP has the window of the system's routes (`initcwnd`).
    pub initial_window_datagrams: u16,
    /// What becomes of requests that come before the handshake is done. Default: those with a safe method are answered.
    pub early_data: EarlyData,
    /// The `server` field of responses whose handler gives none. Default: there is none.
    pub server: Option<HeaderValue>,
    /// What responses say of HTTP/3. Default: that it is on the same port.
    pub alt_svc: AltSvc,
    /// Whether WebTransport over HTTP/3 is offered, as server and as client. Default: no. What it needs is offered on every connection,
    /// whether the peer uses it or not: some 30 bytes of SETTINGS, extended CONNECT, and QUIC datagrams.
    pub webtransport: bool,
    /// Whether clear-text listeners speak HTTP/2 with clients that begin with it, without asking (RFC 9113, section 3.3), as balancers with gRPC
    /// behind them do. Default: yes. A client that asks by `Upgrade: h2c` goes on in HTTP/1.1: RFC 9113 has no such upgrade any more.
    pub http2_prior_knowledge: bool,
    /// Where each QUIC connection writes what happens on it, if anywhere. Default: nowhere.
    pub qlog: Option<Qlog>,
    /// Whose TCP connections begin with a PROXY protocol header. Default: nobody's.
    pub balancers: Option<Balancers>,
    /// What one turn of a worker may do before it returns to its host.
    pub budget: Budget,
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
            balancers: None,
            budget: Budget::default(),
        }
    }
}

/// How much one turn does at the most. Small numbers share the thread more fairly, large ones cost fewer system calls.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// TCP connections accepted. Default 32.
    pub accepts: usize,
    /// Batches of datagrams received; a batch is what one system call returns. Default 4.
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
