//! Active health checks.
//!
//! One worker runs the checks of all workers: a check is a request a few times a minute, and all
//! workers read the result.

mod client;

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use pronghorn_engine::Connector;
use rustc_hash::FxHashMap;

use self::client::CheckClient;
use super::upstream_plan::UpstreamPlan;
use crate::config::UpstreamCheckTable;
use crate::drop_on_thread::DropOnThread;
use crate::plan::Plan;
use crate::timeout::in_time;

/// The first checks of an upstream's servers are spread over this time.
const SPREAD: Duration = Duration::from_secs(1);

/// The running checks of one upstream, cancelled on drop.
struct Running {
    /// Keeps the plan alive, so that its address stays unique.
    _upstream: Arc<UpstreamPlan>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Handle to the checks of a gateway: starts them once, and wakes them for a new plan.
#[derive(Clone, Default)]
pub(crate) struct Checks(Arc<CheckState>);

#[derive(Default)]
struct CheckState {
    has_begun: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Checks {
    /// Returns whether the caller is the first one, and so has to run the checks.
    pub(crate) fn begin(&self) -> bool {
        !self.0.has_begun.swap(true, Ordering::Relaxed)
    }

    /// Wakes the checks after a change of the plan.
    pub(crate) fn wake(&self) {
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Checks the servers of the current plan until the future is dropped. `plans` returns the plan
    /// and its number, if that differs from the given number.
    pub(crate) fn run(
        &self,
        connector: Connector,
        plans: impl Fn(Option<u64>) -> Option<(u64, Arc<DropOnThread<Plan>>)> + 'static,
    ) -> impl Future<Output = ()> + 'static {
        let shared = self.0.clone();
        let (mut seen, mut running) = (None, FxHashMap::default());
        poll_fn(move |cx| {
            // Registered before the plan is read, so that no change is missed.
            *shared.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            if let Some((number, plan)) = plans(seen) {
                seen = Some(number);
                let mut before = std::mem::take(&mut running);
                for upstream in &plan.upstreams {
                    let Some(check) = &upstream.settings.check else { continue };
                    let one = before
                        .remove(&Arc::as_ptr(upstream))
                        .unwrap_or_else(|| start(upstream, &check.0, &connector));
                    running.insert(Arc::as_ptr(upstream), one);
                }
            }
            Poll::Pending
        })
    }
}

/// Starts the checks of an upstream as a task of the worker.
fn start(
    upstream: &Arc<UpstreamPlan>,
    check: &UpstreamCheckTable,
    connector: &Connector,
) -> Running {
    let (checks, task) =
        abortable(check_servers(upstream.clone(), check.clone(), connector.clone()));
    connector.handle().spawn(async move {
        let _ = checks.await;
    });
    Running { _upstream: upstream.clone(), task }
}

/// Number of consecutive checks of a server with the same result.
#[derive(Clone, Copy, Default)]
struct Streak {
    is_up: bool,
    length: u32,
}

impl Streak {
    /// Adds a result. Returns the server's state once enough consecutive checks agree.
    fn add(&mut self, check: &UpstreamCheckTable, is_up: bool) -> Option<bool> {
        let length = if self.is_up == is_up { self.length.saturating_add(1) } else { 1 };
        *self = Self { is_up, length };
        let needed = if is_up { check.successes } else { check.failures };
        (length >= needed).then_some(is_up)
    }
}

/// Checks each server on its own schedule, so that a hanging server does not delay the others:
/// there is at most one open check for each server.
async fn check_servers(
    upstream: Arc<UpstreamPlan>,
    check: UpstreamCheckTable,
    connector: Connector,
) {
    let count = upstream.health.len();
    let spread = check.every.0.min(SPREAD);
    let checks = (0..count).map(|index| {
        let offset = spread.mul_f64(index as f64 / count as f64);
        check_server(&upstream, &check, index, offset, &connector)
    });
    let mut checks: FuturesUnordered<_> = checks.collect();
    while checks.next().await.is_some() {}
}

async fn check_server(
    upstream: &Arc<UpstreamPlan>,
    check: &UpstreamCheckTable,
    index: usize,
    offset: Duration,
    connector: &Connector,
) {
    // No trust roots are available; requests of clients log that.
    let Ok(client) = CheckClient::new(upstream, check, connector) else { return };
    let (handle, health) = (connector.handle(), &upstream.health[index]);
    let mut streak = Streak::default();
    let mut due = handle.now() + offset;
    loop {
        handle.sleep(due.saturating_duration_since(handle.now())).await;
        due = handle.now() + check.every.0;
        client.begin();
        let answered =
            in_time(handle, check.timeout.0, client.answers(upstream, check, index)).await;
        if let Some(is_up) = streak.add(check, matches!(answered, Some(Ok(())))) {
            if let (false, false, Some(reason)) = (is_up, health.is_down(), why(check, answered)) {
                upstream
                    .failures
                    .log_output(&upstream.settings.servers[index].0.address, reason.as_bytes());
            }
            health.checked(is_up);
        }
    }
}

/// Returns why a check failed; `answered` is `None` after a timeout.
fn why(check: &UpstreamCheckTable, answered: Option<Result<(), String>>) -> Option<String> {
    let reason = match answered {
        Some(Ok(())) => return None,
        Some(Err(reason)) => reason,
        None => format!(
            "no response in time (timeout = {})",
            humantime::format_duration(check.timeout.0)
        ),
    };
    Some(format!("health check of {}: {reason}", check.path.0.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_in_a_row_say_something_new() {
        let (mut streak, check) = (Streak::default(), client::tests::table());
        let mut said = |is_up| streak.add(&check, is_up);
        assert_eq!(
            [false, false, true, false, false, false].map(&mut said),
            [None, None, None, None, None, Some(false)]
        );
        assert_eq!(
            [true, false, true, true, true].map(&mut said),
            [None, None, None, Some(true), Some(true)]
        );
    }
}
