//! Outgoing content that h2 buffers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use pronghorn_h3::Priority;
use rustc_hash::FxHashMap;

use crate::memory::WorkerMemory;
use crate::schedule::Schedule;
use crate::window_budget::SendWindow;

/// RFC 9218, section 4.1: the default urgency.
const USUAL: u8 = 3;
/// One part in this many of the limit is reserved for more urgent content.
const RESERVED_DIVISOR: usize = 8;
/// Content up to this size does not wait for its turn. Less than a frame.
pub(super) const SMALL_BYTES: usize = 4 << 10;

/// Content of a connection that was passed to h2 and is not written yet.
///
/// h2's own limit applies to each stream. If a peer opened its windows wide, requested much and
/// read nothing, h2 would buffer that much for each of its streams. h2 also shares equally among
/// the streams that have buffered content, and gives the connection's window to the stream that
/// asked first. So the order is made here: a stream with content waits for its turn, and requests
/// the window only then.
pub(crate) struct SendBuffer {
    limit: Cell<usize>,
    /// Maximum of `limit`.
    max_bytes: usize,
    /// Source of the limit while content is buffered: a share of what all connections may buffer.
    window: Option<RefCell<SendWindow>>,
    held: Cell<usize>,
    /// Counts what is buffered, if the peer is a client.
    memory: Option<Rc<WorkerMemory>>,
    /// Number of times that buffered bytes were written or dropped.
    released: Cell<u64>,
    /// Bytes that the peer allows the connection to send, less those written (RFC 9113, section
    /// 6.9). `None` if they are not counted.
    credit: Cell<Option<i64>>,
    queue: RefCell<Queue>,
}

/// RFC 9113, section 6.9.2.
const FIRST_CREDIT: i64 = 65_535;

/// The streams with content to hand over.
#[derive(Default)]
struct Queue {
    /// Streams that wait for capacity or for their turn.
    schedule: Schedule<u32>,
    places: FxHashMap<u32, StreamEntry>,
}

struct StreamEntry {
    priority: Priority,
    /// The response's own `priority` field. It overrides the client's priority, also a later one
    /// (RFC 9218, section 8). Boxed, because few responses have it.
    said: Option<Box<Bytes>>,
    /// The content may never end, so no stream may have to wait for its end.
    is_endless: bool,
    /// Set while the stream is in the schedule.
    waker: Option<Waker>,
    /// Number of bytes of capacity that the stream waits for, at most a frame.
    wanted: u32,
    /// Bytes of this stream that are buffered, and how often some of them were written or dropped.
    held: usize,
    released: u32,
}

impl StreamEntry {
    /// `asked`: the client's priority.
    fn set_priority(&mut self, asked: Priority) {
        self.priority = self.said.as_ref().map_or(asked, |said| asked.overridden_by(said));
        self.priority.incremental |= self.is_endless;
    }
}

impl SendBuffer {
    pub(crate) fn new(limit: u64) -> Rc<Self> {
        let limit = bytes(limit);
        Rc::new(Self {
            limit: Cell::new(limit),
            max_bytes: limit,
            window: None,
            held: Cell::default(),
            memory: None,
            released: Cell::default(),
            credit: Cell::default(),
            queue: RefCell::default(),
        })
    }

    /// Creates a send buffer whose limit is lent by `window`.
    pub(crate) fn borrowing(mut window: SendWindow) -> Rc<Self> {
        let (limit, max_bytes) = (bytes(window.release()), bytes(window.max_bytes()));
        let memory = Some(window.memory().clone());
        let window = Some(RefCell::new(window));
        Rc::new(Self {
            limit: Cell::new(limit),
            max_bytes,
            window,
            held: Cell::default(),
            memory,
            released: Cell::default(),
            credit: Cell::default(),
            queue: RefCell::default(),
        })
    }

