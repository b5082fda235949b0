//! One identity and one policy behind the TLS of both transports.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate chain with its key, ready for TCP and QUIC.
#[derive(Clone, Debug)]
pub struct Identity {
    tcp: Arc<rustls::ServerConfig>,
    quic: Arc<rustls::ServerConfig>,
}

impl Identity {
    /// Takes the chain, the server's own certificate first, and its key.
    ///
    /// Fails when the key is of a kind that is not supported or does not belong to the certificate.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, rustls::Error> {
        let mut tcp = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key.clone_key())?;
        tcp.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // RFC 9001, section 4.2: clients MUST NOT offer TLS versions older than 1.3.
        let mut quic = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        quic.alpn_protocols = vec![b"h3".to_vec()];
        Ok(Self { tcp: Arc::new(tcp), quic: Arc::new(quic) })
    }

    pub(crate) fn tcp(&self) -> &Arc<rustls::ServerConfig> {
        &self.tcp
    }

    pub(crate) fn quic(&self) -> &Arc<rustls::ServerConfig> {
        &self.quic
    }
}

/// The cryptography of all TLS here: aws-lc-rs, post-quantum key exchange preferred.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
