//! Whose bytes are written next: the order that RFC 9218 section 10 recommends.

use std::collections::VecDeque;

use pronghorn_h3::{Priority, StreamId};

/// Bytes of one stream before another of those that share has its turn.
pub(super) const QUANTUM_BYTES: usize = 16 << 10;

/// The streams of a connection that have bytes to write and are not blocked.
///
/// RFC 9218, section 10: a more urgent level goes before a less urgent one. Within a level responses that are not incremental go one after the other, in
/// the order of their requests; incremental ones take turns, and the first of the others takes turns with them, so that neither
/// kind starves the other.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Made for the first stream: it is as large as the rest of a connection's state.
    levels: Option<Box<[Level; Priority::MAX_URGENCY as usize + 1]>>,
}

#[derive(Debug, Default)]
struct Level {
    /// Sorted: requests come in order, so that a new one is nearly always the last.
    in_order: VecDeque<StreamId>,
    sharing: VecDeque<StreamId>,
    /// How many of `sharing` had their turn since the first of `in_order` had one.
    turns: usize,
}

/// A stream and how much of it to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) id: StreamId,
    pub(super) bytes: usize,
}

impl Schedule {
    /// Adds a stream, behind those that it shares with. The caller sees to it that it is not there yet.
    pub(super) fn insert(&mut self, id: StreamId, priority: Priority) {
        let level = self.level(priority);
        if priority.incremental {
            level.sharing.push_back(id);
        } else {
            let place = level.in_order.partition_point(|other| *other < id);
            level.in_order.insert(place, id);
        }
    }

    /// Takes a stream out; it has to be there with this priority.
    pub(super) fn remove(&mut self, id: StreamId, priority: Priority) {
        let level = self.level(priority);
        if priority.incremental {
            level.sharing.retain(|other| *other != id);
        } else if let Ok(place) = level.in_order.binary_search(&id) {
            level.in_order.remove(place);
        }
    }

    /// Takes out the stream whose turn it is.
    pub(super) fn next(&mut self) -> Option<Turn> {
        let level = self.levels.as_mut()?.iter_mut().find(|level| !level.in_order.is_empty() || !level.sharing.is_empty())?;
        let alone = level.sharing.len() + usize::from(!level.in_order.is_empty()) == 1;
        let bytes = if alone { usize::MAX } else { QUANTUM_BYTES };
        let ordered_has_its_turn = level.turns >= level.sharing.len();
        let id = if ordered_has_its_turn && let Some(id) = level.in_order.pop_front() {
            level.turns = 0;
            id
        } else {
            level.turns += 1;
            level.sharing.pop_front().or_else(|| level.in_order.pop_front())?
        };
        Some(Turn { id, bytes })
    }

    /// Gives back memory that is kept for the next streams.
    pub(super) fn release_memory(&mut self) {
        let is_empty = |level: &Level| level.in_order.is_empty() && level.sharing.is_empty();
        self.levels.take_if(|levels| levels.iter().all(is_empty));
    }

    fn level(&mut self, priority: Priority) -> &mut Level {
        &mut self.levels.get_or_insert_default()[usize::from(priority.urgency.min(Priority::MAX_URGENCY))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority { urgency, incremental }
    }

    /// The order in which streams of so many quanta each are served.
    fn served(streams: &[(u64, Priority, usize)]) -> Vec<u64> {
        let mut schedule = Schedule::default();
        let mut left: Vec<_> = streams.to_vec();
        for (id, priority, _) in streams {
            schedule.insert(StreamId(*id), *priority);
        }
        let mut order = Vec::new();
        while let Some(turn) = schedule.next() {
            let (id, priority, quanta) = left.iter_mut().find(|stream| stream.0 == turn.id.0).unwrap();
            order.push(*id);
            *quanta = if turn.bytes == usize::MAX { 0 } else { *quanta - 1 };
            if *quanta > 0 {
                schedule.insert(StreamId(*id), *priority);
            }
        }
        order
    }

    #[test]
    fn urgent_streams_go_first() {
        assert_eq!(served(&[(0, priority(7, false), 2), (4, priority(3, true), 2), (8, priority(0, false), 2)]), [8, 4, 0]);
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
        let mut schedule = Schedule::default();
        for (id, incremental) in [(0, false), (4, true)] {
            schedule.insert(StreamId(id), priority(1, incremental));
            schedule.remove(StreamId(id), priority(1, incremental));
        }
        assert_eq!(schedule.next(), None);
    }
}
