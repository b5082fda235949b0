//! The schedule of orders. Time and randomness are passed in as arguments.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// First wait when an authority is unreachable; doubled each time.
const UNREACHABLE: Duration = Duration::from_secs(5);
/// Maximum of that wait.
const UNREACHABLE_MOST: Duration = Duration::from_hours(1);
/// Wait after a refusal while there is another challenge to try.
const NEXT_CHALLENGE: Duration = Duration::from_secs(10);
/// First wait after refusals with all challenges; doubled each time. Let's Encrypt allows five
/// failures per name and hour.
const REFUSED: Duration = Duration::from_mins(5);
/// Maximum of that wait.
const REFUSED_MOST: Duration = Duration::from_hours(12);
/// Maximum wait that an authority can ask for. Its request is for the present only.
const ASKED_MOST: Duration = Duration::from_hours(24);
/// Minimum age of a certificate before the authority can have it renewed, or a quarter of its
/// lifetime if that is shorter.
const SOONEST: Duration = Duration::from_hours(1);

/// The period in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Its begin.
    pub from: SystemTime,
    /// Its end.
    pub until: SystemTime,
}

impl Lifetime {
    fn length(self) -> Duration {
        self.until.duration_since(self.from).unwrap_or_default()
    }
}

/// Consecutive refusals, which are kept over restarts, so that restarting does not shorten the
/// waits.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub(super) struct Refusals {
    pub(super) count: u32,
    /// Rate limits, which are not about a challenge.
    pub(super) limits: u32,
    /// Seconds since 1970 before which nothing is ordered.
    pub(super) not_before: u64,
}

/// An authority's request to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedWait {
    pub(super) wait: Duration,
    /// Whether the request applies to all names.
    pub(super) all_names: bool,
}

impl RequestedWait {
    /// Returns the time to wait, limited to the maximum.
    pub(super) fn wait(self) -> Duration {
        self.wait.min(ASKED_MOST)
    }
}

/// The back-off of all names: the authority asked for it, or does not respond.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    until: Cell<Option<SystemTime>>,
    /// Number of consecutive requests without a response.
    unanswered: Cell<u32>,
}

impl Backoff {
    pub(super) fn extend(&self, until: SystemTime) {
        self.until.set(self.until.get().max(Some(until)));
    }

    /// Returns the end of the back-off; `None` if requests are allowed now.
    pub(super) fn until(&self, now: SystemTime) -> Option<SystemTime> {
        self.until.get().filter(|until| *until > now && is_believed(*until, now))
    }

    /// Records that the authority gave no response. Returns the time to wait, or `None` if a
    /// back-off is running already, since requests of several names fail together. `jitter` is from
    /// 0 to 1.
    pub(super) fn on_no_answer(&self, now: SystemTime, jitter: f64) -> Option<Duration> {
        if self.until(now).is_some() {
            return None;
        }
        let wait = doubled(UNREACHABLE, self.unanswered.get(), UNREACHABLE_MOST)
            .mul_f64(1.0 + jitter / 5.0);
        self.unanswered.set(self.unanswered.get().saturating_add(1));
        self.extend(now + wait);
        Some(wait)
    }

    pub(super) fn on_answer(&self) {
        self.unanswered.set(0);
    }

    /// Ends the back-off for an unresponsive authority, after an operator's retry.
    pub(super) fn reset(&self) {
        if self.unanswered.replace(0) > 0 {
            self.until.set(None);
        }
    }
}

fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(most)
}

/// A clock that was set back must not cause years of waiting.
fn is_believed(not_before: SystemTime, now: SystemTime) -> bool {
    not_before <= now + ASKED_MOST
}

/// The reason why there is no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The authority gave no ACME response, which affects all names. They wait together
    /// ([`Backoff`]).
    NoAnswer,
    /// A temporary failure of the authority for this name, or a failure of this machine.
    Temporary,
    /// The authority reported a rate limit.
    Limited,
    /// The authority refused the order.
    Refused,
}

/// The schedule of one name.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Random value from 0 to 1, so that names are not renewed at the same time.
    jitter: f64,
    /// Number of kinds of challenges that can be tried.
    challenges: u32,
    refusals: Refusals,
    passing: u32,
    not_before: Option<SystemTime>,
    /// Renewal window suggested by the authority (RFC 9773).
    window: Option<(SystemTime, SystemTime)>,
}

