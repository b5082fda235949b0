//! Loading of a plan from a configuration.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::builder::{ByName, PlanBuilder, PlanContext, by_name};
use super::sites::ramp;
use crate::certificates::key_sources::KeySources;
use crate::certificates::site_certificates::{Names, SiteCertificate};
use crate::config::{Config, HostPattern, Problem, Tls};
use crate::fleet::Fleet;
use crate::plan::{Plan, SiteEntry};
use crate::routing::hosts::Hosts;
use crate::switches::SiteSwitches;

impl Plan {
    /// Opens folders, certificates and logs.
    ///
    /// # Errors
    ///
    /// Returns all problems that were found.
    pub(crate) fn new(config: &Config, context: &PlanContext<'_>) -> Result<Self, Vec<Problem>> {
        let mut builder = PlanBuilder {
            config,
            context,
            problems: Vec::new(),
            upstreams: Vec::new(),
            known_upstreams: ByName::default(),
            upstreams_before: context
                .before
                .map(|before| by_name(&before.upstreams))
                .unwrap_or_default(),
            routes: 0,
            system_roots: None,
            stateful_layers: FxHashMap::default(),
            ordered: None,
            warnings: Vec::new(),
            keys: KeySources::default(),
        };
        builder.buffering_folder();
        builder.signers();
        builder.problems.extend(Fleet::check(config));
        let log_counts =
            context.before.map_or_else(Arc::default, |before| before.log_counts.clone());
        let log = builder.log(&log_counts);
        let mut sites = Hosts::new();
        let mut sites_in_order = Vec::new();
        let mut names = Names { sites: Hosts::new(), first: None, asks_any: false };
        for site in &config.sites {
            let http3 = site.tls.is_some() && site.http3.unwrap_or(config.server.http3);
            let switches = Arc::new(SiteSwitches::new(http3));
            let certificates =
                site.tls.as_ref().map(|tls| builder.certificates(site, tls)).unwrap_or_default();
            let asks_clients =
                matches!(&site.tls, Some(Tls::Files(files)) if files.client.is_some());
            names.asks_any |= asks_clients;
            for (host, certificate) in site.hosts.iter().zip(&certificates) {
                let shown = SiteCertificate {
                    certificate: certificate.clone(),
                    is_slow: certificate.is_slow(),
                    switches: switches.clone(),
                    asks_clients,
                };
                names.sites.insert(host, shown.clone());
                names.first.get_or_insert(shown);
            }
            sites_in_order.push(SiteEntry {
                hosts: site.hosts.clone(),
                is_secure: site.tls.is_some(),
                switches: switches.clone(),
                certificates,
            });
            let plan = Arc::new(builder.site(site, switches.clone()));
            site.hosts.iter().for_each(|host: &HostPattern| sites.insert(host, plan.clone()));
        }
        if !builder.problems.is_empty() {
            return Err(builder.problems);
        }
        let trusted_proxies =
            config.server.trusted_proxies.iter().map(|network| network.0).collect();
        let plan = Self {
            sites,
            trusted_proxies,
            asks_clients: names.asks_any,
            ramp: context.https_port.and_then(|port| ramp(&config.server, port)),
            log,
            log_counts,
            log_settings: config.log.clone(),
            sites_in_order,
            upstreams: builder.upstreams,
            ordered: builder.ordered,
            stateful_layers: builder.stateful_layers,
            certificates: Arc::new(names),
            warnings: builder.warnings,
            keys: builder.keys,
        };
        Ok(plan)
    }
}
