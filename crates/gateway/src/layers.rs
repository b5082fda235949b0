//! What requests go through on their way to what answers them, and responses on their way back: services of tower around services,
//! registered by name.
//!
//! A configuration names the layers of its sites and routes; a [`Registry`] knows what to make of the names. [`Registry::standard`] has
//! those that come with Pronghorn. A program adds its own with [`Registry::with_tower`], for layers of tower and tower-http, or with
//! [`Registry::with`], for what needs timers or connections of the worker. docs/gateway/layers.md has an example.

mod addresses;
mod around;
mod basic_auth;
mod body_limit;
mod compress;
mod concurrency;
mod cors;
mod forward_auth;
mod rate_limit;
mod registry;
mod service;
mod standard;
mod timeout;

use std::net::IpAddr;

use http::StatusCode;
use pronghorn_engine::{Connector, Handle, Peer, Protocol};

pub use around::Around;
pub use registry::{Registry, Surroundings};
pub(crate) use service::from_engine;
pub use service::{Layer, LocalFuture, LocalService, Request, Response};

pub(crate) use crate::identity_fields::take_away;
use crate::plan::text;

/// What a layer may have of the worker that it is on. Cheap to clone; bound to the worker's thread.
#[derive(Clone)]
pub struct OnWorker {
    connector: Connector,
}

impl OnWorker {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector }
    }

    /// Its futures and timers. (There is no runtime of tokio to be relied on.)
    pub fn handle(&self) -> &Handle {
        self.connector.handle()
    }

    /// Opens connections to other servers.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }
}

/// The address that a request comes from, in its extensions: the client's, where a proxy of `trusted_proxies` says whose request it
/// passes on, otherwise the peer's. Beside it stands the [`pronghorn_engine::Peer`].
///
/// It is not there while nothing proves that the client is at that address: in requests that came over HTTP/3 before the handshake was done
/// (early data). What is decided by address answers those 425, so that they come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// The target of a request in canonical form, in its extensions: what will be served, before `strip_prefix` and `rewrite`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked(pub http::Uri);

/// Whether whoever asks may be at another address than it seems: a first flight over QUIC has its sender's word alone. (Over TCP the address
/// is proved before.)
pub(crate) fn is_unproved(peer: &Peer) -> bool {
    peer.early_data && peer.protocol == Protocol::Http3
}

/// The answer to requests without a [`Client`], where that decides.
pub(crate) fn too_early() -> Response {
    from_engine(text(StatusCode::TOO_EARLY, TOO_EARLY))
}

pub(crate) const TOO_EARLY: &str = "ask again when the handshake is done\n";
