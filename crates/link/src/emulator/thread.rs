//! The emulator's thread.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::clock::Clock;
use super::direction::DirectionEmulator;
use super::{ClockStart, Counts, Devices, Records, Request, StartRefused};
use crate::cpu::CpuTime;
use crate::monotonic::clock_ns;
use crate::profile::Profile;
use crate::way::Way;
use crate::{Error, packets};

pub(super) struct Loop {
    devices: Devices,
    wake: OwnedFd,
    requests: mpsc::Receiver<Request>,
    profile: Profile,
    seed: u64,
    up: DirectionEmulator,
    down: DirectionEmulator,
    records: Records,
    /// Time of going live on the monotonic clock; all other times are relative to it.
    live_since_ns: u64,
    cpu_before: CpuTime,
    changes_made_ns: Vec<u64>,
}

impl Loop {
    pub(super) fn new(
        devices: Devices,
        wake: OwnedFd,
        requests: mpsc::Receiver<Request>,
        profile: &Profile,
        seed: u64,
        records: Records,
    ) -> Result<Self, Error> {
        let emulator = |way| {
            DirectionEmulator::new(way, profile).map_err(Error::system("get memory for packets"))
        };
        Ok(Self {
            devices,
            wake,
            requests,
            profile: profile.clone(),
            seed,
            up: emulator(Way::Up)?,
            down: emulator(Way::Down)?,
            records,
            live_since_ns: clock_ns(),
            cpu_before: CpuTime::default(),
            changes_made_ns: Vec::new(),
        })
    }

    pub(super) fn run(mut self) -> Result<Counts, Error> {
        let failed = |what| Error::system(what);
        loop {
            let [near_ready, far_ready, woken] = self.wait().map_err(failed("wait for packets"))?;
            self.deliver();
            self.make_changes();
            if near_ready {
                self.read(Way::Up).map_err(failed("read the near TUN device"))?;
            }
            if far_ready {
                self.read(Way::Down).map_err(failed("read the far TUN device"))?;
            }
            if woken && self.handle_requests().map_err(failed("read the TUN devices"))? {
                return Ok(self.finish());
            }
            self.deliver();
        }
    }

    /// Waits until a packet arrives, a deadline passes or a request is made.
    fn wait(&self) -> Result<[bool; 3], Errno> {
        let next =
            [self.up.next_deadline_ns(), self.down.next_deadline_ns(), self.next_change_ns()]
                .into_iter()
                .flatten()
                .min();
        let timeout = next.map(|deadline_ns| {
            let wait_ns = deadline_ns.saturating_sub(self.now());
            Timespec {
                tv_sec: (wait_ns / 1_000_000_000) as i64,
                tv_nsec: (wait_ns % 1_000_000_000) as _,
            }
        });
        let mut fds = [
            PollFd::new(&self.devices.near, PollFlags::IN),
            PollFd::new(&self.devices.far, PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(fds.each_ref().map(|fd| !fd.revents().is_empty())),
            Err(errno) => Err(errno),
        }
    }

    fn read(&mut self, way: Way) -> Result<bool, Errno> {
        let live_since_ns = self.live_since_ns;
        let now = || clock_ns() - live_since_ns;
        let Devices { near, far, .. } = &self.devices;
        match way {
            Way::Up => self.up.read(near, far, &mut self.records, now),
            Way::Down => self.down.read(far, near, &mut self.records, now),
        }
    }

    fn next_change_ns(&self) -> Option<u64> {
        let next = self.profile.changes.get(self.changes_made_ns.len())?;
        Some(self.records.clock.begun_ns()? + next.after_ns)
    }

    fn make_changes(&mut self) {
        while let Some(due_ns) = self.next_change_ns()
            && due_ns <= self.now()
        {
            let change = &self.profile.changes[self.changes_made_ns.len()];
            for (emulator, direction) in
                [(&mut self.up, &change.up), (&mut self.down, &change.down)]
            {
                if let Some(direction) = direction {
                    emulator.change(direction, &self.records.clock);
                }
            }
            self.changes_made_ns.push(self.now());
            if change.new_client_address
                && let Some(changer) = &self.devices.address_changes
            {
                // If the thread has ended, its error is reported when the link stops.
                let _ = changer.send(self.changes_made_ns.len());
            }
        }
    }

    fn deliver(&mut self) {
        let live_since_ns = self.live_since_ns;
        let now = || clock_ns() - live_since_ns;
        self.up.deliver(self.devices.far.as_fd(), &mut self.records, now);
        self.down.deliver(self.devices.near.as_fd(), &mut self.records, now);
    }

    /// Handles requests. Returns true when it is time to stop, also when no requester is left.
    fn handle_requests(&mut self) -> Result<bool, Errno> {
        // Level-triggered: an unread eventfd would only wake the loop again.
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
        loop {
            match self.requests.try_recv() {
                Ok(Request::GoLive(answer)) => {
                    self.go_live()?;
                    // The requester may have given up; the link is live nevertheless.
                    let _ = answer.send(());
                }
                Ok(Request::Start(start, answer)) => {
                    let _ = answer.send(self.start(start));
                }
                Ok(Request::FreezeLateness(answer)) => {
                    self.freeze_lateness();
                    let _ = answer.send(());
                }
                Ok(Request::Stop) | Err(mpsc::TryRecvError::Disconnected) => return Ok(true),
                Err(mpsc::TryRecvError::Empty) => return Ok(false),
            }
        }
    }

    /// Goes live. Packets still in the devices are forwarded first, so that they are not counted.
    fn go_live(&mut self) -> Result<(), Errno> {
        while self.read(Way::Up)? | self.read(Way::Down)? {}
        self.live_since_ns = clock_ns();
        self.cpu_before = CpuTime::of_this_thread();
        if let Some(log) = &mut self.records.packets {
            log.go_live(self.live_since_ns);
        }
        self.records.clock = Clock::waiting(0);
        self.up.start(&self.profile, self.seed, &self.records.clock);
        self.down.start(&self.profile, self.seed, &self.records.clock);
        Ok(())
    }

    /// Undoes the profile's changes, so that it begins as on a fresh link.
    fn start(&mut self, start: ClockStart) -> Result<(), StartRefused> {
        let made = &self.profile.changes[..self.changes_made_ns.len()];
        if made.iter().any(|change| change.new_client_address) {
            return Err(StartRefused::ClientAddressChanged);
        }
        self.changes_made_ns.clear();
        self.records.flows.start();
        let now_ns = self.now();
        match start {
            ClockStart::NextFlow => self.records.clock.restart(now_ns),
            ClockStart::Now => self.records.clock.begin(now_ns),
        }
        self.up.start(&self.profile, self.seed, &self.records.clock);
        self.down.start(&self.profile, self.seed, &self.records.clock);
        Ok(())
    }

    /// Stops counting lateness. Packets due before this still count.
    fn freeze_lateness(&mut self) {
        self.deliver();
        self.up.freeze_lateness();
        self.down.freeze_lateness();
    }

    fn now(&self) -> u64 {
        clock_ns() - self.live_since_ns
    }

    fn finish(self) -> Counts {
        let duration_ns = self.now();
        Counts {
            up: self.up.finish(),
            down: self.down.finish(),
            time_zero_ns: self.records.clock.begun_ns(),
            flows: self.records.flows,
            packets_unlogged: self.records.packets.map_or(0, packets::Recorder::finish),
            duration_ns,
            live_since_ns: self.live_since_ns,
            cpu: CpuTime::of_this_thread().since(self.cpu_before),
            changes_made_ns: self.changes_made_ns,
        }
    }
}
