//! Why a request got no response.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::message::Protocol;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// A TCP or QUIC address.
    Address(SocketAddr),
    /// A Unix socket.
    Unix(Arc<Path>),
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection could not be opened.
    #[error("cannot connect to {remote}: {source}")]
    Connect {
        /// Server.
        remote: Remote,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The TLS or QUIC handshake failed, or the certificate is not trusted.
    #[error("handshake with {remote} failed: {reason}")]
    Handshake {
        /// Server.
        remote: Remote,
        /// Description of the failure.
        reason: String,
    },
    /// The server does not support the requested protocol.
    #[error("the server does not support {0}")]
    Unsupported(Protocol),
    /// The server does not support extended CONNECT, or has switched to another protocol than the
    /// requested one.
    #[error("the server does not support the upgrade to {0}")]
    NoUpgrade(String),
    /// The server has not processed the request, for example because it is about to close the
    /// connection. The request can be retried on another one.
    #[error("the server refused the request: {0}")]
    Refused(String),
    /// The server aborted the exchange and left the connection open.
    #[error("the server aborted the exchange: {0}")]
    Reset(String),
    /// The connection ended before the exchange did.
    #[error("connection closed before the exchange ended: {0}")]
    Closed(String),
    /// The server does not respond any more. Whether it has processed the request is unknown.
    #[error("lost contact with the server: {0}")]
    Unreachable(String),
    /// The response head exceeds the limits.
    #[error("response head too large: {0}")]
    HeadTooLarge(String),
    /// The exchange failed after the connection was opened.
    #[error("the exchange failed: {0}")]
    Exchange(String),
}
