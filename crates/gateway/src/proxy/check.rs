//! Servers that are asked how they are, whether clients ask or not.
//!
//! One worker does it for all of them: a check is a request a few times a minute, and what it finds is read by all.

mod asker;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use pronghorn_engine::Connector;

use self::asker::Asker;
use super::UpstreamPlan;
use crate::config::UpstreamCheckTable;
use crate::in_time::in_time;
use crate::plan::Plan;

/// Servers of one upstream that are asked at the same time.
const AT_ONCE: usize = 16;

type Running = (Arc<UpstreamPlan>, Option<Pin<Box<dyn Future<Output = ()>>>>);

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
        plans: impl Fn(Option<u64>) -> Option<(u64, Arc<Plan>)> + 'static,
    ) -> impl Future<Output = ()> + 'static {
        let shared = self.0.clone();
        let (mut seen, mut running): (_, Vec<Running>) = (None, Vec::new());
        poll_fn(move |cx| {
            // Before the plan is looked at, so that no change is missed.
            *shared.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            if let Some((number, plan)) = plans(seen) {
                seen = Some(number);
                running.retain(|(one, _)| plan.upstreams.iter().any(|other| Arc::ptr_eq(one, other)));
                for upstream in &plan.upstreams {
                    if let Some(check) = &upstream.settings.check
                        && !running.iter().any(|(one, _)| Arc::ptr_eq(one, upstream))
                    {
                        let asking = check_servers(upstream.clone(), check.0.clone(), connector.clone());
                        running.push((upstream.clone(), Some(Box::pin(asking))));
                    }
                }
            }
            for (_, asking) in &mut running {
                if asking.as_mut().is_some_and(|asking| asking.as_mut().poll(cx).is_ready()) {
                    *asking = None;
                }
            }
            Poll::Pending
        })
    }
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

async fn check_servers(upstream: Arc<UpstreamPlan>, check: UpstreamCheckTable, connector: Connector) {
    // Nobody who is trusted: requests of clients are told so.
    let Ok(asker) = Asker::new(&upstream, &check, &connector) else { return };
    let handle = connector.handle();
    let mut runs = vec![Run::default(); upstream.health.len()];
    loop {
        let began = handle.now();
        asker.begin();
        let asked = (0..runs.len()).map(|index| {
            let (asker, upstream, check) = (&asker, &upstream, &check);
            async move { (index, in_time(handle, check.timeout.0, asker.answers(upstream, check, index)).await) }
        });
        let said = |(index, answered): (usize, Option<Result<(), String>>)| {
            if let Some(is_up) = runs[index].add(&check, matches!(answered, Some(Ok(())))) {
                if let (false, false, Some(reason)) = (is_up, upstream.health[index].is_down(), why(&check, answered)) {
                    upstream.trouble.said(&upstream.settings.servers[index].0.address, reason.as_bytes());
                }
                upstream.health[index].checked(is_up);
            }
        };
        some_at_once(asked, said).await;
        let spent = handle.now().saturating_duration_since(began);
        handle.sleep(check.every.0.saturating_sub(spent)).await;
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

/// Runs all of them, a few at the same time, and hands over what each returns.
async fn some_at_once<F: Future>(futures: impl Iterator<Item = F>, mut on_ready: impl FnMut(F::Output)) {
    let mut waiting: VecDeque<_> = futures.collect();
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    poll_fn(|cx| {
        loop {
            while running.len() < AT_ONCE
                && let Some(next) = waiting.pop_front()
            {
                running.push(Box::pin(next));
            }
            let before = running.len();
            running.retain_mut(|future| match future.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    on_ready(value);
                    false
                }
                Poll::Pending => true,
            });
            if running.is_empty() && waiting.is_empty() {
                return Poll::Ready(());
            }
            // Those that are new have to be polled.
            if running.len() == before || waiting.is_empty() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Context;

    use std::pin::pin;

    use super::*;

    #[test]
    fn only_so_many_in_a_row_say_something_new() {
        let (mut run, check) = (Run::default(), asker::tests::table());
        let mut said = |is_up| run.add(&check, is_up);
        assert_eq!([false, false, true, false, false, false].map(&mut said), [None, None, None, None, None, Some(false)]);
        assert_eq!([true, false, true, true, true].map(&mut said), [None, None, None, Some(true), Some(true)]);
    }

    /// Ready when it is polled for the third time.
    async fn third(running: &Cell<usize>, most: &Cell<usize>, number: usize) -> usize {
        running.set(running.get() + 1);
        most.set(most.get().max(running.get()));
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        running.set(running.get() - 1);
        number
    }

    #[test]
    fn all_are_asked_and_only_a_few_at_the_same_time() {
        let (running, most) = (Cell::new(0), Cell::new(0));
        for count in [0, 1, AT_ONCE, 3 * AT_ONCE + 1] {
            most.set(0);
            let mut done = Vec::new();
            {
                let asked = (0..count).map(|number| third(&running, &most, number));
                let mut all = pin!(some_at_once(asked, |number| done.push(number)));
                let polls = (0..100).take_while(|_| all.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()).count();
                assert!(polls < 100, "{count} never end");
            }
            done.sort_unstable();
            assert_eq!(done, (0..count).collect::<Vec<_>>());
            assert_eq!((running.get(), most.get()), (0, count.min(AT_ONCE)));
        }
    }
}
