//! Processor time, as the kernel accounts it.
#![expect(unsafe_code, reason = "getrusage has no safe wrapper here")]

use std::mem::MaybeUninit;

use serde::Serialize;

/// Time that processors spent, in a program and in the kernel on its behalf.
///
/// Their sum is exact; kernels that count by ticks only estimate how it is divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CpuTime {
    /// Seconds in the program itself.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
}

impl CpuTime {
    pub(crate) fn of_this_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// All threads, also those that have ended; no other process.
    pub(crate) fn of_this_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
    }

    fn of(whom: libc::c_int) -> Self {
        let mut usage = MaybeUninit::zeroed();
        // SAFETY: `usage` is as large as the kernel writes, and all zeros are a valid `rusage` should it refuse.
        let usage = unsafe {
            libc::getrusage(whom, usage.as_mut_ptr());
            usage.assume_init()
        };
        Self::from(usage)
    }
}

impl From<libc::rusage> for CpuTime {
    fn from(usage: libc::rusage) -> Self {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self { user: seconds(usage.ru_utime), system: seconds(usage.ru_stime) }
    }
}

impl std::ops::AddAssign for CpuTime {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
    }
}
