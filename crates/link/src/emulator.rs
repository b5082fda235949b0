//! The emulator: one thread that reads packets from both TUN devices and writes each at its
//! deadline.

mod clock;
mod counters;
mod direction;
mod real_time;
mod records;
mod request;
mod ring;
mod thread;

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;

use crate::profile::Profile;
use crate::{Error, flow, packets};

pub use counters::{Counts, DirectionCounters, DirectionCounts};
pub use real_time::Scheduling;
pub(crate) use real_time::request_real_time;
use records::Records;
use request::Request;
pub(crate) use request::{ClockStart, Devices, StartRefused};

/// Above ordinary real-time tasks, below the kernel's own.
const REAL_TIME_PRIORITY: i32 = 50;

/// A running emulator. Until [`Emulator::go_live`] it forwards packets immediately and counts
/// nothing.
#[derive(Debug)]
pub(crate) struct Emulator {
    scheduling: Scheduling,
    /// Thread ID in the kernel.
    thread_id: u32,
    requests: mpsc::Sender<Request>,
    wake: OwnedFd,
    thread: Option<JoinHandle<Result<Counts, Error>>>,
}

impl Emulator {
    pub(crate) fn start(
        devices: Devices,
        profile: &Profile,
        seed: u64,
        packets: Option<packets::Recorder>,
    ) -> Result<Self, Error> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::system("make an eventfd"))?;
        let woken = wake.try_clone().map_err(Error::system("duplicate an eventfd"))?;
        let (requests, incoming) = mpsc::channel();
        let (ready, readiness) = mpsc::channel();
        let records =
            Records { clock: clock::Clock::waiting(0), flows: flow::Table::default(), packets };
        let work = thread::Loop::new(devices, woken, incoming, profile, seed, records)?;
        let thread = std::thread::Builder::new()
            .name("link-emulator".into())
            .spawn(move || {
                // The starter waits for this; if it is gone, the closed request channel ends the
                // loop below.
                let _ =
                    ready.send((request_real_time(REAL_TIME_PRIORITY), rustix::thread::gettid()));
                work.run()
            })
            .map_err(Error::system("start a thread"))?;
        let (scheduling, thread_id) =
            readiness.recv().expect("invariant: the emulator answers before its loop");
        let thread_id = thread_id.as_raw_nonzero().get().unsigned_abs();
        Ok(Self { scheduling, thread_id, requests, wake, thread: Some(thread) })
    }

    pub(crate) fn scheduling(&self) -> Scheduling {
        self.scheduling
    }

    pub(crate) fn thread_id(&self) -> u32 {
        self.thread_id
    }

    /// Applies the profile. Packets forwarded before are not counted.
    pub(crate) fn go_live(&self) -> Result<(), Error> {
        self.ask(Request::GoLive)
    }

    /// Restarts the profile's schedule.
    pub(crate) fn start_clock(&self, start: ClockStart) -> Result<Result<(), StartRefused>, Error> {
        self.ask(|answer| Request::Start(start, answer))
    }

    /// Excludes the lateness of packets delivered from now on, until the profile restarts.
    pub(crate) fn freeze_lateness(&self) -> Result<(), Error> {
        self.ask(Request::FreezeLateness)
    }

    fn ask<T>(&self, request: impl FnOnce(mpsc::Sender<T>) -> Request) -> Result<T, Error> {
        let (answer, answered) = mpsc::channel();
        let gone =
            || Error::system("reach the emulator")(std::io::Error::other("its thread has ended"));
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
        // Writing fails only if the counter is full, and then the thread is awake.
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
