//! Tasks that wait for an event of a session.

use std::task::{Context as TaskContext, Waker};

use super::{Session, State};
use crate::transport::Dir;

/// Tasks that wait for the same event, each with the number of its [`WaitTicket`].
#[derive(Default)]
pub(super) struct WaitList {
    wakers: Vec<(u64, Waker)>,
    /// Number of tickets so far.
    given: u64,
}

impl WaitList {
    pub(super) fn register(&mut self, ticket: &mut Option<u64>, cx: &TaskContext<'_>) {
        let number = *ticket.get_or_insert_with(|| {
            self.given += 1;
            self.given
        });
        match self.wakers.iter_mut().find(|(known, _)| *known == number) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => self.wakers.push((number, cx.waker().clone())),
        }
    }

    /// Takes the wakers, to be woken outside of the borrow.
    pub(super) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_iter().map(|(_, waker)| waker).collect()
    }
}

/// The event that a task waits for.
#[derive(Clone, Copy)]
pub(crate) enum WaitFor {
    /// The next stream opened by the peer.
    Stream(Dir),
    Datagram,
    /// The session's end or drain.
    End,
}

/// A task's registration for an event of a session, removed when dropped.
pub(crate) struct WaitTicket<'a> {
    pub(super) session: &'a Session,
    pub(super) what: WaitFor,
    pub(super) number: Option<u64>,
}

impl WaitTicket<'_> {
    pub(super) fn register(&mut self, state: &mut State, cx: &TaskContext<'_>) {
        state.waiting(self.what).register(&mut self.number, cx);
    }
}

impl Drop for WaitTicket<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut state = self.session.state.borrow_mut();
            let wakers = &mut state.waiting(self.what).wakers;
            let left = wakers
                .iter()
                .position(|(known, _)| *known == number)
                .map(|place| wakers.swap_remove(place));
            // Dropped outside of the borrow: this may be the task's last waker.
            drop(state);
            drop(left);
        }
    }
}
