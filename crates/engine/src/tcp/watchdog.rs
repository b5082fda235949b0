//! Timeouts of a connection whose client has to act.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use super::stream::Activity;
use crate::context::Context;
use crate::runtime::Sleep;

/// Closes a connection whose peer is late.
pub(crate) struct Watchdog {
    activity: Rc<Activity>,
    sleep: Pin<Box<Sleep>>,
    /// When the sleep ends.
    armed: Instant,
    /// Whether the sleep has the task's waker; a connection has the same task all its life.
    is_set: bool,
    /// Earliest start of all timeouts.
    from: Instant,
    context: Rc<Context>,
}

/// What a peer failed to do in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timeout {
    Idle,
    Head,
    Response,
}

impl Watchdog {
    pub(crate) fn new(activity: Rc<Activity>, context: &Rc<Context>) -> Self {
        let now = context.handle.now();
        let armed = now + context.config.limits.idle_timeout();
        Self {
            activity,
            sleep: Box::pin(context.handle.timers().sleep_until(armed)),
            armed,
            is_set: false,
            from: now,
            context: context.clone(),
        }
    }

    /// Ready when a timeout has expired, which is then counted.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let now = self.context.handle.now();
        // Between requests only the idle timeout runs, and its deadline only moves back.
        if self.is_set
            && now < self.armed
            && !self.activity.has_exchanges()
            && !self.activity.has_short_deadline()
        {
            return Poll::Pending;
        }
        loop {
            let (deadline, missed) = self.next();
            if now >= deadline {
                self.count(missed);
                return Poll::Ready(());
            }
            // A deadline that has moved back is only looked at when the timer fires, so traffic
            // resets no timer.
            if deadline < self.armed {
                self.rearm(deadline);
            }
            if self.is_set && now < self.armed {
                return Poll::Pending;
            }
            self.is_set = true;
            ready!(self.sleep.as_mut().poll(cx));
            self.rearm(deadline);
        }
    }

    /// Returns the next deadline.
    fn next(&self) -> (Instant, Timeout) {
        let (limits, now) = (&self.context.config.limits, self.context.handle.now());
        let silent_since =
            if self.activity.waits_for_peer() { self.activity.last().max(self.from) } else { now };
        let head = self
            .activity
            .head()
            .map(|(began, _)| (began.max(self.from) + limits.head_timeout(), Timeout::Head));
        let taking = self.activity.sending.deadline().map(|deadline| {
            (deadline.max(self.from + limits.response_timeout()), Timeout::Response)
        });
        let idle = Some((silent_since + limits.idle_timeout(), Timeout::Idle));
        let due = [head, taking, idle].into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
        due.expect("invariant: there is always an idle deadline")
    }

    fn count(&self, missed: Timeout) {
        let stats = &self.context.stats;
        match missed {
            Timeout::Idle => stats.idle_timeouts.add(1),
            Timeout::Head => stats.head_timeouts.add(1),
            Timeout::Response => self.activity.sending.count(stats),
        }
    }

    fn rearm(&mut self, deadline: Instant) {
        self.armed = deadline;
        self.is_set = false;
        self.sleep.reset(deadline);
    }

    /// Restarts all timeouts.
    pub(crate) fn restart(&mut self) {
        self.from = self.context.handle.now();
    }
}
