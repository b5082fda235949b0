//! Small files that were asked for lately.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;

use crate::file_state::FileState;
use crate::root::Identity;

/// Bytes that the cache of one worker takes at most, with what an entry costs besides its content.
const MAX_BYTES: usize = 16 << 20;
/// Entries that it has at most.
const MAX_ENTRIES: usize = 4096;
/// About what an entry takes besides content and path: the fields, their table, the entry itself.
const ENTRY_BYTES: usize = 1 << 10;

/// Small files by path. What was not asked for since the hand of the clock came by the last time goes first.
///
/// It knows nothing of the disk: whoever asks decides whether an entry still holds.
#[derive(Default)]
pub(crate) struct FileCache {
    index: HashMap<Rc<[u8]>, usize>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

/// A file as it was read.
pub(crate) struct Entry {
    pub(crate) identity: Identity,
    /// Whether any later change shows in the identity; otherwise the entry holds for the turn in which it was checked.
    pub(crate) is_settled: bool,
    pub(crate) state: FileState,
    pub(crate) content: Bytes,
    /// The worker's turn in which it was last found to hold.
    pub(crate) checked: Option<u64>,
}

struct Slot {
    path: Rc<[u8]>,
    entry: Entry,
    was_used: bool,
}

impl Slot {
    fn cost(&self) -> usize {
        self.path.len() + self.entry.content.len() + ENTRY_BYTES
    }
}

impl FileCache {
    pub(crate) fn entry(&mut self, path: &[u8]) -> Option<&mut Entry> {
        let slot = &mut self.slots[*self.index.get(path)?];
        slot.was_used = true;
        Some(&mut slot.entry)
    }

    /// Takes up an entry in the place of an older one, and drops others to make room.
    pub(crate) fn insert(&mut self, path: &[u8], entry: Entry) {
        self.remove(path);
        let path: Rc<[u8]> = path.into();
        let slot = Slot { path: path.clone(), entry, was_used: false };
        self.bytes += slot.cost();
        while !self.slots.is_empty() && (self.bytes > MAX_BYTES || self.slots.len() >= MAX_ENTRIES) {
            self.evict();
        }
        self.index.insert(path, self.slots.len());
        self.slots.push(slot);
    }

    pub(crate) fn remove(&mut self, path: &[u8]) {
        if let Some(&number) = self.index.get(path) {
            self.take_out(number);
        }
    }

    /// Drops the next entry that was not used since the hand came by.
    fn evict(&mut self) {
        loop {
            self.hand = if self.hand < self.slots.len() { self.hand } else { 0 };
            if !std::mem::take(&mut self.slots[self.hand].was_used) {
                return self.take_out(self.hand);
            }
            self.hand += 1;
        }
    }

    fn take_out(&mut self, number: usize) {
        let slot = self.slots.swap_remove(number);
        self.bytes -= slot.cost();
        self.index.remove(&slot.path);
        if let Some(moved) = self.slots.get(number) {
            *self.index.get_mut(&moved.path).expect("invariant: every slot is in the index") = number;
        }
    }
}
