//! HTTP/2 in clear text with prior knowledge (RFC 9113, section 3.3), detected by the first bytes
//! of a connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use super::stream::TcpStream;
use super::{Outcome, Watchdog};
use crate::context::Context;
use crate::shutdown::{IDLE_SHUTDOWN_DELAY, ShutdownNotice};

/// RFC 9113, section 3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the client speaks HTTP/2. Consumes none of its bytes; the preface has to arrive within
/// the head timeout.
///
/// # Errors
///
/// The connection's outcome, if it ended before that was known.
pub(super) async fn is_http2(stream: &TcpStream, context: &Rc<Context>) -> Result<bool, Outcome> {
    let mut watchdog = None;
    let mut shutdown = ShutdownNotice::new(&context.shutdown);
    let mut known = pin!(poll_fn(|cx| {
        let mut first = [0; PREFACE.len()];
        stream.poll_peek(cx, &mut first, |seen| {
            let begins = PREFACE.starts_with(seen);
            if begins && !seen.is_empty() && seen.len() < PREFACE.len() {
                stream.activity().begin_head(context.handle.now(), 0);
                return None;
            }
            Some(begins && seen.len() == PREFACE.len())
        })
    }));
    poll_fn(|cx| {
        if let Poll::Ready(known) = known.as_mut().poll(cx) {
            return Poll::Ready(Ok(known));
        }
        let waits = stream.activity().head().is_none();
        if waits && shutdown.poll_after(cx, IDLE_SHUTDOWN_DELAY, &context.handle).is_ready() {
            return Poll::Ready(Err(Outcome::Done));
        }
        // Most clients send their first request with the end of the TCP handshake, and need no
        // timer here.
        let watchdog =
            watchdog.get_or_insert_with(|| Watchdog::new(stream.activity().clone(), context));
        watchdog.poll(cx).map(|()| Err(Outcome::TimedOut))
    })
    .await
}
