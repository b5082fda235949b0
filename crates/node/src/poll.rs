//! A descriptor in the event loop of the host: with libuv if that is the host's loop, otherwise
//! with a thread that waits for it.

use std::os::fd::RawFd;

use crate::js::{Env, Failure};
use crate::readable::OnReadable;
use crate::{poll_libuv, poll_thread};

/// Calls a function on JavaScript's thread whenever the descriptor is readable.
///
/// It keeps the process running until it is dropped or unreferenced.
pub(crate) enum Poll {
    Loop(poll_libuv::Poll),
    Thread(poll_thread::Poll),
}

impl Poll {
    /// `by_thread`: the host's loop is not libuv, even if it has libuv's functions.
    ///
    /// # Errors
    ///
    /// If libuv rejects the descriptor, or the thread cannot be started.
    pub(crate) fn new(
        env: Env,
        by_thread: bool,
        descriptor: RawFd,
        on_readable: OnReadable,
    ) -> Result<Self, Failure> {
        if by_thread || !poll_libuv::is_there() {
            poll_thread::Poll::new(env, descriptor, on_readable).map(Self::Thread)
        } else {
            poll_libuv::Poll::new(env, descriptor, on_readable).map(Self::Loop)
        }
    }

    /// Sets whether it keeps the process running.
    pub(crate) fn set_referenced(&self, referenced: bool) {
        match self {
            Self::Loop(poll) => poll.set_referenced(referenced),
            Self::Thread(poll) => poll.set_referenced(referenced),
        }
    }
}
