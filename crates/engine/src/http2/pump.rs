//! Sends a body on a stream at the pace that the peer allows.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;

use super::send_buffer::{BufferedBytes, SendBuffer, SendSlot};
use crate::Body;
use crate::body::with_send_capacity;
use crate::connection_fields::remove_connection_fields_of_response;
use crate::context::Context;
use crate::memory::{Charge, MemoryPressure, memory_pressure};
use crate::progress::WriteProgress;
use crate::runtime::Sleep;
use crate::tcp::ExchangeGuard;

/// Payload of one DATA frame. With its head the frame fills one TLS record.
const FRAME_BYTES: usize = (16 << 10) - 9;
/// Capacity requested before a body is polled: the most that it may return at once.
const ASKED_BYTES: usize = 64 << 10;
/// The same while memory is short.
const PRESSED_BYTES: usize = FRAME_BYTES;

fn asked_bytes() -> usize {
    if memory_pressure() >= MemoryPressure::SmallWindows { PRESSED_BYTES } else { ASKED_BYTES }
}

/// Sends a body on a stream at the pace that the peer allows.
///
/// `server` is set if the body is a response's. Its guard notes while the pump waits for the peer,
/// which has limited time.
pub(crate) async fn pump(
    stream: &mut SendStream<BufferedBytes>,
    body: Body,
    slot: &SendSlot,
    server: Option<(&ExchangeGuard, &Context)>,
) -> Result<(), Reason> {
    let send_buffer = slot.send_buffer();
    // RFC 8441, section 5: CANCEL stands for the reset of a TCP connection.
    let broken = if body.is_tunnel() { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
    let on_panic = ResetOnPanic(stream, broken);
    let stream = &mut *on_panic.0;
    // A body in memory may be shared with other responses.
    let counted = server.filter(|_| body.full_size().is_none());
    let mut held = Charge::default();
    let mut body = pin!(body);
    let mut stall_timer = server.map(|(_, context)| StallTimer::new(context));
    loop {
        // Content that is polled before there is capacity for it would be buffered by every stream.
        // If the body may end without more content, only polling it can tell.
        let certain =
            body.size_hint().exact().map_or(0, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let mut room = None;
        if certain > 0 {
            let max_bytes = certain.min(asked_bytes());
            let turn = poll_fn(|cx| {
                poll_turn(stream, &body, slot, max_bytes, server, &mut stall_timer, broken, cx)
            })
            .await?;
            // Whole frames, except for the last one.
            room = Some(if turn < certain && turn > FRAME_BYTES {
                turn - turn % FRAME_BYTES
            } else {
                turn
            });
        }
        let frame = poll_fn(|cx| {
            if let Poll::Ready(reset) = stream.poll_reset(cx) {
                return Poll::Ready(Err(reset.unwrap_or(Reason::CANCEL)));
            }
            let polled =
                with_send_capacity(room.unwrap_or(usize::MAX), || body.as_mut().poll_frame(cx));
            if polled.is_pending() && room.take().is_some() {
                // Other streams can use the window meanwhile.
                stream.reserve_capacity(0);
            }
            polled.map(Ok)
        })
        .await?;
        let frame = match frame {
            None => return send_data(stream, send_buffer, Bytes::new(), true),
            Some(Err(_)) => return Err(broken),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(mut data) => {
                while !data.is_empty() {
                    let max_bytes = data.len();
                    if let Some((_, context)) = counted {
                        held.set(&context.memory, max_bytes as u64);
                    }
                    // The capacity that was reserved for the body is still available.
                    let capacity = match room.take() {
                        Some(room) => room,
                        None => {
                            poll_fn(|cx| {
                                poll_turn(
                                    stream,
                                    &body,
                                    slot,
                                    max_bytes,
                                    server,
                                    &mut stall_timer,
                                    broken,
                                    cx,
                                )
                            })
                            .await?
                        }
                    };
                    let mut size = capacity.min(data.len());
                    if size < data.len() && size > FRAME_BYTES {
                        // The rest goes with the next piece.
                        size -= size % FRAME_BYTES;
                    }
                    let chunk = data.split_to(size);
                    if let Some(stall_timer) = &mut stall_timer {
                        stall_timer.on_moved(chunk.len());
                    }
                    let last = data.is_empty() && body.is_end_stream();
                    send_data(stream, send_buffer, chunk, last)?;
                    if last {
                        return Ok(());
                    }
                }
                if let Some((_, context)) = counted {
                    held.set(&context.memory, 0);
                }
                if let Some(stall_timer) = &mut stall_timer {
                    stall_timer.progress.on_done();
                }
            }
            Err(frame) => {
                if let Ok(mut trailers) = frame.into_trailers() {
                    remove_connection_fields_of_response(&mut trailers);
                    if trailers.is_empty() {
                        return send_data(stream, send_buffer, Bytes::new(), true);
                    }
                    return stream.send_trailers(trailers).map_err(|_| Reason::CANCEL);
                }
            }
        }
    }
}

/// Resets the stream of a body that panics like that of a body that fails. h2 alone would reset it
/// with CANCEL, as if the response were not needed any more.
struct ResetOnPanic<'a>(&'a mut SendStream<BufferedBytes>, Reason);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_reset(self.1);
        }
    }
}

