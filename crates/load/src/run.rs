//! Running a plan on its threads.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pronghorn_engine::{Config, Connector, Group, Protocol, Responder, Worker};

use crate::generator::{Generator, RunState, Share, ThreadResult};
use crate::signal::Signal;
use crate::{Error, Plan, Report};

/// Number of UDP sockets of a thread, over which its connections are spread: a server that
/// distributes clients over threads by address would otherwise see one. Each is polled by the
/// thread in every turn.
const UDP_SOCKETS: usize = 16;

/// Ends a run early, from any thread.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Signal<Instant>>);

impl Interrupt {
    /// Abandons the requests in flight; the report has the measurements so far.
    pub fn interrupt(&self) {
        self.0.set(Instant::now());
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupt").finish_non_exhaustive()
    }
}

/// Runs `plan` and blocks until it is done or `interrupt` is triggered.
///
/// # Errors
///
/// Returns an error if the plan is invalid, no connection can be opened, or the system provides no
/// threads or sockets.
pub fn run(plan: Plan, interrupt: &Interrupt) -> Result<Report, Error> {
    plan.check()?;
    let shared = RunState::new(plan, interrupt.0.clone());
    let mut threads = Vec::new();
    let mut failure = None;
    for number in 0..shared.plan.threads {
        let thread_shared = shared.clone();
        let thread = thread::Builder::new()
            .name(format!("load-{number}"))
            .spawn(move || run_thread(&thread_shared, number));
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if failure.is_some() {
        // Threads that wait for all to be ready would otherwise wait forever.
        shared.interrupt.set(Instant::now());
        shared.cancel_start();
    }
    let results: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    let panicked = |_| Err(io::Error::other("a thread of the generator panicked"));
    let outcomes = results
        .into_iter()
        .map(|result| result.unwrap_or_else(panicked))
        .collect::<io::Result<Vec<_>>>();
    match failure {
        Some(error) => Err(error.into()),
        None => conclude(&shared, &outcomes?),
    }
}

/// Combines the results of all threads into a report.
pub(crate) fn conclude(shared: &RunState, outcomes: &[ThreadResult]) -> Result<Report, Error> {
    if shared.is_unreachable() && shared.interrupt.value().is_none() {
        let failure = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        return Err(failure.map_or_else(
            || io::Error::other("no connection was opened").into(),
            Error::Unreachable,
        ));
    }
    Ok(Report::new(&shared.plan, outcomes, shared.interrupt.value()))
}

fn run_thread(shared: &Arc<RunState>, number: usize) -> io::Result<ThreadResult> {
    // Without this thread's part the others would wait forever.
    let result = drive(shared, number);
    if result.is_err() {
        shared.interrupt.set(Instant::now());
        shared.cancel_start();
    }
    result
}

fn drive(shared: &Arc<RunState>, number: usize) -> io::Result<ThreadResult> {
    let refuse = |_, responder: Responder| drop(responder);
    let config = Config { congestion: shared.plan.congestion, ..Config::default() };
    let mut worker = Worker::new(0, &Group::new(1), config, refuse)?;
    seed_random(&shared.plan)?;
    let share = Share::of(&shared.plan, number);
    let connectors = connectors(&mut worker, &shared.plan, share.connections)?;
    let generator =
        Generator::new(shared.clone(), share, worker.handle().clone(), Rc::new(Instant::now));
    let outcome = complete(&mut worker, generator.run(connectors))?;
    // Closes the connections to the servers.
    let now = Instant::now();
    worker.shut_down(now, Duration::ZERO);
    worker.turn(now)?;
    Ok(outcome)
}

/// Seeds the thread's random numbers. This happens on first use, takes a tenth of a second, and
/// would otherwise count as part of the first handshake.
fn seed_random(plan: &Plan) -> io::Result<()> {
    let random = plan.tls.crypto_provider().secure_random;
    random.fill(&mut [0; 32]).map_err(|_| io::Error::other("the system provides no random numbers"))
}

/// Turns `worker` until `future` has run on it.
fn complete<T: 'static>(
    worker: &mut Worker,
    future: impl Future<Output = T> + 'static,
) -> io::Result<T> {
    let slot = Rc::new(RefCell::new(None));
    let result = slot.clone();
    worker.handle().spawn(async move {
        let value = future.await;
        *slot.borrow_mut() = Some(value);
    });
    loop {
        worker.turn(Instant::now())?;
        if let Some(value) = result.take() {
            return Ok(value);
        }
        worker.wait(None)?;
    }
}

fn connectors(worker: &mut Worker, plan: &Plan, connections: usize) -> io::Result<Vec<Connector>> {
    let sockets =
        if plan.protocol == Some(Protocol::Http3) { connections.min(UDP_SOCKETS) } else { 1 };
    (0..sockets).map(|_| worker.connector(&plan.tls)).collect()
}
