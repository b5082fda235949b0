//! Why a request got no response.

use std::fmt;
use std::io;
use std::sync::Arc;

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Looking up the name, and connecting with TLS.
    Connect,
    /// Waiting for a connection to become free, or for a place on one: it is other requests that keep the server busy.
    Queue,
    /// Until more of the request's content was taken, or the head of the response was there.
    Head,
    /// Between two pieces of the response's content.
    Body,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::Queue => "no free connection",
            Self::Head => "no response",
            Self::Body => "no more of the response's content",
        })
    }
}

/// Why a request got no response, or not all of it. `Debug` shows its message, since that is what `main` prints of an error that it returns.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URI is not one of a request over HTTP: it needs the scheme `http` or `https`, and a host.
    #[error("cannot send a request to {uri}: {reason}")]
    Uri {
        /// The URI.
        uri: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The host's name could not be looked up.
    #[error("cannot look up {host}: {source}")]
    Lookup {
        /// The name.
        host: String,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Something took longer than it may.
    #[error("{0} in time")]
    TimedOut(Phase),
    /// As many requests to the origin wait for a connection as may.
    #[error("too many requests to {0} wait for a connection")]
    Busy(String),
    /// The connection could not be made, or the exchange failed on it.
    #[error(transparent)]
    Exchange(#[from] Arc<pronghorn_engine::Error>),
    /// The client's thread has ended.
    #[error("the client has ended")]
    Ended,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Whether nothing was done for the request at the other end, so that it can be sent again whatever its method is.
    pub fn is_unprocessed(&self) -> bool {
        use pronghorn_engine::Error as E;
        match self {
            Self::Uri { .. } | Self::Lookup { .. } | Self::TimedOut(Phase::Connect | Phase::Queue) | Self::Busy(_) => true,
            Self::Exchange(error) => {
                matches!(**error, E::Connect { .. } | E::Handshake { .. } | E::Unsupported(_) | E::Refused(_))
            }
            Self::TimedOut(_) | Self::Ended => false,
        }
    }

    /// Whether the connection ended without the response's head, so that an idempotent request (RFC 9110, section 9.2.2) can be sent again.
    pub fn is_broken_off(&self) -> bool {
        matches!(self, Self::Exchange(error) if matches!(**error, pronghorn_engine::Error::Closed(_)))
    }

    /// Whether something took longer than it may.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }
}

impl From<pronghorn_engine::Error> for Error {
    fn from(error: pronghorn_engine::Error) -> Self {
        Self::Exchange(Arc::new(error))
    }
}
