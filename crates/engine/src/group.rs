//! Workers that share ports, in one process or in several, and how a datagram reaches the worker of
//! its connection.
//!
//! Each connection ID contains the number of the worker that issued it. If the kernel delivers a
//! datagram to another worker, that worker passes it on: within the process through a mailbox in
//! memory, to another process over a Unix socket ([`forwarding`]). A datagram is passed on only
//! once: the worker that gets it this way keeps it.
//!
//! The first packets of a connection carry an ID that the client chose, and stay with the worker
//! that receives them, with two exceptions. First, a worker that is leaving passes on the
//! connections that it would refuse to a worker that stays, because the kernel goes on giving it a
//! share of the new connections as long as its socket is open. Second, a packet that belongs to no
//! new connection may belong to one whose handshake another worker had begun when the kernel's
//! choice changed.

mod datagram_message;
mod directory;
mod forwarding;

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use mio::Interest;
use mio::unix::SourceFd;
use rustc_hash::FxHasher;

pub use directory::{Claim, Directory, DirectoryError, JoinGuard};

use crate::connection_limits::ConnectionCounts;
use crate::limits::Limits;
use crate::memory::MemoryBudget;
use crate::runtime::{ReactorHandle, Registration, Wakeup};
use crate::stats::Stats;
use crate::transport::{
    Datagram, EndpointKeys, Secret, is_first_flight, named_by_long_header, steer,
};
use directory::{MAX_MEMBERS, State};
use forwarding::ProcessOutbox;

/// The state that workers share, so that each of them can handle or pass on any datagram that the
/// kernel delivers to it.
///
/// The workers of [`Group::new`] are in one process. Those of [`Group::shared`] may be in several
/// processes, each of which has a group of the same directory:
///
/// ```
/// use std::sync::Arc;
///
/// use pronghorn_engine::{Directory, Group};
///
/// # let parent = std::env::temp_dir().join(format!("pronghorn-group-{}", std::process::id()));
/// let directory = Arc::new(Directory::open(&parent, "8443")?);
/// let group = Group::shared(&directory);
/// let joining = directory.join()?;
/// // Where `joining.has_members()`, others have the port, and it is bound with `shared`.
/// let claim = group.claim(&joining)?;
/// assert_eq!(claim.number(), 0);
/// // From here on others may join.
/// drop(joining);
/// # drop((claim, group, directory));
/// # std::fs::remove_dir(parent).unwrap();
/// # Ok::<(), pronghorn_engine::DirectoryError>(())
/// ```
#[derive(Clone)]
pub struct Group {
    members: Arc<[MemberState]>,
    keys: EndpointKeys,
    connection_counts: Arc<ConnectionCounts>,
    directory: Option<Arc<Directory>>,
}

#[derive(Default)]
struct MemberState {
    mailbox: Mutex<VecDeque<(usize, Datagram)>>,
    /// Wakeup of the worker, while it runs in this process. Locked before the mailbox.
    wakeup: Mutex<Option<Arc<Wakeup>>>,
    is_leaving: AtomicBool,
    /// Socket that other processes send to, until the worker takes it.
    post: Mutex<Option<UnixDatagram>>,
    stats: OnceLock<Arc<Stats>>,
}

/// The worker that a datagram is for.
pub(crate) enum Route {
    /// The worker that received it.
    Own,
    /// Another worker.
    Worker(u8),
    /// A datagram that may begin a connection, or belong to a handshake that has begun. The number
    /// is the worker that its connection ID would name if a worker had issued it.
    First(Option<u8>),
}

impl Group {
    /// Creates a group of `workers` workers, at most 256: the number is one byte of a connection
    /// ID.
    pub fn new(workers: usize) -> Self {
        Self::with_secret(workers, &Secret::random())
    }

