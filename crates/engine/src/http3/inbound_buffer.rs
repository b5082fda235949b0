//! Content of a stream that was received and has not been read yet.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use crate::memory::{Charge, MemoryPressure, WorkerMemory};

/// Bytes of content buffered for an application that does not read. Beyond this, the transport's
/// flow control holds back the peer.
const MAX_BYTES: usize = 64 << 10;
/// The same while memory is short.
const PRESSED_BYTES: usize = 8 << 10;
/// Smaller pieces are copied out of their datagrams.
const COPIED_BYTES: usize = 1 << 10;
/// Memory overhead of a piece besides its bytes.
const PIECE_BYTES: usize = 64;

fn cost(data: &Bytes) -> usize {
    data.len() + PIECE_BYTES
}

/// The received pieces, in order, and whether their stream is paused.
#[derive(Default)]
pub(super) struct InboundBuffer {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// The driver has stopped reading because the application does not.
    paused: bool,
    held: Charge,
}

/// Returns how many bytes may be buffered.
fn max_bytes(memory: &WorkerMemory) -> usize {
    if memory.pressure() >= MemoryPressure::SmallWindows { PRESSED_BYTES } else { MAX_BYTES }
}

impl InboundBuffer {
    pub(super) fn push(&mut self, data: Bytes, memory: &Rc<WorkerMemory>) {
        // A small piece would keep the whole datagram alive that it is part of.
        let data = if data.len() < COPIED_BYTES { Bytes::copy_from_slice(&data) } else { data };
        self.bytes += cost(&data);
        self.pieces.push_back(data);
        self.held.set(memory, self.bytes as u64);
    }

    pub(super) fn pop(&mut self, memory: &Rc<WorkerMemory>) -> Option<Bytes> {
        let data = self.pieces.pop_front()?;
        self.bytes -= cost(&data);
        self.held.set(memory, self.bytes as u64);
        Some(data)
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
        self.held = Charge::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns how many more bytes the application accepts now, and records whether that is none.
    pub(super) fn capacity(&mut self, memory: &WorkerMemory) -> usize {
        let capacity = max_bytes(memory).saturating_sub(self.bytes);
        self.paused = capacity == 0;
        capacity
    }

    /// Returns the capacity of an empty buffer, for content that is kept however much there is.
    pub(super) fn full_capacity(&mut self) -> usize {
        self.paused = false;
        MAX_BYTES
    }

    /// Accepts nothing for now.
    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the driver has stopped reading and should go on.
    pub(super) fn should_resume(&self, memory: &WorkerMemory) -> bool {
        self.paused && self.bytes < max_bytes(memory) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryBudget;

    #[test]
    fn reading_resumes_once_half_of_a_full_buffer_was_read() {
        let (mut buffer, memory) = (InboundBuffer::default(), Rc::new(WorkerMemory::default()));
        let piece = Bytes::from_static(&[0; 4096]);
        while buffer.capacity(&memory) > 0 {
            buffer.push(piece.clone(), &memory);
        }
        assert!(buffer.is_paused());
        assert!(memory.held() >= MAX_BYTES as u64);
        while !buffer.should_resume(&memory) {
            assert!(buffer.pop(&memory).is_some());
        }
        assert_eq!(buffer.pieces.len(), (MAX_BYTES / 2 - 1) / cost(&piece));
        buffer.clear();
        assert_eq!((buffer.capacity(&memory), buffer.is_paused()), (MAX_BYTES, false));
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn small_pieces_are_copied_and_counted_with_their_overhead() {
        let datagram = Bytes::from(vec![0; 1200]);
        let (mut buffer, memory) = (InboundBuffer::default(), Rc::new(WorkerMemory::default()));
        let mut pushed = 0;
        while buffer.capacity(&memory) > 0 {
            buffer.push(datagram.slice(..1), &memory);
            pushed += 1;
        }
        assert_eq!(pushed, MAX_BYTES.div_ceil(1 + PIECE_BYTES));
        let piece = buffer.pop(&memory).expect("a piece");
        assert!(!datagram.as_ptr_range().contains(&piece.as_ptr()));
    }

    #[test]
    fn buffer_is_small_under_pressure_and_resumes_when_that_is_half_empty() {
        let budget = MemoryBudget::new(1000);
        let mut hold = budget.hold();
        hold.grow(500);
        let (mut buffer, memory) =
            (InboundBuffer::default(), Rc::new(WorkerMemory::new(budget.clone())));
        let piece = Bytes::from_static(&[0; 1024]);
        let mut pushed = 0;
        while buffer.capacity(&memory) > 0 {
            buffer.push(piece.clone(), &memory);
            pushed += 1;
        }
        assert_eq!(pushed, PRESSED_BYTES.div_ceil(cost(&piece)));
        while !buffer.should_resume(&memory) {
            assert!(buffer.pop(&memory).is_some());
        }
        assert!(buffer.capacity(&memory) > PRESSED_BYTES / 2);
        drop(hold);
        memory.begin_turn();
        assert!(buffer.capacity(&memory) > MAX_BYTES / 2);
    }
}
