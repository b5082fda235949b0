//! Content of a request that its handler gave up before its end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use h2::RecvStream;

use super::Answer;
use crate::runtime::Handle;
use crate::tcp::ExchangeGuard;

/// How long the rest of a request is taken in after its handler gave it up.
const LINGER: Duration = Duration::from_secs(5);
/// How much of it: what a client has sent by the time that it sees the answer to a small form or call.
const LINGER_BYTES: usize = 64 << 10;

/// What the content of a request tells its connection.
pub(crate) struct Http2Server {
    pub(crate) guard: Rc<ExchangeGuard>,
    pub(crate) handle: Handle,
    /// Where the client waits for 100 (Continue).
    pub(crate) expectation: Option<Rc<Answer>>,
}

impl Http2Server {
    /// Takes in and drops the rest of `body`, within limits, and only then has the stream reset.
    ///
    /// RFC 9113, section 8.1, lets a server answer early and then stop the request by a reset without error. Sent at once, that
    /// reset hides what is wrong with frames that are on their way, hits requests whose end is on its way too, and some clients
    /// throw the answer away with it.
    pub(crate) fn linger(&self, mut body: RecvStream) {
        if body.is_end_stream() {
            return;
        }
        let mut patience = Box::pin(self.handle.sleep(LINGER));
        self.handle.spawn(async move {
            let mut left = LINGER_BYTES;
            let mut rest = pin!(async {
                while let Some(Ok(data)) = body.data().await {
                    let taken = body.flow_control().release_capacity(data.len());
                    left = left.saturating_sub(data.len());
                    if taken.is_err() || left == 0 {
                        return;
                    }
                }
                // What comes after the content has to be in order as well. The next poll says so; there is nobody to tell.
                let _ = body.trailers().await;
            });
            poll_fn(|cx| if patience.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { rest.as_mut().poll(cx) }).await;
        });
    }
}
