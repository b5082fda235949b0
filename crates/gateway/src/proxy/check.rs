//! Servers that are asked how they are, whether clients ask or not.
//!
//! One worker does it for all of them: a check is a request a few times a minute, and what it finds is read by all.

mod asker;

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

use self::asker::Asker;
use super::UpstreamPlan;
use crate::config::UpstreamCheckTable;
use crate::freed_aside::FreedAside;
use crate::in_time::in_time;
use crate::plan::Plan;

/// The first checks of an upstream's servers begin within this time, one after the other.
const SPREAD: Duration = Duration::from_secs(1);

/// The checks of one upstream, which end with this.
struct Running {
    /// So that no other has its address.
    _upstream: Arc<UpstreamPlan>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The checks of a gateway: who does them, and how to tell them of another plan.
#[derive(Clone, Default)]
pub(crate) struct Checks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    has_begun: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Checks {
    /// Whether the caller is the one who shall run them.
    pub(crate) fn begin(&self) -> bool {
        !self.0.has_begun.swap(true, Ordering::Relaxed)
    }

    /// There is another plan.
    pub(crate) fn wake(&self) {
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Checks the servers of the plan that is there, until it is dropped. `plans` gives the plan and its number, if that is another than
    /// the one that was seen.
    pub(crate) fn run(
        &self,
        connector: Connector,
        plans: impl Fn(Option<u64>) -> Option<(u64, Arc<FreedAside<Plan>>)> + 'static,
    ) -> impl Future<Output = ()> + 'static {
        let shared = self.0.clone();
        let (mut seen, mut running) = (None, FxHashMap::default());
        poll_fn(move |cx| {
            // Before the plan is looked at, so that no change is missed.
            *shared.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            if let Some((number, plan)) = plans(seen) {
                seen = Some(number);
                let mut before = std::mem::take(&mut running);
                for upstream in &plan.upstreams {
                    let Some(check) = &upstream.settings.check else { continue };
                    let one = before.remove(&Arc::as_ptr(upstream)).unwrap_or_else(|| start(upstream, &check.0, &connector));
                    running.insert(Arc::as_ptr(upstream), one);
                }
            }
            Poll::Pending
        })
    }
}

/// Starts the checks of an upstream as a task of the worker.
fn start(upstream: &Arc<UpstreamPlan>, check: &UpstreamCheckTable, connector: &Connector) -> Running {
    let (checks, task) = abortable(check_servers(upstream.clone(), check.clone(), connector.clone()));
    connector.handle().spawn(async move {
        let _ = checks.await;
    });
    Running { _upstream: upstream.clone(), task }
}

/// How often in a row the checks of a server said the same.
#[derive(Clone, Copy, Default)]
struct Run {
    is_up: bool,
    length: u32,
}

impl Run {
    /// What is known now of the server, if that is enough.
    fn add(&mut self, check: &UpstreamCheckTable, is_up: bool) -> Option<bool> {
        let length = if self.is_up == is_up { self.length.saturating_add(1) } else { 1 };
        *self = Self { is_up, length };
        let needed = if is_up { check.successes } else { check.failures };
        (length >= needed).then_some(is_up)
    }
}

/// Checks each server at its own times, so that those that hang delay no other: there is one open check for each server at most.
async fn check_servers(upstream: Arc<UpstreamPlan>, check: UpstreamCheckTable, connector: Connector) {
    let count = upstream.health.len();
    let spread = check.every.0.min(SPREAD);
    let checks = (0..count).map(|index| {
        let offset = spread.mul_f64(index as f64 / count as f64);
        check_server(&upstream, &check, index, offset, &connector)
    });
    let mut checks: FuturesUnordered<_> = checks.collect();
    while checks.next().await.is_some() {}
}

async fn check_server(upstream: &Arc<UpstreamPlan>, check: &UpstreamCheckTable, index: usize, offset: Duration, connector: &Connector) {
    // No certificate is trusted: requests of clients are told so.
    let Ok(asker) = Asker::new(upstream, check, connector) else { return };
    let (handle, health) = (connector.handle(), &upstream.health[index]);
    let mut run = Run::default();
    let mut due = handle.now() + offset;
    loop {
        handle.sleep(due.saturating_duration_since(handle.now())).await;
        due = handle.now() + check.every.0;
        asker.begin();
        let answered = in_time(handle, check.timeout.0, asker.answers(upstream, check, index)).await;
        if let Some(is_up) = run.add(check, matches!(answered, Some(Ok(())))) {
            if let (false, false, Some(reason)) = (is_up, health.is_down(), why(check, answered)) {
                upstream.trouble.said(&upstream.settings.servers[index].0.address, reason.as_bytes());
            }
            health.checked(is_up);
        }
    }
}

/// Why a check failed; `answered` is `None` if it took too long.
fn why(check: &UpstreamCheckTable, answered: Option<Result<(), String>>) -> Option<String> {
    let reason = match answered {
        Some(Ok(())) => return None,
        Some(Err(reason)) => reason,
        None => format!("not answered in time (timeout = {})", humantime::format_duration(check.timeout.0)),
    };
    Some(format!("check of {}: {reason}", check.path.0.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_in_a_row_say_something_new() {
        let (mut run, check) = (Run::default(), asker::tests::table());
        let mut said = |is_up| run.add(&check, is_up);
        assert_eq!([false, false, true, false, false, false].map(&mut said), [None, None, None, None, None, Some(false)]);
        assert_eq!([true, false, true, true, true].map(&mut said), [None, None, None, Some(true), Some(true)]);
    }
}
