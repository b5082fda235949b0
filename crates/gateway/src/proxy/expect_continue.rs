//! Requests whose client waits for 100 (Continue) before it sends the body.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pronghorn_engine::{Handle, Sleep};

/// How long to wait for the server's 100 (Continue) after the request head. A server without
/// support for 100 (Continue) waits for the body.
const PATIENCE: Duration = Duration::from_secs(1);

/// Holds the body back until the server asks for it. The engine sends 100 (Continue) to the client
/// when the body is first read.
pub(super) struct Gate {
    handle: Handle,
    is_open: Cell<bool>,
    /// Whether the server has refused the request.
    is_closed: Cell<bool>,
    /// Timer, started when the connection first polls for the body.
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

    /// Notes that the server asks for the body.
    pub(super) fn open(&self) {
        self.is_open.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Notes that the server responds without the body.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Ready when the body may be read.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_open.get() {
            return Poll::Ready(());
        }
        if self.is_closed.get() {
            return Poll::Pending;
        }
        let mut sleep = self.sleep.borrow_mut();
        let waited =
            sleep.get_or_insert_with(|| Box::pin(self.handle.sleep(PATIENCE))).as_mut().poll(cx);
        if waited.is_ready() {
            self.is_open.set(true);
        } else {
            self.waker.replace(Some(cx.waker().clone()));
        }
        waited
    }
}
