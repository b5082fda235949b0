//! Units and sizes.

/// Maximum IP packet size on the link. A queue must hold at least one packet.
pub const MTU: usize = 1500;

pub(super) fn ms_to_ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}
