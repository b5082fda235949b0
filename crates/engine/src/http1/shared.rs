//! What the exchanges of a connection and its wire tell each other.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::BytesMut;
use http::{HeaderMap, StatusCode};

use super::Rest;
use crate::runtime::Holds;

/// What the connection's exchanges share with its wire.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) interim: RefCell<BytesMut>,
    /// Some bytes of `interim` were sent, so the others have to follow.
    pub(super) begun: Cell<bool>,
    /// Woken when all of `interim` was sent.
    connection: RefCell<Option<Waker>>,
    pub(super) refused: Cell<bool>,
    /// Contents of requests that somebody has begun to read and may read on.
    pub(super) contents: Cell<usize>,
    /// Woken when somebody lets go of one.
    waits_for_content: RefCell<Option<Waker>>,
    /// The content of the latest request was given up before its end.
    unread: Cell<bool>,
    /// Its answer says that the connection ends.
    is_told: Cell<bool>,
    /// Not all of the latest content has come.
    pub(super) is_partial: Cell<bool>,
    /// A request has come that asks for an upgrade; what becomes of that is not known.
    pub(super) is_undecided: Cell<bool>,
    /// Heads that were handed on, those that have become requests, and those of them whose answers have begun.
    pub(super) heads: Cell<u32>,
    pub(super) requests: Cell<u32>,
    answers: Cell<u32>,
    /// The turn in which the latest request came, or its content was let go of.
    asked_in: Cell<u64>,
    /// Content was let go of since this was looked at.
    is_released: Cell<bool>,
    /// The most lines of a head that the library has room for.
    pub(super) room: Cell<usize>,
    pub(super) wants_room: Cell<bool>,
    /// The library asks for the next head, and has not let go of the content before, since that has trailers: whoever reads it would wait for
    /// its end until there is another request.
    pub(super) keeps_content: Cell<bool>,
    /// The latest request whose content had come when another library took over for that.
    completed: Cell<u32>,
    /// The library could not write all that it has.
    pub(super) blocked: Cell<bool>,
    /// A handler's future was polled in this poll of the connection.
    has_worked: Cell<bool>,
    /// Answers are held back for others, to be made soon.
    pub(super) holding: Cell<bool>,
    /// The phase of the worker's turns that runs, and the one in which the holding began.
    phase: Cell<u32>,
    held_since: Cell<u32>,
    /// It has begun since that was asked last.
    has_begun_to_hold: Cell<bool>,
    persistence: RefCell<Option<Rc<Persistence>>>,
}

/// What a response may end when its head has gone already: that other requests follow it (RFC 9112, section 9.3).
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

impl Shared {
    /// For a handler that may want it.
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

    /// Whether a head waits for a library that has room for all its lines. Another one may take over where this one has written all that it
    /// has, and no request is open.
    pub(super) fn wants_room(&self) -> bool {
        self.wants_room.get() && !self.blocked.get()
    }

    /// Whether another library has to take over for somebody who reads, as for [`Shared::wants_room`]. It is idle: all is answered.
    pub(super) fn keeps_content(&self) -> bool {
        self.keeps_content.get() && !self.blocked.get()
    }

    /// Another library takes over. Returns whether that is for somebody who reads.
    pub(super) fn take_over(&self) -> bool {
        let keeps_content = self.keeps_content.take();
        if keeps_content {
            self.completed.set(self.requests.get());
        }
        keeps_content
    }

    /// Whether the content of request `number` has come, although the library that has gone says otherwise.
    pub(super) fn is_complete(&self, number: u32) -> bool {
        self.completed.get().wrapping_sub(number) <= u32::MAX / 2
    }

    /// Somebody begins to read the content of a request.
    pub(super) fn begin_content(&self) {
        self.contents.set(self.contents.get() + 1);
    }

    /// What was begun has come to its end, or is not read any more.
    pub(super) fn end_content(&self) {
        self.contents.set(self.contents.get() - 1);
    }

