//! The schedule of requests. Time is passed in as an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The phases of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    /// Time of the first request.
    pub(crate) begins: Instant,
    /// End of the warm-up.
    pub(crate) measured_from: Instant,
    /// End of the run: requests due later are not sent.
    pub(crate) ends: Option<Instant>,
    /// Time after the end in which requests that were due before it may still begin, so that
    /// requests delayed by a stalled server count.
    pub(crate) grace: Duration,
}

/// A request to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Due time, from which its latency is measured.
    pub(crate) at: Instant,
    /// Whether it is measured, that is, not part of the warm-up.
    pub(crate) measured: bool,
}

/// The next step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send this request.
    Now(Ticket),
    /// Nothing is due before then.
    At(Instant),
    /// There are no more requests.
    Over,
}

/// The number of measured requests that are left, for all threads. `None` is unlimited.
#[derive(Debug, Default)]
pub(crate) struct Allowance(Option<AtomicU64>);

impl Allowance {
    pub(crate) fn new(requests: Option<u64>) -> Self {
        Self(requests.map(AtomicU64::new))
    }

    fn take(&self) -> bool {
        let Some(left) = &self.0 else { return true };
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// A fixed rate, or this thread's share of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Fraction of an interval by which the first request is delayed, so that threads do not send
    /// at the same moments.
    pub(crate) phase: f64,
}

/// The requests of one thread.
#[derive(Debug)]
pub(crate) struct Schedule {
    phases: Phases,
    pace: Option<Pace>,
    allowance: Arc<Allowance>,
    /// Number of paced requests handed out.
    given: u64,
    over: bool,
}

impl Schedule {
    pub(crate) fn new(phases: Phases, pace: Option<Pace>, allowance: Arc<Allowance>) -> Self {
        Self { phases, pace, allowance, given: 0, over: false }
    }

    /// Hands out the next request, if one is due.
    pub(crate) fn take(&mut self, now: Instant) -> Next {
        match self.peek(now) {
            Next::Now(ticket) if ticket.measured && !self.allowance.take() => {
                self.over = true;
                Next::Over
            }
            Next::Now(ticket) => {
                self.given += 1;
                Next::Now(ticket)
            }
            other => other,
        }
    }

    /// Returns what [`Schedule::take`] would, unless the allowance is used up.
    pub(crate) fn peek(&self, now: Instant) -> Next {
        let at = self.pace.map_or(now, |pace| self.due(pace, self.given));
        let late = self.phases.ends.is_some_and(|ends| now >= ends + self.phases.grace);
        if self.over || late || self.phases.ends.is_some_and(|ends| at >= ends) {
            Next::Over
        } else if at > now {
            Next::At(at)
        } else {
            Next::Now(Ticket { at, measured: at >= self.phases.measured_from })
        }
    }

    /// Returns the number of measured requests that were due by `now` and not handed out. It is
    /// zero without a rate, since nothing is due then.
    pub(crate) fn backlog(&self, now: Instant) -> u64 {
        let Some(pace) = self.pace.filter(|_| !self.over) else { return 0 };
        let until = self.phases.ends.map_or(now, |ends| ends.min(now));
        let due_by = |time: Instant| {
            let elapsed = time.saturating_duration_since(self.phases.begins).as_secs_f64();
            (elapsed * pace.rate - pace.phase).ceil().max(0.0) as u64
        };
        due_by(until).saturating_sub(self.given.max(due_by(self.phases.measured_from)))
    }

