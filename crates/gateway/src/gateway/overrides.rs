//! Settings of sites that are switched by hand.

use std::collections::BTreeMap;

use crate::config::HostPattern;
use crate::plan::SiteEntry;
use crate::switches::Override;

/// Switched settings by host. They last until the process ends, over reloads, so that a reload does
/// not silently undo an emergency change. Its size is bounded by the number of hosts of sites that
/// were switched.
#[derive(Default)]
pub(super) struct Overrides(BTreeMap<HostPattern, Override>);

impl Overrides {
    pub(super) fn of(&self, hosts: &[HostPattern]) -> Override {
        hosts.iter().find_map(|host| self.0.get(host)).copied().unwrap_or_default()
    }

    /// Applies the switches to the sites of a new plan.
    pub(super) fn apply(&self, sites: &[SiteEntry]) {
        for site in sites {
            site.switches.set(self.of(&site.hosts));
        }
    }

    /// Stores the settings of a site with these hosts.
    pub(super) fn set(&mut self, hosts: &[HostPattern], switched: Override) {
        for host in hosts {
            if switched == Override::default() {
                self.0.remove(host);
            } else {
                self.0.insert(host.clone(), switched);
            }
        }
    }
}
