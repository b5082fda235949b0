//! What the library holds of content that is to be sent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};

use crate::window_budget::SendWindow;

/// Content that a connection has handed to the library and that is not written yet.
///
/// The library's own limit counts for each stream. A peer that opens its windows wide, asks for much and reads nothing would have it
/// hold that for each of its streams.
pub(crate) struct Outbox {
    limit: Cell<usize>,
    /// The most that the limit may be.
    most: usize,
    /// Where the limit comes from while something is held: a share of what all connections may hold.
    window: Option<RefCell<SendWindow>>,
    held: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

impl Outbox {
    pub(crate) fn new(limit: u64) -> Rc<Self> {
        let limit = bytes(limit);
        Rc::new(Self { limit: Cell::new(limit), most: limit, window: None, held: Cell::default(), waiting: RefCell::default() })
    }

    /// One whose limit is what `window` lends it.
    pub(crate) fn borrowing(mut window: SendWindow) -> Rc<Self> {
        let (limit, most) = (bytes(window.rest()), bytes(window.most()));
        let window = Some(RefCell::new(window));
        Rc::new(Self { limit: Cell::new(limit), most, window, held: Cell::default(), waiting: RefCell::default() })
    }

    /// The most that it may ever hold.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Borrows what there is, where as many bytes more do not fit.
    fn reach(&self, wanted: usize) {
        if let Some(window) = &self.window
            && self.held.get().saturating_add(wanted) > self.limit.get()
            && self.limit.get() < self.most
        {
            self.limit.set(bytes(window.borrow_mut().size(self.most as u64)));
        }
    }

    /// How many bytes may be handed over now: as many as `wanted`, or what half of the limit leaves.
    pub(crate) fn poll_room(&self, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        if self.has_room(wanted) {
            return Poll::Ready(self.room());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether as many bytes may be handed over as somebody who waits for `wanted` is woken for.
    pub(crate) fn has_room(&self, wanted: usize) -> bool {
        // Those who wait are woken when half is free, so that is enough for everybody.
        self.reach(wanted);
        self.room() >= wanted.min(self.limit.get() / 2).max(1)
    }

    /// Bytes that may be handed over, of as many as are `wanted`.
    pub(crate) fn room_for(&self, wanted: usize) -> usize {
        self.reach(wanted);
        self.room()
    }

    fn room(&self) -> usize {
        self.limit.get().saturating_sub(self.held.get())
    }

    /// Counts these bytes until the library drops them, written or not.
    pub(crate) fn hold(self: &Rc<Self>, bytes: Bytes) -> Held {
        let size = bytes.len();
        self.held.set(self.held.get() + size);
        Held { bytes, size, outbox: self.clone() }
    }

    fn release(&self, size: usize) {
        let held = self.held.get() - size;
        self.held.set(held);
        if held == 0
            && let Some(window) = &self.window
        {
            self.limit.set(bytes(window.borrow_mut().rest()));
        }
        // Not for each piece that is written: all who wait are woken.
        if held <= self.limit.get() / 2 {
            let mut waiting = std::mem::take(&mut *self.waiting.borrow_mut());
            // The first takes all the room if it has so much, and would be the first again.
            let turns = usize::from(waiting.len() > 1);
            waiting.rotate_left(turns);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

fn bytes(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX).max(1)
}

/// Bytes in the hands of the library.
pub(crate) struct Held {
    bytes: Bytes,
    size: usize,
    outbox: Rc<Outbox>,
}

impl Buf for Held {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.outbox.release(self.size);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn room_comes_back_when_half_is_written() {
        let outbox = Outbox::new(1000);
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert_eq!(outbox.poll_room(1, &mut cx), Poll::Ready(1000));
        let first = outbox.hold(Bytes::from_static(&[0; 400]));
        assert_eq!(outbox.poll_room(400, &mut cx), Poll::Ready(600));
        let most = outbox.hold(Bytes::from_static(&[0; 300]));
        assert!(outbox.poll_room(400, &mut cx).is_pending(), "a piece that small is not worth a frame");
        drop(most);
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1);
        let second = outbox.hold(Bytes::from_static(&[0; 600]));
        assert!(outbox.poll_room(1, &mut cx).is_pending());
        assert!(outbox.poll_room(1, &mut cx).is_pending());
        drop(first);
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "more than half is held");
        drop(second);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "who waits is woken, and once");
        assert_eq!(outbox.poll_room(1, &mut cx), Poll::Ready(1000));
    }
}
