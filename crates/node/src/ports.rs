//! Ports that threads of this process share, and processes of a cluster.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pronghorn_engine::{Bind, Claim, Directory, DirectoryError, Group, Listener, Transports};
use rustc_hash::FxHashMap;
use rustix::fs::{Access, access};
use rustix::process::{geteuid, getppid};

use crate::js::Failure;

/// How many threads of a process may listen on the same port.
const MAX_SHARES: usize = 64;

/// Where the processes of a cluster meet: the first of these that can be written to, and where no other user owns this user's name. The
/// environment has no say, because two processes of one cluster may differ in it.
const SHARED_FOLDERS: [&str; 2] = ["/tmp", "/dev/shm"];

/// Who else may listen on a port.
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
    /// What the processes of the cluster listen for, if it is theirs.
    cluster: Option<Transports>,
}

#[derive(Default)]
struct Ports {
    /// By address, so that a datagram for the connection of another thread finds it.
    bound: FxHashMap<Key, Port>,
    /// Listeners of a cluster whose port the system chooses.
    chosen: FxHashMap<(SocketAddr, Transports), Chosen>,
}

struct Port {
    group: Group,
    /// The numbers in use, where there are no claims.
    taken: Vec<bool>,
    members: usize,
    /// Members that take new connections.
    accepting: usize,
    is_exclusive: bool,
    directory: Option<Arc<Directory>>,
}

/// As with the servers of node:net, the first listener on port 0 of each process has the same port, and so have the second ones.
#[derive(Default)]
struct Chosen {
    next: usize,
    open: usize,
}

static PORTS: Mutex<Option<Ports>> = Mutex::new(None);

fn with_ports<T>(action: impl FnOnce(&mut Ports) -> T) -> T {
    action(PORTS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The number of a listener on port 0, as long as there is one.
struct Index {
    key: (SocketAddr, Transports),
    number: usize,
}

impl Index {
    fn new(ports: &mut Ports, address: SocketAddr, transports: Transports) -> Self {
        let key = (address, transports);
        let chosen = ports.chosen.entry(key).or_default();
        chosen.open += 1;
        chosen.next += 1;
        Self { key, number: chosen.next - 1 }
    }

    /// Not by `Drop`, which would come while [`PORTS`] is locked.
    fn end(&self, ports: &mut Ports) {
        if let Some(chosen) = ports.chosen.get_mut(&self.key) {
            chosen.open -= 1;
            if chosen.open == 0 {
                ports.chosen.remove(&self.key);
            }
        }
    }
}

/// A worker's share of its port. To be dropped after the worker.
pub(crate) struct Share {
    key: Key,
    pub(crate) number: usize,
    is_accepting: bool,
    index: Option<Index>,
    _claim: Option<Claim>,
}

impl Share {
    /// The worker takes no new connections: the thread may listen on the port again.
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

/// Binds `address`, alone or with those that `sharing` allows.
pub(crate) fn bind(address: SocketAddr, transports: Transports, sharing: Sharing) -> Result<(Listener, Group, Share), Failure> {
    with_ports(|ports| {
        if !sharing.by_cluster {
            return bind_alone(ports, address, transports, !sharing.by_threads);
        }
        let index = (address.port() == 0).then(|| Index::new(ports, address, transports));
        let bound = bind_in_cluster(ports, address, transports, !sharing.by_threads, index.as_ref().map_or(0, |index| index.number));
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

/// Keeps the directories of this process from being removed for their age.
pub(crate) fn refresh() {
    let directories: Vec<_> = with_ports(|ports| ports.bound.values().filter_map(|port| port.directory.clone()).collect());
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
    let listener = Listener::bind(address, 1, Bind { transports, congestion: None, shared: known.is_some() })?;
    let key = key(listener.address());
    let port = ports.bound.entry(key).or_insert_with(|| Port {
        group: Group::new(MAX_SHARES),
        taken: vec![false; MAX_SHARES],
        members: 0,
        accepting: 0,
        is_exclusive,
        directory: None,
    });
    let number = port.taken.iter().position(|taken| !taken).ok_or("too many threads listen on this port already")?;
    port.taken[number] = true;
    port.members += 1;
    port.accepting += 1;
    Ok((listener, port.group.clone(), Share { key, number, is_accepting: true, index: None, _claim: None }))
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
    let fail = move |error| format!("cannot share {wanted} with the other processes of the cluster: {error}");
    let existing = ports.bound.get(&key(address, of_cluster)).and_then(|port| port.directory.clone());
    let directory = match existing {
        Some(directory) => directory,
        None => Arc::new(open(&name(address, transports, index)).map_err(fail)?),
    };
    let joining = directory.join().map_err(fail)?;
    let asked = address.port();
    if asked == 0
        && joining.is_served()
        && let Some(port) = joining.port()
    {
        address.set_port(port);
    }
    let own = ports.bound.get(&key(address, of_cluster));
    let is_shared_here = own.is_some_and(|port| port.accepting > 0 && !port.is_exclusive && !is_exclusive);
    let is_taken_here = own.is_some_and(|port| port.accepting > 0) && !is_shared_here;
    let is_taken_alone = ports.bound.get(&key(address, None)).is_some_and(|port| port.accepting > 0);
    // What another server has is only shared if a process of the cluster has said so, and this one does not serve it yet.
    let shared = (joining.is_served() || own.is_some()) && !is_taken_here && !is_taken_alone;
    let listener = Listener::bind(address, 1, Bind { transports, congestion: None, shared })?;
    if asked == 0 && !joining.is_served() {
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
    let share = Share { key, number: claim.number(), is_accepting: true, index: None, _claim: Some(claim) };
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
            // Any user can create it in a sticky folder, and only its owner can remove it.
            Err(error @ (DirectoryError::Foreign { .. } | DirectoryError::NotDirectory { .. })) => {
                first.get_or_insert(error);
            }
            opened => return opened,
        }
    }
    // Where no folder is writable, the error of the first says why.
    first.map_or_else(|| Directory::open(&folders[0].join(&own), name), Err)
}

/// The name that the processes of this cluster have for an address, and no others: those of the same parent in the same network namespace.
fn name(address: SocketAddr, transports: Transports, index: usize) -> String {
    static CLUSTER: OnceLock<String> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| {
        let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        // With the time at which it started, the number is not that of an earlier process.
        let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
        let started = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(19)).unwrap_or("0");
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let network: String = network.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
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