    /// Creates a group whose keys are derived from `secret`. Restarted with the same secret and as
    /// many workers, it ends connections of its predecessor at once (stateless reset) and accepts
    /// the tokens that its predecessor issued.
    pub fn with_secret(workers: usize, secret: &Secret) -> Self {
        Self::of(workers.clamp(1, MAX_MEMBERS), EndpointKeys::new(secret), None)
    }

    /// Creates a group on one of several machines that share secrets.
    ///
    /// Keys are derived from `secret`. Tokens of `earlier` secrets are accepted too, and connections
    /// of a predecessor with such a secret are ended as those of [`Group::with_secret`]. `node` is
    /// the machine's own name: a machine must not be able to end the connections of another one,
    /// whose packets it may get.
    pub fn with_secrets(workers: usize, secret: &Secret, earlier: &[Secret], node: &str) -> Self {
        let workers = workers.clamp(1, MAX_MEMBERS);
        Self::of(workers, EndpointKeys::shared(secret, earlier, workers, node), None)
    }

    /// Replaces the secrets with which address-validation tokens are made and read; the first makes
    /// them. Connection IDs and stateless resets keep the secrets that the group was created with.
    pub fn set_token_secrets(&self, secret: &Secret, earlier: &[Secret]) {
        let secrets: Vec<_> = std::iter::once(secret).chain(earlier).cloned().collect();
        self.keys.set_token_secrets(&secrets);
    }

    /// Creates a group of at most 256 workers over all processes that have a group of this
    /// directory. A worker's number has to come from [`Group::claim`].
    ///
    /// The keys of connection IDs, tokens and stateless resets are derived from the directory's
    /// secret. A worker answers for the connections of a worker that has ended (stateless reset).
    /// Limits, sessions and the log of used tokens are separate in each process.
    pub fn shared(directory: &Arc<Directory>) -> Self {
        let keys = EndpointKeys::new(directory.secret()).answering_for_all();
        Self::of(MAX_MEMBERS, keys, Some(directory.clone()))
    }

    fn of(workers: usize, keys: EndpointKeys, directory: Option<Arc<Directory>>) -> Self {
        Self {
            members: (0..workers).map(|_| MemberState::default()).collect(),
            keys,
            connection_counts: ConnectionCounts::new(),
            directory,
        }
    }

    /// Claims a number for a worker of this process. Datagrams that other processes pass on to it
    /// are queued from then on.
    ///
    /// `joining` has to be of this group's directory.
    ///
    /// # Errors
    ///
    /// If there are 256 workers already, or if a system call fails.
    pub fn claim(&self, joining: &JoinGuard) -> Result<Claim, DirectoryError> {
        let (claim, socket) = joining.claim()?;
        *self.members[claim.number()].post.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(socket);
        Ok(claim)
    }

    /// Returns the number of workers, or for a shared group the largest possible number.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the counters of all workers.
    pub fn stats(&self) -> impl Iterator<Item = &Arc<Stats>> {
        self.members.iter().map(|member| member.stats.get_or_init(Arc::default))
    }

    /// Returns the counters of one worker.
    ///
    /// # Panics
    ///
    /// If the group has no worker of this number.
    pub fn stats_of(&self, worker: usize) -> &Arc<Stats> {
        self.members[worker].stats.get_or_init(Arc::default)
    }

    /// Returns the memory that all workers share. A worker that starts sets its size to
    /// [`Limits::memory`].
    pub fn memory(&self) -> &MemoryBudget {
        self.connection_counts.memory()
    }

    pub(crate) fn keys(&self) -> &EndpointKeys {
        &self.keys
    }

    pub(crate) fn connection_counts(&self) -> &Arc<ConnectionCounts> {
        &self.connection_counts
    }

    /// Gives every worker a turn.
    pub(crate) fn wake_all(&self) {
        for member in &*self.members {
            if let Some(wakeup) = &*member.wakeup.lock().unwrap_or_else(PoisonError::into_inner) {
                wakeup.notify();
            }
        }
    }

