//! Client certificates: which clients are asked for one, and what they sent.
//!
//! rustls decides whether to request a certificate by one setting for all server names. So the
//! certificate resolver, which knows the name, leaves a note for `offer_client_auth`, which rustls
//! calls next, in the same call on the same thread. Trust is not decided here: a connection may
//! carry requests for several hosts, so each request is checked anyway.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use webpki::{RawPublicKeyEntity, anchor_from_trusted_cert};

use super::provider::provider;

/// Largest client certificate chain in bytes: it is kept as long as the connection. Most chains
/// have a few thousand bytes.
const CHAIN_BYTES: usize = 16 << 10;

/// Decides which clients are asked for a certificate.
pub trait ClientCertificatePolicy: fmt::Debug + Send + Sync {
    /// Whether any client is asked. The answer may change; a connection uses the answer from when
    /// it began.
    fn requests_any(&self) -> bool;

    /// Whether to ask a client that requests `server_name` (SNI), which is in lower case.
    fn requests(&self, server_name: Option<&str>) -> bool;
}

/// A client's certificate chain. The client has proved that it has the key of the first
/// certificate. Whether the chain leads to a trusted issuer is not verified.
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
        Some(Arc::new(Self {
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
            fingerprint,
        }))
    }

    /// Returns the chain as the client sent it, its own certificate first; never empty.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Returns the SHA-256 of the client's own certificate.
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
    /// Whether to ask the client whose certificate was resolved last.
    static REQUEST_NOTE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Clears the note of an earlier handshake that broke off. Called before a connection is created,
/// since that asks whether any client is asked.
pub(crate) fn clear_request_note() {
    REQUEST_NOTE.set(None);
}

/// Resolves certificates, and notes whether to ask the client for its own.
#[derive(Debug)]
pub(super) struct Resolver {
    pub(super) inner: Arc<dyn ResolvesServerCert>,
    pub(super) asks: Arc<dyn ClientCertificatePolicy>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Resolved first, since that may change the answer: a certificate loaded on the first use
        // of its name also says whether to ask.
        let name = hello.server_name().map(str::to_owned);
        let chosen = self.inner.resolve(hello);
        REQUEST_NOTE.set(Some(self.asks.requests(name.as_deref())));
        chosen
    }
}

/// Requests certificates where needed, and accepts a well-formed chain or none.
#[derive(Debug)]
pub(super) struct Verifier {
    asks: Arc<dyn ClientCertificatePolicy>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(asks: Arc<dyn ClientCertificatePolicy>) -> Self {
        Self { asks, algorithms: provider().signature_verification_algorithms }
    }
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        REQUEST_NOTE.take().unwrap_or_else(|| self.asks.requests_any())
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
            return Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ));
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
        verify_with_bare_key(verified, certificate, |key| {
            let key = RawPublicKeyEntity::try_from(key).ok()?;
            let (_, algorithms) =
                self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme)?;
            let mut verified = algorithms
                .iter()
                .map(|algorithm| key.verify_signature(*algorithm, message, signed.signature()));
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
        verify_with_bare_key(verified, certificate, |key| {
            verify_tls13_signature_with_raw_key(message, key, signed, &self.algorithms).ok()
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies the signature with the bare key if the library cannot parse the certificate, such as
/// one of X.509 version 1. The request check can then refuse it with a proper message: a failed
/// handshake tells the client nothing useful.
fn verify_with_bare_key(
    verified: Result<HandshakeSignatureValid, Error>,
    certificate: &CertificateDer<'_>,
    verify: impl FnOnce(&SubjectPublicKeyInfoDer<'_>) -> Option<HandshakeSignatureValid>,
) -> Result<HandshakeSignatureValid, Error> {
    match verified {
        Err(Error::InvalidCertificate(reason)) if reason != CertificateError::BadSignature => {
            key_of(certificate)
                .and_then(|key| verify(&key))
                .ok_or(Error::InvalidCertificate(reason))
        }
        verified => verified,
    }
}

/// Extracts the public key of a certificate; nothing else in it is trusted.
fn key_of(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    const SEQUENCE: u8 = 0x30;
    // webpki parses version 1 certificates only as trust anchors.
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

    impl ClientCertificatePolicy for One {
        fn requests_any(&self) -> bool {
            true
        }

        fn requests(&self, server_name: Option<&str>) -> bool {
            server_name == Some("asks.example")
        }
    }

    #[test]
    fn note_is_not_used_by_next_connection() {
        let verifier = Verifier::new(Arc::new(One));
        REQUEST_NOTE.set(Some(false));
        // The earlier handshake broke off before the question; this one is new.
        clear_request_note();
        assert!(verifier.offer_client_auth(), "requests_any() was not used");
        REQUEST_NOTE.set(Some(false));
        assert!(!verifier.offer_client_auth());
        assert!(verifier.offer_client_auth(), "the note was not consumed");
    }

    #[test]
    fn chain_that_is_too_long_is_refused() {
        let verifier = Verifier::new(Arc::new(One));
        let certificate = |bytes: usize| CertificateDer::from(vec![0; bytes]);
        let half = CHAIN_BYTES / 2;
        assert!(
            verifier
                .verify_client_cert(&certificate(half), &[certificate(half)], UnixTime::now())
                .is_ok()
        );
        assert!(
            verifier
                .verify_client_cert(&certificate(half), &[certificate(half + 1)], UnixTime::now())
                .is_err()
        );
    }
}
