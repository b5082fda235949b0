//! A loaded configuration: the state that all workers share.

mod actions;
pub(crate) mod builder;
mod certificates;
mod layers;
mod load;
mod pages;
mod server;
mod sites;

use std::sync::Arc;

use ipnet::IpNet;
use pronghorn_acme::CertificateRequests;
use rustc_hash::FxHashMap;

use crate::access_log::{AccessLog, LogCounts};
use crate::certificates::key_sources::KeySources;
use crate::certificates::site_certificates::{Certificate, Names};
use crate::config::{HostPattern, Log, Problem};
use crate::layers::Layer;
use crate::proxy::UpstreamPlan;
use crate::ramp::Ramp;
use crate::routing::hosts::Hosts;
use crate::routing::site_plan::SitePlan;
use crate::switches::SiteSwitches;

/// The loaded configuration that workers use.
pub(crate) struct Plan {
    pub(crate) sites: Hosts<Arc<SitePlan>>,
    pub(crate) trusted_proxies: Arc<[IpNet]>,
    /// Whether any site requests client certificates.
    pub(crate) asks_clients: bool,
    /// Certificates by host name.
    pub(crate) certificates: Arc<Names>,
    /// Gradual announcement of HTTP/3, in place of the sites' own, while it is ramped up.
    pub(crate) ramp: Option<Ramp>,
    pub(crate) log: Option<Arc<AccessLog>>,
    pub(crate) log_counts: Arc<LogCounts>,
    pub(super) log_settings: Log,
    /// All sites, in the order of the configuration.
    pub(crate) sites_in_order: Vec<SiteEntry>,
    pub(crate) upstreams: Vec<Arc<UpstreamPlan>>,
    /// Names whose certificates are ordered.
    pub(crate) ordered: Option<CertificateRequests>,
    /// Layers with state that is kept over a reload, by site, route and settings.
    pub(super) stateful_layers: FxHashMap<String, Arc<dyn Layer>>,
    /// Keys on other machines and in security modules.
    pub(crate) keys: KeySources,
    /// Warnings about certificates that clients will reject.
    pub(crate) warnings: Vec<Problem>,
}

/// A site in the list of a plan.
pub(crate) struct SiteEntry {
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) is_secure: bool,
    pub(crate) switches: Arc<SiteSwitches>,
    /// Certificate of each host; empty without TLS.
    pub(crate) certificates: Vec<Certificate>,
}
