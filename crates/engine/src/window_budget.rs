//! A worker's budgets for flow-control windows and send buffers.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::{
    HTTP2_SEND_BYTES, Limits, PRESSED_WINDOW, SMALLEST_HTTP2_SEND_BYTES, SMALLEST_SEND_WINDOW,
    SMALLEST_WINDOW,
};
use crate::memory::{Charge, MemoryPressure, WorkerMemory};
use crate::stats::Stats;

/// One connection gets at most this fraction of the remaining budget.
const SHARE: u64 = 64;
/// Part of its allowance that a connection has for sending while memory is short.
const PRESSED_DIVISOR: u64 = 4;

/// Shares the window budgets among the connections of a worker.
///
/// A receive window is a promise, which cannot be taken back. A connection begins with a small
/// window, which grows when its peer uses it up, and it counts until the connection ends. As the
/// budget runs low, windows are limited to a 64th of what remains, so that some always remains. A
/// send window is lent: it counts only while there is data to send.
///
/// Both budgets are also bounded by a part of the memory budget, and under memory pressure windows
/// stay small or shrink.
#[derive(Default)]
pub(crate) struct WindowBudget {
    promised: Rc<Cell<u64>>,
    lent: Rc<Cell<u64>>,
    memory: Rc<WorkerMemory>,
}

/// The receive window of one connection, promised until dropped.
pub(crate) struct WindowPromise {
    /// Bytes of the connection's flow-control window.
    pub(crate) receive: u64,
    promised: Rc<Cell<u64>>,
    memory: Rc<WorkerMemory>,
}

/// Returns the initial receive window of a connection, as long as the budget lasts.
pub(crate) fn first_window(limits: &Limits) -> u64 {
    limits.first_window_bytes().min(limits.connection_window_bytes())
}

/// Returns the receive-window bytes that a worker may grant.
fn promised_bytes(limits: &Limits, memory: &WorkerMemory) -> u64 {
    limits.window_budget_bytes().min(memory.max_windows())
}

impl WindowBudget {
    pub(crate) fn new(memory: Rc<WorkerMemory>) -> Self {
        Self { promised: Rc::default(), lent: Rc::default(), memory }
    }

    pub(crate) fn memory(&self) -> &Rc<WorkerMemory> {
        &self.memory
    }

    pub(crate) fn promise(&self, limits: &Limits, stats: &Stats) -> WindowPromise {
        let left = promised_bytes(limits, &self.memory).saturating_sub(self.promised.get());
        let (left, smallest) = match self.memory.pressure() {
            MemoryPressure::None => (left, SMALLEST_WINDOW),
            MemoryPressure::SmallWindows => (0, SMALLEST_WINDOW),
            _ => (0, PRESSED_WINDOW),
        };
        let full = first_window(limits);
        // In powers of two, so that few transport configurations serve all connections.
        let mut halvings = 0;
        while halvings < u64::BITS && (full >> halvings) > left / SHARE {
            halvings += 1;
        }
        let receive = full.checked_shr(halvings).unwrap_or(0).max(smallest.min(full));
        if receive < full {
            stats.windows_reduced.add(1);
        }
        self.promised.set(self.promised.get() + receive);
        WindowPromise { receive, promised: self.promised.clone(), memory: self.memory.clone() }
    }

    /// Returns the window for data buffered by a connection's transport: unacknowledged packets
    /// over QUIC, the same in the kernel over TCP.
    pub(crate) fn send_window(&self, limits: &Limits, stats: Arc<Stats>) -> SendWindow {
        self.lend(limits, SMALLEST_SEND_WINDOW, limits.send_window_bytes(), stats)
    }

    /// Returns the window for data that an HTTP/2 connection buffers before its transport.
    pub(crate) fn send_buffer(&self, limits: &Limits, stats: Arc<Stats>) -> SendWindow {
        self.lend(
            limits,
            SMALLEST_HTTP2_SEND_BYTES,
            limits.send_window_bytes().min(HTTP2_SEND_BYTES),
            stats,
        )
    }

    fn lend(
        &self,
        limits: &Limits,
        smallest: u64,
        max_bytes: u64,
        stats: Arc<Stats>,
    ) -> SendWindow {
        SendWindow {
            smallest,
            max_bytes,
            budget: limits.send_budget_bytes().min(self.memory.max_sending()),
            borrowed: 0,
            is_short: false,
            lent: self.lent.clone(),
            memory: self.memory.clone(),
            held: Charge::default(),
            stats,
        }
    }
}

