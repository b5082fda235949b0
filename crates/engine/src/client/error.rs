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
    /// Over TCP or QUIC.
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
    /// The connection could not be made.
    #[error("cannot connect to {remote}: {source}")]
    Connect {
        /// Where to.
        remote: Remote,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The TLS or QUIC handshake failed; a certificate that is not trusted ends here too.
    #[error("handshake with {remote} failed: {reason}")]
    Handshake {
        /// With whom.
        remote: Remote,
        /// What was wrong.
        reason: String,
    },
    /// The server does not speak the protocol asked for.
    #[error("the server does not speak {0}")]
    Unsupported(Protocol),
    /// The server does not offer extended CONNECT, or goes on in something else than was asked for.
    #[error("the server offers no upgrade to {0}")]
    NoUpgrade(String),
    /// The server has not taken the request, as when it is about to close the connection: it can be sent again on another one.
    #[error("the server did not take the request: {0}")]
    Refused(String),
    /// The server gave up the exchange and left the connection open.
    #[error("the server gave up the exchange: {0}")]
    Reset(String),
    /// The connection ended before the exchange did.
    #[error("the connection ended before the exchange: {0}")]
    Closed(String),
    /// The server was not heard from any more. What became of the request, nobody knows.
    #[error("the server is gone: {0}")]
    Lost(String),
    /// The head of the response is larger than is taken.
    #[error("the head of the response is too large: {0}")]
    HeadTooLarge(String),
    /// The exchange failed after the connection was made.
    #[error("the exchange failed: {0}")]
    Exchange(String),
}
