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
        _version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        // There is always one: the library accepts a connection once.
        let mut session = session.unwrap_or_else(|| self.tls.session(encode(parameters)));
        if !is_same(&self.parameters, &encode(parameters)) {
            // The client has other parameters than the connection. Once in 2^56 connections, the
            // library chooses another connection ID, because the reserved one is in use.
            session.fail("the transport parameters have changed");
        }
        Box::new(session)
    }
}

/// Whether two encodings have the same meaning. Their order and reserved parameters are random.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let read = |mut encoded: &[u8]| TransportParameters::read(Side::Client, &mut encoded).ok();
    read(one).is_some_and(|one| read(other) == Some(one))
}
