//! Tasks that drive a session on its worker.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Runs `work`. Returns `None` if `gone` completes first.
pub(super) async fn run_until<T>(gone: impl Future, work: impl Future<Output = T>) -> Option<T> {
    let (mut gone, mut work) = (pin!(gone), pin!(work));
    poll_fn(|cx| {
        if gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Spawns `future` on the worker of `handle`. It is exempt from tokio's cooperative budget: tokio
/// would charge it to the worker's own task and make that wait for the others.
pub(super) fn spawn(handle: &pronghorn_engine::Handle, future: impl Future<Output = ()> + 'static) {
    handle.spawn(tokio::task::coop::unconstrained(future));
}
