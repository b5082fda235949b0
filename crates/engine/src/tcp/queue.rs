//! The kernel's send queue of a TCP connection.

use std::os::fd::{AsFd, AsRawFd};

use socket2::SockRef;

use super::info;
use crate::limits::{SMALLEST_SEND_WINDOW, SMALLEST_TCP_UNSENT_BYTES, TCP_UNSENT_BYTES};
use crate::window_budget::SendWindow;

/// Unsent data in the kernel is limited to 1/100 s of the path's rate. All of it delays a more
/// urgent response, and a worker refills the queue sooner than that.
const AHEAD_PER_SECOND: u64 = 100;

/// Counts the data that the kernel buffers for a slow peer, and limits the kernel's buffer when all
/// connections together buffer too much.
///
/// Unsent data is limited per connection (`TCP_NOTSENT_LOWAT`). Sent but unacknowledged data grows
/// with the path's capacity, or with what that seemed to be before the peer fell silent.
pub(super) struct SendQueue {
    window: SendWindow,
    /// Whether the connection has borrowed from the budget of all connections.
    is_counted: bool,
    /// Whether the kernel's buffer is limited.
    is_bounded: bool,
    /// Maximum unsent bytes in the kernel.
    unsent: u32,
}

impl SendQueue {
    pub(super) fn new(window: SendWindow) -> Self {
        Self { window, is_counted: false, is_bounded: false, unsent: TCP_UNSENT_BYTES }
    }

    /// Called when the kernel accepts no more data.
    pub(super) fn on_blocked(&mut self, socket: &impl AsFd) {
        if let Some(rate) = info::bytes_per_second(socket) {
            let unsent = unsent_at(rate);
            if unsent != self.unsent && SockRef::from(socket).set_tcp_notsent_lowat(unsent).is_ok()
            {
                self.unsent = unsent;
            }
        }
        let held = queued(socket);
        if held <= SMALLEST_SEND_WINDOW && !self.is_bounded && !self.is_counted {
            return;
        }
        // A limited connection may buffer more again as soon as the budget allows.
        let wanted = if self.is_bounded { 2 * held.max(SMALLEST_SEND_WINDOW) } else { held };
        let granted = self.window.size(wanted);
        self.is_counted = true;
        if granted < held || self.is_bounded {
            self.is_bounded = SockRef::from(socket)
                .set_send_buffer_size(usize::try_from(granted).unwrap_or(usize::MAX))
                .is_ok();
        }
    }

    /// Called when the kernel has accepted all data.
    pub(super) fn on_done(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.window.release();
        }
    }
}

/// Returns the maximum of unsent bytes at a rate. It is a power of two, so that small changes of
/// the rate cost no system call.
fn unsent_at(bytes_per_second: u64) -> u32 {
    let ahead = u32::try_from(bytes_per_second / AHEAD_PER_SECOND).unwrap_or(TCP_UNSENT_BYTES);
    ahead.clamp(SMALLEST_TCP_UNSENT_BYTES, TCP_UNSENT_BYTES).next_power_of_two()
}

/// Returns the number of unacknowledged bytes, sent or not; 0 if the kernel does not report it.
#[expect(unsafe_code, reason = "no library offers SIOCOUTQ")]
pub(super) fn queued(socket: &impl AsFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer to where it is told to.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_bytes_follow_the_rate_between_their_bounds() {
        let megabit = 125_000;
        let expected = [
            (0, 16 << 10),
            (10, 16 << 10),
            (20, 32 << 10),
            (50, 64 << 10),
            (100, 128 << 10),
            (10_000, 128 << 10),
        ];
        for (megabits, unsent) in expected {
            assert_eq!(unsent_at(megabits * megabit), unsent, "{megabits} Mbit/s");
        }
        assert_eq!(unsent_at(u64::MAX), TCP_UNSENT_BYTES);
    }
}
