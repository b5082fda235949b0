//! Passing datagrams on to workers of other processes.
//!
//! A worker sends what it has for another one at the end of each round of receiving, in messages of many datagrams, because the kernel
//! queues few messages for a receiver (`net.unix.max_dgram_qlen`, 10 or 512). It never waits: what a queue does not take is dropped, which
//! QUIC repairs, and counted in `strays_dropped`.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::directory::{Directory, State, is_absent};
use super::{MAX_MEMBERS, parcel};
use crate::stats::Stats;
use crate::transport::Datagram;

/// How long the member of a process that was killed is not looked for again. Datagrams for it are dropped meanwhile, since its number may be
/// another member's by then.
const RETRY: Duration = Duration::from_millis(100);
/// How old the list of members may be where one is chosen for a new connection.
const LIST_AGE: Duration = Duration::from_millis(100);

pub(super) struct Outbox {
    directory: Arc<Directory>,
    targets: FxHashMap<u8, Target>,
    /// Those with a message.
    waiting: Vec<u8>,
    states: Option<(Instant, [State; MAX_MEMBERS])>,
}

#[derive(Default)]
struct Target {
    socket: Option<UnixDatagram>,
    /// Its process was dead, and it is not tried again before.
    dead_until: Option<Instant>,
    message: Vec<u8>,
    /// Datagrams in the message.
    count: u64,
}

/// Why a member could not be reached.
enum Unreachable {
    /// No process has ever had the number: what names it is not an ID of this group.
    Unused,
    /// No process has the number any more.
    Absent,
    /// It is not known whether one has.
    Failed,
}

impl Target {
    /// Connects to the member if that has not been done.
    fn reach(&mut self, now: Instant, number: u8, directory: &Directory) -> Result<&UnixDatagram, Unreachable> {
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
                    // A process that has given up its user since it joined reaches no other. The client shall not wait for what will never come.
                    let is_closed = error.kind() == io::ErrorKind::PermissionDenied;
                    return Err(if is_absent(&error) || is_closed { Unreachable::Absent } else { Unreachable::Failed });
                }
            }
        }
        self.socket.as_ref().ok_or(Unreachable::Failed)
    }

    /// Sends the message. Returns it if its receiver is gone.
    fn send(&mut self, now: Instant, number: u8, directory: &Directory, stats: &Stats) -> Option<Vec<u8>> {
        let message = std::mem::take(&mut self.message);
        let count = std::mem::take(&mut self.count);
        // A second time if the process of the socket has ended: another one may have its number.
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

impl Outbox {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        Self { directory, targets: FxHashMap::default(), waiting: Vec::new(), states: None }
    }

    /// Queues a datagram for the member `number`. Returns it if there is none.
    pub(super) fn push(&mut self, now: Instant, number: u8, socket: usize, datagram: Datagram, stats: &Stats) -> Option<Datagram> {
        let target = self.targets.entry(number).or_default();
        match target.reach(now, number, &self.directory) {
            Ok(_) => {}
            Err(Unreachable::Absent) => return Some(datagram),
            // An answer would tell random bytes from nothing, and take from what there is for connections that were.
            Err(Unreachable::Unused) => {
                stats.datagrams_ignored.add(1);
                return None;
            }
            Err(Unreachable::Failed) => {
                stats.strays_dropped.add(1);
                return None;
            }
        }
        let mut fits = parcel::push(&mut target.message, socket, &datagram);
        if !fits && target.count > 0 {
            if let Some(message) = target.send(now, number, &self.directory, stats) {
                stats.strays_dropped.add(parcel::datagrams(&message).count() as u64);
            }
            fits = parcel::push(&mut target.message, socket, &datagram);
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

    /// Sends what is queued. Calls `own` with each datagram whose member has gone meanwhile.
    pub(super) fn flush(&mut self, now: Instant, stats: &Stats, mut own: impl FnMut(usize, Datagram)) {
        while let Some(number) = self.waiting.pop() {
            let Some(target) = self.targets.get_mut(&number).filter(|target| target.count > 0) else { continue };
            if let Some(message) = target.send(now, number, &self.directory, stats) {
                parcel::datagrams(&message).for_each(|(socket, datagram)| own(socket, datagram));
            }
        }
    }

    /// The state of each number, at most [`LIST_AGE`] old.
    pub(super) fn states(&mut self, now: Instant) -> &[State; MAX_MEMBERS] {
        let is_current = self.states.as_ref().is_some_and(|(read, _)| now.saturating_duration_since(*read) < LIST_AGE);
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
