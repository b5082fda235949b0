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
pub(super) const SMALL_BYTES: usize = 4 << 10;

/// Content that a connection has handed to the library and that is not written yet.
///
/// The library's own limit counts for each stream. A peer that opens its windows wide, asks for much and reads nothing would have it
/// hold that for each of its streams. The library also shares alike among the streams of which it holds something, and gives the connection's
/// window to whoever asked for it first. So the order is made here: who has something to hand over waits for its turn, and asks for the window
/// when that has come.
pub(crate) struct Outbox {
    limit: Cell<usize>,
    /// The most that the limit may be.
    most: usize,
    /// Where the limit comes from while something is held: a share of what all connections may hold.
    window: Option<RefCell<SendWindow>>,
    held: Cell<usize>,
    /// How often something of it was written or dropped.
    released: Cell<u64>,
    /// What the peer lets the connection send that is not written yet (RFC 9113, section 6.9), where somebody counts it.
    credit: Cell<Option<i64>>,
    queue: RefCell<Queue>,
}

/// RFC 9113, section 6.9.2.
const FIRST_CREDIT: i64 = 65_535;

/// The streams with content to hand over.
#[derive(Default)]
struct Queue {
    /// Those that wait for room, or for their turn.
    schedule: Schedule<u32>,
    places: FxHashMap<u32, Waiting>,
}

struct Waiting {
    priority: Priority,
    /// What the response says of it, which overrides what the client says, also later (RFC 9218, section 8). Boxed, because few responses do.
    said: Option<Box<Bytes>>,
    /// It may never end, so that nobody may have to wait for its end.
    is_endless: bool,
    /// While it is in the schedule.
    waker: Option<Waker>,
    /// What it waits for room for; of more than a frame it is not asked.
    wanted: u32,
    /// Bytes of this stream that are held, and how often some of them were written or dropped.
    held: usize,
    released: u32,
}

