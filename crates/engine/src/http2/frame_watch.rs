//! Watches the frames of an HTTP/2 connection.
//!
//! h2 answers and ignores many frames without reporting them. Here every frame's head is examined
//! on its way in and out, so that the work that a peer can cause is bounded and counted.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use pronghorn_h3::Priority;
use rustc_hash::FxHashMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Frame, Frames, Preface, flags, kind};
use super::priority_signals::{Signal, Signals};
use super::send_buffer::SendBuffer;
use super::token_bucket::Bucket;
use crate::context::Context;
use crate::memory::{Charge, WorkerMemory};
use crate::stats::{Counter, Stats};
use crate::tcp::Activity;
use crate::window_budget::with_overhead;

/// Bytes of content that pay for one control frame: peers measure the path with a PING for about as
/// many.
const BYTES_PER_CONTROL_FRAME: f64 = 4096.0;
/// A smaller window update counts as a control frame: it opens no useful window.
const TINY_UPDATE: u32 = 256;
/// Memory of a piece of content in h2 besides its bytes.
const PIECE_BYTES: u64 = 256;
/// RFC 9113, section 7.
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// What is known of a connection's frames.
pub(crate) struct FrameWatch {
    context: Rc<Context>,
    activity: Rc<Activity>,
    preface: RefCell<Preface>,
    inbound: RefCell<Frames>,
    outbound: RefCell<Frames>,
    control: RefCell<Bucket>,
    resets: RefCell<Bucket>,
    /// Frames of the head that is arriving.
    head_frames: Cell<u64>,
    /// Streams whose requests were handed over and may be answered, and whether the peer has reset
    /// them. A response on any other stream is h2's own refusal.
    accepted: RefCell<FxHashMap<u32, bool>>,
    /// The latest stream that was handed over.
    latest: Cell<u32>,
    signals: RefCell<Signals>,
    send_buffer: Rc<SendBuffer>,
    /// The code that the connection has to be closed with.
    fault: Cell<Option<u32>>,
    /// The connection had nothing more to read in this poll.
    drained: Cell<bool>,
    /// Writing is suspended, because more follows.
    held_back: Cell<bool>,
    /// h2 had something to write meanwhile.
    has_more: Cell<bool>,
    /// The error that sending failed with.
    broken: Cell<Option<io::ErrorKind>>,
    /// Bytes received since the last [`FrameWatch::take_received`].
    received: Cell<u64>,
    unread: RefCell<UnreadContent>,
}

/// Content of requests that h2 buffers for their handlers.
#[derive(Default)]
struct UnreadContent {
    /// Bytes of each stream whose body has a reader.
    streams: FxHashMap<u32, u64>,
    total: u64,
    held: Charge,
}

impl UnreadContent {
    fn change(&mut self, memory: &Rc<WorkerMemory>, stream: u32, change: impl FnOnce(u64) -> u64) {
        let Some(bytes) = self.streams.get_mut(&stream) else { return };
        let changed = change(*bytes);
        self.total = self.total - std::mem::replace(bytes, changed) + changed;
        self.held.set(memory, with_overhead(self.total));
    }
}

impl FrameWatch {
    pub(crate) fn new(
        activity: Rc<Activity>,
        send_buffer: Rc<SendBuffer>,
        context: Rc<Context>,
    ) -> Rc<Self> {
        let (now, limits) = (context.handle.now(), &context.config.limits);
        let (control, resets) = (limits.control_frames_per_second(), limits.resets_per_second());
        // The connection preface has the timeout of a head.
        activity.begin_head(now, 0);
        send_buffer.count_credit();
        Rc::new(Self {
            activity,
            preface: RefCell::default(),
            inbound: RefCell::default(),
            outbound: RefCell::default(),
            control: RefCell::new(Bucket::new(now, control)),
            resets: RefCell::new(Bucket::new(now, resets)),
            head_frames: Cell::default(),
            accepted: RefCell::default(),
            latest: Cell::default(),
            signals: RefCell::default(),
            send_buffer,
            fault: Cell::default(),
            drained: Cell::default(),
            held_back: Cell::default(),
            has_more: Cell::default(),
            broken: Cell::default(),
            received: Cell::default(),
            unread: RefCell::default(),
            context,
        })
    }

