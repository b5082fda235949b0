//! Who waits for something of a session.

use std::task::{Context as TaskContext, Waker};

use super::{Session, State};
use crate::transport::Dir;

/// Tasks that wait for the same thing, each with the number of its [`Ticket`].
#[derive(Default)]
pub(super) struct Waiting {
    wakers: Vec<(u64, Waker)>,
    /// Tickets that were given.
    given: u64,
}

impl Waiting {
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

    /// The tasks, to be woken when nothing is borrowed.
    pub(super) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_iter().map(|(_, waker)| waker).collect()
    }
}

/// What a task waits for.
#[derive(Clone, Copy)]
pub(crate) enum For {
    /// The peer's next stream.
    Stream(Dir),
    Datagram,
    /// The end, or the wish that it comes.
    End,
}

/// A place among those who wait for something of a session. It is given back when the wait is given up.
pub(crate) struct Ticket<'a> {
    pub(super) session: &'a Session,
    pub(super) what: For,
    pub(super) number: Option<u64>,
}

impl Ticket<'_> {
    pub(super) fn register(&mut self, state: &mut State, cx: &TaskContext<'_>) {
        state.waiting(self.what).register(&mut self.number, cx);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut state = self.session.state.borrow_mut();
            let wakers = &mut state.waiting(self.what).wakers;
            let left = wakers.iter().position(|(known, _)| *known == number).map(|place| wakers.swap_remove(place));
            // Dropped when nothing is borrowed: it may be the last of its task.
            drop(state);
            drop(left);
        }
    }
}
