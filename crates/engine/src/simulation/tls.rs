//! Certificates for simulations. Their signatures have a constant length, so that runs do not
//! depend on it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::tls::ListenerTls;
use crate::{Config, Identity, OnSessions, SessionName, SharedSessions, provider};

/// Number of unused names, which make the certificate as large as typical chains: some datagrams.
const NAMES: usize = 250;

/// A server's identity, and a client that trusts it and has no tickets.
pub(crate) struct Tls {
    pub(crate) server: ListenerTls,
    pub(crate) client: rustls::ClientConfig,
}

impl Tls {
    /// Creates an identity whose handshakes are all parked: each waits for a store of sessions,
    /// which answers at once.
    pub(crate) fn parked(config: &Config) -> Self {
        Self::with(config, |identity| identity.with_shared_sessions(Arc::new(NoSessions), [1; 32]))
    }

    pub(crate) fn new(config: &Config) -> Self {
        Self::with(config, |identity| identity)
    }

    fn with(config: &Config, change: impl FnOnce(Identity) -> Identity) -> Self {
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
        let identity = change(Identity::new(vec![certificate.clone()], key).unwrap());
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

/// A store that forgets everything.
#[derive(Debug)]
struct NoSessions;

impl SharedSessions for NoSessions {
    fn put(&self, _: SessionName, _: Vec<u8>, _: Duration) {}

    fn take(&self, names: Vec<SessionName>, done: OnSessions) {
        done(vec![None; names.len()]);
    }

    fn get(&self, _: SessionName, done: OnSessions) {
        done(vec![None]);
    }
}
