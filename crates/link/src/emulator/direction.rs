//! One direction of the emulator: scheduler, packets in flight, counters.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::clock::Clock;
use super::counters::{DirectionCounters, DirectionCounts};
use super::records::Records;
use super::ring::{At, Ring};
use crate::lateness::LatenessCounters;
use crate::packets::{Fate, Row};
use crate::profile::{Direction, MTU, Profile};
use crate::rules::{Dropped, Rules};
use crate::scheduler::{Scheduler, Verdict};
use crate::way::Way;

/// One byte more than the maximum, so that a longer packet is noticed.
const BUFFER_BYTES: usize = MTU + 1;
/// Maximum packets read from one device before deadlines are checked again.
const READ_BATCH: usize = 32;

/// One direction.
pub(super) struct DirectionEmulator {
    way: Way,
    /// `None` before the link is live: packets pass immediately and uncounted. Its time begins at
    /// `zero_ns`.
    scheduler: Option<Scheduler>,
    zero_ns: u64,
    /// Epoch of the clock when the scheduler began.
    epoch: u32,
    rules: Rules,
    /// Packets in flight, in order of their deadlines.
    in_flight: VecDeque<InFlight>,
    packets: Ring,
    /// Buffer for the next read.
    buffer: Box<[u8; BUFFER_BYTES]>,
    counters: DirectionCounters,
    lateness: LatenessCounters,
}

struct InFlight {
    deadline_ns: u64,
    /// False if the packet was in flight at a start and does not belong to the load.
    counts: bool,
    row: Row,
    packet: At,
}

impl DirectionEmulator {
    pub(super) fn new(way: Way, profile: &Profile) -> io::Result<Self> {
        Ok(Self {
            way,
            scheduler: None,
            zero_ns: 0,
            epoch: 0,
            rules: Rules::default(),
            in_flight: VecDeque::with_capacity(1024),
            packets: Ring::new(profile.held_bytes(way))?,
            buffer: Box::new([0; BUFFER_BYTES]),
            counters: DirectionCounters::default(),
            lateness: LatenessCounters::new(profile),
        })
    }

    /// Applies the profile from its beginning, and counts from now on. Packets in flight keep their
    /// deadlines.
    pub(super) fn start(&mut self, profile: &Profile, seed: u64, clock: &Clock) {
        let direction = match self.way {
            Way::Up => &profile.up,
            Way::Down => &profile.down,
        };
        self.scheduler = Some(Scheduler::new(direction, seed, self.way));
        (self.zero_ns, self.epoch) = (clock.zero_ns(), clock.epoch());
        self.rules = Rules::new(&profile.rules, self.way);
        self.counters = DirectionCounters::default();
        self.lateness = LatenessCounters::new(profile);
        self.in_flight.iter_mut().for_each(|packet| packet.counts = false);
    }

    /// Stops counting lateness after the load has ended.
    pub(super) fn freeze_lateness(&mut self) {
        self.lateness.freeze();
    }

    /// Restarts with full rule buckets if time zero has changed. Packets in flight keep their
    /// deadlines.
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

