//! Signals as input: forwarded signals are blocked and read from a descriptor.
#![expect(
    unsafe_code,
    reason = "signal masks and signalfd are system calls without a safe wrapper here"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

/// Signals by which users and service managers end or notify a program.
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// A signal that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) number: i32,
    /// Whether the terminal sent it (Ctrl-C), so that every process of the foreground group already
    /// has it.
    pub(crate) from_terminal: bool,
}

/// Blocks the forwarded signals in the calling thread and in threads that it starts from now on.
///
/// The mask stays when this is dropped: a pending signal would otherwise end the program at that
/// point.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
}

impl Signals {
    pub(crate) fn block() -> io::Result<Self> {
        let set = forwarded();
        mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: `set` is initialised; the descriptor that signalfd returns is ours alone.
        let fd = unsafe {
            match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                raw => OwnedFd::from_raw_fd(raw),
            }
        };
        Ok(Self { fd })
    }

    /// Returns the next pending signal, if any.
    pub(crate) fn next(&self) -> Option<Arrived> {
        // `ssi_signo` and `ssi_code` are the first and third 32-bit fields of `signalfd_siginfo`.
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.fd, &mut info).ok()?;
        let field =
            |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        (read == info.len())
            .then(|| Arrived { number: field(0), from_terminal: field(8) == libc::SI_KERNEL })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Unblocks the forwarded signals. One system call: it may run between fork and exec.
pub(crate) fn unblock() -> io::Result<()> {
    mask(libc::SIG_UNBLOCK, &forwarded())
}

fn forwarded() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; sigaddset then gets valid signal numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in FORWARDED {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is a valid signal set; the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(how, std::ptr::from_ref(set), std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
