//! A map from stream IDs whose entries do not move.

use std::{
    cell::Cell,
    collections::{HashMap, hash_map},
    fmt,
    hash::{BuildHasherDefault, Hasher},
};

use slab::Slab;

use crate::stream::StreamId;

/// A map from a connection's stream IDs. A new stream reuses the slot of a finished one while it is
/// still in the CPU caches; in a plain hash map, the entries of short-lived streams would wander
/// through all of its memory. The transport limits how many streams a peer can open, so the peer
/// cannot cause harmful collisions.
pub struct StreamMap<T> {
    places: HashMap<StreamId, usize, BuildHasherDefault<StreamIdHasher>>,
    entries: Slab<T>,
    /// The latest stream looked up and the index of its entry: streams are looked up several times
    /// in a row.
    latest: Cell<(StreamId, usize)>,
}

/// No latest lookup: stream IDs are below 2^62.
const NOTHING: (StreamId, usize) = (StreamId(u64::MAX), 0);

impl<T> StreamMap<T> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns whether there is an entry for `stream`.
    pub fn contains_key(&self, stream: &StreamId) -> bool {
        self.place(*stream).is_some()
    }

    /// Returns the entry for `stream`.
    pub fn get(&self, stream: &StreamId) -> Option<&T> {
        self.place(*stream).map(|place| &self.entries[place])
    }

    /// Returns the entry for `stream`.
    pub fn get_mut(&mut self, stream: &StreamId) -> Option<&mut T> {
        self.place(*stream).map(|place| &mut self.entries[place])
    }

    #[inline]
    fn place(&self, stream: StreamId) -> Option<usize> {
        let (latest, place) = self.latest.get();
        if latest == stream { Some(place) } else { self.look_up(stream) }
    }

    // Not inlined, to keep callers small.
    #[inline(never)]
    fn look_up(&self, stream: StreamId) -> Option<usize> {
        let place = *self.places.get(&stream)?;
        self.latest.set((stream, place));
        Some(place)
    }

    /// Returns the entry for `stream`, inserting one if there is none.
    pub fn get_or_insert_with(&mut self, stream: StreamId, make: impl FnOnce() -> T) -> &mut T {
        let Self { places, entries, latest } = self;
        let known = latest.get_mut();
        if known.0 != stream {
            *known = (stream, *places.entry(stream).or_insert_with(|| entries.insert(make())));
        }
        &mut entries[known.1]
    }

    /// Sets the entry for `stream`, and returns the previous one.
    pub fn insert(&mut self, stream: StreamId, entry: T) -> Option<T> {
        match self.places.entry(stream) {
            hash_map::Entry::Occupied(place) => {
                Some(std::mem::replace(&mut self.entries[*place.get()], entry))
            }
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(self.entries.insert(entry));
                None
            }
        }
    }

    /// Removes the entry for `stream`.
    pub fn remove(&mut self, stream: &StreamId) -> Option<T> {
        if self.latest.get().0 == *stream {
            self.latest.set(NOTHING);
        }
        self.places.remove(stream).map(|place| self.entries.remove(place))
    }

    /// Iterates over all entries with their streams, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&StreamId, &T)> {
        self.places.iter().map(|(stream, &place)| (stream, &self.entries[place]))
    }

    /// Iterates over the streams, in arbitrary order.
    pub fn keys(&self) -> impl Iterator<Item = &StreamId> {
        self.places.keys()
    }

    /// Iterates over all entries, in arbitrary order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Converts the map to its entries, in arbitrary order.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().map(|(_, entry)| entry)
    }

    /// Removes all entries, in arbitrary order.
    pub fn drain(&mut self) -> impl Iterator<Item = (StreamId, T)> {
        let Self { places, mut entries, latest: _ } = std::mem::take(self);
        places.into_iter().map(move |(stream, place)| (stream, entries.remove(place)))
    }

    /// Releases memory that is kept for later entries.
    pub fn shrink_to_fit(&mut self) {
        // Rebuild the slab: a remaining entry may be the last of many.
        let mut entries = Slab::with_capacity(self.len());
        for place in self.places.values_mut() {
            *place = entries.insert(self.entries.remove(*place));
        }
        self.entries = entries;
        self.latest.set(NOTHING);
        self.places.shrink_to_fit();
    }
}

impl<T> Default for StreamMap<T> {
    fn default() -> Self {
        Self { places: HashMap::default(), entries: Slab::new(), latest: Cell::new(NOTHING) }
    }
}

impl<T: fmt::Debug> fmt::Debug for StreamMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The hash function of [`StreamMap`]. IDs are sequential, and their entries should be adjacent
/// too.
#[derive(Clone, Copy, Debug, Default)]
struct StreamIdHasher(u64);

impl Hasher for StreamIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64((self.0 << 8) ^ u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The lowest bits determine where the lookup starts, so streams of one type are adjacent.
        // The highest seven bits distinguish entries in the same group.
        (self.0 >> 2) ^ (self.0 << 57)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_although_a_late_entry_stays() {
        let mut map: StreamMap<_> = StreamMap::default();
        for number in 0..1000 {
            map.insert(StreamId(4 * number), number);
        }
        for number in (0..1000).filter(|number| ![7, 998].contains(number)) {
            map.remove(&StreamId(4 * number));
        }
        map.shrink_to_fit();
        assert!(map.entries.capacity() < 10 && map.places.capacity() < 10);
        assert_eq!(
            [7, 998].map(|number| map.get(&StreamId(4 * number)).copied()),
            [Some(7), Some(998)]
        );
        assert_eq!(map.values().sum::<u64>(), 1005);
    }

    #[test]
    fn entries_are_found_by_their_streams_while_others_come_and_go() {
        let mut map = StreamMap::default();
        for number in 0..1000 {
            assert_eq!(map.insert(StreamId(4 * number), number), None);
            assert_eq!(map.insert(StreamId(4 * number), number), Some(number));
            if number >= 10 {
                assert_eq!(map.remove(&StreamId(4 * (number - 10))), Some(number - 10));
            }
            assert_eq!(map.get(&StreamId(4 * number)).copied(), Some(number));
            // The latest stream is removed, and another one reuses its slot.
            assert_eq!(map.get(&StreamId(1)), None);
            assert_eq!(map.insert(StreamId(1), 0), None);
            assert_eq!(map.get_mut(&StreamId(1)).copied(), Some(0));
            assert_eq!(
                (map.remove(&StreamId(1)), map.contains_key(&StreamId(1))),
                (Some(0), false)
            );
        }
        assert_eq!((map.len(), map.entries.capacity() < 100), (10, true));
        assert_eq!(map.get(&StreamId(4 * 989)), None);
        assert_eq!(map.remove(&StreamId(4 * 989)), None);
        assert_eq!(*map.get_or_insert_with(StreamId(4 * 995), || unreachable!()), 995);
        assert_eq!(*map.get_or_insert_with(StreamId(1), || 5), 5);
        let mut streams: Vec<_> =
            map.drain().map(|(stream, number)| (stream.0 / 4, number)).collect();
        streams.sort_unstable();
        assert_eq!(streams[0], (0, 5));
        assert!(streams[1..].iter().map(|(_, number)| *number).eq(990..1000));
        assert!(map.is_empty() && map.iter().next().is_none());
    }
}
