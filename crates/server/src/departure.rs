//! Work that ends when the client leaves.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use pronghorn_engine::{Responder, Response};

/// Waits for `answer`. Returns `None` if the client leaves first.
pub(crate) async fn unless_closed(
    responder: &mut Responder,
    answer: impl Future<Output = Response>,
) -> Option<Response> {
    let mut answer = pin!(answer);
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => responder.poll_closed(cx).map(|()| None),
    })
    .await
}
