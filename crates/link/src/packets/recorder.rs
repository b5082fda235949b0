//! The emulator's end of the packet log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use super::description::Description;
use crate::way::Way;

/// Maximum rows that are not written yet, because their packets are in flight or the disk is slow.
/// Further packets are counted instead of logged. With their records, these rows use some 50 MB.
pub const MAX_ROWS_IN_MEMORY: u64 = 1 << 18;
/// Number of records per chunk.
pub(super) const CHUNK_RECORDS: usize = 4096;
/// An unwritten row has at most two records; in addition one chunk is being filled, one emptied,
/// and one passed on.
pub(super) const CHUNKS: usize = 2 * MAX_ROWS_IN_MEMORY as usize / CHUNK_RECORDS + 3;

/// Fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Delivered to the other side.
    Delivered,
    /// Lost on the link, as the profile requests.
    Lost,
    /// Dropped because the queue was full.
    QueueFull,
    /// Dropped by a blocking rule.
    Blocked,
    /// Dropped by a policing rule.
    Policed,
    /// Dropped at the emulator's memory bound.
    Overflow,
    /// Longer than the link's MTU.
    Oversized,
    /// Refused by the receiving device.
    WriteFailed,
    /// In flight when the link stopped.
    Held,
}

impl Fate {
    /// Returns the value of the column `fate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Lost => "lost",
            Self::QueueFull => "queue_full",
            Self::Blocked => "blocked",
            Self::Policed => "policed",
            Self::Overflow => "overflow",
            Self::Oversized => "oversized",
            Self::WriteFailed => "write_failed",
            Self::Held => "held",
        }
    }
}

/// A packet that reached the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) at_ns: u64,
    pub(super) queue_bytes: u64,
    pub(super) way: Way,
    pub(super) bytes: u16,
    pub(super) description: Description,
}

#[derive(Debug)]
pub(super) enum Record {
    /// Arrival of the packet of the next row.
    Arrived(Arrival),
    Ended {
        row: u64,
        fate: Fate,
        at_ns: u64,
    },
}

pub(super) type Chunk = Vec<Record>;

/// The emulator's end of the log.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(super) chunk: Chunk,
    pub(super) full: mpsc::Sender<Chunk>,
    pub(super) emptied: mpsc::Receiver<Chunk>,
    pub(super) rows: u64,
    pub(super) written: Arc<AtomicU64>,
    pub(super) unlogged: u64,
    pub(super) live_since_ns: u64,
}

/// Row of a packet in flight; `None` if it was not logged.
pub(crate) type Row = Option<u64>;

impl Recorder {
    /// Goes live: later times are relative to `live_since_ns` of the monotonic clock.
    pub(crate) fn go_live(&mut self, live_since_ns: u64) {
        self.live_since_ns = live_since_ns;
    }

    /// Records a packet that reached the link while `queue_bytes` waited for the rate.
    pub(crate) fn arrived(
        &mut self,
        packet: &[u8],
        way: Way,
        now_ns: u64,
        queue_bytes: u64,
    ) -> Row {
        if self.rows - self.written.load(Ordering::Relaxed) >= MAX_ROWS_IN_MEMORY {
            self.unlogged += 1;
            return None;
        }
        let row = self.rows;
        self.rows += 1;
        let at_ns = self.live_since_ns + now_ns;
        self.push(Record::Arrived(Arrival {
            at_ns,
            queue_bytes,
            way,
            bytes: packet.len() as u16,
            description: Description::of(packet),
        }));
        Some(row)
    }

    pub(crate) fn ended(&mut self, row: Row, fate: Fate, now_ns: u64) {
        if let Some(row) = row {
            self.push(Record::Ended { row, fate, at_ns: self.live_since_ns + now_ns });
        }
    }

    /// Passes on the remaining records, and returns the number of packets that were not logged.
    pub(crate) fn finish(self) -> u64 {
        // Fails only if the writer's thread has panicked, which is reported when it is joined.
        let _ = self.full.send(self.chunk);
        self.unlogged
    }

    fn push(&mut self, record: Record) {
        if self.chunk.len() == CHUNK_RECORDS {
            match self.emptied.try_recv() {
                Ok(next) => {
                    let full = std::mem::replace(&mut self.chunk, next);
                    let _ = self.full.send(full);
                }
                // There is always a chunk (see CHUNKS) unless the writer's thread has panicked:
                // then the records would never be read.
                Err(_) => self.chunk.clear(),
            }
        }
        self.chunk.push(record);
    }
}
