//! Verification of client certificates.

use std::time::Duration;

use pronghorn_engine::{ClientCertificate, provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage, VerifiedPath, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use crate::{CertificateError, Source};

/// Trusted certificates: authorities that may issue client certificates, and client certificates that are trusted themselves.
#[derive(Debug)]
pub struct Authorities {
    /// Certificates that may issue others. `limits` has, at the same index, what the library does not check of them.
    anchors: Vec<TrustAnchor<'static>>,
    limits: Vec<Limits>,
    known: Vec<CertificateDer<'static>>,
}

/// Limits of an authority, which the library takes from intermediate certificates only.
#[derive(Debug)]
struct Limits {
    not_before: i64,
    not_after: i64,
    /// How many certificates may stand between its own and a client's.
    path_length: Option<u32>,
}

/// Why the certificate of a client is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotValidYet,
    /// Its key usage does not allow client authentication.
    WrongPurpose,
    /// Its signature is not by the issuer that it names.
    BadSignature,
    /// It is self-signed, and not trusted.
    SelfSigned,
    /// The chain that the client sent ends with a self-signed certificate that is not trusted.
    SelfSignedInChain,
    /// No trusted authority has issued it.
    UnknownIssuer,
    /// It is malformed, or has something that is not understood.
    Unusable,
}

impl Authorities {
    /// Reads trusted certificates in PEM form.
    ///
    /// # Errors
    ///
    /// When the source cannot be read, or holds no certificate.
    pub fn new(source: Source<'_>) -> Result<Self, CertificateError> {
        let path = source.name("the authorities' certificates").to_owned();
        let malformed = |reason: String| CertificateError::Malformed { path: path.clone(), reason };
        let text = source.read().map_err(|error| match error {
            pem::Error::Io(source) => CertificateError::File { path: path.clone(), source },
            other => malformed(other.to_string()),
        })?;
        let known: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| malformed(format!("holds no usable certificate ({error})")))?;
        // A list of all authorities has some that are not understood.
        let parsed: Vec<_> = known.iter().filter_map(|one| X509Certificate::from_der(one).ok().map(|(_, parsed)| (one, parsed))).collect();
        if parsed.is_empty() {
            return Err(malformed("holds no certificate in PEM form".to_owned()));
        }
        // A client's own certificate does not authorize it to issue others.
        let issuers = parsed.iter().filter(|(_, parsed)| may_issue(parsed));
        let (anchors, limits) =
            issuers.filter_map(|(one, parsed)| Some((anchor_from_trusted_cert(one).ok()?.to_owned(), Limits::of(parsed)))).unzip();
        Ok(Self { anchors, limits, known })
    }

    /// Verifies that a client's certificate is trusted, or was issued by a trusted authority.
    ///
    /// # Errors
    ///
    /// With the reason why it is not trusted.
    pub fn verify(&self, certificate: &ClientCertificate) -> Result<(), Untrusted> {
        let (own, others) = certificate.chain().split_first().ok_or(Untrusted::Unusable)?;
        if self.known.contains(own) {
            return look_at(own);
        }
        self.verify_path(own, others, UnixTime::now()).map_err(|error| why(&error, own, others))?;
        let (_, parsed) = X509Certificate::from_der(own).map_err(|_| Untrusted::Unusable)?;
        if is_for_clients(&parsed) { Ok(()) } else { Err(Untrusted::WrongPurpose) }
    }

    fn verify_path(&self, own: &CertificateDer<'_>, others: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let algorithms = provider().signature_verification_algorithms.all;
        let within_limits = |path: &VerifiedPath<'_>| {
            let position = self.anchors.iter().position(|anchor| std::ptr::eq(anchor, path.anchor()));
            position.map_or(Err(Error::UnknownIssuer), |position| self.limits[position].check(path, now))
        };
        let own = EndEntityCert::try_from(own)?;
        own.verify_for_usage(algorithms, &self.anchors, others, now, KeyUsage::client_auth(), None, Some(&within_limits))?;
        Ok(())
    }
}

impl Limits {
    fn of(parsed: &X509Certificate<'_>) -> Self {
        let constraints = parsed.basic_constraints().ok().flatten();
        Self {
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            path_length: constraints.and_then(|constraints| constraints.value.path_len_constraint),
        }
    }

    fn check(&self, path: &VerifiedPath<'_>, now: UnixTime) -> Result<(), Error> {
        let time = |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().unwrap_or(0)));
        let (not_before, not_after) = (time(self.not_before), time(self.not_after));
        if now < not_before {
            return Err(Error::CertNotValidYet { time: now, not_before });
        }
        if now > not_after {
            return Err(Error::CertExpired { time: now, not_after });
        }
        let between = path.intermediate_certificates().filter(|one| one.subject() != one.issuer()).count();
        if self.path_length.is_some_and(|most| between > most as usize) {
            return Err(Error::PathLenConstraintViolated);
        }
        Ok(())
    }
}

/// Whether a certificate is one of an authority, by the same rules as OpenSSL has: it says so, or is so old that it cannot.
fn may_issue(parsed: &X509Certificate<'_>) -> bool {
    let (Ok(constraints), Ok(usage)) = (parsed.basic_constraints(), parsed.key_usage()) else { return false };
    let signs = usage.map(|usage| usage.value.key_cert_sign());
    let is_authority = match constraints {
        Some(constraints) => constraints.value.ca,
        None => signs == Some(true) || (parsed.version() == X509Version::V1 && parsed.subject() == parsed.issuer()),
    };
    is_authority && signs != Some(false) && has_extended_usage(parsed)
}

/// Whether a certificate is one that may show who a client is.
fn is_for_clients(parsed: &X509Certificate<'_>) -> bool {
    let Ok(usage) = parsed.key_usage() else { return false };
    usage.is_none_or(|usage| usage.value.digital_signature() || usage.value.key_agreement()) && has_extended_usage(parsed)
}

fn has_extended_usage(parsed: &X509Certificate<'_>) -> bool {
    parsed.extended_key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.any || usage.value.client_auth))
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
    if is_for_clients(&parsed) { Ok(()) } else { Err(Untrusted::WrongPurpose) }
}

fn why(error: &Error, own: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Untrusted {
    match error {
        Error::CertExpired { .. } | Error::InvalidCertValidity => Untrusted::Expired,
        Error::CertNotValidYet { .. } => Untrusted::NotValidYet,
        Error::RequiredEkuNotFoundContext(_) => Untrusted::WrongPurpose,
        Error::InvalidSignatureForPublicKey => Untrusted::BadSignature,
        _ if is_self_signed(own) => Untrusted::SelfSigned,
        Error::UnknownIssuer if others.iter().any(is_self_signed) => Untrusted::SelfSignedInChain,
        Error::UnknownIssuer => Untrusted::UnknownIssuer,
        _ => Untrusted::Unusable,
    }
}

/// Whether subject and issuer are the same, which is what those have who sign themselves.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| parsed.subject() == parsed.issuer())
}