    fn due(&self, pace: Pace, number: u64) -> Instant {
        self.phases.begins + Duration::from_secs_f64((number as f64 + pace.phase) / pace.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn phases(begins: Instant, warm_up: Duration, duration: Option<Duration>) -> Phases {
        let measured_from = begins + warm_up;
        Phases {
            begins,
            measured_from,
            ends: duration.map(|duration| measured_from + duration),
            grace: 2 * SECOND,
        }
    }

    fn paced(
        begins: Instant,
        rate: f64,
        warm_up: Duration,
        duration: Option<Duration>,
        requests: Option<u64>,
    ) -> Schedule {
        let allowance = Arc::new(Allowance::new(requests));
        Schedule::new(phases(begins, warm_up, duration), Some(Pace { rate, phase: 0.0 }), allowance)
    }

    /// Hands out all requests, on a clock that jumps to the next due time.
    fn all(schedule: &mut Schedule, mut now: Instant) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        loop {
            match schedule.take(now) {
                Next::Now(ticket) => tickets.push(ticket),
                Next::At(at) => now = at,
                Next::Over => return tickets,
            }
        }
    }

    #[test]
    fn fixed_rate_is_kept_to_the_nanosecond_over_an_hour() {
        let begins = Instant::now();
        let mut schedule = paced(begins, 3.0, Duration::ZERO, Some(3600 * SECOND), None);
        let tickets = all(&mut schedule, begins);
        assert_eq!(tickets.len(), 3 * 3600);
        for (number, ticket) in tickets.iter().enumerate() {
            let exact = number as u128 * 1_000_000_000 / 3;
            assert!(
                ticket.at.duration_since(begins).as_nanos().abs_diff(exact) <= 1,
                "request {number}"
            );
        }
    }

    #[test]
    fn requests_held_up_keep_the_time_they_were_due() {
        let begins = Instant::now();
        let mut schedule = paced(begins, 10.0, Duration::ZERO, Some(2 * SECOND), None);
        assert_eq!(schedule.take(begins), Next::Now(Ticket { at: begins, measured: true }));
        // No request is taken for a second.
        let now = begins + SECOND;
        assert_eq!(schedule.backlog(now), 9);
        for number in 1..=10 {
            assert_eq!(
                schedule.take(now),
                Next::Now(Ticket { at: begins + SECOND * number / 10, measured: true })
            );
        }
        assert_eq!(schedule.take(now), Next::At(begins + SECOND * 11 / 10));
        assert_eq!(schedule.backlog(now), 0);
    }

    #[test]
    fn requests_held_up_at_the_end_may_begin_within_the_grace_and_no_later() {
        let begins = Instant::now();
        let mut schedule = paced(begins, 10.0, Duration::ZERO, Some(SECOND), None);
        let late = begins + SECOND + SECOND / 2;
        assert!(matches!(schedule.take(late), Next::Now(_)));
        let too_late = begins + 3 * SECOND;
        assert_eq!(schedule.take(too_late), Next::Over);
        assert_eq!(schedule.backlog(too_late), 9);
    }

    #[test]
    fn warm_up_is_not_measured_and_takes_nothing_of_the_allowance() {
        let begins = Instant::now();
        let mut schedule = paced(begins, 10.0, SECOND, None, Some(5));
        let tickets = all(&mut schedule, begins);
        assert_eq!(tickets.iter().filter(|ticket| !ticket.measured).count(), 10);
        assert_eq!(tickets.iter().filter(|ticket| ticket.measured).count(), 5);
        assert_eq!(tickets[10].at, begins + SECOND);
    }

    #[test]
    fn threads_share_the_allowance_and_the_rate() {
        let begins = Instant::now();
        let allowance = Arc::new(Allowance::new(Some(30)));
        let share = |number: u32| {
            let pace = Pace { rate: 10.0 / 3.0, phase: f64::from(number) / 3.0 };
            Schedule::new(phases(begins, Duration::ZERO, None), Some(pace), allowance.clone())
        };
        let mut shares: Vec<_> = (0..3).map(share).collect();
        let mut times = Vec::new();
        let mut now = begins;
        while shares.iter().any(|share| share.peek(now) != Next::Over) {
            for share in &mut shares {
                while let Next::Now(ticket) = share.take(now) {
                    times.push(ticket.at.duration_since(begins).as_millis());
                }
            }
            now += Duration::from_millis(10);
        }
        assert_eq!(times, (0..30).map(|number| number * 100).collect::<Vec<_>>());
    }

    #[test]
    fn without_a_rate_each_request_is_due_when_it_is_asked_for() {
        let begins = Instant::now();
        let mut schedule =
            Schedule::new(phases(begins, SECOND, Some(SECOND)), None, Arc::default());
        assert_eq!(schedule.take(begins), Next::Now(Ticket { at: begins, measured: false }));
        let now = begins + SECOND;
        assert_eq!(schedule.take(now), Next::Now(Ticket { at: now, measured: true }));
        assert_eq!(schedule.take(begins + 2 * SECOND), Next::Over);
    }
}
