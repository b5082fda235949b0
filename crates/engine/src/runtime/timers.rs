//! Timers of the worker's futures.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Deadlines in order.
#[derive(Clone, Default)]
pub(crate) struct Timers {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Default)]
struct Inner {
    next_id: u64,
    waiting: BTreeMap<(Instant, u64), Waker>,
    /// The time of the current turn: everything up to here has fired.
    now: Option<Instant>,
}

impl Timers {
    pub(crate) fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep { timers: self.clone(), deadline, waiting: None }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.borrow().waiting.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Wakes all whose deadline has come.
    pub(crate) fn advance(&self, now: Instant) {
        let mut due = Vec::new();
        {
            let mut inner = self.borrow();
            inner.now = Some(now);
            while let Some(entry) = inner.waiting.first_entry() {
                if entry.key().0 > now {
                    break;
                }
                due.push(entry.remove());
            }
        }
        due.into_iter().for_each(Waker::wake);
    }

    fn borrow(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }
}

/// Ready when its deadline has passed. Made by [`Handle::sleep`](super::Handle::sleep).
pub struct Sleep {
    timers: Timers,
    deadline: Instant,
    /// The number under which a waker is stored now, and which.
    waiting: Option<(u64, Waker)>,
}

impl Sleep {
    /// Moves the deadline.
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.cancel();
        self.deadline = deadline;
    }

    fn cancel(&mut self) {
        if let Some((id, _)) = self.waiting.take() {
            self.timers.borrow().waiting.remove(&(self.deadline, id));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut inner = this.timers.borrow();
        if inner.now.is_some_and(|now| now >= this.deadline) {
            if let Some((id, _)) = this.waiting.take() {
                inner.waiting.remove(&(this.deadline, id));
            }
            return Poll::Ready(());
        }
        let id = match &this.waiting {
            // A connection's is polled whenever something comes, mostly by the task that waits already.
            Some((_, waker)) if waker.will_wake(cx.waker()) => return Poll::Pending,
            Some((id, _)) => *id,
            None => {
                inner.next_id += 1;
                inner.next_id
            }
        };
        this.waiting = Some((id, cx.waker().clone()));
        inner.waiting.insert((this.deadline, id), cx.waker().clone());
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
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

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
