//! Jitter: pauses of the link, or a delay that each packet draws separately.
//!
//! ```text
//! time      ──────────────────────────────────────────────►
//! slots     |              |              |              |     1.5 × the longest pause each
//! pauses    |  ████        |        ██████|█             |     one in each slot, where and as long as the seed says
//! packets    1   2 3        4 5 6    7      8
//! leave      1      23      4 5 6          7 8                 at the rate, never faster
//! ```
//!
//! A radio scheduler serves other users for a while, or retransmits what was lost in the air;
//! packets that arrive meanwhile wait, and leave at the link's rate and no faster. A link that is
//! never idle loses a pause once and stays that late from then on: its rate remains the profile's.
//!
//! The figures are those of recorded LTE links (docs/link.md): one pause ends before the next
//! begins, how long one is says nothing of the next, and the link is paused for a third of the
//! time. A delay that moves smoothly instead makes all packets of a round trip late together, which
//! TCP takes for the beginning of a queue.

use rand::RngCore as _;
use rand_chacha::ChaCha8Rng;

use super::random::{Draw, generator};
use super::wire::Steady;
use crate::profile::Direction;
use crate::way::Way;

/// Jitter of one direction.
#[derive(Debug)]
pub(crate) enum Jitter {
    None,
    Pauses(Pauses),
    EachPacket(EachPacket),
}

impl Jitter {
    /// Returns the jitter of one direction of a link, from time zero on; `change` is the number of
    /// the change that created it, 0 for none.
    pub(crate) fn of(direction: &Direction, seed: u64, way: Way, change: u64) -> Self {
        let generator_for = |draw| generator(seed, way, draw, change);
        match direction.jitter_ns {
            0 => Self::None,
            amplitude_ns if direction.reorder => Self::EachPacket(EachPacket {
                amplitude_ns,
                generator: generator_for(Draw::Jitter),
                earlier_generator: generator_for(Draw::EarlierJitter),
            }),
            longest_ns => Self::Pauses(Pauses {
                longest_ns,
                generator: generator_for(Draw::Jitter),
                slot: None,
                pause_ns: [0, 0],
                rate: direction.rate_bits_per_second.map(|rate| Steady::new(rate, None)),
                last_ns: 0,
            }),
        }
    }

    /// Returns when a packet arrives whose last bit is on the wire at `sent_ns`. Call it for each
    /// packet that the wire sends, in order.
    pub(crate) fn arrives_ns(&mut self, bytes: u64, sent_ns: u64, delay_ns: u64) -> u64 {
        match self {
            Self::None => sent_ns + delay_ns,
            Self::Pauses(pauses) => pauses.leaves_ns(bytes, sent_ns) + delay_ns,
            // Earlier by at most the delay, so that no packet arrives before it was sent.
            Self::EachPacket(each) => (sent_ns + delay_ns).saturating_add_signed(each.draw()),
        }
    }

    /// Like `arrives_ns` for a packet without a number, which uses no draw of numbered packets.
    pub(crate) fn earlier_arrives_ns(&mut self, bytes: u64, sent_ns: u64, delay_ns: u64) -> u64 {
        match self {
            Self::EachPacket(each) => {
                (sent_ns + delay_ns).saturating_add_signed(each.draw_earlier())
            }
            Self::None | Self::Pauses(_) => self.arrives_ns(bytes, sent_ns, delay_ns),
        }
    }
}

/// Pauses as a function of time: they do not depend on the traffic.
#[derive(Debug)]
pub(crate) struct Pauses {
    longest_ns: u64,
    generator: ChaCha8Rng,
    /// The slot whose pause has been drawn.
    slot: Option<u64>,
    /// Start and end of the pause.
    pause_ns: [u64; 2],
    /// Rate at which waiting packets leave; `None` without a rate.
    rate: Option<Steady>,
    last_ns: u64,
}

impl Pauses {
    /// Returns the departure time, later by at most the longest pause.
    fn leaves_ns(&mut self, bytes: u64, sent_ns: u64) -> u64 {
        let resumes_ns = self.resumes_ns(sent_ns);
        self.last_ns = match &mut self.rate {
            Some(rate) => rate.send_by(bytes, resumes_ns),
            None => resumes_ns.max(self.last_ns),
        };
        self.last_ns
    }

    /// Returns the end of the pause at this time, or this time if there is none.
    fn resumes_ns(&mut self, now_ns: u64) -> u64 {
        let slot_ns = slot_ns(self.longest_ns);
        let slot = now_ns / slot_ns;
        if self.slot != Some(slot) {
            self.slot = Some(slot);
            self.pause_ns = self.draw(slot, slot_ns);
        }
        let [begins_ns, ends_ns] = self.pause_ns;
        if (begins_ns..ends_ns).contains(&now_ns) { ends_ns } else { now_ns }
    }

    /// Depends only on slot and seed, so that a link that was idle for a day need not draw a day's
    /// pauses.
    fn draw(&mut self, slot: u64, slot_ns: u64) -> [u64; 2] {
        const WORDS: u128 = 4;
        self.generator.set_word_pos(u128::from(slot) * WORDS);
        let length_ns = uniform(&mut self.generator, self.longest_ns);
        let begins_ns = slot * slot_ns + uniform(&mut self.generator, slot_ns - length_ns);
        [begins_ns, begins_ns + length_ns]
    }
}

/// Length of a slot: the mean pause is half the longest one, and a third of the slot.
fn slot_ns(longest_ns: u64) -> u64 {
    longest_ns + longest_ns.div_ceil(2)
}

/// Delays uniform within ± the amplitude.
#[derive(Debug)]
pub(crate) struct EachPacket {
    amplitude_ns: u64,
    generator: ChaCha8Rng,
    /// Generator for packets without a number.
    earlier_generator: ChaCha8Rng,
}

impl EachPacket {
    fn draw(&mut self) -> i64 {
        around_zero(&mut self.generator, self.amplitude_ns)
    }

    fn draw_earlier(&mut self) -> i64 {
        around_zero(&mut self.earlier_generator, self.amplitude_ns)
    }
}

/// Within ± `most`.
fn around_zero(generator: &mut ChaCha8Rng, most: u64) -> i64 {
    uniform(generator, most * 2) as i64 - most as i64
}

/// From 0 to `most`.
fn uniform(generator: &mut ChaCha8Rng, most: u64) -> u64 {
    ((u128::from(generator.next_u64()) * (u128::from(most) + 1)) >> 64) as u64
}
