//! Requests that wait for a connection, served in the order in which they came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::Error;
use crate::connections::Connections;
use crate::lease::Lease;

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: RefCell<VecDeque<Rc<Place>>>,
    next_number: Cell<u64>,
}

/// A request's place in the queue.
struct Place {
    number: u64,
    result: RefCell<Option<Result<Lease, Error>>>,
    waker: Cell<Option<Waker>>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// What the next place's number will be.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.get()
    }

    /// Gives the first in the queue what it waits for.
    pub(crate) fn serve(&self, lease: Lease) {
        let first = self.waiting.borrow_mut().pop_front();
        match first {
            Some(first) => first.resolve(Ok(lease)),
            None => lease.complete(),
        }
    }

    /// Takes out somebody who does not wait any more. Who was served is not there, and need not be searched for.
    fn leave(&self, place: &Place) {
        let mut waiting = self.waiting.borrow_mut();
        // The numbers grow from the first to the last.
        if waiting.front().is_some_and(|first| first.number <= place.number)
            && let Ok(index) = waiting.binary_search_by_key(&place.number, |place| place.number)
        {
            waiting.remove(index);
        }
    }

    /// Tells those with a number below `before` that there will be no connection, or the first of them alone.
    pub(crate) fn fail(&self, error: &Error, before: u64, first_alone: bool) {
        let next = || self.waiting.borrow_mut().pop_front_if(|place| place.number < before);
        while let Some(place) = next() {
            place.resolve(Err(error.clone()));
            if first_alone {
                return;
            }
        }
    }
}

impl Place {
    fn resolve(&self, result: Result<Lease, Error>) {
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Somebody in the queue. Dropped, they are not any more, and a connection that came too late is for the next one.
pub(crate) struct Ticket<'a> {
    connections: &'a Connections,
    place: Rc<Place>,
}

impl<'a> Ticket<'a> {
    /// A place at the end.
    pub(crate) fn new(connections: &'a Connections) -> Self {
        let queue = &connections.queue;
        let number = queue.next_number.get();
        queue.next_number.set(number + 1);
        let place = Rc::new(Place { number, result: RefCell::default(), waker: Cell::default() });
        queue.waiting.borrow_mut().push_back(place.clone());
        Self { connections, place }
    }

    pub(crate) async fn served(&self) -> Result<Lease, Error> {
        poll_fn(|cx| {
            let result = self.place.result.take();
            if result.is_none() {
                self.place.waker.set(Some(cx.waker().clone()));
            }
            result.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.connections.queue.leave(&self.place);
        let unused = self.place.result.take();
        if let Some(Ok(lease)) = unused {
            lease.complete();
        }
    }
}

/// Counts a request that waits, for a connection or on one.
pub(crate) struct Waiting<'a>(&'a Connections);

impl<'a> Waiting<'a> {
    pub(crate) fn new(connections: &'a Connections, limit: usize) -> Result<Self, Error> {
        let waiting = connections.waiting.get();
        if waiting >= limit {
            return Err(Error::Busy(connections.origin.to_string()));
        }
        connections.waiting.set(waiting + 1);
        Ok(Self(connections))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}
