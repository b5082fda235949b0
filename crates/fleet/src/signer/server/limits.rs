//! Bounds on what clients may use.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// A duration such as `10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|error| {
            serde::de::Error::custom(format_args!(
                "invalid duration {text:?}: {error}; use a number with a unit, such as \"10s\""
            ))
        })
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(self.0))
    }
}

/// The table `[limits]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open connections of clients (256). Each buffers 64 KiB, and its requests. Further ones are
    /// closed after their handshake.
    pub connections: usize,
    /// Connections in their TLS handshake (64), some 40 KiB each. Further ones wait to be accepted.
    pub handshakes: usize,
    /// Requests of one connection without a completely sent answer (1024), 2 KiB each. The
    /// signer reads no further ones until answers are sent, so a client that does not read cannot
    /// use more.
    pub requests_per_connection: usize,
    /// Requests that wait for a signature, of all connections (8192). Further ones are answered
    /// with the error `INTERNAL`.
    pub requests: usize,
    /// Bytes of a message (4096). After a larger one the connection is closed.
    pub message_bytes: usize,
    /// Time without a request after which a connection is closed (2 minutes). Clients ping.
    pub idle_timeout: Seconds,
    /// Time for a TLS handshake (10 s).
    pub handshake_timeout: Seconds,
    /// Time in which a client that does not read must accept some bytes (10 s); then its connection
    /// is closed.
    pub write_timeout: Seconds,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            handshakes: 64,
            requests_per_connection: 1024,
            requests: 8192,
            message_bytes: 4096,
            idle_timeout: Seconds(Duration::from_secs(120)),
            handshake_timeout: Seconds(Duration::from_secs(10)),
            write_timeout: Seconds(Duration::from_secs(10)),
        }
    }
}

impl Limits {
    /// Returns the name and the value of a limit that is too small to work, and its minimum.
    pub(super) fn too_small(&self) -> Option<(&'static str, usize, usize)> {
        [
            ("connections", self.connections, 1),
            ("handshakes", self.handshakes, 1),
            ("requests_per_connection", self.requests_per_connection, 1),
            ("requests", self.requests, 1),
            // Clients pad their messages.
            ("message_bytes", self.message_bytes, 1280),
        ]
        .into_iter()
        .find(|(_, value, min)| value < min)
    }
}
