//! Priorities of requests that have yet to come (RFC 9218 section 7).

use std::collections::VecDeque;

use crate::{priority::Priority, stream::StreamId};

/// How many are held on a connection, of 16 bytes each. Control stream and requests overtake each other by a round trip or so.
const MAX_EARLY_PRIORITIES: usize = 64;

/// PRIORITY_UPDATE frames that overtook the requests they name, the oldest first. When there are too many, the oldest goes:
/// it is also how those go that name a request which is over.
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
