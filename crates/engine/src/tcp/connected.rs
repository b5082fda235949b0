//! What is known of the client of a connection while it is served.

use std::rc::Rc;
use std::time::Duration;

use super::info::TcpPath;
use super::tls::HandshakeProgress;
use crate::handshake_signal::HandshakeSignal;
use crate::message::Peer;

/// The client of a connection whose handshake may still be in progress.
#[derive(Clone)]
pub(crate) struct Connected {
    pub(super) peer: Peer,
    pub(super) handshake: Option<Rc<HandshakeProgress>>,
    pub(super) path: TcpPath,
}

impl Connected {
    /// Returns the peer of a request that arrives now, and the signal of its handshake if that is
    /// not complete.
    ///
    /// Early data that is processed only after the handshake is as good as any other data: the
    /// completed handshake rules out a replay.
    pub(crate) fn now(&self) -> (Peer, Option<Rc<HandshakeSignal>>) {
        let handshake = self.handshake.as_ref().filter(|handshake| handshake.summary().is_none());
        let early = handshake.map(|handshake| handshake.signal().clone());
        (Peer { early_data: early.is_some(), ..self.peer.clone() }, early)
    }

    /// Returns the authority for requests that name none: the server name of the TLS handshake, or
    /// the address that the client has connected to.
    pub(crate) fn authority(&self) -> Option<String> {
        let local = self.path.local()?;
        Some(
            self.peer
                .server_name
                .as_ref()
                .map_or_else(|| local.to_string(), |name| format!("{name}:{}", local.port())),
        )
    }

    /// Returns the kernel's current round-trip time.
    pub(crate) fn rtt(&self) -> Duration {
        self.path.rtt()
    }
}

/// Outcome of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    TlsFailed,
    TimedOut,
    ProtocolError,
}