impl Refusals {
    fn not_before(self) -> Option<SystemTime> {
        (self.not_before > 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(self.not_before))
    }
}

impl Schedule {
    pub(super) fn new(jitter: f64, challenges: usize, refusals: Refusals) -> Self {
        let not_before = refusals.not_before();
        let challenges = u32::try_from(challenges).unwrap_or(u32::MAX);
        Self { jitter, challenges, refusals, passing: 0, not_before, window: None }
    }

    /// Returns when to order a certificate. `lifetime` is that of the current one.
    pub(super) fn due(&self, now: SystemTime, lifetime: Option<Lifetime>) -> SystemTime {
        let wanted = lifetime.map_or(now, |lifetime| self.renewal(lifetime));
        let patience = self.not_before.filter(|time| is_believed(*time, now));
        patience.map_or(wanted, |time| time.max(wanted))
    }

    /// Returns the renewal time: shortly before two thirds of the lifetime, or within the
    /// authority's window, but neither immediately again and again nor too late.
    fn renewal(&self, lifetime: Lifetime) -> SystemTime {
        let length = lifetime.length();
        let Some((start, end)) = self.window else {
            return lifetime.from + length.mul_f64(2.0 / 3.0 - self.jitter / 20.0);
        };
        let wanted = start + end.duration_since(start).unwrap_or_default().mul_f64(self.jitter);
        wanted.max(lifetime.from + SOONEST.min(length / 4)).min(lifetime.until - length / 6)
    }

    pub(super) fn set_window(&mut self, window: Option<(SystemTime, SystemTime)>) {
        self.window = window;
    }

    /// Returns the index of the challenge to try: another one after each refusal.
    pub(super) fn challenge(&self) -> usize {
        (self.refusals.count % self.challenges.max(1)) as usize
    }

    pub(super) fn on_success(&mut self) {
        *self = Self {
            jitter: self.jitter,
            challenges: self.challenges,
            ..Self::new(0.0, 0, Refusals::default())
        };
    }

    /// Allows the next order at once, after an operator's retry, and resets the counters.
    pub(super) fn reset(&mut self) {
        (self.refusals, self.passing, self.not_before) = (Refusals::default(), 0, None);
    }

    /// Adopts the refusals of another process, since the waits apply to all processes. Returns
    /// whether to wait.
    pub(super) fn adopt_refusals(&mut self, now: SystemTime, theirs: Refusals) -> bool {
        if theirs.not_before > self.refusals.not_before {
            (self.refusals, self.not_before) = (theirs, self.not_before.max(theirs.not_before()));
        }
        self.not_before.is_some_and(|time| time > now && is_believed(time, now))
    }

    /// Records a failure, and returns the time to wait. `asked` is the wait that the authority
    /// asked for.
    pub(super) fn on_failure(
        &mut self,
        now: SystemTime,
        cause: Cause,
        asked: Option<RequestedWait>,
    ) -> Duration {
        let wait = match cause {
            Cause::NoAnswer => {
                self.passing = self.passing.saturating_add(1);
                Duration::ZERO
            }
            Cause::Temporary => {
                self.passing = self.passing.saturating_add(1);
                doubled(UNREACHABLE, self.passing - 1, UNREACHABLE_MOST)
            }
            Cause::Limited => {
                self.passing = 0;
                self.refusals.limits = self.refusals.limits.saturating_add(1);
                // A time that the authority gives is preferred to our own, but repeated short ones
                // are extended.
                let (first, most) = if asked.is_some() {
                    (UNREACHABLE, UNREACHABLE_MOST)
                } else {
                    (REFUSED, REFUSED_MOST)
                };
                doubled(first, self.refusals.limits - 1, most)
            }
            Cause::Refused => {
                self.passing = 0;
                self.refusals.count = self.refusals.count.saturating_add(1);
                match self.refusals.count.checked_sub(self.challenges.max(1)) {
                    None => NEXT_CHALLENGE,
                    Some(times) => doubled(REFUSED, times, REFUSED_MOST),
                }
            }
        };
        let wait = wait
            .mul_f64(1.0 + self.jitter / 5.0)
            .max(asked.map(RequestedWait::wait).unwrap_or_default());
        let until = now + wait;
        self.not_before = Some(until);
        if matches!(cause, Cause::Limited | Cause::Refused) || asked.is_some() {
            // Rounded up to a full second, so that the wait is not shorter than requested.
            self.refusals.not_before = until
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
                .as_millis()
                .div_ceil(1_000) as u64;
        }
        wait
    }

