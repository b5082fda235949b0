//! Whom a server believes about its clients.

use std::sync::Arc;

use pronghorn_engine::{ClientCertificate, provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError as Reason, Error, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::Source;

/// Certificates of those who may vouch for clients, and of clients that need nobody to.
#[derive(Debug)]
pub struct Authorities {
    verifier: Arc<dyn ClientCertVerifier>,
    known: Vec<CertificateDer<'static>>,
}

/// Why the certificate of a client is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotValidYet,
    /// It is for something else than to show who a client is.
    WrongPurpose,
    /// It says that its issuer is another one than the one that has signed it.
    BadSignature,
    /// It has signed itself, and is not known.
    SelfSigned,
    /// What the client sent ends with somebody who has signed himself, and is not known.
    SelfSignedInChain,
    /// Nobody who is known vouches for it.
    UnknownIssuer,
    /// It is malformed, or has something that is not understood.
    Unusable,
}

impl Authorities {
    /// Takes their certificates in PEM form.
    ///
    /// # Errors
    ///
    /// When there are none, with the words for it.
    pub fn new(source: Source<'_>) -> Result<Self, String> {
        let name = source.name("the authorities' certificates").display();
        let text = source.read().map_err(|error| match error {
            pem::Error::Io(error) => format!("{name}: {error}"),
            other => format!("{name}: {other}"),
        })?;
        let known: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("{name}: holds no usable certificate ({error})"))?;
        let mut roots = RootCertStore::empty();
        // A list of all authorities has some that are not understood.
        let (added, _) = roots.add_parsable_certificates(known.iter().cloned());
        if added == 0 {
            return Err(format!("{name}: holds no certificate in PEM form"));
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = builder.build().map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { verifier, known })
    }

    /// Looks whether the certificate of a client is known, or one of those who are known vouches for it.
    ///
    /// # Errors
    ///
    /// With the reason why it is not trusted.
    pub fn verify(&self, certificate: &ClientCertificate) -> Result<(), Untrusted> {
        let (own, others) = certificate.chain().split_first().ok_or(Untrusted::Unusable)?;
        if self.known.contains(own) {
            return look_at(own);
        }
        self.verifier.verify_client_cert(own, others, UnixTime::now()).map(drop).map_err(|error| match error {
            Error::InvalidCertificate(reason) => why(&reason, own, others),
            _ => Untrusted::Unusable,
        })
    }
}

/// Looks at what is left to look at where a certificate is known itself, be it one that has signed itself.
fn look_at(certificate: &CertificateDer<'_>) -> Result<(), Untrusted> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| Untrusted::Unusable)?;
    let now = x509_parser::time::ASN1Time::now();
    if now < parsed.validity().not_before {
        return Err(Untrusted::NotValidYet);
    }
    if now > parsed.validity().not_after {
        return Err(Untrusted::Expired);
    }
    match parsed.extended_key_usage().map_err(|_| Untrusted::Unusable)? {
        Some(usage) if !usage.value.any && !usage.value.client_auth => Err(Untrusted::WrongPurpose),
        _ => Ok(()),
    }
}

fn why(reason: &Reason, own: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Untrusted {
    match reason {
        Reason::Expired | Reason::ExpiredContext { .. } => Untrusted::Expired,
        Reason::NotValidYet | Reason::NotValidYetContext { .. } => Untrusted::NotValidYet,
        Reason::InvalidPurpose | Reason::InvalidPurposeContext { .. } => Untrusted::WrongPurpose,
        Reason::BadSignature => Untrusted::BadSignature,
        _ if is_self_signed(own) => Untrusted::SelfSigned,
        Reason::UnknownIssuer if others.iter().any(is_self_signed) => Untrusted::SelfSignedInChain,
        Reason::UnknownIssuer => Untrusted::UnknownIssuer,
        _ => Untrusted::Unusable,
    }
}

/// Whether subject and issuer are the same, which is what those have who sign themselves.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| parsed.subject() == parsed.issuer())
}