impl WindowPromise {
    /// Doubles the receive window, unless it is at its maximum or the budget is too low. Returns
    /// the new size.
    fn grow(&mut self, limits: &Limits, stats: &Stats) -> Option<u64> {
        let wanted = self.receive.saturating_mul(2).min(limits.connection_window_bytes());
        if wanted <= self.receive {
            return None;
        }
        let promised = self.promised.get() - self.receive;
        let most = promised_bytes(limits, &self.memory);
        if wanted > most.saturating_sub(promised) / SHARE
            || self.memory.pressure() >= MemoryPressure::Shrink
        {
            stats.windows_reduced.add(1);
            return None;
        }
        self.promised.set(promised + wanted);
        self.receive = wanted;
        stats.windows_grown.add(1);
        Some(wanted)
    }
}

impl WindowPromise {
    /// Reduces the promise to at most `most` bytes. Returns the new size if that is less.
    fn shrink(&mut self, most: u64, stats: &Stats) -> Option<u64> {
        if self.receive <= most {
            return None;
        }
        self.promised.set(self.promised.get() - self.receive + most);
        self.receive = most;
        stats.windows_shrunk.add(1);
        Some(most)
    }
}

impl Drop for WindowPromise {
    fn drop(&mut self) {
        self.promised.set(self.promised.get() - self.receive);
    }
}

/// A receive window that follows the capacity of the path.
///
/// It doubles when the peer has sent half of it within two round trips: the window may then be the
/// bottleneck, now or in the next round trip of slow start. So it settles between four and eight
/// times the bandwidth-delay product. Out-of-order data that waits for a lost packet takes a part
/// of it.
pub(crate) struct ReceiveWindow {
    windows: WindowPromise,
    /// When the current half began.
    since: Instant,
    /// Bytes received since then.
    came: u64,
    /// Received data that was not read.
    unread: Charge,
}

impl ReceiveWindow {
    pub(crate) fn new(now: Instant, windows: WindowPromise) -> Self {
        Self { windows, since: now, came: 0, unread: Charge::default() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.windows.receive
    }

    /// Returns the promise for data that is already received, to be kept by its holder. Nothing
    /// more will be received, so this window becomes 0.
    pub(crate) fn take(&mut self) -> WindowPromise {
        let rest = WindowPromise {
            receive: 0,
            promised: self.windows.promised.clone(),
            memory: self.windows.memory.clone(),
        };
        std::mem::replace(&mut self.windows, rest)
    }

    /// Counts received bytes, at least approximately. Returns the new window if it grows. `rtt` is
    /// called only when it decides.
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

    /// Grows the window because half of it is filled by streams that no handler reads: the peer's
    /// other data must not wait for those handlers. Under memory pressure it has to.
    pub(crate) fn on_unread(&mut self, limits: &Limits, stats: &Stats) -> Option<u64> {
        if self.windows.memory.pressure() >= MemoryPressure::NoGrowth {
            return None;
        }
        self.windows.grow(limits, stats)
    }

    /// Counts this many bytes as received and not read.
    pub(crate) fn hold(&mut self, unread: u64) {
        let before = self.unread.bytes();
        self.unread.set(&self.windows.memory, with_overhead(unread));
        if self.unread.bytes() != before {
            self.windows.memory.change_unread(before, self.unread.bytes());
        }
    }

    /// Shrinks the window if memory is short: to the smallest if data waits to be read, otherwise to
    /// that of a new connection. Returns the new window if it is smaller.
    ///
    /// The peer may use what it was promised, and gets no more until it has been read.
    pub(crate) fn shrink(&mut self, unread: u64, limits: &Limits, stats: &Stats) -> Option<u64> {
        if self.windows.memory.pressure() < MemoryPressure::Shrink {
            return None;
        }
        let is_stalled = unread > 0 && unread >= self.windows.receive / 2;
        let most = if is_stalled { PRESSED_WINDOW } else { first_window(limits) };
        self.windows.shrink(most.min(first_window(limits)), stats)
    }
}

impl Drop for ReceiveWindow {
    fn drop(&mut self) {
        self.windows.memory.change_unread(self.unread.bytes(), 0);
    }
}

/// Returns the memory that unread data needs. Libraries keep it in the buffers in which it arrived,
/// together with what surrounds it: up to half more than the data, as measured.
pub(crate) fn with_overhead(bytes: u64) -> u64 {
    bytes + bytes / 2
}

/// Limit on the data that a connection buffers for sending.
pub(crate) struct SendWindow {
    /// Bytes that every connection has, whatever the others use.
    smallest: u64,
    max_bytes: u64,
    budget: u64,
    /// Bytes borrowed from the budget, beyond `smallest`.
    borrowed: u64,
    is_short: bool,
    lent: Rc<Cell<u64>>,
    memory: Rc<WorkerMemory>,
    /// Data that waits for the peer.
    held: Charge,
    stats: Arc<Stats>,
}

impl SendWindow {
    pub(crate) fn memory(&self) -> &Rc<WorkerMemory> {
        &self.memory
    }