    /// Returns the code to close the connection with, if the peer exceeded a limit, which has been
    /// counted, or sent a malformed frame that h2 does not check. Nothing more is read then.
    pub(crate) fn fault(&self) -> Option<u32> {
        self.fault.get()
    }

    /// Notes that the connection's task is polled again, so that reading may succeed.
    pub(super) fn begin_poll(&self) {
        self.drained.set(false);
    }

    /// Suspends writing until [`FrameWatch::let_out`].
    pub(super) fn hold_back(&self) {
        self.held_back.set(true);
    }

    pub(super) fn is_holding_back(&self) -> bool {
        self.held_back.get()
    }

    /// Resumes writing. Returns whether h2 has something to write: not if all requests are answered
    /// later.
    pub(super) fn let_out(&self) -> bool {
        self.held_back.set(false);
        self.has_more.take()
    }

    /// Whether writing is suspended. Notes that h2 has something to write.
    fn holds_back(&self) -> bool {
        let holds_back = self.held_back.get();
        if holds_back {
            self.has_more.set(true);
        }
        holds_back
    }

    /// Notes that the request on this stream was handed over.
    pub(crate) fn on_accepted(&self, stream: u32) {
        self.latest.set(stream);
        let mut accepted = self.accepted.borrow_mut();
        if accepted.insert(stream, false) == Some(true) {
            // The stream was reset before.
            accepted.insert(stream, true);
        }
        drop(accepted);
        self.prune();
    }

    /// Streams that the peer has reset are never answered and stay among the accepted. Beyond a
    /// limit the older half is removed.
    fn prune(&self) {
        let mut accepted = self.accepted.borrow_mut();
        if accepted.len() as u64 > 4 * self.context.config.limits.concurrent_streams() {
            let mut streams: Vec<u32> = accepted.keys().copied().collect();
            let (_, &mut median, _) = streams.select_nth_unstable(accepted.len() / 2);
            accepted.retain(|stream, _| *stream >= median);
        }
    }

    /// Returns the bytes received since the last call.
    pub(crate) fn take_received(&self) -> u64 {
        self.received.take()
    }

    /// Begins to count the content of a stream that has a reader. `bytes` have already arrived.
    pub(super) fn begin_content(&self, stream: u32, bytes: u64) {
        let mut unread = self.unread.borrow_mut();
        unread.streams.insert(stream, 0);
        unread.change(&self.context.memory, stream, |_| bytes);
    }

    /// Counts a piece of content that was handed to its reader.
    pub(super) fn on_content_read(&self, stream: u32, bytes: usize) {
        let piece = bytes as u64 + PIECE_BYTES;
        self.unread
            .borrow_mut()
            .change(&self.context.memory, stream, |unread| unread.saturating_sub(piece));
    }

    /// Notes that a stream's content has no reader any more: h2 discards what arrives.
    pub(super) fn end_content(&self, stream: u32) {
        let mut unread = self.unread.borrow_mut();
        // Most requests have no content.
        if unread.streams.is_empty() {
            return;
        }
        unread.change(&self.context.memory, stream, |_| 0);
        unread.streams.remove(&stream);
    }

    /// Returns the bytes of content that were received and not read.
    pub(super) fn unread(&self) -> u64 {
        self.unread.borrow().total
    }

    fn on_read(&self, bytes: &[u8]) {
        self.received.set(self.received.get() + bytes.len() as u64);
        let bytes = self.preface.borrow_mut().strip(bytes);
        self.inbound.borrow_mut().read(bytes, |event| self.on_inbound(event));
    }

