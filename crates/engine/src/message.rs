//! The one request and response model over the three protocols.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, Uri};

use crate::{Body, ClientCertificate, Incoming, SharedFields, TlsParameters, Upgrade};

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

/// The connection that a request came over. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The version of HTTP spoken.
    pub protocol: Protocol,
    /// The client's address.
    pub remote: SocketAddr,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Whether the request came before the handshake was done (0-RTT), so that it may be one that the client sends again. RFC 8470.
    pub early_data: bool,
    /// What TLS has agreed on; `None` in clear text.
    pub tls: Option<TlsParameters>,
    /// The name that the client asked for in TLS (SNI), in lower case, for which the certificate was chosen. `None` in clear text, and if
    /// it sent none, as for a URL with an IP address, or an invalid DNS name.
    pub server_name: Option<Arc<str>>,
    /// What the client showed for itself, where it was asked ([`Policy::client_certificates`](crate::Policy::client_certificates)) and did.
    pub client_certificate: Option<Arc<ClientCertificate>>,
}

/// A request as a handler gets it.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The target; with scheme and authority where the protocol or the `host` field names them.
    pub uri: Uri,
    /// The field lines, names in lower case, in order.
    pub headers: HeaderMap,
    /// Who asks.
    pub peer: Peer,
    /// What the client asks to speak instead of HTTP: see [`Responder::upgrade`](crate::Responder::upgrade).
    pub upgrade: Option<Upgrade>,
    /// The content; of a request with `upgrade` that was granted, all that the client sends from there on.
    pub body: Incoming,
}

/// A response as a handler gives it.
///
/// The engine adds `date` where it is missing, and `content-length` where the body knows its size.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The field lines.
    pub headers: HeaderMap,
    /// The content.
    pub body: Body,
    /// Further lines.
    pub(crate) shared: Option<Arc<SharedFields>>,
}

impl Response {
    /// A response with this status and nothing else.
    pub fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Body::empty(), shared: None }
    }

    /// The same response with this content.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// The same response with this field line added.
    #[must_use]
    pub fn with_header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// The same response with these lines besides those in `headers`. It has no more than one such set of them.
    #[must_use]
    pub fn with_shared(mut self, fields: Arc<SharedFields>) -> Self {
        self.shared = Some(fields);
        self
    }

    /// All field lines, those of [`Response::with_shared`] included, which from here on stand in `headers`.
    pub fn fields_mut(&mut self) -> &mut HeaderMap {
        if let Some(shared) = self.shared.take() {
            if self.headers.is_empty() {
                self.headers.clone_from(shared.lines());
            } else {
                self.headers.extend(shared.lines().iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        &mut self.headers
    }
}

impl<B: Into<Body>> From<http::Response<B>> for Response {
    fn from(response: http::Response<B>) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body: body.into(), shared: None }
    }
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
