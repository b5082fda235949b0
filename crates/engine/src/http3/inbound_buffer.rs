//! Content of a stream that was received and has not been read yet.

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes of content buffered for an application that does not read. Beyond this, the transport's
/// flow control holds back the peer.
const MAX_BYTES: usize = 64 << 10;
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
}

impl InboundBuffer {
    pub(super) fn push(&mut self, data: Bytes) {
        // A small piece would keep the whole datagram alive that it is part of.
        let data = if data.len() < COPIED_BYTES { Bytes::copy_from_slice(&data) } else { data };
        self.bytes += cost(&data);
        self.pieces.push_back(data);
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let data = self.pieces.pop_front()?;
        self.bytes -= cost(&data);
        Some(data)
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns how many more bytes the application accepts now, and records whether that is none.
    pub(super) fn capacity(&mut self) -> usize {
        let capacity = MAX_BYTES.saturating_sub(self.bytes);
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
    pub(super) fn should_resume(&self) -> bool {
        self.paused && self.bytes < MAX_BYTES / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_resumes_once_half_of_a_full_buffer_was_read() {
        let mut buffer = InboundBuffer::default();
        let piece = Bytes::from_static(&[0; 4096]);
        while buffer.capacity() > 0 {
            buffer.push(piece.clone());
        }
        assert!(buffer.is_paused());
        while !buffer.should_resume() {
            assert!(buffer.pop().is_some());
        }
        assert_eq!(buffer.pieces.len(), (MAX_BYTES / 2 - 1) / cost(&piece));
        buffer.clear();
        assert_eq!((buffer.capacity(), buffer.is_paused()), (MAX_BYTES, false));
    }

    #[test]
    fn small_pieces_are_copied_and_counted_with_their_overhead() {
        let datagram = Bytes::from(vec![0; 1200]);
        let mut buffer = InboundBuffer::default();
        let mut pushed = 0;
        while buffer.capacity() > 0 {
            buffer.push(datagram.slice(..1));
            pushed += 1;
        }
        assert_eq!(pushed, MAX_BYTES.div_ceil(1 + PIECE_BYTES));
        let piece = buffer.pop().expect("a piece");
        assert!(!datagram.as_ptr_range().contains(&piece.as_ptr()));
    }
}
