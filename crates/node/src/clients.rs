//! Client certificates: verification, and which requests they admit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode, Uri};
use pronghorn_certificates::{Authorities, Untrusted};
use pronghorn_engine::{AsksClients as _, ClientCertificate, Peer, Response};
use rustc_hash::FxHashMap;

use crate::certificates::{Certificates, Entry};
use crate::listening::host_of;

/// How long what was found of a certificate is believed: it may expire meanwhile.
const BELIEVED: Duration = Duration::from_secs(60);
/// Certificates that an entry knows to be trusted.
const KNOWN: usize = 1024;

/// What is done with certificates of clients.
#[derive(Debug)]
pub(crate) struct Clients {
    authorities: Authorities,
    /// Whoever shows none that is trusted is refused.
    is_required: bool,
    /// Those that were found to be trusted, by their fingerprint, and until when that is believed. Of others it may be what came with them that
    /// was missing.
    known: Mutex<FxHashMap<[u8; 32], Instant>>,
}

/// What a client gets in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(StatusCode, &'static str);

impl From<Refusal> for Response {
    fn from(Refusal(status, message): Refusal) -> Self {
        let mut response = Response::new(status).with_body(message);
        response.headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    }
}

impl Clients {
    pub(crate) fn new(authorities: Authorities, is_required: bool) -> Self {
        Self { authorities, is_required, known: Mutex::default() }
    }

    fn verify(&self, certificate: &ClientCertificate) -> Result<(), Untrusted> {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(certificate.fingerprint()).is_some_and(|until| now < *until) {
            return Ok(());
        }
        self.authorities.verify(certificate)?;
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(*certificate.fingerprint(), now + BELIEVED);
        Ok(())
    }
}

/// Looks at the client of a request, before anybody else sees it.
///
/// The connection has asked for one name, and the request may be for another: it is let in if it is by both. Who asked for a name that wants
/// no certificate was not asked for one, so that such a request wants a connection of its own.
pub(crate) fn admit(certificates: &Certificates, peer: &Peer, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if !certificates.asks_any() {
        return Ok(());
    }
    let asked = certificates.entry(peer.server_name.as_deref());
    let wanted = name_of(uri, headers).and_then(|host| certificates.entry(Some(&host)));
    let is_same = |one: &Arc<Entry>| asked.as_ref().is_some_and(|asked| Arc::ptr_eq(asked, one));
    for entry in [&asked, &wanted].into_iter().flatten() {
        let Some(clients) = entry.clients.as_ref().filter(|clients| clients.is_required) else { continue };
        match &peer.client_certificate {
            None if is_same(entry) => return Err(Refusal(StatusCode::FORBIDDEN, "a client certificate is required\n")),
            None => return Err(Refusal(StatusCode::MISDIRECTED_REQUEST, "the site wants a connection of its own\n")),
            Some(certificate) if clients.verify(certificate).is_err() => {
                return Err(Refusal(StatusCode::FORBIDDEN, "the client certificate is not trusted\n"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Returns the state of the client's certificate: empty if the client was not asked for one, `OK` if it is trusted, and otherwise the error code
/// that Node.js has for the reason.
pub(crate) fn standing(certificates: &Certificates, peer: &Peer, uri: &Uri, headers: &HeaderMap) -> &'static str {
    let entry =
        name_of(uri, headers).map_or_else(|| certificates.entry(peer.server_name.as_deref()), |host| certificates.entry(Some(&host)));
    let Some(clients) = entry.as_ref().and_then(|entry| entry.clients.as_ref()) else { return "" };
    let Some(certificate) = &peer.client_certificate else { return "UNABLE_TO_GET_ISSUER_CERT" };
    match clients.verify(certificate) {
        Ok(()) => "OK",
        Err(Untrusted::Expired) => "CERT_HAS_EXPIRED",
        Err(Untrusted::NotValidYet) => "CERT_NOT_YET_VALID",
        Err(Untrusted::WrongPurpose) => "INVALID_PURPOSE",
        Err(Untrusted::BadSignature) => "CERT_SIGNATURE_FAILURE",
        Err(Untrusted::SelfSigned) => "DEPTH_ZERO_SELF_SIGNED_CERT",
        Err(Untrusted::SelfSignedInChain) => "SELF_SIGNED_CERT_IN_CHAIN",
        Err(Untrusted::UnknownIssuer) => "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
        Err(Untrusted::Unusable) => "CERT_REJECTED",
    }
}

/// The server name that a request is for: its host without the dot that it may end with.
fn name_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let mut host = host_of(uri, headers)?;
    if host.ends_with('.') {
        host.pop();
    }
    Some(host)
}
