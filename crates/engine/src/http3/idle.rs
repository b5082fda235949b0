//! Detects idle connections, which release the memory that they keep for later requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::transport::ConnectionKey;

/// Minimum time without activity before a connection counts as idle. The maximum is twice as long.
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// Connections due within this time are checked together, to wake the worker less often.
const COALESCE_WITHIN: Duration = Duration::from_millis(100);

/// Connections that are not idle yet, by the time of their next check. Entries of ended connections
/// are ignored.
#[derive(Default)]
pub(super) struct IdleWatch(VecDeque<(Instant, ConnectionKey)>);

impl IdleWatch {
    /// Schedules a check for after the connection may have been idle for [`IDLE_AFTER`].
    pub(super) fn watch(&mut self, now: Instant, key: ConnectionKey) {
        self.0.push_back((now + IDLE_AFTER, key));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(time, _)| *time)
    }

    /// Takes the connections to check, if the first of them is due. Connections watched again
    /// meanwhile are not included.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ConnectionKey> {
        if self.next().is_none_or(|first| now < first) {
            return Vec::new();
        }
        let due = self.0.partition_point(|(time, _)| *time <= now + COALESCE_WITHIN);
        self.0.drain(..due).map(|(_, key)| key).collect()
    }
}
