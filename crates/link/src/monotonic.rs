//! The monotonic clock.

use rustix::time::ClockId;

/// Nanoseconds of the monotonic clock.
pub(crate) fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
