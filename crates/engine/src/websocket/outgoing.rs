//! The send path: from frames to the body of the tunnel.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use pronghorn_websocket::{CloseReason, Connection, Encoded, Event, Fragment, Message, Prepared};

use super::ProtocolError;
use super::error::Error;
use crate::body::AbortHandle;
use crate::stats::Stats;

/// Small queued frames are joined up to this size.
const TOGETHER_BYTES: usize = 16 << 10;
/// Capacity that an empty queue keeps.
const KEPT_PLACES: usize = 4;

/// State shared by a connection's reader, its senders and its body.
pub(super) struct SendState {
    pub(super) connection: Connection,
    /// Frames of messages.
    queue: VecDeque<Encoded>,
    /// Whole messages that wait for the last fragment of another message.
    held: Vec<HeldBack>,
    /// Bytes of `queue` and `held` together, and of `held` alone.
    queued_bytes: usize,
    held_bytes: usize,
    /// Bytes that the underlying connection has accepted.
    sent_bytes: u64,
    backlog_bytes: usize,
    end: End,
    /// This side has ended the connection without a close frame.
    is_aborted: bool,
    /// Ends the body even while it is not being polled.
    cut: AbortHandle,
    body: Option<Waker>,
    /// The task that receives messages.
    reader: Option<Waker>,
    /// Tasks that wait for the queue to shrink.
    senders: Vec<WaitingSender>,
    /// Number of [`Wait`]s created so far.
    waits: u64,
    stats: Option<Arc<Stats>>,
}

/// A task that waits until at most `bytes` are queued.
struct WaitingSender {
    bytes: usize,
    /// Count only bytes that can be sent now, not messages held back behind a fragmented one: the
    /// task itself may have its last fragment.
    sendable: bool,
    /// Number of the task's [`Wait`], if it has one.
    number: Option<u64>,
    waker: Waker,
}

/// A task's wait, deregistered when dropped.
pub(super) struct Wait<'a> {
    shared: &'a RefCell<SendState>,
    number: u64,
}

impl<'a> Wait<'a> {
    pub(super) fn new(shared: &'a RefCell<SendState>) -> Self {
        let mut state = shared.borrow_mut();
        state.waits += 1;
        Self { shared, number: state.waits }
    }

    pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_ready(Some(self.number), cx)
    }

    pub(super) fn poll_drained(
        &self,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_drained(bytes, Some(self.number), cx)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        let place = shared.senders.iter().position(|waiting| waiting.number == Some(self.number));
        let left = place.map(|place| shared.senders.swap_remove(place));
        // Dropped outside of the borrow: this may be the task's last waker.
        drop(shared);
        drop(left);
    }
}

/// A message that cannot be encoded until a fragmented one is complete.
enum HeldBack {
    Message(Message, bool),
    Prepared(Prepared),
}

impl HeldBack {
    fn len(&self) -> usize {
        let message = match self {
            Self::Message(message, _) => message,
            Self::Prepared(prepared) => prepared.message(),
        };
        // Includes the smallest frame header, so that empty messages count against the limit too.
        message.data().len() + 2
    }

    fn encode(&self, connection: &mut Connection) -> Option<Encoded> {
        match self {
            Self::Message(message, compress) => connection.encode_compressed(message, *compress),
            Self::Prepared(prepared) => connection.encode_prepared(prepared),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The body ends when the closing handshake is over.
    Open,
    /// The body ends after the close frame.
    AfterClose,
    /// The body fails at once, so that the peer sees an incomplete stream.
    Aborting,
    /// The tunnel has dropped the body.
    Dropped,
}

impl SendState {
    pub(super) fn new(
        connection: Connection,
        backlog_bytes: u64,
        cut: AbortHandle,
        stats: Option<Arc<Stats>>,
    ) -> Self {
        Self {
            connection,
            queue: VecDeque::new(),
            held: Vec::new(),
            queued_bytes: 0,
            held_bytes: 0,
            sent_bytes: 0,
            backlog_bytes: usize::try_from(backlog_bytes).unwrap_or(usize::MAX).max(1),
            end: End::Open,
            is_aborted: false,
            cut,
            body: None,
            reader: None,
            senders: Vec::new(),
            waits: 0,
            stats,
        }
    }

    /// Applies a change that the body may have to act on, and wakes the body.
    pub(super) fn change<T>(shared: &RefCell<Self>, change: impl FnOnce(&mut Self) -> T) -> T {
        let mut state = shared.borrow_mut();
        let result = change(&mut state);
        let body = state.body.take();
        drop(state);
        wake(body);
        result
    }

    pub(super) fn read(&mut self, input: &mut Bytes) -> Result<Option<Event>, ProtocolError> {
        let read = self.connection.read(input);
        if self.connection.wants_control() || read.is_err() {
            self.on_closing();
            wake(self.body.take());
        }
        read
    }

    /// Queues a message, behind the one that is being sent in fragments.
    pub(super) fn push(&mut self, message: &Message, compress: bool) -> Result<usize, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if self.connection.is_in_message() {
            return Ok(self.hold(HeldBack::Message(message.clone(), compress)));
        }
        let encoded = self.connection.encode_compressed(message, compress);
        self.queue(encoded)
    }

    pub(super) fn push_prepared(&mut self, prepared: &Prepared) -> Result<usize, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if self.connection.is_in_message() {
            return Ok(self.hold(HeldBack::Prepared(prepared.clone())));
        }
        let encoded = self.connection.encode_prepared(prepared);
        self.queue(encoded)
    }

