//! What the library holds of content that is to be sent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use pronghorn_h3::Priority;
use rustc_hash::FxHashMap;

use crate::schedule::Schedule;
use crate::window_budget::SendWindow;

/// RFC 9218, section 4.1: the urgency of what nobody has said anything of.
const USUAL: u8 = 3;
/// So many parts of the limit there are, of which one is kept for what is more urgent.
const KEPT: usize = 8;
/// Content that does not wait for its turn: less than a frame.
const SMALL_BYTES: usize = 4 << 10;

/// Content that a connection has handed to the library and that is not written yet.
///
/// The library's own limit counts for each stream. A peer that opens its windows wide, asks for much and reads nothing would have it
/// hold that for each of its streams. The library also shares alike among the streams of which it holds something, so the order among them
/// is made here: who has something to hand over waits for its turn.
pub(crate) struct Outbox {
    limit: Cell<usize>,
    /// The most that the limit may be.
    most: usize,
    /// Where the limit comes from while something is held: a share of what all connections may hold.
    window: Option<RefCell<SendWindow>>,
    held: Cell<usize>,
    /// How often something of it was written or dropped.
    released: Cell<u64>,
    queue: RefCell<Queue>,
}

/// The streams with content to hand over.
#[derive(Default)]
struct Queue {
    /// Those that wait for room, or for their turn.
    schedule: Schedule<u32>,
    places: FxHashMap<u32, Waiting>,
}

struct Waiting {
    priority: Priority,
    /// It may never end, so that nobody may have to wait for its end.
    is_endless: bool,
    /// While it is in the schedule.
    waker: Option<Waker>,
}

impl Outbox {
    pub(crate) fn new(limit: u64) -> Rc<Self> {
        let limit = bytes(limit);
        Rc::new(Self {
            limit: Cell::new(limit),
            most: limit,
            window: None,
            held: Cell::default(),
            released: Cell::default(),
            queue: RefCell::default(),
        })
    }

    /// One whose limit is what `window` lends it.
    pub(crate) fn borrowing(mut window: SendWindow) -> Rc<Self> {
        let (limit, most) = (bytes(window.rest()), bytes(window.most()));
        let window = Some(RefCell::new(window));
        Rc::new(Self { limit: Cell::new(limit), most, window, held: Cell::default(), released: Cell::default(), queue: RefCell::default() })
    }

    /// The most that it may ever hold.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// A place in it for one stream. One that is endless, as a tunnel is, takes turns whatever is said of it.
    pub(crate) fn place(self: &Rc<Self>, stream: u32, priority: Priority, is_endless: bool) -> Place {
        let priority = Priority { incremental: priority.incremental || is_endless, ..priority };
        self.queue.borrow_mut().places.insert(stream, Waiting { priority, is_endless, waker: None });
        Place { outbox: self.clone(), stream }
    }

    /// Borrows what there is, where as many bytes more do not fit.
    fn reach(&self, wanted: usize) {
        if let Some(window) = &self.window
            && self.held.get().saturating_add(wanted) > self.limit.get() - self.limit.get() / KEPT
            && self.limit.get() < self.most
        {
            self.limit.set(bytes(window.borrow_mut().size(self.most as u64)));
        }
    }

    /// Bytes that may be handed over at once, of as many as are `wanted`, by somebody who has no place. Those who wait go first, but for what is small: it
    /// might wait for all of a large download.
    pub(crate) fn room_for(&self, wanted: usize) -> usize {
        self.reach(wanted);
        match self.queue.borrow().schedule.peek() {
            None => self.room(Priority::default()),
            Some(_) if wanted <= SMALL_BYTES => self.room(Priority { urgency: 0, incremental: false }),
            Some(_) => 0,
        }
    }

    /// A number that changes when something of what is held was written or dropped.
    pub(crate) fn released(&self) -> u64 {
        self.released.get()
    }

    /// What is more urgent than usual finds room that other content may not take, so that it need not wait for that to be written.
    fn room(&self, priority: Priority) -> usize {
        let limit = self.limit.get();
        let kept = limit / KEPT * usize::from(priority.urgency.min(USUAL)) / usize::from(USUAL);
        (limit - kept).saturating_sub(self.held.get())
    }

    /// Whether as many bytes may be handed over as somebody who waits for `wanted` is woken for.
    fn has_room(&self, wanted: usize, priority: Priority) -> bool {
        self.reach(wanted);
        self.room(priority) >= wanted.min(self.limit.get() / 2).max(1)
    }

