//! The order in which streams are written over HTTP/3 and HTTP/2, as RFC 9218 section 10
//! recommends.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName};
use pronghorn_h3::Priority;

/// RFC 9218, section 5.
const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// Bytes of one incremental stream before the next one has its turn.
pub(crate) const QUANTUM_BYTES: usize = 16 << 10;

/// The default urgency, incremental: for streams that may belong to different users, or that have
/// no end, so that no stream waits for the end of another.
pub(crate) const SHARED: Priority = Priority { urgency: 3, incremental: true };

/// The streams of a connection that have bytes to write and are not blocked. Their IDs rise with
/// their requests.
///
/// RFC 9218, section 10: a more urgent level goes before a less urgent one. Within a level,
/// responses that are not incremental go one after the other, in the order of their requests.
/// Incremental ones take turns. The first of the non-incremental ones takes turns with them, so
/// that neither kind starves the other.
#[derive(Debug)]
pub(crate) struct Schedule<K> {
    /// Allocated for the first stream: it is as large as the rest of a connection's state.
    levels: Option<Box<[Level<K>; Priority::MAX_URGENCY as usize + 1]>>,
}

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { levels: None }
    }
}

#[derive(Debug)]
struct Level<K> {
    /// Non-incremental streams, sorted. Requests arrive in order, so a new one is nearly always
    /// last.
    in_order: VecDeque<K>,
    sharing: VecDeque<K>,
    /// How many of `sharing` have had a turn since the first of `in_order` had one.
    turns: usize,
}

impl<K> Default for Level<K> {
    fn default() -> Self {
        Self { in_order: VecDeque::new(), sharing: VecDeque::new(), turns: 0 }
    }
}

/// A stream, and how much of it to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn<K> {
    pub(crate) id: K,
    pub(crate) bytes: usize,
}

impl<K: Copy + Ord> Schedule<K> {
    /// Adds a stream, behind those that it shares with. The stream must not be in the schedule yet.
    pub(crate) fn insert(&mut self, id: K, priority: Priority) {
        let level = self.level(priority);
        debug_assert!(
            !level.in_order.contains(&id) && !level.sharing.contains(&id),
            "a stream is scheduled twice"
        );
        if priority.incremental {
            level.sharing.push_back(id);
        } else {
            let place = level.in_order.partition_point(|other| *other < id);
            level.in_order.insert(place, id);
        }
    }

    /// Removes a stream, which must be in the schedule with this priority.
    pub(crate) fn remove(&mut self, id: K, priority: Priority) {
        let level = self.level(priority);
        if priority.incremental {
            level.sharing.retain(|other| *other != id);
        } else if let Ok(place) = level.in_order.binary_search(&id) {
            level.in_order.remove(place);
        }
    }

    /// Removes and returns the stream whose turn it is.
    pub(crate) fn next(&mut self) -> Option<Turn<K>> {
        let level = self.levels.as_mut()?.iter_mut().find(|level| !level.is_empty())?;
        let turn = level.turn()?;
        if level.ordered_has_its_turn() {
            level.in_order.pop_front();
            level.turns = 0;
        } else {
            level.sharing.pop_front();
            level.turns += 1;
        }
        Some(turn)
    }

    /// Returns the stream whose turn it is.
    pub(crate) fn peek(&self) -> Option<Turn<K>> {
        self.levels.as_ref()?.iter().find_map(Level::turn)
    }

    /// Frees memory that is kept for the next streams, if there are none now.
    pub(crate) fn release_memory(&mut self) {
        self.levels.take_if(|levels| levels.iter().all(Level::is_empty));
    }

    fn level(&mut self, priority: Priority) -> &mut Level<K> {
        &mut self.levels.get_or_insert_default()
            [usize::from(priority.urgency.min(Priority::MAX_URGENCY))]
    }
}

/// Returns the value of the `priority` field (RFC 9218 section 5), its field lines joined.
pub(crate) fn priority_field(headers: &HeaderMap) -> Option<Bytes> {
    let mut lines = headers.get_all(PRIORITY).iter();
    let first = lines.next()?;
    let mut joined = BytesMut::from(first.as_bytes());
    for line in lines {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(line.as_bytes());
    }
    Some(joined.freeze())
}

impl<K: Copy> Level<K> {
    fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.sharing.is_empty()
    }

    fn ordered_has_its_turn(&self) -> bool {
        !self.in_order.is_empty() && self.turns >= self.sharing.len()
    }

    fn turn(&self) -> Option<Turn<K>> {
        let queue = if self.ordered_has_its_turn() { &self.in_order } else { &self.sharing };
        let alone = self.sharing.len() + usize::from(!self.in_order.is_empty()) == 1;
        Some(Turn { id: *queue.front()?, bytes: if alone { usize::MAX } else { QUANTUM_BYTES } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority { urgency, incremental }
    }

    /// Returns the order in which streams of that many quanta each are served.
    fn served(streams: &[(u64, Priority, usize)]) -> Vec<u64> {
        let mut schedule = Schedule::default();
        let mut left: Vec<_> = streams.to_vec();
        for (id, priority, _) in streams {
            schedule.insert(*id, *priority);
        }
        let mut order = Vec::new();
        while let Some(turn) = schedule.peek() {
            assert_eq!(schedule.next(), Some(turn));
            let (id, priority, quanta) =
                left.iter_mut().find(|stream| stream.0 == turn.id).unwrap();
            order.push(*id);
            *quanta = if turn.bytes == usize::MAX { 0 } else { *quanta - 1 };
            if *quanta > 0 {
                schedule.insert(*id, *priority);
            }
        }
        order
    }

    #[test]
    fn urgent_streams_go_first() {
        assert_eq!(
            served(&[
                (0, priority(7, false), 2),
                (4, priority(3, true), 2),
                (8, priority(0, false), 2)
            ]),
            [8, 4, 0]
        );
    }

    #[test]
    fn ordered_streams_go_in_the_order_of_their_requests() {
        let default = Priority::default();
        assert_eq!(served(&[(8, default, 2), (0, default, 2), (4, default, 2)]), [0, 4, 8]);
    }

    #[test]
    fn incremental_streams_take_turns() {
        let shared = priority(3, true);
        assert_eq!(served(&[(0, shared, 2), (4, shared, 2), (8, shared, 2)]), [0, 4, 8, 0, 4, 8]);
    }

    #[test]
    fn first_of_the_ordered_takes_turns_with_the_incremental() {
        let (ordered, shared) = (priority(3, false), priority(3, true));
        let order = served(&[(0, ordered, 2), (4, ordered, 2), (8, shared, 4), (12, shared, 4)]);
        assert_eq!(order, [8, 12, 0, 8, 12, 0, 8, 12, 4, 8, 4, 12]);
    }

    #[test]
    fn removed_stream_has_no_turn() {
        let mut schedule = Schedule::<u64>::default();
        for (id, incremental) in [(0, false), (4, true)] {
            schedule.insert(id, priority(1, incremental));
            schedule.remove(id, priority(1, incremental));
        }
        assert_eq!(schedule.next(), None);
    }
}
