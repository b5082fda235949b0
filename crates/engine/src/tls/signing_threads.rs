//! Threads for handshakes whose signature takes time.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::OtherError;

use crate::contained::contained;

/// Says which handshakes sign with a key that may take time, such as one on another machine or in a
/// hardware module. They run on threads of their own, so that no worker waits.
pub trait SlowKeys: fmt::Debug + Send + Sync {
    /// Whether the key for this server name (SNI), which is in lower case, may take time to sign.
    fn is_slow(&self, server_name: Option<&str>) -> bool;
}

/// Why a handshake has no signature, for [`Signer`](rustls::sign::Signer)s: wrapped in
/// [`rustls::Error::Other`], it makes the server end the handshake with the alert `internal_error`.
/// With any other error, rustls sends no alert.
///
/// The reason is not part of the message, which QUIC sends to the client: it may have addresses of
/// this network.
#[derive(Debug, thiserror::Error)]
#[error("no signature")]
pub struct SigningFailed(pub String);

impl From<SigningFailed> for rustls::Error {
    fn from(failed: SigningFailed) -> Self {
        Self::Other(OtherError(Arc::new(failed)))
    }
}

/// Whether a handshake failed for lack of a signature. TLS has queued the messages before it, and
/// no alert.
pub(crate) fn is_signing_failure(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::Other(OtherError(cause)) if cause.is::<SigningFailed>())
}

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);
/// A handshake needs some 100 KB of stack, post-quantum key exchange included, unoptimized.
const STACK_BYTES: usize = 512 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// A bounded pool of threads, which start when they are needed.
#[derive(Clone)]
pub(crate) struct SigningThreads(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    has_work: Condvar,
    max_threads: usize,
    max_waiting: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    threads: usize,
    /// Number of threads that are running a job.
    working: usize,
}

impl SigningThreads {
    /// Creates a pool of at most `max_threads` threads, with at most `max_waiting` jobs that wait
    /// for one.
    pub(crate) fn new(max_threads: usize, max_waiting: usize) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            has_work: Condvar::new(),
            max_threads,
            max_waiting,
        }))
    }

    /// Runs `job` on one of the threads. Returns `false`, and drops the job, if too many are waiting
    /// or the system has no more threads.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.0.lock();
        let mut has_thread = state.threads - state.working > state.waiting.len();
        if !has_thread && state.threads < self.0.max_threads && self.start_thread().is_ok() {
            state.threads += 1;
            has_thread = true;
        }
        // Without a new thread, those that run take the job later.
        if !has_thread && (state.threads == 0 || state.waiting.len() >= self.0.max_waiting) {
            return false;
        }
        state.waiting.push_back(Box::new(job));
        drop(state);
        self.0.has_work.notify_one();
        true
    }

    fn start_thread(&self) -> io::Result<()> {
        let shared = self.0.clone();
        std::thread::Builder::new()
            .name("handshake".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || shared.work())
            .map(drop)
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                state.working += 1;
                drop(state);
                // The job drops what it owns, which tells its handshake that it has failed.
                contained(job);
                state = self.lock();
                state.working -= 1;
                continue;
            }
            let waited = self.has_work.wait_timeout(state, IDLE);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && state.waiting.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run without the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SigningThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningThreads").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_side_by_side_up_to_the_number_of_threads_and_the_rest_wait() {
        let threads = SigningThreads::new(3, 2);
        let (started, starts) = mpsc::channel();
        let mut ends = Vec::new();
        let mut run = || {
            let (end, ended) = mpsc::channel::<()>();
            let started = started.clone();
            let runs = threads.run(move || {
                started.send(()).unwrap();
                let _ = ended.recv();
            });
            ends.push(end);
            runs
        };
        assert!((0..3).all(|_| run()));
        (0..3).for_each(|_| starts.recv().unwrap());
        assert!(run() && run(), "two jobs wait");
        assert!(!run(), "there is no place for a third");
        assert!(starts.try_recv().is_err(), "no fourth thread was started");
        ends.clear();
        (0..2).for_each(|_| starts.recv().unwrap());
    }

    #[test]
    fn message_of_a_missing_signature_does_not_have_the_reason() {
        let error = rustls::Error::from(SigningFailed("10.0.0.7 refuses".to_owned()));
        assert_eq!(error.to_string(), "other error: no signature");
    }

    #[test]
    fn panic_of_a_job_leaves_its_thread_working() {
        let threads = SigningThreads::new(1, 10);
        let (done, ends) = mpsc::channel();
        assert!(threads.run(|| panic!("expected in this test")));
        assert!(threads.run(move || done.send(()).unwrap()));
        ends.recv().unwrap();
    }
}
