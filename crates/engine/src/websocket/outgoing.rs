//! What is sent: from frames to the body that a tunnel takes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use pronghorn_websocket::{CloseReason, Connection, Encoded, Event, Fragment, Message, Prepared};

use super::{Error, ProtocolError};
use crate::body::Cut;
use crate::stats::Stats;

/// Small frames that wait go together, up to this size.
const TOGETHER_BYTES: usize = 16 << 10;
/// Places of the queue that are kept when it is empty.
const KEPT_PLACES: usize = 4;

/// What a connection's reader, its senders and its body share.
pub(super) struct Shared {
    pub(super) connection: Connection,
    /// Frames of messages.
    queue: VecDeque<Encoded>,
    /// Whole messages that wait for the last part of one that is sent in parts.
    held: Vec<Held>,
    /// Bytes of both, and of these alone.
    queued_bytes: usize,
    held_bytes: usize,
    /// Bytes that the connection below has taken.
    gone_bytes: u64,
    backlog_bytes: usize,
    end: End,
    /// This side has ended the connection without a word.
    is_aborted: bool,
    /// Ends the body also while nobody asks it for more.
    cut: Cut,
    body: Option<Waker>,
    /// Who waits for messages of the peer.
    reader: Option<Waker>,
    /// Who waits until few enough bytes do.
    senders: Vec<Waiting>,
    /// Waits that may be given up, so far.
    waits: u64,
    stats: Option<Arc<Stats>>,
}

/// A task that waits until no more than `bytes` wait.
struct Waiting {
    bytes: usize,
    /// Of what can be sent now, leaving out what is held for the rest of a message, which the task itself may have.
    sendable: bool,
    /// Of its [`Wait`], if it has one.
    number: Option<u64>,
    waker: Waker,
}

/// A wait of a task's, which leaves nothing behind when it is given up.
pub(super) struct Wait<'a> {
    shared: &'a RefCell<Shared>,
    number: u64,
}

impl<'a> Wait<'a> {
    pub(super) fn new(shared: &'a RefCell<Shared>) -> Self {
        let mut state = shared.borrow_mut();
        state.waits += 1;
        Self { shared, number: state.waits }
    }

    pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_ready(Some(self.number), cx)
    }

    pub(super) fn poll_drained(&self, bytes: usize, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_drained(bytes, Some(self.number), cx)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        let place = shared.senders.iter().position(|waiting| waiting.number == Some(self.number));
        let left = place.map(|place| shared.senders.swap_remove(place));
        // Dropped when nothing is borrowed: it may be the last of its task.
        drop(shared);
        drop(left);
    }
}

/// A message that cannot be encoded yet.
enum Held {
    Message(Message, bool),
    Prepared(Prepared),
}

impl Held {
    fn len(&self) -> usize {
        let message = match self {
            Self::Message(message, _) => message,
            Self::Prepared(prepared) => prepared.message(),
        };
        // With the head that it will have at least: empty messages are not held without end either.
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
    /// When the closing handshake is over.
    No,
    /// When the close frame is sent.
    Ending,
    /// Now, and not as if it were complete.
    Aborting,
    /// Nobody takes anything any more.
    Gone,
}

impl Shared {
    pub(super) fn new(connection: Connection, backlog_bytes: u64, cut: Cut, stats: Option<Arc<Stats>>) -> Self {
        Self {
            connection,
            queue: VecDeque::new(),
            held: Vec::new(),
            queued_bytes: 0,
            held_bytes: 0,
            gone_bytes: 0,
            backlog_bytes: usize::try_from(backlog_bytes).unwrap_or(usize::MAX).max(1),
            end: End::No,
            is_aborted: false,
            cut,
            body: None,
            reader: None,
            senders: Vec::new(),
            waits: 0,
            stats,
        }
    }

    /// Changes something that the body may have to act on.
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

    /// Queues a message, behind one that is sent in parts.
    pub(super) fn push(&mut self, message: &Message, compress: bool) -> Result<usize, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if self.connection.is_in_message() {
            return Ok(self.hold(Held::Message(message.clone(), compress)));
        }
        let encoded = self.connection.encode_compressed(message, compress);
        self.queue(encoded)
    }

