//! What both directions of the emulator share.

use super::clock::Clock;
use crate::flow;
use crate::packets::{self, Fate, Row};

/// State shared by both directions: time zero, and per-packet records in addition to the
/// directions' counters.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) clock: Clock,
    pub(super) flows: flow::Table,
    /// `None` if no packet log was requested.
    pub(super) packets: Option<packets::Recorder>,
}

impl Records {
    pub(super) fn log_end(&mut self, row: Row, fate: Fate, now_ns: u64) {
        if let Some(log) = &mut self.packets {
            log.ended(row, fate, now_ns);
        }
    }
}
