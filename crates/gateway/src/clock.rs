//! The monotonic clock of the process.

use std::sync::LazyLock;
use std::time::Instant;

/// Returns milliseconds on a monotonic clock of the process, never 0.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
}
