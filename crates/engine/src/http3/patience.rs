//! What a connection waits for, and until when.

use std::collections::VecDeque;
use std::time::Instant;

use pronghorn_h3::StreamId;

use crate::dispatch::Counted;

/// The times at which a connection has to look whether its peer keeps it waiting.
#[derive(Default)]
pub(super) struct Patience {
    /// Streams of which the head is not complete, in the order in which their time is up.
    heads: VecDeque<(Instant, StreamId, Counted)>,
    /// When the connection has asked to be looked at.
    asked: Option<Instant>,
    /// Nobody has been told yet.
    is_news: bool,
    /// The stream that was given up last.
    pub(super) ended: Option<StreamId>,
}

impl Patience {
    /// Something is due at `deadline`.
    pub(super) fn expect(&mut self, deadline: Instant) {
        if self.asked.is_none_or(|asked| deadline < asked) {
            self.asked = Some(deadline);
            self.is_news = true;
        }
    }

    pub(super) fn asked(&self) -> Option<Instant> {
        self.asked
    }

    pub(super) fn take_news(&mut self) -> Option<Instant> {
        std::mem::take(&mut self.is_news).then_some(self.asked).flatten()
    }

    /// Whether the time asked for has come; it is forgotten then.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.asked.is_some_and(|asked| asked <= now);
        if due {
            self.asked = None;
        }
        due
    }

    pub(super) fn begin_head(&mut self, id: StreamId, deadline: Instant, counted: Counted) {
        self.heads.push_back((deadline, id, counted));
        self.expect(deadline);
    }

    pub(super) fn knows(&self, id: StreamId) -> bool {
        self.heads.iter().any(|(_, head, _)| *head == id)
    }

    /// The head is there, or the stream was given up.
    pub(super) fn end_head(&mut self, id: StreamId) {
        self.heads.retain(|(_, head, _)| *head != id);
        self.ended = Some(id);
    }

    pub(super) fn overdue_head(&mut self, now: Instant) -> Option<StreamId> {
        self.heads.pop_front_if(|(deadline, _, _)| *deadline <= now).map(|(_, id, _)| id)
    }

    /// Gives back memory that is kept for the next heads.
    pub(super) fn release_memory(&mut self) {
        self.heads.shrink_to_fit();
    }

    pub(super) fn next_head(&self) -> Option<Instant> {
        self.heads.front().map(|(deadline, _, _)| *deadline)
    }
}