    /// Has whose turn it is look whether there is room. Who hands something over gives the turn on.
    fn wake_next(&self) {
        let queue = self.queue.borrow();
        let Some(turn) = queue.schedule.peek() else { return };
        let waker = queue.places.get(&turn.id).and_then(|place| place.waker.clone());
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
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
        self.released.set(self.released.get() + 1);
        if held == 0
            && let Some(window) = &self.window
        {
            self.limit.set(bytes(window.borrow_mut().rest()));
        }
        // Not for each piece that is written.
        if held <= self.limit.get() / 2 {
            self.wake_next();
        }
    }

    /// Changes the order of what is left of a stream's content.
    pub(super) fn set_priority(&self, stream: u32, change: impl FnOnce(Priority) -> Priority) {
        let mut queue = self.queue.borrow_mut();
        let Queue { schedule, places, .. } = &mut *queue;
        let Some(place) = places.get_mut(&stream) else { return };
        let before = place.priority;
        place.priority = change(before);
        place.priority.incremental |= place.is_endless;
        if place.waker.is_some() {
            schedule.remove(stream, before);
            schedule.insert(stream, place.priority);
            drop(queue);
            self.wake_next();
        }
    }
}

/// A stream that has content to hand over.
pub(crate) struct Place {
    outbox: Rc<Outbox>,
    stream: u32,
}

impl Place {
    pub(crate) fn outbox(&self) -> &Rc<Outbox> {
        &self.outbox
    }

    /// How many bytes may be handed over now: as many as are `wanted`, or what the limit leaves. Those whom others go before wait.
    pub(crate) fn poll_room(&self, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let Self { outbox, stream } = self;
        let mut queue = outbox.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        let place = places.get_mut(stream).expect("invariant: it is there as long as this is");
        let priority = place.priority;
        if schedule.peek().is_none() && outbox.has_room(wanted, priority) {
            return Poll::Ready(outbox.room(priority));
        }
        if place.waker.is_none() {
            schedule.insert(*stream, priority);
        }
        let turn = schedule.peek().filter(|turn| turn.id == *stream && outbox.has_room(wanted, priority));
        let Some(turn) = turn else {
            place.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        schedule.next();
        place.waker = None;
        drop(queue);
        // It finds what this one leaves.
        outbox.wake_next();
        Poll::Ready(outbox.room(priority).min(turn.bytes))
    }

    /// Whether it is not the peer's window but its turn that the stream waits for.
    pub(crate) fn waits(&self) -> bool {
        self.outbox.queue.borrow().places.get(&self.stream).is_some_and(|place| place.waker.is_some())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = self.outbox.queue.borrow_mut();
        let place = queue.places.remove(&self.stream);
        if queue.places.is_empty() {
            *queue = Queue::default();
        } else if let Some(Waiting { priority, waker: Some(_), .. }) = place {
            queue.schedule.remove(self.stream, priority);
            drop(queue);
            // It may have been its turn.
            self.outbox.wake_next();
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

    const SHARED: Priority = Priority { urgency: 3, incremental: true };
    const ORDERED: Priority = Priority { urgency: 3, incremental: false };
    const URGENT: Priority = Priority { urgency: 0, incremental: false };

    #[test]
    fn room_comes_back_when_half_is_written() {
        let outbox = Outbox::new(1000);
        let place = outbox.place(1, URGENT, false);
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert_eq!(place.poll_room(1, &mut cx), Poll::Ready(1000));
        let first = outbox.hold(Bytes::from_static(&[0; 400]));
        assert_eq!(place.poll_room(400, &mut cx), Poll::Ready(600));
        let most = outbox.hold(Bytes::from_static(&[0; 400]));
        assert!(place.poll_room(400, &mut cx).is_pending(), "a piece that small is not worth a frame");
        assert!(place.waits());
        drop(most);
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1);
        assert_eq!(place.poll_room(400, &mut cx), Poll::Ready(600));
        assert!(!place.waits());
        let second = outbox.hold(Bytes::from_static(&[0; 600]));
        assert!(place.poll_room(1, &mut cx).is_pending());
        assert!(place.poll_room(1, &mut cx).is_pending());
        drop(first);
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "more than half is held");
        drop(second);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "who waits is woken, and once");
        assert_eq!(place.poll_room(1, &mut cx), Poll::Ready(1000));
    }

    /// Streams that hand over as much as they may, so many times each, while one piece after the other is written; the order in which they do.
    fn handed_over(streams: &[(u32, Priority)], pieces: usize) -> Vec<u32> {
        let outbox = Outbox::new(64 << 10);
        let places: Vec<_> = streams.iter().map(|(stream, priority)| (*stream, outbox.place(*stream, *priority, false))).collect();
        let woken: Vec<_> = streams.iter().map(|_| Arc::new(Count(AtomicUsize::new(1)))).collect();
        let mut left = vec![pieces; streams.len()];
        let (mut held, mut order) = (std::collections::VecDeque::new(), Vec::new());
        while left.iter().any(|left| *left > 0) {
            let mut moved = false;
            for (at, (stream, place)) in places.iter().enumerate() {
                if woken[at].0.swap(0, Ordering::Relaxed) == 0 {
                    continue;
                }
                moved = true;
                let waker = Waker::from(woken[at].clone());
                let mut cx = Context::from_waker(&waker);
                while left[at] > 0
                    && let Poll::Ready(room) = place.poll_room(16 << 10, &mut cx)
                {
                    held.push_back(outbox.hold(Bytes::from(vec![0; room.min(16 << 10)])));
                    order.push(*stream);
                    left[at] -= 1;
                }
            }
            if !moved {
                assert!(held.pop_front().is_some(), "nobody is woken, and nothing is left to be written: {order:?}");
            }
        }
        order
    }

