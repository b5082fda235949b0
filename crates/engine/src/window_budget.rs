//! What a worker has promised to its connections, and lent them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::{HTTP2_SEND_BYTES, Limits, SMALLEST_OUTBOX, SMALLEST_SEND_WINDOW, SMALLEST_WINDOW};
use crate::stats::Stats;

/// Which part of what is left of a budget one connection gets at the most.
const SHARE: u64 = 64;

/// Shares the budgets for windows among the connections of a worker.
///
/// A window for receiving is a promise, which cannot be taken back: a connection begins with a small one, which grows when its peer uses
/// it up, and it counts until the connection ends. As the budget runs low the promises get smaller, a 64th of what is left, so that there
/// is always something left. A window for sending is lent: it counts while there is something to send.
#[derive(Default)]
pub(crate) struct WindowBudget {
    promised: Rc<Cell<u64>>,
    lent: Rc<Cell<u64>>,
}

/// The windows of one connection, promised until dropped.
pub(crate) struct Windows {
    /// Bytes of the window for all streams.
    pub(crate) receive: u64,
    promised: Rc<Cell<u64>>,
}

/// The window for receiving that a connection begins with, as long as the budget lasts.
pub(crate) fn first_window(limits: &Limits) -> u64 {
    limits.first_window_bytes().min(limits.connection_window_bytes())
}

impl WindowBudget {
    pub(crate) fn promise(&self, limits: &Limits, stats: &Stats) -> Windows {
        let left = limits.window_budget_bytes().saturating_sub(self.promised.get());
        let full = first_window(limits);
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
        Windows { receive, promised: self.promised.clone() }
    }

    /// What the transport of a connection holds: over QUIC packets that are not acknowledged, over TCP the same in the kernel.
    pub(crate) fn send_window(&self, limits: &Limits, stats: Arc<Stats>) -> SendWindow {
        self.lend(limits, SMALLEST_SEND_WINDOW, limits.send_window_bytes(), stats)
    }

    /// What a connection over HTTP/2 holds in front of its transport.
    pub(crate) fn outbox(&self, limits: &Limits, stats: Arc<Stats>) -> SendWindow {
        self.lend(limits, SMALLEST_OUTBOX, limits.send_window_bytes().min(HTTP2_SEND_BYTES), stats)
    }

    fn lend(&self, limits: &Limits, smallest: u64, most: u64, stats: Arc<Stats>) -> SendWindow {
        SendWindow { smallest, most, budget: limits.send_budget_bytes(), borrowed: 0, is_short: false, lent: self.lent.clone(), stats }
    }
}

impl Windows {
    /// Doubles the window for receiving, unless it is as large as it may be or the budget is too low. Returns what it is then.
    fn grow(&mut self, limits: &Limits, stats: &Stats) -> Option<u64> {
        let wanted = self.receive.saturating_mul(2).min(limits.connection_window_bytes());
        if wanted <= self.receive {
            return None;
        }
        let promised = self.promised.get() - self.receive;
        if wanted > limits.window_budget_bytes().saturating_sub(promised) / SHARE {
            stats.windows_reduced.add(1);
            return None;
        }
        self.promised.set(promised + wanted);
        self.receive = wanted;
        stats.windows_grown.add(1);
        Some(wanted)
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.promised.set(self.promised.get() - self.receive);
    }
}

/// A window for receiving that follows what the path carries.
///
/// It doubles when its peer has sent half of it within two round trips: then it may be what holds the peer back, now or in the next round
/// trip of a slow start. So it ends between four and eight times what the path holds. What is out of order, waiting for a packet that was
/// lost, takes a part of it.
pub(crate) struct ReceiveWindow {
    windows: Windows,
    /// When the present half began.
    since: Instant,
    /// Bytes of it that came.
    came: u64,
}

impl ReceiveWindow {
    pub(crate) fn new(now: Instant, windows: Windows) -> Self {
        Self { windows, since: now, came: 0 }
    }

    pub(crate) fn size(&self) -> u64 {
        self.windows.receive
    }

