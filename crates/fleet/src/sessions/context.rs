//! What the tasks of a store share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::config::LogLine;
use super::counters::Counters;
use crate::redis::Dialer;

/// What all servers of a store share.
pub(super) struct Context {
    pub(super) dialer: Dialer,
    pub(super) timeout: Duration,
    pub(super) replicas: u32,
    pub(super) prefix: String,
    pub(super) counters: Arc<Counters>,
    pub(super) log: Arc<LogLine>,
    /// Notified when a cluster may have moved slots.
    pub(super) moved: Notify,
}
