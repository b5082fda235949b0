//! Processor time, as the kernel accounts it.
#![expect(unsafe_code, reason = "getrusage and waitid with a usage have no safe wrapper here")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::Serialize;

/// Processor time spent in a program and in the kernel on its behalf.
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

    /// All threads of this process, including ended ones, but no other process.
    pub(crate) fn of_this_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            user: rounded(self.user - before.user),
            system: rounded(self.system - before.system),
        }
    }

    fn of(whom: libc::c_int) -> Self {
        let mut usage = MaybeUninit::zeroed();
        // SAFETY: `usage` is as large as the kernel writes, and all zeros are a valid `rusage`
        // should it refuse.
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
        self.user = rounded(self.user + other.user);
        self.system = rounded(self.system + other.system);
    }
}

/// To the microsecond, which is what the kernel tells.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// How a child ended, and the processor time of it and of all below it that was waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) cpu: CpuTime,
}

/// Waits for a child of this process, once; `None` if it still runs.
pub(crate) fn try_wait(child: BorrowedFd<'_>) -> io::Result<Option<Ended>> {
    wait_with(child, libc::WNOHANG)
}

/// Waits for the end of a child of this process.
pub(crate) fn wait(child: BorrowedFd<'_>) -> io::Result<Ended> {
    Ok(wait_with(child, 0)?
        .expect("invariant: without WNOHANG the kernel returns when the child has ended"))
}

/// The system call, not the library's function: only the former tells the usage.
fn wait_with(child: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<Option<Ended>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: the kernel writes into two structures of the right type that live across the
        // call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_waitid,
                libc::P_PIDFD,
                child.as_raw_fd(),
                info.as_mut_ptr(),
                libc::WEXITED | flags,
                usage.as_mut_ptr(),
            )
        };
        if result == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: all zeros are valid for both, and what the kernel wrote is; the fields are those of a
    // child's end.
    let (info, usage) = unsafe { (info.assume_init(), usage.assume_init()) };
    // SAFETY: as above.
    let (pid, value) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    // As wait(2) encodes it.
    let status = match info.si_code {
        libc::CLD_EXITED => value << 8,
        libc::CLD_DUMPED => value | 0x80,
        _ => value,
    };
    Ok(Some(Ended { status: ExitStatus::from_raw(status), cpu: usage.into() }))
}
