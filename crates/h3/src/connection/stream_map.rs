//! A map from stream IDs, with a hash that costs one multiplication. IDs come in sequence, and the transport limits how
//! many a peer can use, so a peer cannot choose them to collide in a way that matters.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::stream::StreamId;

pub(super) type StreamMap<T> = HashMap<StreamId, T, BuildHasherDefault<StreamIdHasher>>;

#[derive(Clone, Copy, Default)]
pub(super) struct StreamIdHasher(u64);

impl Hasher for StreamIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        // The product's high bits depend on all bits of the ID; the map uses the lowest and the highest of the hash.
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
