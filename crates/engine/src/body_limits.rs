//! Limits on the size and the pace of request bodies.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::context::Context;
use crate::runtime::Sleep;

/// Why a request body was cut off. Whatever the handler answers then, the client gets the status of
/// this limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentLimit {
    /// The body is larger than allowed: 413.
    #[error("request body too large")]
    TooLarge,
    /// Nothing of the body arrived for too long: 408.
    #[error("timed out waiting for the request body")]
    TimedOut,
    /// The body arrived, but too slowly: 408.
    #[error("request body arrived too slowly")]
    TooSlow,
}

impl ContentLimit {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TimedOut | Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// Watches the body of one request while its handler reads.
pub(crate) struct BodyMeter {
    context: Rc<Context>,
    received: Cell<u64>,
    /// How long the handler has waited for content, up to the last time that content arrived.
    waited: Cell<Duration>,
    waits_since: Cell<Option<Instant>>,
    /// Runs while the handler waits.
    timeout: RefCell<Option<Pin<Box<Sleep>>>>,
    /// The response has begun and is not complete. The body may pause meanwhile, since the two
    /// sides may take turns.
    answering: Cell<bool>,
    /// Woken when the response is complete.
    rests: RefCell<Option<Waker>>,
    /// The stream carries another protocol, which may send any amount at any time.
    tunnel: Cell<bool>,
    reached: Cell<Option<ContentLimit>>,
}

impl BodyMeter {
    pub(crate) fn new(context: &Rc<Context>) -> Rc<Self> {
        Rc::new(Self {
            context: context.clone(),
            received: Cell::default(),
            waited: Cell::default(),
            waits_since: Cell::default(),
            timeout: RefCell::default(),
            answering: Cell::default(),
            rests: RefCell::default(),
            tunnel: Cell::default(),
            reached: Cell::default(),
        })
    }

    /// Notes that the response begins.
    pub(crate) fn set_answering(&self) {
        self.answering.set(true);
        self.timeout.take();
    }

    /// Notes that the response has ended. A reader that goes on waits for the client alone.
    pub(crate) fn set_answered(&self) {
        self.answering.set(false);
        self.waited.take();
        self.waits_since.take();
        let waker = self.rests.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notes that another protocol follows from here on.
    pub(crate) fn set_tunnel(&self) {
        self.timeout.take();
        self.tunnel.set(true);
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.tunnel.get()
    }

    /// Returns the limit that has cut the body off.
    pub(crate) fn reached(&self) -> Option<ContentLimit> {
        self.reached.get()
    }

    /// Counts received bytes.
    pub(crate) fn on_data(&self, bytes: usize) -> Result<(), ContentLimit> {
        if self.tunnel.get() {
            return Ok(());
        }
        let now = self.context.handle.now();
        self.timeout.take();
        if let Some(since) = self.waits_since.take() {
            self.waited.set(self.waited.get() + now.saturating_duration_since(since));
        }
        self.received.set(self.received.get() + bytes as u64);
        if self.received.get() > self.context.config.limits.request_body_bytes() {
            return Err(self.reach(ContentLimit::TooLarge));
        }
        Ok(())
    }

    /// Waits for more content together with the handler. Ready when a limit ends the wait.
    pub(crate) fn poll_timeout(&self, cx: &mut TaskContext<'_>) -> Poll<ContentLimit> {
        if self.tunnel.get() {
            return Poll::Pending;
        }
        if self.answering.get() {
            *self.rests.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let now = self.context.handle.now();
        let since = self.waits_since.get().unwrap_or(now);
        self.waits_since.set(Some(since));
        let limits = &self.context.config.limits;
        let waited = self.waited.get() + now.saturating_duration_since(since);
        if waited > limits.body_timeout()
            && (self.received.get() as f64)
                < limits.body_bytes_per_second() as f64 * waited.as_secs_f64()
        {
            let silent = now.saturating_duration_since(since) >= limits.body_timeout();
            return Poll::Ready(self.reach(if silent {
                ContentLimit::TimedOut
            } else {
                ContentLimit::TooSlow
            }));
        }
        let mut timeout = self.timeout.borrow_mut();
        let sleep = timeout
            .get_or_insert_with(|| Box::pin(self.context.handle.sleep(limits.body_timeout())));
        sleep.as_mut().poll(cx).map(|()| self.reach(ContentLimit::TimedOut))
    }

    fn reach(&self, limit: ContentLimit) -> ContentLimit {
        let stats = &self.context.stats;
        match limit {
            ContentLimit::TooLarge => stats.bodies_too_large.add(1),
            ContentLimit::TimedOut => stats.body_timeouts.add(1),
            ContentLimit::TooSlow => stats.bodies_too_slow.add(1),
        }
        self.reached.set(Some(limit));
        limit
    }
}
