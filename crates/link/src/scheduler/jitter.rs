//! What is added to the delay.

use rand::RngCore as _;
use rand_chacha::ChaCha8Rng;

use super::{Draw, JITTER_STEP_NS, Way, generator};
use crate::profile::Direction;

/// Extra delay, uniform within ± `amplitude_ns`: as a function of time with a value at each step and a straight line between
/// steps, or drawn for each packet by itself.
#[derive(Debug)]
pub(crate) struct Jitter {
    amplitude_ns: u64,
    each_packet: bool,
    generator: ChaCha8Rng,
    step: u64,
    from_ns: i64,
    to_ns: i64,
}

impl Jitter {
    /// That of one direction of a link, from its going live on; `change` is the number of the change that made it, 0 for none.
    pub(crate) fn of(direction: &Direction, seed: u64, way: Way, change: u64) -> Self {
        let generator = generator(seed, way, Draw::Jitter, change);
        let mut jitter =
            Self { amplitude_ns: direction.jitter_ns, each_packet: direction.reorder, generator, step: 0, from_ns: 0, to_ns: 0 };
        if jitter.amplitude_ns > 0 && !jitter.each_packet {
            jitter.move_to(0);
        }
        jitter
    }

    /// Of the next packet, whose last bit is on the wire at this time. To be called for each packet that the wire sends.
    pub(crate) fn next_ns(&mut self, sent_ns: u64) -> i64 {
        if self.amplitude_ns == 0 {
            return 0;
        }
        if self.each_packet {
            return self.draw();
        }
        let step = sent_ns / JITTER_STEP_NS;
        if step != self.step {
            self.move_to(step);
        }
        let share = (sent_ns % JITTER_STEP_NS) as f64 / JITTER_STEP_NS as f64;
        self.from_ns + ((self.to_ns - self.from_ns) as f64 * share) as i64
    }

    /// The value at a step depends on seed and step alone, however many packets came before.
    fn move_to(&mut self, step: u64) {
        self.step = step;
        // Two 32-bit words a draw.
        self.generator.set_word_pos(u128::from(step) * 2);
        self.from_ns = self.draw();
        self.to_ns = self.draw();
    }

    fn draw(&mut self) -> i64 {
        let span = u128::from(self.amplitude_ns) * 2 + 1;
        let uniform = (u128::from(self.generator.next_u64()) * span) >> 64;
        uniform as i64 - self.amplitude_ns as i64
    }
}