    /// What is taken before there is anybody to wait for.
    const AT_ONCE: usize = 3;

    #[test]
    fn urgent_content_goes_first() {
        let order = handed_over(&[(1, SHARED), (3, ORDERED), (5, URGENT)], 8);
        let end = order.iter().rposition(|stream| *stream == 5).unwrap();
        assert!(end < 8 + AT_ONCE, "{order:?}");
    }

    #[test]
    fn content_in_order_goes_one_after_the_other() {
        let order = handed_over(&[(5, ORDERED), (1, ORDERED), (3, ORDERED)], 8);
        assert_eq!(order[AT_ONCE..AT_ONCE + 16], [[1; 8], [3; 8]].concat(), "{order:?}");
    }

    #[test]
    fn incremental_content_takes_turns_with_each_other_and_the_first_in_order() {
        let order = handed_over(&[(1, SHARED), (3, SHARED), (5, ORDERED), (7, ORDERED)], 12);
        for turn in order[AT_ONCE..AT_ONCE + 27].chunks(3) {
            let mut turn = turn.to_vec();
            turn.sort_unstable();
            assert_eq!(turn, [1, 3, 5], "{order:?}");
        }
    }

    #[test]
    fn small_content_does_not_wait_for_its_turn() {
        let outbox = Outbox::new(64 << 10);
        let mut cx = Context::from_waker(Waker::noop());
        let place = outbox.place(1, ORDERED, false);
        let held = outbox.hold(Bytes::from(vec![0; 56 << 10]));
        assert_eq!(outbox.room_for(1000), 0);
        assert!(place.poll_room(1000, &mut cx).is_pending());
        assert_eq!(outbox.room_for(1000), 8 << 10, "what is kept for urgent content");
        assert_eq!(outbox.room_for(5000), 0);
        drop(held);
        assert_eq!(outbox.room_for(5000), 0, "another one waits");
        assert!(place.poll_room(1000, &mut cx).is_ready());
        assert_eq!(outbox.room_for(5000), 56 << 10);
    }

    #[test]
    fn endless_content_takes_turns_whatever_is_said_of_it() {
        let outbox = Outbox::new(64 << 10);
        let mut cx = Context::from_waker(Waker::noop());
        let [tunnel, other] = [outbox.place(1, ORDERED, true), outbox.place(3, ORDERED, false)];
        outbox.set_priority(1, |_| ORDERED);
        let held = outbox.hold(Bytes::from(vec![0; 64 << 10]));
        assert!(other.poll_room(1, &mut cx).is_pending() && tunnel.poll_room(1, &mut cx).is_pending());
        drop(held);
        let turns = [&tunnel, &other].map(|place| place.poll_room(1, &mut cx));
        assert!(turns.contains(&Poll::Ready(16 << 10)), "in order, the first has all of it: {turns:?}");
    }

    #[test]
    fn order_changes_while_it_waits_and_who_leaves_gives_its_turn_on() {
        let outbox = Outbox::new(1000);
        let count = [0; 2].map(|_| Arc::<Count>::default());
        let wakers = count.clone().map(Waker::from);
        let [mut first, mut second] = wakers.each_ref().map(Context::from_waker);
        let places = [outbox.place(1, ORDERED, false), outbox.place(3, ORDERED, false)];
        let held = outbox.hold(Bytes::from_static(&[0; 1000]));
        assert!(places[0].poll_room(1, &mut first).is_pending());
        assert!(places[1].poll_room(1, &mut second).is_pending());
        outbox.set_priority(3, |_| URGENT);
        drop(held);
        assert_eq!(count.each_ref().map(|count| count.0.load(Ordering::Relaxed)), [0, 2]);
        assert!(places[0].poll_room(1, &mut first).is_pending(), "another goes before");
        let [place, other] = places;
        drop(other);
        assert_eq!(count[0].0.load(Ordering::Relaxed), 1);
        assert!(place.poll_room(1, &mut first).is_ready());
        assert_eq!(outbox.room_for(1000), 875, "an eighth is left to what is more urgent than usual");
    }
}
