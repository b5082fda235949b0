//! The emulator's thread: its place in the system's scheduling, and its loop.
#![expect(unsafe_code, reason = "sched_setscheduler has no safe wrapper here, and mlock is for addresses")]

use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mm::MlockFlags;
use rustix::time::ClockId;

use super::clock::Clock;
use super::lane::Lane;
use super::{Books, ClockStart, Counts, Devices, Request, StartRefused};
use crate::cpu::CpuTime;
use crate::profile::Profile;
use crate::scheduler::Way;
use crate::{Error, Scheduling, packets};

/// Asks for real-time scheduling and exact timers for the calling thread, and says what it got.
pub(crate) fn prefer(priority: i32) -> Scheduling {
    let finest = NonZeroU64::new(1).expect("invariant: one is not zero");
    // Real-time threads have no slack anyway; without the call an ordinary one is woken up to 50 µs late.
    let _ = rustix::thread::set_current_timer_slack(Some(finest));
    lock_program();
    let parameter = libc::sched_param { sched_priority: priority };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: thread 0 is the caller; `parameter` is valid and lives across the call.
    let granted = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } == 0;
    if granted { Scheduling::Fifo { priority } } else { Scheduling::Other }
}

/// A page that the kernel has taken back makes the packet that needs it milliseconds late, so the program's own pages and this thread's stack
/// are locked as they are used. All of the process would be too much: allocators reserve a gigabyte that they never use, which counts against
/// the limit all the same. Without the right to lock memory the link still works; its report says how late it was.
fn lock_program() {
    let on_the_stack = 0u8;
    let stack = std::ptr::from_ref(&on_the_stack) as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for Mapping { start, end, is_file } in maps.lines().filter_map(Mapping::parse) {
        if is_file || (start..end).contains(&stack) {
            // SAFETY: locking changes nothing in the memory, and a range that has gone meanwhile is refused.
            let _ = unsafe { rustix::mm::mlock_with(start as *mut _, end - start, MlockFlags::ONFAULT) };
        }
    }
}

/// A line of `/proc/self/maps`.
struct Mapping {
    start: usize,
    end: usize,
    is_file: bool,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let parse = |number| usize::from_str_radix(number, 16).ok();
        Some(Self { start: parse(start)?, end: parse(end)?, is_file: rest.contains(" /") })
    }
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(super) struct Loop {
    devices: Devices,
    wake: OwnedFd,
    requests: mpsc::Receiver<Request>,
    profile: Profile,
    seed: u64,
    up: Lane,
    down: Lane,
    books: Books,
    /// On the monotonic clock; all other times count from it.
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
        books: Books,
    ) -> Result<Self, Error> {
        let lane = |way| Lane::new(way, profile).map_err(Error::system("get memory for packets"));
        Ok(Self {
            devices,
            wake,
            requests,
            profile: profile.clone(),
            seed,
            up: lane(Way::Up)?,
            down: lane(Way::Down)?,
            books,
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

    /// Until a packet comes, a deadline passes or somebody asks for something.
    fn wait(&self) -> Result<[bool; 3], Errno> {
        let next = [self.up.next_deadline_ns(), self.down.next_deadline_ns(), self.next_change_ns()].into_iter().flatten().min();
        let timeout = next.map(|deadline_ns| {
            let wait_ns = deadline_ns.saturating_sub(self.now());
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as _ }
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
            Way::Up => self.up.read(near, far, &mut self.books, now),
            Way::Down => self.down.read(far, near, &mut self.books, now),
        }
    }

    fn next_change_ns(&self) -> Option<u64> {
        let next = self.profile.changes.get(self.changes_made_ns.len())?;
        Some(self.books.clock.begun_ns()? + next.after_ns)
    }

    fn make_changes(&mut self) {
        while let Some(due_ns) = self.next_change_ns()
            && due_ns <= self.now()
        {
            let change = &self.profile.changes[self.changes_made_ns.len()];
            for (lane, direction) in [(&mut self.up, &change.up), (&mut self.down, &change.down)] {
                if let Some(direction) = direction {
                    lane.change(direction, &self.books.clock);
                }
            }
            self.changes_made_ns.push(self.now());
            if change.new_client_address
                && let Some(changer) = &self.devices.address_changes
            {
                // If it has ended, its error is told when the link stops.
                let _ = changer.send(self.changes_made_ns.len());
            }
        }
    }

    fn deliver(&mut self) {
        let live_since_ns = self.live_since_ns;
        let now = || clock_ns() - live_since_ns;
        self.up.deliver(self.devices.far.as_fd(), &mut self.books, now);
        self.down.deliver(self.devices.near.as_fd(), &mut self.books, now);
    }

    /// True when it is time to stop, also when nobody is left to ask.
    fn handle_requests(&mut self) -> Result<bool, Errno> {
        // Level-triggered: an unread eventfd would only wake the loop again.
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut counter);
        loop {
            match self.requests.try_recv() {
                Ok(Request::GoLive(answer)) => {
                    self.go_live()?;
                    // Whoever asked may have given up; the link is live all the same.
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

    /// What the devices hold from before is passed on first, so that nothing of it counts.
    fn go_live(&mut self) -> Result<(), Errno> {
        while self.read(Way::Up)? | self.read(Way::Down)? {}
        self.live_since_ns = clock_ns();
        self.cpu_before = CpuTime::of_this_thread();
        if let Some(log) = &mut self.books.packets {
            log.go_live(self.live_since_ns);
        }
        self.books.clock = Clock::waiting(0);
        self.up.start(&self.profile, self.seed, &self.books.clock);
        self.down.start(&self.profile, self.seed, &self.books.clock);
        Ok(())
    }

    /// Undoes what the profile has done so far, so that it begins as on a fresh link.
    fn start(&mut self, start: ClockStart) -> Result<(), StartRefused> {
        let made = &self.profile.changes[..self.changes_made_ns.len()];
        if made.iter().any(|change| change.new_client_address) {
            return Err(StartRefused::ClientAddressChanged);
        }
        self.changes_made_ns.clear();
        self.books.flows.start();
        let now_ns = self.now();
        match start {
            ClockStart::NextFlow => self.books.clock.restart(now_ns),
            ClockStart::Now => self.books.clock.begin(now_ns),
        }
        self.up.start(&self.profile, self.seed, &self.books.clock);
        self.down.start(&self.profile, self.seed, &self.books.clock);
        Ok(())
    }

    /// What was due before still counts.
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
            time_zero_ns: self.books.clock.begun_ns(),
            flows: self.books.flows,
            packets_unlogged: self.books.packets.map_or(0, packets::Recorder::finish),
            duration_ns,
            live_since_ns: self.live_since_ns,
            cpu: CpuTime::of_this_thread().since(self.cpu_before),
            changes_made_ns: self.changes_made_ns,
        }
    }
}
