//! What all connections of a signer use.

use std::sync::Arc;

use super::clients::Clients;
use super::limits::Limits;
use super::log::Log;
use super::metrics::Metrics;
use super::pool::Queue;

/// What all connections use.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clients: Arc<Clients>,
    pub(super) limits: Limits,
    pub(super) queue: Queue,
    pub(super) metrics: Metrics,
    pub(super) log: Log,
}