    /// Starts to count the credit, before the connection's first frame.
    pub(super) fn count_credit(&self) {
        self.credit.set(Some(FIRST_CREDIT));
    }

    /// Adds to what the peer allows the connection to send.
    pub(super) fn on_credit(&self, bytes: u32) {
        self.credit.set(self.credit.get().map(|credit| credit + i64::from(bytes)));
    }

    /// Counts bytes of content that were written.
    pub(super) fn on_written(&self, bytes: usize) {
        self.credit.set(self.credit.get().map(|credit| credit - bytes as i64));
    }

    /// Whether the connection's window is open. Always true if the credit is not counted.
    fn has_credit(&self) -> bool {
        self.credit.get().is_none_or(|credit| credit > self.held.get() as i64)
    }

    /// Returns the maximum that it may ever buffer.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Adds an entry for one stream. An endless one, such as a tunnel, takes turns whatever its
    /// priority.
    pub(crate) fn slot(
        self: &Rc<Self>,
        stream: u32,
        asked: Priority,
        said: Option<Bytes>,
        is_endless: bool,
    ) -> SendSlot {
        let said = said.map(Box::new);
        let mut slot = StreamEntry {
            priority: asked,
            said,
            is_endless,
            waker: None,
            wanted: 0,
            held: 0,
            released: 0,
        };
        slot.set_priority(asked);
        self.queue.borrow_mut().places.insert(stream, slot);
        SendSlot { send_buffer: self.clone(), stream, is_blocked: Cell::default() }
    }

    /// Raises the limit as far as possible if `wanted` more bytes do not fit.
    fn reach(&self, wanted: usize) {
        if let Some(window) = &self.window
            && self.held.get().saturating_add(wanted)
                > self.limit.get() - self.limit.get() / RESERVED_DIVISOR
            && self.limit.get() < self.max_bytes
        {
            self.limit.set(bytes(window.borrow_mut().size(self.max_bytes as u64)));
        }
    }

    /// Returns how many of `wanted` bytes a stream without an entry may hand over at once. Waiting
    /// streams go first, except before small content, which might otherwise wait for all of a large
    /// download.
    pub(crate) fn room_for(&self, wanted: usize, priority: impl FnOnce() -> Priority) -> usize {
        self.reach(wanted);
        // Default urgency has the least capacity.
        let least = self.room(Priority::default());
        match self.queue.borrow().schedule.peek() {
            None if least >= wanted => least,
            None => self.room(priority()),
            Some(_) if wanted > SMALL_BYTES => 0,
            Some(_) if least >= wanted => least,
            Some(_) => self
                .room(Priority { urgency: priority().urgency.min(USUAL - 1), incremental: false }),
        }
    }

    /// Returns the free capacity. A part is reserved for content of more than default urgency, so
    /// that it need not wait until other content is written.
    fn room(&self, priority: Priority) -> usize {
        let limit = self.limit.get();
        let kept = limit / RESERVED_DIVISOR * usize::from(priority.urgency.min(USUAL))
            / usize::from(USUAL);
        (limit - kept).saturating_sub(self.held.get())
    }

    /// Whether there is enough capacity to wake a stream that waits for `wanted` bytes.
    fn has_room(&self, wanted: usize, priority: Priority) -> bool {
        self.reach(wanted);
        self.room(priority) >= wanted.min(self.limit.get() / 2).max(1)
    }

