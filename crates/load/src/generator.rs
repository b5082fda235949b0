//! The generator of one thread: its connections, its streams, and the scheduling of requests.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Uri};
use pronghorn_engine::{Body, Connector, Error, Handle, Protocol, TlsSummary, TransportStats};

use crate::cpu::{CpuTimes, Usage};
use crate::deadlines::{CutOff, Deadline, Deadlines};
use crate::exchange::Slot;
use crate::lane::Lane;
use crate::plan::{ConnectionUse, Plan};
use crate::schedule::{Allowance, Next, Pace, Phases, Schedule};
use crate::signal::Signal;
use crate::tally::Tally;
use crate::upload;

/// Number of connections that a thread opens concurrently before the load: more would only wait for
/// each other's handshakes, and time out.
const OPENED_AT_ONCE: usize = 64;

/// State shared by the threads of a run.
pub(crate) struct RunState {
    pub(crate) plan: Plan,
    allowance: Arc<Allowance>,
    /// Number of threads whose connections are not open yet.
    opening: AtomicUsize,
    opened: AtomicUsize,
    pub(crate) failure: Mutex<Option<Error>>,
    /// Time of the first request; `None` if no connection could be opened.
    start: Signal<Option<Instant>>,
    pub(crate) interrupt: Arc<Signal<Instant>>,
}

impl RunState {
    pub(crate) fn new(plan: Plan, interrupt: Arc<Signal<Instant>>) -> Arc<Self> {
        let allowance = Arc::new(Allowance::new(plan.requests));
        let opening = AtomicUsize::new(plan.threads);
        Arc::new(Self {
            plan,
            allowance,
            opening,
            opened: AtomicUsize::new(0),
            failure: Mutex::default(),
            start: Signal::default(),
            interrupt,
        })
    }

    /// Cancels the start because a thread failed.
    pub(crate) fn cancel_start(&self) {
        self.start.set(None);
    }

    /// Returns whether the run ended before its start.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.start.value().flatten().is_none()
    }

    /// Records that a thread's connections are open or have failed. The last thread triggers the
    /// start.
    pub(crate) fn on_opened(&self, opened: usize, now: Instant) {
        self.opened.fetch_add(opened, Ordering::AcqRel);
        if self.opening.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.start.set((self.opened.load(Ordering::Acquire) > 0).then_some(now));
        }
    }
}

/// The part of a run for one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) connections: usize,
    pub(crate) pace: Option<Pace>,
}

impl Share {
    /// Returns the share of thread `number`.
    pub(crate) fn of(plan: &Plan, number: usize) -> Self {
        let connections =
            plan.connections / plan.threads + usize::from(number < plan.connections % plan.threads);
        let pace = plan.rate.map(|rate| Pace {
            rate: rate * connections as f64 / plan.connections as f64,
            phase: number as f64 / plan.threads as f64,
        });
        Self { connections, pace }
    }
}

/// Source of time: the system's clock, or a test's.
pub(crate) type Clock = Rc<dyn Fn() -> Instant>;

pub(crate) struct Generator {
    shared: Arc<RunState>,
    share: Share,
    handle: Handle,
    clock: Clock,
    fields: HeaderMap,
    /// Message to send over WebSockets in place of requests.
    message: Option<Bytes>,
    /// Index of the address of the last connection.
    pub(crate) address: Cell<usize>,
    pub(crate) tally: RefCell<Tally>,
    schedule: RefCell<Option<Schedule>>,
    phases: Cell<Option<Phases>>,
    idle: RefCell<VecDeque<Rc<Slot>>>,
    pace_waker: RefCell<Option<Waker>>,
    deadlines: Deadlines,
    lanes: RefCell<Vec<Rc<Lane>>>,
    /// Number of slots that have not ended.
    live: Cell<usize>,
    last_ended: RefCell<Option<Waker>>,
    url: Cell<usize>,
    body_sent: Cell<u64>,
    began: Cell<Option<CpuTimes>>,
    usage: Cell<Option<Usage>>,
    is_done: Cell<bool>,
}

/// The result of a thread.
pub(crate) struct ThreadResult {
    pub(crate) tally: Tally,
    pub(crate) usage: Usage,
    pub(crate) body_sent: u64,
}

impl Generator {
    pub(crate) fn new(
        shared: Arc<RunState>,
        share: Share,
        handle: Handle,
        clock: Clock,
    ) -> Rc<Self> {
        let fields = shared.plan.fields();
        let message = shared.plan.message();
        Rc::new(Self {
            shared,
            share,
            handle,
            clock,
            fields,
            message,
            address: Cell::new(0),
            tally: RefCell::new(Tally::new()),
            schedule: RefCell::default(),
            phases: Cell::default(),
            idle: RefCell::default(),
            pace_waker: RefCell::default(),
            deadlines: Deadlines::default(),
            lanes: RefCell::default(),
            live: Cell::new(0),
            last_ended: RefCell::default(),
            url: Cell::new(0),
            body_sent: Cell::new(0),
            began: Cell::default(),
            usage: Cell::default(),
            is_done: Cell::new(false),
        })
    }

