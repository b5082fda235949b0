//! Numbers of open items, each with a limit.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use crate::stats::{Counter, Stats};

/// Selects one of the counters.
type CounterSelector = fn(&Stats) -> &Counter;

/// A worker's current number of some item, such as open requests.
#[derive(Clone, Default)]
pub(crate) struct Gauge(Rc<GaugeState>);

#[derive(Default)]
struct GaugeState {
    count: Cell<u64>,
    /// The counter that shows the level to other threads, if any.
    shown: Option<(Arc<Stats>, CounterSelector)>,
}

/// Keeps one item counted until dropped.
pub(crate) struct GaugeGuard(Rc<GaugeState>);

impl Gauge {
    /// Creates a gauge whose level is also shown as a counter.
    pub(crate) fn shown(stats: &Arc<Stats>, counter: CounterSelector) -> Self {
        Self(Rc::new(GaugeState { count: Cell::new(0), shown: Some((stats.clone(), counter)) }))
    }

    /// Counts one more item, if there are fewer than `limit`.
    pub(crate) fn add(&self, limit: u64) -> Option<GaugeGuard> {
        let count = self.0.count.get();
        (count < limit).then(|| {
            self.0.set(count + 1);
            GaugeGuard(self.0.clone())
        })
    }
}

impl GaugeState {
    fn set(&self, count: u64) {
        self.count.set(count);
        if let Some((stats, counter)) = &self.shown {
            counter(stats).set(count);
        }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.set(self.0.count.get() - 1);
    }
}
