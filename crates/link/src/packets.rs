//! The log of packets, `--packets FILE`: one row for each packet in the order in which they reached the link.
//!
//! ```text
//! emulator's thread ── chunks of records ──► writer's thread ──► FILE
//!                   ◄── emptied chunks ────
//! ```
//!
//! The emulator appends small records to memory that was there before and hands on whole chunks: it makes no file system call and
//! never waits. What becomes of a packet is known only later, and is a record of its own; the writer puts both together.

mod description;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use crate::scheduler::Way;
use description::Description;

pub(crate) use writer::{Cell, Writer};

/// Rows that are not written yet, because their packets are on their way or the disk is slow. Further packets are counted instead of
/// logged. With their records, some 50 MB.
pub const MAX_ROWS_IN_MEMORY: u64 = 1 << 18;
/// Records that are handed on at a time.
const CHUNK_RECORDS: usize = 4096;
/// A row that is not written yet has at most two records; one chunk is being filled, one emptied, one is handed over.
const CHUNKS: usize = 2 * MAX_ROWS_IN_MEMORY as usize / CHUNK_RECORDS + 3;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Handed to the other side.
    Delivered,
    /// Lost on the way, as the profile says.
    Lost,
    /// The queue had no room for it.
    QueueFull,
    /// Dropped by a rule that blocks.
    Blocked,
    /// Dropped by a rule that polices.
    Policed,
    /// Dropped at the emulator's memory bound.
    Overflow,
    /// Longer than the link's MTU.
    Oversized,
    /// Refused by the receiving device.
    WriteFailed,
    /// Still on its way when the link stopped.
    Held,
}

impl Fate {
    /// As the column `fate` has it.
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
struct Arrival {
    at_ns: u64,
    queue_bytes: u64,
    way: Way,
    bytes: u16,
    description: Description,
}

#[derive(Debug)]
enum Record {
    /// Of the next row.
    Arrived(Arrival),
    Ended {
        row: u64,
        fate: Fate,
        at_ns: u64,
    },
}

type Chunk = Vec<Record>;

/// The emulator's end of the log.
#[derive(Debug)]
pub(crate) struct Recorder {
    chunk: Chunk,
    full: mpsc::Sender<Chunk>,
    emptied: mpsc::Receiver<Chunk>,
    rows: u64,
    written: Arc<AtomicU64>,
    unlogged: u64,
    live_since_ns: u64,
}

/// Which row a packet on its way has; `None` if it could not be logged.
pub(crate) type Row = Option<u64>;

impl Recorder {
    /// Times that it gets from now on count from `live_since_ns` of the monotonic clock.
    pub(crate) fn go_live(&mut self, live_since_ns: u64) {
        self.live_since_ns = live_since_ns;
    }

    /// A packet reached the link, where `queue_bytes` waited for the rate.
    pub(crate) fn arrived(&mut self, packet: &[u8], way: Way, now_ns: u64, queue_bytes: u64) -> Row {
        if self.rows - self.written.load(Ordering::Relaxed) >= MAX_ROWS_IN_MEMORY {
            self.unlogged += 1;
            return None;
        }
        let row = self.rows;
        self.rows += 1;
        let at_ns = self.live_since_ns + now_ns;
        self.push(Record::Arrived(Arrival { at_ns, queue_bytes, way, bytes: packet.len() as u16, description: Description::of(packet) }));
        Some(row)
    }

    pub(crate) fn ended(&mut self, row: Row, fate: Fate, now_ns: u64) {
        if let Some(row) = row {
            self.push(Record::Ended { row, fate, at_ns: self.live_since_ns + now_ns });
        }
    }

    /// Hands on what there is and gives the number of packets that were not logged.
    pub(crate) fn finish(self) -> u64 {
        // Fails only if the writer's thread has panicked, which whoever joins it is told.
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
                // There is always one (see CHUNKS) unless the writer's thread has panicked: then nobody will read these records.
                Err(_) => self.chunk.clear(),
            }
        }
        self.chunk.push(record);
    }
}

#[cfg(test)]
mod tests;
