//! A descriptor in the event loop of the host: by libuv where that is the host's own, or else by a thread that waits for it.

use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use crate::js::{Env, Failure, end_after_panic};
use crate::{thread, uv};

/// What is called when the descriptor is readable.
pub(crate) type OnReadable = Rc<dyn Fn()>;

/// Calls a function on JavaScript's thread whenever the descriptor is readable.
///
/// It keeps the process running, until it is dropped or unreferenced.
pub(crate) enum Poll {
    Loop(uv::Poll),
    Thread(thread::Poll),
}

impl Poll {
    /// `by_thread`: whatever functions of libuv the host has, its loop is another.
    ///
    /// # Errors
    ///
    /// When the host's libuv refuses the descriptor, or there can be no other thread.
    pub(crate) fn new(env: Env, by_thread: bool, descriptor: RawFd, on_readable: OnReadable) -> Result<Self, Failure> {
        if by_thread || !uv::is_there() {
            thread::Poll::new(env, descriptor, on_readable).map(Self::Thread)
        } else {
            uv::Poll::new(env, descriptor, on_readable).map(Self::Loop)
        }
    }

    /// Whether the process goes on because of it.
    pub(crate) fn set_referenced(&self, referenced: bool) {
        match self {
            Self::Loop(poll) => poll.set_referenced(referenced),
            Self::Thread(poll) => poll.set_referenced(referenced),
        }
    }
}

/// Runs what the host calls from C, which a panic must not reach.
pub(crate) fn run_or_abort(action: &dyn Fn()) {
    if catch_unwind(AssertUnwindSafe(action)).is_err() {
        end_after_panic();
    }
}
