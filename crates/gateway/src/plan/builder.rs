//! State of building a plan.

use std::sync::Arc;

use http::StatusCode;
use pronghorn_acme::CertificateRequests;
use pronghorn_certificates::{CertificateError, Loaded};
use rustc_hash::FxHashMap;

use crate::certificates::key_log::KeyLog;
use crate::certificates::key_sources::KeySources;
use crate::config::{Config, Fault, Location, Problem};
use crate::layers::{Layer, Registry};
use crate::plan::Plan;
use crate::proxy::{Observer, UpstreamPlan};

/// Inputs of a plan besides the configuration.
pub(crate) struct PlanContext<'a> {
    /// Port of the TLS listener, if there is one.
    pub(crate) https_port: Option<u16>,
    /// Provides the development certificate.
    pub(crate) development: &'a dyn Fn() -> Result<Loaded, CertificateError>,
    /// Current plan, whose unchanged parts are reused.
    pub(crate) before: Option<&'a Plan>,
    /// Available layers.
    pub(crate) layers: &'a Registry,
    /// Observer of state changes of upstream servers.
    pub(crate) observer: &'a Arc<Observer>,
    /// Log of keys that are elsewhere.
    pub(crate) key_log: &'a Arc<KeyLog>,
}

/// The parts of a plan that were built so far.
pub(super) struct PlanBuilder<'a> {
    pub(super) config: &'a Config,
    pub(super) context: &'a PlanContext<'a>,
    pub(super) problems: Vec<Problem>,
    pub(super) upstreams: Vec<Arc<UpstreamPlan>>,
    /// Upstreams by name: those of the new plan, and those of the plan before.
    pub(super) known_upstreams: ByName,
    pub(super) upstreams_before: ByName,
    pub(super) routes: usize,
    /// Trust roots of the system, read once.
    pub(super) system_roots: Option<Arc<rustls::ClientConfig>>,
    pub(super) stateful_layers: FxHashMap<String, Arc<dyn Layer>>,
    pub(super) ordered: Option<CertificateRequests>,
    pub(super) warnings: Vec<Problem>,
    pub(super) keys: KeySources,
}

/// Marks an error that is already among the problems.
pub(super) struct Reported;

impl PlanBuilder<'_> {
    pub(super) fn problem(
        &mut self,
        location: &Location,
        message: impl std::fmt::Display,
        hint: &str,
    ) {
        self.problems.push(self.config.problem(location, message).with_hint(hint));
    }

    /// Like [`PlanBuilder::problem`], for a file or folder that is missing or not accessible.
    pub(super) fn missing_file(
        &mut self,
        location: &Location,
        fault: impl Into<Fault>,
        message: impl std::fmt::Display,
        hint: &str,
    ) {
        self.problems
            .push(self.config.problem(location, message).with_hint(hint).with_fault(fault));
    }
}

/// Upstreams by name; those with the same name differ in their settings.
pub(super) type ByName = FxHashMap<Arc<str>, Vec<Arc<UpstreamPlan>>>;

pub(super) fn by_name(upstreams: &[Arc<UpstreamPlan>]) -> ByName {
    let mut found = ByName::default();
    for plan in upstreams {
        found.entry(plan.name().clone()).or_default().push(plan.clone());
    }
    found
}

pub(super) fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("invariant: the configuration was checked")
}
