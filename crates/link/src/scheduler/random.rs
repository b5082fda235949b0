//! Random numbers of a direction.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::way::Way;

/// Purpose of random numbers; each has its own stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draw {
    Loss,
    EarlierLoss,
    Jitter,
    EarlierJitter,
    Outages,
    TraceOffset,
}

/// Returns the random generator for a purpose. After each change of the link, the streams differ.
/// Outages and the offset in a trace are the same for both directions: an outage affects both, and
/// traces recorded together stay in sync.
pub(super) fn generator(seed: u64, way: Way, draw: Draw, changes: u64) -> ChaCha8Rng {
    const OF_OUTAGES: u64 = 1 << 32;
    const OF_TRACE_OFFSET: u64 = 1 << 33;
    const OF_EARLIER: u64 = 1 << 34;
    let direction = match way {
        Way::Up => 0,
        Way::Down => 2,
    };
    let stream = match draw {
        Draw::Loss => direction,
        Draw::EarlierLoss => OF_EARLIER + direction,
        Draw::Jitter => direction + 1,
        Draw::EarlierJitter => OF_EARLIER + direction + 1,
        Draw::Outages => OF_OUTAGES,
        Draw::TraceOffset => OF_TRACE_OFFSET,
    };
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(4 * changes + stream);
    generator
}
