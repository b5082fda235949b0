//! Protocol upgrades of routes, and the header fields that routes keep.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::values::{Time, string_type};

/// Protocols that a route's requests may switch to, and how many at once.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Upgrades {
    /// Names of the protocols. A request for another protocol is forwarded as an ordinary request
    /// over HTTP/1.1, and answered 501 over HTTP/2 and 3.
    #[schemars(default = "written_protocols")]
    pub protocols: Vec<ProtocolName>,
    /// Time without data in either direction after which both sides are closed.
    #[schemars(default = "written_idle_timeout")]
    pub idle_timeout: Time,
    /// Maximum number of upgrades open per client, on all workers; for IPv6, per /64 network.
    /// Further requests are answered 429.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1))]
    pub per_client: u32,
    /// Maximum number of upgrades open on the route, on all workers; further requests are answered
    /// 503.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1))]
    pub open: u32,
}

impl Default for Upgrades {
    fn default() -> Self {
        Self {
            protocols: vec![ProtocolName("websocket".into())],
            idle_timeout: Time::seconds(300),
            per_client: 256,
            open: 10_000,
        }
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
        0 => Err(de::Error::custom("invalid value 0: use protocols = [] to turn upgrades off")),
        number => Ok(number),
    }
}

/// The name of a protocol, as in the header field `upgrade` and in `:protocol`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolName(pub(crate) Box<str>);

impl FromStr for ProtocolName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_token = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
        };
        let (name, version) =
            text.split_once('/').map_or((text, None), |(name, version)| (name, Some(version)));
        if !is_token(name) || !version.is_none_or(is_token) {
            return Err(format!("invalid protocol name {text:?}: use a name such as websocket"));
        }
        // Requests sent as HTTP in a tunnel would bypass the routes.
        if ["h2c", "http", "tls"].iter().any(|other| name.eq_ignore_ascii_case(other)) {
            return Err(format!(
                "{text:?} would let requests bypass all routes: leave it out, clients use HTTP/2 \
                    and TLS with this server itself"
            ));
        }
        Ok(Self(text.to_ascii_lowercase().into()))
    }
}
string_type!(ProtocolName, "protocol_name", "The name of a protocol, in lower case.", "websocket");
