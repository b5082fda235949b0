//! HTTP/2 in clear text, by clients that know that it is spoken (RFC 9113, section 3.3): the first bytes of a connection tell.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use super::stream::TcpStream;
use super::{Outcome, Watchdog};
use crate::context::{Context, DRAIN_NOTICE, Notice};

/// RFC 9113, section 3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the client begins with HTTP/2. Nothing of what it has sent is read; it has the time of a head for the preface.
///
/// # Errors
///
/// How the connection has ended before that was known.
pub(super) async fn is_http2(stream: &TcpStream, context: &Rc<Context>) -> Result<bool, Outcome> {
    let mut watchdog = None;
    let mut shutdown = Notice::new(context);
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
        if waits && shutdown.poll_after(cx, DRAIN_NOTICE, &context.handle).is_ready() {
            return Poll::Ready(Err(Outcome::Done));
        }
        // Most clients have sent their first request with the end of the handshake of TCP, and need no clock here.
        let watchdog = watchdog.get_or_insert_with(|| Watchdog::new(stream.activity().clone(), context));
        watchdog.poll(cx).map(|()| Err(Outcome::TimedOut))
    })
    .await
}
