//! Network namespaces without names: they vanish with the last process and descriptor that uses them.
#![expect(unsafe_code, reason = "unshare is a system call whose effect on other threads the caller has to rule out")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};

use crate::Error;

const TCP_TABLE_OF_CHILDREN: &str = "/proc/sys/net/ipv4/tcp_child_ehash_entries";
/// Four for each of a thousand connections.
const TCP_TABLE_ENTRIES: &str = "4096";
/// What the kernel would make smaller with the table.
const TCP_TABLE_DEFAULTS: [&str; 2] = ["/proc/sys/net/ipv4/tcp_max_syn_backlog", "/proc/sys/net/ipv4/tcp_max_tw_buckets"];

/// A fresh network namespace, held by a descriptor.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// Makes a namespace that holds nothing but a loopback device, which is down.
    ///
    /// With `own_tcp_table` its TCP connections are not among all others of the machine, as far as the kernel can do that (Linux 6.1):
    /// to list those of one namespace it walks the whole table, which on a large machine takes milliseconds.
    pub(crate) fn new(own_tcp_table: bool) -> Result<Self, Error> {
        on_new_thread(|| {
            let unshare_network = || unshare(UnshareFlags::NEWNET).map_err(|errno| Error::namespace("make a network namespace", errno));
            unshare_network()?;
            if own_tcp_table {
                let defaults = TCP_TABLE_DEFAULTS.map(|path| (path, std::fs::read(path)));
                // What a namespace gets is said by the one from which it is made.
                if std::fs::write(TCP_TABLE_OF_CHILDREN, TCP_TABLE_ENTRIES).is_ok() {
                    unshare_network()?;
                }
                for (path, default) in defaults {
                    // The kernel derives them from the table's size; not being able to keep them costs nothing that can be seen.
                    let _ = default.and_then(|value| std::fs::write(path, value));
                }
            }
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let fd = rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())
                .map_err(Error::system("open /proc/thread-self/ns/net (is /proc mounted?)"))?;
            Ok(Self { fd })
        })
    }

    /// Runs `work` on a thread of its own inside the namespace. Sockets that it opens stay in the namespace wherever
    /// they are used.
    ///
    /// # Panics
    ///
    /// When `work` panics.
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

/// Moves the calling thread. Makes one system call and allocates nothing, so it may run between fork and exec.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

/// Makes the rights to build a link, if the process does not have them: a user namespace in which it keeps its user
/// and group. Does nothing for root.
///
/// Call it before the process starts a thread. Programs that are run later are the same user as before and have no
/// new rights.
pub fn enter_user_namespace_unless_root() -> Result<(), Error> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let has = rustix::thread::capabilities(None).map_err(Error::system("read the process's capabilities"))?;
    if has.effective.contains(needed) {
        return Ok(());
    }
    // Before the unshare: afterwards the process is the overflow user until the maps are written.
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if threads() > 1 {
        return Err(Error::TooManyThreads);
    }
    unshare(UnshareFlags::NEWUSER).map_err(|errno| Error::namespace("make a user namespace", errno))?;
    let refused = |source| Error::NamespaceNotPermitted { what: "map the user into a user namespace", source };
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
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
