//! State shared by a connection's exchanges and its wire.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::BytesMut;
use http::{HeaderMap, StatusCode};

use super::closing::PeerExpectation;
use crate::runtime::HoldsBack;

/// State shared by a connection's exchanges and its wire.
#[derive(Default)]
pub(super) struct WireState {
    pub(super) interim: RefCell<BytesMut>,
    /// A part of `interim` was sent, so the rest has to follow.
    pub(super) begun: Cell<bool>,
    /// Woken when all of `interim` was sent.
    connection: RefCell<Option<Waker>>,
    pub(super) refused: Cell<bool>,
    /// Number of request bodies whose reader has begun and may read on.
    pub(super) contents: Cell<usize>,
    /// Woken when a reader drops one of them.
    waits_for_content: RefCell<Option<Waker>>,
    /// The body of the latest request was abandoned before its end.
    unread: Cell<bool>,
    /// The response to the latest request announces that the connection ends.
    is_told: Cell<bool>,
    /// The body of the latest request has not arrived completely.
    pub(super) is_partial: Cell<bool>,
    /// A request that asks for an upgrade has arrived and is not decided yet.
    pub(super) is_undecided: Cell<bool>,
    /// Numbers of heads handed on, of those that have become requests, and of those whose responses
    /// have begun.
    pub(super) heads: Cell<u32>,
    pub(super) requests: Cell<u32>,
    answers: Cell<u32>,
    /// The turn in which the latest request arrived, or its body was dropped.
    asked_in: Cell<u64>,
    /// A body was dropped since this was last checked.
    is_released: Cell<bool>,
    /// Maximum field lines of a head that hyper's current instance accepts.
    pub(super) room: Cell<usize>,
    pub(super) wants_more_lines: Cell<bool>,
    /// hyper asks for the next head but still keeps the previous body, since it has trailers. A
    /// reader of that body would wait for its end until another request arrives.
    pub(super) has_unread_trailers: Cell<bool>,
    /// The latest request whose body had arrived completely when another hyper instance took over
    /// for its reader.
    completed: Cell<u32>,
    /// hyper could not write all that it has.
    pub(super) blocked: Cell<bool>,
    /// A handler's future was polled in this poll of the connection.
    has_worked: Cell<bool>,
    /// Responses are held back for others that are due soon.
    pub(super) holding: Cell<bool>,
    /// The current phase of the worker's turns, and the phase in which the holding began.
    phase: Cell<u32>,
    held_since: Cell<u32>,
    /// The holding has begun since this was last checked.
    has_begun_to_hold: Cell<bool>,
    persistence: RefCell<Option<Rc<Persistence>>>,
}

/// Lets a response end the connection's persistence after its head was sent: no other request
/// follows (RFC 9112, section 9.3).
#[derive(Default)]
pub(crate) struct Persistence {
    has_ended: Cell<bool>,
    connection: RefCell<Option<Waker>>,
}

impl Persistence {
    pub(crate) fn end(&self) {
        self.has_ended.set(true);
        wake(&self.connection);
    }
}

impl WireState {
    /// Returns the persistence, created on first use.
    pub(super) fn persistence(&self) -> Rc<Persistence> {
        self.persistence.borrow_mut().get_or_insert_default().clone()
    }

    /// Ready when no request is to follow.
    pub(super) fn poll_last(&self, cx: &TaskContext<'_>) -> Poll<()> {
        let persistence = self.persistence.borrow();
        let Some(persistence) = &*persistence else { return Poll::Pending };
        if persistence.has_ended.get() {
            return Poll::Ready(());
        }
        *persistence.connection.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the reader has refused a request.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.get()
    }

    /// Whether a head waits for a hyper instance that accepts as many lines. Another instance may
    /// take over once this one has written all that it has and no request is open.
    pub(super) fn wants_more_lines(&self) -> bool {
        self.wants_more_lines.get() && !self.blocked.get()
    }

    /// Whether another hyper instance has to take over for the reader of a body, as for
    /// [`WireState::wants_more_lines`]. The current one is idle: all requests are answered.
    pub(super) fn has_unread_trailers(&self) -> bool {
        self.has_unread_trailers.get() && !self.blocked.get()
    }

    /// Notes that another hyper instance takes over. Returns whether that is for the reader of a
    /// body.
    pub(super) fn replace_parser(&self) -> bool {
        let has_unread_trailers = self.has_unread_trailers.take();
        if has_unread_trailers {
            self.completed.set(self.requests.get());
        }
        has_unread_trailers
    }

    /// Whether the body of request `number` has arrived completely, although the previous hyper
    /// instance reports otherwise.
    pub(super) fn is_complete(&self, number: u32) -> bool {
        self.completed.get().wrapping_sub(number) <= u32::MAX / 2
    }

    /// Notes that a handler begins to read the body of a request.
    pub(super) fn begin_content(&self) {
        self.contents.set(self.contents.get() + 1);
    }