    pub(super) fn push_prepared(&mut self, prepared: &Prepared) -> Result<usize, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if self.connection.is_in_message() {
            return Ok(self.hold(Held::Prepared(prepared.clone())));
        }
        let encoded = self.connection.encode_prepared(prepared);
        self.queue(encoded)
    }

    pub(super) fn push_fragment(&mut self, fragment: Fragment, data: Bytes) -> Result<usize, Error> {
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

    /// Queues a ping, which may go in the middle of a message.
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

    fn hold(&mut self, held: Held) -> usize {
        self.queued_bytes += held.len();
        self.held_bytes += held.len();
        self.held.push(held);
        self.queued_bytes
    }

    pub(super) fn poll_ready(&mut self, wait: Option<u64>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_closed() {
            return Poll::Ready(Err(Error::Closed));
        }
        if self.queued_bytes < self.backlog_bytes {
            return Poll::Ready(Ok(()));
        }
        // Not for each frame that goes: when half is free, all who wait are woken.
        if self.wait(self.backlog_bytes / 2, false, wait, cx)
            && let Some(stats) = &self.stats
        {
            stats.websocket_senders_held_back.add(1);
        }
        Poll::Pending
    }

    /// Ready when no more than `bytes` wait of what can be sent now.
    pub(super) fn poll_drained(&mut self, bytes: usize, wait: Option<u64>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if matches!(self.end, End::Aborting | End::Gone) {
            return Poll::Ready(Err(Error::Closed));
        }
        if self.sendable_bytes() <= bytes {
            return Poll::Ready(Ok(()));
        }
        self.wait(bytes, true, wait, cx);
        Poll::Pending
    }

    /// Wakes the task when no more than `bytes` wait. Whether it did not wait for that already.
    fn wait(&mut self, bytes: usize, sendable: bool, number: Option<u64>, cx: &Context<'_>) -> bool {
        let is_it = |waiting: &&mut Waiting| match number {
            Some(_) => waiting.number == number,
            None => {
                waiting.number.is_none() && (waiting.bytes, waiting.sendable) == (bytes, sendable) && waiting.waker.will_wake(cx.waker())
            }
        };
        if let Some(waiting) = self.senders.iter_mut().find(is_it) {
            waiting.waker.clone_from(cx.waker());
            return false;
        }
        self.senders.push(Waiting { bytes, sendable, number, waker: cx.waker().clone() });
        true
    }

    /// Wakes the task when this side closes or ends the connection.
    pub(super) fn watch(&mut self, cx: &Context<'_>) {
        if self.reader.as_ref().is_none_or(|reader| !reader.will_wake(cx.waker())) {
            self.reader = Some(cx.waker().clone());
        }
    }

    pub(super) fn sendable_bytes(&self) -> usize {
        self.queued_bytes - self.held_bytes
    }

    pub(super) fn gone_bytes(&self) -> u64 {
        self.gone_bytes
    }

    pub(super) fn buffered(&self) -> usize {
        self.queued_bytes
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end != End::No || self.connection.is_closing()
    }

    /// Whether the connection below has taken all, the close frame too.
    pub(super) fn has_said_all(&self) -> bool {
        self.connection.is_closing() && !self.connection.wants_control() && self.queue.is_empty()
    }

    /// Whether this side has ended the connection without a word.
    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    /// Begins the closing handshake. What waits for the rest of a message will never be sent.
    pub(super) fn close(&mut self, reason: Option<CloseReason>) {
        self.connection.close(reason);
        self.on_closing();
        // The time that the peer has to answer begins.
        wake(self.reader.take());
    }

    fn on_closing(&mut self) {
        if self.connection.is_closing() {
            self.held = Vec::new();
            self.queued_bytes -= std::mem::take(&mut self.held_bytes);
            // Who waits to send hears that it is too late.
            self.wake_senders();
        }
    }

    /// Ends what is sent after the close frame, whatever the peer says.
    pub(super) fn end(&mut self) {
        if self.end == End::No {
            self.end = End::Ending;
        }
        self.wake_senders();
    }

    /// Ends what is sent in the middle.
    pub(super) fn abort(&mut self) {
        self.is_aborted = true;
        if self.end != End::Gone {
            self.end = End::Aborting;
        }
        self.forget();
        self.cut.cut();
        self.wake_senders();
        wake(self.reader.take());
    }

    /// Nothing of what waits will be sent.
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
        let has_come = |waiting: &mut Waiting| if waiting.sendable { sendable } else { queued } <= waiting.bytes;
        for waiting in self.senders.extract_if(.., has_come) {
            waiting.waker.wake();
        }
    }

    /// The next bytes to send: whole frames, or one that is large.
    fn next(&mut self) -> Option<Bytes> {
        let first = self.next_piece()?;
        let more = self.queue.front().map_or(0, Encoded::len);
        if more == 0 || first.len() + more > TOGETHER_BYTES {
            return Some(first);
        }
        let mut together = BytesMut::with_capacity(TOGETHER_BYTES.min(first.len() + self.queued_bytes));
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
        // Answers and questions go first; a close goes last.
        if is_between
            && (self.queue.is_empty() || !self.connection.is_closing())
            && let Some(control) = self.connection.poll_control()
        {
            return Some(control);
        }
        let front = self.queue.front_mut()?;
        let piece = if front.first.is_empty() { std::mem::take(&mut front.rest) } else { std::mem::take(&mut front.first) };
        if front.is_empty() {
            self.queue.pop_front();
            if self.queue.is_empty() && self.queue.capacity() > KEPT_PLACES {
                self.queue = VecDeque::new();
            }
        }
        self.queued_bytes -= piece.len();
        self.gone_bytes += piece.len() as u64;
        self.wake_drained();
        Some(piece)
    }
}

/// The body of what is sent.
pub(super) struct Outgoing {
    shared: Rc<RefCell<Shared>>,
}

impl Outgoing {
    pub(super) fn new(shared: Rc<RefCell<Shared>>) -> Self {
        Self { shared }
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut shared = self.shared.borrow_mut();
        if shared.end == End::Aborting {
            return Poll::Ready(Some(Err(Error::Aborted)));
        }
        if let Some(bytes) = shared.next() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if shared.connection.is_over() || shared.end == End::Ending {
            return Poll::Ready(None);
        }
        shared.body = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.end = End::Gone;
        shared.forget();
        shared.wake_senders();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
