//! What sends.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use pronghorn_websocket::{CloseReason, Fragment, Message, Prepared};

use super::Error;
use super::outgoing::{Shared, Wait};

/// Sends over a [`WebSocket`](super::WebSocket). Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    pub(super) shared: Rc<RefCell<Shared>>,
}

impl Sender {
    /// Sends a message, once what waits before it is less than [`crate::Limits::websocket_backlog_bytes`]: a peer that does not read holds
    /// the sender back.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before it is ready has sent nothing.
    pub async fn send(&self, message: &Message) -> Result<(), Error> {
        let wait = Wait::new(&self.shared);
        poll_fn(|cx| wait.poll_ready(cx)).await?;
        self.push(message).map(drop)
    }

    /// Ready when a message may be pushed. The task is remembered until then, also if it gives up.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_ready(None, cx)
    }

    /// Sends a message without waiting, and returns the bytes that now wait to be taken by the peer. Whoever uses it has to stop by itself
    /// when these are too many.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push(&self, message: &Message) -> Result<usize, Error> {
        self.push_compressed(message, true)
    }

    /// The same; `compress` says whether it is worth that, where both sides agreed on it.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push_compressed(&self, message: &Message, compress: bool) -> Result<usize, Error> {
        Shared::change(&self.shared, |shared| shared.push(message, compress))
    }

    /// The same for a message that goes to many, which is encoded once for all of them.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push_prepared(&self, prepared: &Prepared) -> Result<usize, Error> {
        Shared::change(&self.shared, |shared| shared.push_prepared(prepared))
    }

    /// The same for one part of a message, which its receiver gets as a whole. The peer's pings are answered between the parts; other
    /// messages that are pushed meanwhile wait, counted, until the last part is.
    ///
    /// Text may be cut anywhere, also within a character.
    ///
    /// # Errors
    ///
    /// When the connection is closed, or with [`Error::Fragment`] when this part may not come now, or is not UTF-8 with what came before it.
    pub fn push_fragment(&self, fragment: Fragment, data: impl Into<Bytes>) -> Result<usize, Error> {
        Shared::change(&self.shared, |shared| shared.push_fragment(fragment, data.into()))
    }

    /// Waits until no more than `bytes` wait to be taken by the connection below. Messages that wait for the last part of another do not
    /// count: whoever sends the parts may wait with this before each.
    ///
    /// # Errors
    ///
    /// When the connection ended before, so that they will never be taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn drained(&self, bytes: usize) -> Result<(), Error> {
        let wait = Wait::new(&self.shared);
        poll_fn(|cx| wait.poll_drained(bytes, cx)).await
    }

    /// Ready when no more than `bytes` wait to be taken by the connection below, as with [`Sender::drained`]. The task is remembered until then, also if it gives up.
    ///
    /// # Errors
    ///
    /// Those of [`Sender::drained`].
    pub fn poll_drained(&self, bytes: usize, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.borrow_mut().poll_drained(bytes, None, cx)
    }

    /// Sends a ping with at most 125 bytes, which the peer's answer will have, behind what was pushed before it. It counts as a message does.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    pub fn push_ping(&self, data: &[u8]) -> Result<usize, Error> {
        Shared::change(&self.shared, |shared| shared.push_ping(data))
    }

    /// Asks whether the peer is there, with at most 125 bytes that its answer will have. Of questions that have not left yet only the last
    /// is asked.
    pub fn ping(&self, data: &[u8]) {
        Shared::change(&self.shared, |shared| shared.connection.ping(data));
    }

    /// Closes the connection, once what was sent before is gone. Only the first call says why.
    pub fn close(&self, reason: impl Into<Option<CloseReason>>) {
        let reason = reason.into();
        Shared::change(&self.shared, |shared| shared.close(reason));
    }

    /// Ends the connection now, without a word: what waits is not sent, and the reader is told.
    pub fn abort(&self) {
        Shared::change(&self.shared, Shared::abort);
    }

    /// Bytes of messages that wait to be taken by the connection below.
    pub fn buffered_amount(&self) -> usize {
        self.shared.borrow().buffered()
    }

    /// The same without messages that wait for the last part of another.
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
        f.debug_struct("Sender").field("buffered_amount", &self.buffered_amount()).finish_non_exhaustive()
    }
}