/// Returns how many bytes may be sent now. An error if the peer took too long.
#[expect(clippy::too_many_arguments, reason = "the parts of one pump")]
fn poll_turn(
    stream: &mut SendStream<BufferedBytes>,
    body: &Body,
    slot: &SendSlot,
    max_bytes: usize,
    server: Option<(&ExchangeGuard, &Context)>,
    stall_timer: &mut Option<StallTimer<'_>>,
    broken: Reason,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<usize, Reason>> {
    if body.poll_abort(cx).is_ready() {
        return Poll::Ready(Err(broken));
    }
    let capacity = poll_capacity(stream, slot, max_bytes, cx);
    if let Some((guard, _)) = server {
        guard.set_outbound_waiting(capacity.is_pending());
    }
    match (&capacity, stall_timer) {
        (Poll::Pending, Some(stall_timer)) => {
            // More urgent streams go first. As long as they make progress, the peer has more time.
            let progress = slot.progress();
            if std::mem::replace(&mut stall_timer.progressed, progress) != progress {
                stall_timer.rest();
            }
            stall_timer.poll(cx).map(|()| Err(Reason::CANCEL))
        }
        _ => capacity,
    }
}

/// Passes `data` to h2, in frames that fit TLS records. `last`: nothing follows.
pub(super) fn send_data(
    stream: &mut SendStream<BufferedBytes>,
    send_buffer: &Rc<SendBuffer>,
    mut data: Bytes,
    last: bool,
) -> Result<(), Reason> {
    let id = stream.stream_id().as_u32();
    loop {
        let frame = data.split_to(data.len().min(FRAME_BYTES));
        stream
            .send_data(send_buffer.hold(id, frame), last && data.is_empty())
            .map_err(|_| Reason::CANCEL)?;
        if data.is_empty() {
            return Ok(());
        }
    }
}

/// Limits how long a peer may keep its window closed for a response.
struct StallTimer<'a> {
    progress: WriteProgress,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether the pump has waited since the last bytes.
    waits: bool,
    /// [`SendSlot::progress`] when it was last checked.
    progressed: u64,
    context: &'a Context,
}

impl<'a> StallTimer<'a> {
    fn new(context: &'a Context) -> Self {
        Self {
            progress: WriteProgress::new(&context.config.limits),
            sleep: None,
            waits: false,
            progressed: 0,
            context,
        }
    }

    fn on_moved(&mut self, bytes: usize) {
        self.progress.on_moved(bytes);
        self.sleep = None;
        self.waits = false;
    }

    /// Notes that the pump waits for something other than the peer's window.
    fn rest(&mut self) {
        self.progress.on_done();
        self.sleep = None;
        self.note_wait();
    }

    fn note_wait(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            self.context.stats.send_window_waits.add(1);
        }
    }

    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.note_wait();
        let handle = &self.context.handle;
        self.progress.on_blocked(handle.now());
        let deadline = self.progress.deadline().expect("invariant: progress is blocked");
        let sleep =
            self.sleep.get_or_insert_with(|| Box::pin(handle.timers().sleep_until(deadline)));
        ready!(sleep.as_mut().poll(cx));
        self.progress.count(&self.context.stats);
        Poll::Ready(())
    }
}

/// Returns how many bytes may be sent now, of `max_bytes`: limited by the windows and by the
/// connection's buffer. Only the stream whose turn it is requests the connection's window, because
/// h2 gives it to the stream that asks first.
fn poll_capacity(
    stream: &mut SendStream<BufferedBytes>,
    slot: &SendSlot,
    max_bytes: usize,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<usize, Reason>> {
    if let Poll::Ready(reset) = stream.poll_reset(cx) {
        return Poll::Ready(Err(reset.unwrap_or(Reason::CANCEL)));
    }
    let wanted = max_bytes.min(FRAME_BYTES);
    if slot.is_blocked() {
        ready!(poll_window(stream, cx))?;
        slot.unblock();
    }
    let Poll::Ready(room) = slot.poll_turn(wanted, cx) else {
        stream.reserve_capacity(0);
        return Poll::Pending;
    };
    stream.reserve_capacity(max_bytes.min(room));
    match poll_window(stream, cx) {
        Poll::Ready(window) => {
            window?;
            slot.take();
            Poll::Ready(Ok(stream.capacity().min(room)))
        }
        Poll::Pending if slot.has_credit() => {
            stream.reserve_capacity(wanted);
            slot.block();
            Poll::Pending
        }
        Poll::Pending => {
            slot.keep(wanted, cx);
            Poll::Pending
        }
    }
}

/// Ready when the peer's windows allow some bytes.
fn poll_window(
    stream: &mut SendStream<BufferedBytes>,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<(), Reason>> {
    // h2 reports only new capacity, not what was left because the buffer was full.
    while stream.capacity() == 0 {
        if !matches!(ready!(stream.poll_capacity(cx)), Some(Ok(_))) {
            return Poll::Ready(Err(Reason::CANCEL));
        }
    }
    Poll::Ready(Ok(()))
}
