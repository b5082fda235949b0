//! A map from stream IDs that finds what is next to each other in one place.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::stream::StreamId;

/// A map from the IDs of a connection's streams. IDs come in sequence, and their entries lie so, too: the next one's is in the caches
/// already. The transport limits how many a peer can have open, so it cannot choose them to collide in a way that matters.
pub type StreamMap<T> = HashMap<StreamId, T, BuildHasherDefault<StreamIdHasher>>;

/// The hash of [`StreamMap`].
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamIdHasher(u64);

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
        // The lowest bits say where the map begins to look: there the streams of one type follow each other. By the seven highest it tells
        // entries apart that lie together.
        (self.0 >> 2) ^ (self.0 << 57)
    }
}
