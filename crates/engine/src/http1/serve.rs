//! Serves one connection, on top of hyper.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::HeaderValue;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::closing::{PeerExpectation, close};
use super::response::{Aborted, AcceptedUpgrade};
use super::service::RequestService;
use super::tunnel::{TunnelOutcome, run as run_tunnel};
use super::wire::CheckedIo;
use crate::context::Context;
use crate::dispatch::Dispatcher;
use crate::shutdown::{IDLE_SHUTDOWN_DELAY, ShutdownNotice};
use crate::tcp::{Activity, Connected, HeadClock, Outcome, PeerEnd, Watchdog};

/// From this many unwritten bytes on hyper takes no more. It does not read more than that ahead
/// either, so a head has to fit.
const HELD_BYTES: usize = 64 << 10;
/// What is read beyond the largest head.
const HEAD_MARGIN: usize = 16 << 10;

/// Field lines that hyper parses on its stack. For more, it allocates space for the largest allowed
/// head, for each head.
const FEW_LINES: u64 = 100;

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(
    io: T,
    peer: Connected,
    alt_svc: Option<HeaderValue>,
    activity: Rc<Activity>,
    dispatcher: Rc<Dispatcher>,
) -> Outcome
where
    T: AsyncRead + AsyncWrite + PeerEnd + Unpin + 'static,
{
    let context = dispatcher.context.clone();
    let granted = Rc::<RefCell<Option<AcceptedUpgrade>>>::default();
    let head_bytes = context.config.limits.field_section_bytes() as usize;
    let (wire, shared) =
        CheckedIo::new(HeadClock::new(io, activity.clone(), context.handle.clone()), head_bytes);
    let service = RequestService {
        peer,
        alt_svc,
        activity: activity.clone(),
        wire: shared.clone(),
        granted: granted.clone(),
        latest: RefCell::default(),
        dispatcher,
    };
    let mut has_room = context.config.limits.field_lines() <= FEW_LINES;
    shared.set_max_lines(if has_room { usize::MAX } else { FEW_LINES as usize });
    let mut connection =
        library(&context, has_room).serve_connection(TokioIo::new(wire.handle()), service);
    let mut watchdog = Watchdog::new(activity.clone(), &context);
    let mut shutdown = ShutdownNotice::new(&context.shutdown);
    let (mut finishing, mut is_cut_off) = (false, false);
    let outcome = loop {
        let outcome = poll_fn(|cx| {
            shared.begin_poll(context.handle.phase());
            let is_last = activity.has_exchanges() && shutdown.poll_begun(cx).is_ready();
            if !finishing && (is_last || shared.poll_last(cx).is_ready()) {
                finishing = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            // Includes hyper's shutdown, which the wire interprets. Without it, hyper would be done
            // before all that it has buffered is written, once it has stopped reading.
            let mut polled = Pin::new(&mut connection).poll(cx);
            // Nothing is left to read and no head has begun, so closing here loses no request.
            let is_idle =
                polled.is_pending() && !activity.has_exchanges() && activity.head().is_none();
            if is_idle
                && !finishing
                && (activity.is_to_close()
                    || shutdown.poll_after(cx, IDLE_SHUTDOWN_DELAY, &context.handle).is_ready())
            {
                finishing = true;
                Pin::new(&mut connection).graceful_shutdown();
                polled = Pin::new(&mut connection).poll(cx);
            }
            if shared.begins_to_hold() {
                context.handle.wake_at_end(shared.clone(), cx.waker());
            }
            match polled {
                Poll::Ready(Err(error)) if error.is_parse_too_large() => {
                    count_large_head(&activity, &context);
                    Poll::Ready(Some(Outcome::ProtocolError))
                }
                Poll::Ready(Err(error)) if error.is_parse() => {
                    context.stats.requests_refused.add(1);
                    Poll::Ready(Some(Outcome::ProtocolError))
                }
                Poll::Ready(_) if shared.has_refused() => {
                    context.stats.requests_refused.add(1);
                    Poll::Ready(Some(Outcome::ProtocolError))
                }
                Poll::Ready(Err(error)) if error.is_user() && !gave_up(&error) => {
                    // The application failed in the middle of a response. The peer is not at fault.
                    is_cut_off = true;
                    Poll::Ready(Some(Outcome::Done))
                }
                // Other errors mean that the peer left, within a message or between two.
                Poll::Ready(_) => Poll::Ready(Some(Outcome::Done)),
                Poll::Pending
                    if shared.has_unread_trailers()
                        || (shared.wants_more_lines() && !activity.has_exchanges()) =>
                {
                    Poll::Ready(None)
                }
                Poll::Pending if activity.has_exchanges() && wire.poll_end(cx).is_ready() => {
                    if shared.is_asked_in(context.handle.turn()) {
                        // Handlers that collect requests answer at the end of the turn. A client
                        // that ends its direction with its request still gets the response.
                        context.handle.defer(cx.waker());
                        return Poll::Pending;
                    }
                    Poll::Ready(Some(Outcome::Done))
                }
                Poll::Pending => {
                    if shared.wants_more_lines() {
                        shared.wait_for_content(cx);
                    }
                    watchdog.poll(cx).map(|()| Some(Outcome::TimedOut))
                }
            }
        })
        .await;
        if let Some(outcome) = outcome {
            break outcome;
        }
        // hyper gives each head of a connection the same number of lines, so a new instance takes
        // over and serves the rest.
        let parts = connection.into_parts();
        wire.give_back(&parts.read_buf);
        if !shared.replace_parser() {
            has_room = true;
            shared.set_max_lines(usize::MAX);
        }
        connection = library(&context, has_room).serve_connection(parts.io, parts.service);
        finishing = false;
    };
    let parts = connection.into_parts();
    drop(parts.io);
    let (mut io, rest, mut held_responses) = wire.into_parts();
    if !held_responses.is_empty() {
        // The response that these were held back for will not come. A peer that has left, or takes
        // nothing, loses nothing.
        poll_fn(|cx| {
            if held_responses.poll_write(&mut io, cx).is_ready() {
                Poll::Ready(())
            } else {
                watchdog.poll(cx)
            }
        })
        .await;
    }
    let Some(granted) = granted.take().filter(|_| outcome == Outcome::Done) else {
        // A client that sent a malformed request may go on to send its content, and no client
        // expects a response to break off.
        let rest = if outcome == Outcome::ProtocolError || is_cut_off {
            PeerExpectation::MoreRequests
        } else {
            shared.rest()
        };
        // Boxed, so that an open connection does not reserve space for it.
        Box::pin(close(io, rest, &context)).await;
        return outcome;
    };
    // Boxed, so that a connection without a tunnel does not reserve space for it.
    let outcome = Box::pin(tunnel(&mut io, parts.read_buf, rest, granted, &mut watchdog)).await;
    match outcome {
        Ok(ended) => {
            if ended != TunnelOutcome::Aborted {
                Box::pin(close(
                    io,
                    if ended == TunnelOutcome::Unread {
                        PeerExpectation::MoreRequests
                    } else {
                        PeerExpectation::Nothing
                    },
                    &context,
                ))
                .await;
            }
            Outcome::Done
        }
        Err(outcome) => outcome,
    }
}

/// `has_room`: whether to allow heads with the configured number of lines. Otherwise [`FEW_LINES`].
fn library(context: &Context, has_room: bool) -> http1::Builder {
    let limits = &context.config.limits;
    let mut library = http1::Builder::new();
    // The watchdog has one clock for each connection and needs no timer for each request.
    // `CheckedIo::poll_end` detects a client that leaves before it has its response.
    library
        .header_read_timeout(None)
        .max_header_size(limits.field_section_bytes() as usize)
        .half_close(true);
    library.max_buf_size(HELD_BYTES.max(limits.field_section_bytes() as usize + HEAD_MARGIN));
    if has_room && limits.field_lines() != FEW_LINES {
        library.max_headers(limits.field_lines() as usize);
    }
    library
}

/// Runs the other protocol. `first` and `then` have been read already. The timeouts of requests do
/// not apply: only a peer that takes nothing is disconnected.
async fn tunnel<T>(
    io: &mut T,
    first: Bytes,
    then: Bytes,
    granted: AcceptedUpgrade,
    watchdog: &mut Watchdog,
) -> Result<TunnelOutcome, Outcome>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let AcceptedUpgrade { tunnel, outgoing, guard: _guard } = granted;
    let early = if first.is_empty() { then } else { [first, then].concat().into() };
    let mut running = pin!(run_tunnel(io, early, tunnel, outgoing));
    poll_fn(|cx| match running.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Ok(ended)),
        Poll::Pending => watchdog.poll(cx).map(|()| Err(Outcome::TimedOut)),
    })
    .await
}

fn gave_up(error: &hyper::Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<Aborted>)
}

/// Counts a head that hyper has answered with 431 or 414 by itself.
fn count_large_head(activity: &Activity, context: &Context) {
    let bytes = activity.head().map_or(0, |(_, bytes)| bytes as u64);
    let too_long = bytes >= context.config.limits.field_section_bytes();
    let counter =
        if too_long { &context.stats.heads_too_large } else { &context.stats.heads_too_many_lines };
    counter.add(1);
    context.stats.requests_refused.add(1);
}
