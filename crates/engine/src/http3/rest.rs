//! When connections have nothing to do, so that they give back what they keep for the next requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::transport::ConnectionKey;

/// How long nothing has happened on a connection that rests, at the least; it is twice as long at the most.
const QUIET: Duration = Duration::from_millis(500);
/// Connections whose time comes within this are looked at together, so that each does not wake the worker.
const TOGETHER: Duration = Duration::from_millis(100);

/// The connections that do not rest yet, by the time of the next look at them. One that has ended means nothing.
#[derive(Default)]
pub(super) struct Wakeful(VecDeque<(Instant, ConnectionKey)>);

impl Wakeful {
    /// To be looked at once the connection may have had nothing to do for a while.
    pub(super) fn watch(&mut self, now: Instant, key: ConnectionKey) {
        self.0.push_back((now + QUIET, key));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(time, _)| *time)
    }

    /// The connections to look at, if it is time for the first of them. What is watched anew meanwhile is not among them.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ConnectionKey> {
        if self.next().is_none_or(|first| now < first) {
            return Vec::new();
        }
        let due = self.0.partition_point(|(time, _)| *time <= now + TOGETHER);
        self.0.drain(..due).map(|(_, key)| key).collect()
    }
}
