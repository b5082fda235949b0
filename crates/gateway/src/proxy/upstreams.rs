//! The upstreams of one worker.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use pronghorn_engine::Connector;
use rustc_hash::{FxHashMap, FxHashSet};

use super::upstream_plan::UpstreamPlan;
use super::worker_upstream::WorkerUpstream;

/// The upstreams of one worker with their connections, created at their first request. Cheap to
/// clone.
#[derive(Clone, Default)]
pub(crate) struct Upstreams(Rc<RefCell<FxHashMap<usize, Rc<WorkerUpstream>>>>);

impl Upstreams {
    /// Returns this worker's instance of `plan`.
    ///
    /// # Errors
    ///
    /// If no trust roots are available.
    pub(crate) fn of(
        &self,
        plan: &Arc<UpstreamPlan>,
        connector: &Connector,
    ) -> io::Result<Rc<WorkerUpstream>> {
        let mut upstreams = self.0.borrow_mut();
        // The entry keeps the plan alive, so its address stays unique.
        let key = Arc::as_ptr(plan).addr();
        if let Some(upstream) = upstreams.get(&key) {
            return Ok(upstream.clone());
        }
        let made = WorkerUpstream::new(plan.clone(), connector);
        let upstream = Rc::new(made.inspect_err(|error| {
            plan.failures.log_output(&"this worker", error.to_string().as_bytes());
        })?);
        upstreams.insert(key, upstream.clone());
        Ok(upstream)
    }

    /// Drops the upstreams that are not in `plans` any more. Running requests go on.
    pub(crate) fn keep_only(&self, plans: &[Arc<UpstreamPlan>]) {
        let mut upstreams = self.0.borrow_mut();
        if upstreams.is_empty() {
            return;
        }
        let kept: FxHashSet<_> = plans.iter().map(Arc::as_ptr).collect();
        upstreams.retain(|_, upstream| kept.contains(&Arc::as_ptr(&upstream.plan)));
    }
}
