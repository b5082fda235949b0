//! TLS of connections whose ClientHello was answered before the transport accepted them.

use std::sync::{Arc, Mutex, PoisonError};

use quinn_proto::crypto::{self, Keys, UnsupportedVersion};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side};

use super::session::{ServerTls, Session, encode};

/// The TLS configuration of one connection, whose session exists already.
pub(super) struct ReadyTls {
    tls: Arc<ServerTls>,
    /// The encoded transport parameters that the session has sent.
    parameters: Vec<u8>,
    session: Mutex<Option<Session>>,
}

impl ReadyTls {
    pub(super) fn new(tls: Arc<ServerTls>, parameters: Vec<u8>, session: Session) -> Arc<Self> {
        Arc::new(Self { tls, parameters, session: Mutex::new(Some(session)) })
    }
}

impl crypto::ServerConfig for ReadyTls {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.tls.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.tls.retry_tag(version, id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let is_same = is_same(&self.parameters, &encode(parameters));
        debug_assert!(is_same, "the transport has other parameters than were sent: {parameters:?}");
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        match session {
            Some(session) if is_same => Box::new(session),
            // The library has chosen another connection ID: the one that was reserved is in use,
            // which once in 2^56 connections happens. The handshake begins again.
            _ => self.tls.clone().start_session(version, parameters),
        }
    }
}

/// Whether two encodings have the same meaning. Their order and reserved parameters are random.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let read = |mut encoded: &[u8]| TransportParameters::read(Side::Client, &mut encoded).ok();
    read(one).is_some_and(|one| read(other) == Some(one))
}
