//! Certificates for simulations. Their signatures have a constant length, so that runs do not
//! depend on it.

use std::sync::{Arc, OnceLock};

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Config, Identity, provider};

/// Number of unused names, which make the certificate as large as typical chains: some datagrams.
const NAMES: usize = 250;

/// A server's identity, and a client that trusts it and has no tickets.
pub(crate) struct Tls {
    pub(crate) server: Arc<rustls::ServerConfig>,
    pub(crate) client: rustls::ClientConfig,
}

impl Tls {
    pub(crate) fn new(config: &Config) -> Self {
        static MADE: OnceLock<(CertificateDer<'static>, Vec<u8>)> = OnceLock::new();
        let (certificate, key) = MADE.get_or_init(|| {
            let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
            let names = std::iter::once("localhost".to_owned())
                .chain((0..NAMES).map(|number| format!("host-{number}.example.com")));
            let certificate = CertificateParams::new(names.collect::<Vec<_>>())
                .unwrap()
                .self_signed(&key)
                .unwrap();
            (certificate.into(), key.serialize_der())
        });
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.clone()));
        let identity = Identity::new(vec![certificate.clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut client = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h3".to_vec()];
        Self { server: identity.quic(&config.tls_options(), &Arc::default()), client }
    }
}
