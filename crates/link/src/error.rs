//! Errors of links, each with a remedy and the program's exit code.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::profile;

/// A link that could not be created or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The profile is invalid.
    #[error(transparent)]
    Profile(#[from] profile::Error),
    /// The process is not root, and user namespaces are not available.
    #[error(
        "not permitted to {what} ({source}): run as root, or allow user namespaces (sysctl \
         user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0 where it \
         exists), or give the container CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NamespaceNotPermitted {
        /// The refused operation.
        what: &'static str,
        /// Error returned by the system.
        source: io::Error,
    },
    /// A user namespace was requested after threads had been started.
    #[error(
        "a user namespace cannot be made once the program runs several threads: enter it first, or \
            run as root"
    )]
    TooManyThreads,
    /// The kernel or the container has no TUN support.
    #[error(
        "/dev/net/tun is missing ({0}): load the kernel module (modprobe tun), or pass --device \
            /dev/net/tun to the container"
    )]
    TunMissing(io::Error),
    /// The TUN device may not be opened.
    #[error(
        "no permission to open /dev/net/tun ({0}): run as root, or let everyone open it (chmod 666 \
            /dev/net/tun)"
    )]
    TunNotPermitted(io::Error),
    /// The kernel does not report sockets.
    #[error(
        "this kernel does not report TCP connections ({0}): load the module tcp_diag (modprobe \
            tcp_diag), or leave out --tcp-info"
    )]
    SockDiagMissing(io::Error),
    /// The resolver is not reachable from commands on the link.
    #[error(
        "--resolver {0} is not on the link: give an address at which a server at the far end \
            listens, 10.77.0.2 or fd77::2"
    )]
    ResolverElsewhere(IpAddr),
    /// The file that `--resolver` replaces does not exist.
    #[error("--resolver needs {path} on this machine ({source}): create it, an empty file will do")]
    ResolverFileMissing {
        /// The path, such as `/etc/resolv.conf`.
        path: &'static str,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The kernel does not support the congestion control.
    #[error(
        "tcp congestion control `{name}` is not known to this kernel: available are {available}"
    )]
    CongestionUnknown {
        /// The requested algorithm.
        name: String,
        /// Algorithms listed by the kernel.
        available: String,
    },
    /// The route accepted the congestion control, but connections over the link did not get it.
    #[error(
        "tcp congestion control `{asked}` was set, but connections over the link use {near} (near) \
            and {far} (far)"
    )]
    CongestionIneffective {
        /// The requested algorithm.
        asked: String,
        /// Algorithm of the probe's near socket.
        near: String,
        /// Algorithm of the probe's far socket.
        far: String,
    },
    /// `--far` or COMMAND cannot be parsed or is empty.
    #[error("{0}")]
    BadCommand(String),
    /// The program does not exist.
    #[error("cannot start {}: {source}", program.display())]
    ProgramMissing {
        /// The program as given.
        program: OsString,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The program exists and cannot be executed.
    #[error("cannot start {}: {source}", program.display())]
    ProgramNotStarted {
        /// The program as given.
        program: OsString,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The far command ended before it listened. The lab cuts the ending off
    /// (`packages/lab/src/run/link-command.ts`): its users do not see what stands above.
    #[error(
        "the far command ended ({status}) before it listened on tcp port {port}\
            : its own messages stand above"
    )]
    FarEndedEarly {
        /// Exit status of the command.
        status: std::process::ExitStatus,
        /// The port that was waited for.
        port: u16,
    },
    /// The far command runs but does not listen.
    #[error(
        "the far command did not listen on tcp port {port} within {seconds} s: check its port, or \
            raise --far-ready-seconds"
    )]
    FarNotReady {
        /// The port that was waited for.
        port: u16,
        /// The timeout in seconds.
        seconds: u64,
    },
    /// The report cannot be written.
    #[error("cannot write the report {path}: {source}: name a file in a folder that this user may write", path = path.display())]
    Report {
        /// The path as given.
        path: PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
    /// A trace cannot be written.
    #[error("cannot write {what} {path}: {source}: name a file in a folder that this user may write, with room for it", path = path.display())]
    Trace {
        /// The trace, such as `the packets`.
        what: &'static str,
        /// The path as given.
        path: PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
    /// A system call failed unexpectedly.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// Error returned by the system.
        source: io::Error,
    },
}

impl Error {
    /// Returns the exit code documented for `pronghorn link`: numbers of `sysexits.h`, and of `env`
    /// for programs.
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

    /// Converts refusals to [`Error::NamespaceNotPermitted`].
    pub(crate) fn namespace(what: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::USERS => {
                Self::NamespaceNotPermitted { what, source: errno.into() }
            }
            _ => Self::system(what)(errno),
        }
    }

    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