    /// Nothing will come any more: what is promised for what came, for who holds it. Nothing is promised here from then on.
    pub(crate) fn take(&mut self) -> Windows {
        let rest = Windows { receive: 0, promised: self.windows.promised.clone() };
        std::mem::replace(&mut self.windows, rest)
    }

    /// Bytes came, or near enough. Returns the new window if it grows; `rtt` is asked only where it decides that.
    pub(crate) fn on_received(
        &mut self,
        now: Instant,
        bytes: u64,
        rtt: impl FnOnce() -> Duration,
        limits: &Limits,
        stats: &Stats,
    ) -> Option<u64> {
        self.came += bytes;
        if self.came < self.windows.receive / 2 {
            return None;
        }
        let lasted = now.saturating_duration_since(self.since);
        (self.since, self.came) = (now, 0);
        if lasted <= 2 * rtt() { self.windows.grow(limits, stats) } else { None }
    }

    /// Half of the window waits on streams that no handler reads: what else the peer wants to send must not wait for those handlers.
    pub(crate) fn on_unread(&mut self, limits: &Limits, stats: &Stats) -> Option<u64> {
        self.windows.grow(limits, stats)
    }
}

/// How much a connection may hold of what it sends.
pub(crate) struct SendWindow {
    /// What it has whatever others hold.
    smallest: u64,
    most: u64,
    budget: u64,
    /// What it has of the budget: its window beyond what every connection may.
    borrowed: u64,
    is_short: bool,
    lent: Rc<Cell<u64>>,
    stats: Arc<Stats>,
}

impl SendWindow {
    /// The most that it can be.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// The window for a connection that could use `wanted` bytes.
    pub(crate) fn size(&mut self, wanted: u64) -> u64 {
        let beyond = wanted.min(self.most).saturating_sub(self.smallest);
        if beyond != self.borrowed {
            let others = self.lent.get() - self.borrowed;
            let granted = beyond.min(self.budget.saturating_sub(others) / SHARE);
            if granted < beyond && !self.is_short {
                self.stats.send_windows_reduced.add(1);
            }
            self.is_short = granted < beyond;
            self.lent.set(others + granted);
            self.borrowed = granted;
        }
        wanted.min(self.most).min(self.smallest + self.borrowed)
    }

    /// The window for a connection that has nothing to send; what it had of the budget is given back.
    pub(crate) fn rest(&mut self) -> u64 {
        self.lent.set(self.lent.get() - self.borrowed);
        self.borrowed = 0;
        self.most.min(self.smallest)
    }
}

