//! The sending half of a WebSocket connection.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use pronghorn_websocket::{CloseReason, Fragment, Message, Prepared};

use super::error::Error;
use super::outgoing::{SendState, Wait};

/// Sends messages over a [`WebSocket`](super::WebSocket). Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    pub(super) shared: Rc<RefCell<SendState>>,
}

impl Sender {
    /// Sends a message once fewer than [`crate::Limits::websocket_backlog_bytes`] bytes are queued.
    /// A peer that does not read thereby holds back the sender.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing was sent.
    pub async fn send(&self, message: &Message) -> Result<(), Error> {
        let wait = Wait::new(&self.shared);
        poll_fn(|cx| wait.poll_ready(cx)).await?;
        self.push(message).map(drop)
    }

    /// Ready when a message may be pushed. The task's waker stays registered until then, even if
    /// the task stops waiting.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_ready(None, cx)
    }

    /// Queues a message without waiting, and returns the number of queued bytes. The caller must
    /// stop pushing by itself when that is too many.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push(&self, message: &Message) -> Result<usize, Error> {
        self.push_compressed(message, true)
    }

    /// Queues a message like [`Sender::push`]. `compress` says whether to compress it, if both
    /// sides agreed on compression.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push_compressed(&self, message: &Message, compress: bool) -> Result<usize, Error> {
        SendState::change(&self.shared, |shared| shared.push(message, compress))
    }

    /// Queues a message that goes to several peers, encoded once for all of them.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push_prepared(&self, prepared: &Prepared) -> Result<usize, Error> {
        SendState::change(&self.shared, |shared| shared.push_prepared(prepared))
    }

    /// Queues a fragment of a message, which the peer's application receives as a whole. The peer's
    /// pings are answered between fragments. Other messages pushed meanwhile stay queued, and are
    /// counted, until the last fragment is pushed.
    ///
    /// Text may be cut anywhere, even within a character.
    ///
    /// # Errors
    ///
    /// When the connection is closed, or with [`Error::Fragment`] when this fragment is out of
    /// order, or not UTF-8 together with those before it.
    pub fn push_fragment(
        &self,
        fragment: Fragment,
        data: impl Into<Bytes>,
    ) -> Result<usize, Error> {
        SendState::change(&self.shared, |shared| shared.push_fragment(fragment, data.into()))
    }

    /// Waits until at most `bytes` are queued. Messages held back behind a fragmented one do not
    /// count, so the task that sends the fragments can wait here before each of them.
    ///
    /// # Errors
    ///
    /// When the connection has ended, so that the queued bytes will never be sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn drained(&self, bytes: usize) -> Result<(), Error> {
        let wait = Wait::new(&self.shared);
        poll_fn(|cx| wait.poll_drained(bytes, cx)).await
    }

    /// Ready when at most `bytes` are queued, as with [`Sender::drained`]. The task's waker stays
    /// registered until then, even if the task stops waiting.
    ///
    /// # Errors
    ///
    /// Those of [`Sender::drained`].
    pub fn poll_drained(&self, bytes: usize, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_drained(bytes, None, cx)
    }

    /// Queues a ping behind all pushed messages. Its payload has at most 125 bytes, which the
    /// peer's pong repeats. It counts towards the queued bytes.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push_ping(&self, data: &[u8]) -> Result<usize, Error> {
        SendState::change(&self.shared, |shared| shared.push_ping(data))
    }

    /// Sends a ping ahead of queued messages. Its payload has at most 125 bytes, which the peer's
    /// pong repeats. Of several pings that have not left yet, only the last is sent.
    pub fn ping(&self, data: &[u8]) {
        SendState::change(&self.shared, |shared| shared.connection.ping(data));
    }

    /// Closes the connection once everything sent before has left. Only the first call sets the
    /// reason.
    pub fn close(&self, reason: impl Into<Option<CloseReason>>) {
        let reason = reason.into();
        SendState::change(&self.shared, |shared| shared.close(reason));
    }

    /// Ends the connection at once, without a close frame. Queued messages are dropped, and the
    /// receiver gets [`Error::Aborted`].
    pub fn abort(&self) {
        SendState::change(&self.shared, SendState::abort);
    }

    /// Returns the number of queued bytes, which the underlying connection has not accepted yet.
    pub fn buffered_amount(&self) -> usize {
        self.shared.borrow().buffered()
    }

    /// Returns the number of queued bytes without messages held back behind a fragmented one.
    pub fn sendable_amount(&self) -> usize {
        self.shared.borrow().sendable_bytes()
    }

    /// Whether nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.shared.borrow().is_closed()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("buffered_amount", &self.buffered_amount())
            .finish_non_exhaustive()
    }
}
