//! What can go wrong with a link, each with what to do about it and the exit code that the program gives it.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::profile;

/// A link that could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The profile cannot be used.
    #[error(transparent)]
    Profile(#[from] profile::Error),
    /// Neither root nor user namespaces.
    #[error(
        "not permitted to {what} ({source}): run as root, or allow user namespaces \
         (sysctl user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0 where it exists), \
         or give the container CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NamespaceNotPermitted {
        /// What was refused.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A user namespace was asked for after threads had been started.
    #[error("a user namespace cannot be made once the program runs several threads: enter it first, or run as root")]
    TooManyThreads,
    /// The kernel or the container has no TUN.
    #[error("/dev/net/tun is missing ({0}): load the kernel module (modprobe tun), or pass --device /dev/net/tun to the container")]
    TunMissing(io::Error),
    /// The TUN device may not be opened.
    #[error("no permission to open /dev/net/tun ({0}): run as root, or let everyone open it (chmod 666 /dev/net/tun)")]
    TunNotPermitted(io::Error),
    /// The kernel cannot be asked about sockets.
    #[error("this kernel does not tell about TCP connections ({0}): load the module tcp_diag (modprobe tcp_diag), or leave out --tcp-info")]
    SockDiagMissing(io::Error),
    /// No command could reach it.
    #[error("--resolver {0} is not on the link: give an address at which a server at the far end listens, 10.77.0.2 or fd77::2")]
    ResolverElsewhere(IpAddr),
    /// There is nothing to put the resolver's file over.
    #[error("--resolver needs {path} on this machine ({source}): create it, an empty file will do")]
    ResolverFileMissing {
        /// Such as `/etc/resolv.conf`.
        path: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel does not know the congestion control.
    #[error("tcp congestion control `{name}` is not known to this kernel: available are {available}")]
    CongestionUnknown {
        /// As asked.
        name: String,
        /// What the kernel lists.
        available: String,
    },
    /// The route took the congestion control, but connections over the link did not get it.
    #[error("tcp congestion control `{asked}` was set, but connections over the link use {near} (near) and {far} (far)")]
    CongestionIneffective {
        /// As asked.
        asked: String,
        /// What the probe's near socket said.
        near: String,
        /// What the probe's far socket said.
        far: String,
    },
    /// `--far` or COMMAND could not be split or is empty.
    #[error("{0}")]
    BadCommand(String),
    /// The program does not exist.
    #[error("cannot start {}: {source}", program.display())]
    ProgramMissing {
        /// As given.
        program: OsString,
        /// The system's reason.
        source: io::Error,
    },
    /// The program exists and cannot be run.
    #[error("cannot start {}: {source}", program.display())]
    ProgramNotStarted {
        /// As given.
        program: OsString,
        /// The system's reason.
        source: io::Error,
    },
    /// The far command ended before it listened.
    #[error("the far command ended ({status}) before it listened on tcp port {port}: its own messages stand above")]
    FarEndedEarly {
        /// How it ended.
        status: std::process::ExitStatus,
        /// What was waited for.
        port: u16,
    },
    /// The far command runs and does not listen.
    #[error("the far command did not listen on tcp port {port} within {seconds} s: check its port, or raise --far-ready-seconds")]
    FarNotReady {
        /// What was waited for.
        port: u16,
        /// How long.
        seconds: u64,
    },
    /// The report's place cannot be written.
    #[error("cannot write the report {path}: {source}: name a file in a folder that this user may write", path = path.display())]
    Report {
        /// As given.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A trace's place cannot be written.
    #[error("cannot write {what} {path}: {source}: name a file in a folder that this user may write, with room for it", path = path.display())]
    Trace {
        /// Such as `the packets`.
        what: &'static str,
        /// As given.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A system call that should have worked.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    /// The exit code that `pronghorn link` documents for this error: numbers of `sysexits.h`, and of `env` for programs.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::CongestionUnknown { .. } | Self::ResolverElsewhere(_) | Self::BadCommand(_) => 2,
            Self::Profile(error) if error.is_unreadable() => 66,
            Self::Profile(_) => 65,
            Self::FarEndedEarly { .. }
            | Self::FarNotReady { .. }
            | Self::TunMissing(_)
            | Self::SockDiagMissing(_)
            | Self::ResolverFileMissing { .. } => 69,
            Self::TooManyThreads | Self::System { .. } | Self::CongestionIneffective { .. } => 70,
            Self::Report { .. } | Self::Trace { .. } => 73,
            Self::NamespaceNotPermitted { .. } | Self::TunNotPermitted(_) => 77,
            Self::ProgramNotStarted { .. } => 126,
            Self::ProgramMissing { .. } => 127,
        }
    }

    /// Refusals become [`Error::NamespaceNotPermitted`].
    pub(crate) fn namespace(what: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::USERS => Self::NamespaceNotPermitted { what, source: errno.into() },
            _ => Self::system(what)(errno),
        }
    }

    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
