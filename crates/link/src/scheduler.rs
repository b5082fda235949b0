//! The packet scheduler of one direction, in virtual time: no clock, no socket, no thread.
//!
//! ```text
//! packet ──► queue (drop-tail, bounded) ──► rate ──► pauses ──► loss ──► delay ──► deadline
//! ```
//!
//! Loss comes after the rate: a lost packet has used the wire, as on a radio link.

mod jitter;
mod loss;
mod outages;
#[cfg(test)]
mod slow_start;
#[cfg(test)]
mod tests;
mod wire;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::profile::Direction;
use loss::LossProcess;
use outages::OutageProcess;

pub(crate) use jitter::Jitter;
pub(crate) use wire::{Wire, mean_bits_per_second};

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Client to server, near to far.
    Up,
    /// Server to client, far to near.
    Down,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives at this time.
    Deliver {
        /// Nanoseconds, on the clock of `now_ns`. Never before the deadline of an earlier packet, unless the profile lets
        /// packets overtake, or the link has changed in between.
        deadline_ns: u64,
    },
    /// It used the rate and got lost on the way.
    Lost,
    /// The queue had no room for it.
    QueueFull,
}

/// Decides for each packet of one direction whether and when it arrives.
///
/// One call a packet, [`Scheduler::handle_packet`], with a time that never goes back; [`Scheduler::skip_packet`] for one that
/// something else has dropped. The same profile, seed, sizes and times give the same verdicts; which packets are lost depends on
/// the seed and on their order only.
#[derive(Debug)]
pub struct Scheduler {
    direction: Direction,
    seed: u64,
    way: Way,
    changes: u64,
    wire: Wire,
    loss: LossProcess,
    /// Of packets without a number.
    earlier_loss: LossProcess,
    jitter: Jitter,
    last_deadline_ns: u64,
    packets: u64,
    /// Of wires that a change has replaced.
    queue_max_before: (u64, u64),
}

impl Scheduler {
    /// `seed` is the link's; the two directions draw from streams of their own.
    pub fn new(direction: &Direction, seed: u64, way: Way) -> Self {
        Self::after_changes(direction, seed, way, 0)
    }

    fn after_changes(direction: &Direction, seed: u64, way: Way, changes: u64) -> Self {
        Self {
            wire: Wire::of(direction, seed, way, changes),
            loss: LossProcess::new(direction.loss, generator(seed, way, Draw::Loss, changes)),
            earlier_loss: LossProcess::new(direction.loss, generator(seed, way, Draw::EarlierLoss, changes)),
            jitter: Jitter::of(direction, seed, way, changes),
            direction: direction.clone(),
            seed,
            way,
            changes,
            last_deadline_ns: 0,
            packets: 0,
            queue_max_before: (0, 0),
        }
    }

    /// From now on the direction is another one, with an empty queue. What was accepted before keeps its deadline; packets that
    /// come now do not wait for it. Packets are counted on.
    pub fn change(&mut self, direction: &Direction) {
        let changed = Self::after_changes(direction, self.seed, self.way, self.changes + 1);
        let before = std::mem::replace(self, changed);
        self.packets = before.packets;
        self.queue_max_before = (before.queue_max_bytes(), before.queue_max_ns());
    }

    /// The direction as it is now begins again: with an empty queue, the packets counted from 1, at time 0.
    pub fn restart(&mut self) {
        let again = Self::after_changes(&self.direction, self.seed, self.way, self.changes);
        let before = std::mem::replace(self, again);
        self.queue_max_before = (before.queue_max_bytes(), before.queue_max_ns());
    }

    /// Takes a packet of `bytes` that reaches the link at `now_ns`.
    pub fn handle_packet(&mut self, bytes: usize, now_ns: u64) -> Verdict {
        self.packets += 1;
        let Some(sent_ns) = self.wire.send(bytes as u64, now_ns) else {
            return Verdict::QueueFull;
        };
        let arrival_ns = self.jitter.arrives_ns(bytes as u64, sent_ns, self.direction.delay_ns);
        // Drawn for each packet that the wire sends, so that packets lost by their number leave the others' fate as it is.
        let lost = self.loss.next_is_lost();
        self.verdict(lost || self.direction.lose_packets.binary_search(&self.packets).is_ok(), arrival_ns)
    }

    /// The same for a packet of a flow from before time zero: it has no number, and what others draw does not depend on it.
    pub fn handle_earlier_packet(&mut self, bytes: usize, now_ns: u64) -> Verdict {
        let Some(sent_ns) = self.wire.send(bytes as u64, now_ns) else {
            return Verdict::QueueFull;
        };
        let arrival_ns = self.jitter.earlier_arrives_ns(bytes as u64, sent_ns, self.direction.delay_ns);
        let lost = self.earlier_loss.next_is_lost();
        self.verdict(lost, arrival_ns)
    }

    fn verdict(&mut self, lost: bool, arrival_ns: u64) -> Verdict {
        if lost {
            return Verdict::Lost;
        }
        if self.direction.reorder {
            return Verdict::Deliver { deadline_ns: arrival_ns };
        }
        self.last_deadline_ns = self.last_deadline_ns.max(arrival_ns);
        Verdict::Deliver { deadline_ns: self.last_deadline_ns }
    }

    /// A packet that reached the link, but not its queue: it has a number all the same.
    pub fn skip_packet(&mut self) {
        self.packets += 1;
    }

    /// What waits for the rate at `now_ns`, which never goes back.
    pub fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        self.wire.queued_bytes(now_ns)
    }

    /// The most that ever waited, the packet just accepted included.
    pub fn queue_max_bytes(&self) -> u64 {
        self.wire.queue_max().0.max(self.queue_max_before.0)
    }

    /// The longest time from a packet's acceptance to its last bit on the wire.
    pub fn queue_max_ns(&self) -> u64 {
        self.wire.queue_max().1.max(self.queue_max_before.1)
    }
}

/// What random numbers are drawn for; each has a stream of its own.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Loss,
    EarlierLoss,
    Jitter,
    EarlierJitter,
    Outages,
    TraceOffset,
}

/// After each change of the link, the streams are others. Outages and the place in a trace are the same for both directions: where nothing
/// is sent, nothing is received, and what was recorded together stays together.
fn generator(seed: u64, way: Way, draw: Draw, changes: u64) -> ChaCha8Rng {
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
