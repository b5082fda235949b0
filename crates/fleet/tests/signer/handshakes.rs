//! TLS handshakes of rustls whose server's key is remote.

use std::io::{Read, Write};
use std::sync::Arc;

use pronghorn_engine::{SigningFailed, provider};
use pronghorn_fleet::signer::{KeyChain, KeySource, RemoteKey};
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};

use super::support::{Behaviour, Fake, Pki, read};

fn server(certificate: CertificateDer<'static>, key: Arc<dyn SigningKey>) -> ServerConnection {
    let certified = CertifiedKey::new(vec![certificate], key);
    certified.keys_match().unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    ServerConnection::new(Arc::new(config)).unwrap()
}

fn client(pki: &Pki, version: &'static SupportedProtocolVersion) -> ClientConnection {
    use rustls::pki_types::pem::PemObject;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&read(&pki.path("ca.pem"))).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "site.test".try_into().unwrap()).unwrap()
}

/// Moves bytes between both until the handshake is complete or one fails.
fn handshake(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), Error> {
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}

#[test]
fn handshakes_of_both_versions_and_all_kinds_of_keys_complete() {
    let pki = Pki::new();
    let sites = [
        pki.site("rsa", &rcgen::PKCS_RSA_SHA256),
        pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256),
        pki.site("p384", &rcgen::PKCS_ECDSA_P384_SHA384),
    ];
    let keys: Vec<_> = sites.iter().map(|(_, key)| key.clone() as Arc<dyn KeySource>).collect();
    let signer = pki.server(&keys);
    let signers = pki.client(signer.addresses());
    std::thread::scope(|scope| {
        for (certificate, key) in &sites {
            let remote = RemoteKey::new(signers.clone(), key.public_key().clone());
            let chain =
                KeyChain::new(key.public_key().clone(), vec![Arc::new(remote.clone())], |_| {});
            let keys: [Arc<dyn SigningKey>; 2] = [Arc::new(remote), Arc::new(chain.unwrap())];
            for (version, signing) in [(&TLS12, &keys[0]), (&TLS13, &keys[0]), (&TLS13, &keys[1])] {
                let (pki, signing) = (&pki, signing.clone());
                scope.spawn(move || {
                    let mut client = client(pki, version);
                    let mut server = server(certificate.clone(), signing);
                    handshake(&mut client, &mut server).unwrap();
                    assert_eq!(client.protocol_version(), Some(version.version));
                    client.writer().write_all(b"hello").unwrap();
                    let mut bytes = Vec::new();
                    client.write_tls(&mut bytes).unwrap();
                    server.read_tls(&mut &bytes[..]).unwrap();
                    server.process_new_packets().unwrap();
                    let mut received = [0; 5];
                    server.reader().read_exact(&mut received).unwrap();
                    assert_eq!(&received, b"hello");
                });
            }
        }
    });
}

/// rustls sends no alert then: the engine recognizes the error and sends one.
#[test]
fn failed_signature_is_an_error_that_the_engine_knows() {
    let pki = Pki::new();
    let (certificate, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let liar = Fake::start(&pki, &key, Behaviour::Lies);
    let remote = RemoteKey::new(pki.client(&[liar.address]), key.public_key().clone());
    let chain = KeyChain::new(key.public_key().clone(), vec![Arc::new(remote)], |_| {});
    let chain: Arc<dyn SigningKey> = Arc::new(chain.unwrap());
    for version in [&TLS12, &TLS13] {
        let mut client = client(&pki, version);
        let mut server = server(certificate.clone(), chain.clone());
        let error = handshake(&mut client, &mut server).unwrap_err();
        let Error::Other(cause) = &error else { panic!("{error:?}") };
        let failed = cause.0.downcast_ref::<SigningFailed>();
        assert!(
            failed.is_some_and(|failed| failed.0.contains("the signature is wrong")),
            "{failed:?}"
        );
        // What rustls has queued does not contain an alert: after it the client waits for more.
        let mut queued = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut queued).unwrap();
        }
        let mut records = &queued[..];
        while let [kind, _, _, high, low, rest @ ..] = records {
            assert_ne!(*kind, 21, "an alert in clear");
            records = &rest[usize::from(u16::from_be_bytes([*high, *low]))..];
        }
    }
}
