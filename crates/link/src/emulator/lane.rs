//! One direction of the emulator: scheduler, packets on their way, counters.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::Books;
use super::clock::Clock;
use super::ring::{At, Ring};
use crate::lateness::LatenessCounters;
use crate::packets::{Fate, Row};
use crate::profile::{Direction, MTU, Profile};
use crate::rules::{Dropped, Rules};
use crate::scheduler::{Scheduler, Verdict, Way};

/// One byte more than a packet may have, so that a longer one is noticed.
const BUFFER_BYTES: usize = MTU + 1;
/// Read from one device before deadlines are looked at again.
const READ_BATCH: usize = 32;

/// What one direction did since the last start.
#[derive(Debug, Clone)]
pub struct LaneCounters {
    /// Packets that reached the link.
    pub packets_in: u64,
    /// Their bytes, IP headers included.
    pub bytes_in: u64,
    /// Packets handed to the receiving side.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Lost on the way.
    pub packets_lost: u64,
    /// Their bytes.
    pub bytes_lost: u64,
    /// Dropped because the queue was full.
    pub packets_queue_dropped: u64,
    /// Their bytes.
    pub bytes_queue_dropped: u64,
    /// Dropped by a rule that blocks.
    pub packets_blocked: u64,
    /// Their bytes.
    pub bytes_blocked: u64,
    /// Dropped by a rule that polices.
    pub packets_policed: u64,
    /// Their bytes.
    pub bytes_policed: u64,
    /// Dropped because the emulator's own memory bound was reached: not what the profile asked for.
    pub packets_overflowed: u64,
    /// Longer than the link's MTU: somebody raised the device's.
    pub packets_oversized: u64,
    /// Refused by the receiving side's device.
    pub packets_write_failed: u64,
    /// Still on their way when the emulator stopped.
    pub packets_held_at_end: u64,
    /// The most that were on their way at once.
    pub held_max_packets: u64,
    /// The most that waited for the rate.
    pub queue_max_bytes: u64,
    /// The longest wait for the rate.
    pub queue_max_ns: u64,
    /// How long after its deadline each packet was handed over.
    pub lateness: LatenessCounters,
}

impl LaneCounters {
    fn new(profile: &Profile) -> Self {
        Self {
            packets_in: 0,
            bytes_in: 0,
            packets_out: 0,
            bytes_out: 0,
            packets_lost: 0,
            bytes_lost: 0,
            packets_queue_dropped: 0,
            bytes_queue_dropped: 0,
            packets_blocked: 0,
            bytes_blocked: 0,
            packets_policed: 0,
            bytes_policed: 0,
            packets_overflowed: 0,
            packets_oversized: 0,
            packets_write_failed: 0,
            packets_held_at_end: 0,
            held_max_packets: 0,
            queue_max_bytes: 0,
            queue_max_ns: 0,
            lateness: LatenessCounters::new(profile),
        }
    }
}

impl LaneCounters {
    fn delivered(&mut self, bytes: u64, written: bool, lateness_ns: u64) {
        if written {
            self.packets_out += 1;
            self.bytes_out += bytes;
        } else {
            self.packets_write_failed += 1;
        }
        self.lateness.record(lateness_ns);
    }
}

/// One direction.
pub(super) struct Lane {
    way: Way,
    /// `None` before the link is live: packets pass at once and uncounted. Its time begins at `zero_ns`.
    scheduler: Option<Scheduler>,
    zero_ns: u64,
    /// That of the clock when the scheduler began.
    epoch: u32,
    rules: Rules,
    /// In the order of their deadlines.
    held: VecDeque<Held>,
    packets: Ring,
    /// For what is read next.
    buffer: Box<[u8; BUFFER_BYTES]>,
    counters: LaneCounters,
}

struct Held {
    deadline_ns: u64,
    /// False if it was on its way at a start: it is none of the load's.
    counts: bool,
    row: Row,
    packet: At,
}

impl Lane {
    pub(super) fn new(way: Way, profile: &Profile) -> io::Result<Self> {
        Ok(Self {
            way,
            scheduler: None,
            zero_ns: 0,
            epoch: 0,
            rules: Rules::default(),
            held: VecDeque::with_capacity(1024),
            packets: Ring::new(profile.held_bytes(way))?,
            buffer: Box::new([0; BUFFER_BYTES]),
            counters: LaneCounters::new(profile),
        })
    }

    /// Puts the profile in force from its beginning on, and counts from now on. What is on its way keeps its deadline.
    pub(super) fn start(&mut self, profile: &Profile, seed: u64, clock: &Clock) {
        let direction = match self.way {
            Way::Up => &profile.up,
            Way::Down => &profile.down,
        };
        self.scheduler = Some(Scheduler::new(direction, seed, self.way));
        (self.zero_ns, self.epoch) = (clock.zero_ns(), clock.epoch());
        self.rules = Rules::new(&profile.rules, self.way);
        self.counters = LaneCounters::new(profile);
        self.held.iter_mut().for_each(|held| held.counts = false);
    }

    /// The load has ended: how late further packets are says nothing of it.
    pub(super) fn freeze_lateness(&mut self) {
        self.counters.lateness.freeze();
    }

