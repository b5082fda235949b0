//! Requests whose client waits for 100 (Continue) before it sends content.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pronghorn_engine::{Handle, Sleep};

/// How long the server is waited for once it has the head of the request. A server that does not know of 100 (Continue) waits for the content.
const PATIENCE: Duration = Duration::from_secs(1);

/// Holds content back until the server asks for it. The engine sends 100 (Continue) to the client when content is first read.
pub(super) struct Gate {
    handle: Handle,
    is_open: Cell<bool>,
    /// The server has refused the request.
    is_closed: Cell<bool>,
    /// From when the connection wanted the content on.
    sleep: RefCell<Option<Pin<Box<Sleep>>>>,
    waker: RefCell<Option<Waker>>,
}

impl Gate {
    pub(super) fn new(handle: &Handle) -> Self {
        Self {
            handle: handle.clone(),
            is_open: Cell::new(false),
            is_closed: Cell::new(false),
            sleep: RefCell::default(),
            waker: RefCell::default(),
        }
    }

    /// The server wants the content.
    pub(super) fn open(&self) {
        self.is_open.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The server wants no content, and answers without it.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Ready when content may be read.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_open.get() {
            return Poll::Ready(());
        }
        if self.is_closed.get() {
            return Poll::Pending;
        }
        let mut sleep = self.sleep.borrow_mut();
        let waited = sleep.get_or_insert_with(|| Box::pin(self.handle.sleep(PATIENCE))).as_mut().poll(cx);
        if waited.is_ready() {
            self.is_open.set(true);
        } else {
            self.waker.replace(Some(cx.waker().clone()));
        }
        waited
    }
}
