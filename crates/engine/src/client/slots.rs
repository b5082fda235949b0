//! How many requests there may be on an HTTP/2 connection at once.
//!
//! The library has a queue of its own for what is more, but does not say what of it was sent when the connection ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use h2::client::SendRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::OnQueue;
use crate::http2::Held;

/// As many requests at once as the server allows; others wait in the order in which they came.
pub(super) struct Slots {
    free: Arc<Semaphore>,
    /// Those that are taken included.
    count: Cell<usize>,
    waiting: Cell<usize>,
    /// As long as somebody waits: it learns of the server's GOAWAY.
    watch: RefCell<Option<SendRequest<Held>>>,
}

/// One request's place, until its response is over.
pub(crate) struct Slot(Place);

enum Place {
    Own(OwnedSemaphorePermit),
    /// It is that of an upload too.
    Shared(Rc<Both>),
    /// The response is complete.
    Left,
}

/// The place of a request whose content is sent beside its response.
struct Both {
    _permit: OwnedSemaphorePermit,
    /// Nobody wants the response any more.
    is_cancelled: Cell<bool>,
    uploader: Cell<Option<Waker>>,
}

/// The part of who sends the content.
pub(super) struct UploadSlot(Rc<Both>);

impl Slots {
    /// `count`: how many the library sends before the server has said how many it takes.
    pub(super) fn new(count: usize) -> Rc<Self> {
        let free = Arc::new(Semaphore::new(count));
        Rc::new(Self { free, count: Cell::new(count), waiting: Cell::default(), watch: RefCell::default() })
    }

    /// A place for one request; `None` when the server takes no more of them. `on_queue`: told when it has to wait, and when no more.
    pub(super) async fn take(&self, sender: &SendRequest<Held>, on_queue: &mut Option<OnQueue<'_>>) -> Option<Slot> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Some(Slot(Place::Own(permit)));
        }
        let _waiting = Waiting::new(self, sender);
        if let Some(on_queue) = on_queue {
            on_queue(true);
        }
        let permit = self.free.clone().acquire_owned().await.ok()?;
        if let Some(on_queue) = on_queue {
            on_queue(false);
        }
        Some(Slot(Place::Own(permit)))
    }

    /// Looks at what has come from the server. `limit`: how many requests it allows.
    pub(super) fn update(&self, limit: usize) {
        let (limit, count) = (limit.min(Semaphore::MAX_PERMITS), self.count.get());
        if limit > count {
            self.free.add_permits(limit - count);
            self.count.set(limit);
        } else if limit < count {
            // Those that are taken are left for later.
            self.count.set(count - self.free.forget_permits(count - limit));
        }
        let mut watch = self.watch.borrow_mut();
        if let Some(sender) = &mut *watch
            && let Poll::Ready(Err(_)) = sender.poll_ready(&mut Context::from_waker(Waker::noop()))
        {
            self.free.close();
        }
    }

    /// The connection has ended.
    pub(super) fn close(&self) {
        self.free.close();
    }
}

/// A request in the queue.
struct Waiting<'a>(&'a Slots);

impl<'a> Waiting<'a> {
    fn new(slots: &'a Slots, sender: &SendRequest<Held>) -> Self {
        slots.waiting.set(slots.waiting.get() + 1);
        slots.watch.borrow_mut().get_or_insert_with(|| sender.clone());
        Self(slots)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self(slots) = self;
        slots.waiting.set(slots.waiting.get() - 1);
        if slots.waiting.get() == 0 {
            slots.watch.take();
        }
    }
}

impl Slot {
    /// The same place for content that is sent beside the response too.
    pub(super) fn share(&mut self) -> Option<UploadSlot> {
        let Place::Own(permit) = std::mem::replace(&mut self.0, Place::Left) else { return None };
        let both = Rc::new(Both { _permit: permit, is_cancelled: Cell::default(), uploader: Cell::default() });
        self.0 = Place::Shared(both.clone());
        Some(UploadSlot(both))
    }

    /// The response is complete. What is left of the content may go on.
    pub(crate) fn complete(mut self) {
        // Not dropped as it is, which would end the upload.
        drop(std::mem::replace(&mut self.0, Place::Left));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Place::Shared(both) = &self.0 {
            both.is_cancelled.set(true);
            if let Some(uploader) = both.uploader.take() {
                uploader.wake();
            }
        }
    }
}

impl UploadSlot {
    /// Ready when nobody wants the response any more.
    pub(super) fn poll_cancelled(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.is_cancelled.get() {
            return Poll::Ready(());
        }
        self.0.uploader.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}
