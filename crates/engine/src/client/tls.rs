//! TLS to servers, with and without the sessions of earlier connections.

use std::sync::Arc;

use crate::message::Protocol;
use crate::tls::ClientSessions;
use crate::transport::ClientTls;

/// TLS configurations for each transport. Each transport has its own session store, since a session
/// is useful only on the one that it comes from: a session from TCP lacks what QUIC stores with it.
/// The server checks that the HTTP version matches.
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
        let quic =
            [quic(Resumption::Off)?, quic(Resumption::Session)?, quic(Resumption::EarlyData)?];
        Ok(Self { base: base.clone(), tcp: Arc::default(), quic })
    }

    pub(super) fn tcp(
        &self,
        protocol: Option<Protocol>,
        resumption: Resumption,
    ) -> Arc<rustls::ClientConfig> {
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
        Resumption::Session | Resumption::EarlyData => {
            rustls::client::Resumption::store(sessions.clone())
        }
    };
    tls.enable_early_data = resumption == Resumption::EarlyData;
    Arc::new(tls)
}

/// How to use the session of an earlier connection to the same server by the same
/// [`Connector`](super::Connector).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resumption {
    /// Do not resume a session, and do not store any.
    Off,
    /// Resume the session, which saves sending the certificate.
    #[default]
    Session,
    /// Resume the session, and send requests before the handshake is complete (0-RTT), if the
    /// target names the protocol and the server allows it. Only safe requests whose body is in
    /// memory are sent early. Others wait.
    EarlyData,
}
