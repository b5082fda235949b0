//! Timers of the worker's futures.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

/// Durations that have a line of their own at once.
const LINES: usize = 16;

/// Empty places that are kept for the next timers when there is none. Until then there are as many as there were timers at one time.
const KEPT_PLACES: usize = 1 << 10;

/// Who waits for what time.
#[derive(Clone, Default)]
pub(crate) struct Timers {
    inner: Rc<RefCell<Inner>>,
}

/// Most timers are time-outs of a few durations that never come: each of them goes to the end of its duration's line and leaves it again,
/// which takes no search. The others are in a tree.
#[derive(Default)]
struct Inner {
    next_id: u64,
    places: Slab<Place>,
    lines: Vec<Line>,
    others: BTreeSet<(Instant, usize)>,
    /// The time of the current turn: everything up to here has fired.
    now: Option<Instant>,
}

/// Those who sleep for the same duration, in the order of their deadlines.
struct Line {
    duration: Duration,
    first: Option<u32>,
    last: Option<u32>,
}

struct Place {
    /// Never used twice, while the place may be.
    id: u64,
    deadline: Instant,
    waker: Waker,
    /// The place in a line, if it is in one.
    link: Option<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    line: u32,
    before: Option<u32>,
    next: Option<u32>,
}

impl Timers {
    pub(crate) fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep { timers: self.clone(), deadline, duration: None, place: None }
    }

    /// The same for one of many that sleep for `duration` from `now` on.
    pub(crate) fn sleep(&self, now: Instant, duration: Duration) -> Sleep {
        Sleep { timers: self.clone(), deadline: now + duration, duration: Some(duration), place: None }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let inner = self.inner.borrow();
        let others = inner.others.first().map(|(deadline, _)| *deadline);
        inner.lines.iter().filter_map(|line| Some(inner.places[line.first? as usize].deadline)).chain(others).min()
    }

    /// Wakes all whose deadline has come.
    pub(crate) fn advance(&self, now: Instant) {
        let mut due = Vec::new();
        {
            let mut inner = self.borrow();
            inner.now = Some(now);
            for line in 0..inner.lines.len() {
                while let Some(first) = inner.lines[line].first
                    && inner.places[first as usize].deadline <= now
                {
                    due.push(inner.remove(first as usize).waker);
                }
            }
            while let Some((deadline, key)) = inner.others.first().copied()
                && deadline <= now
            {
                due.push(inner.remove(key).waker);
            }
        }
        due.into_iter().for_each(Waker::wake);
    }

    fn borrow(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }
}

impl Inner {
    /// Takes a place for a timer, and returns where it is and its number.
    fn insert(&mut self, deadline: Instant, duration: Option<Duration>, waker: Waker) -> (usize, u64) {
        self.next_id += 1;
        let id = self.next_id;
        let line = duration.and_then(|duration| self.line(duration, deadline));
        let link = line.map(|line| Link { line: line as u32, before: self.lines[line].last, next: None });
        let key = self.places.insert(Place { id, deadline, waker, link });
        match link {
            Some(Link { line, before, .. }) => {
                let line = &mut self.lines[line as usize];
                line.last = Some(key as u32);
                match before {
                    Some(before) => self.link(before).next = Some(key as u32),
                    None => line.first = Some(key as u32),
                }
            }
            None => drop(self.others.insert((deadline, key))),
        }
        (key, id)
    }

    /// A line to whose end a timer may go. `None` if all are those of other durations, or it would be out of order: what was begun earlier
    /// may come to wait later.
    fn line(&mut self, duration: Duration, deadline: Instant) -> Option<usize> {
        // More than that a link cannot name.
        if self.places.len() >= u32::MAX as usize {
            return None;
        }
        let place = match self.lines.iter().position(|line| line.duration == duration) {
            Some(place) => place,
            None if self.lines.len() < LINES => {
                self.lines.push(Line { duration, first: None, last: None });
                self.lines.len() - 1
            }
            None => {
                let empty = self.lines.iter().position(|line| line.first.is_none())?;
                self.lines[empty].duration = duration;
                empty
            }
        };
        let is_in_order = self.lines[place].last.is_none_or(|last| self.places[last as usize].deadline <= deadline);
        is_in_order.then_some(place)
    }

    fn link(&mut self, key: u32) -> &mut Link {
        self.places[key as usize].link.as_mut().expect("invariant: it is in a line")
    }

    fn remove(&mut self, key: usize) -> Place {
        let place = self.places.remove(key);
        if let Some(Link { line, before, next }) = place.link {
            match before {
                Some(before) => self.link(before).next = next,
                None => self.lines[line as usize].first = next,
            }
            match next {
                Some(next) => self.link(next).before = before,
                None => self.lines[line as usize].last = before,
            }
        } else {
            self.others.remove(&(place.deadline, key));
        }
        if self.places.is_empty() && self.places.capacity() > KEPT_PLACES {
            self.places = Slab::new();
        }
        place
    }

