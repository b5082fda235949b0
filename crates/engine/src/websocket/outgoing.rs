//! What is sent: from frames to the body that a tunnel takes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use pronghorn_websocket::{Connection, Encoded, Event};

use super::{Error, ProtocolError};
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
    queued_bytes: usize,
    backlog_bytes: usize,
    end: End,
    body: Option<Waker>,
    senders: Vec<Waker>,
    stats: Option<Arc<Stats>>,
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
    pub(super) fn new(connection: Connection, backlog_bytes: u64, stats: Option<Arc<Stats>>) -> Self {
        Self {
            connection,
            queue: VecDeque::new(),
            queued_bytes: 0,
            backlog_bytes: usize::try_from(backlog_bytes).unwrap_or(usize::MAX).max(1),
            end: End::No,
            body: None,
            senders: Vec::new(),
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
            wake(self.body.take());
        }
        read
    }

    pub(super) fn push(&mut self, encode: impl FnOnce(&mut Connection) -> Option<Encoded>) -> Result<usize, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let encoded = encode(&mut self.connection).ok_or(Error::Closed)?;
        self.queued_bytes += encoded.len();
        self.queue.push_back(encoded);
        Ok(self.queued_bytes)
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_closed() {
            return Poll::Ready(Err(Error::Closed));
        }
        if self.queued_bytes < self.backlog_bytes {
            return Poll::Ready(Ok(()));
        }
        if !self.senders.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.senders.push(cx.waker().clone());
            if let Some(stats) = &self.stats {
                stats.websocket_senders_held_back.add(1);
            }
        }
        Poll::Pending
    }

    pub(super) fn buffered(&self) -> usize {
        self.queued_bytes
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end != End::No || self.connection.is_closing()
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
        if self.end != End::Gone {
            self.end = End::Aborting;
        }
        self.wake_senders();
    }

    fn wake_senders(&mut self) {
        std::mem::take(&mut self.senders).into_iter().for_each(Waker::wake);
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
        // Not for each frame that goes: when half is free, all who wait are woken.
        if self.queued_bytes <= self.backlog_bytes / 2 {
            self.wake_senders();
        }
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
        shared.queue = VecDeque::new();
        shared.queued_bytes = 0;
        shared.wake_senders();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
