//! Fields that routes keep, and protocols that their requests may go on in.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::load::Config;
use super::problem::Problem;
use super::site::{FieldName, Proxy, Route};
use super::values::{Time, written};
use crate::identity_fields::{self, Kind, folded};

/// Which other protocols the requests of a route may go on in, and how many at once.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Upgrades {
    /// Their names. A request for another one goes on as an ordinary one over HTTP/1.1, and is answered 501 over HTTP/2 and 3.
    #[schemars(default = "written_protocols")]
    pub protocols: Vec<ProtocolName>,
    /// How long neither side may send anything, until both are given up.
    #[schemars(default = "written_idle_timeout")]
    pub idle_timeout: Time,
    /// How many one client may have open, on all workers; of IPv6, one /64 network. The next one is answered 429.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1))]
    pub per_client: u32,
    /// How many the route may have open, on all workers; the next one is answered 503.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1))]
    pub open: u32,
}

impl Default for Upgrades {
    fn default() -> Self {
        Self { protocols: vec![ProtocolName("websocket".into())], idle_timeout: Time::seconds(300), per_client: 256, open: 10_000 }
    }
}

fn written_protocols() -> [&'static str; 1] {
    ["websocket"]
}

fn written_idle_timeout() -> &'static str {
    "5m"
}

fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(de::Error::custom("with 0 there is no upgrade at all: write protocols = [] for that")),
        number => Ok(number),
    }
}

/// The name of a protocol, as in the field `upgrade` and in `:protocol`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolName(pub(crate) Box<str>);

impl FromStr for ProtocolName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_token =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        let (name, version) = text.split_once('/').map_or((text, None), |(name, version)| (name, Some(version)));
        if !is_token(name) || !version.is_none_or(is_token) {
            return Err(format!("{text:?} is no name of a protocol: write one, such as websocket"));
        }
        // Whoever speaks HTTP in a tunnel has left the routes behind.
        if ["h2c", "http", "tls"].iter().any(|other| name.eq_ignore_ascii_case(other)) {
            return Err(format!(
                "{text:?} would carry requests past all routes: leave it out, clients speak HTTP/2 and TLS with this server"
            ));
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }
}
written!(ProtocolName, "protocol_name", "The name of a protocol, in lower case.", "websocket");

/// Adds what is wrong with what a route keeps and lets go on.
pub(super) fn check(config: &Config, route: &Route, problems: &mut Vec<Problem>) {
    let is_fastcgi = match &route.proxy {
        Some(Proxy::Named(name)) => config.upstreams.get(name).is_some_and(super::Upstream::speaks_fastcgi),
        Some(Proxy::Own(upstream)) => upstream.speaks_fastcgi(),
        None => route.php.is_some(),
    };
    if route.upgrades.is_some() && (route.proxy.is_none() || is_fastcgi) && config.is_whole {
        let problem = config.problem(&route.place.key("upgrades"), "nothing that answers here goes on in another protocol");
        problems.push(problem.with_hint("leave `upgrades` out, or have the route ask a server over HTTP with `proxy`"));
    }
    if route.upgrades.as_ref().is_some_and(|upgrades| upgrades.idle_timeout.0.is_zero()) {
        let problem = config.problem(&route.place.of(["upgrades".into(), "idle_timeout".into()]), "no upgrade would last");
        problems.push(problem.with_hint("take a time such as \"5m\""));
    }
    for (index, field) in route.keep_fields.iter().enumerate() {
        if let Some((message, hint)) = wrong(config, route, field, is_fastcgi) {
            let problem = config.problem(&route.place.of(["keep_fields".into(), index.into()]), message);
            problems.push(problem.with_hint(hint));
        }
    }
}

/// Why a route cannot keep a field, and what to do.
fn wrong(config: &Config, route: &Route, field: &FieldName, is_fastcgi: bool) -> Option<(String, &'static str)> {
    let name = field.name();
    let name = name.as_str();
    let changed = || route.request_headers.remove.iter().chain(route.request_headers.set.keys());
    if let Some(other) = changed().find(|other| folded(other.name().as_str()) == folded(name)) {
        let message = format!("applications may take {name} for {}, which `request_headers` removes or sets", other.name());
        return Some((message, "leave one of the two out"));
    }
    match identity_fields::kind(name) {
        None => Some((format!("{name} is never dropped"), "leave it out")),
        Some(Kind::Forwarding) => Some((
            format!("{name} is kept of proxies that are trusted, and of nobody else"),
            "name the proxy in `trusted_proxies` of [server]",
        )),
        Some(Kind::Forbidden) => {
            Some((format!("nobody may say {name}: applications would take it for another field, or another proxy"), "leave it out"))
        }
        Some(Kind::Asserted) if config.server.trusted_proxies.is_empty() => Some((
            format!("{name} says who a client is, and is kept of proxies that are trusted alone"),
            "name the proxy that sets it in `trusted_proxies` of [server]",
        )),
        Some(Kind::Unusual) if is_fastcgi => Some((
            format!("{name} cannot be told over FastCGI: it is the same variable as {}", folded(name)),
            "have clients send a name of letters, digits and dashes",
        )),
        Some(Kind::Asserted | Kind::Target | Kind::Unusual) => None,
    }
}