impl Waiting {
    /// `asked`: by the client.
    fn set_priority(&mut self, asked: Priority) {
        self.priority = self.said.as_ref().map_or(asked, |said| asked.overridden_by(said));
        self.priority.incremental |= self.is_endless;
    }
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
            credit: Cell::default(),
            queue: RefCell::default(),
        })
    }

    /// One whose limit is what `window` lends it.
    pub(crate) fn borrowing(mut window: SendWindow) -> Rc<Self> {
        let (limit, most) = (bytes(window.rest()), bytes(window.most()));
        let window = Some(RefCell::new(window));
        Rc::new(Self {
            limit: Cell::new(limit),
            most,
            window,
            held: Cell::default(),
            released: Cell::default(),
            credit: Cell::default(),
            queue: RefCell::default(),
        })
    }

    /// Starts to count the credit, before the connection's first frame.
    pub(super) fn count_credit(&self) {
        self.credit.set(Some(FIRST_CREDIT));
    }

    /// The peer lets the connection send so many bytes more.
    pub(super) fn on_credit(&self, bytes: u32) {
        self.credit.set(self.credit.get().map(|credit| credit + i64::from(bytes)));
    }

    /// So many bytes of content were written.
    pub(super) fn on_written(&self, bytes: usize) {
        self.credit.set(self.credit.get().map(|credit| credit - bytes as i64));
    }

    /// Whether the connection's window is open. Always true where the credit is not counted.
    fn has_credit(&self) -> bool {
        self.credit.get().is_none_or(|credit| credit > self.held.get() as i64)
    }

    /// The most that it may ever hold.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// A place in it for one stream. One that is endless, as a tunnel is, takes turns whatever is said of it.
    pub(crate) fn place(self: &Rc<Self>, stream: u32, asked: Priority, said: Option<Bytes>, is_endless: bool) -> Place {
        let said = said.map(Box::new);
        let mut place = Waiting { priority: asked, said, is_endless, waker: None, wanted: 0, held: 0, released: 0 };
        place.set_priority(asked);
        self.queue.borrow_mut().places.insert(stream, place);
        Place { outbox: self.clone(), stream, is_blocked: Cell::default() }
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
    pub(crate) fn room_for(&self, wanted: usize, priority: impl FnOnce() -> Priority) -> usize {
        self.reach(wanted);
        // Nothing has less room than what is as urgent as usual.
        let least = self.room(Priority::default());
        match self.queue.borrow().schedule.peek() {
            None if least >= wanted => least,
            None => self.room(priority()),
            Some(_) if wanted > SMALL_BYTES => 0,
            Some(_) if least >= wanted => least,
            Some(_) => self.room(Priority { urgency: priority().urgency.min(USUAL - 1), incremental: false }),
        }
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

    /// Wakes the stream whose turn it is, if there is room for it.
    fn wake_next(&self) {
        let queue = self.queue.borrow();
        let Some(turn) = queue.schedule.peek() else { return };
        let Some(place) = queue.places.get(&turn.id) else { return };
        if self.has_room(place.wanted as usize, place.priority)
            && let Some(waker) = &place.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Counts these bytes until the library drops them, written or not.
    pub(crate) fn hold(self: &Rc<Self>, stream: u32, bytes: Bytes) -> Held {
        let size = bytes.len();
        self.held.set(self.held.get() + size);
        if let Some(place) = self.queue.borrow_mut().places.get_mut(&stream) {
            place.held += size;
        }
        Held { bytes, size, stream, outbox: self.clone() }
    }

    fn release(&self, stream: u32, size: usize) {
        let held = self.held.get() - size;
        self.held.set(held);
        self.released.set(self.released.get() + 1);
        if let Some(place) = self.queue.borrow_mut().places.get_mut(&stream) {
            // What was handed over before the stream had a place was not counted.
            place.held = place.held.saturating_sub(size);
            place.released = place.released.wrapping_add(1);
        }
        if held == 0
            && let Some(window) = &self.window
        {
            self.limit.set(bytes(window.borrow_mut().rest()));
        }
        self.wake_next();
    }

    /// Changes the order of what is left of a stream's content.
    pub(super) fn set_priority(&self, stream: u32, change: impl FnOnce(Priority) -> Priority) {
        let mut queue = self.queue.borrow_mut();
        let Queue { schedule, places, .. } = &mut *queue;
        let Some(place) = places.get_mut(&stream) else { return };
        let before = place.priority;
        place.set_priority(change(before));
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
    /// The stream's own window is full.
    is_blocked: Cell<bool>,
}

impl Place {
    pub(crate) fn outbox(&self) -> &Rc<Outbox> {
        &self.outbox
    }

    /// How many bytes may be handed over now: as many as are `wanted`, or what the limit leaves. Pending until it is this stream's turn; the
    /// caller then calls one of [`Place::take`], [`Place::keep`] and [`Place::block`].
    pub(crate) fn poll_turn(&self, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let Self { outbox, stream, .. } = self;
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
        place.wanted = wanted as u32;
        place.waker = Some(cx.waker().clone());
        match schedule.peek() {
            Some(turn) if turn.id == *stream && outbox.has_room(wanted, priority) => Poll::Ready(outbox.room(priority).min(turn.bytes)),
            _ => Poll::Pending,
        }
    }

    /// Uses the turn, which passes to the next stream.
    pub(crate) fn take(&self) {
        let mut queue = self.outbox.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        if places.get_mut(&self.stream).and_then(|place| place.waker.take()).is_none() {
            return;
        }
        schedule.next();
        drop(queue);
        // It finds what this one leaves.
        self.outbox.wake_next();
    }

    /// Keeps the turn, because the connection's window is full. A more urgent stream may still take it before the window opens.
    pub(crate) fn keep(&self, wanted: usize, cx: &Context<'_>) {
        let mut queue = self.outbox.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        let Some(place) = places.get_mut(&self.stream) else { return };
        place.wanted = wanted as u32;
        if place.waker.replace(cx.waker().clone()).is_none() {
            schedule.insert(self.stream, place.priority);
        }
    }

    /// Gives the turn up, because the stream's own window is full.
    pub(crate) fn block(&self) {
        self.is_blocked.set(true);
        self.leave();
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// The stream's own window is open again.
    pub(crate) fn unblock(&self) {
        self.is_blocked.set(false);
    }

    /// Whether the connection's window is open, so that only the stream's own can hold it back.
    pub(crate) fn has_credit(&self) -> bool {
        self.outbox.has_credit()
    }

    /// A counter that changes when a stream that waits for its turn makes progress: when some of its bytes are written or dropped, or bytes of others
    /// while none of its own are held. It stays 0 for a stream that waits for its own window.
    pub(crate) fn progress(&self) -> u64 {
        let queue = self.outbox.queue.borrow();
        match queue.places.get(&self.stream) {
            Some(Waiting { waker: Some(_), held: 0, .. }) => self.outbox.released.get(),
            Some(Waiting { waker: Some(_), released, .. }) => u64::from(*released),
            _ => 0,
        }
    }

    fn leave(&self) {
        let mut queue = self.outbox.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        if let Some(place) = places.get_mut(&self.stream)
            && place.waker.take().is_some()
        {
            schedule.remove(self.stream, place.priority);
            drop(queue);
            // It may have been its turn.
            self.outbox.wake_next();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
        let mut queue = self.outbox.queue.borrow_mut();
        queue.places.remove(&self.stream);
        if queue.places.is_empty() {
            *queue = Queue::default();
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
    stream: u32,
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
        self.outbox.release(self.stream, self.size);
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

    /// As the pump does where the peer's windows are open.
    fn poll_room(place: &Place, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let room = std::task::ready!(place.poll_turn(wanted, cx));
        place.take();
        Poll::Ready(room)
    }

    fn waits(outbox: &Outbox, stream: u32) -> bool {
        outbox.queue.borrow().places[&stream].waker.is_some()
    }

    #[test]
    fn who_waits_is_woken_when_there_is_room_for_what_it_wants() {
        let outbox = Outbox::new(1000);
        let place = outbox.place(1, URGENT, None, false);
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert_eq!(poll_room(&place, 1, &mut cx), Poll::Ready(1000));
        let first = outbox.hold(1, Bytes::from_static(&[0; 400]));
        assert_eq!(poll_room(&place, 400, &mut cx), Poll::Ready(600));
        let most = outbox.hold(1, Bytes::from_static(&[0; 300]));
        let little = outbox.hold(1, Bytes::from_static(&[0; 50]));
        assert!(poll_room(&place, 400, &mut cx).is_pending(), "a piece that small is not worth a frame");
        assert!(waits(&outbox, 1));
        drop(little);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        drop(most);
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1);
        assert_eq!(poll_room(&place, 400, &mut cx), Poll::Ready(600));
        assert!(!waits(&outbox, 1));
        drop(first);
    }

    /// A peer that makes a window smaller than what was handed over holds that back for as long as it likes.
    #[test]
    fn bytes_that_do_not_move_keep_nobody_from_the_room_that_is_left() {
        let outbox = Outbox::new(64 << 10);
        let [stalled, other] = [outbox.place(1, ORDERED, None, false), outbox.place(3, URGENT, None, false)];
        let _frozen = outbox.hold(1, Bytes::from(vec![0; 44 << 10]));
        let moving = outbox.hold(3, Bytes::from(vec![0; 12 << 10]));
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(poll_room(&other, 16 << 10, &mut cx).is_pending() && poll_room(&stalled, 16 << 10, &mut cx).is_pending());
        let before = [&stalled, &other].map(Place::progress);
        drop(moving);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "more than half is held, and there is room");
        let after = [&stalled, &other].map(Place::progress);
        assert_eq!(poll_room(&other, 16 << 10, &mut cx), Poll::Ready(20 << 10));
        assert_eq!(after[0], before[0], "what others send is no progress of who is stalled");
        assert_ne!(after[1], before[1]);
    }

    #[test]
    fn turn_that_cannot_be_used_stays_or_is_given_on() {
        let outbox = Outbox::new(64 << 10);
        let [first, second] = [outbox.place(1, ORDERED, None, false), outbox.place(3, ORDERED, None, false)];
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.poll_turn(1000, &mut cx).is_ready());
        first.keep(1000, &cx);
        assert!(
            second.poll_turn(1000, &mut cx).is_pending(),
            "it is the first one's turn, whenever the peer opens the connection's window"
        );
        assert!(first.poll_turn(1000, &mut cx).is_ready());
        first.block();
        assert!(first.is_blocked());
        assert!(second.poll_turn(1000, &mut cx).is_ready(), "a stream's own window holds nobody else back");
    }

    #[test]
    fn credit_is_what_the_peer_gave_less_what_was_written_and_is_held() {
        let outbox = Outbox::new(1 << 20);
        assert!(outbox.has_credit(), "nobody counts");
        outbox.count_credit();
        let held = outbox.hold(1, Bytes::from(vec![0; 65_535]));
        assert!(!outbox.has_credit());
        outbox.on_credit(1);
        assert!(outbox.has_credit());
        outbox.on_written(65_535);
        drop(held);
        assert!(outbox.has_credit());
        outbox.on_written(1);
        assert!(!outbox.has_credit());
    }

    /// Streams that hand over as much as they may, so many times each, while one piece after the other is written; the order in which they do.
    fn handed_over(streams: &[(u32, Priority)], pieces: usize) -> Vec<u32> {
        let outbox = Outbox::new(64 << 10);
        let places: Vec<_> = streams.iter().map(|(stream, priority)| (*stream, outbox.place(*stream, *priority, None, false))).collect();
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
                    && let Poll::Ready(room) = poll_room(place, 16 << 10, &mut cx)
                {
                    held.push_back(outbox.hold(*stream, Bytes::from(vec![0; room.min(16 << 10)])));
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
        let place = outbox.place(1, ORDERED, None, false);
        let held = outbox.hold(1, Bytes::from(vec![0; 56 << 10]));
        assert_eq!(outbox.room_for(1000, Priority::default), 0);
        assert!(poll_room(&place, 1000, &mut cx).is_pending());
        assert_eq!(outbox.room_for(1000, Priority::default), (8 << 10) / 3 + 1, "of what is kept for urgent content");
        assert_eq!(outbox.room_for(1000, || URGENT), 8 << 10);
        assert_eq!(outbox.room_for(5000, Priority::default), 0);
        drop(held);
        assert_eq!(outbox.room_for(5000, Priority::default), 0, "another one waits");
        assert!(poll_room(&place, 1000, &mut cx).is_ready());
        assert_eq!(outbox.room_for(5000, Priority::default), 56 << 10);
    }

    #[test]
    fn endless_content_takes_turns_whatever_is_said_of_it() {
        let outbox = Outbox::new(64 << 10);
        let mut cx = Context::from_waker(Waker::noop());
        let [tunnel, other] = [outbox.place(1, ORDERED, None, true), outbox.place(3, ORDERED, None, false)];
        outbox.set_priority(1, |_| ORDERED);
        let held = outbox.hold(1, Bytes::from(vec![0; 64 << 10]));
        assert!(poll_room(&other, 1, &mut cx).is_pending() && poll_room(&tunnel, 1, &mut cx).is_pending());
        drop(held);
        let turns = [&tunnel, &other].map(|place| poll_room(place, 1, &mut cx));
        assert!(turns.contains(&Poll::Ready(16 << 10)), "in order, the first has all of it: {turns:?}");
    }

    #[test]
    fn what_the_response_says_outlasts_what_the_client_says_later() {
        let outbox = Outbox::new(1000);
        let _place = outbox.place(1, ORDERED, Some(Bytes::from_static(b"u=6")), false);
        let priority = || outbox.queue.borrow().places[&1].priority;
        assert_eq!(priority(), Priority { urgency: 6, incremental: false });
        outbox.set_priority(1, |_| Priority { urgency: 1, incremental: true });
        assert_eq!(priority(), Priority { urgency: 6, incremental: true });
    }

    #[test]
    fn order_changes_while_it_waits_and_who_leaves_gives_its_turn_on() {
        let outbox = Outbox::new(1000);
        let count = [0; 2].map(|_| Arc::<Count>::default());
        let wakers = count.clone().map(Waker::from);
        let [mut first, mut second] = wakers.each_ref().map(Context::from_waker);
        let places = [outbox.place(1, ORDERED, None, false), outbox.place(3, ORDERED, None, false)];
        let held = outbox.hold(1, Bytes::from_static(&[0; 1000]));
        assert!(poll_room(&places[0], 1, &mut first).is_pending());
        assert!(poll_room(&places[1], 1, &mut second).is_pending());
        outbox.set_priority(3, |_| URGENT);
        drop(held);
        assert_eq!(count.each_ref().map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
        assert!(poll_room(&places[0], 1, &mut first).is_pending(), "another goes before");
        let [place, other] = places;
        drop(other);
        assert_eq!(count[0].0.load(Ordering::Relaxed), 1);
        assert!(poll_room(&place, 1, &mut first).is_ready());
        assert_eq!(outbox.room_for(1000, Priority::default), 875, "an eighth is left to what is more urgent than usual");
    }
}
