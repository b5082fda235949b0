//! The two directions of a session's streams.

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;

use crate::http3::{SessionStream, SessionStreamError};

/// What this side sends on a stream. Dropped before [`SendStream::finish`], it resets the stream with code 0.
pub struct SendStream(Rc<SessionStream>);

impl SendStream {
    pub(super) fn new(stream: Rc<SessionStream>) -> Self {
        Self(stream)
    }

    /// Sends `data`, when what was written before has left as far as that it is little.
    ///
    /// # Errors
    ///
    /// When the peer has stopped the stream, or it or its session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready sends nothing.
    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<(), SessionStreamError> {
        poll_fn(|cx| self.0.poll_capacity(cx)).await?;
        self.0.write(data.into())
    }

    /// Ends the stream after what was written.
    pub fn finish(self) {
        self.0.finish();
    }

    /// Ends the stream here: what has not left yet is not sent. The code is the application's.
    ///
    /// If it was opened just before, the peer may never learn of the stream.
    pub fn reset(self, code: u32) {
        self.0.reset(code);
    }

    /// Waits until the peer takes nothing more, and says why.
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
        // Nothing, if it has ended before.
        self.0.reset(0);
    }
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream").finish_non_exhaustive()
    }
}

/// What the peer sends on a stream. Dropped before its end, it asks the peer to stop with code 0.
pub struct RecvStream(Rc<SessionStream>);

impl RecvStream {
    pub(super) fn new(stream: Rc<SessionStream>) -> Self {
        Self(stream)
    }

    /// Waits for the next piece of content; `None` at its end. What is not read holds the peer back.
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

    /// Asks the peer to send no more, with a code of the application's.
    pub fn stop(self, code: u32) {
        self.0.stop(code);
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        // Nothing, if it has ended or was stopped before.
        self.0.stop(0);
    }
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream").finish_non_exhaustive()
    }
}
