//! The queue of events.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::{event::Event, stream::StreamId};

/// Content pieces below this size are appended to the previous one. Copying costs less than a
/// separate event.
const JOINED_BELOW: usize = 1024;
/// Maximum size of joined pieces.
const MAX_JOINED: usize = 16 * 1024;

/// Events in order. However small the peer's DATA frames are, content causes at most two events for
/// each [`JOINED_BELOW`] bytes.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    events: VecDeque<Event>,
    /// Content of the last event if pieces were joined; the queued `Data` is empty meanwhile.
    joined: BytesMut,
}

impl EventQueue {
    pub(super) fn push_back(&mut self, event: Event) {
        self.settle();
        self.events.push_back(event);
    }

    /// Inserts an event that must follow the one polled last.
    pub(super) fn push_front(&mut self, event: Event) {
        self.events.push_front(event);
    }

    pub(super) fn push_data(&mut self, stream: StreamId, piece: Bytes) {
        match self.events.back_mut() {
            Some(Event::Data { stream: last, data })
                if *last == stream && piece.len() < JOINED_BELOW =>
            {
                let is_joined = !self.joined.is_empty();
                if is_joined && self.joined.len() + piece.len() <= MAX_JOINED {
                    self.joined.extend_from_slice(&piece);
                    return;
                }
                if !is_joined && data.len() < JOINED_BELOW {
                    self.joined.extend_from_slice(data);
                    self.joined.extend_from_slice(&piece);
                    *data = Bytes::new();
                    return;
                }
            }
            _ => {}
        }
        self.push_back(Event::Data { stream, data: piece });
    }

    pub(super) fn front(&self) -> Option<&Event> {
        self.events.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Event> {
        if self.events.len() == 1 {
            self.settle();
        }
        let event = self.events.pop_front();
        if self.events.is_empty() {
            // Reuse the same memory for the next events, because it is in the CPU caches; a ring
            // would move on through all of its memory.
            self.events.clear();
        }
        event
    }

    /// Releases memory that is kept for later events.
    pub(super) fn release_memory(&mut self) {
        self.events.shrink_to_fit();
        if self.joined.is_empty() {
            self.joined = BytesMut::new();
        }
    }

    /// Returns the last event, unless it is content.
    pub(super) fn back_mut(&mut self) -> Option<&mut Event> {
        self.events.back_mut()
    }

    /// Moves the joined content into the last event.
    fn settle(&mut self) {
        if self.joined.is_empty() {
            return;
        }
        if let Some(Event::Data { data, .. }) = self.events.back_mut() {
            *data = std::mem::take(&mut self.joined).freeze();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId(0);

    fn drain(queue: &mut EventQueue) -> Vec<(u64, Bytes)> {
        std::iter::from_fn(|| queue.pop_front())
            .map(|event| match event {
                Event::Data { stream, data } => (stream.0, data),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn small_pieces_are_joined_and_large_ones_are_not_copied() {
        let mut queue = EventQueue::default();
        let large = Bytes::from(vec![7; JOINED_BELOW]);
        for piece in [&b"a"[..], b"b", b"c"] {
            queue.push_data(STREAM, Bytes::copy_from_slice(piece));
        }
        queue.push_data(STREAM, large.clone());
        queue.push_data(STREAM, Bytes::from_static(b"d"));
        queue.push_data(StreamId(4), Bytes::from_static(b"e"));
        queue.push_data(STREAM, Bytes::from_static(b"f"));
        let pieces = drain(&mut queue);
        let expected: [(u64, &[u8]); 5] =
            [(0, b"abc"), (0, &large), (0, b"d"), (4, b"e"), (0, b"f")];
        assert_eq!(pieces, expected.map(|(stream, data)| (stream, Bytes::copy_from_slice(data))));
        assert_eq!(pieces[1].1.as_ptr(), large.as_ptr());
    }

    #[test]
    fn joined_pieces_have_a_largest_size_and_keep_their_order() {
        let mut queue = EventQueue::default();
        let mut sent = Vec::new();
        for number in 0..100_000_u32 {
            let piece = number.to_be_bytes();
            sent.extend_from_slice(&piece);
            queue.push_data(STREAM, Bytes::copy_from_slice(&piece));
        }
        let pieces = drain(&mut queue);
        assert_eq!(pieces.len(), sent.len().div_ceil(MAX_JOINED));
        assert!(pieces.iter().all(|(_, data)| data.len() <= MAX_JOINED));
        assert_eq!(pieces.iter().map(|(_, data)| &data[..]).collect::<Vec<_>>().concat(), sent);
    }

    #[test]
    fn what_was_polled_is_not_joined_to() {
        let mut queue = EventQueue::default();
        queue.push_data(STREAM, Bytes::from_static(b"a"));
        queue.push_data(STREAM, Bytes::from_static(b"b"));
        assert_eq!(drain(&mut queue), [(0, Bytes::from_static(b"ab"))]);
        queue.push_data(STREAM, Bytes::from_static(b"c"));
        queue.push_back(Event::Data { stream: STREAM, data: Bytes::from_static(b"d") });
        assert_eq!(drain(&mut queue).len(), 2);
    }
}
