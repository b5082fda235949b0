//! Admission of upgrade requests.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use pronghorn_engine::{Incoming, Peer, Protocol, Upgrade};

use crate::fields::client_address::{client_address, network_of};
use crate::routing::action::ActionPlan;
use crate::routing::site_plan::RoutePlan;
use crate::tunnels::{Refused, Tunnel};

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Handles an upgrade request: returns its tunnel slot, or `None` if it is an ordinary request. If
/// the route does not allow the protocol, an HTTP/1.1 request becomes an ordinary one: the upgrade
/// and its fields are removed.
///
/// # Errors
///
/// If the upgrade is refused.
pub(super) fn admit(
    route: &RoutePlan,
    wish: &mut Option<Upgrade>,
    headers: &mut HeaderMap,
    body: &mut Incoming,
    peer: &Peer,
    trusted_proxies: &[IpNet],
) -> Result<Option<Tunnel>, Refused> {
    let Some(upgrade) = wish else { return Ok(None) };
    let tunnels = route.tunnels.as_ref().filter(|tunnels| tunnels.allows(upgrade.protocol()));
    if let Some(tunnels) = tunnels {
        return tunnels
            .begin(network_of(client_address(peer.remote, headers, trusted_proxies), 64))
            .map(Some);
    }
    if peer.protocol == Protocol::Http1 {
        (*wish, *body) = (None, Incoming::empty());
        for name in [CONNECTION, UPGRADE, HTTP2_SETTINGS] {
            headers.remove(name);
        }
        return Ok(None);
    }
    // A route that refuses all requests also refuses this one.
    let is_refused = match &route.action {
        ActionPlan::Respond { status, .. } | ActionPlan::Redirect { status, .. } => {
            !status.is_success()
        }
        ActionPlan::Files(_) | ActionPlan::Proxy(_) | ActionPlan::Application(_) => false,
    };
    if is_refused { Ok(None) } else { Err(Refused::NotSpoken) }
}
