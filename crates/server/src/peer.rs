//! The client and connection of a request, as a request extension.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Extensions, Request, StatusCode, Version};
use pronghorn_engine::Protocol;

use crate::Body;

/// The connection that a request arrived on, as an extension of each request.
///
/// ```
/// use pronghorn_server::{Body, Peer};
///
/// fn greet(request: &http::Request<Body>) -> String {
///     match request.extensions().get::<Peer>() {
///         Some(peer) => format!("hello {} over {}", peer.remote.ip(), peer.protocol),
///         None => "hello".to_owned(),
///     }
/// }
/// # greet(&http::Request::new(Body::empty()));
/// ```
///
/// With the feature `axum` it is also an extractor: `async fn handler(peer: Peer) -> …`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The client's address.
    pub remote: SocketAddr,
    /// The HTTP version of the connection.
    pub protocol: Protocol,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Whether the request arrived before the handshake was complete (0-RTT), so that it may be a
    /// replay. See [`Peer::refuse_early`].
    pub early_data: bool,
    /// The server name that the client requested in TLS (SNI), in lower case.
    ///
    /// `None` in cleartext, and if the client sent no name, as for a URL with an IP address. A
    /// client may send requests for other hosts over the same connection if the certificate covers
    /// them.
    pub server_name: Option<Arc<str>>,
}

impl Peer {
    pub(crate) fn version(&self) -> Version {
        match self.protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::Http2 => Version::HTTP_2,
            Protocol::Http3 => Version::HTTP_3,
        }
    }

    /// Returns a 425 (Too Early, RFC 8470) response if the request arrived in early data. The
    /// client then repeats the request after the handshake.
    ///
    /// Unless [`Server::early_data`](crate::Server::early_data) is changed, handlers receive only
    /// early requests with a safe method. Use this for requests that are not as harmless as their
    /// method implies.
    ///
    /// ```
    /// # use pronghorn_server::{Body, Peer};
    /// fn handle(peer: Peer) -> http::Response<Body> {
    ///     if let Some(too_early) = peer.refuse_early() {
    ///         return too_early;
    ///     }
    ///     http::Response::new(Body::from("done once"))
    /// }
    /// # let _ = handle;
    /// ```
    pub fn refuse_early(&self) -> Option<http::Response<Body>> {
        self.early_data.then(|| {
            let mut response = http::Response::new(Body::empty());
            *response.status_mut() = StatusCode::TOO_EARLY;
            response
        })
    }
}

impl From<pronghorn_engine::Peer> for Peer {
    fn from(peer: pronghorn_engine::Peer) -> Self {
        let pronghorn_engine::Peer {
            protocol,
            remote,
            secure,
            early_data,
            tls: _,
            server_name,
            client_certificate: _,
        } = peer;
        Self { remote, protocol, secure, early_data, server_name }
    }
}

/// Returns empty extensions with capacity for what [`insert_peer`] and a router add. A map that
/// grows for each request costs more than a larger one.
pub(crate) fn preallocated_extensions() -> Extensions {
    #[derive(Clone)]
    struct Placeholder<const NUMBER: u8>;
    let mut extensions = Extensions::new();
    extensions.insert(Placeholder::<0>);
    extensions.insert(Placeholder::<1>);
    extensions.insert(Placeholder::<2>);
    extensions.insert(Placeholder::<3>);
    extensions.clear();
    extensions
}

/// Adds the connection to the request's extensions, which start as a copy of `template`.
pub(crate) fn insert_peer<B>(request: &mut Request<B>, peer: Peer, template: &Extensions) {
    *request.version_mut() = peer.version();
    request.extensions_mut().clone_from(template);
    let extensions = request.extensions_mut();
    #[cfg(feature = "axum")]
    extensions.insert(axum::extract::ConnectInfo(peer.remote));
    extensions.insert(peer);
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Peer {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        let missing = (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the request was not received by a pronghorn_server::Server",
        );
        parts.extensions.get().cloned().ok_or(missing)
    }
}
