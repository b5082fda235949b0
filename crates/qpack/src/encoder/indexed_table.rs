//! The encoder's dynamic table: finds entries by their text and tracks which may be evicted.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hasher,
};

use rustc_hash::{FxBuildHasher, FxHasher};

use super::unacknowledged::{Section, Unacknowledged};
use crate::dynamic_table::{DynamicTable, Entry};

/// A quarter of the table is kept free or draining: entries that will be evicted soon are inserted
/// again instead of referred to, so that there is always something to evict (RFC 9204 section
/// 2.1.1.1).
const DRAINING_SHARE: u64 = 4;

/// Hash keys for finding lines. Two lines rarely share a key; the text is compared too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) name: u64,
    pub(super) line: u64,
}

impl Keys {
    /// `static_name`: static table index of the name, which saves hashing it.
    #[inline]
    pub(super) fn new(name: &[u8], static_name: Option<u8>, value: &[u8]) -> Self {
        let name = match static_name {
            Some(index) => hash(u64::from(index), &[]),
            None => hash(u64::MAX, name),
        };
        Self { name, line: hash(name, value) }
    }
}

fn hash(seed: u64, text: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(seed);
    hasher.write(text);
    hasher.finish()
}

/// Information about an entry in addition to its text.
#[derive(Debug)]
struct Record {
    keys: Keys,
    /// Number of unacknowledged sections whose oldest entry this is.
    references: u32,
}

#[derive(Debug, Default)]
pub(super) struct IndexedTable {
    table: DynamicTable,
    /// One record for each entry, in the same order.
    records: VecDeque<Record>,
    /// Absolute index of the newest entry for each key.
    lines: HashMap<u64, u64, FxBuildHasher>,
    names: HashMap<u64, u64, FxBuildHasher>,
    /// Entries below this index are draining.
    draining: u64,
}

impl IndexedTable {
    pub(super) const fn insert_count(&self) -> u64 {
        self.table.insert_count()
    }

    pub(super) const fn size(&self) -> u64 {
        self.table.size()
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.table.capacity()
    }

    /// Sets the capacity of an empty table.
    //= RFC 9204 section 4.3.1
    //# This MUST NOT cause the eviction of entries that are not evictable; see Section 2.1.1.
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        debug_assert!(self.records.is_empty(), "entries would be evicted that are not evictable");
        self.table.set_capacity(capacity);
    }

    /// Returns the newest entry with this name and value.
    #[inline]
    pub(super) fn find_line(&self, keys: Keys, name: &[u8], value: &[u8]) -> Option<u64> {
        let absolute = *self.lines.get(&keys.line)?;
        let entry = self.table.get(absolute)?;
        (entry.value() == value && entry.name() == name).then_some(absolute)
    }

    /// Returns the newest entry with this name.
    #[inline]
    pub(super) fn find_name(&self, keys: Keys, name: &[u8]) -> Option<u64> {
        let absolute = *self.names.get(&keys.name)?;
        (self.table.get(absolute)?.name() == name).then_some(absolute)
    }

    pub(super) const fn is_draining(&self, absolute: u64) -> bool {
        absolute < self.draining
    }

    pub(super) fn entry(&self, absolute: u64) -> Option<&Entry> {
        self.table.get(absolute)
    }

    /// Returns whether an entry of this size can be inserted by evicting evictable entries only.
    /// `oldest` is the oldest entry that the current section refers to.
    pub(super) fn has_room(&self, size: u64, unacknowledged: &Unacknowledged, oldest: u64) -> bool {
        let Some(allowed) = self.table.capacity().checked_sub(size) else { return false };
        let mut left = self.table.size();
        for (absolute, record) in (self.table.first()..).zip(&self.records) {
            if left <= allowed {
                break;
            }
            //= RFC 9204 section 2.1.1
            //# If the dynamic table does not contain enough room for a new entry without evicting other entries, and the
            //# entries that would be evicted are not evictable, the encoder MUST NOT insert that entry into the dynamic
            //# table (including duplicates of existing entries).
            //= RFC 9204 section 3.2.2
            //# The encoder MUST NOT cause a dynamic table entry to be evicted unless that entry is evictable; see
            //# Section 2.1.1.
            if record.references > 0
                || absolute >= unacknowledged.known_received_count()
                || absolute >= oldest
            {
                return false;
            }
            left -= self.table.get(absolute).map_or(0, Entry::size);
        }
        left <= allowed
    }

    /// Inserts an entry, for which there must be space, and returns its absolute index.
    pub(super) fn insert(&mut self, keys: Keys, entry: Entry) -> u64 {
        let absolute = self.table.insert_count();
        let inserted = self.table.insert(entry);
        debug_assert!(inserted, "there is no room for the entry");
        self.records.push_back(Record { keys, references: 0 });
        self.forget_evicted();
        self.lines.insert(keys.line, absolute);
        self.names.insert(keys.name, absolute);
        self.move_draining();
        absolute
    }

    /// Records that a sent section refers to these entries.
    pub(super) fn add_references(&mut self, section: &Section) {
        if let Some(record) = self.record(section.oldest) {
            record.references += 1;
        }
    }

    /// Records that a section was acknowledged or cancelled.
    pub(super) fn remove_references(&mut self, section: &Section) {
        if let Some(record) = self.record(section.oldest) {
            record.references -= 1;
        }
    }

    fn record(&mut self, absolute: u64) -> Option<&mut Record> {
        let place = absolute.checked_sub(self.table.first());
        let record = place.and_then(|place| self.records.get_mut(place as usize));
        debug_assert!(record.is_some(), "an entry was evicted that a section refers to");
        record
    }

    /// Removes the keys of evicted entries.
    fn forget_evicted(&mut self) {
        let first = self.table.first();
        let mut absolute = self.table.insert_count() - self.records.len() as u64;
        while absolute < first
            && let Some(record) = self.records.pop_front()
        {
            for (map, key) in
                [(&mut self.lines, record.keys.line), (&mut self.names, record.keys.name)]
            {
                if map.get(&key) == Some(&absolute) {
                    map.remove(&key);
                }
            }
            absolute += 1;
        }
    }

    fn move_draining(&mut self) {
        let wanted = self.table.capacity() / DRAINING_SHARE;
        let mut free = self.table.capacity() - self.table.size();
        let mut absolute = self.table.first();
        while free < wanted
            && let Some(entry) = self.table.get(absolute)
        {
            free += entry.size();
            absolute += 1;
        }
        self.draining = absolute;
    }
}
