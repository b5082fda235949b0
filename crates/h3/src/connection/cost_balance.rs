//! Costs caused by the peer, against their limits.

use crate::{config::Config, error::ConnectionError, limit::Limit};

/// Each message permits this many control frames: a browser changes the priority of elements that
/// come into view.
const CONTROL_FRAMES_PER_MESSAGE: u64 = 4;

/// Balances of a connection. Counting never fails; [`CostBalance::verdict`] reports an exceeded
/// limit.
#[derive(Debug)]
pub(super) struct CostBalance {
    useless_frames: Balance,
    useless_bytes: Balance,
    unknown_streams: Balance,
    control_frames: Balance,
    aborted_requests: Balance,
}

impl CostBalance {
    pub(super) const fn new(config: &Config) -> Self {
        Self {
            useless_frames: Balance::new(config.max_useless_frames as u64),
            useless_bytes: Balance::new(config.max_useless_bytes),
            unknown_streams: Balance::new(config.max_unknown_streams as u64),
            control_frames: Balance::new(config.max_control_frames as u64),
            aborted_requests: Balance::new(config.max_aborted_requests as u64),
        }
    }

    /// Counts a useless frame, of which `len` bytes must be read nevertheless.
    #[inline]
    pub(super) const fn on_useless_frame(&mut self, len: u64) {
        self.useless_frames.spend(1);
        self.useless_bytes.spend(len);
    }

    #[inline]
    pub(super) const fn on_useful_frame(&mut self) {
        self.useless_frames.earn(1);
    }

    #[inline]
    pub(super) const fn on_useful_bytes(&mut self, len: usize) {
        self.useless_bytes.earn(len as u64);
    }

    /// Counts ignored bytes on a unidirectional stream.
    pub(super) const fn on_ignored_bytes(&mut self, len: usize) {
        self.useless_bytes.spend(len as u64);
    }

    /// Counts a unidirectional stream whose type is unknown, or not known yet.
    pub(super) const fn on_unknown_stream(&mut self) {
        self.unknown_streams.spend(1);
    }

    /// Uncounts a stream whose type turned out to be supported.
    pub(super) const fn on_known_stream(&mut self) {
        self.unknown_streams.earn(1);
    }

    pub(super) const fn on_control_frame(&mut self) {
        self.control_frames.spend(1);
    }

    /// Counts a valid received head.
    #[inline]
    pub(super) const fn on_message(&mut self) {
        self.control_frames.earn(CONTROL_FRAMES_PER_MESSAGE);
        self.unknown_streams.earn(1);
    }

    pub(super) const fn on_aborted_request(&mut self) {
        self.aborted_requests.spend(1);
    }

    #[inline]
    pub(super) const fn on_completed_request(&mut self) {
        self.aborted_requests.earn(1);
    }

    //= RFC 9114 section 10.5
    //# An endpoint MAY treat activity that is suspicious as a connection error of type H3_EXCESSIVE_LOAD
    #[inline]
    pub(super) fn verdict(&self) -> Result<(), ConnectionError> {
        let balances = [
            (&self.useless_frames, Limit::UselessFrames),
            (&self.useless_bytes, Limit::UselessBytes),
            (&self.unknown_streams, Limit::UnknownStreams),
            (&self.control_frames, Limit::ControlFrames),
            (&self.aborted_requests, Limit::AbortedRequests),
        ];
        match balances.into_iter().find(|(balance, _)| balance.is_exceeded()) {
            None => Ok(()),
            Some((_, limit)) => Err(ConnectionError::limit_reached(limit)),
        }
    }
}

/// Excess of costs over useful input, never below zero: a peer cannot accumulate credit.
#[derive(Debug)]
struct Balance {
    spent: u64,
    limit: u64,
}

impl Balance {
    const fn new(limit: u64) -> Self {
        Self { spent: 0, limit }
    }

    const fn spend(&mut self, amount: u64) {
        self.spent = self.spent.saturating_add(amount);
    }

    const fn earn(&mut self, amount: u64) {
        self.spent = self.spent.saturating_sub(amount);
    }

    const fn is_exceeded(&self) -> bool {
        self.spent > self.limit
    }
}
