//! A cache of recently requested small files.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use rustc_hash::FxBuildHasher;

use crate::static_files::file_state::FileState;
use crate::static_files::root::FileIdentity;

/// Maximum size of one worker's cache in bytes, overhead included.
const MAX_BYTES: usize = 16 << 20;
/// Maximum number of entries.
const MAX_ENTRIES: usize = 4096;
/// Approximate overhead of an entry besides content and path: the fields, their table, the entry
/// itself.
const ENTRY_BYTES: usize = 1 << 10;

/// Small files by path, evicted by the clock algorithm: entries unused since the hand last passed
/// go first.
///
/// The cache does not access the disk: the caller checks whether an entry is still valid.
#[derive(Default)]
pub(crate) struct FileCache {
    /// Keys are names of existing files, so clients cannot choose them to collide.
    index: HashMap<Rc<[u8]>, usize, FxBuildHasher>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

/// A cached file.
pub(crate) struct Entry {
    pub(crate) identity: FileIdentity,
    /// Whether any later change is visible in the identity; otherwise the entry is valid only for
    /// the turn in which it was checked.
    pub(crate) is_settled: bool,
    pub(crate) state: FileState,
    pub(crate) content: Bytes,
    /// The worker's turn in which the entry was last found valid.
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

    /// Inserts or replaces an entry, and evicts others if needed.
    pub(crate) fn insert(&mut self, path: &[u8], entry: Entry) {
        self.remove(path);
        let path: Rc<[u8]> = path.into();
        let slot = Slot { path: path.clone(), entry, was_used: false };
        self.bytes += slot.cost();
        while !self.slots.is_empty() && (self.bytes > MAX_BYTES || self.slots.len() >= MAX_ENTRIES)
        {
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

    /// Evicts the next entry that was unused since the hand last passed.
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
        if let Some(current_folder) = self.slots.get(number) {
            *self
                .index
                .get_mut(&current_folder.path)
                .expect("invariant: every slot is in the index") = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(length: usize) -> Entry {
        Entry {
            identity: FileIdentity::default(),
            is_settled: true,
            state: FileState::of_length(length as u64),
            content: vec![0; length].into(),
            checked: None,
        }
    }

    fn name(number: usize) -> Vec<u8> {
        number.to_string().into_bytes()
    }

    /// Checks that the counts match the slots and that the index finds each slot.
    fn check(cache: &FileCache) {
        assert_eq!(cache.bytes, cache.slots.iter().map(Slot::cost).sum::<usize>());
        assert_eq!(cache.index.len(), cache.slots.len());
        assert!(
            cache.slots.iter().enumerate().all(|(number, slot)| cache.index[&slot.path] == number)
        );
        assert!(cache.bytes <= MAX_BYTES && cache.slots.len() <= MAX_ENTRIES);
    }

    #[test]
    fn many_small_files_stay_below_the_number_of_entries() {
        let mut cache = FileCache::default();
        for number in 0..2 * MAX_ENTRIES {
            cache.insert(&name(number), entry(1));
        }
        check(&cache);
        assert_eq!(cache.slots.len(), MAX_ENTRIES);
    }

    #[test]
    fn files_of_the_largest_size_stay_below_the_number_of_bytes() {
        let mut cache = FileCache::default();
        for number in 0..1000 {
            cache.insert(&name(number), entry(64 << 10));
            check(&cache);
        }
        assert!(cache.bytes > MAX_BYTES - (128 << 10));
    }

    #[test]
    fn file_that_is_asked_for_outlives_those_that_are_not() {
        let mut cache = FileCache::default();
        for number in 0..10 * MAX_ENTRIES {
            cache.insert(&name(number), entry(1));
            assert!(cache.entry(&name(0)).is_some());
        }
        check(&cache);
    }

    #[test]
    fn file_that_is_taken_up_again_is_there_once() {
        let mut cache = FileCache::default();
        for number in [1, 2, 3, 1, 1, 3] {
            cache.insert(&name(number), entry(number));
            check(&cache);
        }
        assert_eq!(cache.slots.len(), 3);
        cache.remove(&name(1));
        check(&cache);
        assert!(cache.entry(&name(1)).is_none());
        assert_eq!(cache.entry(&name(3)).map(|entry| entry.content.len()), Some(3));
    }
}
