//! What the kernel holds of what a TCP connection sends.

use std::os::fd::{AsFd, AsRawFd};

use socket2::SockRef;

use crate::limits::SMALLEST_SEND_WINDOW;
use crate::window_budget::SendWindow;

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
}

impl SendQueue {
    pub(super) fn new(window: SendWindow) -> Self {
        Self { window, is_counted: false, is_bounded: false }
    }

    /// The kernel takes nothing more for now.
    pub(super) fn on_blocked(&mut self, socket: &impl AsFd) {
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

/// Bytes that are not acknowledged, sent or not; none where the kernel does not say.
#[expect(unsafe_code, reason = "no library offers SIOCOUTQ")]
fn queued(socket: &impl AsFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer to where it is told to.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}
