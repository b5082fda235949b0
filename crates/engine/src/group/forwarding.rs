//! Passes datagrams on to workers of other processes.
//!
//! A worker sends the queued datagrams at the end of each round of receiving, many in one message,
//! because the kernel queues few messages for a receiver (`net.unix.max_dgram_qlen`, 10 or 512). It
//! never waits: datagrams that a queue does not accept are dropped, which QUIC repairs, and counted
//! in `strays_dropped`.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::datagram_message;
use super::directory::{Directory, MAX_MEMBERS, State, is_absent};
use crate::stats::Stats;
use crate::transport::Datagram;

/// How long a member of a killed process is not looked up again. Datagrams for it are dropped
/// meanwhile, since another member may have its number by then.
const RETRY: Duration = Duration::from_millis(100);
/// Maximum age of the member list when a member is chosen for a new connection.
const LIST_AGE: Duration = Duration::from_millis(100);

pub(super) struct ProcessOutbox {
    directory: Arc<Directory>,
    targets: FxHashMap<u8, Target>,
    /// Members with a queued message.
    waiting: Vec<u8>,
    states: Option<(Instant, [State; MAX_MEMBERS])>,
}

#[derive(Default)]
struct Target {
    socket: Option<UnixDatagram>,
    /// Set when the member's process was found dead. There is no new attempt before then.
    dead_until: Option<Instant>,
    message: Vec<u8>,
    /// Datagrams in the message.
    count: u64,
}

/// Why a member could not be reached.
enum Unreachable {
    /// No process has ever had the number, so the bytes that name it are not an ID of this group.
    Unused,
    /// No process has the number any more.
    Absent,
    /// Unknown whether a process has the number.
    Failed,
}

impl Target {
    /// Connects to the member unless a connection exists.
    fn reach(
        &mut self,
        now: Instant,
        number: u8,
        directory: &Directory,
    ) -> Result<&UnixDatagram, Unreachable> {
        if self.socket.is_none() {
            if self.dead_until.is_some_and(|until| now < until) {
                return Err(Unreachable::Failed);
            }
            match directory.state(number) {
                None => return Err(Unreachable::Unused),
                Some(State::Free) => return Err(Unreachable::Absent),
                Some(State::Open | State::Leaving) => {}
            }
            match directory.connect(number) {
                Ok(socket) => self.socket = Some(socket),
                Err(error) => {
                    self.dead_until = Some(now + RETRY);
                    // A process that has dropped its user ID since it joined cannot reach the
                    // others. The client must not wait for an answer that never comes.
                    let is_closed = error.kind() == io::ErrorKind::PermissionDenied;
                    return Err(if is_absent(&error) || is_closed {
                        Unreachable::Absent
                    } else {
                        Unreachable::Failed
                    });
                }
            }
        }
        self.socket.as_ref().ok_or(Unreachable::Failed)
    }

    /// Sends the message. Returns it if the receiver has ended.
    fn send(
        &mut self,
        now: Instant,
        number: u8,
        directory: &Directory,
        stats: &Stats,
    ) -> Option<Vec<u8>> {
        let message = std::mem::take(&mut self.message);
        let count = std::mem::take(&mut self.count);
        // A second attempt if the process of the socket has ended: another one may have its number.
        for _ in 0..2 {
            match self.reach(now, number, directory).map(|socket| socket.send(&message)) {
                Ok(Ok(_)) => {
                    stats.strays_passed_on.add(count);
                    return None;
                }
                Ok(Err(error)) if is_of_a_closed_socket(&error) => self.socket = None,
                Ok(Err(_)) | Err(Unreachable::Failed | Unreachable::Unused) => break,
                Err(Unreachable::Absent) => return Some(message),
            }
        }
        stats.strays_dropped.add(count);
        None
    }
}

fn is_of_a_closed_socket(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | NotConnected | BrokenPipe)
}

impl ProcessOutbox {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        Self { directory, targets: FxHashMap::default(), waiting: Vec::new(), states: None }
    }

    /// Queues a datagram for the member `number`. Returns it if there is no such member.
    pub(super) fn push(
        &mut self,
        now: Instant,
        number: u8,
        socket: usize,
        datagram: Datagram,
        stats: &Stats,
    ) -> Option<Datagram> {
        let target = self.targets.entry(number).or_default();
        match target.reach(now, number, &self.directory) {
            Ok(_) => {}
            Err(Unreachable::Absent) => return Some(datagram),
            // An answer would reveal which bytes name a worker, and would use up the resets that
            // are meant for connections that existed.
            Err(Unreachable::Unused) => {
                stats.datagrams_ignored.add(1);
                return None;
            }
            Err(Unreachable::Failed) => {
                stats.strays_dropped.add(1);
                return None;
            }
        }
        let mut fits = datagram_message::push(&mut target.message, socket, &datagram);
        if !fits && target.count > 0 {
            if let Some(message) = target.send(now, number, &self.directory, stats) {
                stats.strays_dropped.add(datagram_message::datagrams(&message).count() as u64);
            }
            fits = datagram_message::push(&mut target.message, socket, &datagram);
        }
        if !fits {
            stats.strays_dropped.add(1);
            return None;
        }
        if target.count == 0 && !self.waiting.contains(&number) {
            self.waiting.push(number);
        }
        target.count += 1;
        None
    }

    /// Sends queued messages. Calls `own` with each datagram whose member has ended meanwhile.
    pub(super) fn flush(
        &mut self,
        now: Instant,
        stats: &Stats,
        mut own: impl FnMut(usize, Datagram),
    ) {
        while let Some(number) = self.waiting.pop() {
            let Some(target) = self.targets.get_mut(&number).filter(|target| target.count > 0)
            else {
                continue;
            };
            if let Some(message) = target.send(now, number, &self.directory, stats) {
                datagram_message::datagrams(&message)
                    .for_each(|(socket, datagram)| own(socket, datagram));
            }
        }
    }

    /// Returns the state of each number, at most [`LIST_AGE`] old.
    pub(super) fn states(&mut self, now: Instant) -> &[State; MAX_MEMBERS] {
        let is_current = self
            .states
            .as_ref()
            .is_some_and(|(read, _)| now.saturating_duration_since(*read) < LIST_AGE);
        if !is_current {
            self.states = None;
        }
        let directory = &self.directory;
        &self.states.get_or_insert_with(|| (now, directory.states())).1
    }

    /// Whether a process has the number and is alive.
    pub(super) fn is_alive(&mut self, now: Instant, number: u8) -> bool {
        self.states(now)[usize::from(number)] != State::Free
            && self.targets.entry(number).or_default().reach(now, number, &self.directory).is_ok()
    }
}
