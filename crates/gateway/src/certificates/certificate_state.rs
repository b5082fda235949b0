//! The state of the certificates of sites.

use std::time::SystemTime;

use pronghorn_acme::{OrderState, RetryError, lifetime};

use crate::certificates::site_certificates::Certificate;
use crate::gateway::Gateway;

/// A certificate as served now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// The hosts that the certificate is served for, as written in the configuration.
    pub hosts: Vec<String>,
    /// Expiry time; `None` if there is no certificate yet.
    pub until: Option<SystemTime>,
    /// State of the order, if the server orders the certificate itself.
    pub order: Option<OrderState>,
}

impl Gateway {
    /// Orders the certificate of a host again at once, without waiting out the delay after a
    /// failure.
    ///
    /// # Errors
    ///
    /// If there is nothing to order again.
    pub fn retry_order(&self, host: &str) -> Result<(), RetryError> {
        let plan = self.plan();
        let slots = plan.sites_in_order.iter().flat_map(|site| &site.certificates).filter_map(
            |certificate| match certificate {
                Certificate::Ordered(slot) => Some(slot),
                Certificate::Read(_) | Certificate::Slow(_) => None,
            },
        );
        slots
            .into_iter()
            .find(|slot| slot.host().eq_ignore_ascii_case(host))
            .ok_or(RetryError::Unknown)?
            .retry()
    }

    /// Returns the certificates of all sites, in the order of the configuration: one for each site,
    /// or one for each host where the certificates are ordered.
    pub fn certificates(&self) -> Vec<CertificateState> {
        let mut states: Vec<CertificateState> = Vec::new();
        for site in &self.plan().sites_in_order {
            let mut is_first = true;
            for (host, certificate) in site.hosts.iter().zip(&site.certificates) {
                match (certificate, states.last_mut()) {
                    (Certificate::Read(_) | Certificate::Slow(_), Some(state)) if !is_first => {
                        state.hosts.push(host.to_string());
                    }
                    (Certificate::Read(key) | Certificate::Slow(key), _) => {
                        let until = lifetime(key).map(|lifetime| lifetime.until);
                        states.push(CertificateState {
                            hosts: vec![host.to_string()],
                            until,
                            order: None,
                        });
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
