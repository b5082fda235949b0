//! Time zero of what a profile does by time: jitter, outages, traces and changes.

/// Nanoseconds are those since the link went live.
///
/// Programs take their time before they send: a browser that started slower would otherwise meet other outages under the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    zero_ns: u64,
    waits: bool,
    /// Grows with each new time zero, so that both directions notice it.
    epoch: u32,
}

impl Clock {
    /// Waits for the first packet that the client begins a flow with. Until that comes, the schedule runs from now on: for packets of the server.
    pub(super) fn waiting(now_ns: u64) -> Self {
        Self { zero_ns: now_ns, waits: true, epoch: 0 }
    }

    /// Time zero will be the next packet that the client begins a new flow with.
    pub(super) fn restart(&mut self, now_ns: u64) {
        *self = Self { zero_ns: now_ns, waits: true, epoch: self.epoch + 1 };
    }

    /// Time zero is now, whoever sends first.
    pub(super) fn begin(&mut self, now_ns: u64) {
        *self = Self { zero_ns: now_ns, waits: false, epoch: self.epoch + 1 };
    }

    /// The client sends a packet. Only that which begins a flow can be time zero: a flow from before the start may still send.
    pub(super) fn on_client_packet(&mut self, now_ns: u64, begins_flow: impl FnOnce() -> bool) {
        if self.waits && begins_flow() {
            self.begin(now_ns);
        }
    }

    pub(super) fn zero_ns(&self) -> u64 {
        self.zero_ns
    }

    /// `None` while it waits.
    pub(super) fn begun_ns(&self) -> Option<u64> {
        (!self.waits).then_some(self.zero_ns)
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }
}
