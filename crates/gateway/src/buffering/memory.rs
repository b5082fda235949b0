//! The part of a buffered response in memory.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::memory_limit::Reservation;

/// Memory is allocated and counted in blocks of this size. Received data is copied into them: a
/// piece of a few bytes may keep the whole read buffer allocated.
pub(super) const BLOCK_BYTES: usize = 16 << 10;

pub(super) struct Memory {
    full: VecDeque<Bytes>,
    last: BytesMut,
    most: u64,
    reservation: Reservation,
}

impl Memory {
    /// `most` is a number of bytes.
    pub(super) fn new(most: u64, reservation: Reservation) -> Self {
        Self { full: VecDeque::new(), last: BytesMut::new(), most, reservation }
    }

    /// Takes as much of the piece as the limits allow.
    pub(super) fn put(&mut self, piece: &mut Bytes) {
        while !piece.is_empty() {
            let mut free = self.last.capacity() - self.last.len();
            if free == 0 {
                let block = BLOCK_BYTES as u64;
                if self.reservation.bytes() + block > self.most || !self.reservation.grow(block) {
                    return;
                }
                let full = std::mem::replace(&mut self.last, BytesMut::with_capacity(BLOCK_BYTES));
                if !full.is_empty() {
                    self.full.push_back(full.freeze());
                }
                free = BLOCK_BYTES;
            }
            let count = free.min(piece.len());
            self.last.extend_from_slice(&piece[..count]);
            piece.advance(count);
        }
    }

    /// Returns the oldest block. It no longer counts here.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        let first = self
            .full
            .pop_front()
            .or_else(|| (!self.last.is_empty()).then(|| std::mem::take(&mut self.last).freeze()))?;
        self.reservation.shrink(BLOCK_BYTES as u64);
        Some(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory_limit::SharedLimit;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_their_pieces() {
        let bound = Arc::new(SharedLimit::new(1 << 20));
        let mut memory = Memory::new(1 << 20, bound.begin());
        let content: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let mut rest = &content[..];
        for size in [1, 2, 16_383, 16_384, 16_385, 100_000].iter().cycle() {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            memory.put(&mut Bytes::copy_from_slice(piece));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let mut found = Vec::new();
        while let Some(piece) = memory.take() {
            found.extend_from_slice(&piece);
        }
        assert!(found == content && memory.is_empty());
        assert_eq!(bound.held(), 0);
    }

    #[test]
    fn no_more_is_taken_than_there_is_room_for() {
        let bound = Arc::new(SharedLimit::new(3 * BLOCK_BYTES as u64));
        let memory = || Memory::new(2 * BLOCK_BYTES as u64, bound.begin());
        let (mut one, mut other) = (memory(), memory());
        let mut piece = Bytes::from(vec![1; 4 * BLOCK_BYTES]);
        one.put(&mut piece);
        assert_eq!(piece.len(), 2 * BLOCK_BYTES, "the limit of one response");
        other.put(&mut piece);
        assert_eq!(
            (piece.len(), bound.held()),
            (BLOCK_BYTES, 3 * BLOCK_BYTES as u64),
            "the limit of all responses"
        );
        one.take();
        other.put(&mut piece);
        assert!(piece.is_empty());
    }

    #[test]
    fn single_bytes_take_no_block_each() {
        let bound = Arc::new(SharedLimit::new(1 << 20));
        let mut memory = Memory::new(1 << 20, bound.begin());
        (0..BLOCK_BYTES).for_each(|_| memory.put(&mut Bytes::from_static(b"x")));
        assert_eq!(bound.held(), BLOCK_BYTES as u64);
    }
}
