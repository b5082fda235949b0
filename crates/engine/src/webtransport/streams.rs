//! The sending and receiving side of a session's streams.

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;

use crate::http3::{SessionStream, SessionStreamError};

/// The sending side of a stream. Dropping it before [`SendStream::finish`] resets the stream with
/// code 0.
pub struct SendStream(Rc<SessionStream>);

impl SendStream {
    pub(super) fn new(stream: Rc<SessionStream>) -> Self {
        Self(stream)
    }

    /// Sends `data`, after waiting until the stream's send buffer has space.
    ///
    /// # Errors
    ///
    /// When the peer has stopped the stream, or the stream or its session has ended.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing was sent.
    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<(), SessionStreamError> {
        poll_fn(|cx| self.0.poll_capacity(cx)).await?;
        self.0.write(data.into())
    }

    /// Ends the stream after the data written so far.
    pub fn finish(self) {
        self.0.finish();
    }

    /// Resets the stream with an application error code. Data that has not left yet is dropped.
    ///
    /// If the stream was opened just before, the peer may never learn of it.
    pub fn reset(self, code: u32) {
        self.0.reset(code);
    }

    /// Waits until the peer accepts no more data, and returns the reason.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn stopped(&mut self) -> SessionStreamError {
        poll_fn(|cx| self.0.poll_stopped(cx)).await
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        // No effect after `finish`.
        self.0.reset(0);
    }
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream").finish_non_exhaustive()
    }
}

/// The receiving side of a stream. Dropping it before its end asks the peer to stop sending, with
/// code 0.
pub struct RecvStream(Rc<SessionStream>);

impl RecvStream {
    pub(super) fn new(stream: Rc<SessionStream>) -> Self {
        Self(stream)
    }

    /// Receives the next piece of data; `None` at the end of the stream. Unread data holds back the
    /// peer.
    ///
    /// # Errors
    ///
    /// When the peer has reset the stream, or its session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn read(&mut self) -> Result<Option<Bytes>, SessionStreamError> {
        poll_fn(|cx| self.0.poll_read(cx)).await
    }

    /// Asks the peer to stop sending, with an application error code.
    pub fn stop(self, code: u32) {
        self.0.stop(code);
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        // No effect after the stream's end or `stop`.
        self.0.stop(0);
    }
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream").finish_non_exhaustive()
    }
}
