//! Requests for a host on a connection whose certificate is for another one.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use crate::plan::{Plan, SitePlan};

/// Pairs of names of which a worker remembers whether they may share a connection. With more, it begins again.
const KNOWN_PAIRS: usize = 256;

/// The name that a connection was asked for in TLS, and the host of a request on it.
type Pair = (Arc<str>, Box<str>);

/// Which pairs may share a connection, as far as a worker has found out.
#[derive(Default)]
pub(super) struct Shares(RefCell<FxHashMap<Pair, bool>>);

impl Shares {
    /// Whether a connection that was asked for `name` may bring a request for `host`, which is of `site`.
    ///
    /// RFC 9110, section 7.4: a client has to find its host in the certificate of the connection. One that does not look may have been sent here
    /// for another site, and to its own the rules of that one would not hold.
    pub(super) fn allow(&self, plan: &Plan, name: &Arc<str>, host: &str, site: &Arc<SitePlan>) -> bool {
        if **name == *host || plan.sites.find(name).is_some_and(|asked| Arc::ptr_eq(asked, site)) {
            return true;
        }
        let key = (name.clone(), Box::from(host));
        if let Some(known) = self.0.borrow().get(&key) {
            return *known;
        }
        let [shown, wanted] = [&**name, host].map(|name| plan.certificates.find(Some(name)).and_then(|site| site.certificate.key()));
        // A site whose certificate has not come yet has none that could be another.
        let is_allowed =
            shown.is_none_or(|shown| wanted.is_some_and(|wanted| wanted.cert.first() == shown.cert.first()) || covers(&shown, host));
        let mut known = self.0.borrow_mut();
        if known.len() >= KNOWN_PAIRS {
            known.clear();
        }
        known.insert(key, is_allowed);
        is_allowed
    }
}

/// Whether the certificate is for this host, as a client sees it.
fn covers(key: &CertifiedKey, host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let (Some(certificate), Ok(name)) = (key.cert.first(), ServerName::try_from(host)) else { return false };
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}