impl Drop for SendWindow {
    fn drop(&mut self) {
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn promise_of_a_connection_that_has_ended_counts_as_long_as_somebody_holds_it() {
        let (limits, stats, budget) = (Limits::default(), Stats::default(), WindowBudget::default());
        let mut window = ReceiveWindow::new(Instant::now(), budget.promise(&limits, &stats));
        let held = window.take();
        assert_eq!((window.size(), held.receive, budget.promised.get()), (0, first_window(&limits), first_window(&limits)));
        assert_eq!(window.on_unread(&limits, &stats), None);
        drop(window);
        assert_eq!(budget.promised.get(), first_window(&limits));
        drop(held);
        assert_eq!(budget.promised.get(), 0);
    }

    #[test]
    fn promises_stay_within_the_budget_but_for_the_smallest() {
        let limits = Limits::default().with_window_budget_bytes(256 << 20).unwrap();
        let (budget, stats) = (WindowBudget::default(), Stats::default());
        let windows: Vec<_> = (0..5_000).map(|_| budget.promise(&limits, &stats)).collect();
        assert_eq!(windows[0].receive, limits.first_window_bytes());
        assert_eq!(windows[4_999].receive, SMALLEST_WINDOW);
        let promised: u64 = windows.iter().map(|windows| windows.receive).filter(|receive| *receive > SMALLEST_WINDOW).sum();
        assert!(promised <= limits.window_budget_bytes(), "{promised} bytes");
        assert!(stats.windows_reduced.value() > 0);
        drop(windows);
        assert_eq!(budget.promised.get(), 0);
        assert_eq!(budget.promise(&limits, &stats).receive, limits.first_window_bytes());
    }

    /// A window after a peer has sent at this rate, in datagrams, for so long.
    fn window_after(limits: &Limits, bytes_per_second: u64, lasting: Duration) -> (ReceiveWindow, Stats) {
        let (budget, stats, mut now) = (WindowBudget::default(), Stats::default(), Instant::now());
        let mut window = ReceiveWindow::new(now, budget.promise(limits, &stats));
        let end = now + lasting;
        while now < end {
            now += Duration::from_nanos(1_200 * 1_000_000_000 / bytes_per_second);
            window.on_received(now, 1_200, || RTT, limits, &stats);
        }
        (window, stats)
    }

    #[test]
    fn window_grows_to_several_times_what_the_path_holds_and_no_further() {
        // 100 Mbit/s hold 1.25 MB in a round trip of 100 ms.
        let (window, stats) = window_after(&Limits::default(), 12_500_000, Duration::from_secs(5));
        assert_eq!(window.size(), 8 << 20);
        assert_eq!(stats.windows_grown.value(), 3);
    }

    #[test]
    fn window_stays_where_the_peer_sends_slowly() {
        let (window, _) = window_after(&Limits::default(), 1_000_000, Duration::from_secs(20));
        assert_eq!(window.size(), Limits::default().first_window_bytes());
    }

    #[test]
    fn window_grows_no_further_than_its_limit() {
        let limits = Limits::default().with_connection_window_bytes(3 << 20).unwrap();
        let (window, _) = window_after(&limits, 12_500_000, Duration::from_secs(5));
        assert_eq!(window.size(), 3 << 20);
    }

    #[test]
    fn window_does_not_grow_where_the_budget_is_spent() {
        let limits = Limits::default().with_window_budget_bytes(100 << 20).unwrap();
        let (window, stats) = window_after(&limits, 12_500_000, Duration::from_secs(5));
        assert_eq!(window.size(), limits.first_window_bytes());
        assert!(stats.windows_reduced.value() > 0);
    }

    #[test]
    fn window_grows_when_half_of_it_is_unread_however_slow_the_peer_is() {
        let (limits, stats) = (Limits::default(), Stats::default());
        let budget = WindowBudget::default();
        let mut window = ReceiveWindow::new(Instant::now(), budget.promise(&limits, &stats));
        assert_eq!(window.on_unread(&limits, &stats), Some(2 * limits.first_window_bytes()));
        assert_eq!(budget.promised.get(), 2 * limits.first_window_bytes());
        drop(window);
        assert_eq!(budget.promised.get(), 0);
    }

    #[test]
    fn send_windows_share_their_budget_and_give_it_back() {
        let limits = Limits::default().with_send_budget_bytes(256 << 20).unwrap();
        let (budget, stats) = (WindowBudget::default(), Arc::<Stats>::default());
        let mut windows: Vec<_> = (0..1_000).map(|_| budget.send_window(&limits, stats.clone())).collect();
        let first = windows[0].size(1 << 20);
        let sizes: Vec<_> = windows.iter_mut().map(|window| window.size(4 << 20)).collect();
        assert_eq!((first, sizes[0]), (1 << 20, 4 << 20));
        assert!(sizes.iter().all(|size| *size >= SMALLEST_SEND_WINDOW));
        assert!(budget.lent.get() <= limits.send_budget_bytes());
        assert!(stats.send_windows_reduced.value() > 0);
        assert!(windows.iter_mut().all(|window| window.rest() == SMALLEST_SEND_WINDOW));
        assert_eq!(budget.lent.get(), 0);
        assert_eq!(windows[999].size(4 << 20), 4 << 20);
        drop(windows);
        assert_eq!(budget.lent.get(), 0);
    }

    #[test]
    fn send_window_that_is_small_borrows_nothing() {
        let budget = WindowBudget::default();
        let mut window = budget.send_window(&Limits::default(), Arc::default());
        assert_eq!(window.size(88 << 10), 88 << 10);
        assert_eq!(budget.lent.get(), 0);
    }
}
