//! Counters of tunnels.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters over all routes, workers and reloads.
#[derive(Default)]
pub(crate) struct TunnelCounters {
    pub(super) open: AtomicU64,
    pub(super) of_one_client: AtomicU64,
    pub(super) of_all: AtomicU64,
    pub(super) timed_out: AtomicU64,
}

/// Counters of tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelCounts {
    /// Number of open tunnels, including those whose server has not responded yet.
    pub open: u64,
    /// Number of upgrades refused because the client was at its limit.
    pub of_one_client: u64,
    /// Number of upgrades refused because the route was at its limit.
    pub of_all: u64,
    /// Number of tunnels closed by the idle timeout.
    pub timed_out: u64,
}

impl TunnelCounts {
    pub(crate) fn of(counters: &TunnelCounters) -> Self {
        let TunnelCounters { open, of_one_client, of_all, timed_out } = counters;
        let [open, of_one_client, of_all, timed_out] =
            [open, of_one_client, of_all, timed_out].map(|count| count.load(Ordering::Relaxed));
        Self { open, of_one_client, of_all, timed_out }
    }
}