    /// Wakes the stream whose turn it is, if there is capacity for it.
    fn wake_next(&self) {
        let queue = self.queue.borrow();
        let Some(turn) = queue.schedule.peek() else { return };
        let Some(slot) = queue.places.get(&turn.id) else { return };
        if self.has_room(slot.wanted as usize, slot.priority)
            && let Some(waker) = &slot.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Counts these bytes until h2 drops them, written or not.
    pub(crate) fn hold(self: &Rc<Self>, stream: u32, bytes: Bytes) -> BufferedBytes {
        let size = bytes.len();
        self.held.set(self.held.get() + size);
        if let Some(memory) = &self.memory {
            memory.add(size as u64);
        }
        if let Some(slot) = self.queue.borrow_mut().places.get_mut(&stream) {
            slot.held += size;
        }
        BufferedBytes { bytes, size, stream, send_buffer: self.clone() }
    }

    fn release(&self, stream: u32, size: usize) {
        let held = self.held.get() - size;
        self.held.set(held);
        if let Some(memory) = &self.memory {
            memory.subtract(size as u64);
        }
        self.released.set(self.released.get() + 1);
        if let Some(slot) = self.queue.borrow_mut().places.get_mut(&stream) {
            // Bytes handed over before the stream had an entry were not counted.
            slot.held = slot.held.saturating_sub(size);
            slot.released = slot.released.wrapping_add(1);
        }
        if held == 0
            && let Some(window) = &self.window
        {
            self.limit.set(bytes(window.borrow_mut().release()));
        }
        self.wake_next();
    }

    /// Changes the priority of a stream's remaining content.
    pub(super) fn set_priority(&self, stream: u32, change: impl FnOnce(Priority) -> Priority) {
        let mut queue = self.queue.borrow_mut();
        let Queue { schedule, places, .. } = &mut *queue;
        let Some(slot) = places.get_mut(&stream) else { return };
        let before = slot.priority;
        slot.set_priority(change(before));
        if slot.waker.is_some() {
            schedule.remove(stream, before);
            schedule.insert(stream, slot.priority);
            drop(queue);
            self.wake_next();
        }
    }
}

/// The entry of a stream that has content to hand over.
pub(crate) struct SendSlot {
    send_buffer: Rc<SendBuffer>,
    stream: u32,
    /// The stream's own window is full.
    is_blocked: Cell<bool>,
}

impl SendSlot {
    pub(crate) fn send_buffer(&self) -> &Rc<SendBuffer> {
        &self.send_buffer
    }

    /// Returns how many bytes may be handed over now: as many as `wanted`, or what the limit
    /// leaves. Pending until it is this stream's turn. The caller then calls one of
    /// [`SendSlot::take`], [`SendSlot::keep`] and [`SendSlot::block`].
    pub(crate) fn poll_turn(&self, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let Self { send_buffer, stream, .. } = self;
        let mut queue = send_buffer.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        let slot =
            places.get_mut(stream).expect("invariant: the entry lives as long as its handle");
        let priority = slot.priority;
        if schedule.peek().is_none() && send_buffer.has_room(wanted, priority) {
            return Poll::Ready(send_buffer.room(priority));
        }
        if slot.waker.is_none() {
            schedule.insert(*stream, priority);
        }
        slot.wanted = wanted as u32;
        slot.waker = Some(cx.waker().clone());
        match schedule.peek() {
            Some(turn) if turn.id == *stream && send_buffer.has_room(wanted, priority) => {
                Poll::Ready(send_buffer.room(priority).min(turn.bytes))
            }
            _ => Poll::Pending,
        }
    }

    /// Uses the turn, which passes to the next stream.
    pub(crate) fn take(&self) {
        let mut queue = self.send_buffer.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        if places.get_mut(&self.stream).and_then(|slot| slot.waker.take()).is_none() {
            return;
        }
        schedule.next();
        drop(queue);
        // The next stream gets the capacity that this one leaves.
        self.send_buffer.wake_next();
    }

    /// Keeps the turn, because the connection's window is full. A more urgent stream may still take
    /// it before the window opens.
    pub(crate) fn keep(&self, wanted: usize, cx: &Context<'_>) {
        let mut queue = self.send_buffer.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        let Some(slot) = places.get_mut(&self.stream) else { return };
        slot.wanted = wanted as u32;
        if slot.waker.replace(cx.waker().clone()).is_none() {
            schedule.insert(self.stream, slot.priority);
        }
    }