    /// Whether some bytes are counted as waiting for the peer.
    pub(crate) fn holds(&self) -> bool {
        self.held.bytes() > 0
    }

    /// Counts this many bytes as waiting for the peer.
    pub(crate) fn hold(&mut self, bytes: u64) {
        self.held.set(&self.memory, bytes);
    }

    /// Returns the bytes that every connection has. Under memory pressure, a quarter: some packets.
    fn smallest(&self) -> u64 {
        if self.memory.pressure() >= MemoryPressure::Shrink {
            self.smallest / PRESSED_DIVISOR
        } else {
            self.smallest
        }
    }

    /// Returns the largest possible window.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Returns the window for a connection that could use `wanted` bytes.
    pub(crate) fn size(&mut self, wanted: u64) -> u64 {
        let smallest = self.smallest();
        let beyond = wanted.min(self.max_bytes).saturating_sub(smallest);
        if beyond != self.borrowed {
            let others = self.lent.get() - self.borrowed;
            let is_pressed = self.memory.pressure() >= MemoryPressure::NoGrowth;
            let left = if is_pressed { 0 } else { self.budget.saturating_sub(others) };
            let granted = beyond.min(left / SHARE);
            if granted < beyond && !self.is_short {
                self.stats.send_windows_reduced.add(1);
            }
            self.is_short = granted < beyond;
            self.lent.set(others + granted);
            self.borrowed = granted;
        }
        wanted.min(self.max_bytes).min(smallest + self.borrowed)
    }

    /// Returns the borrowed bytes to the budget and the window of a connection with nothing to
    /// send.
    pub(crate) fn release(&mut self) -> u64 {
        self.lent.set(self.lent.get() - self.borrowed);
        self.borrowed = 0;
        self.max_bytes.min(self.smallest())
    }
}

impl Drop for SendWindow {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryBudget, MemoryHold};

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn window_promise_outlives_connection_until_dropped() {
        let (limits, stats, budget) =
            (Limits::default(), Stats::default(), WindowBudget::default());
        let mut window = ReceiveWindow::new(Instant::now(), budget.promise(&limits, &stats));
        let held = window.take();
        assert_eq!(
            (window.size(), held.receive, budget.promised.get()),
            (0, first_window(&limits), first_window(&limits))
        );
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
        let promised: u64 = windows
            .iter()
            .map(|windows| windows.receive)
            .filter(|receive| *receive > SMALLEST_WINDOW)
            .sum();
        assert!(promised <= limits.window_budget_bytes(), "{promised} bytes");
        assert!(stats.windows_reduced.value() > 0);
        drop(windows);
        assert_eq!(budget.promised.get(), 0);
        assert_eq!(budget.promise(&limits, &stats).receive, limits.first_window_bytes());
    }

