//! Who asks, as each request's extensions say.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Extensions, Request, StatusCode, Version};
use pronghorn_engine::Protocol;

use crate::Body;

/// The connection that a request came over: an extension of each request.
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
/// With the feature `axum` it is an extractor too: `async fn handler(peer: Peer) -> …`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The client's address.
    pub remote: SocketAddr,
    /// The version of HTTP spoken.
    pub protocol: Protocol,
    /// Whether the connection is encrypted.
    pub secure: bool,
    /// Whether the request came before the handshake was done (0-RTT), so that it may be one that the client sends again.
    /// See [`Peer::refuse_early`].
    pub early_data: bool,
    /// The name that the client asked for in TLS (SNI), in lower case. `None` in clear text, and if it gave none, as for a URL with an IP
    /// address. A client may send requests for other hosts over the same connection, if the certificate is for them too.
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

    /// The answer 425 (Too Early, RFC 8470) if the request came in early data: the client sends it again when the handshake is done.
    ///
    /// Of requests in early data, handlers see only those with a safe method unless [`Server::early_data`](crate::Server::early_data)
    /// says otherwise; this is for those that are not as harmless as their method says.
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
        let pronghorn_engine::Peer { protocol, remote, secure, early_data, tls: _, server_name, client_certificate: _ } = peer;
        Self { remote, protocol, secure, early_data, server_name }
    }
}

/// Extensions with room for what [`introduce`] adds and what a router does: a map that grows for each request costs more than a larger one.
pub(crate) fn roomy() -> Extensions {
    #[derive(Clone)]
    struct Place<const NUMBER: u8>;
    let mut extensions = Extensions::new();
    extensions.insert(Place::<0>);
    extensions.insert(Place::<1>);
    extensions.insert(Place::<2>);
    extensions.insert(Place::<3>);
    extensions.clear();
    extensions
}

/// Tells the application who asks. A copy of `room` becomes the request's extensions.
pub(crate) fn introduce<B>(request: &mut Request<B>, peer: Peer, room: &Extensions) {
    *request.version_mut() = peer.version();
    request.extensions_mut().clone_from(room);
    let extensions = request.extensions_mut();
    #[cfg(feature = "axum")]
    extensions.insert(axum::extract::ConnectInfo(peer.remote));
    extensions.insert(peer);
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Peer {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut http::request::Parts, _: &S) -> Result<Self, Self::Rejection> {
        let missing = (StatusCode::INTERNAL_SERVER_ERROR, "the request did not come over a pronghorn_server::Server");
        parts.extensions.get().cloned().ok_or(missing)
    }
}
