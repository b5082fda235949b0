//! Ports shared by threads of this process and by processes of a cluster.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pronghorn_engine::{Bind, Claim, Directory, DirectoryError, Group, Listener, Transports};
use rustc_hash::FxHashMap;
use rustix::fs::{Access, access};
use rustix::process::{geteuid, getppid};

use crate::js::Failure;

/// Maximum number of threads of a process that share a port.
const MAX_SHARES: usize = 64;

/// Parent folders of a cluster's shared directory: the first that is writable, and where no other
/// user owns this user's name. Environment variables are not used, because processes of one cluster
/// may differ in them.
const SHARED_FOLDERS: [&str; 2] = ["/tmp", "/dev/shm"];

/// Which other listeners may share a port.
#[derive(Clone, Copy)]
pub(crate) struct Sharing {
    /// Other threads of this process, and other listeners of the same thread.
    pub(crate) by_threads: bool,
    /// Other processes of the cluster.
    pub(crate) by_cluster: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    address: SocketAddr,
    has_udp: bool,
    /// The transports of the cluster's listeners, if the port belongs to a cluster.
    cluster: Option<Transports>,
}

#[derive(Default)]
struct Ports {
    /// Bound ports by address, so that a datagram reaches a connection of another thread.
    bound: FxHashMap<Key, Port>,
    /// Listeners of a cluster on port 0, whose port the system chooses.
    chosen: FxHashMap<(SocketAddr, Transports), Port0Counter>,
}

struct Port {
    group: Group,
    /// Numbers in use, if the port has no claims.
    taken: Vec<bool>,
    members: usize,
    /// Number of members that accept connections.
    accepting: usize,
    is_exclusive: bool,
    directory: Option<Arc<Directory>>,
}

/// Counters of listeners on port 0. As with servers of node:net, the first listener of each process
/// gets the same port, and so do the second ones.
#[derive(Default)]
struct Port0Counter {
    next: usize,
    open: usize,
}

static PORTS: Mutex<Option<Ports>> = Mutex::new(None);

