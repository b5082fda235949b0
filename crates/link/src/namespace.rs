//! Unnamed network namespaces: they vanish with the last process and descriptor that uses them.
#![expect(
    unsafe_code,
    reason = "unshare is a system call whose effect on other threads the caller has to rule out"
)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};

use crate::Error;

const TCP_TABLE_OF_CHILDREN: &str = "/proc/sys/net/ipv4/tcp_child_ehash_entries";
/// Four for each of a thousand connections.
const TCP_TABLE_ENTRIES: &str = "4096";
/// Parameters that the kernel would derive from the smaller table.
const TCP_TABLE_DEFAULTS: [&str; 2] =
    ["/proc/sys/net/ipv4/tcp_max_syn_backlog", "/proc/sys/net/ipv4/tcp_max_tw_buckets"];

/// A new network namespace, kept by a descriptor.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// Creates a namespace with only a loopback device, which is down.
    ///
    /// With `own_tcp_table` its TCP connections have a separate hash table, if the kernel supports
    /// that (Linux 6.1). To list the connections of a namespace, the kernel walks the whole table,
    /// which takes milliseconds on a large machine.
    pub(crate) fn new(own_tcp_table: bool) -> Result<Self, Error> {
        on_new_thread(|| {
            let unshare_network = || {
                unshare(UnshareFlags::NEWNET)
                    .map_err(|errno| Error::namespace("make a network namespace", errno))
            };
            unshare_network()?;
            if own_tcp_table {
                let defaults = TCP_TABLE_DEFAULTS.map(|path| (path, std::fs::read(path)));
                // Settings of a namespace come from the one in which it is created.
                if std::fs::write(TCP_TABLE_OF_CHILDREN, TCP_TABLE_ENTRIES).is_ok() {
                    unshare_network()?;
                }
                for (path, default) in defaults {
                    // The kernel derives them from the table's size; failing to keep them has no
                    // visible effect.
                    let _ = default.and_then(|value| std::fs::write(path, value));
                }
            }
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let fd = rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())
                .map_err(Error::system("open /proc/thread-self/ns/net (is /proc mounted?)"))?;
            Ok(Self { fd })
        })
    }

    /// Runs `work` on a separate thread inside the namespace. Sockets that it opens stay in the
    /// namespace wherever they are used.
    ///
    /// # Panics
    ///
    /// Panics if `work` panics.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        on_new_thread(|| {
            enter_network(self.fd.as_fd())?;
            Ok(work())
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Moves the calling thread into the namespace. Makes one system call and does not allocate, so it
/// may run between fork and exec.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

/// Acquires the rights to create a link if the process lacks them, by entering a user namespace
/// that keeps its user and group. Does nothing for root.
///
/// Call it before the process starts a thread. Programs started later run as the same user and have
/// no new rights.
pub fn enter_user_namespace_unless_root() -> Result<(), Error> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let has = rustix::thread::capabilities(None)
        .map_err(Error::system("read the process's capabilities"))?;
    if has.effective.contains(needed) {
        return Ok(());
    }
    // Before the unshare: afterwards the process is the overflow user until the maps are written.
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if threads() > 1 {
        return Err(Error::TooManyThreads);
    }
    unshare(UnshareFlags::NEWUSER)
        .map_err(|errno| Error::namespace("make a user namespace", errno))?;
    let refused = |source| Error::NamespaceNotPermitted {
        what: "map the user into a user namespace",
        source,
    };
    std::fs::write("/proc/self/setgroups", "deny").map_err(refused)?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(refused)?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1")).map_err(refused)
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Only for kinds of namespaces; never for the table of descriptors.
pub(crate) fn unshare(kinds: UnshareFlags) -> Result<(), rustix::io::Errno> {
    debug_assert!(!kinds.contains(UnshareFlags::FILES));
    // SAFETY: the table of descriptors stays shared, so no thread loses sight of a descriptor.
    unsafe { rustix::thread::unshare_unsafe(kinds) }
}

fn on_new_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
