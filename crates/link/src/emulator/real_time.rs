//! Real-time scheduling.
#![expect(
    unsafe_code,
    reason = "sched_setscheduler has no safe wrapper here, and mlock is for addresses"
)]

use std::num::NonZeroU64;

use rustix::mm::MlockFlags;
use serde::Serialize;

/// Scheduling of the emulator's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "policy", rename_all = "lowercase")]
pub enum Scheduling {
    /// Real-time scheduling.
    Fifo {
        /// Priority, 1 to 99.
        priority: i32,
    },
    /// Ordinary scheduling.
    Other,
}

/// Requests real-time scheduling and exact timers for the calling thread, and returns the
/// scheduling obtained.
pub(crate) fn request_real_time(priority: i32) -> Scheduling {
    let finest = NonZeroU64::new(1).expect("invariant: one is not zero");
    // Real-time threads have no timer slack; without this call an ordinary thread is woken up to 50
    // µs late.
    let _ = rustix::thread::set_current_timer_slack(Some(finest));
    lock_program();
    let parameter = libc::sched_param { sched_priority: priority };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: thread 0 is the caller; `parameter` is valid and lives across the call.
    let granted = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } == 0;
    if granted { Scheduling::Fifo { priority } } else { Scheduling::Other }
}

/// Locks the program's own pages and this thread's stack on use. A page that the kernel reclaims
/// delays the packet that needs it by milliseconds. Locking the whole process would be too much:
/// allocators reserve a gigabyte that they never use, but which counts against the limit. Without
/// the right to lock memory the link still works; its report shows the lateness.
fn lock_program() {
    let on_the_stack = 0u8;
    let stack = std::ptr::from_ref(&on_the_stack) as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for Mapping { start, end, is_file } in maps.lines().filter_map(Mapping::parse) {
        if is_file || (start..end).contains(&stack) {
            // SAFETY: locking changes nothing in the memory, and a range that has gone meanwhile is
            // refused.
            let _ = unsafe {
                rustix::mm::mlock_with(start as *mut _, end - start, MlockFlags::ONFAULT)
            };
        }
    }
}

/// A line of `/proc/self/maps`.
struct Mapping {
    start: usize,
    end: usize,
    is_file: bool,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let parse = |number| usize::from_str_radix(number, 16).ok();
        Some(Self { start: parse(start)?, end: parse(end)?, is_file: rest.contains(" /") })
    }
}
