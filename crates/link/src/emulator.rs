//! The emulator: one thread that reads packets from both TUN devices and writes each at its deadline.

mod clock;
mod lane;
mod ring;
mod thread;

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;

use crate::cpu::CpuTime;
use crate::packets::{self, Fate, Row};
use crate::profile::Profile;
use crate::{Error, Scheduling, flow};

pub use lane::LaneCounters;
pub(crate) use thread::{clock_ns, prefer};

/// Above ordinary real-time work, below what the kernel itself needs.
const REAL_TIME_PRIORITY: i32 = 50;

/// What the emulator counted from the last start, or from going live, to its stop.
#[derive(Debug)]
pub struct Counts {
    /// Client to server.
    pub up: LaneCounters,
    /// Server to client.
    pub down: LaneCounters,
    /// Per flow.
    pub flows: flow::Table,
    /// Packets that found no room in the log of packets.
    pub packets_unlogged: u64,
    /// From going live to the stop.
    pub duration_ns: u64,
    /// On the monotonic clock.
    pub live_since_ns: u64,
    /// What the emulator's thread used in that time.
    pub cpu: CpuTime,
    /// Time zero of what the profile does by time, from going live on; `None` if the client has begun no flow since the last start.
    pub time_zero_ns: Option<u64>,
    /// When each of the profile's changes was made, from going live on; later ones may be missing.
    pub changes_made_ns: Vec<u64>,
}

/// What both directions share: time zero, and what is written down of packets beside the counters of each.
#[derive(Debug)]
struct Books {
    clock: clock::Clock,
    flows: flow::Table,
    /// `None` if nobody asked for a log.
    packets: Option<packets::Recorder>,
}

impl Books {
    fn log_end(&mut self, row: Row, fate: Fate, now_ns: u64) {
        if let Some(log) = &mut self.packets {
            log.ended(row, fate, now_ns);
        }
    }
}

/// A running emulator. Until [`Emulator::go_live`] it passes packets on at once and counts nothing.
#[derive(Debug)]
pub(crate) struct Emulator {
    scheduling: Scheduling,
    /// The kernel's number of the thread.
    thread_id: u32,
    requests: mpsc::Sender<Request>,
    wake: OwnedFd,
    thread: Option<JoinHandle<Result<Counts, Error>>>,
}

#[derive(Debug)]
enum Request {
    /// Answered once packets are under the profile.
    GoLive(mpsc::Sender<()>),
    /// Answered once the profile begins again: with the client's next flow, or at once.
    Start(ClockStart, mpsc::Sender<Result<(), StartRefused>>),
    /// Answered once lateness is counted no more, until the next start.
    FreezeLateness(mpsc::Sender<()>),
    Stop,
}

/// Why the profile cannot begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StartRefused {
    /// Programs have seen it, and a browser takes it for another network: no fresh link begins like that.
    #[error("the profile has changed the client's address already: start before that, or use a link for each load")]
    ClientAddressChanged,
}

/// When time zero is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockStart {
    /// When the client sends the first packet of a flow that the link has not seen yet.
    NextFlow,
    /// At once, whoever sends first.
    Now,
}

/// What the emulator works on: the two TUN devices, and who changes the client's address when it is time.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) near: OwnedFd,
    pub(crate) far: OwnedFd,
    /// Takes the number of the change, from 1.
    pub(crate) address_changes: Option<mpsc::Sender<usize>>,
}

impl Emulator {
    pub(crate) fn start(devices: Devices, profile: &Profile, seed: u64, packets: Option<packets::Recorder>) -> Result<Self, Error> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::system("make an eventfd"))?;
        let woken = wake.try_clone().map_err(Error::system("duplicate an eventfd"))?;
        let (requests, incoming) = mpsc::channel();
        let (ready, readiness) = mpsc::channel();
        let books = Books { clock: clock::Clock::waiting(0), flows: flow::Table::default(), packets };
        let work = thread::Loop::new(devices, woken, incoming, profile, seed, books)?;
        let thread = std::thread::Builder::new()
            .name("link-emulator".into())
            .spawn(move || {
                // The starter waits for this; if it has gone, the request channel ends the loop below.
                let _ = ready.send((thread::prefer(REAL_TIME_PRIORITY), rustix::thread::gettid()));
                work.run()
            })
            .map_err(Error::system("start a thread"))?;
        let (scheduling, thread_id) = readiness.recv().expect("invariant: the emulator answers before its loop");
        let thread_id = thread_id.as_raw_nonzero().get().unsigned_abs();
        Ok(Self { scheduling, thread_id, requests, wake, thread: Some(thread) })
    }

    pub(crate) fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    pub(crate) fn thread_id(&self) -> u32 {
        self.thread_id
    }

    /// Puts the profile in force. Packets that were passed on before are not counted.
    pub(crate) fn go_live(&self) -> Result<(), Error> {
        self.ask(Request::GoLive)
    }

    /// Lets what the profile does begin again.
    pub(crate) fn start_clock(&self, start: ClockStart) -> Result<Result<(), StartRefused>, Error> {
        self.ask(|answer| Request::Start(start, answer))
    }

    /// The lateness of packets that are handed over from now on does not count, until the profile begins again.
    pub(crate) fn freeze_lateness(&self) -> Result<(), Error> {
        self.ask(Request::FreezeLateness)
    }

    fn ask<T>(&self, request: impl FnOnce(mpsc::Sender<T>) -> Request) -> Result<T, Error> {
        let (answer, answered) = mpsc::channel();
        let gone = || Error::system("reach the emulator")(std::io::Error::other("its thread has ended"));
        self.requests.send(request(answer)).map_err(|_| gone())?;
        self.wake();
        answered.recv().map_err(|_| gone())
    }

    pub(crate) fn stop(mut self) -> Result<Counts, Error> {
        self.finish().expect("invariant: only stop and drop finish, and stop consumes")
    }

    fn finish(&mut self) -> Option<Result<Counts, Error>> {
        let thread = self.thread.take()?;
        let _ = self.requests.send(Request::Stop);
        self.wake();
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    fn wake(&self) {
        // Only a counter that is full already refuses, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.finish();
        }
    }
}
