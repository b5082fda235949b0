//! Counters of the emulator.

use serde::Serialize;

use crate::cpu::CpuTime;
use crate::flow;
use crate::lateness::LatenessCounters;

/// Counters from the last start, or from going live, to the stop.
#[derive(Debug)]
pub struct Counts {
    /// Client to server.
    pub up: DirectionCounts,
    /// Server to client.
    pub down: DirectionCounts,
    /// Per flow.
    pub flows: flow::Table,
    /// Packets that did not fit in the packet log.
    pub packets_unlogged: u64,
    /// Time from going live to the stop.
    pub duration_ns: u64,
    /// Time of going live, on the monotonic clock.
    pub live_since_ns: u64,
    /// Processor time of the emulator's thread in that time.
    pub cpu: CpuTime,
    /// Time zero of the profile's schedule, since going live; `None` if the client has begun no
    /// flow since the last start.
    pub time_zero_ns: Option<u64>,
    /// When each of the profile's changes was made, since going live; later ones may be missing.
    pub changes_made_ns: Vec<u64>,
}

/// Counters of one direction since the last start.
#[derive(Debug, Clone)]
pub struct DirectionCounts {
    /// Packets and bytes.
    pub counters: DirectionCounters,
    /// Maximum bytes that waited for the rate.
    pub queue_max_bytes: u64,
    /// Maximum time that a packet waited for the rate.
    pub queue_max_ns: u64,
    /// Lateness of packets, relative to their deadlines.
    pub lateness: LatenessCounters,
}

/// Packets and bytes of one direction, as they stand in the report. `packets_in` is the sum of the
/// other packet counts.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct DirectionCounters {
    /// Packets that reached the link.
    pub packets_in: u64,
    /// Their bytes, IP headers included.
    pub bytes_in: u64,
    /// Packets handed to the receiving side.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Packets lost on the link, as the profile requests.
    pub packets_lost: u64,
    /// Their bytes.
    pub bytes_lost: u64,
    /// Packets dropped because the queue was full, as the profile requests.
    pub packets_queue_dropped: u64,
    /// Their bytes.
    pub bytes_queue_dropped: u64,
    /// Packets dropped by a blocking rule, as the profile requests.
    pub packets_blocked: u64,
    /// Their bytes.
    pub bytes_blocked: u64,
    /// Packets dropped by a policing rule, as the profile requests.
    pub packets_policed: u64,
    /// Their bytes.
    pub bytes_policed: u64,
    /// Packets in flight at the end.
    pub packets_held_at_end: u64,
    /// Maximum packets in flight at once, including those that waited for the rate.
    pub held_max_packets: u64,
    /// Packets dropped at the emulator's memory bound, not as the profile requests.
    pub packets_overflowed: u64,
    /// Packets dropped because they were longer than the link's MTU.
    pub packets_oversized: u64,
    /// Packets refused by the receiving device, not as the profile requests.
    pub packets_write_failed: u64,
}

impl DirectionCounters {
    pub(super) fn delivered(&mut self, bytes: u64, written: bool) {
        if written {
            self.packets_out += 1;
            self.bytes_out += bytes;
        } else {
            self.packets_write_failed += 1;
        }
    }
}
