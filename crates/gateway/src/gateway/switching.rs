//! Switches of sites, by host.

use std::sync::PoisonError;

use super::Gateway;
use crate::config::HostPattern;
use crate::plan::SiteEntry;
use crate::switches::{Override, SiteState, Switch, SwitchError};

impl Gateway {
    /// Returns all sites, in the order of the configuration.
    pub fn sites(&self) -> Vec<SiteState> {
        let overrides = self.0.overrides.lock().unwrap_or_else(PoisonError::into_inner);
        self.plan()
            .sites_in_order
            .iter()
            .map(|site| state(site, overrides.of(&site.hosts)))
            .collect()
    }

    /// Switches the site that has `host` in its configuration, immediately and until this process
    /// ends or it is switched again. Connections over HTTP/3 stay open: their requests are answered
    /// 421, so that clients retry over TCP.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such site, or if it has no TLS.
    pub fn switch(&self, host: &str, switch: Switch) -> Result<SiteState, SwitchError> {
        let unknown = || SwitchError::Unknown(host.to_owned());
        let pattern: HostPattern = host.parse().map_err(|_| unknown())?;
        let mut overrides = self.0.overrides.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = self.plan();
        let site = plan
            .sites_in_order
            .iter()
            .find(|site| site.hosts.contains(&pattern))
            .ok_or_else(unknown)?;
        if !site.is_secure {
            return Err(SwitchError::NoTls(host.to_owned()));
        }
        let mut switched = overrides.of(&site.hosts);
        match switch {
            Switch::Http3(http3) => switched.http3 = http3,
            Switch::AltSvcClear(clear) => switched.alt_svc_clear = clear,
        }
        overrides.set(&site.hosts, switched);
        site.switches.set(switched);
        Ok(state(site, switched))
    }
}

fn state(site: &SiteEntry, switched: Override) -> SiteState {
    SiteState {
        hosts: site.hosts.iter().map(ToString::to_string).collect(),
        is_secure: site.is_secure,
        http3: site.switches.http3(),
        configured_http3: site.switches.configured_http3(),
        alt_svc_clear: switched.alt_svc_clear,
    }
}
