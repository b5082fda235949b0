//! Which servers of an upstream are left alone, over all workers.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use http::StatusCode;
use pronghorn_client::{Error, Phase};

use crate::config::{FailureKind, UpstreamHealth};

/// How one server did. Times are milliseconds of [`now`].
///
/// Whoever reads it may be a moment late: at worst a request more goes to a server that fails.
#[derive(Default)]
pub(crate) struct ServerHealth {
    /// In a row, while the server is asked.
    failures: AtomicU32,
    /// When the server may be tried again; 0 while it is asked as usual.
    until: AtomicU64,
    /// How often in a row it was tried in vain.
    trials: AtomicU32,
}

/// Milliseconds on a clock of the process, never 0.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
}

impl ServerHealth {
    /// Whether it is asked as usual: one load, for the hot path.
    pub(crate) fn is_in(&self) -> bool {
        self.until.load(Ordering::Relaxed) == 0
    }

    /// In how many milliseconds it may be tried.
    pub(crate) fn waits(&self, now: u64) -> u64 {
        self.until.load(Ordering::Relaxed).saturating_sub(now)
    }

    /// Takes the one trial of a server whose time is over. `false` if another request has it.
    pub(crate) fn claim(&self, rule: &UpstreamHealth, now: u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        let next = now.saturating_add(self.out(rule));
        until <= now && self.until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn succeeded(&self) {
        if !self.is_in() || self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.trials.store(0, Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn failed(&self, rule: &UpstreamHealth, is_trial: bool, now: u64) {
        if is_trial {
            self.trials.fetch_add(1, Ordering::Relaxed);
            self.until.store(now.saturating_add(self.out(rule)), Ordering::Relaxed);
        } else if self.is_in() && self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= rule.failures {
            self.until.store(now.saturating_add(self.out(rule)), Ordering::Relaxed);
        }
        // What began before the server was left alone says nothing new of it.
    }

    fn out(&self, rule: &UpstreamHealth) -> u64 {
        let of = |time: crate::config::Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
        let doubled = 1_u64 << self.trials.load(Ordering::Relaxed).min(32);
        of(rule.out).saturating_mul(doubled).min(of(rule.out_max))
    }
}

/// Whether a request that got no response counts against the server.
pub(crate) fn counts(rule: &UpstreamHealth, error: &Error, has_content: bool) -> bool {
    use pronghorn_engine::Error as E;
    let kind = match error {
        Error::Lookup { .. } | Error::TimedOut(Phase::Connect) => FailureKind::Connect,
        // Clients that keep all connections busy would take a server out.
        Error::TimedOut(Phase::Queue) => return false,
        Error::TimedOut(_) => FailureKind::Timeout,
        Error::Exchange(error) => match **error {
            E::Connect { .. } | E::Handshake { .. } => FailureKind::Connect,
            E::Unsupported(_) | E::NoUpgrade(_) | E::Refused(_) => return false,
            _ => FailureKind::Broken,
        },
        _ => return false,
    };
    (kind == FailureKind::Connect || !has_content) && rule.count.contains(&kind)
}

/// Whether a response counts against the server.
pub(crate) fn counts_status(rule: &UpstreamHealth, status: StatusCode) -> bool {
    !rule.statuses.is_empty() && rule.statuses.contains(&status.as_u16())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Time;

    fn rule() -> UpstreamHealth {
        UpstreamHealth { failures: 2, out: Time::seconds(1), out_max: Time::seconds(3), ..UpstreamHealth::default() }
    }

    #[test]
    fn failures_in_a_row_take_a_server_out_for_a_growing_time() {
        let (health, rule) = (ServerHealth::default(), rule());
        health.failed(&rule, false, 100);
        health.succeeded();
        health.failed(&rule, false, 100);
        assert!(health.is_in(), "a success between them");
        health.failed(&rule, false, 100);
        assert_eq!((health.is_in(), health.waits(100)), (false, 1000));
        health.failed(&rule, false, 900);
        assert_eq!(health.waits(100), 1000, "what began before says nothing new");
        for (now, waits) in [(1100, 2000), (3100, 3000), (6100, 3000)] {
            assert!(!health.claim(&rule, now - 1) && health.claim(&rule, now));
            health.failed(&rule, true, now);
            assert_eq!(health.waits(now), waits);
        }
        health.succeeded();
        assert!(health.is_in());
        health.failed(&rule, false, 9000);
        health.failed(&rule, false, 9000);
        assert_eq!(health.waits(9000), 1000, "a success ends the growth");
    }

    #[test]
    fn one_request_tries_a_server_and_another_if_it_never_ends() {
        let (health, rule) = (ServerHealth::default(), rule());
        (0..2).for_each(|_| health.failed(&rule, false, 1));
        assert!(health.claim(&rule, 1001));
        assert!(!health.claim(&rule, 1001) && !health.claim(&rule, 2000));
        assert!(health.claim(&rule, 2001));
    }

    #[test]
    fn only_what_is_the_servers_doing_counts() {
        let all = UpstreamHealth { count: vec![FailureKind::Connect, FailureKind::Timeout, FailureKind::Broken], ..rule() };
        let broken = Error::from(pronghorn_engine::Error::Closed("gone".into()));
        let refused = Error::from(pronghorn_engine::Error::Refused("full".into()));
        assert!(counts(&rule(), &Error::TimedOut(Phase::Connect), true));
        assert!(!counts(&rule(), &broken, false) && !counts(&rule(), &Error::TimedOut(Phase::Head), false));
        assert!(!counts(&all, &Error::TimedOut(Phase::Queue), false));
        assert!(counts(&all, &broken, false) && counts(&all, &Error::TimedOut(Phase::Head), false));
        assert!(!counts(&all, &broken, true) && !counts(&all, &Error::TimedOut(Phase::Head), true));
        assert!(!counts(&all, &refused, false) && !counts(&all, &Error::Busy("a".into()), false));
        let statuses = UpstreamHealth { statuses: vec![503], ..rule() };
        assert!(counts_status(&statuses, StatusCode::SERVICE_UNAVAILABLE) && !counts_status(&statuses, StatusCode::BAD_GATEWAY));
    }
}