    /// Gives up the turn, because the stream's own window is full.
    pub(crate) fn block(&self) {
        self.is_blocked.set(true);
        self.leave();
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// Notes that the stream's own window is open again.
    pub(crate) fn unblock(&self) {
        self.is_blocked.set(false);
    }

    /// Whether the connection's window is open, so that only the stream's own can block it.
    pub(crate) fn has_credit(&self) -> bool {
        self.send_buffer.has_credit()
    }

    /// Returns a counter that changes when a stream that waits for its turn makes progress: when
    /// some of its bytes are written or dropped, or, while none of its own are buffered, bytes of
    /// other streams. It stays 0 for a stream that waits for its own window.
    pub(crate) fn progress(&self) -> u64 {
        let queue = self.send_buffer.queue.borrow();
        match queue.places.get(&self.stream) {
            Some(StreamEntry { waker: Some(_), held: 0, .. }) => self.send_buffer.released.get(),
            Some(StreamEntry { waker: Some(_), released, .. }) => u64::from(*released),
            _ => 0,
        }
    }

    fn leave(&self) {
        let mut queue = self.send_buffer.queue.borrow_mut();
        let Queue { schedule, places } = &mut *queue;
        if let Some(slot) = places.get_mut(&self.stream)
            && slot.waker.take().is_some()
        {
            schedule.remove(self.stream, slot.priority);
            drop(queue);
            // It may have been this stream's turn.
            self.send_buffer.wake_next();
        }
    }
}

impl Drop for SendSlot {
    fn drop(&mut self) {
        self.leave();
        let mut queue = self.send_buffer.queue.borrow_mut();
        queue.places.remove(&self.stream);
        if queue.places.is_empty() {
            *queue = Queue::default();
        }
    }
}

fn bytes(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX).max(1)
}

/// Bytes that h2 buffers.
pub(crate) struct BufferedBytes {
    bytes: Bytes,
    size: usize,
    stream: u32,
    send_buffer: Rc<SendBuffer>,
}

impl Buf for BufferedBytes {
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

impl Drop for BufferedBytes {
    fn drop(&mut self) {
        self.send_buffer.release(self.stream, self.size);
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

    /// Like the pump while the peer's windows are open.
    fn poll_room(slot: &SendSlot, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let room = std::task::ready!(slot.poll_turn(wanted, cx));
        slot.take();
        Poll::Ready(room)
    }

    fn waits(send_buffer: &SendBuffer, stream: u32) -> bool {
        send_buffer.queue.borrow().places[&stream].waker.is_some()
    }

    #[test]
    fn waiting_stream_is_woken_once_its_bytes_fit() {
        let send_buffer = SendBuffer::new(1000);
        let slot = send_buffer.slot(1, URGENT, None, false);
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert_eq!(poll_room(&slot, 1, &mut cx), Poll::Ready(1000));
        let first = send_buffer.hold(1, Bytes::from_static(&[0; 400]));
        assert_eq!(poll_room(&slot, 400, &mut cx), Poll::Ready(600));
        let max_bytes = send_buffer.hold(1, Bytes::from_static(&[0; 300]));
        let little = send_buffer.hold(1, Bytes::from_static(&[0; 50]));
        assert!(
            poll_room(&slot, 400, &mut cx).is_pending(),
            "such a small piece is not worth a frame"
        );
        assert!(waits(&send_buffer, 1));
        drop(little);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        drop(max_bytes);
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1);
        assert_eq!(poll_room(&slot, 400, &mut cx), Poll::Ready(600));
        assert!(!waits(&send_buffer, 1));
        drop(first);
    }