    /// Notes that such a body has ended or is not read any more.
    pub(super) fn end_content(&self) {
        self.contents.set(self.contents.get() - 1);
    }

    /// Notes that the body of a request is dropped, whether its reader had begun or not.
    pub(super) fn release_content(&self) {
        self.is_released.set(true);
        wake(&self.waits_for_content);
    }

    /// Has the connection polled again when the body of a request is dropped.
    pub(super) fn wait_for_content(&self, cx: &TaskContext<'_>) {
        *self.waits_for_content.borrow_mut() = Some(cx.waker().clone());
    }

    /// Notes that the body of a request is abandoned before its end.
    pub(super) fn give_up_content(&self, number: u32) {
        // hyper has read all of any earlier body.
        self.unread.set(number == self.requests.get());
    }

    /// Whether a response made now has to announce the end of the connection, since the client
    /// still sends a body that is not read.
    pub(super) fn must_close(&self) -> bool {
        let must_close = self.unread.get() && self.is_partial.get();
        self.is_told.set(must_close);
        must_close
    }

    /// Returns what the client may still send when its connection is closed.
    pub(super) fn rest(&self) -> PeerExpectation {
        match (self.unread.get(), self.is_told.get()) {
            (false, _) => PeerExpectation::Nothing,
            (true, false) => PeerExpectation::MoreRequests,
            (true, true) => PeerExpectation::End,
        }
    }

    /// Notes that the connection is polled again. `phase`: [`crate::runtime::Handle::phase`].
    pub(super) fn begin_poll(&self, phase: u32) {
        self.has_worked.set(false);
        self.phase.set(phase);
    }

    /// After a poll: whether responses are held back since that poll. The connection then has to be
    /// polled once more before it waits for anything.
    pub(super) fn begins_to_hold(&self) -> bool {
        self.has_begun_to_hold.take() && self.holding.get()
    }

    /// Whether a response may wait for the next one: a received request has none yet, and may get
    /// it in this phase.
    pub(super) fn may_hold(&self) -> bool {
        self.heads != self.answers && (!self.holding.get() || self.held_since == self.phase)
    }

    pub(super) fn hold(&self) {
        if !self.holding.replace(true) {
            self.held_since.set(self.phase.get());
            self.has_begun_to_hold.set(true);
        }
    }

    /// Whether this is the first piece of work in this poll of the connection. Notes that it has
    /// begun.
    pub(super) fn begin_work(&self) -> bool {
        !self.has_worked.replace(true)
    }

    /// Sets the number of lines that hyper accepts from here on.
    pub(super) fn set_max_lines(&self, lines: usize) {
        self.room.set(lines);
        self.wants_more_lines.set(false);
    }

    /// Counts heads that are handed on.
    pub(super) fn add_heads(&self, count: u32) {
        self.heads.set(self.heads.get().wrapping_add(count));
    }

    /// Whether a request arrived in this turn, or a request's body was dropped.
    pub(super) fn is_asked_in(&self, turn: u64) -> bool {
        if self.is_released.take() {
            self.asked_in.set(turn);
        }
        self.asked_in.get() == turn
    }

    /// Notes that a head has become a request. Returns whether it is the one that the reader waits
    /// for.
    pub(super) fn on_request(&self, turn: u64) -> bool {
        self.asked_in.set(turn);
        self.unread.set(false);
        self.is_told.set(false);
        self.requests.set(self.requests.get().wrapping_add(1));
        self.requests == self.heads && self.is_undecided.get()
    }

    /// Notes that hyper is about to get the response to a request.
    pub(super) fn on_answer(&self) {
        self.answers.set(self.answers.get().wrapping_add(1));
    }

    /// Notes that the requested upgrade is declined, so the next request follows.
    pub(super) fn decline_upgrade(&self) {
        self.is_undecided.set(false);
    }

    /// Queues an interim response, sent once hyper has written everything before it.
    pub(super) fn send_interim(&self, status: StatusCode, headers: &HeaderMap) {
        let mut interim = self.interim.borrow_mut();
        let reason = status.canonical_reason().unwrap_or_default();
        write!(interim, "HTTP/1.1 {} {reason}\r\n", status.as_str())
            .expect("invariant: writing to memory succeeds");
        for (name, value) in headers {
            interim.extend_from_slice(name.as_str().as_bytes());
            interim.extend_from_slice(b": ");
            interim.extend_from_slice(value.as_bytes());
            interim.extend_from_slice(b"\r\n");
        }
        interim.extend_from_slice(b"\r\n");
    }

    pub(super) fn wake_informed(&self) {
        wake(&self.connection);
    }

    /// Ready when no interim response is queued, so that the final one may be written.
    pub(super) fn poll_informed(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.interim.borrow().is_empty() {
            return Poll::Ready(());
        }
        *self.connection.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

pub(super) fn wake(waiting: &RefCell<Option<Waker>>) {
    let waker = waiting.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl HoldsBack for WireState {
    fn is_holding(&self) -> bool {
        self.holding.get()
    }
}