    fn on_written(&self, bytes: &[u8]) {
        self.outbound.borrow_mut().read(bytes, |event| self.on_outbound(event));
    }

    /// Returns the priority of a request, as known so far. `field`: that of its `priority` field,
    /// if it has one.
    pub(super) fn priority(&self, stream: u32, field: Option<Priority>) -> Priority {
        self.signals.borrow().priority(stream, field)
    }

    /// Notes that the request on this stream has a `priority` field.
    pub(super) fn on_field(&self, stream: u32) {
        self.signals.borrow_mut().on_field(stream);
    }

    fn note_signal(&self, stream: u32, signal: Signal) {
        let latest = self.latest.get();
        let is_over = stream <= latest && !self.accepted.borrow().contains_key(&stream);
        // Signals count for requests only, whose streams have odd numbers.
        if is_over || stream.is_multiple_of(2) {
            return;
        }
        let stats = &self.context.stats;
        let most =
            usize::try_from(self.context.config.limits.concurrent_streams()).unwrap_or(usize::MAX);
        let is_update = matches!(signal, Signal::Update(_));
        if is_update && stream > latest && self.is_beyond_limit(stream, latest, most) {
            return self.fault.set(self.fault.get().or(Some(PROTOCOL_ERROR)));
        }
        if self.signals.borrow_mut().note(stream, signal, most) && is_update {
            stats.priority_updates_dropped.add(1);
        }
        match signal {
            Signal::Head(_) => {}
            Signal::Update(priority) => {
                stats.priority_updates.add(1);
                self.send_buffer.set_priority(stream, |_| priority);
            }
            Signal::Urgency(urgency) => {
                self.send_buffer.set_priority(stream, |priority| Priority { urgency, ..priority });
            }
        }
    }

    /// Whether an update for this idle stream exceeds the limit.
    fn is_beyond_limit(&self, stream: u32, latest: u32, most: usize) -> bool {
        //= RFC 9218 section 7.1
        //# The number of streams that have been prioritized but remain in the "idle" state plus the number of active streams (those in the
        //# "open" state or in either of the "half-closed" states; see Section 5.1.2 of [HTTP/2]) MUST NOT exceed the value of the
        //# SETTINGS_MAX_CONCURRENT_STREAMS parameter.  Servers that receive such a PRIORITY_UPDATE MUST respond with a connection error of type
        //# PROTOCOL_ERROR.
        let active = self.accepted.borrow().values().filter(|is_reset| !**is_reset).count();
        let signals = self.signals.borrow();
        !signals.is_updated(stream) && signals.updated_after(latest) + active >= most
    }

    /// Whether a reset of this stream cancels a request. Some clients answer each frame that still
    /// arrives on a stream with another reset, and others reset streams that have ended: neither
    /// causes work.
    fn takes_back(&self, stream: u32) -> bool {
        let known = self
            .accepted
            .borrow_mut()
            .get_mut(&stream)
            .map(|is_reset| !std::mem::replace(is_reset, true));
        known.unwrap_or_else(|| {
            // The stream arrived together with its reset, and was not handed over yet.
            let is_new = stream > self.latest.get();
            if is_new {
                self.accepted.borrow_mut().insert(stream, true);
                self.prune();
            }
            is_new
        })
    }

