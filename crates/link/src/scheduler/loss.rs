//! Packet loss: one decision for each packet that the wire sent.

use rand::RngCore as _;
use rand_chacha::ChaCha8Rng;

use crate::profile::{Loss, burst_chances};

/// The loss model with its random state.
#[derive(Debug)]
pub(super) enum LossProcess {
    Never,
    Always,
    /// Lost when a uniform 64-bit draw is below the threshold.
    Independent {
        threshold: u64,
        generator: Box<ChaCha8Rng>,
    },
    /// Like independent loss, with a threshold that depends on the fate of the previous packet.
    Bursts {
        after_arrival: u64,
        after_loss: u64,
        was_lost: bool,
        generator: Box<ChaCha8Rng>,
    },
    /// Two draws per packet: whether it is lost in the channel's state, then whether the state
    /// changes.
    GilbertElliott {
        bad: bool,
        good: StateThresholds,
        while_bad: StateThresholds,
        generator: Box<ChaCha8Rng>,
    },
}

/// Thresholds of one channel state.
#[derive(Debug, Clone, Copy)]
pub(super) struct StateThresholds {
    loss: u64,
    change: u64,
}

impl LossProcess {
    pub(super) fn new(loss: Loss, generator: ChaCha8Rng) -> Self {
        let percent = loss.percent();
        if percent <= 0.0 {
            return Self::Never;
        }
        if percent >= 100.0 {
            return Self::Always;
        }
        let mut generator = Box::new(generator);
        match loss {
            Loss::Independent { .. } => {
                Self::Independent { threshold: threshold(percent / 100.0), generator }
            }
            Loss::Bursts { percent, packets } => {
                let (after_arrival, after_loss) = burst_chances(percent, packets);
                // As if packets had been sent forever.
                let was_lost = happens(&mut generator, threshold(percent / 100.0));
                Self::Bursts {
                    after_arrival: threshold(after_arrival),
                    after_loss: threshold(after_loss),
                    was_lost,
                    generator,
                }
            }
            Loss::GilbertElliott(model) => {
                let bad = happens(&mut generator, threshold(model.share_bad()));
                let of = |loss: f64, change: f64| StateThresholds {
                    loss: threshold(loss / 100.0),
                    change: threshold(change / 100.0),
                };
                Self::GilbertElliott {
                    bad,
                    good: of(model.loss_in_good_percent, model.good_to_bad_percent),
                    while_bad: of(model.loss_in_bad_percent, model.bad_to_good_percent),
                    generator,
                }
            }
        }
    }

    pub(super) fn next_is_lost(&mut self) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Independent { threshold, generator } => happens(generator, *threshold),
            Self::Bursts { after_arrival, after_loss, was_lost, generator } => {
                *was_lost =
                    happens(generator, if *was_lost { *after_loss } else { *after_arrival });
                *was_lost
            }
            Self::GilbertElliott { bad, good, while_bad, generator } => {
                let state = if *bad { while_bad } else { good };
                let lost = happens(generator, state.loss);
                *bad ^= happens(generator, state.change);
                lost
            }
        }
    }
}

/// `chance` is 0 to 1. 1 becomes 2^64 - 1 of 2^64 draws, an invisible difference.
fn threshold(chance: f64) -> u64 {
    (chance * 2f64.powi(64)) as u64
}

fn happens(generator: &mut ChaCha8Rng, threshold: u64) -> bool {
    generator.next_u64() < threshold
}