    /// Returns the window and counters after a peer has sent datagrams at this rate for the
    /// duration `lasting`.
    fn window_after(
        limits: &Limits,
        bytes_per_second: u64,
        lasting: Duration,
    ) -> (ReceiveWindow, Stats) {
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
        // 100 Mbit/s fill 1.25 MB in a round trip of 100 ms.
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
        let mut windows: Vec<_> =
            (0..1_000).map(|_| budget.send_window(&limits, stats.clone())).collect();
        let first = windows[0].size(1 << 20);
        let sizes: Vec<_> = windows.iter_mut().map(|window| window.size(4 << 20)).collect();
        assert_eq!((first, sizes[0]), (1 << 20, 4 << 20));
        assert!(sizes.iter().all(|size| *size >= SMALLEST_SEND_WINDOW));
        assert!(budget.lent.get() <= limits.send_budget_bytes());
        assert!(stats.send_windows_reduced.value() > 0);
        assert!(windows.iter_mut().all(|window| window.release() == SMALLEST_SEND_WINDOW));
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

    /// A budget whose worker is under this pressure, and what causes it.
    fn pressed(percent: u64) -> (WindowBudget, MemoryHold) {
        let memory = MemoryBudget::new(1 << 40);
        let mut hold = memory.hold();
        hold.grow((1 << 40) / 100 * percent + 1);
        (WindowBudget::new(Rc::new(WorkerMemory::new(memory))), hold)
    }

    #[test]
    fn new_windows_are_small_under_pressure_and_not_after_it() {
        let (limits, stats) = (Limits::default(), Stats::default());
        for (percent, expected) in
            [(0, limits.first_window_bytes()), (45, SMALLEST_WINDOW), (75, PRESSED_WINDOW)]
        {
            let (budget, hold) = pressed(percent);
            assert_eq!(budget.promise(&limits, &stats).receive, expected, "at {percent} %");
            drop(hold);
            budget.memory.begin_turn();
            assert_eq!(budget.promise(&limits, &stats).receive, limits.first_window_bytes());
        }
    }

    #[test]
    fn window_does_not_grow_on_unread_data_under_pressure() {
        let (limits, stats) = (Limits::default(), Stats::default());
        let (budget, hold) = pressed(60);
        let mut window = ReceiveWindow::new(Instant::now(), budget.promise(&limits, &stats));
        assert_eq!(window.on_unread(&limits, &stats), None);
        let rate = window.on_received(Instant::now(), 1 << 20, || RTT, &limits, &stats);
        assert!(rate.is_some(), "data that is read at once still opens it");
        drop(hold);
        budget.memory.begin_turn();
        assert!(window.on_unread(&limits, &stats).is_some());
    }

    #[test]
    fn stalled_window_shrinks_further_than_one_that_is_read() {
        let (limits, stats) = (Limits::default(), Stats::default());
        let budget = WindowBudget::default();
        let mut windows = [0; 2].map(|_| {
            let mut window = ReceiveWindow::new(Instant::now(), budget.promise(&limits, &stats));
            window.on_unread(&limits, &stats);
            window
        });
        assert_eq!(windows[0].shrink(2 << 20, &limits, &stats), None, "there is no pressure");
        let (pressed, hold) = pressed(75);
        for window in &mut windows {
            window.windows.memory = pressed.memory.clone();
        }
        let [stalled, read] = &mut windows;
        assert_eq!(stalled.shrink(2 << 20, &limits, &stats), Some(PRESSED_WINDOW));
        assert_eq!(stalled.shrink(2 << 20, &limits, &stats), None, "it is small already");
        assert_eq!(read.shrink(0, &limits, &stats), Some(limits.first_window_bytes()));
        assert_eq!(budget.promised.get(), PRESSED_WINDOW + limits.first_window_bytes());
        assert_eq!(stats.windows_shrunk.value(), 2);
        let now = Instant::now();
        assert_eq!(stalled.on_received(now, 1 << 20, || RTT, &limits, &stats), None);
        drop(hold);
        pressed.memory.begin_turn();
        let grown = stalled.on_received(now, 1 << 20, || RTT, &limits, &stats);
        assert_eq!(grown, Some(2 * PRESSED_WINDOW));
    }

    #[test]
    fn unread_data_counts_with_its_overhead_until_the_window_is_dropped() {
        let (limits, stats) = (Limits::default(), Stats::default());
        let budget = WindowBudget::default();
        let mut window = ReceiveWindow::new(Instant::now(), budget.promise(&limits, &stats));
        window.hold(1 << 20);
        assert_eq!(budget.memory.held(), with_overhead(1 << 20));
        assert!(budget.memory.keeps_datagrams());
        window.hold(8 << 10);
        assert_eq!(budget.memory.held(), with_overhead(8 << 10));
        assert!(!budget.memory.keeps_datagrams());
        drop(window);
        assert_eq!(budget.memory.held(), 0);
    }

    #[test]
    fn nothing_is_lent_under_pressure_and_the_allowance_shrinks() {
        let (limits, stats) = (Limits::default(), Arc::<Stats>::default());
        let (budget, hold) = pressed(60);
        let mut window = budget.send_window(&limits, stats.clone());
        assert_eq!(window.size(1 << 20), SMALLEST_SEND_WINDOW);
        drop(hold);
        let (budget, hold) = pressed(75);
        let mut window = budget.send_window(&limits, stats);
        assert_eq!(window.size(1 << 20), SMALLEST_SEND_WINDOW / PRESSED_DIVISOR);
        drop(hold);
        budget.memory.begin_turn();
        assert_eq!(window.size(1 << 20), 1 << 20);
    }

    #[test]
    fn windows_are_bounded_by_a_part_of_the_memory() {
        let (limits, stats) = (Limits::default(), Stats::default());
        let memory = MemoryBudget::new(256 << 20);
        let budget = WindowBudget::new(Rc::new(WorkerMemory::new(memory)));
        let windows: Vec<_> = (0..500).map(|_| budget.promise(&limits, &stats)).collect();
        let large: u64 = windows
            .iter()
            .map(|windows| windows.receive)
            .filter(|receive| *receive > SMALLEST_WINDOW)
            .sum();
        assert!(large <= 64 << 20, "{large} bytes");
    }
}
