//! The connection and the client of a request.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::{ClientCertificate, TlsParameters};

/// The version of HTTP that carried a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1 (or 1.0).
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        })
    }
}

/// The connection that a request arrived on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The version of HTTP spoken.
    pub protocol: Protocol,
    /// The client's address.
    pub remote: SocketAddr,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Whether the request arrived before the handshake was complete (0-RTT), so that it may be a
    /// replay or a retry. RFC 8470.
    pub early_data: bool,
    /// TLS parameters; `None` in clear text.
    pub tls: Option<TlsParameters>,
    /// Server name that the client sent in TLS (SNI), in lower case, by which the certificate was
    /// chosen. `None` in clear text, and if the client sent none, as for a URL with an IP address,
    /// or an invalid DNS name.
    pub server_name: Option<Arc<str>>,
    /// Certificate that the client presented, if one was requested
    /// ([`Policy::client_certificates`](crate::Policy::client_certificates)).
    pub client_certificate: Option<Arc<ClientCertificate>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_takes_one_cache_line() {
        // Each request has one.
        assert!(size_of::<Peer>() <= 64, "{}", size_of::<Peer>());
    }
}
