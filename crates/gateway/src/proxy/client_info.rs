//! Properties of the client.

use std::net::IpAddr;

use http::HeaderMap;
use pronghorn_engine::{Peer, Protocol};

use crate::fields::forwarding;

/// Properties of the client that matter for the choice of a server.
#[derive(Clone, Copy)]
pub(super) struct ClientInfo {
    pub(super) address: IpAddr,
    /// Whether the client used TLS.
    pub(super) secure: bool,
    pub(super) protocol: Protocol,
}

impl ClientInfo {
    /// `headers` is the fields for the server, where `x-forwarded-proto` says whether the client
    /// used TLS. Only cookies depend on that.
    pub(super) fn of(peer: &Peer, headers: &HeaderMap, has_cookies: bool) -> Self {
        let secure = if has_cookies {
            forwarding::is_secure(headers).unwrap_or(peer.secure)
        } else {
            peer.secure
        };
        Self { address: peer.remote.ip(), secure, protocol: peer.protocol }
    }
}
