//! Windows for receiving that a worker has promised to its connections.

use std::cell::Cell;
use std::rc::Rc;

use crate::limits::{Limits, SMALLEST_WINDOW};
use crate::stats::Stats;

/// Which part of what is left of the budget one connection gets at the most.
const SHARE: u64 = 64;

/// Shares the budget for windows among the connections of a worker.
///
/// Each connection is promised its windows at its beginning, since a promise of that kind cannot be taken back. As the budget runs
/// low the promises get smaller: a 64th of what is left, so that there is always something left. What a connection may send ahead of
/// acknowledgements is no promise: it is held only while there is a response, and given up with it.
#[derive(Default)]
pub(crate) struct WindowBudget {
    promised: Rc<Cell<u64>>,
}

/// The windows of one connection, promised until dropped.
pub(crate) struct Windows {
    /// Bytes of the window for all streams.
    pub(crate) receive: u64,
    /// Bytes sent and not acknowledged.
    pub(crate) send: u64,
    promised: Rc<Cell<u64>>,
}

impl WindowBudget {
    pub(crate) fn promise(&self, limits: &Limits, stats: &Stats) -> Windows {
        let left = limits.window_budget_bytes().saturating_sub(self.promised.get());
        let full = limits.connection_window_bytes();
        // In steps of two, so that few configurations are needed for all connections.
        let mut halvings = 0;
        while halvings < u64::BITS && (full >> halvings) > left / SHARE {
            halvings += 1;
        }
        let receive = full.checked_shr(halvings).unwrap_or(0).max(SMALLEST_WINDOW.min(full));
        if receive < full {
            stats.windows_reduced.add(1);
        }
        self.promised.set(self.promised.get() + receive);
        Windows { receive, send: limits.send_window_bytes(), promised: self.promised.clone() }
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.promised.set(self.promised.get() - self.receive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_stay_within_the_budget_but_for_the_smallest() {
        let limits = Limits::default().with_window_budget_bytes(256 << 20).unwrap();
        let (budget, stats) = (WindowBudget::default(), Stats::default());
        let windows: Vec<_> = (0..5_000).map(|_| budget.promise(&limits, &stats)).collect();
        assert_eq!(windows[0].receive, limits.connection_window_bytes());
        assert_eq!(windows[4_999].receive, SMALLEST_WINDOW);
        let promised: u64 = windows.iter().map(|windows| windows.receive).filter(|receive| *receive > SMALLEST_WINDOW).sum();
        assert!(promised <= limits.window_budget_bytes(), "{promised} bytes");
        assert!(stats.windows_reduced.value() > 0);
        drop(windows);
        assert_eq!(budget.promised.get(), 0);
        assert_eq!(budget.promise(&limits, &stats).receive, limits.connection_window_bytes());
    }
}