    /// Runs the thread's share and returns the result.
    pub(crate) async fn run(self: Rc<Self>, connectors: Vec<Connector>) -> ThreadResult {
        let lanes = connectors.into_iter().cycle().take(self.share.connections);
        *self.lanes.borrow_mut() =
            lanes.map(|connector| Lane::new(self.clone(), connector)).collect();
        let generator = self.clone();
        self.handle.spawn(async move {
            let at = generator.shared.interrupt.wait().await;
            generator.stop(at);
            generator.deadlines.interrupt();
        });
        let generator = self.clone();
        self.handle.spawn(async move {
            while !generator.is_done.get() {
                generator.handle.sleep(Deadlines::step(generator.plan().timeout)).await;
                generator.deadlines.check(generator.clock());
            }
        });
        if self.plan().connection_use == ConnectionUse::Kept || self.plan().needs_sessions() {
            self.clone().open_lanes().await;
        } else {
            self.shared.on_opened(self.share.connections, self.clock());
        }
        let start = self.shared.start.wait().await;
        // After an earlier interruption there is nothing to run.
        if let Some(begins) = start.filter(|_| self.shared.interrupt.value().is_none()) {
            self.clone().load(begins).await;
        }
        self.is_done.set(true);
        let lanes = std::mem::take(&mut *self.lanes.borrow_mut());
        for lane in lanes {
            lane.close().await;
        }
        ThreadResult {
            tally: self.tally.replace(Tally::new()),
            usage: self.usage.take().unwrap_or_default(),
            body_sent: self.body_sent.get(),
        }
    }

    async fn open_lanes(self: Rc<Self>) {
        let lanes = Rc::new(RefCell::new(VecDeque::from(self.lanes.borrow().clone())));
        let openers = lanes.borrow().len().min(OPENED_AT_ONCE);
        let left = Rc::new(Cell::new(openers));
        let done = Rc::<Signal<()>>::default();
        let opened = Rc::new(Cell::new(0));
        let failed = Rc::new(Cell::new(0));
        for _ in 0..openers {
            let (generator, lanes, left, done, opened) =
                (self.clone(), lanes.clone(), left.clone(), done.clone(), opened.clone());
            let (failed, deadline) = (failed.clone(), self.deadlines.deadline());
            self.handle.spawn(async move {
                loop {
                    let Some(lane) = lanes.borrow_mut().pop_front() else { break };
                    let result =
                        if generator.open(&lane, &deadline).await { &opened } else { &failed };
                    result.set(result.get() + 1);
                    // The rest would fail the same way; connections that can be opened later are
                    // opened when needed.
                    if failed.get() > 0 && (opened.get() == 0 || failed.get() >= OPENED_AT_ONCE) {
                        lanes.borrow_mut().clear();
                    }
                }
                left.set(left.get() - 1);
                if left.get() == 0 {
                    done.set(());
                }
            });
        }
        done.wait().await;
        self.shared.on_opened(opened.get(), self.clock());
    }

    async fn open(&self, lane: &Lane, deadline: &Deadline) -> bool {
        if self.shared.interrupt.value().is_some() {
            return false;
        }
        let failure =
            match deadline.guard(self.clock() + self.plan().timeout, pin!(lane.open())).await {
                Ok(Ok(())) => return true,
                Ok(Err(error)) => error,
                Err(CutOff::TimedOut | CutOff::Interrupted) => {
                    let remote = self.plan().remotes[self.address.get()];
                    Error::Handshake {
                        remote: remote.into(),
                        reason: "no connection in time".to_owned(),
                    }
                }
            };
        self.keep_failure(failure);
        false
    }

