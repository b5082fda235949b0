//! Closing a connection whose client may still be sending.

use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::context::Context;
use crate::tcp::PeerEnd;

/// How long a client may go on sending after a response that came before the end of its request.
const LINGER: Duration = Duration::from_secs(5);
/// The same limit for a client that was told that the connection closes, and for a client that
/// still takes the response.
const LINGER_IN_ALL: Duration = Duration::from_secs(30);
/// A client that is silent for this long has sent all that it wants to.
const PAUSE: Duration = Duration::from_secs(1);
const LINGER_BUFFER: usize = 16 << 10;

/// What a peer may still send when its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerExpectation {
    Nothing,
    /// The peer has no reason to expect that the connection ends.
    MoreRequests,
    /// The last response has announced the end.
    End,
}

/// Closes the connection, in stages if the peer may still be sending.
///
/// RFC 9112, section 9.6: after an immediate close, arriving data would make the system reset the
/// connection, and the reset may overtake the last response. A peer that knows of the end may
/// finish its request before the other direction ends: many clients read no response before they
/// have sent their request, and some (Python's asyncio over TLS) cannot send after that end.
///
/// As long as the peer still takes written data, the connection stays until the peer has all of it.
pub(crate) async fn close<T: AsyncRead + AsyncWrite + PeerEnd + Unpin>(
    mut io: T,
    rest: PeerExpectation,
    context: &Context,
) {
    let handle = &context.handle;
    let is_told = rest == PeerExpectation::End;
    let mut in_all = handle.sleep(if is_told { LINGER_IN_ALL } else { LINGER });
    let mut pause = handle.sleep(PAUSE);
    let mut shutdown = context.shutdown.subscribe();
    let (mut is_half, mut is_shut_down, mut is_over) =
        (!is_told, false, rest == PeerExpectation::Nothing);
    let (mut unacknowledged_bytes, mut taken_at) = (u64::MAX, handle.now());
    poll_fn(|cx| {
        if Pin::new(&mut in_all).poll(cx).is_ready() {
            let before = std::mem::replace(&mut unacknowledged_bytes, io.unacknowledged_bytes());
            if unacknowledged_bytes < before {
                taken_at = handle.now();
            }
            // A slow reader's system asks for more only once it has space for much.
            if is_half
                && unacknowledged_bytes > 0
                && handle.now().saturating_duration_since(taken_at) < LINGER_IN_ALL
            {
                in_all = handle.sleep(LINGER);
                cx.waker().wake_by_ref();
            } else {
                // The peer's own direction ends in any case.
                (is_half, is_over) = (true, true);
            }
        }
        if !is_half && (Pin::new(&mut pause).poll(cx).is_ready() || shutdown.poll(cx).is_ready()) {
            is_half = true;
            in_all = handle.sleep(LINGER);
            cx.waker().wake_by_ref();
        }
        loop {
            if is_half && !is_shut_down {
                let ended = Pin::new(&mut io).poll_shutdown(cx);
                // Fails if the peer takes no more or has already left.
                if is_over && ended.is_pending() && Pin::new(&mut in_all).poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                is_shut_down = ready!(ended).is_ok();
                is_over |= !is_shut_down;
            }
            if is_over {
                return Poll::Ready(());
            }
            let mut storage = [MaybeUninit::uninit(); LINGER_BUFFER];
            let mut buffer = ReadBuf::uninit(&mut storage);
            let read = ready!(Pin::new(&mut io).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                // The peer has ended its direction, and may wait for the end of the other one.
                (is_half, is_over) = (true, true);
                continue;
            }
            pause = handle.sleep(PAUSE);
            // One read per poll, so that a fast sender does not hold up the worker.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
    })
    .await;
}
