//! The processes that run at one end of the link, in a PID namespace of their own, so that none of them outlives the link and
//! the time that they took is known.
//!
//! ```text
//! this process ── spawner thread (its children are born in the PID namespace)
//!      │              ├── keeper: process 1 of the namespace, waits for the pipe to close, and for orphans
//!      └── pipe ──────┘   └── command and whatever it starts
//! ```
//!
//! When this process ends, in whatever way, the kernel closes the pipe; the keeper kills all that is left in its namespace, waits
//! for it and exits. Were the keeper killed, the kernel would kill the rest, and only their time would be unknown.
#![expect(unsafe_code, reason = "fork, and closures that run between fork and exec")]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use rustix::thread::UnshareFlags;

use crate::cpu::{self, CpuTime};
use crate::namespace::{self, Namespace};
use crate::{Error, resolver, signals};

type Job = Box<dyn FnOnce() + Send>;

/// Starts processes and ends them all with itself.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    jobs: Option<mpsc::Sender<Job>>,
    spawner: Option<JoinHandle<()>>,
    keeper: Keeper,
    /// Of the processes that were started here and not yet waited for.
    started: Mutex<Vec<Started>>,
}

#[derive(Debug)]
struct Started {
    process: OwnedFd,
    id: u32,
}

impl Started {
    /// An error means that somebody has waited for it: its number may be another one's by now.
    fn is_not_waited_for(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), look).is_ok()
    }
}

impl ProcessTree {
    /// With a `resolver`, programs look up names there alone.
    pub(crate) fn new(resolver: Option<IpAddr>) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, readiness) = mpsc::channel();
        let spawner = std::thread::Builder::new()
            .name("link-spawner".into())
            .spawn(move || {
                let prepared = unshare_processes().and_then(|()| resolver.map_or(Ok(()), resolver::put_in_place));
                let keeper = prepared.and_then(|()| Keeper::start());
                let works = keeper.is_ok();
                if ready.send(keeper).is_err() || !works {
                    return;
                }
                for job in queue {
                    job();
                }
            })
            .map_err(Error::system("start a thread"))?;
        let keeper = readiness.recv().expect("invariant: the spawner answers before it ends")?;
        Ok(Self { jobs: Some(jobs), spawner: Some(spawner), keeper, started: Mutex::default() })
    }

    /// Starts `command` inside `network`, with no signal held back.
    pub(crate) fn spawn(&self, mut command: Command, network: &Namespace) -> io::Result<Child> {
        let network = network.as_fd().try_clone_to_owned()?;
        // SAFETY: between fork and exec the closure makes two system calls and touches nothing else.
        unsafe {
            command.pre_exec(move || {
                signals::unblock()?;
                namespace::enter_network(network.as_fd())
            });
        }
        let (answer, child) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Whoever asked waits below; a send cannot fail before that.
            let _ = answer.send(command.spawn());
        });
        let child = self
            .jobs
            .as_ref()
            .and_then(|jobs| jobs.send(job).ok())
            .and_then(|()| child.recv().ok())
            .unwrap_or_else(|| Err(io::Error::other("the spawner thread has ended")))?;
        self.remember(&child)?;
        Ok(child)
    }

    fn remember(&self, child: &Child) -> io::Result<()> {
        let process = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain(Started::is_not_waited_for);
        started.push(Started { process, id: child.id() });
        Ok(())
    }

    /// Processes from which all others of this end descend, orphans included.
    pub(crate) fn roots(&self) -> Vec<u32> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let running = started.iter().filter(|started| started.is_not_waited_for()).map(|started| started.id);
        // Of an end at which nothing runs, the keeper says nothing.
        let mut roots: Vec<u32> = running.collect();
        if !roots.is_empty() {
            roots.push(self.keeper.id);
        }
        roots
    }

    /// Ends all that still runs. Gives the processor time of all processes that were not waited for outside: orphans, those that were
    /// left running, and what those had started.
    pub(crate) fn end(mut self) -> CpuTime {
        self.finish()
    }

    fn finish(&mut self) -> CpuTime {
        let mut cpu = CpuTime::default();
        self.keeper.release();
        // The keeper cannot end before they are reaped: they are this process's children, not its own.
        for started in self.started.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Whoever started it may have waited for it already.
            if let Ok(ended) = cpu::wait(started.process.as_fd()) {
                cpu += ended.cpu;
            }
        }
        cpu += self.keeper.wait();
        self.jobs.take();
        if let Some(spawner) = self.spawner.take() {
            let _ = spawner.join();
        }
        cpu
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A mount namespace too, for a `/proc` that shows the PID namespace.
fn unshare_processes() -> Result<(), Error> {
    let kinds = UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    namespace::unshare(kinds).map_err(|errno| Error::namespace("make a process namespace", errno))
}