    fn keep_failure(&self, error: Error) {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    async fn load(self: Rc<Self>, begins: Instant) {
        let plan = self.plan();
        let measured_from = begins + plan.warm_up;
        let ends = plan.duration.map(|duration| measured_from + duration);
        let phases = Phases { begins, measured_from, ends, grace: plan.timeout };
        self.phases.set(Some(phases));
        self.tally.borrow_mut().begin(phases);
        *self.schedule.borrow_mut() =
            Some(Schedule::new(phases, self.share.pace, self.shared.allowance.clone()));
        let generator = self.clone();
        if plan.warm_up.is_zero() {
            generator.begin_measuring().await;
        } else {
            self.handle.spawn(async move {
                let wait = measured_from.saturating_duration_since(generator.handle.now());
                generator.handle.sleep(wait).await;
                generator.begin_measuring().await;
            });
        }
        let lanes = self.lanes.borrow().clone();
        self.live.set(lanes.len() * self.plan().streams);
        // Slots are started across all lanes in turn, so that requests spread over the connections
        // from the start.
        for _ in 0..self.plan().streams {
            for lane in &lanes {
                let slot = Slot::new(self.clone(), lane.clone(), self.deadlines.deadline());
                self.handle.spawn(slot.run());
            }
        }
        if self.share.pace.is_some() {
            self.handle.spawn(self.clone().keep_pace());
        }
        poll_fn(|cx| {
            if self.live.get() == 0 {
                return Poll::Ready(());
            }
            *self.last_ended.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.stop(self.clock());
    }

    async fn begin_measuring(self: Rc<Self>) {
        self.began.set(Some(CpuTimes::now()));
        let lanes = self.lanes.borrow().clone();
        for lane in lanes {
            lane.begin_measuring().await;
        }
    }

    /// Hands out due requests to idle slots.
    async fn keep_pace(self: Rc<Self>) {
        let mut sleep = pin!(None);
        poll_fn(|cx| {
            loop {
                self.hand_out();
                let Some(next) = self.peek() else { return Poll::Ready(()) };
                *self.pace_waker.borrow_mut() = Some(cx.waker().clone());
                let at = match next {
                    Next::Over => return Poll::Ready(()),
                    // All slots are busy: the next one to become idle wakes this task.
                    _ if self.idle.borrow().is_empty() => return Poll::Pending,
                    Next::At(at) => at,
                    Next::Now(_) => continue,
                };
                let wait = at.saturating_duration_since(self.handle.now());
                sleep.set(Some(self.handle.sleep(wait)));
                let sleeping = sleep.as_mut().as_pin_mut().expect("invariant: it was set just now");
                std::task::ready!(sleeping.poll(cx));
            }
        })
        .await;
        self.wake_idle();
    }

    fn hand_out(&self) {
        loop {
            let Some(slot) = self.idle.borrow_mut().pop_front() else { return };
            match self.schedule_take() {
                Next::Now(ticket) => slot.wake(Some(ticket)),
                Next::At(_) => return self.idle.borrow_mut().push_front(slot),
                Next::Over => {
                    slot.wake(None);
                    return self.stop(self.clock());
                }
            }
        }
    }

    fn peek(&self) -> Option<Next> {
        let now = self.clock();
        self.schedule.borrow().as_ref().map(|schedule| schedule.peek(now))
    }

    fn schedule_take(&self) -> Next {
        let now = self.clock();
        self.schedule.borrow_mut().as_mut().map_or(Next::Over, |schedule| schedule.take(now))
    }

    /// Returns the next request for a slot that has just become free.
    pub(crate) fn take(&self) -> Next {
        let next = self.schedule_take();
        if next == Next::Over {
            self.stop(self.clock());
        }
        next
    }

    pub(crate) fn on_idle(&self, slot: Rc<Slot>) {
        let mut idle = self.idle.borrow_mut();
        idle.push_back(slot);
        if idle.len() == 1 {
            drop(idle);
            let waker = self.pace_waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn wake_idle(&self) {
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        for slot in idle {
            slot.wake(None);
        }
    }

    /// Stops the start of further requests.
    fn stop(&self, at: Instant) {
        let Some(schedule) = self.schedule.borrow_mut().take() else { return };
        self.tally.borrow_mut().not_started = schedule.backlog(at);
        self.usage.set(self.began.get().map(|began| CpuTimes::now().since(began)));
        self.wake_idle();
    }

    pub(crate) fn on_slot_ended(&self) {
        self.live.set(self.live.get() - 1);
        if self.live.get() == 0
            && let Some(waker) = self.last_ended.borrow_mut().take()
        {
            waker.wake();
        }
    }

    fn is_measuring(&self) -> bool {
        self.phases.get().is_some_and(|phases| self.clock() >= phases.measured_from)
    }

    pub(crate) fn on_connected(&self, protocol: Protocol, took: Duration) {
        if self.plan().connection_use == ConnectionUse::Kept || self.is_measuring() {
            self.tally.borrow_mut().on_connected(protocol, took);
        }
    }

    pub(crate) fn on_connect_failed(&self) {
        self.tally.borrow_mut().connections_failed += 1;
    }

    pub(crate) fn on_transport(&self, stats: TransportStats) {
        if self.is_measuring() {
            self.tally.borrow_mut().transport += stats;
        }
    }

    pub(crate) fn on_body_sent(&self, bytes: u64) {
        self.body_sent.set(self.body_sent.get() + bytes);
    }

    pub(crate) fn on_tls(&self, tls: &TlsSummary) {
        self.tally.borrow_mut().on_tls(tls);
    }

    /// Builds the next request. Its body is counted if it is `measured`.
    pub(crate) fn request(self: &Rc<Self>, measured: bool) -> Request<Body> {
        let mut body = upload::body(&self.plan().upload);
        if measured && self.plan().upload.size().is_some() {
            let generator = self.clone();
            body = body.on_end(move |end| generator.on_body_sent(end.bytes));
        }
        let mut request = Request::new(body);
        request.method_mut().clone_from(&self.plan().method);
        *request.uri_mut() = self.next_url();
        request.headers_mut().clone_from(&self.fields);
        request
    }

    pub(crate) fn next_url(&self) -> Uri {
        let urls = &self.plan().urls;
        let index = self.url.get();
        self.url.set((index + 1) % urls.len());
        urls[index].clone()
    }

    /// Returns the header fields of each request.
    pub(crate) fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    pub(crate) fn message(&self) -> Option<&Bytes> {
        self.message.as_ref()
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn clock(&self) -> Instant {
        (self.clock)()
    }
}
