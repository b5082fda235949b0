//! The processes that run behind the link, in a PID namespace of their own, so that none of them outlives the link.
//!
//! ```text
//! this process ── spawner thread (its children are born in the PID namespace)
//!      │              ├── keeper: process 1 of the namespace, waits for the pipe to close
//!      └── pipe ──────┘   ├── far command
//!                         └── COMMAND and whatever they start
//! ```
//!
//! When this process ends, in whatever way, the kernel closes the pipe, the keeper exits, and the kernel kills all that
//! is left in its namespace.
#![expect(unsafe_code, reason = "fork, and closures that run between fork and exec")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use rustix::thread::UnshareFlags;

use crate::namespace::{self, Namespace};
use crate::{Error, signals};

type Job = Box<dyn FnOnce() + Send>;

/// Starts processes and ends them all when dropped.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    jobs: Option<mpsc::Sender<Job>>,
    spawner: Option<JoinHandle<()>>,
    keeper: Keeper,
    /// Of the processes that were started here and not yet waited for.
    started: Mutex<Vec<OwnedFd>>,
}

impl ProcessTree {
    pub(crate) fn new() -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, readiness) = mpsc::channel();
        let spawner = std::thread::Builder::new()
            .name("link-spawner".into())
            .spawn(move || {
                let keeper = unshare_processes().and_then(|()| Keeper::start());
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
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that somebody has waited for it.
        started.retain(|process| rustix::process::waitid(WaitId::PidFd(process.as_fd()), look).is_ok());
        started.push(process);
        Ok(())
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.keeper.release();
        // The keeper cannot end before they are reaped: they are this process's children, not its own.
        for process in self.started.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Whoever started it may have waited for it already.
            let _ = rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED));
        }
        self.keeper.wait();
        self.jobs.take();
        if let Some(spawner) = self.spawner.take() {
            let _ = spawner.join();
        }
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
    pid: Pid,
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
                Ok(Self { pid, lifeline: Some(lifeline) })
            }
        }
    }

    /// Its sign to exit; the kernel then kills the rest of the namespace.
    fn release(&mut self) {
        self.lifeline.take();
    }

    fn wait(&mut self) {
        let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty()));
    }
}

/// The keeper's life. Other threads of the parent may have held any lock at the fork, so only plain system calls here.
fn keep(held: libc::c_int) -> ! {
    // SAFETY: system calls on constants and on two descriptors that this process owns; `_exit` runs no destructors.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"link-keeper".as_ptr());
        // Orphans come to process 1; ignoring SIGCHLD lets the kernel reap them.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        // A /proc of this namespace. Where a container forbids it, /proc stays the outer one, which most programs bear.
        libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE, std::ptr::null());
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null());
        // Standard output and the like may be pipes that somebody waits on: keep none but our own.
        let held = libc::dup2(held, 0);
        libc::close_range(1, libc::c_uint::MAX, 0);
        let mut byte = 0u8;
        while libc::read(held, (&raw mut byte).cast(), 1) == -1 && *libc::__errno_location() == libc::EINTR {}
        libc::_exit(0)
    }
}
