//! TLS trust of the commands that send requests.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::failure::{Failure, Kind};

/// Returns a TLS configuration that trusts the certificates of `cacert` or the system's roots, or
/// any certificate if `verify` is off.
pub(crate) fn config(cacert: Option<&Path>, verify: bool) -> Result<ClientConfig, Failure> {
    let provider = pronghorn_engine::provider();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::new(Kind::Internal, error))?;
    if !verify {
        let verifier = Arc::new(AcceptAny(provider));
        return Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    if let Some(path) = cacert {
        let fail = |kind, error: &dyn std::fmt::Display| {
            Failure::new(kind, format_args!("{}: {error}", path.display()))
                .with_hint("give a file of certificates in PEM form")
        };
        let unreadable = |error: pem::Error| match error {
            pem::Error::Io(error) => fail(Kind::Missing, &error),
            other => fail(Kind::Malformed, &other),
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
            roots
                .add(certificate.map_err(unreadable)?)
                .map_err(|error| fail(Kind::Malformed, &error))?;
        }
        if roots.is_empty() {
            return Err(fail(Kind::Malformed, &"contains no certificate"));
        }
    } else {
        let certificates = rustls_native_certs::load_native_certs().certs;
        roots.add_parsable_certificates(certificates);
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts any certificate, but still verifies that the server has the certificate's key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