    fn on_inbound(&self, frame: &Frame<'_>) {
        if frame.complete
            && frame.kind == kind::PRIORITY_UPDATE
            && let Some(code) = fault_of_priority_update(frame)
        {
            return self.fault.set(self.fault.get().or(Some(code)));
        }
        if frame.complete
            && let Some((stream, signal)) = Signal::read(frame)
        {
            self.note_signal(stream, signal);
        }
        if frame.complete && frame.kind == kind::WINDOW_UPDATE && frame.stream == 0 {
            self.send_buffer.on_credit(frame.word(0));
        }
        let stats = &self.context.stats;
        let ends = |flag| frame.flags & flag != 0;
        match frame.kind {
            kind::HEADERS | kind::CONTINUATION if !frame.complete => {
                if frame.kind == kind::HEADERS {
                    self.head_frames.set(0);
                    self.activity.begin_head(self.context.handle.now(), 0);
                }
                self.head_frames.set(self.head_frames.get() + 1);
                if self.head_frames.get() > self.most_head_frames() {
                    self.flood(&stats.continuation_floods);
                }
            }
            // The head of any other frame. It counts when it is complete.
            _ if !frame.complete => {}
            kind::HEADERS | kind::CONTINUATION if ends(flags::END_HEADERS) => {
                self.activity.end_head();
            }
            kind::HEADERS | kind::CONTINUATION => {}
            kind::DATA if frame.length > 0 || ends(flags::END_STREAM) => {
                self.pay(frame.length);
                let padding = match frame.content(0).first() {
                    Some(padding) if ends(flags::PADDED) => 1 + usize::from(*padding),
                    _ => 0,
                };
                let piece = frame.length.saturating_sub(padding) as u64 + PIECE_BYTES;
                self.unread
                    .borrow_mut()
                    .change(&self.context.memory, frame.stream, |unread| unread + piece);
            }
            kind::RST_STREAM if self.takes_back(frame.stream) => {
                self.signals.borrow_mut().forget(frame.stream);
                if !self.resets.borrow_mut().take(self.context.handle.now()) {
                    self.flood(&stats.reset_floods);
                }
            }
            kind::WINDOW_UPDATE if frame.word(0) >= TINY_UPDATE => {}
            _ => {
                // The first SETTINGS frame ends the connection preface.
                if frame.kind == kind::SETTINGS && self.head_frames.get() == 0 {
                    self.activity.end_head();
                }
                if !self.control.borrow_mut().take(self.context.handle.now()) {
                    self.flood(&stats.control_frame_floods);
                }
            }
        }
    }

    fn on_outbound(&self, frame: &Frame<'_>) {
        if !frame.complete {
            return;
        }
        let stats = &self.context.stats;
        match frame.kind {
            kind::DATA => {
                self.pay(frame.length);
                self.send_buffer.on_written(frame.length);
            }
            kind::HEADERS if !self.accepted.borrow().contains_key(&frame.stream) => {
                stats.heads_too_large.add(1);
                stats.requests_refused.add(1);
            }
            kind::RST_STREAM if frame.word(0) == REFUSED_STREAM => stats.streams_refused.add(1),
            kind::RST_STREAM if frame.word(0) == FLOW_CONTROL_ERROR => {
                stats.stream_window_overruns.add(1);
            }
            kind::GOAWAY if frame.word(1) == ENHANCE_YOUR_CALM && self.fault().is_none() => {
                count_abuse(frame.content(8), stats);
            }
            kind::GOAWAY if frame.word(1) == FLOW_CONTROL_ERROR => {
                stats.connection_window_overruns.add(1);
            }
            _ => {}
        }
        let is_last = frame.kind == kind::RST_STREAM
            || (matches!(frame.kind, kind::DATA | kind::HEADERS)
                && frame.flags & flags::END_STREAM != 0);
        if is_last {
            self.accepted.borrow_mut().remove(&frame.stream);
            self.signals.borrow_mut().forget(frame.stream);
        }
    }

    fn pay(&self, bytes: usize) {
        self.control.borrow_mut().refund(bytes as f64 / BYTES_PER_CONTROL_FRAME);
    }

    /// Returns the allowed number of frames for a head: at least what a head of the allowed size
    /// needs, plus a quarter.
    fn most_head_frames(&self) -> u64 {
        const FRAME_BYTES: u64 = 16 << 10;
        let limits = &self.context.config.limits;
        limits.continuation_frames().max(limits.field_section_bytes() / FRAME_BYTES * 5 / 4 + 1)
    }

    fn flood(&self, counter: &Counter) {
        if self.fault.replace(Some(ENHANCE_YOUR_CALM)).is_none() {
            counter.add(1);
        }
    }
}

