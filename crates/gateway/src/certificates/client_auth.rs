//! Client certificates: verification for a site, and the fields that upstreams and the access log
//! get.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pronghorn_certificates::{Authorities, CertificateError, Source};
use pronghorn_engine::{ClientCertificate, Peer, Response};
use rustc_hash::FxHashMap;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::certificates::distinguished_name;
use crate::config::{ClientAuthMode, Fault};
use crate::responses::text;

/// The certificate itself (RFC 9440).
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const SUBJECT: HeaderName = HeaderName::from_static("x-client-cert-subject");
const FINGERPRINT: HeaderName = HeaderName::from_static("x-client-cert-fingerprint");

/// How long a verification is cached: the certificate may expire in the meantime.
const BELIEVED: Duration = Duration::from_secs(60);
/// Number of verified certificates that a worker caches.
const KNOWN: usize = 1024;

/// Client authentication of a site.
pub(crate) struct ClientAuthPlan {
    authorities: Authorities,
    mode: ClientAuthMode,
}

/// A verified certificate.
pub(crate) struct Verified {
    subject: HeaderValue,
    fingerprint: HeaderValue,
    certificate: HeaderValue,
    until: Instant,
}

/// A worker's cache of verified certificates, by address of the site's plan and by fingerprint. It
/// is dropped with the plan.
#[derive(Default)]
pub(crate) struct VerifiedCache(RefCell<FxHashMap<Key, Rc<Verified>>>);

type Key = (usize, [u8; 32]);

/// The response to a client that is not admitted.
#[derive(Clone, Copy)]
pub(crate) struct Refusal(StatusCode, &'static str);

impl Refusal {
    /// Refuses a request on a connection for another site.
    pub(crate) fn misdirected() -> Self {
        Self(StatusCode::MISDIRECTED_REQUEST, "this site requires a separate connection\n")
    }
}

impl From<Refusal> for Response {
    fn from(Refusal(status, message): Refusal) -> Self {
        text(status, message)
    }
}

impl ClientAuthPlan {
    /// Reads the trusted certificates.
    pub(crate) fn new(ca: &Path, mode: ClientAuthMode) -> Result<Self, (Fault, String)> {
        let authorities = Authorities::new(Source::File(ca)).map_err(|error| {
            let fault = if let CertificateError::File { source, .. } = &error {
                Fault::from(source)
            } else {
                Fault::Malformed
            };
            (fault, error.to_string())
        })?;
        Ok(Self { authorities, mode })
    }

    /// Verifies the client's certificate, or returns the refusal.
    pub(crate) fn check(
        &self,
        place: usize,
        peer: &Peer,
        known: &VerifiedCache,
    ) -> Result<Option<Rc<Verified>>, Refusal> {
        const REFUSED: Refusal =
            Refusal(StatusCode::FORBIDDEN, "the client certificate is not trusted\n");
        let Some(certificate) = &peer.client_certificate else {
            return match self.mode {
                ClientAuthMode::Optional => Ok(None),
                ClientAuthMode::Required => {
                    Err(Refusal(StatusCode::FORBIDDEN, "a client certificate is required\n"))
                }
            };
        };
        let (key, now) = ((place, *certificate.fingerprint()), Instant::now());
        if let Some(found) = known.0.borrow().get(&key).filter(|found| now < found.until) {
            return Ok(Some(found.clone()));
        }
        self.authorities.verify(certificate).map_err(|_| REFUSED)?;
        let verified = Rc::new(Verified::new(certificate, now + BELIEVED).ok_or(REFUSED)?);
        let mut known = known.0.borrow_mut();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(key, verified.clone());
        Ok(Some(verified))
    }
}

impl Verified {
    fn new(certificate: &ClientCertificate, until: Instant) -> Option<Self> {
        let own = certificate.chain().first()?;
        let (_, parsed) = X509Certificate::from_der(own).ok()?;
        let mut hex = String::new();
        for byte in certificate.fingerprint() {
            let _ = write!(hex, "{byte:02x}");
        }
        Some(Self {
            subject: HeaderValue::try_from(distinguished_name::text(parsed.subject())).ok()?,
            fingerprint: HeaderValue::try_from(hex).ok()?,
            certificate: HeaderValue::try_from(format!(":{}:", BASE64.encode(own))).ok()?,
            until,
        })
    }

    /// Adds the fields for upstreams.
    pub(crate) fn insert_fields(&self, headers: &mut HeaderMap) {
        headers.insert(CLIENT_CERT, self.certificate.clone());
        headers.insert(SUBJECT, self.subject.clone());
        headers.insert(FINGERPRINT, self.fingerprint.clone());
    }

    /// Returns the subject and the SHA-256 fingerprint, for the access log.
    pub(crate) fn names(&self) -> [HeaderValue; 2] {
        [self.subject.clone(), self.fingerprint.clone()]
    }
}
