//! What is known of the certificates of sites.

use std::time::SystemTime;

use crate::acme::{NoRetry, OrderState, lifetime};
use crate::gateway::Gateway;
use crate::site_certificates::Certificate;

/// A certificate as it is shown now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// The hosts that it is shown for, as the configuration writes them.
    pub hosts: Vec<String>,
    /// When it runs out; `None` where there is none yet.
    pub until: Option<SystemTime>,
    /// Of one that the server orders itself.
    pub order: Option<OrderState>,
}

impl Gateway {
    /// Orders the certificate of a host again at once, after a failure that made for a wait.
    ///
    /// # Errors
    ///
    /// When there is nothing to order again.
    pub fn retry_order(&self, host: &str) -> Result<(), NoRetry> {
        let plan = self.plan();
        let slots = plan.listed.iter().flat_map(|site| &site.certificates).filter_map(|certificate| match certificate {
            Certificate::Ordered(slot) => Some(slot),
            Certificate::Read(_) => None,
        });
        slots.into_iter().find(|slot| slot.host().eq_ignore_ascii_case(host)).ok_or(NoRetry::Unknown)?.retry()
    }

    /// The certificates of all sites, in the order of the configuration: of each site one, or one for each host where they are ordered.
    pub fn certificates(&self) -> Vec<CertificateState> {
        let mut states: Vec<CertificateState> = Vec::new();
        for site in &self.plan().listed {
            let mut is_first = true;
            for (host, certificate) in site.hosts.iter().zip(&site.certificates) {
                match (certificate, states.last_mut()) {
                    (Certificate::Read(_), Some(state)) if !is_first => state.hosts.push(host.to_string()),
                    (Certificate::Read(key), _) => {
                        let until = lifetime(key).map(|lifetime| lifetime.until);
                        states.push(CertificateState { hosts: vec![host.to_string()], until, order: None });
                    }
                    (Certificate::Ordered(slot), _) => states.push(CertificateState {
                        hosts: vec![host.to_string()],
                        until: slot.lifetime().map(|lifetime| lifetime.until),
                        order: Some(slot.state()),
                    }),
                }
                is_first = false;
            }
        }
        states
    }
}
