//! Certificates of clients: which are good for a site, and what upstreams and the log learn of them.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pronghorn_certificates::{Authorities, CertificateError, Source};
use pronghorn_engine::{ClientCertificate, Peer, Response};
use rustc_hash::FxHashMap;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::config::{ClientAuthMode, Fault};
use crate::distinguished_name;
use crate::plan::{Plan, SitePlan, text};

/// RFC 9440: the certificate itself.
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const SUBJECT: HeaderName = HeaderName::from_static("x-client-cert-subject");
const FINGERPRINT: HeaderName = HeaderName::from_static("x-client-cert-fingerprint");

/// How long what was found of a certificate is believed: it may expire meanwhile.
const BELIEVED: Duration = Duration::from_secs(60);
/// Certificates of which a worker keeps what was found.
const KNOWN: usize = 1024;

/// Which clients a site is for.
pub(crate) struct ClientAuthPlan {
    authorities: Authorities,
    mode: ClientAuthMode,
}

/// A certificate that is good.
pub(crate) struct Verified {
    subject: HeaderValue,
    fingerprint: HeaderValue,
    certificate: HeaderValue,
    until: Instant,
}

/// What a worker has found good, by the place of the site in its plan and the fingerprint. It goes with the plan.
#[derive(Default)]
pub(crate) struct Known(RefCell<FxHashMap<Key, Rc<Verified>>>);

type Key = (usize, [u8; 32]);

/// What a client gets instead of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Refusal(StatusCode, &'static str);

impl From<Refusal> for Response {
    fn from(Refusal(status, message): Refusal) -> Self {
        text(status, message)
    }
}

impl ClientAuthPlan {
    /// Reads the trusted certificates.
    pub(crate) fn new(ca: &Path, mode: ClientAuthMode) -> Result<Self, (Fault, String)> {
        let authorities = Authorities::new(Source::File(ca)).map_err(|error| {
            let fault = if let CertificateError::File { source, .. } = &error { Fault::from(source) } else { Fault::Malformed };
            (fault, error.to_string())
        })?;
        Ok(Self { authorities, mode })
    }

    /// What is known of the client, or what it gets instead of an answer.
    fn check(&self, place: usize, peer: &Peer, known: &Known) -> Result<Option<Rc<Verified>>, Refusal> {
        const REFUSED: Refusal = Refusal(StatusCode::FORBIDDEN, "the client certificate is not trusted\n");
        let Some(certificate) = &peer.client_certificate else {
            return match self.mode {
                ClientAuthMode::Optional => Ok(None),
                ClientAuthMode::Required => Err(Refusal(StatusCode::FORBIDDEN, "a client certificate is required\n")),
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

    /// Whom it is for, and its SHA-256, for the log.
    pub(crate) fn names(&self) -> [HeaderValue; 2] {
        [self.subject.clone(), self.fingerprint.clone()]
    }
}

/// Looks at the client of a request for `site`, and lets upstreams know what was found. What the client says of it is set aside by then
/// ([`crate::identity_fields`]), on all sites.
pub(crate) fn admit(
    plan: &Plan,
    site: &Arc<SitePlan>,
    known: &Known,
    peer: &Peer,
    headers: &mut HeaderMap,
) -> Result<Option<Rc<Verified>>, Refusal> {
    let Some(auth) = &site.client_auth else { return Ok(None) };
    if peer.client_certificate.is_none() && peer.secure {
        // It asked for another name, perhaps one that wants no certificate: on a connection of its own it will be asked.
        let asked = peer.server_name.as_deref().and_then(|name| plan.sites.find(name));
        if asked.is_some_and(|asked| !Arc::ptr_eq(asked, site)) {
            return Err(Refusal(StatusCode::MISDIRECTED_REQUEST, "the site wants a connection of its own\n"));
        }
    }
    let verified = auth.check(Arc::as_ptr(site).addr(), peer, known)?;
    if let Some(verified) = &verified {
        headers.insert(CLIENT_CERT, verified.certificate.clone());
        headers.insert(SUBJECT, verified.subject.clone());
        headers.insert(FINGERPRINT, verified.fingerprint.clone());
    }
    Ok(verified)
}
