//! The processes at one end of the link, in a separate PID namespace, so that none of them outlives
//! the link and their processor time is known.
//!
//! ```text
//! this process ── spawner thread (its children are born in the PID namespace)
//!      │              ├── keeper: process 1 of the namespace, waits for the pipe to close, and for orphans
//!      └── pipe ──────┘   └── command and whatever it starts
//! ```
//!
//! When this process ends, in whatever way, the kernel closes the pipe; the keeper then kills all
//! processes left in its namespace, waits for them and exits. If the keeper itself is killed, the
//! kernel kills the rest, and only their processor time is unknown.
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

/// Starts processes, and ends them all when it is dropped.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    jobs: Option<mpsc::Sender<Job>>,
    spawner: Option<JoinHandle<()>>,
    keeper: Keeper,
    /// Processes started here and not waited for yet.
    started: Mutex<Vec<Started>>,
}

#[derive(Debug)]
struct Started {
    process: OwnedFd,
    id: u32,
}

impl Started {
    /// Returns an error if the process was already waited for: its PID may have been reused.
    fn is_not_waited_for(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), look).is_ok()
    }
}

impl ProcessTree {
    /// Creates the tree. With a `resolver`, programs look up names only there.
    pub(crate) fn new(resolver: Option<IpAddr>) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, readiness) = mpsc::channel();
        let spawner = std::thread::Builder::new()
            .name("link-spawner".into())
            .spawn(move || {
                let prepared = unshare_processes()
                    .and_then(|()| resolver.map_or(Ok(()), resolver::put_in_place));
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

    /// Starts `command` inside `network`, with no signals blocked.
    pub(crate) fn spawn(&self, mut command: Command, network: &Namespace) -> io::Result<Child> {
        let network = network.as_fd().try_clone_to_owned()?;
        // SAFETY: between fork and exec the closure makes two system calls and touches nothing
        // else.
        unsafe {
            command.pre_exec(move || {
                signals::unblock()?;
                namespace::enter_network(network.as_fd())
            });
        }
        let (answer, child) = mpsc::channel();
        let job: Job = Box::new(move || {
            // The requester waits below; the send cannot fail before that.
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

    /// Returns the root processes of this end, including orphans.
    pub(crate) fn roots(&self) -> Vec<u32> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let running =
            started.iter().filter(|started| started.is_not_waited_for()).map(|started| started.id);
        // The keeper itself is omitted if nothing runs at this end.
        let mut roots: Vec<u32> = running.collect();
        if !roots.is_empty() {
            roots.push(self.keeper.id);
        }
        roots
    }

    /// Ends all running processes. Returns the processor time of all processes that no caller
    /// waited for: orphans, processes left running, and their descendants.
    pub(crate) fn end(mut self) -> CpuTime {
        self.finish()
    }

    fn finish(&mut self) -> CpuTime {
        let mut cpu = CpuTime::default();
        self.keeper.release();
        // The keeper cannot end before they are reaped: they are children of this process, not of
        // the keeper.
        for started in self.started.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // The process may have been waited for already.
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

/// Enters new namespaces, including a mount namespace, for a `/proc` that shows the PID namespace.
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
        let (held, lifeline) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(Error::system("make a pipe"))?;
        let (ready, done) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(Error::system("make a pipe"))?;
        // SAFETY: the child runs `keep` only, which makes system calls, allocates nothing and never
        // returns.
        match unsafe { libc::fork() } {
            -1 => Err(Error::system("start a process")(io::Error::last_os_error())),
            0 => keep(held.as_raw_fd()),
            raw => {
                drop((held, done));
                // Returns at the end of the pipe: the child has closed all that it inherited and
                // has its /proc.
                let mut nothing = [0u8; 1];
                let _ = rustix::io::read(&ready, &mut nothing);
                let pid = Pid::from_raw(raw).expect("invariant: fork gives a positive number");
                let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())
                    .map_err(Error::system("open a process"))?;
                Ok(Self {
                    process: Some(process),
                    id: raw.unsigned_abs(),
                    lifeline: Some(lifeline),
                })
            }
        }
    }

    /// Signals the keeper to kill the rest of the namespace and exit.
    fn release(&mut self) {
        self.lifeline.take();
    }

    /// Returns its own processor time, well under a millisecond, and that of all processes that it
    /// waited for.
    fn wait(&mut self) -> CpuTime {
        let ended = self.process.take().and_then(|process| cpu::wait(process.as_fd()).ok());
        ended.map_or_else(CpuTime::default, |ended| ended.cpu)
    }
}

/// Main function of the keeper. Other threads of the parent may have held any lock at the fork, so
/// it makes only plain system calls.
fn keep(held: libc::c_int) -> ! {
    // SAFETY: system calls on constants, on two descriptors and on structures that this process
    // owns; the handler does nothing; `_exit` runs no destructors.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"link-keeper".as_ptr());
        // Mount a /proc of this namespace. If a container forbids it, /proc remains the outer one,
        // which most programs tolerate.
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        );
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null());
        // Orphans become children of process 1. SIGCHLD is blocked except during ppoll, so that no
        // exit is missed.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut());
        let mut child: libc::sigset_t = std::mem::zeroed();
        let mut others: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const child, &raw mut others);
        libc::sigdelset(&raw mut others, libc::SIGCHLD);
        // Standard output and others may be pipes that another process waits on: keep only our own.
        let held = libc::dup2(held, 0);
        libc::close_range(1, libc::c_uint::MAX, 0);
        let mut lifeline = libc::pollfd { fd: held, events: libc::POLLIN, revents: 0 };
        while lifeline.revents == 0 {
            reap();
            libc::ppoll(&raw mut lifeline, 1, std::ptr::null(), &raw const others);
        }
        // Not left to the kernel, which does not count the time of processes that it kills with a
        // namespace. A process may be in transit between two parents, so loop until none is left.
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