    /// Registers a worker that begins.
    pub(crate) fn enter(
        &self,
        worker: usize,
        wakeup: &Arc<Wakeup>,
        reactor: &ReactorHandle,
    ) -> io::Result<ProcessLink> {
        let member = &self.members[worker];
        let mail = match member.post.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(socket) => {
                let registration =
                    reactor.register(&mut SourceFd(&socket.as_raw_fd()), Interest::READABLE)?;
                Some(ProcessSocket { registration, socket })
            }
            None => None,
        };
        member.is_leaving.store(false, Ordering::Relaxed);
        *member.wakeup.lock().unwrap_or_else(PoisonError::into_inner) = Some(wakeup.clone());
        Ok(ProcessLink { mail, outbox: self.directory.clone().map(ProcessOutbox::new) })
    }

    /// Notes that a worker accepts no new connections from here on.
    pub(crate) fn leave(&self, worker: u8) {
        self.members[usize::from(worker)].is_leaving.store(true, Ordering::Relaxed);
        if let Some(directory) = &self.directory {
            directory.set_state(worker, State::Leaving);
        }
    }

    /// Notes that a worker has ended. Datagrams that wait for it are discarded.
    pub(crate) fn exit(&self, worker: u8) {
        let member = &self.members[usize::from(worker)];
        let mut wakeup = member.wakeup.lock().unwrap_or_else(PoisonError::into_inner);
        *wakeup = None;
        *member.mailbox.lock().unwrap_or_else(PoisonError::into_inner) = VecDeque::new();
    }

    /// Returns the worker for a datagram that `worker` has received.
    pub(crate) fn route(&self, worker: u8, datagram: &[u8]) -> Route {
        let ids = self.keys.ids();
        match steer(ids, datagram) {
            Some(other) if other != worker && usize::from(other) < self.size() => {
                Route::Worker(other)
            }
            None if self.size() > 1 && is_first_flight(datagram) => {
                Route::First(named_by_long_header(ids, datagram))
            }
            _ => Route::Own,
        }
    }

    /// Returns the worker that gets a first packet if `worker`, which has received it, does not
    /// keep it. `named`: as in [`Route::First`].
    pub(crate) fn worker_for_first_packet(
        &self,
        now: Instant,
        worker: u8,
        named: Option<u8>,
        remote: SocketAddr,
        is_refusing: bool,
        post: &mut ProcessLink,
    ) -> Option<u8> {
        let named = named.filter(|named| *named != worker && usize::from(*named) < self.size());
        if named.is_some_and(|named| self.is_alive(now, named, post)) {
            return named;
        }
        if !is_refusing {
            return None;
        }
        // All packets of a client go to the same worker.
        let first = BuildHasherDefault::<FxHasher>::default().hash_one(remote) as usize;
        let others = (0..self.size())
            .map(|index| first.wrapping_add(index) % self.size())
            .filter(|other| *other != usize::from(worker));
        others.map(|other| other as u8).find(|other| self.is_open(now, *other, post))
    }

    fn is_here(&self, worker: u8) -> bool {
        self.members[usize::from(worker)]
            .wakeup
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    fn is_alive(&self, now: Instant, worker: u8, post: &mut ProcessLink) -> bool {
        self.is_here(worker)
            || post.outbox.as_mut().is_some_and(|outbox| outbox.is_alive(now, worker))
    }

    /// Whether the worker accepts new connections.
    fn is_open(&self, now: Instant, worker: u8, post: &mut ProcessLink) -> bool {
        if self.is_here(worker) {
            return !self.members[usize::from(worker)].is_leaving.load(Ordering::Relaxed);
        }
        let Some(outbox) = &mut post.outbox else { return false };
        outbox.states(now)[usize::from(worker)] == State::Open && outbox.is_alive(now, worker)
    }

    /// Passes a datagram on. Returns it if there is no such worker.
    #[expect(
        clippy::too_many_arguments,
        reason = "parts of the worker, which lends another one at the same time"
    )]
    pub(crate) fn pass_on(
        &self,
        now: Instant,
        worker: u8,
        socket: usize,
        datagram: Datagram,
        post: &mut ProcessLink,
        limits: &Limits,
        stats: &Stats,
    ) -> Option<Datagram> {
        let member = &self.members[usize::from(worker)];
        if let Some(wakeup) = &*member.wakeup.lock().unwrap_or_else(PoisonError::into_inner) {
            let mut mailbox = member.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            if mailbox.len() as u64 >= limits.waiting_strays() {
                stats.strays_dropped.add(1);
                return None;
            }
            mailbox.push_back((socket, datagram));
            drop(mailbox);
            stats.strays_passed_on.add(1);
            wakeup.notify();
            return None;
        }
        match &mut post.outbox {
            Some(outbox) => outbox.push(now, worker, socket, datagram, stats),
            None => Some(datagram),
        }
    }

    pub(crate) fn collect(&self, worker: u8) -> VecDeque<(usize, Datagram)> {
        std::mem::take(
            &mut *self.members[usize::from(worker)]
                .mailbox
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

/// One worker's link to the workers of other processes. Without effect in a group that is not
/// shared.
pub(crate) struct ProcessLink {
    mail: Option<ProcessSocket>,
    outbox: Option<ProcessOutbox>,
}

/// The socket that other processes send to.
struct ProcessSocket {
    registration: Registration,
    socket: UnixDatagram,
}

impl ProcessLink {
    pub(crate) fn is_readable(&self) -> bool {
        self.mail.as_ref().is_some_and(|mail| mail.registration.readiness().is_readable())
    }

    /// Receives one message into `buffer`. Calls `take` with each datagram in it and the index of
    /// the UDP socket that received it.
    pub(crate) fn receive(&self, buffer: &mut [u8], mut take: impl FnMut(usize, Datagram)) {
        let Some(mail) = &self.mail else { return };
        match mail.socket.recv(buffer) {
            Ok(length) => datagram_message::datagrams(&buffer[..length])
                .for_each(|(socket, datagram)| take(socket, datagram)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Out of memory, for example: as for UDP, the next message raises an event.
            Err(_) => mail.registration.readiness().clear_readable(),
        }
    }

    /// Sends queued datagrams. Calls `own` with each datagram whose worker has ended meanwhile.
    pub(crate) fn flush(&mut self, now: Instant, stats: &Stats, own: impl FnMut(usize, Datagram)) {
        if let Some(outbox) = &mut self.outbox {
            outbox.flush(now, stats, own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Reactor;

    fn datagram() -> Datagram {
        Datagram {
            remote: ([127, 0, 0, 1], 1).into(),
            local_ip: None,
            ecn: None,
            data: bytes::BytesMut::zeroed(1200),
        }
    }

    #[test]
    fn datagram_for_a_worker_that_is_not_there_is_not_kept() {
        let group = Group::new(2);
        let (reactor, waker) = Reactor::new().unwrap();
        let wakeup = Arc::new(Wakeup::new(waker));
        let mut post = group.enter(0, &wakeup, reactor.handle()).unwrap();
        let (now, limits, stats) = (Instant::now(), Limits::default(), Stats::default());
        let mut pass = |group: &Group| {
            group.pass_on(now, 1, 0, datagram(), &mut post, &limits, &stats).is_none()
        };
        assert!(!pass(&group));
        let other = group.enter(1, &wakeup, reactor.handle()).unwrap();
        assert!(pass(&group));
        assert_eq!(group.collect(1).len(), 1);
        assert!(pass(&group));
        group.exit(1);
        assert!(group.collect(1).is_empty());
        assert!(!pass(&group));
        drop(other);
        assert_eq!((stats.strays_passed_on.value(), stats.strays_dropped.value()), (2, 0));
    }
}
