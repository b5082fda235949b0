//! Priorities of requests that have not arrived yet (RFC 9218 section 7).

use std::collections::VecDeque;

use crate::{priority::Priority, stream::StreamId};

/// Maximum number stored per connection, of 16 bytes each. Control stream and requests overtake
/// each other by about a round trip.
const MAX_EARLY_PRIORITIES: usize = 64;

/// PRIORITY_UPDATE frames that overtook their requests, oldest first. If there are too many, the
/// oldest is dropped; this also removes those for requests that have already ended.
#[derive(Debug, Default)]
pub(super) struct EarlyPriorities {
    waiting: VecDeque<(StreamId, Priority)>,
    dropped: u64,
}

impl EarlyPriorities {
    pub(super) fn insert(&mut self, stream: StreamId, priority: Priority) {
        self.remove(stream);
        if self.waiting.len() == MAX_EARLY_PRIORITIES {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back((stream, priority));
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Priority> {
        let place = self.waiting.iter().position(|(id, _)| *id == stream)?;
        self.waiting.remove(place).map(|(_, priority)| priority)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}