fn with_ports<T>(action: impl FnOnce(&mut Ports) -> T) -> T {
    action(PORTS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The number of a listener on port 0, among those of this process.
struct Port0Index {
    key: (SocketAddr, Transports),
    number: usize,
}

impl Port0Index {
    fn new(ports: &mut Ports, address: SocketAddr, transports: Transports) -> Self {
        let key = (address, transports);
        let chosen = ports.chosen.entry(key).or_default();
        chosen.open += 1;
        chosen.next += 1;
        Self { key, number: chosen.next - 1 }
    }

    /// Not in `Drop`, which would run while [`PORTS`] is locked.
    fn end(&self, ports: &mut Ports) {
        if let Some(chosen) = ports.chosen.get_mut(&self.key) {
            chosen.open -= 1;
            if chosen.open == 0 {
                ports.chosen.remove(&self.key);
            }
        }
    }
}

/// A worker's share of its port. Dropped after the worker.
pub(crate) struct Share {
    key: Key,
    pub(crate) number: usize,
    is_accepting: bool,
    index: Option<Port0Index>,
    _claim: Option<Claim>,
}

impl Share {
    /// Notes that the worker stopped accepting connections, so the thread may listen on the port
    /// again.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.is_accepting) {
            with_ports(|ports| {
                if let Some(port) = ports.bound.get_mut(&self.key) {
                    port.accepting -= 1;
                }
            });
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.leave();
        let removed = with_ports(|ports| {
            if let Some(index) = &self.index {
                index.end(ports);
            }
            let port = ports.bound.get_mut(&self.key)?;
            port.members -= 1;
            if let Some(taken) = port.taken.get_mut(self.number) {
                *taken = false;
            }
            if port.members == 0 { ports.bound.remove(&self.key) } else { None }
        });
        drop(removed);
    }
}

/// Binds `address`, alone or shared as `sharing` allows.
pub(crate) fn bind(
    address: SocketAddr,
    transports: Transports,
    sharing: Sharing,
) -> Result<(Listener, Group, Share), Failure> {
    with_ports(|ports| {
        if !sharing.by_cluster {
            return bind_alone(ports, address, transports, !sharing.by_threads);
        }
        let index = (address.port() == 0).then(|| Port0Index::new(ports, address, transports));
        let bound = bind_in_cluster(
            ports,
            address,
            transports,
            !sharing.by_threads,
            index.as_ref().map_or(0, |index| index.number),
        );
        match bound {
            Ok((listener, group, mut share)) => {
                share.index = index;
                Ok((listener, group, share))
            }
            Err(error) => {
                if let Some(index) = index {
                    index.end(ports);
                }
                Err(error)
            }
        }
    })
}

/// Marks the directories of this process as used, so that cleaners do not remove them.
pub(crate) fn refresh() {
    let directories: Vec<_> = with_ports(|ports| {
        ports.bound.values().filter_map(|port| port.directory.clone()).collect()
    });
    for directory in directories {
        directory.refresh();
    }
}

fn has_udp(transports: Transports) -> bool {
    matches!(transports, Transports::Quic | Transports::Secure)
}

fn bind_alone(
    ports: &mut Ports,
    address: SocketAddr,
    transports: Transports,
    is_exclusive: bool,
) -> Result<(Listener, Group, Share), Failure> {
    let key = |address| Key { address, has_udp: has_udp(transports), cluster: None };
    let known = ports.bound.get(&key(address)).filter(|port| !port.is_exclusive && !is_exclusive);
    let listener = Listener::bind(
        address,
        1,
        Bind { transports, congestion: None, reuse_port: known.is_some() },
    )?;
    let key = key(listener.address());
    let port = ports.bound.entry(key).or_insert_with(|| Port {
        group: Group::new(MAX_SHARES),
        taken: vec![false; MAX_SHARES],
        members: 0,
        accepting: 0,
        is_exclusive,
        directory: None,
    });
    let number =
        port.taken.iter().position(|taken| !taken).ok_or("too many threads share this port")?;
    port.taken[number] = true;
    port.members += 1;
    port.accepting += 1;
    Ok((
        listener,
        port.group.clone(),
        Share { key, number, is_accepting: true, index: None, _claim: None },
    ))
}

fn bind_in_cluster(
    ports: &mut Ports,
    mut address: SocketAddr,
    transports: Transports,
    is_exclusive: bool,
    index: usize,
) -> Result<(Listener, Group, Share), Failure> {
    let key = |address, cluster| Key { address, has_udp: has_udp(transports), cluster };
    let of_cluster = Some(transports);
    let wanted = address;
    let fail = move |error| {
        format!("cannot share {wanted} with the other processes of the cluster: {error}")
    };
    let existing =
        ports.bound.get(&key(address, of_cluster)).and_then(|port| port.directory.clone());
    let directory = match existing {
        Some(directory) => directory,
        None => Arc::new(open(&name(address, transports, index)).map_err(fail)?),
    };
    let joining = directory.join().map_err(fail)?;
    let asked = address.port();
    if asked == 0
        && joining.has_members()
        && let Some(port) = joining.port()
    {
        address.set_port(port);
    }
    let own = ports.bound.get(&key(address, of_cluster));
    let is_shared_here =
        own.is_some_and(|port| port.accepting > 0 && !port.is_exclusive && !is_exclusive);
    let is_taken_here = own.is_some_and(|port| port.accepting > 0) && !is_shared_here;
    let is_taken_alone =
        ports.bound.get(&key(address, None)).is_some_and(|port| port.accepting > 0);
    // A port of another server is shared only if a process of the cluster has registered it, and
    // this process does not serve it yet.
    let shared = (joining.has_members() || own.is_some()) && !is_taken_here && !is_taken_alone;
    let listener =
        Listener::bind(address, 1, Bind { transports, congestion: None, reuse_port: shared })?;
    if asked == 0 && !joining.has_members() {
        joining.set_port(listener.address().port()).map_err(fail)?;
    }
    let key = key(listener.address(), of_cluster);
    let port = ports.bound.entry(key).or_insert_with(|| Port {
        group: Group::shared(&directory),
        taken: Vec::new(),
        members: 0,
        accepting: 0,
        is_exclusive,
        directory: Some(directory.clone()),
    });
    let claim = port.group.claim(&joining).map_err(fail);
    drop(joining);
    let claim = match claim {
        Ok(claim) => claim,
        Err(error) => {
            if port.members == 0 {
                ports.bound.remove(&key);
            }
            return Err(error.into());
        }
    };
    port.members += 1;
    port.accepting += 1;
    port.is_exclusive = is_exclusive;
    let share =
        Share { key, number: claim.number(), is_accepting: true, index: None, _claim: Some(claim) };
    Ok((listener, port.group.clone(), share))
}

/// Opens the directory of this name in the folder of this user's clusters.
fn open(name: &str) -> Result<Directory, DirectoryError> {
    let folders = SHARED_FOLDERS.map(Path::new);
    let can_write = |folder: &&Path| access(*folder, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    let own = format!("pronghorn-{}", geteuid().as_raw());
    let mut first = None;
    for folder in folders.into_iter().filter(can_write) {
        match Directory::open(&folder.join(&own), name) {
            // In a sticky folder any user can create the name, and only the owner can remove it.
            Err(
                error @ (DirectoryError::OtherOwner { .. } | DirectoryError::NotDirectory { .. }),
            ) => {
                first.get_or_insert(error);
            }
            opened => return opened,
        }
    }
    // If no folder is writable, the error of the first one says why.
    first.map_or_else(|| Directory::open(&folders[0].join(&own), name), Err)
}

/// Returns the directory name of an address, unique to the processes of this cluster: those with
/// the same parent in the same network namespace.
fn name(address: SocketAddr, transports: Transports, index: usize) -> String {
    static CLUSTER: OnceLock<String> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| {
        let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        // The start time distinguishes the parent from an earlier process with the same number.
        let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
        let started = stat
            .rsplit(')')
            .next()
            .and_then(|fields| fields.split_whitespace().nth(19))
            .unwrap_or("0");
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let network: String =
            network.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        format!("{parent}-{started}-{network}")
    });
    let transports = match transports {
        Transports::ClearTcp => "clear",
        Transports::SecureTcp => "tls",
        Transports::Quic => "quic",
        Transports::Secure => "all",
    };
    let index = if address.port() == 0 { format!("-{index}") } else { String::new() };
    format!("{cluster}-{address}{index}-{transports}")
}
