//! Heaps of deadlines that are postponed more often than they expire.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Outdated entries allowed beyond two for each connection. Small heaps are never compacted.
const SPARE: usize = 64;

/// Drops outdated entries once they are the majority, so that a heap holds at most two entries for
/// each of `live` connections and [`SPARE`].
///
/// A deadline that moves gets a new entry, and the old entry would stay until its time comes. A
/// deadline that moves back and forth leaves several equal entries.
pub(crate) fn compact<K: Ord>(
    heap: &mut BinaryHeap<Reverse<(Instant, K)>>,
    live: usize,
    mut is_valid: impl FnMut(Instant, &K) -> bool,
) {
    if heap.len() > 2 * live + SPARE {
        let mut entries = std::mem::take(heap).into_vec();
        entries.retain(|Reverse((deadline, key))| is_valid(*deadline, key));
        entries.sort_unstable();
        entries.dedup();
        *heap = entries.into();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn outdated_entries_are_bounded_and_valid_ones_stay() {
        let now = Instant::now();
        let mut heap = BinaryHeap::new();
        let mut latest = [now; 3];
        for step in 0..10_000_u32 {
            let key = step as usize % 3;
            latest[key] = now + Duration::from_secs(20_000 - u64::from(step));
            heap.push(Reverse((latest[key], key)));
            compact(&mut heap, 3, |deadline, key| latest[*key] == deadline);
            assert!(heap.len() <= 2 * 3 + SPARE);
        }
        // One deadline stays. An earlier one comes and goes.
        for step in 0..10_000_u64 {
            latest[0] = now + Duration::from_secs(if step % 2 == 0 { 30_000 } else { step });
            heap.push(Reverse((latest[0], 0)));
            compact(&mut heap, 3, |deadline, key| latest[*key] == deadline);
            assert!(heap.len() <= 2 * 3 + SPARE);
        }
        for (key, deadline) in latest.into_iter().enumerate() {
            assert!(heap.iter().any(|entry| *entry == Reverse((deadline, key))));
        }
    }
}