    /// The place of a timer that has not fired.
    fn place(&mut self, (key, id): (usize, u64)) -> Option<&mut Place> {
        self.places.get_mut(key).filter(|place| place.id == id)
    }
}

/// Ready when its deadline has passed. Made by [`Handle::sleep`](super::Handle::sleep).
pub struct Sleep {
    timers: Timers,
    deadline: Instant,
    /// How long it sleeps, if there are many like it.
    duration: Option<Duration>,
    /// Its place since it was polled, and the number that it has there.
    place: Option<(usize, u64)>,
}

impl Sleep {
    /// Moves the deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.cancel();
        (self.deadline, self.duration) = (deadline, None);
    }

    fn cancel(&mut self) {
        if let Some(place) = self.place.take() {
            let mut inner = self.timers.borrow();
            if inner.place(place).is_some() {
                // Its waker may be the last of a task that has sleeps itself.
                let removed = inner.remove(place.0);
                drop(inner);
                drop(removed);
            }
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut inner = this.timers.borrow();
        if inner.now.is_some_and(|now| now >= this.deadline) {
            drop(inner);
            this.cancel();
            return Poll::Ready(());
        }
        match this.place.and_then(|place| inner.place(place)) {
            // A connection's is polled whenever something comes, mostly by the task that waits already.
            Some(place) if place.waker.will_wake(cx.waker()) => {}
            Some(place) => {
                let before = std::mem::replace(&mut place.waker, cx.waker().clone());
                drop(inner);
                drop(before);
            }
            None => this.place = Some(inner.insert(this.deadline, this.duration, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_ready_at_its_deadline_and_not_before() {
        let timers = Timers::default();
        let start = Instant::now();
        let mut sleep = Box::pin(timers.sleep_until(start + Duration::from_secs(2)));
        let mut cx = Context::from_waker(Waker::noop());
        timers.advance(start);
        assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(timers.next_deadline(), Some(start + Duration::from_secs(2)));
        timers.advance(start + Duration::from_secs(1));
        assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Pending);
        timers.advance(start + Duration::from_secs(2));
        assert_eq!(sleep.as_mut().poll(&mut cx), Poll::Ready(()));
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    fn sleeps_of_any_durations_are_ready_at_their_deadlines() {
        let timers = Timers::default();
        let start = Instant::now();
        timers.advance(start);
        let mut cx = Context::from_waker(Waker::noop());
        // More durations than there are lines, some of them often, each begun a little later than the one before.
        let mut sleeps: Vec<_> = (0..200_u64)
            .map(|number| {
                let now = start + Duration::from_millis(number);
                let duration = Duration::from_millis(1000 + number * 7 % 23 * 100);
                (now + duration, Box::pin(timers.sleep(now, duration)))
            })
            .collect();
        // Polled in another order than that in which they were made.
        for index in 0..sleeps.len() {
            let index = index * 77 % sleeps.len();
            assert!(sleeps[index].1.as_mut().poll(&mut cx).is_pending());
        }
        // Some are gone before.
        let mut number = 0;
        sleeps.retain(|_| {
            number += 1;
            number % 3 != 0
        });
        while let Some(earliest) = sleeps.iter().map(|(deadline, _)| *deadline).min() {
            assert_eq!(timers.next_deadline(), Some(earliest));
            timers.advance(earliest);
            sleeps.retain_mut(|(deadline, sleep)| {
                let ready = sleep.as_mut().poll(&mut cx).is_ready();
                assert_eq!(ready, *deadline <= earliest);
                !ready
            });
        }
        assert_eq!(timers.next_deadline(), None);
        assert!(timers.borrow().places.is_empty() && timers.borrow().others.is_empty());
    }

    #[test]
    fn sleep_that_has_fired_leaves_alone_who_has_its_place_since() {
        let timers = Timers::default();
        let start = Instant::now();
        timers.advance(start);
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = Box::pin(timers.sleep(start, Duration::from_secs(1)));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        timers.advance(start + Duration::from_secs(1));
        let mut second = Box::pin(timers.sleep(start, Duration::from_secs(5)));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert_eq!(timers.next_deadline(), Some(start + Duration::from_secs(5)));
    }

    #[test]
    fn dropped_sleep_leaves_no_timer() {
        let timers = Timers::default();
        let start = Instant::now();
        let mut sleep = Box::pin(timers.sleep_until(start + Duration::from_secs(2)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(sleep);
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    fn reset_sleep_moves_its_only_timer() {
        let timers = Timers::default();
        let start = Instant::now();
        let mut sleep = Box::pin(timers.sleep_until(start + Duration::from_secs(2)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        sleep.reset(start + Duration::from_secs(5));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        timers.advance(start + Duration::from_secs(3));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!(timers.next_deadline(), Some(start + Duration::from_secs(5)));
    }
}