    /// Returns the state to keep over a restart.
    pub(super) fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Returns the number of consecutive failures.
    pub(super) fn failures(&self) -> u32 {
        self.refusals.count.saturating_add(self.refusals.limits).saturating_add(self.passing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + 20_000 * DAY
    }

    fn schedule(jitter: f64) -> Schedule {
        Schedule::new(jitter, 2, Refusals::default())
    }

    /// A lifetime of 90 days.
    fn lifetime() -> Lifetime {
        Lifetime { from: now(), until: now() + 90 * DAY }
    }

    #[test]
    fn first_certificate_is_ordered_at_once_and_renewed_at_two_thirds_of_its_life() {
        assert_eq!(schedule(0.0).due(now(), None), now());
        let renewals: Vec<_> =
            [0.0, 0.5, 1.0].map(|jitter| schedule(jitter).due(now(), Some(lifetime()))).into();
        let days = |time: SystemTime| time.duration_since(now()).unwrap().as_secs_f64() / 86_400.0;
        assert!(renewals.iter().all(|time| (55.0..=60.0).contains(&days(*time))), "{renewals:?}");
        assert!(renewals.is_sorted_by(|one, next| one > next), "not all at once");
    }

    #[test]
    fn window_of_the_authority_is_kept_to_within_reason() {
        let due = |start: SystemTime, end: SystemTime| {
            let mut schedule = schedule(0.5);
            schedule.set_window(Some((start, end)));
            schedule.due(now(), Some(lifetime()))
        };
        assert_eq!(due(now() + 10 * DAY, now() + 12 * DAY), now() + 11 * DAY);
        // At once, but not as soon as the next certificate is issued.
        assert_eq!(due(now() - 2 * DAY, now() - DAY), now() + SOONEST);
        assert_eq!(due(now() + 90 * DAY, now() + 200 * DAY), now() + 75 * DAY);
        assert_eq!(
            due(now() + 9 * DAY, now() + 8 * DAY),
            now() + 9 * DAY,
            "a window that ends before it starts"
        );
    }

    #[test]
    fn waits_grow_to_their_bound_and_end_with_success() {
        let mut schedule = schedule(0.0);
        let mut time = now();
        let waits: Vec<_> = (0..14)
            .map(|_| {
                let wait = schedule.on_failure(time, Cause::Refused, None);
                assert_eq!(schedule.due(time, None), time + wait);
                time += wait;
                wait.as_secs()
            })
            .collect();
        assert_eq!(waits[..5], [10, 300, 600, 1_200, 2_400]);
        assert_eq!(waits[11..], [43_200; 3]);
        assert!(
            waits
                .iter()
                .scan(0, |sum, wait| {
                    *sum += wait;
                    Some(*sum)
                })
                .filter(|at| *at < 3_600)
                .count()
                < 5,
            "five failures an hour"
        );
        schedule.on_success();
        assert_eq!(
            (schedule.due(time, None), schedule.failures(), schedule.refusals()),
            (time, 0, Refusals::default())
        );
    }

    #[test]
    fn authority_that_is_out_of_order_is_asked_more_and_more_seldom() {
        let mut schedule = schedule(0.0);
        let waits: Vec<_> =
            (0..12).map(|_| schedule.on_failure(now(), Cause::Temporary, None).as_secs()).collect();
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[10..], [3_600; 2]);
        assert_eq!(schedule.refusals().count, 0, "nothing was refused");
    }

