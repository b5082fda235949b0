//! Buffers for reading files.

use std::cell::RefCell;

use bytes::Bytes;

/// Maximum number of bytes read from a file at once, and that a response buffers of its file.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Number of chunks that a thread keeps for reuse.
const KEPT_CHUNKS: usize = 32;
/// Content below this size is copied, since a few bytes would keep a whole chunk allocated.
const COPIED_BYTES: usize = CHUNK_BYTES / 2;

thread_local! {
    /// The chunk returned last is used first: it is the most likely to be in the processor's
    /// caches.
    static KEPT: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`CHUNK_BYTES`] that is recycled when the last user of its bytes is done, so that
/// memory is zeroed once and not for each read.
pub(crate) struct Chunk {
    buffer: Box<[u8]>,
    length: usize,
}

impl Chunk {
    pub(crate) fn take() -> Self {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        Self { buffer: kept.unwrap_or_else(|| vec![0; CHUNK_BYTES].into()), length: 0 }
    }

    /// Returns a slice for `length` bytes, or for [`CHUNK_BYTES`] if that is less.
    pub(crate) fn room(&mut self, length: usize) -> &mut [u8] {
        &mut self.buffer[..length.min(CHUNK_BYTES)]
    }

    /// Returns the first `length` bytes.
    pub(crate) fn into_bytes(mut self, length: usize) -> Bytes {
        if length < COPIED_BYTES {
            return Bytes::copy_from_slice(&self.buffer[..length]);
        }
        self.length = length;
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // While the thread ends, the list is gone and the chunk is freed.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_CHUNKS {
                kept.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(with: u8, length: usize) -> Bytes {
        let mut chunk = Chunk::take();
        chunk.room(length).fill(with);
        chunk.into_bytes(length)
    }

    #[test]
    fn bytes_that_are_held_are_not_written_over() {
        let held = filled(1, CHUNK_BYTES);
        let other = filled(2, CHUNK_BYTES);
        let part = held.slice(5..);
        drop(held);
        drop(other);
        let _third = filled(3, CHUNK_BYTES);
        assert!(part.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn chunk_is_used_again_when_its_last_bytes_are_dropped() {
        let held = filled(1, CHUNK_BYTES);
        let memory = held.as_ptr();
        drop(held);
        assert_eq!(filled(2, CHUNK_BYTES).as_ptr(), memory);
    }

    #[test]
    fn few_bytes_keep_no_chunk() {
        let _few = filled(1, COPIED_BYTES - 1);
        assert_eq!(KEPT.with(|kept| kept.borrow().len()), 1);
        let _many = filled(1, COPIED_BYTES);
        assert_eq!(KEPT.with(|kept| kept.borrow().len()), 0);
    }

    #[test]
    fn no_more_chunks_are_kept_than_allowed() {
        let held: Vec<_> = (0..2 * KEPT_CHUNKS).map(|_| filled(1, CHUNK_BYTES)).collect();
        drop(held);
        assert_eq!(KEPT.with(|kept| kept.borrow().len()), KEPT_CHUNKS);
    }
}
