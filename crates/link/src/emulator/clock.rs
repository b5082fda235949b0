//! Time zero of the profile's schedule: jitter, outages, traces and changes.

/// Clock of the profile's schedule. Nanoseconds since the link went live.
///
/// Time zero depends on the client's first packet, because programs need time before they send: a
/// browser that starts more slowly would otherwise meet other outages under the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    zero_ns: u64,
    waits: bool,
    /// Increases with each new time zero, so that both directions notice it.
    epoch: u32,
}

impl Clock {
    /// Waits for the first packet of a client's flow. Until then the schedule runs from now on, for
    /// packets of the server.
    pub(super) fn waiting(now_ns: u64) -> Self {
        Self { zero_ns: now_ns, waits: true, epoch: 0 }
    }

    /// Restarts the clock: time zero is the next packet that begins a new flow of the client.
    pub(super) fn restart(&mut self, now_ns: u64) {
        *self = Self { zero_ns: now_ns, waits: true, epoch: self.epoch + 1 };
    }

    /// Sets time zero to now, whichever side sends first.
    pub(super) fn begin(&mut self, now_ns: u64) {
        *self = Self { zero_ns: now_ns, waits: false, epoch: self.epoch + 1 };
    }

    /// Handles a packet of the client. Only the first packet of a flow can be time zero: a flow
    /// from before the start may still send.
    pub(super) fn on_client_packet(&mut self, now_ns: u64, begins_flow: impl FnOnce() -> bool) {
        if self.waits && begins_flow() {
            self.begin(now_ns);
        }
    }

    pub(super) fn zero_ns(&self) -> u64 {
        self.zero_ns
    }

    /// Returns time zero; `None` while waiting.
    pub(super) fn begun_ns(&self) -> Option<u64> {
        (!self.waits).then_some(self.zero_ns)
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }
}
