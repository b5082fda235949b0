//! Runs attempts until the first one succeeds. Each attempt starts after a delay, or as soon as the
//! previous one has failed (RFC 8305).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use pronghorn_engine::{Handle, Sleep};

/// Returns the result of the first attempt that succeeds, or the error of the last one that failed.
/// `None` without attempts.
pub(crate) async fn race<I, T, E, F>(
    handle: &Handle,
    head_start: Duration,
    attempts: I,
) -> Option<Result<T, E>>
where
    I: IntoIterator<Item = F>,
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = attempts.into_iter();
    let mut running: Vec<Pin<Box<F>>> = vec![Box::pin(waiting.next()?)];
    let mut sleep: Pin<Box<Sleep>> = Box::pin(handle.sleep(head_start));
    let mut failure = None;
    poll_fn(|cx| {
        loop {
            let mut index = 0;
            let mut failed = false;
            while let Some(attempt) = running.get_mut(index) {
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(Ok(won)) => return Poll::Ready(Some(Ok(won))),
                    Poll::Ready(Err(error)) => {
                        failure = Some(error);
                        failed = true;
                        drop(running.swap_remove(index));
                    }
                    Poll::Pending => index += 1,
                }
            }
            if !failed && sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match waiting.next() {
                Some(next) => {
                    running.push(Box::pin(next));
                    sleep = Box::pin(handle.sleep(head_start));
                }
                None if running.is_empty() => return Poll::Ready(failure.take().map(Err)),
                // No attempts remain to start; the running ones determine the result.
                None => return Poll::Pending,
            }
        }
    })
    .await
}
