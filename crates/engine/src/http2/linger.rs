//! Reading on after a handler has dropped a request's body before its end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use h2::RecvStream;

use super::exchange::ResponseStream;
use super::frame_watch::FrameWatch;
use crate::context::Context;
use crate::tcp::ExchangeGuard;

/// Links a request's body to its connection.
pub(crate) struct Http2BodyLink {
    pub(crate) guard: Rc<ExchangeGuard>,
    pub(crate) context: Rc<Context>,
    /// Set if the client waits for 100 (Continue).
    pub(crate) expectation: Option<Rc<ResponseStream>>,
    pub(super) watch: Rc<FrameWatch>,
    pub(super) stream: u32,
}

impl Drop for Http2BodyLink {
    fn drop(&mut self) {
        self.watch.end_content(self.stream);
    }
}

impl Http2BodyLink {
    /// Notes that the application got a piece of content.
    pub(crate) fn on_read(&self, bytes: usize) {
        self.watch.on_content_read(self.stream, bytes);
    }

    /// Reads and discards the rest of `body`, within limits, and only then lets the stream be
    /// reset.
    ///
    /// RFC 9113, section 8.1, lets a server respond early and then stop the request with a reset
    /// without error. Sent at once, that reset hides errors in frames that are on their way and
    /// hits requests whose end is on its way too. Some clients also discard the response with it.
    ///
    /// Bytes that the window let the client send before it could see the response do not count:
    /// curl reads nothing as long as it may send, and would then find the reset instead of the
    /// response. To send more, the client needs a window update, which is sent after the response.
    pub(crate) fn linger(&self, mut body: RecvStream) {
        if body.is_end_stream() {
            return;
        }
        let Context { handle, config, stats, .. } = &*self.context;
        let mut stall_timer = Box::pin(handle.sleep(config.limits.linger_timeout()));
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
                // The frames after the content have to be valid too. The next poll checks them;
                // there is nothing to report the result to.
                let _ = body.trailers().await;
            });
            poll_fn(|cx| {
                let rest = rest.as_mut().poll(cx);
                if rest.is_pending() && stall_timer.as_mut().poll(cx).is_ready() {
                    stats.linger_timeouts.add(1);
                    return Poll::Ready(());
                }
                rest
            })
            .await;
        });
    }
}
