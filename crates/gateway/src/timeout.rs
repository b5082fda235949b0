//! Futures with a timeout.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use pronghorn_engine::Handle;

/// Returns the output of `future`, or `None` after `limit`.
pub(crate) async fn in_time<T>(
    handle: &Handle,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let (mut future, mut sleep) = (pin!(future), pin!(handle.sleep(limit)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}