    #[test]
    fn authority_that_gives_no_answer_is_left_for_all_names_together() {
        let (patience, mut time) = (Backoff::default(), now());
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = patience.on_no_answer(time, 0.0).expect("the first name of this time");
            assert_eq!(
                patience.on_no_answer(time + wait / 2, 0.0),
                None,
                "a name that failed with it"
            );
            assert_eq!(patience.until(time), Some(time + wait));
            waits.push(wait.as_secs());
            time += wait;
        }
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[10..], [3_600; 2]);
        patience.on_answer();
        assert_eq!(patience.on_no_answer(time, 0.0), Some(UNREACHABLE));
    }

    #[test]
    fn challenges_take_turns() {
        let mut schedule = schedule(0.0);
        assert_eq!(schedule.challenge(), 0);
        schedule.on_failure(now(), Cause::Temporary, None);
        assert_eq!(schedule.challenge(), 0);
        schedule.on_failure(now(), Cause::Refused, None);
        assert_eq!(schedule.challenge(), 1);
        schedule.on_failure(now(), Cause::Refused, None);
        assert_eq!(schedule.challenge(), 0);
    }

    #[test]
    fn authority_that_asks_for_patience_gets_it_up_to_a_day() {
        for cause in [Cause::Refused, Cause::Limited, Cause::Temporary, Cause::NoAnswer] {
            let asked =
                |hours| Some(RequestedWait { wait: Duration::from_hours(hours), all_names: false });
            let hours =
                |hours| schedule(0.0).on_failure(now(), cause, asked(hours)).as_secs() / 3_600;
            assert_eq!((hours(3), hours(1_000)), (3, 24));
            let mut before = schedule(0.0);
            before.on_failure(now(), cause, asked(3));
            let after = Schedule::new(0.0, 2, before.refusals());
            assert_eq!(
                after.due(now(), None),
                now() + Duration::from_hours(3),
                "a restart makes it no sooner"
            );
        }
    }

    #[test]
    fn limit_of_the_authority_is_not_held_against_a_challenge() {
        let mut schedule = schedule(0.0);
        let waits: Vec<_> =
            (0..3).map(|_| schedule.on_failure(now(), Cause::Limited, None).as_secs()).collect();
        assert_eq!(
            (waits, schedule.challenge(), schedule.failures()),
            (vec![300, 600, 1_200], 0, 3)
        );
        // Even if the authority gives a second, it is not contacted every second.
        let second = Some(RequestedWait { wait: Duration::from_secs(1), all_names: false });
        let mut schedule = self::schedule(0.0);
        let waits: Vec<_> =
            (0..3).map(|_| schedule.on_failure(now(), Cause::Limited, second).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20]);
    }

    #[test]
    fn what_another_process_was_refused_is_taken_in() {
        let [mut one, mut other] = [schedule(0.0), schedule(0.0)];
        assert!(!other.adopt_refusals(now(), one.refusals()));
        one.on_failure(now(), Cause::Refused, None);
        assert!(other.adopt_refusals(now(), one.refusals()));
        assert_eq!((other.due(now(), None), other.challenge()), (one.due(now(), None), 1));
        // After the wait, the refusals are no reason to wait any more.
        assert!(!other.adopt_refusals(now() + Duration::from_secs(10), one.refusals()));
        // Own refusals are not reduced.
        let theirs = other.refusals();
        other.on_failure(now(), Cause::Refused, None);
        assert!(other.adopt_refusals(now(), theirs));
        assert_eq!(other.failures(), 2);
    }

    #[test]
    fn patience_is_the_longest_that_was_asked_for_and_ends() {
        let patience = Backoff::default();
        assert_eq!(patience.until(now()), None);
        patience.extend(now() + DAY / 2);
        patience.extend(now() + DAY / 4);
        assert_eq!(patience.until(now()), Some(now() + DAY / 2));
        assert_eq!(
            (patience.until(now() + DAY / 2), patience.until(now() - 100 * DAY)),
            (None, None)
        );
    }

    #[test]
    fn refusals_are_remembered_over_a_restart() {
        let mut before = schedule(0.0);
        for _ in 0..4 {
            before.on_failure(now(), Cause::Refused, None);
        }
        let after = Schedule::new(0.0, 2, before.refusals());
        assert_eq!(after.due(now(), None), before.due(now(), None));
        assert_eq!(after.challenge(), before.challenge());
        // The clock was wrong when they were recorded.
        assert_eq!(after.due(now() - 1_000 * DAY, None), now() - 1_000 * DAY);
    }
}
