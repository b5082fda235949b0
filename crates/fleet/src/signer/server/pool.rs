//! The threads that sign.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::sync::mpsc::UnboundedSender;

use super::keys::Key;
use super::metrics::Metrics;
use crate::signer::error::SignError;
use crate::signer::protocol::{ErrorCode, Opcode, Operation};
use crate::signer::scheme::Scheme;

/// Maximum number of requests that a thread takes at once.
const BATCH: usize = 64;
/// Time after which the answers of a batch leave, even if it is not complete.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// Answers of one connection, encoded.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) count: usize,
    pub(super) bytes: BytesMut,
}

/// A request to sign.
#[derive(Debug)]
pub(super) struct Job {
    /// Number of the connection, and where its answers go. The queue is bounded by the limits on
    /// requests.
    pub(super) connection: u64,
    pub(super) answers: UnboundedSender<Answers>,
    pub(super) id: u32,
    pub(super) key: Arc<Key>,
    pub(super) scheme: Scheme,
    pub(super) digest: Vec<u8>,
}

/// The requests that wait for a thread.
#[derive(Debug)]
pub(super) struct Queue {
    threads: usize,
    jobs: Mutex<Jobs>,
    arrival: Condvar,
    /// Requests that wait or are being signed.
    open: AtomicUsize,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    is_closed: bool,
}

impl Queue {
    pub(super) fn new(threads: usize) -> Self {
        let (jobs, arrival, open) = Default::default();
        Self { threads: threads.max(1), jobs, arrival, open }
    }

    /// Adds a request, unless there are `limit` already.
    pub(super) fn push(&self, job: Job, limit: usize) -> bool {
        if self.open.fetch_add(1, Ordering::Relaxed) >= limit {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).waiting.push_back(job);
        self.arrival.notify_one();
        true
    }

    /// Returns the number of requests that have no answer yet.
    pub(super) fn len(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Ends the threads.
    pub(super) fn close(&self) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.is_closed = true;
        self.open.fetch_sub(jobs.waiting.len(), Ordering::Relaxed);
        jobs.waiting.clear();
        drop(jobs);
        self.arrival.notify_all();
    }

    /// Waits for requests, and returns this thread's share of them.
    fn take(&self) -> Option<Vec<Job>> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if jobs.is_closed {
                return None;
            }
            let waiting = jobs.waiting.len();
            if waiting > 0 {
                let share = waiting.div_ceil(self.threads).min(BATCH);
                return Some(jobs.waiting.drain(..share).collect());
            }
            jobs = self.arrival.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Signs until the queue is closed.
pub(super) fn work(queue: &Queue, metrics: &Metrics) {
    while let Some(batch) = queue.take() {
        let mut answers = Vec::new();
        let mut began = Instant::now();
        for job in batch {
            sign(&job, metrics, &mut answers);
            queue.open.fetch_sub(1, Ordering::Relaxed);
            if began.elapsed() >= BATCH_TIME {
                deliver(&mut answers);
                began = Instant::now();
            }
        }
        deliver(&mut answers);
    }
}

/// The answers to a connection that are not delivered yet.
type Undelivered = (u64, UnboundedSender<Answers>, Answers);

fn sign(job: &Job, metrics: &Metrics, undelivered: &mut Vec<Undelivered>) {
    // Its client has gone.
    if job.answers.is_closed() {
        return;
    }
    let began = Instant::now();
    // A module of another vendor must not end the thread.
    let signed = catch_unwind(AssertUnwindSafe(|| job.key.source().sign(job.scheme, &job.digest)))
        .unwrap_or_else(|_| Err(SignError::Failed("the key's source panicked".to_owned())));
    metrics.on_sign(began.elapsed());
    job.key.on_signature(signed.is_ok());
    let answer = match signed {
        Ok(signature) => Operation::new(Opcode::RESPONSE, signature),
        Err(error) => {
            metrics.on_error(job.key.name(), &error);
            Operation::error(match error {
                SignError::Busy(_) | SignError::TimedOut(_) | SignError::Unavailable(_) => {
                    ErrorCode::INTERNAL
                }
                _ => ErrorCode::CRYPTO,
            })
        }
    };
    let known = undelivered.iter().position(|(number, ..)| *number == job.connection);
    let position = known.unwrap_or_else(|| {
        let empty = Answers { count: 0, bytes: BytesMut::new() };
        undelivered.push((job.connection, job.answers.clone(), empty));
        undelivered.len() - 1
    });
    let (_, _, answers) = &mut undelivered[position];
    answers.count += 1;
    if answer.encode(job.id, &mut answers.bytes).is_err() {
        // Only a source that returns something other than a signature comes here.
        let error = Operation::error(ErrorCode::INTERNAL);
        error.encode(job.id, &mut answers.bytes).expect("invariant: an error is a short message");
    }
}

fn deliver(undelivered: &mut Vec<Undelivered>) {
    for (_, sender, answers) in undelivered.drain(..) {
        // The connection may have ended.
        let _ = sender.send(answers);
    }
}
