//! Verification of client certificates.

use std::time::Duration;

use pronghorn_engine::{ClientCertificate, provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage, VerifiedPath, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use crate::error::CertificateError;
use crate::source::Source;

/// Trusted certificates: authorities that may issue client certificates, and client certificates
/// that are trusted themselves.
#[derive(Debug)]
pub struct Authorities {
    /// Certificates that may issue others. `limits` has, at the same index, the constraints that
    /// the library does not check for them.
    anchors: Vec<TrustAnchor<'static>>,
    limits: Vec<Limits>,
    trusted_leaves: Vec<CertificateDer<'static>>,
}

/// Constraints of an authority, which the library checks for intermediate certificates only.
#[derive(Debug)]
struct Limits {
    not_before: i64,
    not_after: i64,
    /// Maximum number of certificates between the authority's own and a client's.
    path_length: Option<u32>,
}

/// The reason why a client certificate is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotValidYet,
    /// Its key usage does not allow client authentication.
    WrongPurpose,
    /// Its signature is not by the named issuer.
    BadSignature,
    /// It is self-signed, and not trusted.
    SelfSigned,
    /// The chain that the client sent ends with a self-signed certificate that is not trusted.
    SelfSignedInChain,
    /// No trusted authority issued it.
    UnknownIssuer,
    /// It is malformed, or has unsupported content.
    Unusable,
}

impl Authorities {
    /// Reads trusted certificates in PEM form.
    ///
    /// # Errors
    ///
    /// Returns an error if the source cannot be read or contains no certificate.
    pub fn new(source: Source<'_>) -> Result<Self, CertificateError> {
        let path = source.name("the authorities' certificates").to_owned();
        let malformed = |reason: String| CertificateError::Malformed { path: path.clone(), reason };
        let text = source.read().map_err(|error| match error {
            pem::Error::Io(source) => CertificateError::File { path: path.clone(), source },
            other => malformed(other.to_string()),
        })?;
        let trusted_leaves: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| malformed(format!("contains no usable certificate ({error})")))?;
        // A bundle of all authorities may contain certificates that cannot be parsed.
        let parsed: Vec<_> = trusted_leaves
            .iter()
            .filter_map(|one| X509Certificate::from_der(one).ok().map(|(_, parsed)| (one, parsed)))
            .collect();
        if parsed.is_empty() {
            return Err(malformed("contains no certificate in PEM form".to_owned()));
        }
        // A client's own certificate does not authorize it to issue others.
        let issuers = parsed.iter().filter(|(_, parsed)| may_issue(parsed));
        let (anchors, limits) = issuers
            .filter_map(|(one, parsed)| {
                Some((anchor_from_trusted_cert(one).ok()?.to_owned(), Limits::of(parsed)))
            })
            .unzip();
        Ok(Self { anchors, limits, trusted_leaves })
    }

    /// Verifies that a client's certificate is trusted or was issued by a trusted authority.
    ///
    /// # Errors
    ///
    /// Returns the reason why it is not trusted.
    pub fn verify(&self, certificate: &ClientCertificate) -> Result<(), Untrusted> {
        let (leaf, intermediates) = certificate.chain().split_first().ok_or(Untrusted::Unusable)?;
        if self.trusted_leaves.contains(leaf) {
            return check_trusted(leaf);
        }
        self.verify_path(leaf, intermediates, UnixTime::now())
            .map_err(|error| untrusted_reason(&error, leaf, intermediates))?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| Untrusted::Unusable)?;
        if is_for_clients(&parsed) { Ok(()) } else { Err(Untrusted::WrongPurpose) }
    }

    fn verify_path(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = provider().signature_verification_algorithms.all;
        let within_limits = |path: &VerifiedPath<'_>| {
            let position =
                self.anchors.iter().position(|anchor| std::ptr::eq(anchor, path.anchor()));
            position.map_or(Err(Error::UnknownIssuer), |position| {
                self.limits[position].check(path, now)
            })
        };
        let leaf = EndEntityCert::try_from(leaf)?;
        leaf.verify_for_usage(
            algorithms,
            &self.anchors,
            intermediates,
            now,
            KeyUsage::client_auth(),
            None,
            Some(&within_limits),
        )?;
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
        let time = |seconds: i64| {
            UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().unwrap_or(0)))
        };
        let (not_before, not_after) = (time(self.not_before), time(self.not_after));
        if now < not_before {
            return Err(Error::CertNotValidYet { time: now, not_before });
        }
        if now > not_after {
            return Err(Error::CertExpired { time: now, not_after });
        }
        let between =
            path.intermediate_certificates().filter(|one| one.subject() != one.issuer()).count();
        if self.path_length.is_some_and(|most| between > most as usize) {
            return Err(Error::PathLenConstraintViolated);
        }
        Ok(())
    }
}

/// Returns whether a certificate belongs to an authority, by OpenSSL's rules: it says so, or it is
/// too old a version to say so.
fn may_issue(parsed: &X509Certificate<'_>) -> bool {
    let (Ok(constraints), Ok(usage)) = (parsed.basic_constraints(), parsed.key_usage()) else {
        return false;
    };
    let signs = usage.map(|usage| usage.value.key_cert_sign());
    let is_authority = match constraints {
        Some(constraints) => constraints.value.ca,
        None => {
            signs == Some(true)
                || (parsed.version() == X509Version::V1 && parsed.subject() == parsed.issuer())
        }
    };
    is_authority && signs != Some(false) && has_extended_usage(parsed)
}

/// Returns whether a certificate allows client authentication.
fn is_for_clients(parsed: &X509Certificate<'_>) -> bool {
    let Ok(usage) = parsed.key_usage() else { return false };
    usage.is_none_or(|usage| usage.value.digital_signature() || usage.value.key_agreement())
        && has_extended_usage(parsed)
}

fn has_extended_usage(parsed: &X509Certificate<'_>) -> bool {
    parsed
        .extended_key_usage()
        .is_ok_and(|usage| usage.is_none_or(|usage| usage.value.any || usage.value.client_auth))
}

/// Checks the remaining properties of a certificate that is trusted itself, which may be
/// self-signed.
fn check_trusted(certificate: &CertificateDer<'_>) -> Result<(), Untrusted> {
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

fn untrusted_reason(
    error: &Error,
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Untrusted {
    match error {
        Error::CertExpired { .. } | Error::InvalidCertValidity => Untrusted::Expired,
        Error::CertNotValidYet { .. } => Untrusted::NotValidYet,
        Error::RequiredEkuNotFoundContext(_) => Untrusted::WrongPurpose,
        Error::InvalidSignatureForPublicKey => Untrusted::BadSignature,
        _ if is_self_signed(leaf) => Untrusted::SelfSigned,
        Error::UnknownIssuer if intermediates.iter().any(is_self_signed) => {
            Untrusted::SelfSignedInChain
        }
        Error::UnknownIssuer => Untrusted::UnknownIssuer,
        _ => Untrusted::Unusable,
    }
}

/// Returns whether subject and issuer are the same, as in self-signed certificates.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, parsed)| parsed.subject() == parsed.issuer())
}
