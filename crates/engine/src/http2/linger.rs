//! Content of a request that its handler gave up before its end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use h2::RecvStream;

use super::Answer;
use crate::context::Context;
use crate::tcp::ExchangeGuard;

/// What the content of a request tells its connection.
pub(crate) struct Http2Server {
    pub(crate) guard: Rc<ExchangeGuard>,
    pub(crate) context: Rc<Context>,
    /// Where the client waits for 100 (Continue).
    pub(crate) expectation: Option<Rc<Answer>>,
}

impl Http2Server {
    /// Takes in and drops the rest of `body`, within limits, and only then has the stream reset.
    ///
    /// RFC 9113, section 8.1, lets a server answer early and then stop the request by a reset without error. Sent at once, that
    /// reset hides what is wrong with frames that are on their way, hits requests whose end is on its way too, and some clients
    /// throw the answer away with it.
    ///
    /// What the client's window let it send before it could see the answer is not counted: curl reads nothing as long as it may send, and
    /// then finds the reset in place of the answer. What it sends later needs a window update, which stands behind the answer.
    pub(crate) fn linger(&self, mut body: RecvStream) {
        if body.is_end_stream() {
            return;
        }
        let Context { handle, config, stats, .. } = &*self.context;
        let mut patience = Box::pin(handle.sleep(config.limits.linger_timeout()));
        let window = u64::try_from(body.flow_control().available_capacity()).unwrap_or(0);
        let mut left = config.limits.linger_bytes().saturating_add(window);
        let stats = stats.clone();
        handle.spawn(async move {
            let mut rest = pin!(async {
                while let Some(Ok(data)) = body.data().await {
                    let taken = body.flow_control().release_capacity(data.len());
                    left = left.saturating_sub(data.len() as u64);
                    if left == 0 && !body.is_end_stream() {
                        stats.linger_overruns.add(1);
                        return;
                    }
                    if taken.is_err() {
                        return;
                    }
                }
                // What comes after the content has to be in order as well. The next poll says so; there is nobody to tell.
                let _ = body.trailers().await;
            });
            poll_fn(|cx| {
                let rest = rest.as_mut().poll(cx);
                if rest.is_pending() && patience.as_mut().poll(cx).is_ready() {
                    stats.linger_timeouts.add(1);
                    return Poll::Ready(());
                }
                rest
            })
            .await;
        });
    }
}
