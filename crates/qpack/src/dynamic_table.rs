//! The dynamic table of RFC 9204 section 3.2, used by encoder and decoder.

use std::{collections::VecDeque, sync::Arc};

use crate::static_table;

/// RFC 9204 section 3.2.1: overhead added to the size of each entry.
pub(crate) const ENTRY_OVERHEAD: u64 = 32;

/// Returns the maximum number of entries in a table of this capacity: the smallest entry has an
/// empty name and value.
pub(crate) const fn max_entries(capacity: u64) -> u64 {
    capacity / ENTRY_OVERHEAD
}

/// Returns the size of an entry, as defined in RFC 9204 section 3.2.1.
pub(crate) const fn entry_size(name: &[u8], value: &[u8]) -> u64 {
    name.len() as u64 + value.len() as u64 + ENTRY_OVERHEAD
}

/// A table entry. Clones share the text, so a Duplicate instruction of one byte copies nothing.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The name, followed by the value.
    text: Arc<[u8]>,
    name_len: u32,
    /// Static table index with the same name.
    static_name: Option<u8>,
}

impl Entry {
    /// `text` is the name of `name_len` bytes, followed by the value.
    pub(crate) fn new(text: &[u8], name_len: usize) -> Self {
        let static_name = static_table::name_index(&text[..name_len]);
        let name_len = u32::try_from(name_len)
            .expect("invariant: an entry fits its table, whose capacity is far below 4 GiB");
        Self { text: text.into(), name_len, static_name }
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.text[..self.name_len as usize]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.text[self.name_len as usize..]
    }

    pub(crate) const fn static_name(&self) -> Option<u8> {
        self.static_name
    }

    pub(crate) fn size(&self) -> u64 {
        entry_size(self.name(), self.value())
    }
}

/// Entries in order of insertion. Each has an absolute index, which counts insertions from zero and
/// never changes; callers convert relative indices of the wire to absolute ones.
///
/// ```text
///   absolute:  first()                     insert_count() - 1
///              |  oldest, evicted first          |  newest
/// ```
///
/// Memory use: the texts, plus less than the overhead for each entry. Because of the allocator's
/// rounding of short texts, that is at most about twice the capacity.
#[derive(Debug, Default)]
pub(crate) struct DynamicTable {
    entries: VecDeque<Entry>,
    insert_count: u64,
    size: u64,
    capacity: u64,
}

impl DynamicTable {
    pub(crate) const fn insert_count(&self) -> u64 {
        self.insert_count
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the absolute index of the oldest entry, or of the next one if the table is empty.
    pub(crate) fn first(&self) -> u64 {
        self.insert_count - self.entries.len() as u64
    }

    /// Returns the entry with this absolute index, unless it was evicted or not inserted yet.
    pub(crate) fn get(&self, absolute: u64) -> Option<&Entry> {
        let place = absolute.checked_sub(self.first())?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// Returns the entry of an encoder instruction: index 0 is the newest (RFC 9204 section 3.2.5).
    pub(crate) fn newest(&self, relative: u64) -> Option<&Entry> {
        self.get(self.insert_count.checked_sub(relative)?.checked_sub(1)?)
    }

    /// Changes the capacity, and evicts entries that no longer fit.
    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.evict_above(capacity);
    }

    /// Inserts an entry, evicting others as needed. Returns `false` and changes nothing if the
    /// entry is larger than the table.
    pub(crate) fn insert(&mut self, entry: Entry) -> bool {
        let size = entry.size();
        let Some(rest) = self.capacity.checked_sub(size) else { return false };
        //= RFC 9204 section 3.2.2
        //# Before a new entry is added to the dynamic table, entries are evicted from the end of the dynamic table until
        //# the size of the dynamic table is less than or equal to (table capacity - size of new entry).
        self.evict_above(rest);
        self.size += size;
        self.insert_count += 1;
        self.entries.push_back(entry);
        true
    }

    /// Removes the oldest entry.
    pub(crate) fn evict(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.size -= entry.size();
        Some(entry)
    }

    fn evict_above(&mut self, size: u64) {
        while self.size > size && self.evict().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: &str) -> Entry {
        Entry::new(format!("{name}{value}").as_bytes(), name.len())
    }

    fn table(capacity: u64) -> DynamicTable {
        let mut table = DynamicTable::default();
        table.set_capacity(capacity);
        table
    }

    #[test]
    fn indices_follow_insertions_and_evictions() {
        let mut table = table(3 * 34);
        for name in ["a", "b", "c", "d"] {
            assert!(table.insert(entry(name, "1")));
        }
        assert_eq!((table.first(), table.insert_count(), table.size()), (1, 4, 3 * 34));
        assert!(table.get(0).is_none() && table.get(4).is_none());
        assert_eq!(table.get(1).unwrap().name(), b"b");
        assert_eq!(table.newest(0).unwrap().name(), b"d");
        assert_eq!(table.newest(2).unwrap().name(), b"b");
        assert!(table.newest(3).is_none() && table.newest(u64::MAX).is_none());
    }

    #[test]
    fn entry_larger_than_the_table_changes_nothing() {
        let mut table = table(40);
        assert!(table.insert(entry("abc", "12345")));
        assert!(!table.insert(entry("abc", "123456")));
        assert_eq!((table.first(), table.insert_count(), table.size()), (0, 1, 40));
    }

    #[test]
    fn smaller_capacity_evicts_the_oldest() {
        let mut table = table(200);
        for name in ["a", "b", "c"] {
            assert!(table.insert(entry(name, "")));
        }
        table.set_capacity(70);
        assert_eq!((table.first(), table.size()), (1, 66));
        table.set_capacity(0);
        assert_eq!((table.first(), table.insert_count(), table.size()), (3, 3, 0));
        assert!(!table.insert(entry("", "")));
    }

    #[test]
    fn duplicate_shares_its_text_and_counts_in_full() {
        let mut table = table(200);
        table.insert(entry("user-agent", "x"));
        let copy = table.newest(0).unwrap().clone();
        assert!(Arc::ptr_eq(&copy.text, &table.newest(0).unwrap().text));
        table.insert(copy);
        assert_eq!(table.size(), 2 * 43);
        assert_eq!(table.newest(0).unwrap().static_name(), Some(95));
    }
}