    /// A peer that shrinks a window below what was handed over can block that content for as long
    /// as it likes.
    #[test]
    fn stalled_stream_does_not_block_remaining_capacity() {
        let send_buffer = SendBuffer::new(64 << 10);
        let [stalled, other] =
            [send_buffer.slot(1, ORDERED, None, false), send_buffer.slot(3, URGENT, None, false)];
        let _frozen = send_buffer.hold(1, Bytes::from(vec![0; 44 << 10]));
        let moving = send_buffer.hold(3, Bytes::from(vec![0; 12 << 10]));
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(
            poll_room(&other, 16 << 10, &mut cx).is_pending()
                && poll_room(&stalled, 16 << 10, &mut cx).is_pending()
        );
        let before = [&stalled, &other].map(SendSlot::progress);
        drop(moving);
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            1,
            "more than half is buffered, and there is capacity"
        );
        let after = [&stalled, &other].map(SendSlot::progress);
        assert_eq!(poll_room(&other, 16 << 10, &mut cx), Poll::Ready(20 << 10));
        assert_eq!(after[0], before[0], "bytes of other streams are no progress of a stalled one");
        assert_ne!(after[1], before[1]);
    }

    #[test]
    fn turn_that_cannot_be_used_stays_or_is_given_on() {
        let send_buffer = SendBuffer::new(64 << 10);
        let [first, second] =
            [send_buffer.slot(1, ORDERED, None, false), send_buffer.slot(3, ORDERED, None, false)];
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.poll_turn(1000, &mut cx).is_ready());
        first.keep(1000, &cx);
        assert!(
            second.poll_turn(1000, &mut cx).is_pending(),
            "the first stream keeps its turn until the connection's window opens"
        );
        assert!(first.poll_turn(1000, &mut cx).is_ready());
        first.block();
        assert!(first.is_blocked());
        assert!(
            second.poll_turn(1000, &mut cx).is_ready(),
            "a stream's own window does not block other streams"
        );
    }

    #[test]
    fn credit_is_what_the_peer_gave_less_what_was_written_and_is_held() {
        let send_buffer = SendBuffer::new(1 << 20);
        assert!(send_buffer.has_credit(), "the credit is not counted");
        send_buffer.count_credit();
        let held = send_buffer.hold(1, Bytes::from(vec![0; 65_535]));
        assert!(!send_buffer.has_credit());
        send_buffer.on_credit(1);
        assert!(send_buffer.has_credit());
        send_buffer.on_written(65_535);
        drop(held);
        assert!(send_buffer.has_credit());
        send_buffer.on_written(1);
        assert!(!send_buffer.has_credit());
    }

    /// Streams that hand over as much as they may, `pieces` times each, while one piece after the
    /// other is written. Returns the order in which they do.
    fn handed_over(streams: &[(u32, Priority)], pieces: usize) -> Vec<u32> {
        let send_buffer = SendBuffer::new(64 << 10);
        let places: Vec<_> = streams
            .iter()
            .map(|(stream, priority)| (*stream, send_buffer.slot(*stream, *priority, None, false)))
            .collect();
        let woken: Vec<_> = streams.iter().map(|_| Arc::new(Count(AtomicUsize::new(1)))).collect();
        let mut left = vec![pieces; streams.len()];
        let (mut held, mut order) = (std::collections::VecDeque::new(), Vec::new());
        while left.iter().any(|left| *left > 0) {
            let mut moved = false;
            for (at, (stream, slot)) in places.iter().enumerate() {
                if woken[at].0.swap(0, Ordering::Relaxed) == 0 {
                    continue;
                }
                moved = true;
                let waker = Waker::from(woken[at].clone());
                let mut cx = Context::from_waker(&waker);
                while left[at] > 0
                    && let Poll::Ready(room) = poll_room(slot, 16 << 10, &mut cx)
                {
                    held.push_back(
                        send_buffer.hold(*stream, Bytes::from(vec![0; room.min(16 << 10)])),
                    );
                    order.push(*stream);
                    left[at] -= 1;
                }
            }
            if !moved {
                assert!(
                    held.pop_front().is_some(),
                    "no stream is woken, and nothing is left to write: {order:?}"
                );
            }
        }
        order
    }

