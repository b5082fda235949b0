//! The connections of an endpoint, by the transport's keys.

use super::connection::Connection;
use crate::transport::ConnectionKey;

/// A table indexed by the transport's connection index. Each of a request's many events costs one
/// array access; a map would hash the key.
#[derive(Default)]
pub(super) struct Connections {
    slots: Vec<Option<(ConnectionKey, Box<Connection>)>>,
    len: usize,
}

impl Connections {
    pub(super) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        match self.slots.get_mut(key.index as usize) {
            Some(Some((known, connection))) if *known == key => Some(connection),
            _ => None,
        }
    }

    pub(super) fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        match self.slots.get(key.index as usize) {
            Some(Some((known, connection))) if *known == key => Some(connection),
            _ => None,
        }
    }

    pub(super) fn contains(&self, key: ConnectionKey) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a connection. The transport reuses an index only after reporting the end of its
    /// earlier connection.
    pub(super) fn insert(&mut self, key: ConnectionKey, connection: Connection) {
        let index = key.index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        let before = self.slots[index].replace((key, Box::new(connection)));
        debug_assert!(before.is_none(), "two connections with the same index");
        self.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, key: ConnectionKey) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(key.index as usize)?;
        let (_, connection) = slot.take_if(|(known, _)| *known == key)?;
        self.len -= 1;
        Some(connection)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionKey, &mut Connection)> {
        self.slots.iter_mut().flatten().map(|(key, connection)| (*key, &mut **connection))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionKey, &Connection)> {
        self.slots.iter().flatten().map(|(key, connection)| (*key, &**connection))
    }
}
