//! Admission of clients by their certificates.

use std::rc::Rc;
use std::sync::Arc;

use http::HeaderMap;
use pronghorn_engine::Peer;

use crate::certificates::client_auth::{Refusal, Verified, VerifiedCache};
use crate::plan::Plan;
use crate::routing::site_plan::SitePlan;

/// Verifies the client of a request for `site`, and adds the fields for upstreams. A client's own
/// fields of these names were already set aside ([`crate::fields::identity_fields`]), on all sites.
pub(super) fn admit(
    plan: &Plan,
    site: &Arc<SitePlan>,
    known: &VerifiedCache,
    peer: &Peer,
    headers: &mut HeaderMap,
) -> Result<Option<Rc<Verified>>, Refusal> {
    let Some(auth) = &site.client_auth else { return Ok(None) };
    if peer.client_certificate.is_none() && peer.secure {
        // The connection was opened for another name, which may require no certificate. On a
        // separate connection the client will be asked for one.
        let asked = peer.server_name.as_deref().and_then(|name| plan.sites.find(name));
        if asked.is_some_and(|asked| !Arc::ptr_eq(asked, site)) {
            return Err(Refusal::misdirected());
        }
    }
    let verified = auth.check(Arc::as_ptr(site).addr(), peer, known)?;
    if let Some(verified) = &verified {
        verified.insert_fields(headers);
    }
    Ok(verified)
}