    /// Pieces that are taken before any stream waits.
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
        let send_buffer = SendBuffer::new(64 << 10);
        let mut cx = Context::from_waker(Waker::noop());
        let slot = send_buffer.slot(1, ORDERED, None, false);
        let held = send_buffer.hold(1, Bytes::from(vec![0; 56 << 10]));
        assert_eq!(send_buffer.room_for(1000, Priority::default), 0);
        assert!(poll_room(&slot, 1000, &mut cx).is_pending());
        assert_eq!(
            send_buffer.room_for(1000, Priority::default),
            (8 << 10) / 3 + 1,
            "from the part reserved for urgent content"
        );
        assert_eq!(send_buffer.room_for(1000, || URGENT), 8 << 10);
        assert_eq!(send_buffer.room_for(5000, Priority::default), 0);
        drop(held);
        assert_eq!(send_buffer.room_for(5000, Priority::default), 0, "another stream waits");
        assert!(poll_room(&slot, 1000, &mut cx).is_ready());
        assert_eq!(send_buffer.room_for(5000, Priority::default), 56 << 10);
    }

    #[test]
    fn endless_content_takes_turns_whatever_is_said_of_it() {
        let send_buffer = SendBuffer::new(64 << 10);
        let mut cx = Context::from_waker(Waker::noop());
        let [tunnel, other] =
            [send_buffer.slot(1, ORDERED, None, true), send_buffer.slot(3, ORDERED, None, false)];
        send_buffer.set_priority(1, |_| ORDERED);
        let held = send_buffer.hold(1, Bytes::from(vec![0; 64 << 10]));
        assert!(
            poll_room(&other, 1, &mut cx).is_pending()
                && poll_room(&tunnel, 1, &mut cx).is_pending()
        );
        drop(held);
        let turns = [&tunnel, &other].map(|slot| poll_room(slot, 1, &mut cx));
        assert!(
            turns.contains(&Poll::Ready(16 << 10)),
            "non-incremental, the first would get everything: {turns:?}"
        );
    }

    #[test]
    fn what_the_response_says_outlasts_what_the_client_says_later() {
        let send_buffer = SendBuffer::new(1000);
        let _place = send_buffer.slot(1, ORDERED, Some(Bytes::from_static(b"u=6")), false);
        let priority = || send_buffer.queue.borrow().places[&1].priority;
        assert_eq!(priority(), Priority { urgency: 6, incremental: false });
        send_buffer.set_priority(1, |_| Priority { urgency: 1, incremental: true });
        assert_eq!(priority(), Priority { urgency: 6, incremental: true });
    }

    #[test]
    fn order_changes_while_it_waits_and_who_leaves_gives_its_turn_on() {
        let send_buffer = SendBuffer::new(1000);
        let count = [0; 2].map(|_| Arc::<Count>::default());
        let wakers = count.clone().map(Waker::from);
        let [mut first, mut second] = wakers.each_ref().map(Context::from_waker);
        let places =
            [send_buffer.slot(1, ORDERED, None, false), send_buffer.slot(3, ORDERED, None, false)];
        let held = send_buffer.hold(1, Bytes::from_static(&[0; 1000]));
        assert!(poll_room(&places[0], 1, &mut first).is_pending());
        assert!(poll_room(&places[1], 1, &mut second).is_pending());
        send_buffer.set_priority(3, |_| URGENT);
        drop(held);
        assert_eq!(count.each_ref().map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
        assert!(poll_room(&places[0], 1, &mut first).is_pending(), "another stream goes first");
        let [slot, other] = places;
        drop(other);
        assert_eq!(count[0].0.load(Ordering::Relaxed), 1);
        assert!(poll_room(&slot, 1, &mut first).is_ready());
        assert_eq!(
            send_buffer.room_for(1000, Priority::default),
            875,
            "an eighth is reserved for more urgent content"
        );
    }
}
