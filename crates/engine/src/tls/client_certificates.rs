//! Certificates of clients: who is asked for one, and what came.
//!
//! The library decides whether to ask by one configuration for all names. So the choice of the certificate, which knows the name, leaves a
//! note for the question whether to ask, which the library puts next, in the same call on the same thread. Who is trusted is not decided
//! here: a connection may carry requests for several hosts, so each request has to be looked at anyhow.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use webpki::{RawPublicKeyEntity, anchor_from_trusted_cert};

use super::provider;

/// Bytes of the chain that a client may show: it is kept as long as the connection is. Most have a few thousand.
const CHAIN_BYTES: usize = 16 << 10;

/// Says which clients are asked for a certificate.
pub trait AsksClients: fmt::Debug + Send + Sync {
    /// Whether any client is asked. It may change; a connection goes by what it was when it began.
    fn asks_any(&self) -> bool;

    /// Whether a client is asked that wants `server_name` (SNI), in lower case.
    fn asks(&self, server_name: Option<&str>) -> bool;
}

/// The certificates of a client, which has proved to hold the key of the first. Whether they lead to somebody who is trusted was not
/// looked at.
#[derive(PartialEq, Eq)]
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    fingerprint: [u8; 32],
}

impl ClientCertificate {
    pub(crate) fn new(chain: &[CertificateDer<'_>]) -> Option<Arc<Self>> {
        let first = chain.first()?;
        let digest = digest::digest(&digest::SHA256, first);
        let fingerprint = *digest.as_ref().first_chunk().expect("invariant: SHA-256 has 32 bytes");
        Some(Arc::new(Self { chain: chain.iter().map(|one| one.clone().into_owned()).collect(), fingerprint }))
    }

    /// The chain as the client sent it, its own certificate first; never empty.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// SHA-256 of the client's own certificate.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

thread_local! {
    /// Whether the client is asked whose certificate was chosen last.
    static ASKED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Called before a connection is made, which asks whether anybody is asked: what an earlier one left, which broke off, is not for it.
pub(crate) fn forget_asked() {
    ASKED.set(None);
}

/// Chooses certificates, and notes whether the client is asked for its own.
#[derive(Debug)]
pub(super) struct Resolver {
    pub(super) inner: Arc<dyn ResolvesServerCert>,
    pub(super) asks: Arc<dyn AsksClients>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // The choice may change who is asked: a certificate that is looked up when its name first comes says that as well.
        let name = hello.server_name().map(str::to_owned);
        let chosen = self.inner.resolve(hello);
        ASKED.set(Some(self.asks.asks(name.as_deref())));
        chosen
    }
}

/// Asks those who are to be asked, and takes what is well formed, or nothing.
#[derive(Debug)]
pub(super) struct Verifier {
    asks: Arc<dyn AsksClients>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(asks: Arc<dyn AsksClients>) -> Self {
        Self { asks, algorithms: provider().signature_verification_algorithms }
    }
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        ASKED.take().unwrap_or_else(|| self.asks.asks_any())
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = end_entity.len() + intermediates.iter().map(|one| one.len()).sum::<usize>();
        if bytes > CHAIN_BYTES {
            return Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = verify_tls12_signature(message, certificate, signed, &self.algorithms);
        if_unread(verified, certificate, |key| {
            let key = RawPublicKeyEntity::try_from(key).ok()?;
            let (_, algorithms) = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme)?;
            let mut verified = algorithms.iter().map(|algorithm| key.verify_signature(*algorithm, message, signed.signature()));
            verified.any(|verified| verified.is_ok()).then(HandshakeSignatureValid::assertion)
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = verify_tls13_signature(message, certificate, signed, &self.algorithms);
        if_unread(verified, certificate, |key| verify_tls13_signature_with_raw_key(message, key, signed, &self.algorithms).ok())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Has the signature verified with the key alone where the library does not read the certificate, as one of version 1, so that whoever looks
/// at requests can refuse it and say so: a handshake that fails tells the client nothing that it understands.
fn if_unread(
    verified: Result<HandshakeSignatureValid, Error>,
    certificate: &CertificateDer<'_>,
    verify: impl FnOnce(&SubjectPublicKeyInfoDer<'_>) -> Option<HandshakeSignatureValid>,
) -> Result<HandshakeSignatureValid, Error> {
    match verified {
        Err(Error::InvalidCertificate(reason)) if reason != CertificateError::BadSignature => {
            key_of(certificate).and_then(|key| verify(&key)).ok_or(Error::InvalidCertificate(reason))
        }
        verified => verified,
    }
}

/// The public key in a certificate, of which nothing else is believed.
fn key_of(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    const SEQUENCE: u8 = 0x30;
    // Version 1 is read as an authority only.
    let anchor = anchor_from_trusted_cert(certificate).ok()?;
    let content = &*anchor.subject_public_key_info;
    let length = u16::try_from(content.len()).ok()?.to_be_bytes();
    let head: &[u8] = match length {
        [0, short @ 0..0x80] => &[SEQUENCE, short],
        [0, short] => &[SEQUENCE, 0x81, short],
        [high, low] => &[SEQUENCE, 0x82, high, low],
    };
    Some([head, content].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct One;

    impl AsksClients for One {
        fn asks_any(&self) -> bool {
            true
        }

        fn asks(&self, server_name: Option<&str>) -> bool {
            server_name == Some("asks.example")
        }
    }

    #[test]
    fn note_of_one_connection_is_not_for_the_next() {
        let verifier = Verifier::new(Arc::new(One));
        ASKED.set(Some(false));
        // It broke off before the question; this one is new.
        forget_asked();
        assert!(verifier.offer_client_auth(), "whether any is asked");
        ASKED.set(Some(false));
        assert!(!verifier.offer_client_auth());
        assert!(verifier.offer_client_auth(), "the note was taken");
    }

    #[test]
    fn chain_that_is_too_long_is_refused() {
        let verifier = Verifier::new(Arc::new(One));
        let certificate = |bytes: usize| CertificateDer::from(vec![0; bytes]);
        let half = CHAIN_BYTES / 2;
        assert!(verifier.verify_client_cert(&certificate(half), &[certificate(half)], UnixTime::now()).is_ok());
        assert!(verifier.verify_client_cert(&certificate(half), &[certificate(half + 1)], UnixTime::now()).is_err());
    }
}
