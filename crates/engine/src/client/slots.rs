//! Limits the concurrent requests on an HTTP/2 connection.
//!
//! h2 has its own queue for further requests, but does not report which of them were sent when the
//! connection ends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::client::SendRequest;

use super::observer::OnQueue;
use crate::http2::BufferedBytes;

/// Slots for as many concurrent requests as the server allows. Further ones wait in the order of
/// their arrival.
pub(super) struct Slots {
    /// Number of requests that the server allows now. It may be less than `taken`.
    limit: Cell<usize>,
    taken: Cell<usize>,
    queue: RefCell<VecDeque<Rc<QueuedRequest>>>,
    /// The server accepts no more requests.
    is_closed: Cell<bool>,
    /// A handle that learns of the server's GOAWAY, while requests wait.
    watch: RefCell<Option<SendRequest<BufferedBytes>>>,
}

/// A request's slot, until its response is complete.
pub(crate) struct Slot(SlotState);

enum SlotState {
    Own(Permit),
    /// The slot is shared with an upload.
    Shared(Rc<SharedSlot>),
    /// The response is complete.
    Left,
}

/// One of the requests that the server allows, until dropped.
struct Permit(Rc<Slots>);

/// The slot of a request whose body is sent while its response is received.
struct SharedSlot {
    _permit: Permit,
    response: Cell<Response>,
    uploader: Cell<Option<Waker>>,
}

/// The state of the response while the request's body is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// The client waits for it or reads it.
    Wanted,
    /// It is complete.
    Complete,
    /// The client has dropped it.
    Dropped,
}

/// The uploader's share of a slot.
pub(super) struct UploadSlot(Rc<SharedSlot>);

/// A request in the queue.
#[derive(Default)]
struct QueuedRequest {
    /// It was removed from the queue.
    is_out: Cell<bool>,
    permit: RefCell<Option<Permit>>,
    waker: Cell<Option<Waker>>,
}

impl Slots {
    /// Creates slots. `limit`: the number of requests that h2 sends before the server has announced
    /// its limit.
    pub(super) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            limit: Cell::new(limit),
            taken: Cell::default(),
            queue: RefCell::default(),
            is_closed: Cell::default(),
            watch: RefCell::default(),
        })
    }

    /// Takes a slot for one request. `None` if the server accepts no more. `on_queue` is called
    /// when the request begins and stops to wait.
    pub(super) async fn take(
        self: &Rc<Self>,
        sender: &SendRequest<BufferedBytes>,
        on_queue: &mut Option<OnQueue<'_>>,
    ) -> Option<Slot> {
        if self.is_closed.get() {
            return None;
        }
        if self.queue.borrow().is_empty()
            && let Some(permit) = self.permit()
        {
            return Some(Slot(SlotState::Own(permit)));
        }
        let queued = QueueEntry::new(self, sender);
        if let Some(on_queue) = on_queue {
            on_queue(true);
        }
        let permit = poll_fn(|cx| queued.poll(cx)).await;
        if let Some(on_queue) = on_queue {
            on_queue(false);
        }
        Some(Slot(SlotState::Own(permit?)))
    }

    fn permit(self: &Rc<Self>) -> Option<Permit> {
        (self.taken.get() < self.limit.get()).then(|| {
            self.taken.set(self.taken.get() + 1);
            Permit(self.clone())
        })
    }

    /// Gives free slots to waiting requests.
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

    /// Takes note of the connection's state. `limit`: the number of requests that the server
    /// allows.
    pub(super) fn update(self: &Rc<Self>, limit: usize) {
        self.limit.set(limit);
        self.serve();
        let has_ended = match &mut *self.watch.borrow_mut() {
            Some(sender) => matches!(
                sender.poll_ready(&mut Context::from_waker(Waker::noop())),
                Poll::Ready(Err(_))
            ),
            None => false,
        };
        if has_ended {
            self.close();
        }
    }

    /// Closes the slots: the server accepts no more requests, or the connection has ended.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        for waiting in self.queue.take() {
            waiting.serve();
        }
    }

    /// Whether there is neither a handle on the connection nor a request, but only the task that
    /// drives it.
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

impl QueuedRequest {
    /// Wakes the request, which was removed from the queue and may have a permit.
    fn serve(&self) {
        self.is_out.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A queued request. Dropping it leaves the queue; a late slot passes to the next request.
struct QueueEntry<'a> {
    slots: &'a Rc<Slots>,
    waiting: Rc<QueuedRequest>,
}

impl<'a> QueueEntry<'a> {
    fn new(slots: &'a Rc<Slots>, sender: &SendRequest<BufferedBytes>) -> Self {
        let waiting = Rc::<QueuedRequest>::default();
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

impl Drop for QueueEntry<'_> {
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
    /// Shares the slot with an upload.
    pub(super) fn share(&mut self) -> Option<UploadSlot> {
        let SlotState::Own(permit) = std::mem::replace(&mut self.0, SlotState::Left) else {
            return None;
        };
        let both = Rc::new(SharedSlot {
            _permit: permit,
            response: Cell::new(Response::Wanted),
            uploader: Cell::default(),
        });
        self.0 = SlotState::Shared(both.clone());
        Some(UploadSlot(both))
    }

    /// Notes that the response is complete. The upload may go on.
    pub(crate) fn complete(mut self) {
        if let SlotState::Shared(both) = std::mem::replace(&mut self.0, SlotState::Left) {
            both.set(Response::Complete);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let SlotState::Shared(both) = &self.0 {
            both.set(Response::Dropped);
        }
    }
}

impl SharedSlot {
    fn set(&self, response: Response) {
        self.response.set(response);
        if let Some(uploader) = self.uploader.take() {
            uploader.wake();
        }
    }
}

impl UploadSlot {
    /// Returns the state of the response. The uploader is woken when it changes.
    pub(super) fn response(&self, cx: &Context<'_>) -> Response {
        self.0.uploader.set(Some(cx.waker().clone()));
        self.0.response.get()
    }
}
