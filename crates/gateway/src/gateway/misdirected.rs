//! Requests for a host on a connection whose certificate is for another host.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use crate::plan::Plan;
use crate::routing::site_plan::SitePlan;

/// Maximum number of remembered pairs of names per worker. When it is exceeded, the cache is
/// cleared.
const KNOWN_PAIRS: usize = 256;

/// The server name of the TLS connection, and the host of a request on it.
type Pair = (Arc<str>, Box<str>);

/// A worker's cache of pairs that may share a connection.
#[derive(Default)]
pub(super) struct ConnectionReuse(RefCell<FxHashMap<Pair, bool>>);

impl ConnectionReuse {
    /// Returns whether a connection for the server name `name` may carry a request for `host`,
    /// which belongs to `site`.
    ///
    /// RFC 9110, section 7.4: a client must find its host in the certificate of the connection. A
    /// client that does not check may have connected for another site, so that its own site's rules
    /// would be bypassed.
    pub(super) fn allow(
        &self,
        plan: &Plan,
        name: &Arc<str>,
        host: &str,
        site: &Arc<SitePlan>,
    ) -> bool {
        if **name == *host || plan.sites.find(name).is_some_and(|asked| Arc::ptr_eq(asked, site)) {
            return true;
        }
        let key = (name.clone(), Box::from(host));
        if let Some(known) = self.0.borrow().get(&key) {
            return *known;
        }
        let [shown, wanted] = [&**name, host]
            .map(|name| plan.certificates.find(Some(name)).and_then(|site| site.certificate.key()));
        // A site without a certificate yet has none that could differ.
        let is_allowed = shown.is_none_or(|shown| {
            wanted.is_some_and(|wanted| wanted.cert.first() == shown.cert.first())
                || covers(&shown, host)
        });
        let mut known = self.0.borrow_mut();
        if known.len() >= KNOWN_PAIRS {
            known.clear();
        }
        known.insert(key, is_allowed);
        is_allowed
    }
}

/// Returns whether a client would accept the certificate for this host.
fn covers(key: &CertifiedKey, host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let (Some(certificate), Ok(name)) = (key.cert.first(), ServerName::try_from(host)) else {
        return false;
    };
    ParsedCertificate::try_from(certificate)
        .is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}
