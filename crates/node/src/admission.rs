//! Admission of requests by client certificates.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, Uri};
use pronghorn_certificates::Untrusted;
use pronghorn_engine::{ClientCertificatePolicy as _, Peer, Response};

use crate::app::host_of;
use crate::certificates::{Certificates, Entry};

/// The response to a client that is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(StatusCode, &'static str);

impl From<Refusal> for Response {
    fn from(Refusal(status, message): Refusal) -> Self {
        let mut response = Response::new(status).with_body(message);
        response.headers.insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        response
    }
}

/// Checks the client of a request before any handler.
///
/// The connection was opened for one server name, and the request may be for another host: both
/// have to admit it. A client that opened the connection for a name without client certificates was
/// not asked for one, so the request needs a connection of its own (421).
pub(crate) fn admit(
    certificates: &Certificates,
    peer: &Peer,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    if !certificates.requests_any() {
        return Ok(());
    }
    let asked = certificates.entry(peer.server_name.as_deref());
    let wanted = name_of(uri, headers).and_then(|host| certificates.entry(Some(&host)));
    let is_same = |one: &Arc<Entry>| asked.as_ref().is_some_and(|asked| Arc::ptr_eq(asked, one));
    for entry in [&asked, &wanted].into_iter().flatten() {
        let Some(clients) = entry.clients.as_ref().filter(|clients| clients.is_required) else {
            continue;
        };
        match &peer.client_certificate {
            None if is_same(entry) => {
                return Err(Refusal(StatusCode::FORBIDDEN, "a client certificate is required\n"));
            }
            None => {
                return Err(Refusal(
                    StatusCode::MISDIRECTED_REQUEST,
                    "this site requires a separate connection\n",
                ));
            }
            Some(certificate) if clients.verify(certificate).is_err() => {
                return Err(Refusal(
                    StatusCode::FORBIDDEN,
                    "the client certificate is not trusted\n",
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Returns the state of the client's certificate: empty if the client was not asked for one, `OK`
/// if it is trusted, and otherwise the error code that Node.js has for the reason.
pub(crate) fn certificate_status(
    certificates: &Certificates,
    peer: &Peer,
    uri: &Uri,
    headers: &HeaderMap,
) -> &'static str {
    let entry = name_of(uri, headers).map_or_else(
        || certificates.entry(peer.server_name.as_deref()),
        |host| certificates.entry(Some(&host)),
    );
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

/// Returns the server name of a request: its host without a trailing dot.
fn name_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let mut host = host_of(uri, headers)?;
    if host.ends_with('.') {
        host.pop();
    }
    Some(host)
}
