//! The link from a request's content to its connection.

use std::rc::Rc;

use super::wire_state::WireState;
use crate::memory::{Charge, WorkerMemory};
use crate::tcp::ExchangeGuard;

/// Bytes that hyper buffers of a request's content, as measured.
const READ_AHEAD_BYTES: u64 = 72 << 10;

/// Reports on a request's content to its connection, until the content ends or is dropped.
pub(crate) struct Http1BodyLink {
    pub(super) wire: Rc<WireState>,
    /// The request's number on its connection.
    pub(super) number: u32,
    pub(super) guard: Rc<ExchangeGuard>,
    /// The handler has read content, or has tried to.
    pub(super) has_begun: bool,
    /// Counts hyper's buffer.
    pub(super) _held: Charge,
}

impl Http1BodyLink {
    /// Returns the count of what hyper may read ahead of the handler.
    pub(super) fn hold(memory: &Rc<WorkerMemory>) -> Charge {
        let mut held = Charge::default();
        held.set(memory, READ_AHEAD_BYTES);
        held
    }
}

impl Http1BodyLink {
    /// Notes that the handler reads, and whether it waits for more.
    pub(crate) fn on_read(&mut self, is_waiting: bool) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.wire.begin_content();
        }
        self.guard.set_inbound_waiting(is_waiting);
    }

    /// Whether all content has arrived, although hyper reports otherwise.
    pub(crate) fn is_complete(&self) -> bool {
        self.wire.is_complete(self.number)
    }

    /// Notes that the rest of the content is not read.
    pub(crate) fn give_up(&self) {
        self.wire.give_up_content(self.number);
    }
}

impl Drop for Http1BodyLink {
    fn drop(&mut self) {
        self.guard.set_inbound_waiting(false);
        if self.has_begun {
            self.wire.end_content();
        }
        self.wire.release_content();
    }
}