/// Checks PRIORITY_UPDATE frames, which h2 ignores.
fn fault_of_priority_update(frame: &Frame<'_>) -> Option<u32> {
    //= RFC 9218 section 7.1
    //# Receiving a PRIORITY_UPDATE frame with a field of any other value MUST be treated as a connection error of type PROTOCOL_ERROR.
    if frame.stream != 0 {
        return Some(PROTOCOL_ERROR);
    }
    // RFC 9113, section 4.2.
    if frame.length < 4 {
        return Some(FRAME_SIZE_ERROR);
    }
    //= RFC 9218 section 7.1
    //# If a PRIORITY_UPDATE frame is received with a Prioritized Stream ID of 0x0, the recipient MUST respond with a connection error of
    //# type PROTOCOL_ERROR.
    // And even numbers are pushed streams, of which none is ever promised.
    (frame.word(0) & 0x7fff_ffff).is_multiple_of(2).then_some(PROTOCOL_ERROR)
}

/// Counts why h2 has closed the connection, which only the debug data of its GOAWAY tells.
fn count_abuse(said: &[u8], stats: &Stats) {
    let counter = match said {
        b"too_many_resets" => &stats.reset_floods_before_accept,
        b"too_many_internal_resets" => &stats.stream_error_floods,
        b"too_many_data_frames" => &stats.control_frame_floods,
        b"too_many_continuations" => &stats.continuation_floods,
        b"header_list_way_too_large" => &stats.heads_too_large,
        _ => return,
    };
    counter.add(1);
}

/// A connection whose frames are watched.
///
/// h2 flushes after each large frame. Here that does nothing: the task that polls h2 calls
/// [`WatchedIo::poll_send`] when h2 has nothing more to write.
pub(crate) struct WatchedIo<T> {
    io: Rc<RefCell<T>>,
    watch: Rc<FrameWatch>,
}

impl<T> WatchedIo<T> {
    pub(crate) fn new(io: T, watch: Rc<FrameWatch>) -> Self {
        Self { io: Rc::new(RefCell::new(io)), watch }
    }

    /// Returns the connection, once h2 has been dropped.
    pub(crate) fn into_inner(self) -> Option<T> {
        Rc::into_inner(self.io).map(RefCell::into_inner)
    }
}

impl<T> Clone for WatchedIo<T> {
    fn clone(&self) -> Self {
        Self { io: self.io.clone(), watch: self.watch.clone() }
    }
}

impl<T: AsyncWrite + Unpin> WatchedIo<T> {
    /// Sends what h2 has written. h2 learns of a failure when it reads.
    pub(crate) fn poll_send(&self, cx: &mut TaskContext<'_>) {
        if let Poll::Ready(Err(error)) = Pin::new(&mut *self.io.borrow_mut()).poll_flush(cx)
            && self.watch.broken.replace(Some(error.kind())).is_none()
        {
            cx.waker().wake_by_ref();
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(broken) = self.watch.broken.get() {
            return Poll::Ready(Err(broken.into()));
        }
        // After a fault the connection's task checks after each poll, and its watchdog wakes it.
        // When drained, the socket wakes it.
        if self.watch.fault().is_some() || self.watch.drained.get() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut *self.io.borrow_mut()).poll_read(cx, buffer);
        self.watch.drained.set(read.is_pending());
        ready!(read)?;
        self.watch.on_read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WatchedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.watch.holds_back() {
            // The task that polls h2 polls it again.
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut *self.io.borrow_mut()).poll_write(cx, data))?;
        self.watch.on_written(&data[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.watch.holds_back() {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut *self.io.borrow_mut()).poll_write_vectored(cx, data))?;
        let mut left = written;
        for slice in data {
            let part = left.min(slice.len());
            self.watch.on_written(&slice[..part]);
            left -= part;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io.borrow_mut()).poll_shutdown(cx)
    }
}