/// Process 1 of the namespace.
#[derive(Debug)]
struct Keeper {
    /// `None` once it was waited for.
    process: Option<OwnedFd>,
    id: u32,
    lifeline: Option<OwnedFd>,
}

impl Keeper {
    fn start() -> Result<Self, Error> {
        let (held, lifeline) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(Error::system("make a pipe"))?;
        let (ready, done) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(Error::system("make a pipe"))?;
        // SAFETY: the child runs `keep` only, which makes system calls, allocates nothing and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(Error::system("start a process")(io::Error::last_os_error())),
            0 => keep(held.as_raw_fd()),
            raw => {
                drop((held, done));
                // Returns at the end of the pipe: the child has closed all that it inherited and has its /proc.
                let mut nothing = [0u8; 1];
                let _ = rustix::io::read(&ready, &mut nothing);
                let pid = Pid::from_raw(raw).expect("invariant: fork gives a positive number");
                let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(Error::system("open a process"))?;
                Ok(Self { process: Some(process), id: raw.unsigned_abs(), lifeline: Some(lifeline) })
            }
        }
    }

    /// Its sign to kill the rest of the namespace and to exit.
    fn release(&mut self) {
        self.lifeline.take();
    }

    /// Gives its own time, well under a millisecond, and that of all that it waited for.
    fn wait(&mut self) -> CpuTime {
        let ended = self.process.take().and_then(|process| cpu::wait(process.as_fd()).ok());
        ended.map_or_else(CpuTime::default, |ended| ended.cpu)
    }
}

/// The keeper's life. Other threads of the parent may have held any lock at the fork, so only plain system calls here.
fn keep(held: libc::c_int) -> ! {
    // SAFETY: system calls on constants, on two descriptors and on structures that this process owns; the handler does nothing;
    // `_exit` runs no destructors.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"link-keeper".as_ptr());
        // A /proc of this namespace. Where a container forbids it, /proc stays the outer one, which most programs bear.
        libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE, std::ptr::null());
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null());
        // Orphans come to process 1. Held back but during ppoll, so that none that ends is overlooked.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut());
        let mut child: libc::sigset_t = std::mem::zeroed();
        let mut others: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const child, &raw mut others);
        libc::sigdelset(&raw mut others, libc::SIGCHLD);
        // Standard output and the like may be pipes that somebody waits on: keep none but our own.
        let held = libc::dup2(held, 0);
        libc::close_range(1, libc::c_uint::MAX, 0);
        let mut lifeline = libc::pollfd { fd: held, events: libc::POLLIN, revents: 0 };
        while lifeline.revents == 0 {
            reap();
            libc::ppoll(&raw mut lifeline, 1, std::ptr::null(), &raw const others);
        }
        // Not left to the kernel, which reaps what it kills in a namespace without counting it. A process may be in between two
        // parents, so this ends only when none is left.
        let moment = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        while libc::kill(-1, libc::SIGKILL) == 0 {
            reap();
            libc::ppoll(std::ptr::null_mut(), 0, &raw const moment, &raw const others);
        }
        libc::_exit(0)
    }
}

fn reap() {
    // SAFETY: nothing is written when no status is asked for.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } > 0 {}
}

extern "C" fn nothing(_: libc::c_int) {}
