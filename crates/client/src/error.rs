//! Errors of requests.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The phase that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Name lookup, connecting, and the TLS handshake.
    Connect,
    /// Waiting for a free connection, or for a free stream on one. Other requests keep the server
    /// busy.
    Queue,
    /// Sending more of the request body, or waiting for the response head.
    Head,
    /// Waiting for the next piece of the response body.
    Body,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::Queue => "no free connection",
            Self::Head => "no response",
            Self::Body => "no response body data",
        })
    }
}

/// Reason why a request received no response, or an incomplete one. `Debug` prints the same
/// message, because that is what `main` prints for a returned error.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URI is not an HTTP request target: it needs the scheme `http` or `https`, and a host.
    #[error("cannot send a request to {uri}: {reason}")]
    Uri {
        /// The URI.
        uri: String,
        /// Reason why it is invalid.
        reason: &'static str,
    },
    /// The host name could not be resolved.
    #[error("cannot look up {host}: {source}")]
    Lookup {
        /// The host name.
        host: String,
        /// Error returned by the system.
        #[source]
        source: Arc<io::Error>,
    },
    /// A phase timed out.
    #[error("{0} in time")]
    TimedOut(Phase),
    /// As many requests to the origin wait for a connection as may.
    #[error("too many requests to {0} wait for a connection")]
    Busy(String),
    /// The connection could not be made, or the exchange failed on it.
    #[error(transparent)]
    Exchange(#[from] Arc<pronghorn_engine::Error>),
    /// The client's thread has ended.
    #[error("the client has shut down")]
    Ended,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Returns whether the server did not process the request, so that it can be retried regardless
    /// of its method.
    pub fn is_unprocessed(&self) -> bool {
        use pronghorn_engine::Error as E;
        match self {
            Self::Uri { .. }
            | Self::Lookup { .. }
            | Self::TimedOut(Phase::Connect | Phase::Queue)
            | Self::Busy(_) => true,
            Self::Exchange(error) => {
                matches!(
                    **error,
                    E::Connect { .. } | E::Handshake { .. } | E::Unsupported(_) | E::Refused(_)
                )
            }
            Self::TimedOut(_) | Self::Ended => false,
        }
    }

    /// Returns whether the connection was closed before the response head, so that an idempotent
    /// request (RFC 9110, section 9.2.2) can be retried.
    pub fn is_connection_closed(&self) -> bool {
        matches!(self, Self::Exchange(error) if matches!(**error, pronghorn_engine::Error::Closed(_)))
    }

    /// Returns whether a phase timed out.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }
}

impl From<pronghorn_engine::Error> for Error {
    fn from(error: pronghorn_engine::Error) -> Self {
        Self::Exchange(Arc::new(error))
    }
}
