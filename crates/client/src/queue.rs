//! Requests that wait for a connection, served in order of arrival.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::Error;
use crate::origin::Origin;

/// What requests wait for.
pub(crate) trait Served {
    /// Returns it to the pool, because no request waits for it any more.
    fn put_back(self);
}

/// The queue.
pub(crate) struct Queue<T> {
    waiting: RefCell<VecDeque<Rc<Entry<T>>>>,
    next_number: Cell<u64>,
}

/// A request's entry in the queue.
struct Entry<T> {
    number: u64,
    result: RefCell<Option<Result<T, Error>>>,
    waker: Cell<Option<Waker>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: RefCell::default(), next_number: Cell::default() }
    }
}

impl<T: Served> Queue<T> {
    pub(crate) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Returns the number of the next entry.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.get()
    }

    /// Gives the first entry its connection.
    pub(crate) fn serve(&self, item: T) {
        let first = self.waiting.borrow_mut().pop_front();
        match first {
            Some(first) => first.resolve(Ok(item)),
            None => item.put_back(),
        }
    }

    /// Removes an entry that no longer waits. A served entry is not in the queue and is not
    /// searched for.
    fn leave(&self, entry: &Entry<T>) {
        let mut waiting = self.waiting.borrow_mut();
        // The numbers increase from front to back.
        if waiting.front().is_some_and(|first| first.number <= entry.number)
            && let Ok(index) = waiting.binary_search_by_key(&entry.number, |entry| entry.number)
        {
            waiting.remove(index);
        }
    }

    /// Fails the entries with a number below `before`, or only the first of them.
    pub(crate) fn fail(&self, error: &Error, before: u64, first_alone: bool) {
        let next = || self.waiting.borrow_mut().pop_front_if(|entry| entry.number < before);
        while let Some(entry) = next() {
            entry.resolve(Err(error.clone()));
            if first_alone {
                return;
            }
        }
    }
}

impl<T> Entry<T> {
    fn resolve(&self, result: Result<T, Error>) {
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A request in the queue. Dropping it leaves the queue; a late connection passes to the next
/// request.
pub(crate) struct Ticket<'a, T: Served> {
    queue: &'a Queue<T>,
    entry: Rc<Entry<T>>,
}

impl<'a, T: Served> Ticket<'a, T> {
    /// Adds an entry at the end.
    pub(crate) fn new(queue: &'a Queue<T>) -> Self {
        let number = queue.next_number.get();
        queue.next_number.set(number + 1);
        let entry = Rc::new(Entry { number, result: RefCell::default(), waker: Cell::default() });
        queue.waiting.borrow_mut().push_back(entry.clone());
        Self { queue, entry }
    }

    pub(crate) async fn served(&self) -> Result<T, Error> {
        poll_fn(|cx| {
            let result = self.entry.result.take();
            if result.is_none() {
                self.entry.waker.set(Some(cx.waker().clone()));
            }
            result.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl<T: Served> Drop for Ticket<'_, T> {
    fn drop(&mut self) {
        self.queue.leave(&self.entry);
        let unused = self.entry.result.take();
        if let Some(Ok(item)) = unused {
            item.put_back();
        }
    }
}

/// Counts a request that waits for a connection or a stream.
pub(crate) struct WaitingCount<'a>(&'a Cell<usize>);

impl<'a> WaitingCount<'a> {
    /// `count`: the requests to `origin` that wait.
    pub(crate) fn new(
        count: &'a Cell<usize>,
        limit: usize,
        origin: &Origin,
    ) -> Result<Self, Error> {
        let waiting = count.get();
        if waiting >= limit {
            return Err(Error::Busy(origin.to_string()));
        }
        count.set(waiting + 1);
        Ok(Self(count))
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
