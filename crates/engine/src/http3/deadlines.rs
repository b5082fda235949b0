//! Deadlines of a connection.

use std::collections::VecDeque;
use std::time::Instant;

use pronghorn_h3::StreamId;

use crate::gauge::GaugeGuard;

/// Tracks when a connection has to check whether its peer is late.
#[derive(Default)]
pub(super) struct Deadlines {
    /// Streams whose head is incomplete, in the order of their deadlines.
    heads: VecDeque<(Instant, StreamId, GaugeGuard)>,
    /// Time of the requested check.
    asked: Option<Instant>,
    /// The driver has not scheduled this check yet.
    is_news: bool,
    /// The stream whose head ended last.
    pub(super) ended: Option<StreamId>,
}

impl Deadlines {
    /// Requests a check at `deadline`.
    pub(super) fn request_check(&mut self, deadline: Instant) {
        if self.asked.is_none_or(|asked| deadline < asked) {
            self.asked = Some(deadline);
            self.is_news = true;
        }
    }

    pub(super) fn asked(&self) -> Option<Instant> {
        self.asked
    }

    pub(super) fn take_new_check(&mut self) -> Option<Instant> {
        std::mem::take(&mut self.is_news).then_some(self.asked).flatten()
    }

    /// Whether the requested check is due; the request is cleared then.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.asked.is_some_and(|asked| asked <= now);
        if due {
            self.asked = None;
        }
        due
    }

    pub(super) fn begin_head(&mut self, id: StreamId, deadline: Instant, counted: GaugeGuard) {
        self.heads.push_back((deadline, id, counted));
        self.request_check(deadline);
    }

    pub(super) fn knows(&self, id: StreamId) -> bool {
        self.heads.iter().any(|(_, head, _)| *head == id)
    }

    /// Called when the head is complete, or the stream was abandoned.
    pub(super) fn end_head(&mut self, id: StreamId) {
        self.heads.retain(|(_, head, _)| *head != id);
        self.ended = Some(id);
    }

    pub(super) fn overdue_head(&mut self, now: Instant) -> Option<StreamId> {
        self.heads.pop_front_if(|(deadline, _, _)| *deadline <= now).map(|(_, id, _)| id)
    }

    /// Releases memory that is kept for later heads.
    pub(super) fn release_memory(&mut self) {
        self.heads.shrink_to_fit();
    }

    pub(super) fn next_head(&self) -> Option<Instant> {
        self.heads.front().map(|(deadline, _, _)| *deadline)
    }
}
