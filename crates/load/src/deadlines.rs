//! Timeouts of all requests by periodic checks, in place of a timer for each.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Number of checks within the timeout.
const LOOKS: u32 = 20;
/// Minimum and maximum time between checks.
const STEPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// The reason for ending a request early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutOff {
    TimedOut,
    Interrupted,
}

/// A deadline for one request at a time.
#[derive(Default)]
pub(crate) struct Deadline {
    due: Cell<Option<Instant>>,
    cut: Cell<Option<CutOff>>,
    waker: RefCell<Option<Waker>>,
}

/// The deadlines of all requests of a thread.
#[derive(Default)]
pub(crate) struct Deadlines {
    seats: RefCell<Vec<Rc<Deadline>>>,
}

impl Deadlines {
    pub(crate) fn deadline(&self) -> Rc<Deadline> {
        let deadline = Rc::<Deadline>::default();
        self.seats.borrow_mut().push(deadline.clone());
        deadline
    }

    /// Returns the time between two checks.
    pub(crate) fn step(timeout: Duration) -> Duration {
        (timeout / LOOKS).clamp(STEPS.0, STEPS.1)
    }

    /// Cuts off requests whose deadline has passed.
    pub(crate) fn check(&self, now: Instant) {
        for deadline in &*self.seats.borrow() {
            if deadline.due.get().is_some_and(|deadline| deadline <= now) {
                deadline.cut(CutOff::TimedOut);
            }
        }
    }

    /// Cuts off all requests.
    pub(crate) fn interrupt(&self) {
        for deadline in &*self.seats.borrow() {
            if deadline.due.get().is_some() {
                deadline.cut(CutOff::Interrupted);
            }
        }
    }
}

impl Deadline {
    fn cut(&self, cut: CutOff) {
        self.due.set(None);
        self.cut.set(Some(cut));
        // Wakers of the thread's executor only queue a task, so this is not reentered.
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Runs `future` until it is done or cut off at `deadline`. A future that is cut off must be
    /// dropped.
    pub(crate) async fn guard<T>(
        &self,
        deadline: Instant,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, CutOff> {
        self.cut.set(None);
        self.due.set(Some(deadline));
        let result = poll_fn(|cx| {
            if let Some(cut) = self.cut.take() {
                return Poll::Ready(Err(cut));
            }
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            let mut waker = self.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
        self.due.set(None);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn request_is_cut_at_its_deadline_and_not_before() {
        let watch = Deadlines::default();
        let deadline = watch.deadline();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let request = pin!(pending::<()>());
        let mut guarded = pin!(deadline.guard(now + second, request));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(guarded.as_mut().poll(&mut cx).is_pending());
        watch.check(now + second / 2);
        assert!(guarded.as_mut().poll(&mut cx).is_pending());
        watch.check(now + second);
        assert_eq!(guarded.as_mut().poll(&mut cx), Poll::Ready(Err(CutOff::TimedOut)));
    }

    #[test]
    fn cut_of_one_request_does_not_reach_the_next() {
        let watch = Deadlines::default();
        let deadline = watch.deadline();
        let now = Instant::now();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let request = pin!(pending::<()>());
            let mut first = pin!(deadline.guard(now, request));
            assert!(first.as_mut().poll(&mut cx).is_pending());
            watch.check(now);
        }
        let request = pin!(ready(7));
        let mut second = pin!(deadline.guard(now + Duration::from_secs(1), request));
        assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(7)));
        // Without a running request there is nothing to interrupt.
        watch.interrupt();
        assert_eq!(deadline.cut.get(), None);
    }

    #[test]
    fn looks_are_a_twentieth_of_the_timeout() {
        assert_eq!(Deadlines::step(Duration::from_secs(10)), Duration::from_millis(500));
        assert_eq!(Deadlines::step(Duration::from_millis(1)), Duration::from_millis(1));
        assert_eq!(Deadlines::step(Duration::from_secs(3600)), Duration::from_secs(1));
    }
}
