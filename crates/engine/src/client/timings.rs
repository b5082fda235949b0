//! Durations of the steps of opening a connection.

use std::time::Duration;

/// How long the parts of opening a connection took.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectTimings {
    /// TCP handshake; `None` over QUIC, which has none.
    pub tcp: Option<Duration>,
    /// TLS handshake; over QUIC the whole handshake.
    pub tls: Option<Duration>,
}