    /// Reads packets until there are no more or a batch is full. Returns true if there may be more.
    pub(super) fn read(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        records: &mut Records,
        now: impl Fn() -> u64,
    ) -> Result<bool, Errno> {
        for _ in 0..READ_BATCH {
            let length = match rustix::io::read(from, &mut self.buffer[..]) {
                Ok(length) => length,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            let now_ns = now();
            if self.way == Way::Up && self.scheduler.is_some() {
                records
                    .clock
                    .on_client_packet(now_ns, || records.flows.begins_with(&self.buffer[..length]));
            }
            self.follow(&records.clock);
            self.accept(length, to, records, now_ns);
        }
        Ok(true)
    }

    /// Handles a packet that was read.
    fn accept(&mut self, length: usize, to: &OwnedFd, records: &mut Records, now_ns: u64) {
        let packet = &self.buffer[..length];
        let Some(scheduler) = &mut self.scheduler else {
            // Before the link is live nothing is guaranteed: a packet that the device refuses is
            // lost.
            let _ = rustix::io::write(to, &packet[..length.min(MTU)]);
            return;
        };
        let since_zero_ns = now_ns - self.zero_ns;
        let counters = &mut self.counters;
        counters.packets_in += 1;
        counters.bytes_in += length as u64;
        let row = records.packets.as_mut().and_then(|log| {
            let queue_bytes = scheduler.queued_bytes(since_zero_ns);
            log.arrived(packet, self.way, now_ns, queue_bytes)
        });
        let seen = records.flows.see(packet, self.way, now_ns);
        // Packets of earlier flows share the wire with the load, but use neither its numbers nor
        // its draws.
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
            records.log_end(row, Fate::Oversized, now_ns);
            return;
        }
        let dropped =
            seen.key.and_then(|key| self.rules.handle_packet(&key, seen.since_ns, length, now_ns));
        if let Some(dropped) = dropped {
            skip(scheduler);
            let (of_flow, packets, bytes, fate) = match dropped {
                Dropped::Blocked => (
                    &mut flow.packets_blocked,
                    &mut counters.packets_blocked,
                    &mut counters.bytes_blocked,
                    Fate::Blocked,
                ),
                Dropped::Policed => (
                    &mut flow.packets_policed,
                    &mut counters.packets_policed,
                    &mut counters.bytes_policed,
                    Fate::Policed,
                ),
            };
            *of_flow += 1;
            *packets += 1;
            *bytes += length as u64;
            records.log_end(row, fate, now_ns);
            return;
        }
        if !self.packets.has_room() {
            counters.packets_overflowed += 1;
            skip(scheduler);
            records.log_end(row, Fate::Overflow, now_ns);
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
                let packet = self
                    .packets
                    .push(packet)
                    .expect("invariant: there was room for a packet of any length");
                insert(&mut self.in_flight, InFlight { deadline_ns, counts: true, row, packet });
                counters.held_max_packets =
                    counters.held_max_packets.max(self.in_flight.len() as u64);
            }
            Verdict::Lost => {
                flow.packets_lost += 1;
                counters.packets_lost += 1;
                counters.bytes_lost += length as u64;
                records.log_end(row, Fate::Lost, now_ns);
            }
            Verdict::QueueFull => {
                flow.packets_queue_dropped += 1;
                counters.packets_queue_dropped += 1;
                counters.bytes_queue_dropped += length as u64;
                records.log_end(row, Fate::QueueFull, now_ns);
            }
        }
    }

    /// Delivers packets that are due.
    pub(super) fn deliver(
        &mut self,
        to: BorrowedFd<'_>,
        records: &mut Records,
        now: impl Fn() -> u64,
    ) {
        while let Some(first) = self.in_flight.front() {
            let now_ns = now();
            if first.deadline_ns > now_ns {
                return;
            }
            let packet = self.in_flight.pop_front().expect("invariant: front() has just seen it");
            let bytes = self.packets.packet(packet.packet);
            let written = rustix::io::retry_on_intr(|| rustix::io::write(to, bytes));
            let fate = if written.is_ok() { Fate::Delivered } else { Fate::WriteFailed };
            if packet.counts {
                self.counters.delivered(bytes.len() as u64, written.is_ok());
                self.lateness.record(now_ns - packet.deadline_ns);
            }
            records.log_end(packet.row, fate, now_ns);
            self.packets.free(packet.packet);
        }
    }

    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.in_flight.front().map(|packet| packet.deadline_ns)
    }

    pub(super) fn finish(mut self) -> DirectionCounts {
        self.counters.packets_held_at_end =
            self.in_flight.iter().filter(|packet| packet.counts).count() as u64;
        let (queue_max_bytes, queue_max_ns) = self
            .scheduler
            .as_ref()
            .map_or((0, 0), |scheduler| (scheduler.queue_max_bytes(), scheduler.queue_max_ns()));
        DirectionCounts {
            counters: self.counters,
            queue_max_bytes,
            queue_max_ns,
            lateness: self.lateness,
        }
    }
}

/// Inserts a packet by deadline. Packets with the same deadline keep their order. The position is
/// not the end only where packets may overtake.
fn insert(in_flight: &mut VecDeque<InFlight>, packet: InFlight) {
    if in_flight.back().is_none_or(|last| last.deadline_ns <= packet.deadline_ns) {
        in_flight.push_back(packet);
    } else {
        let place = in_flight.partition_point(|other| other.deadline_ns <= packet.deadline_ns);
        in_flight.insert(place, packet);
    }
}

#[cfg(test)]
mod tests;
