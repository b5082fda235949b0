//! What the kernel holds of what a TCP connection sends.

use std::os::fd::{AsFd, AsRawFd};

use socket2::SockRef;

use super::info;
use crate::limits::{SMALLEST_SEND_WINDOW, SMALLEST_TCP_UNSENT_BYTES, TCP_UNSENT_BYTES};
use crate::window_budget::SendWindow;

/// The kernel takes ahead of what it has sent what the path carries in a hundredth of a second. All of that stands before a response that is more
/// urgent, and a worker is back sooner.
const AHEAD_PER_SECOND: u64 = 100;

/// Counts what the kernel holds for a connection whose peer takes less than is sent, and has it hold no more than that where all
/// connections together hold too much.
///
/// What is not sent yet is bounded for each connection by itself (`TCP_NOTSENT_LOWAT`). What is sent and not acknowledged grows with what the
/// path carries, or seemed to carry before the peer fell silent.
pub(super) struct SendQueue {
    window: SendWindow,
    /// It has borrowed of what all connections may hold.
    is_counted: bool,
    /// The kernel was told how much it may hold.
    is_bounded: bool,
    /// Bytes that the kernel takes ahead of what it has sent.
    unsent: u32,
}

impl SendQueue {
    pub(super) fn new(window: SendWindow) -> Self {
        Self { window, is_counted: false, is_bounded: false, unsent: TCP_UNSENT_BYTES }
    }

    /// The kernel takes nothing more for now.
    pub(super) fn on_blocked(&mut self, socket: &impl AsFd) {
        if let Some(rate) = info::bytes_per_second(socket) {
            let unsent = unsent_at(rate);
            if unsent != self.unsent && SockRef::from(socket).set_tcp_notsent_lowat(unsent).is_ok() {
                self.unsent = unsent;
            }
        }
        let held = queued(socket);
        if held <= SMALLEST_SEND_WINDOW && !self.is_bounded && !self.is_counted {
            return;
        }
        // A connection that is bounded may hold more again as soon as there is more.
        let wanted = if self.is_bounded { 2 * held.max(SMALLEST_SEND_WINDOW) } else { held };
        let granted = self.window.size(wanted);
        self.is_counted = true;
        if granted < held || self.is_bounded {
            self.is_bounded = SockRef::from(socket).set_send_buffer_size(usize::try_from(granted).unwrap_or(usize::MAX)).is_ok();
        }
    }

    /// All that there was to send is with the kernel.
    pub(super) fn on_done(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.window.rest();
        }
    }
}

/// Bytes that the kernel may take ahead at a rate: a power of two, so that a rate that moves a little costs no system call.
fn unsent_at(bytes_per_second: u64) -> u32 {
    let ahead = u32::try_from(bytes_per_second / AHEAD_PER_SECOND).unwrap_or(TCP_UNSENT_BYTES);
    ahead.clamp(SMALLEST_TCP_UNSENT_BYTES, TCP_UNSENT_BYTES).next_power_of_two()
}

/// Bytes that are not acknowledged, sent or not; none where the kernel does not say.
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
        let expected = [(0, 16 << 10), (10, 16 << 10), (20, 32 << 10), (50, 64 << 10), (100, 128 << 10), (10_000, 128 << 10)];
        for (megabits, unsent) in expected {
            assert_eq!(unsent_at(megabits * megabit), unsent, "{megabits} Mbit/s");
        }
        assert_eq!(unsent_at(u64::MAX), TCP_UNSENT_BYTES);
    }
}
