//! TLS towards servers, with and without the sessions of earlier connections.

use std::sync::Arc;

use crate::message::Protocol;
use crate::tls::ClientSessions;
use crate::transport::ClientTls;

/// TLS of each kind. A session is of use only on the transport that it comes from, so that each has its store: what comes over TCP
/// lacks what QUIC remembers. That HTTP is of the same version is for the server to check.
pub(super) struct ClientTlsConfigs {
    base: rustls::ClientConfig,
    tcp: Arc<ClientSessions>,
    /// In the order of [`Resumption`].
    pub(super) quic: [ClientTls; 3],
}

impl ClientTlsConfigs {
    pub(super) fn new(base: &rustls::ClientConfig) -> Result<Self, String> {
        let quic_sessions = Arc::<ClientSessions>::default();
        let quic = |resumption| ClientTls::new(config(base, &[b"h3"], &quic_sessions, resumption));
        let quic = [quic(Resumption::Off)?, quic(Resumption::Session)?, quic(Resumption::EarlyData)?];
        Ok(Self { base: base.clone(), tcp: Arc::default(), quic })
    }

    pub(super) fn tcp(&self, protocol: Option<Protocol>, resumption: Resumption) -> Arc<rustls::ClientConfig> {
        let alpn: &[&[u8]] = match protocol {
            None => &[b"h2", b"http/1.1"],
            Some(Protocol::Http2) => &[b"h2"],
            Some(_) => &[b"http/1.1"],
        };
        config(&self.base, alpn, &self.tcp, resumption)
    }
}

fn config(
    base: &rustls::ClientConfig,
    alpn: &[&[u8]],
    sessions: &Arc<ClientSessions>,
    resumption: Resumption,
) -> Arc<rustls::ClientConfig> {
    let mut tls = base.clone();
    tls.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    tls.resumption = match resumption {
        Resumption::Off => rustls::client::Resumption::disabled(),
        Resumption::Session | Resumption::EarlyData => rustls::client::Resumption::store(sessions.clone()),
    };
    tls.enable_early_data = resumption == Resumption::EarlyData;
    Arc::new(tls)
}

/// What to do with the session of an earlier connection to the same server, made by the same [`Connector`](super::Connector).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resumption {
    /// Leave it, and keep none.
    Off,
    /// Resume it, which spares the certificate.
    #[default]
    Session,
    /// Resume it, and send requests before the handshake is done (0-RTT), if the protocol is named and the server allows it. Only
    /// requests that are safe and whose content is in memory go out early; others wait.
    EarlyData,
}