    /// Begins again if time zero is another one, with full buckets of the rules. What is on its way keeps its deadline.
    fn follow(&mut self, clock: &Clock) {
        if self.epoch != clock.epoch() {
            (self.zero_ns, self.epoch) = (clock.zero_ns(), clock.epoch());
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.restart();
            }
            self.rules.refill();
        }
    }

    pub(super) fn change(&mut self, direction: &Direction, clock: &Clock) {
        self.follow(clock);
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.change(direction);
        }
    }

    /// Reads packets until there are no more or a batch is full; true if there may be more.
    pub(super) fn read(&mut self, from: &OwnedFd, to: &OwnedFd, books: &mut Books, now: impl Fn() -> u64) -> Result<bool, Errno> {
        for _ in 0..READ_BATCH {
            let length = match rustix::io::read(from, &mut self.buffer[..]) {
                Ok(length) => length,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            let now_ns = now();
            if self.way == Way::Up && self.scheduler.is_some() {
                books.clock.on_client_packet(now_ns, || books.flows.begins_with(&self.buffer[..length]));
            }
            self.follow(&books.clock);
            self.accept(length, to, books, now_ns);
        }
        Ok(true)
    }

    /// Takes the packet that was read.
    fn accept(&mut self, length: usize, to: &OwnedFd, books: &mut Books, now_ns: u64) {
        let packet = &self.buffer[..length];
        let Some(scheduler) = &mut self.scheduler else {
            // Before the link is live nothing is promised: a packet that the device refuses is gone.
            let _ = rustix::io::write(to, &packet[..length.min(MTU)]);
            return;
        };
        let since_zero_ns = now_ns - self.zero_ns;
        let counters = &mut self.counters;
        counters.packets_in += 1;
        counters.bytes_in += length as u64;
        let row = books.packets.as_mut().and_then(|log| {
            let queue_bytes = scheduler.queued_bytes(since_zero_ns);
            log.arrived(packet, self.way, now_ns, queue_bytes)
        });
        let seen = books.flows.see(packet, self.way, now_ns);
        // What an earlier flow still sends shares the wire with the load, and takes neither its numbers nor its draws.
        let is_earlier = seen.is_earlier;
        let skip = |scheduler: &mut Scheduler| {
            if !is_earlier {
                scheduler.skip_packet();
            }
        };
        let flow = seen.counters;
        flow.packets += 1;
        flow.bytes += length as u64;
        if length > MTU {
            counters.packets_oversized += 1;
            skip(scheduler);
            books.log_end(row, Fate::Oversized, now_ns);
            return;
        }
        let dropped = seen.key.and_then(|key| self.rules.handle_packet(&key, seen.since_ns, length, now_ns));
        if let Some(dropped) = dropped {
            skip(scheduler);
            let (of_flow, packets, bytes, fate) = match dropped {
                Dropped::Blocked => (&mut flow.packets_blocked, &mut counters.packets_blocked, &mut counters.bytes_blocked, Fate::Blocked),
                Dropped::Policed => (&mut flow.packets_policed, &mut counters.packets_policed, &mut counters.bytes_policed, Fate::Policed),
            };
            *of_flow += 1;
            *packets += 1;
            *bytes += length as u64;
            books.log_end(row, fate, now_ns);
            return;
        }
        if !self.packets.has_room() {
            counters.packets_overflowed += 1;
            skip(scheduler);
            books.log_end(row, Fate::Overflow, now_ns);
            return;
        }
        let verdict = if is_earlier {
            scheduler.handle_earlier_packet(length, since_zero_ns)
        } else {
            scheduler.handle_packet(length, since_zero_ns)
        };
        match verdict {
            Verdict::Deliver { deadline_ns } => {
                let deadline_ns = self.zero_ns + deadline_ns;
                let packet = self.packets.push(packet).expect("invariant: there was room for a packet of any length");
                hold(&mut self.held, Held { deadline_ns, counts: true, row, packet });
                counters.held_max_packets = counters.held_max_packets.max(self.held.len() as u64);
            }
            Verdict::Lost => {
                flow.packets_lost += 1;
                counters.packets_lost += 1;
                counters.bytes_lost += length as u64;
                books.log_end(row, Fate::Lost, now_ns);
            }
            Verdict::QueueFull => {
                flow.packets_queue_dropped += 1;
                counters.packets_queue_dropped += 1;
                counters.bytes_queue_dropped += length as u64;
                books.log_end(row, Fate::QueueFull, now_ns);
            }
        }
    }

    /// Hands over what is due.
    pub(super) fn deliver(&mut self, to: BorrowedFd<'_>, books: &mut Books, now: impl Fn() -> u64) {
        while let Some(first) = self.held.front() {
            let now_ns = now();
            if first.deadline_ns > now_ns {
                return;
            }
            let packet = self.held.pop_front().expect("invariant: front() has just seen it");
            let bytes = self.packets.packet(packet.packet);
            let written = rustix::io::retry_on_intr(|| rustix::io::write(to, bytes));
            let fate = if written.is_ok() { Fate::Delivered } else { Fate::WriteFailed };
            if packet.counts {
                self.counters.delivered(bytes.len() as u64, written.is_ok(), now_ns - packet.deadline_ns);
            }
            books.log_end(packet.row, fate, now_ns);
            self.packets.free(packet.packet);
        }
    }

    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.held.front().map(|held| held.deadline_ns)
    }

    pub(super) fn finish(mut self) -> LaneCounters {
        self.counters.packets_held_at_end = self.held.iter().filter(|held| held.counts).count() as u64;
        if let Some(scheduler) = &self.scheduler {
            self.counters.queue_max_bytes = scheduler.queue_max_bytes();
            self.counters.queue_max_ns = scheduler.queue_max_ns();
        }
        self.counters
    }
}

/// Packets with the same deadline keep their order. Only where packets may overtake does one not go to the end.
fn hold(held: &mut VecDeque<Held>, packet: Held) {
    if held.back().is_none_or(|last| last.deadline_ns <= packet.deadline_ns) {
        held.push_back(packet);
    } else {
        let place = held.partition_point(|other| other.deadline_ns <= packet.deadline_ns);
        held.insert(place, packet);
    }
}

#[cfg(test)]
mod tests;