    /// Somebody lets go of the content of a request, which was begun or not.
    pub(super) fn release_content(&self) {
        self.is_released.set(true);
        wake(&self.waits_for_content);
    }

    /// Has the connection polled again when somebody lets go of the content of a request.
    pub(super) fn wait_for_content(&self, cx: &TaskContext<'_>) {
        *self.waits_for_content.borrow_mut() = Some(cx.waker().clone());
    }

    /// The content of a request is given up before its end.
    pub(super) fn give_up_content(&self, number: u32) {
        // Of one before, the library has taken in all.
        self.unread.set(number == self.requests.get());
    }

    /// Whether an answer that is made now has to say that the connection ends with it, since the client still sends what nobody takes in.
    pub(super) fn must_close(&self) -> bool {
        let must_close = self.unread.get() && self.is_partial.get();
        self.is_told.set(must_close);
        must_close
    }

    /// What the client may still send when its connection is closed.
    pub(super) fn rest(&self) -> Rest {
        match (self.unread.get(), self.is_told.get()) {
            (false, _) => Rest::Nothing,
            (true, false) => Rest::Untold,
            (true, true) => Rest::Told,
        }
    }

    /// The connection is polled anew. `phase`: [`crate::runtime::Handle::phase`].
    pub(super) fn begin_poll(&self, phase: u32) {
        self.has_worked.set(false);
        self.phase.set(phase);
    }

    /// After a poll: whether answers are held back, and that has just begun. The connection has to be polled once more before it waits for
    /// anything.
    pub(super) fn begins_to_hold(&self) -> bool {
        self.has_begun_to_hold.take() && self.holding.get()
    }

    /// Whether an answer may wait for the next one: a request is there that has none, and may have it in this phase.
    pub(super) fn may_hold(&self) -> bool {
        self.heads != self.answers && (!self.holding.get() || self.held_since == self.phase)
    }

    pub(super) fn hold(&self) {
        if !self.holding.replace(true) {
            self.held_since.set(self.phase.get());
            self.has_begun_to_hold.set(true);
        }
    }

    /// Whether nothing was made yet in this poll of the connection, as the next piece of work is from here on.
    pub(super) fn begin_work(&self) -> bool {
        !self.has_worked.replace(true)
    }

    /// The library has room for so many lines from here on.
    pub(super) fn set_room(&self, lines: usize) {
        self.room.set(lines);
        self.wants_room.set(false);
    }

    /// So many heads are handed on.
    pub(super) fn add_heads(&self, count: u32) {
        self.heads.set(self.heads.get().wrapping_add(count));
    }

    /// Whether a request has come in this turn, or somebody was given the end of its content.
    pub(super) fn is_asked_in(&self, turn: u64) -> bool {
        if self.is_released.take() {
            self.asked_in.set(turn);
        }
        self.asked_in.get() == turn
    }

    /// A head has become a request. Returns whether it is the one that the reader waits for.
    pub(super) fn on_request(&self, turn: u64) -> bool {
        self.asked_in.set(turn);
        self.unread.set(false);
        self.is_told.set(false);
        self.requests.set(self.requests.get().wrapping_add(1));
        self.requests == self.heads && self.is_undecided.get()
    }

    /// The library is about to be given the answer to a request.
    pub(super) fn on_answer(&self) {
        self.answers.set(self.answers.get().wrapping_add(1));
    }

    /// The request that asks for an upgrade gets none, so what follows it is the next request.
    pub(super) fn decline_upgrade(&self) {
        self.is_undecided.set(false);
    }

    /// Queues an interim response, sent once the library has written all that came before.
    pub(super) fn inform(&self, status: StatusCode, headers: &HeaderMap) {
        let mut interim = self.interim.borrow_mut();
        let reason = status.canonical_reason().unwrap_or_default();
        write!(interim, "HTTP/1.1 {} {reason}\r\n", status.as_str()).expect("invariant: memory takes what is written to it");
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

    /// Ready when no interim response waits, so that the final one may be written.
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

impl Holds for Shared {
    fn is_holding(&self) -> bool {
        self.holding.get()
    }
}