    pub(super) fn push_fragment(
        &mut self,
        fragment: Fragment,
        data: Bytes,
    ) -> Result<usize, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let encoded = self.connection.encode_fragment(fragment, data)?;
        self.queue(encoded)?;
        if fragment == Fragment::Last {
            self.held_bytes = 0;
            for held in std::mem::take(&mut self.held) {
                self.queued_bytes -= held.len();
                let encoded = held.encode(&mut self.connection);
                self.queue(encoded)?;
            }
        }
        Ok(self.queued_bytes)
    }

    /// Queues a ping, which may go between the fragments of a message.
    pub(super) fn push_ping(&mut self, data: &[u8]) -> Result<usize, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let encoded = self.connection.encode_ping(data);
        self.queue(encoded)
    }

    fn queue(&mut self, encoded: Option<Encoded>) -> Result<usize, Error> {
        let encoded = encoded.ok_or(Error::Closed)?;
        self.queued_bytes += encoded.len();
        self.queue.push_back(encoded);
        Ok(self.queued_bytes)
    }

    fn hold(&mut self, held: HeldBack) -> usize {
        self.queued_bytes += held.len();
        self.held_bytes += held.len();
        self.held.push(held);
        self.queued_bytes
    }

    pub(super) fn poll_ready(
        &mut self,
        wait: Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.is_closed() {
            return Poll::Ready(Err(Error::Closed));
        }
        if self.queued_bytes < self.backlog_bytes {
            return Poll::Ready(Ok(()));
        }
        // Senders are not woken for each frame that leaves, but all together when half of the queue
        // is free.
        if self.wait(self.backlog_bytes / 2, false, wait, cx)
            && let Some(stats) = &self.stats
        {
            stats.websocket_senders_held_back.add(1);
        }
        Poll::Pending
    }

    /// Ready when at most `bytes` that can be sent now are queued.
    pub(super) fn poll_drained(
        &mut self,
        bytes: usize,
        wait: Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if matches!(self.end, End::Aborting | End::Dropped) {
            return Poll::Ready(Err(Error::Closed));
        }
        if self.sendable_bytes() <= bytes {
            return Poll::Ready(Ok(()));
        }
        self.wait(bytes, true, wait, cx);
        Poll::Pending
    }

    /// Wakes the task when at most `bytes` are queued. Returns whether this is a new wait.
    fn wait(
        &mut self,
        bytes: usize,
        sendable: bool,
        number: Option<u64>,
        cx: &Context<'_>,
    ) -> bool {
        let is_it = |waiting: &&mut WaitingSender| match number {
            Some(_) => waiting.number == number,
            None => {
                waiting.number.is_none()
                    && (waiting.bytes, waiting.sendable) == (bytes, sendable)
                    && waiting.waker.will_wake(cx.waker())
            }
        };
        if let Some(waiting) = self.senders.iter_mut().find(is_it) {
            waiting.waker.clone_from(cx.waker());
            return false;
        }
        self.senders.push(WaitingSender { bytes, sendable, number, waker: cx.waker().clone() });
        true
    }

    /// Wakes the task when this side closes or aborts the connection.
    pub(super) fn watch(&mut self, cx: &Context<'_>) {
        if self.reader.as_ref().is_none_or(|reader| !reader.will_wake(cx.waker())) {
            self.reader = Some(cx.waker().clone());
        }
    }

    pub(super) fn sendable_bytes(&self) -> usize {
        self.queued_bytes - self.held_bytes
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(super) fn buffered(&self) -> usize {
        self.queued_bytes
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end != End::Open || self.connection.is_closing()
    }

    /// Whether the underlying connection has accepted everything, the close frame included.
    pub(super) fn has_sent_all(&self) -> bool {
        self.connection.is_closing() && !self.connection.wants_control() && self.queue.is_empty()
    }

    /// Whether this side has ended the connection without a close frame.
    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// Begins the closing handshake. Messages held back behind a fragmented one are dropped.
    pub(super) fn close(&mut self, reason: Option<CloseReason>) {
        self.connection.close(reason);
        self.on_closing();
        // The peer's time to answer starts now.
        wake(self.reader.take());
    }

    fn on_closing(&mut self) {
        if self.connection.is_closing() {
            self.held = Vec::new();
            self.queued_bytes -= std::mem::take(&mut self.held_bytes);
            // Waiting senders get an error.
            self.wake_senders();
        }
    }

    /// Ends the body after the close frame, without waiting for the peer's.
    pub(super) fn end(&mut self) {
        if self.end == End::Open {
            self.end = End::AfterClose;
        }
        self.wake_senders();
    }

    /// Ends the body in the middle.
    pub(super) fn abort(&mut self) {
        self.is_aborted = true;
        if self.end != End::Dropped {
            self.end = End::Aborting;
        }
        self.forget();
        self.cut.abort();
        self.wake_senders();
        wake(self.reader.take());
    }

    /// Drops everything queued.
    fn forget(&mut self) {
        (self.queue, self.held) = (VecDeque::new(), Vec::new());
        (self.queued_bytes, self.held_bytes) = (0, 0);
    }

    fn wake_senders(&mut self) {
        for waiting in std::mem::take(&mut self.senders) {
            waiting.waker.wake();
        }
    }

    fn wake_drained(&mut self) {
        let (queued, sendable) = (self.queued_bytes, self.sendable_bytes());
        let has_come = |waiting: &mut WaitingSender| if waiting.sendable { sendable } else { queued } <= waiting.bytes;
        for waiting in self.senders.extract_if(.., has_come) {
            waiting.waker.wake();
        }
    }

    /// Returns the next bytes to send: whole frames, or a piece of a large one.
    fn next(&mut self) -> Option<Bytes> {
        let first = self.next_piece()?;
        let more = self.queue.front().map_or(0, Encoded::len);
        if more == 0 || first.len() + more > TOGETHER_BYTES {
            return Some(first);
        }
        let mut together =
            BytesMut::with_capacity(TOGETHER_BYTES.min(first.len() + self.queued_bytes));
        together.extend_from_slice(&first);
        while self.queue.front().is_some_and(|next| together.len() + next.len() <= TOGETHER_BYTES)
            && let Some(piece) = self.next_piece()
        {
            together.extend_from_slice(&piece);
        }
        Some(together.freeze())
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        let is_between = self.queue.front().is_none_or(|next| !next.first.is_empty());
        // Pings and pongs go first, a close goes last.
        if is_between
            && (self.queue.is_empty() || !self.connection.is_closing())
            && let Some(control) = self.connection.poll_control()
        {
            return Some(control);
        }
        let front = self.queue.front_mut()?;
        let piece = if front.first.is_empty() {
            std::mem::take(&mut front.rest)
        } else {
            std::mem::take(&mut front.first)
        };
        if front.is_empty() {
            self.queue.pop_front();
            if self.queue.is_empty() && self.queue.capacity() > KEPT_PLACES {
                self.queue = VecDeque::new();
            }
        }
        self.queued_bytes -= piece.len();
        self.sent_bytes += piece.len() as u64;
        self.wake_drained();
        Some(piece)
    }
}

/// The tunnel's outgoing body.
pub(super) struct Outgoing {
    shared: Rc<RefCell<SendState>>,
}

impl Outgoing {
    pub(super) fn new(shared: Rc<RefCell<SendState>>) -> Self {
        Self { shared }
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut shared = self.shared.borrow_mut();
        if shared.end == End::Aborting {
            return Poll::Ready(Some(Err(Error::Aborted)));
        }
        if let Some(bytes) = shared.next() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if shared.connection.is_over() || shared.end == End::AfterClose {
            return Poll::Ready(None);
        }
        shared.body = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.end = End::Dropped;
        shared.forget();
        shared.wake_senders();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
