//! Timers of the worker's futures.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

/// Number of durations that have a list of their own.
const LINES: usize = 16;

/// Maximum number of free entries that are kept once there is no timer. Until then there are as
/// many as there were timers at one time.
const KEPT_ENTRIES: usize = 1 << 10;

/// The timers of a worker.
#[derive(Clone, Default)]
pub(crate) struct Timers {
    inner: Rc<RefCell<Inner>>,
}

/// Most timers are timeouts of a few durations that never expire. Each of them is appended to the
/// list of its duration and removed again, without a search. The others are in a tree.
#[derive(Default)]
struct Inner {
    next_id: u64,
    entries: Slab<TimerEntry>,
    lines: Vec<TimerList>,
    others: BTreeSet<(Instant, usize)>,
    /// Time of the current turn. All timers up to it have fired.
    now: Option<Instant>,
}

/// Timers of the same duration, in the order of their deadlines.
struct TimerList {
    duration: Duration,
    first: Option<u32>,
    last: Option<u32>,
}

struct TimerEntry {
    /// Never reused, unlike the entry.
    id: u64,
    deadline: Instant,
    waker: Waker,
    /// Position in a list, if it is in one.
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
        Sleep { timers: self.clone(), deadline, duration: None, entry: None }
    }

    /// Like [`Timers::sleep_until`], for one of many timers that sleep for `duration` from `now`
    /// on.
    pub(crate) fn sleep(&self, now: Instant, duration: Duration) -> Sleep {
        Sleep {
            timers: self.clone(),
            deadline: now + duration,
            duration: Some(duration),
            entry: None,
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let inner = self.inner.borrow();
        let others = inner.others.first().map(|(deadline, _)| *deadline);
        inner
            .lines
            .iter()
            .filter_map(|line| Some(inner.entries[line.first? as usize].deadline))
            .chain(others)
            .min()
    }

    /// Wakes all timers whose deadline has come.
    pub(crate) fn advance(&self, now: Instant) {
        let mut due = Vec::new();
        {
            let mut inner = self.borrow();
            inner.now = Some(now);
            for line in 0..inner.lines.len() {
                while let Some(first) = inner.lines[line].first
                    && inner.entries[first as usize].deadline <= now
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
    /// Inserts a timer. Returns its key and its ID.
    fn insert(
        &mut self,
        deadline: Instant,
        duration: Option<Duration>,
        waker: Waker,
    ) -> (usize, u64) {
        self.next_id += 1;
        let id = self.next_id;
        let line = duration.and_then(|duration| self.line(duration, deadline));
        let link =
            line.map(|line| Link { line: line as u32, before: self.lines[line].last, next: None });
        let key = self.entries.insert(TimerEntry { id, deadline, waker, link });
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

    /// Returns the list to which a timer may be appended. `None` if all lists belong to other
    /// durations, or if the timer would be out of order: an older sleep may be polled later.
    fn line(&mut self, duration: Duration, deadline: Instant) -> Option<usize> {
        // A link cannot address more.
        if self.entries.len() >= u32::MAX as usize {
            return None;
        }
        let index = match self.lines.iter().position(|line| line.duration == duration) {
            Some(index) => index,
            None if self.lines.len() < LINES => {
                self.lines.push(TimerList { duration, first: None, last: None });
                self.lines.len() - 1
            }
            None => {
                let empty = self.lines.iter().position(|line| line.first.is_none())?;
                self.lines[empty].duration = duration;
                empty
            }
        };
        let is_in_order = self.lines[index]
            .last
            .is_none_or(|last| self.entries[last as usize].deadline <= deadline);
        is_in_order.then_some(index)
    }

    fn link(&mut self, key: u32) -> &mut Link {
        self.entries[key as usize].link.as_mut().expect("invariant: the timer is in a list")
    }

    fn remove(&mut self, key: usize) -> TimerEntry {
        let entry = self.entries.remove(key);
        if let Some(Link { line, before, next }) = entry.link {
            match before {
                Some(before) => self.link(before).next = next,
                None => self.lines[line as usize].first = next,
            }
            match next {
                Some(next) => self.link(next).before = before,
                None => self.lines[line as usize].last = before,
            }
        } else {
            self.others.remove(&(entry.deadline, key));
        }
        if self.entries.is_empty() && self.entries.capacity() > KEPT_ENTRIES {
            self.entries = Slab::new();
        }
        entry
    }

    /// Returns the entry of a timer that has not fired.
    fn entry(&mut self, (key, id): (usize, u64)) -> Option<&mut TimerEntry> {
        self.entries.get_mut(key).filter(|entry| entry.id == id)
    }
}

/// Ready when its deadline has passed. Made by [`Handle::sleep`](super::Handle::sleep).
pub struct Sleep {
    timers: Timers,
    deadline: Instant,
    /// The duration, if there are many like it.
    duration: Option<Duration>,
    /// Key and ID of its entry, once it was polled.
    entry: Option<(usize, u64)>,
}

impl Sleep {
    /// Moves the deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.cancel();
        (self.deadline, self.duration) = (deadline, None);
    }

    fn cancel(&mut self) {
        if let Some(entry) = self.entry.take() {
            let mut inner = self.timers.borrow();
            if inner.entry(entry).is_some() {
                // The waker may hold the last reference to a task that has timers itself.
                let removed = inner.remove(entry.0);
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
        match this.entry.and_then(|entry| inner.entry(entry)) {
            // A connection's timer is polled on each event, usually by the task that waits already.
            Some(entry) if entry.waker.will_wake(cx.waker()) => {}
            Some(entry) => {
                let before = std::mem::replace(&mut entry.waker, cx.waker().clone());
                drop(inner);
                drop(before);
            }
            None => {
                this.entry = Some(inner.insert(this.deadline, this.duration, cx.waker().clone()));
            }
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
        // More durations than there are lists, some of them repeated, each begun a little later
        // than the previous one.
        let mut sleeps: Vec<_> = (0..200_u64)
            .map(|number| {
                let now = start + Duration::from_millis(number);
                let duration = Duration::from_millis(1000 + number * 7 % 23 * 100);
                (now + duration, Box::pin(timers.sleep(now, duration)))
            })
            .collect();
        // Polled in a different order than created.
        for index in 0..sleeps.len() {
            let index = index * 77 % sleeps.len();
            assert!(sleeps[index].1.as_mut().poll(&mut cx).is_pending());
        }
        // Some are dropped before.
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
        assert!(timers.borrow().entries.is_empty() && timers.borrow().others.is_empty());
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
