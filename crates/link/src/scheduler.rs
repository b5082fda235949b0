//! The packet scheduler of one direction, in virtual time: no clock, no socket, no thread.
//!
//! ```text
//! packet ──► queue (drop-tail, bounded) ──► rate ──► pauses ──► loss ──► delay ──► deadline
//! ```
//!
//! Loss applies after the rate: a lost packet has used the wire, as on a radio link.

mod jitter;
mod loss;
mod outages;
mod random;
#[cfg(test)]
mod slow_start;
#[cfg(test)]
mod tests;
mod wire;

use crate::profile::Direction;
use loss::LossProcess;
use random::{Draw, generator};

pub use crate::way::Way;
pub(crate) use jitter::Jitter;
pub(crate) use wire::{Wire, mean_bits_per_second};

/// Decision about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet arrives at this time.
    Deliver {
        /// Time in nanoseconds, on the clock of `now_ns`. Never before the deadline of an earlier
        /// packet, unless the profile permits reordering, or the link has changed in between.
        deadline_ns: u64,
    },
    /// The packet used the rate and was lost on the link.
    Lost,
    /// The packet was dropped because the queue was full.
    QueueFull,
}

/// Decides for each packet of one direction whether and when it arrives.
///
/// Call [`Scheduler::handle_packet`] once per packet, with a time that never goes back, and
/// [`Scheduler::skip_packet`] for a packet that was dropped elsewhere. The same profile, seed,
/// sizes and times give the same verdicts; which packets are lost depends only on the seed and on
/// their order.
#[derive(Debug)]
pub struct Scheduler {
    direction: Direction,
    seed: u64,
    way: Way,
    changes: u64,
    wire: Wire,
    loss: LossProcess,
    /// Loss of packets without a number.
    earlier_loss: LossProcess,
    jitter: Jitter,
    last_deadline_ns: u64,
    packets: u64,
    /// Queue maxima of wires that a change has replaced.
    queue_max_before: (u64, u64),
}

impl Scheduler {
    /// Returns a scheduler. `seed` is the link's; each direction has its own random streams.
    pub fn new(direction: &Direction, seed: u64, way: Way) -> Self {
        Self::after_changes(direction, seed, way, 0)
    }

    fn after_changes(direction: &Direction, seed: u64, way: Way, changes: u64) -> Self {
        Self {
            wire: Wire::of(direction, seed, way, changes),
            loss: LossProcess::new(direction.loss, generator(seed, way, Draw::Loss, changes)),
            earlier_loss: LossProcess::new(
                direction.loss,
                generator(seed, way, Draw::EarlierLoss, changes),
            ),
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

    /// Changes the direction, with an empty queue. Packets accepted before keep their deadlines;
    /// new packets do not wait for them. Packet numbers continue.
    pub fn change(&mut self, direction: &Direction) {
        let changed = Self::after_changes(direction, self.seed, self.way, self.changes + 1);
        let before = std::mem::replace(self, changed);
        self.packets = before.packets;
        self.queue_max_before = (before.queue_max_bytes(), before.queue_max_ns());
    }

    /// Restarts the direction in its current form: with an empty queue, packets counted from 1, at
    /// time 0.
    pub fn restart(&mut self) {
        let again = Self::after_changes(&self.direction, self.seed, self.way, self.changes);
        let before = std::mem::replace(self, again);
        self.queue_max_before = (before.queue_max_bytes(), before.queue_max_ns());
    }

    /// Handles a packet of `bytes` that reaches the link at `now_ns`.
    pub fn handle_packet(&mut self, bytes: usize, now_ns: u64) -> Verdict {
        self.packets += 1;
        let Some(sent_ns) = self.wire.send(bytes as u64, now_ns) else {
            return Verdict::QueueFull;
        };
        let arrival_ns = self.jitter.arrives_ns(bytes as u64, sent_ns, self.direction.delay_ns);
        // Drawn for each packet that the wire sends, so that packets lost by their number do not
        // affect others.
        let lost = self.loss.next_is_lost();
        self.verdict(
            lost || self.direction.lose_packets.binary_search(&self.packets).is_ok(),
            arrival_ns,
        )
    }

    /// Handles a packet of a flow from before time zero: it has no number and does not affect the
    /// draws of others.
    pub fn handle_earlier_packet(&mut self, bytes: usize, now_ns: u64) -> Verdict {
        let Some(sent_ns) = self.wire.send(bytes as u64, now_ns) else {
            return Verdict::QueueFull;
        };
        let arrival_ns =
            self.jitter.earlier_arrives_ns(bytes as u64, sent_ns, self.direction.delay_ns);
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

    /// Counts a packet that reached the link, but not its queue.
    pub fn skip_packet(&mut self) {
        self.packets += 1;
    }

    /// Returns the bytes that wait for the rate at `now_ns`, which never goes back.
    pub fn queued_bytes(&mut self, now_ns: u64) -> u64 {
        self.wire.queued_bytes(now_ns)
    }

    /// Returns the maximum bytes that ever waited, including the packet just accepted.
    pub fn queue_max_bytes(&self) -> u64 {
        self.wire.queue_max().0.max(self.queue_max_before.0)
    }

    /// Returns the maximum time from a packet's acceptance to its last bit on the wire.
    pub fn queue_max_ns(&self) -> u64 {
        self.wire.queue_max().1.max(self.queue_max_before.1)
    }
}
