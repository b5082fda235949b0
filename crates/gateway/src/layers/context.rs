//! Context of layers: the worker and the client.

use std::net::IpAddr;

use pronghorn_engine::{Connector, Handle, Peer, Protocol};

/// A layer's access to its worker. Cheap to clone; bound to the worker's thread.
#[derive(Clone)]
pub struct WorkerContext {
    connector: Connector,
}

impl WorkerContext {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector }
    }

    /// Returns the worker's handle, for tasks and timers. (Layers cannot rely on a tokio runtime.)
    pub fn handle(&self) -> &Handle {
        self.connector.handle()
    }

    /// Returns the connector, for connections to other servers.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }
}

/// The client's address, in the extensions of a request: as reported by a proxy of
/// `trusted_proxies`, otherwise the peer's. The extensions also have the
/// [`pronghorn_engine::Peer`].
///
/// It is missing while the address is unverified: in requests that came over HTTP/3 before the
/// handshake was done (early data). Layers that decide by address answer those 425, so that the
/// client retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// The target of a request in canonical form, before `strip_prefix` and `rewrite`, in the request's
/// extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalTarget(pub http::Uri);

/// Returns whether the peer's address is unverified: the source of a first flight over QUIC can be
/// spoofed. (Over TCP the handshake has verified the address.)
pub(crate) fn is_unproved(peer: &Peer) -> bool {
    peer.early_data && peer.protocol == Protocol::Http3
}

pub(crate) const TOO_EARLY: &str = "retry after the handshake\n";
