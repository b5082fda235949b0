//! Notification of a worker's connections that a graceful shutdown has begun.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use slab::Slab;

use crate::runtime::{Handle, Sleep};

/// Tells the worker's connections to shut down.
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

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Wakes all connections, so that they check whether there is work for them.
    pub(crate) fn wake_all(&self) {
        self.waiting.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }

    pub(crate) fn subscribe(self: &Rc<Self>) -> ShutdownSignal {
        ShutdownSignal { shutdown: self.clone(), key: None }
    }
}

/// How long connections that had no request before the shutdown may still bring one: it can be on
/// its way, and its client knows of no reason to send it elsewhere.
pub(crate) const IDLE_SHUTDOWN_DELAY: Duration = Duration::from_millis(250);

/// How long handshakes may still take after the shutdown has begun.
pub(crate) const HANDSHAKE_SHUTDOWN_DELAY: Duration = Duration::from_secs(2);

/// A connection's subscription to [`Shutdown`] that can fire some time after it. Small, since each
/// idle connection has one.
pub(crate) struct ShutdownNotice {
    signal: ShutdownSignal,
    sleep: Option<Box<Sleep>>,
}

impl ShutdownNotice {
    pub(crate) fn new(shutdown: &Rc<Shutdown>) -> Self {
        Self { signal: shutdown.subscribe(), sleep: None }
    }

    /// Ready once the shutdown has begun.
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.signal.poll(cx)
    }

    /// Ready once `lasting` has passed after that. A connection that is made later gets the full
    /// time.
    pub(crate) fn poll_after(
        &mut self,
        cx: &mut Context<'_>,
        lasting: Duration,
        handle: &Handle,
    ) -> Poll<()> {
        ready!(self.poll_begun(cx));
        let sleep = self.sleep.get_or_insert_with(|| Box::new(handle.sleep(lasting)));
        Pin::new(&mut **sleep).poll(cx)
    }
}

/// A connection's subscription to [`Shutdown`].
pub(crate) struct ShutdownSignal {
    shutdown: Rc<Shutdown>,
    key: Option<usize>,
}

impl ShutdownSignal {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shutdown.begun.get() {
            self.key = None;
            return Poll::Ready(());
        }
        // A connection is one task for its whole life, so its waker stays the same.
        if self.key.is_none() {
            self.key = Some(self.shutdown.waiting.borrow_mut().insert(cx.waker().clone()));
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
