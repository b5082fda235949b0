//! Worker threads: each hosts one worker inside a tokio runtime.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::config::Config;
use crate::group::Group;
use crate::handler::Handler;
use crate::listen::{Listener, Sockets};
use crate::memory::MemoryBudget;
use crate::stats::Stats;
use crate::tls::Identity;
use crate::worker::Worker;

/// Worker threads that serve the same listeners. Each thread runs its own tokio runtime, so
/// handlers can use tokio.
///
/// ```no_run
/// use std::net::Ipv6Addr;
///
/// use http::StatusCode;
/// use pronghorn_engine::{Config, Group, Identity, Listener, Request, Responder, Response, Workers};
///
/// # fn identity() -> Identity { unimplemented!() }
/// let config = Config::default();
/// let listener = Listener::secure((Ipv6Addr::UNSPECIFIED, 8443).into(), 2, config.congestion)?;
/// let workers = Workers::start(Group::new(2), vec![listener], Some(&identity()), &config, |_| {
///     |request: Request, responder: Responder| {
///         let text = format!("hello over {}\n", request.peer.protocol);
///         responder.send(Response::new(StatusCode::OK).with_body(text));
///     }
/// })?;
/// workers.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Workers {
    threads: Vec<JoinHandle<io::Result<()>>>,
    control: Control,
}

/// Controls running [`Workers`] from any thread. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    group: Group,
    stop: Arc<ControlState>,
}

#[derive(Default)]
struct ControlState {
    grace: Mutex<Option<Duration>>,
    begun: AtomicBool,
    /// The current identity, and the number of changes so far.
    identity: Mutex<Option<Identity>>,
    changes: AtomicU64,
    running: AtomicUsize,
    ended: Notify,
}

/// Counts a running worker. Dropping it, a panic included, reports the worker's end.
struct Running {
    stop: Arc<ControlState>,
    group: Group,
}

impl Running {
    fn new(stop: Arc<ControlState>, group: Group) -> Self {
        stop.running.fetch_add(1, Ordering::AcqRel);
        Self { stop, group }
    }

    /// A worker has failed. All others stop too: the rest would go on without a part of the
    /// connections, so the process supervisor should restart the whole process.
    fn fail(&self) {
        self.stop.begin(Duration::ZERO);
        self.group.wake_all();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail();
        }
        self.stop.running.fetch_sub(1, Ordering::AcqRel);
        self.stop.ended.notify_waiters();
    }
}

impl ControlState {
    fn begin(&self, grace: Duration) {
        *self.grace.lock().unwrap_or_else(PoisonError::into_inner) = Some(grace);
        self.begun.store(true, Ordering::Release);
    }

    /// Returns the identity if it was changed after `seen`.
    fn changed_identity(&self, seen: &mut u64) -> Option<Identity> {
        // As with the grace period, a turn without a change takes no lock.
        let changes = self.changes.load(Ordering::Acquire);
        if changes == *seen {
            return None;
        }
        *seen = changes;
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn grace(&self) -> Option<Duration> {
        // The flag keeps the lock out of the usual turn.
        if self.begun.load(Ordering::Acquire) {
            *self.grace.lock().unwrap_or_else(PoisonError::into_inner)
        } else {
            None
        }
    }
}

impl Workers {
    /// Starts the workers of `group`. Each worker gets its share of `listeners`, and the handler
    /// that `handler` returns for its number.
    ///
    /// # Errors
    ///
    /// When a thread cannot be started. Errors inside a thread are returned by [`Workers::join`].
    pub fn start<H: Handler>(
        group: Group,
        listeners: Vec<Listener>,
        identity: Option<&Identity>,
        config: &Config,
        handler: impl Fn(usize) -> H + Send + Sync + 'static,
    ) -> io::Result<Self> {
        group.memory().set_bytes(config.limits.memory_bytes());
        let mut shares: Vec<Vec<_>> = (0..group.size()).map(|_| Vec::new()).collect();
        for listener in listeners {
            for (share, sockets) in shares.iter_mut().zip(listener.into_sockets()) {
                share.push(sockets);
            }
        }
        let handler = Arc::new(handler);
        let stop =
            ControlState { identity: Mutex::new(identity.cloned()), ..ControlState::default() };
        let mut workers =
            Self { threads: Vec::new(), control: Control { group, stop: Arc::new(stop) } };
        for (number, share) in shares.into_iter().enumerate() {
            let (group, identity, config, handler) =
                (workers.control.group.clone(), identity.cloned(), config.clone(), handler.clone());
            let running = Running::new(workers.control.stop.clone(), group.clone());
            let run = move || {
                let result = run_worker(
                    number,
                    &group,
                    config,
                    handler(number),
                    share,
                    identity.as_ref(),
                    &running.stop,
                );
                result.inspect_err(|_| running.fail())
            };
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(run);
            workers.threads.push(thread.inspect_err(|_| workers.shut_down(Duration::ZERO))?);
        }
        Ok(workers)
    }

