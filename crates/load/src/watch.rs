//! One look at all requests now and then, in place of a timer for each.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Looks so often within the time-out.
const LOOKS: u32 = 20;
/// But neither more nor less often than this.
const STEPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// What ends a request early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    TimedOut,
    Interrupted,
}

/// Where one request at a time is watched.
#[derive(Default)]
pub(crate) struct Seat {
    deadline: Cell<Option<Instant>>,
    cut: Cell<Option<Cut>>,
    waker: RefCell<Option<Waker>>,
}

/// All seats of a thread.
#[derive(Default)]
pub(crate) struct Watch {
    seats: RefCell<Vec<Rc<Seat>>>,
}

impl Watch {
    pub(crate) fn seat(&self) -> Rc<Seat> {
        let seat = Rc::<Seat>::default();
        self.seats.borrow_mut().push(seat.clone());
        seat
    }

    /// The time between two looks.
    pub(crate) fn step(timeout: Duration) -> Duration {
        (timeout / LOOKS).clamp(STEPS.0, STEPS.1)
    }

    /// Cuts what has taken too long.
    pub(crate) fn look(&self, now: Instant) {
        for seat in &*self.seats.borrow() {
            if seat.deadline.get().is_some_and(|deadline| deadline <= now) {
                seat.cut(Cut::TimedOut);
            }
        }
    }

    /// Cuts everything.
    pub(crate) fn interrupt(&self) {
        for seat in &*self.seats.borrow() {
            if seat.deadline.get().is_some() {
                seat.cut(Cut::Interrupted);
            }
        }
    }
}

impl Seat {
    fn cut(&self, cut: Cut) {
        self.deadline.set(None);
        self.cut.set(Some(cut));
        // Wakers of the thread's executor only queue a task, so nothing comes back here.
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Runs `future` until it is done or cut at `deadline`. One that is cut is to be dropped.
    pub(crate) async fn guard<T>(&self, deadline: Instant, mut future: Pin<&mut impl Future<Output = T>>) -> Result<T, Cut> {
        self.cut.set(None);
        self.deadline.set(Some(deadline));
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
        self.deadline.set(None);
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
        let watch = Watch::default();
        let seat = watch.seat();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let request = pin!(pending::<()>());
        let mut guarded = pin!(seat.guard(now + second, request));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(guarded.as_mut().poll(&mut cx).is_pending());
        watch.look(now + second / 2);
        assert!(guarded.as_mut().poll(&mut cx).is_pending());
        watch.look(now + second);
        assert_eq!(guarded.as_mut().poll(&mut cx), Poll::Ready(Err(Cut::TimedOut)));
    }

    #[test]
    fn cut_of_one_request_does_not_reach_the_next() {
        let watch = Watch::default();
        let seat = watch.seat();
        let now = Instant::now();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let request = pin!(pending::<()>());
            let mut first = pin!(seat.guard(now, request));
            assert!(first.as_mut().poll(&mut cx).is_pending());
            watch.look(now);
        }
        let request = pin!(ready(7));
        let mut second = pin!(seat.guard(now + Duration::from_secs(1), request));
        assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(7)));
        // With nothing under way there is nothing to interrupt.
        watch.interrupt();
        assert_eq!(seat.cut.get(), None);
    }

    #[test]
    fn looks_are_a_twentieth_of_the_timeout() {
        assert_eq!(Watch::step(Duration::from_secs(10)), Duration::from_millis(500));
        assert_eq!(Watch::step(Duration::from_millis(1)), Duration::from_millis(1));
        assert_eq!(Watch::step(Duration::from_secs(3600)), Duration::from_secs(1));
    }
}
