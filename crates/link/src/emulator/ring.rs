//! Packets in flight of one direction: a ring buffer, allocated at the start with the size that the
//! profile requires.
//!
//! ```text
//!            free                 oldest                        newest        free
//!  |                      |head|packet|head|packet| … |head|packet|             |
//!                         tail                                     head
//! ```
//!
//! A packet uses its own length and a few bytes. Its memory is free again once it and all older
//! packets have left. Pages become resident on first use and stay.
#![expect(unsafe_code, reason = "memory that is not the allocator's, and locked")]

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, MlockFlags, ProtFlags};

use crate::profile::MTU;

/// Length, and whether the packet has left.
const HEAD_BYTES: usize = 4;
/// No packet is longer.
const ENTRY_BYTES: usize = HEAD_BYTES + MTU;
/// An IP header: what the smallest packet has.
const SMALLEST_PACKET_BYTES: u64 = 20;

/// Position of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At(u32);

#[derive(Debug)]
pub(super) struct Ring {
    memory: Memory,
    head: usize,
    tail: usize,
    /// End of the newest part if it wrapped around to the beginning of the memory; the older part
    /// ends there.
    wrapped_at: Option<usize>,
    /// Packets between tail and head, including those that have left.
    entries: usize,
}

impl Ring {
    /// Returns a ring with capacity for this many bytes of packets, however small they are.
    pub(super) fn new(packet_bytes: u64) -> std::io::Result<Self> {
        let heads = packet_bytes / SMALLEST_PACKET_BYTES * HEAD_BYTES as u64;
        // A packet that does not fit at the end of the memory leaves that space unused.
        let bytes = packet_bytes + heads + 2 * ENTRY_BYTES as u64;
        Ok(Self {
            memory: Memory::new(bytes as usize)?,
            head: 0,
            tail: 0,
            wrapped_at: None,
            entries: 0,
        })
    }

    /// Returns whether a packet of any length fits.
    pub(super) fn has_room(&self) -> bool {
        self.place(ENTRY_BYTES).is_some()
    }

    /// Stores a packet. Returns `None` if it does not fit.
    pub(super) fn push(&mut self, packet: &[u8]) -> Option<At> {
        let entry_bytes = HEAD_BYTES + packet.len();
        let at = self.place(entry_bytes)?;
        if at < self.head {
            self.wrapped_at = Some(self.head);
        }
        self.head = at + entry_bytes;
        self.entries += 1;
        let memory = self.memory.bytes_mut();
        memory[at..at + HEAD_BYTES].copy_from_slice(&head(packet.len(), false));
        memory[at + HEAD_BYTES..at + entry_bytes].copy_from_slice(packet);
        Some(At(at as u32))
    }

    pub(super) fn packet(&self, At(at): At) -> &[u8] {
        let begin = at as usize + HEAD_BYTES;
        &self.memory.bytes()[begin..begin + self.entry(at as usize).0]
    }

    /// Frees a packet.
    pub(super) fn free(&mut self, At(at): At) {
        let (length, _) = self.entry(at as usize);
        self.memory.bytes_mut()[at as usize..at as usize + HEAD_BYTES]
            .copy_from_slice(&head(length, true));
        while self.entries > 0 {
            let (length, has_left) = self.entry(self.tail);
            if !has_left {
                return;
            }
            self.entries -= 1;
            self.tail += HEAD_BYTES + length;
            if self.wrapped_at == Some(self.tail) {
                (self.tail, self.wrapped_at) = (0, None);
            }
        }
        // Start again at the beginning, so that an idle link stays on a few pages.
        (self.head, self.tail, self.wrapped_at) = (0, 0, None);
    }

    fn place(&self, entry_bytes: usize) -> Option<usize> {
        if self.wrapped_at.is_some() {
            return (self.tail - self.head >= entry_bytes).then_some(self.head);
        }
        if self.memory.length - self.head >= entry_bytes {
            return Some(self.head);
        }
        (self.tail >= entry_bytes).then_some(0)
    }

    fn entry(&self, at: usize) -> (usize, bool) {
        let memory = self.memory.bytes();
        (usize::from(u16::from_ne_bytes([memory[at], memory[at + 1]])), memory[at + 2] != 0)
    }
}

fn head(length: usize, has_left: bool) -> [u8; HEAD_BYTES] {
    let [first, second] = (length as u16).to_ne_bytes();
    [first, second, has_left.into(), 0]
}

/// Zeroed, private memory, with pages locked on first use where permitted: a page that the kernel
/// reclaims delays the packet that needs it by milliseconds.
#[derive(Debug)]
struct Memory {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Memory {}

impl Memory {
    fn new(length: usize) -> std::io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing else.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // SAFETY: the mapping has this length. Without the right to lock memory the link still
        // works; its report says how late it was.
        let _ = unsafe { rustix::mm::mlock_with(start, length, MlockFlags::ONFAULT) };
        Ok(Self {
            start: NonNull::new(start).expect("invariant: the kernel maps nothing at address 0"),
            length,
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, initialised by the kernel, has this length and lives as
        // long as this value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<u8>(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and writable; nothing else refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast::<u8>(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it is left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requested_bytes_fit_at_any_packet_size() {
        for length in [20, 21, 40, 333, 1499, 1500] {
            let mut ring = Ring::new(300_000).unwrap();
            let packet = vec![7; length];
            let count = 300_000 / length;
            // Two rounds, so that some packet crosses the end of the memory.
            let mut held = std::collections::VecDeque::new();
            for number in 0..count * 2 + 7 {
                if held.len() == count {
                    ring.free(held.pop_front().unwrap());
                }
                held.push_back(
                    ring.push(&packet)
                        .unwrap_or_else(|| panic!("{length}: packet {number} of {count}")),
                );
            }
            while let Some(at) = held.pop_front() {
                ring.free(at);
            }
            assert_eq!((ring.head, ring.entries), (0, 0));
        }
    }

    #[test]
    fn packet_for_a_full_ring_is_refused_until_the_oldest_is_freed() {
        let mut ring = Ring::new(3000).unwrap();
        let mut held = Vec::new();
        while ring.has_room() {
            held.push(ring.push(&[1; 1500]).unwrap());
        }
        assert!(held.len() >= 2 && ring.push(&[1; 1500]).is_none());
        ring.free(held[1]);
        assert!(ring.push(&[2; 1500]).is_none());
        ring.free(held[0]);
        assert_eq!(ring.push(&[2; 1500]).map(|at| ring.packet(at)[0]), Some(2));
    }

    proptest! {
        /// In any order of removal, packets are unchanged and their memory is freed.
        #[test]
        fn packets_are_unchanged_in_any_order_of_removal(steps in prop::collection::vec((20usize..=1500, 0usize..8, any::<bool>()), 1..400)) {
            let mut ring = Ring::new(12_000).unwrap();
            let mut held: Vec<(At, Vec<u8>)> = Vec::new();
            for (number, (length, leaves, is_burst)) in steps.into_iter().enumerate() {
                let packet = vec![number as u8; length];
                if let Some(at) = ring.push(&packet) {
                    held.push((at, packet));
                }
                if !is_burst && !held.is_empty() {
                    let (at, packet) = held.remove(leaves % held.len());
                    prop_assert_eq!(ring.packet(at), packet);
                    ring.free(at);
                }
                for (at, packet) in &held {
                    prop_assert_eq!(ring.packet(*at), packet);
                }
            }
            for (at, packet) in held {
                prop_assert_eq!(ring.packet(at), packet);
                ring.free(at);
            }
            prop_assert!(ring.has_room() && ring.entries == 0);
        }
    }
}
