//! How many requests there may be on an HTTP/2 connection at once.
//!
//! The library has a queue of its own for what is more, but does not say what of it was sent when the connection ends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::client::SendRequest;

use super::OnQueue;
use crate::http2::Held;

/// As many requests at once as the server allows; others wait in the order in which they came.
pub(super) struct Slots {
    /// How many the server allows now. It may allow fewer than are taken.
    limit: Cell<usize>,
    taken: Cell<usize>,
    queue: RefCell<VecDeque<Rc<Waiting>>>,
    /// The server takes no more requests.
    is_closed: Cell<bool>,
    /// As long as somebody waits: it learns of the server's GOAWAY.
    watch: RefCell<Option<SendRequest<Held>>>,
}

/// One request's place, until its response is over.
pub(crate) struct Slot(Place);

enum Place {
    Own(Permit),
    /// It is that of an upload too.
    Shared(Rc<Both>),
    /// The response is complete.
    Left,
}

/// One of those that the server allows, until dropped.
struct Permit(Rc<Slots>);

/// The place of a request whose content is sent beside its response.
struct Both {
    _permit: Permit,
    response: Cell<Response>,
    uploader: Cell<Option<Waker>>,
}

/// What has become of the response to a request whose content is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// It is waited for, or read.
    Wanted,
    /// All of it has come.
    Complete,
    /// Nobody wants it any more.
    Dropped,
}

/// The part of who sends the content.
pub(super) struct UploadSlot(Rc<Both>);

/// A request in the queue.
#[derive(Default)]
struct Waiting {
    /// It has been taken out of the queue.
    is_out: Cell<bool>,
    permit: RefCell<Option<Permit>>,
    waker: Cell<Option<Waker>>,
}

impl Slots {
    /// `limit`: how many the library sends before the server has said how many it takes.
    pub(super) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            limit: Cell::new(limit),
            taken: Cell::default(),
            queue: RefCell::default(),
            is_closed: Cell::default(),
            watch: RefCell::default(),
        })
    }

    /// A place for one request; `None` when the server takes no more of them. `on_queue`: told when it has to wait, and when no more.
    pub(super) async fn take(self: &Rc<Self>, sender: &SendRequest<Held>, on_queue: &mut Option<OnQueue<'_>>) -> Option<Slot> {
        if self.is_closed.get() {
            return None;
        }
        if self.queue.borrow().is_empty()
            && let Some(permit) = self.permit()
        {
            return Some(Slot(Place::Own(permit)));
        }
        let queued = Queued::new(self, sender);
        if let Some(on_queue) = on_queue {
            on_queue(true);
        }
        let permit = poll_fn(|cx| queued.poll(cx)).await?;
        if let Some(on_queue) = on_queue {
            on_queue(false);
        }
        Some(Slot(Place::Own(permit)))
    }

    fn permit(self: &Rc<Self>) -> Option<Permit> {
        (self.taken.get() < self.limit.get()).then(|| {
            self.taken.set(self.taken.get() + 1);
            Permit(self.clone())
        })
    }

    /// Gives those who wait what there is for them.
    fn serve(self: &Rc<Self>) {
        while !self.queue.borrow().is_empty()
            && let Some(permit) = self.permit()
        {
            let first = self.queue.borrow_mut().pop_front();
            let Some(first) = first else { return };
            first.permit.replace(Some(permit));
            first.serve();
        }
    }

    /// Looks at what has come from the server. `limit`: how many requests it allows.
    pub(super) fn update(self: &Rc<Self>, limit: usize) {
        self.limit.set(limit);
        self.serve();
        let has_ended = match &mut *self.watch.borrow_mut() {
            Some(sender) => matches!(sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_))),
            None => false,
        };
        if has_ended {
            self.close();
        }
    }

    /// The server takes no more requests, or the connection has ended.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        for waiting in self.queue.take() {
            waiting.serve();
        }
    }

    /// Whether there is neither a handle on the connection nor a request, but only who drives it.
    pub(super) fn is_forsaken(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Self(slots) = self;
        slots.taken.set(slots.taken.get() - 1);
        slots.serve();
    }
}

impl Waiting {
    /// Taken out of the queue, it has what there is for it.
    fn serve(&self) {
        self.is_out.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Somebody in the queue. Dropped, they are not any more, and a place that came too late is for the next one.
struct Queued<'a> {
    slots: &'a Rc<Slots>,
    waiting: Rc<Waiting>,
}

impl<'a> Queued<'a> {
    fn new(slots: &'a Rc<Slots>, sender: &SendRequest<Held>) -> Self {
        let waiting = Rc::<Waiting>::default();
        slots.queue.borrow_mut().push_back(waiting.clone());
        slots.watch.borrow_mut().get_or_insert_with(|| sender.clone());
        Self { slots, waiting }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Permit>> {
        let permit = self.waiting.permit.take();
        if permit.is_some() || self.slots.is_closed.get() {
            return Poll::Ready(permit);
        }
        self.waiting.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let Self { slots, waiting } = self;
        let mut queue = slots.queue.borrow_mut();
        if !waiting.is_out.get() {
            queue.retain(|other| !Rc::ptr_eq(other, waiting));
        }
        if queue.is_empty() {
            slots.watch.take();
        }
    }
}

impl Slot {
    /// The same place for content that is sent beside the response too.
    pub(super) fn share(&mut self) -> Option<UploadSlot> {
        let Place::Own(permit) = std::mem::replace(&mut self.0, Place::Left) else { return None };
        let both = Rc::new(Both { _permit: permit, response: Cell::new(Response::Wanted), uploader: Cell::default() });
        self.0 = Place::Shared(both.clone());
        Some(UploadSlot(both))
    }

    /// The response is complete. What is left of the content may go on.
    pub(crate) fn complete(mut self) {
        if let Place::Shared(both) = std::mem::replace(&mut self.0, Place::Left) {
            both.set(Response::Complete);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Place::Shared(both) = &self.0 {
            both.set(Response::Dropped);
        }
    }
}

impl Both {
    fn set(&self, response: Response) {
        self.response.set(response);
        if let Some(uploader) = self.uploader.take() {
            uploader.wake();
        }
    }
}

impl UploadSlot {
    /// What has become of the response; who sends is woken when that changes.
    pub(super) fn response(&self, cx: &Context<'_>) -> Response {
        self.0.uploader.set(Some(cx.waker().clone()));
        self.0.response.get()
    }
}
