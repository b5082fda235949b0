//! What every connection of a worker shares.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use http::header::{ALT_SVC, CONTENT_LENGTH, DATE, TRAILER};
use http::{HeaderValue, Method, StatusCode};
use http_body::Body as _;
use rand::SeedableRng;
use rand::rngs::StdRng;
use slab::Slab;

use crate::config::EarlyData;
use crate::dispatch::Gauge;
use crate::runtime::Handle;
use crate::seats::Seats;
use crate::stats::Stats;
use crate::window_budget::WindowBudget;
use crate::{Config, Handler, Peer, Response};

pub(crate) struct Context {
    pub(crate) handle: Handle,
    pub(crate) config: Config,
    pub(crate) handler: Rc<dyn Handler>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) shutdown: Rc<Shutdown>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) windows: Rc<WindowBudget>,
    /// Requests that have not been answered to their end.
    pub(crate) open_requests: Gauge,
    /// Heads over HTTP/3 that are not complete.
    pub(crate) partial_heads: Gauge,
    /// Where connections draw their random numbers; a simulation puts its own here.
    pub(crate) rng: RefCell<StdRng>,
    date: Date,
}

impl Context {
    pub(crate) fn new(handle: Handle, config: Config, handler: Rc<dyn Handler>, stats: Arc<Stats>, seats: Arc<Seats>) -> Rc<Self> {
        let date = Date::new(handle.now());
        let rng = RefCell::new(StdRng::from_rng(&mut rand::rng()));
        Rc::new(Self {
            handle,
            config,
            handler,
            stats,
            shutdown: Rc::default(),
            seats,
            windows: Rc::default(),
            open_requests: Gauge::default(),
            partial_heads: Gauge::default(),
            rng,
            date,
        })
    }

    /// Whether a request must not be answered before the handshake is done; counts those that came before it.
    pub(crate) fn is_too_early(&self, method: &Method, peer: &Peer) -> bool {
        if !peer.early_data {
            return false;
        }
        let refused = self.config.early_data != EarlyData::All && !method.is_safe();
        let counter = if refused { &self.stats.requests_too_early } else { &self.stats.requests_early };
        counter.add(1);
        refused
    }

    /// Completes a response's head and drops content that must not be sent.
    ///
    /// Returns whether content may follow.
    pub(crate) fn prepare(&self, method: &Method, alt_svc: Option<&HeaderValue>, response: &mut Response) -> bool {
        // Over HTTP/3 as well: it renews what the client remembers. Chromium that is forced to HTTP/3 was seen to hold a page's
        // requests back about twice as long without it; that it then takes the server for one without priorities is a guess.
        if let Some(alt_svc) = alt_svc {
            response.headers.entry(ALT_SVC).or_insert_with(|| alt_svc.clone());
        }
        if !response.headers.contains_key(DATE) {
            response.headers.insert(DATE, self.date.value(self.handle.now()));
        }
        let status = response.status;
        // RFC 9110, section 6.4.1.
        let never_has_content = status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let size = response.body.size_hint().exact();
        if !never_has_content
            && !response.headers.contains_key(CONTENT_LENGTH)
            // Over HTTP/1.1 content of a known length has no place for trailers.
            && !response.headers.contains_key(TRAILER)
            && let Some(size) = size
        {
            response.headers.insert(CONTENT_LENGTH, size.into());
        }
        let without_content = never_has_content || method == Method::HEAD;
        if without_content {
            response.body.discard();
        }
        // No bytes of content may still be followed by trailers, or by a failure.
        !without_content && !response.body.is_end_stream()
    }
}

/// The `date` field's value, made once a second.
struct Date {
    value: RefCell<HeaderValue>,
    stale_at: Cell<Instant>,
}

impl Date {
    fn new(now: Instant) -> Self {
        let date = Self { value: RefCell::new(HeaderValue::from_static("")), stale_at: Cell::new(now) };
        date.refresh(now);
        date
    }

    fn value(&self, now: Instant) -> HeaderValue {
        if now >= self.stale_at.get() {
            self.refresh(now);
        }
        self.value.borrow().clone()
    }

    fn refresh(&self, now: Instant) {
        let wall = SystemTime::now();
        let past_second = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let left = Duration::from_secs(1).saturating_sub(Duration::from_nanos(past_second.into()));
        self.stale_at.set(now + left);
        let text = httpdate::fmt_http_date(wall);
        *self.value.borrow_mut() = HeaderValue::from_str(&text).expect("invariant: a date is visible ASCII");
    }
}

/// Tells the worker's connections to finish.
#[derive(Default)]
pub(crate) struct Shutdown {
    begun: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Shutdown {
    pub(crate) fn begin(&self) {
        self.begun.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    pub(crate) fn subscribe(self: &Rc<Self>) -> ShutdownSignal {
        ShutdownSignal { shutdown: self.clone(), key: None }
    }
}

/// One connection's ear for [`Shutdown`].
pub(crate) struct ShutdownSignal {
    shutdown: Rc<Shutdown>,
    key: Option<usize>,
}

impl ShutdownSignal {
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.shutdown.begun.get() {
            self.key = None;
            return Poll::Ready(());
        }
        let mut waiting = self.shutdown.waiting.borrow_mut();
        match self.key {
            Some(key) => waiting[key].clone_from(cx.waker()),
            None => self.key = Some(waiting.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for ShutdownSignal {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shutdown.waiting.borrow_mut().try_remove(key);
        }
    }
}