    /// Returns the counters of each worker.
    pub fn stats(&self) -> impl Iterator<Item = &Arc<Stats>> {
        self.control.stats()
    }

    /// Returns the memory budget that the workers share.
    pub fn memory(&self) -> &MemoryBudget {
        self.control.group.memory()
    }

    /// Begins a graceful shutdown: clients get GOAWAY, and open requests have `grace` to finish.
    pub fn shut_down(&self, grace: Duration) {
        self.control.shut_down(grace);
    }

    /// Returns a handle for other threads.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Waits until every worker has ended. [`Workers::join`] then returns at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn finished(&self) {
        loop {
            let ended = self.control.stop.ended.notified();
            if self.control.stop.running.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Waits for all workers to end.
    ///
    /// # Errors
    ///
    /// The first error that a worker ended with.
    pub fn join(self) -> io::Result<()> {
        let results: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        results.into_iter().try_for_each(|result| {
            result.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))
        })
    }
}

impl Control {
    /// Returns the counters of each worker.
    pub fn stats(&self) -> impl Iterator<Item = &Arc<Stats>> {
        self.group.stats()
    }

    /// Begins a graceful shutdown: clients get GOAWAY, and open requests have `grace` to finish.
    pub fn shut_down(&self, grace: Duration) {
        self.stop.begin(grace);
        self.group.wake_all();
    }

    /// Uses `identity` for new connections; existing ones keep theirs. Sessions made with another
    /// certificate are not resumed.
    ///
    /// An identity without its own session store uses that of the identity before it.
    ///
    /// # Errors
    ///
    /// When the identity cannot be used for QUIC. Nothing changes then.
    pub fn set_identity(&self, identity: Identity) -> Result<(), rustls::Error> {
        identity.check()?;
        let mut current = self.stop.identity.lock().unwrap_or_else(PoisonError::into_inner);
        let sessions = current
            .as_ref()
            .and_then(Identity::sessions)
            .filter(|_| identity.sessions().is_none())
            .cloned();
        *current = Some(match sessions {
            Some(sessions) => identity.with_sessions(sessions),
            None => identity,
        });
        self.stop.changes.fetch_add(1, Ordering::Release);
        drop(current);
        self.group.wake_all();
        Ok(())
    }
}

fn run_worker(
    number: usize,
    group: &Group,
    config: Config,
    handler: impl Handler,
    share: Vec<Sockets>,
    identity: Option<&Identity>,
    stop: &ControlState,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = {
        // Entered until the worker is dropped: the futures of handlers are dropped with it, and
        // their destructors may spawn.
        let _inside = runtime.enter();
        let mut worker = Worker::new(number, group, config, handler)?;
        worker.handler().start(&mut worker)?;
        for sockets in share {
            worker.listen(sockets, identity)?;
        }
        let mut changes = 0;
        runtime.block_on(embed_in_tokio(&mut worker, |worker, now| {
            if let Some(identity) = stop.changed_identity(&mut changes) {
                worker
                    .set_identity(&identity)
                    .expect("invariant: it was checked before it was handed over");
            }
            if let Some(grace) = stop.grace() {
                worker.shut_down(now, grace);
            }
            worker.is_finished()
        }))
    };
    // Does not wait for blocking tasks; each ends on its own thread.
    runtime.shutdown_background();
    ended
}

/// Runs `worker` inside an existing tokio runtime, until `finished` returns true after a turn.
///
/// # Errors
///
/// Those of [`Worker::turn`].
///
/// # Cancel safety
///
/// The future can be dropped between turns; another call continues with the same worker.
pub async fn embed_in_tokio(
    worker: &mut Worker,
    mut finished: impl FnMut(&mut Worker, Instant) -> bool,
) -> io::Result<()> {
    let descriptor = watch(worker.as_fd().try_clone_to_owned()?)?;
    loop {
        let now = Instant::now();
        // A turn has its own budget. tokio's budget is per task, and all futures of the worker
        // would share it: once spent, tokio's channels and timers would appear not ready for the
        // rest of the turn.
        tokio::task::unconstrained(async { worker.turn(now) }).await?;
        if finished(worker, now) {
            return Ok(());
        }
        // Cleared before the turn: an event during the turn makes the descriptor readable again.
        descriptor.readable().await?.clear_ready();
    }
}

#[expect(unsafe_code, reason = "tokio has no other way to watch a descriptor")]
fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the `AsyncFd` from here on, so it stays open and the same
    // as long as tokio watches it.
    unsafe { AsyncFd::register_with_interest(descriptor, tokio::io::Interest::READABLE) }
        .map_err(Into::into)
}
