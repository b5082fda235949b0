//! Health of the servers of an upstream, over all workers: passive ejection and active checks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use pronghorn_client::{Error, Phase};

use super::failure_log::{Cause, FailureLogs};
use crate::buffering::Buffers;
use crate::config::{FailureKind, UpstreamHealth};
use crate::tunnels::{TunnelCounters, TunnelCounts};

/// Flag in `until`: checks report that the server is down.
const DOWN: u64 = 1 << 63;

/// The health of one server. Times are milliseconds of [`crate::clock::now`].
///
/// Readers may see slightly stale values: at worst one more request goes to a failing server.
#[derive(Default)]
pub(crate) struct ServerHealth {
    upstream: Arc<str>,
    server: String,
    observer: Arc<Observer>,
    /// Consecutive failures while the server is in rotation.
    failures: AtomicU32,
    /// Time of the next trial, and the [`DOWN`] flag; 0 while the server is in rotation.
    until: AtomicU64,
    /// Number of consecutive failed trials.
    trials: AtomicU32,
    /// Open requests of all workers, if they are limited.
    open: AtomicU32,
}

/// The condition of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCondition {
    /// The server is in rotation.
    Up,
    /// The server is ejected for a while, because requests to it failed.
    Ejected,
    /// The server is down according to health checks.
    Down,
}

/// The current state of a server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// Name of the upstream; for an upstream defined in a route, its servers.
    pub upstream: String,
    /// Address of the server, as written in the configuration.
    pub server: String,
    /// Condition of the server.
    pub condition: ServerCondition,
}

type OnChange = Box<dyn Fn(ServerState) + Send + Sync>;

/// Observation of upstreams: listeners for changes of health and for failures, and counters.
#[derive(Default)]
pub(crate) struct Observer {
    on_change: OnceLock<OnChange>,
    pub(crate) counts: Counters,
    pub(crate) failure_logs: FailureLogs,
    pub(crate) buffers: Arc<Buffers>,
}

/// Counters of all upstreams, over all workers and reloads.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) retries: AtomicU64,
    pub(crate) retries_denied: AtomicU64,
    pub(crate) no_server: AtomicU64,
    pub(crate) servers_busy: AtomicU64,
    pub(crate) tunnels: TunnelCounters,
}

/// Counters of all upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamCounts {
    /// Number of retries on another server after a failure.
    pub retries: u64,
    /// Number of retries that the retry budget did not allow.
    pub retries_denied: u64,
    /// Number of requests answered 503 because all servers were down or ejected.
    pub no_server: u64,
    /// Number of requests answered 503 because all servers were at their limit of open requests.
    pub servers_busy: u64,
    /// Number of response bytes buffered in memory now, for slow clients.
    pub buffered_memory: u64,
    /// Number of bytes buffered on disk now.
    pub buffered_disk: u64,
    /// Counters of tunnels.
    pub tunnels: TunnelCounts,
    failures: [u64; Cause::NAMES.len()],
}

impl UpstreamCounts {
    /// Returns the number of attempts without a complete response, by reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Cause::NAMES.into_iter().zip(self.failures)
    }

    pub(crate) fn of(observer: &Observer) -> Self {
        let Counters { retries, retries_denied, no_server, servers_busy, tunnels } =
            &observer.counts;
        let [retries, retries_denied, no_server, servers_busy] =
            [retries, retries_denied, no_server, servers_busy]
                .map(|count| count.load(Ordering::Relaxed));
        let [buffered_memory, buffered_disk] = observer.buffers.held();
        let failures = observer.failure_logs.failures();
        let tunnels = TunnelCounts::of(tunnels);
        Self {
            retries,
            retries_denied,
            no_server,
            servers_busy,
            buffered_memory,
            buffered_disk,
            tunnels,
            failures,
        }
    }
}

impl Observer {
    /// Sets the listener. `tell` is called on workers and must not block. Only the first call has
    /// an effect.
    pub(crate) fn set(&self, tell: OnChange) {
        let _ = self.on_change.set(tell);
    }
}

impl ServerHealth {
    pub(crate) fn new(upstream: &Arc<str>, server: String, observer: &Arc<Observer>) -> Self {
        Self { upstream: upstream.clone(), server, observer: observer.clone(), ..Self::default() }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn state(&self) -> ServerState {
        self.state_of(condition(self.until.load(Ordering::Relaxed)))
    }

    fn state_of(&self, condition: ServerCondition) -> ServerState {
        ServerState {
            upstream: (*self.upstream).to_owned(),
            server: self.server.clone(),
            condition,
        }
    }

    /// Returns whether the server is in rotation. A single load, for the hot path.
    pub(crate) fn is_in_rotation(&self) -> bool {
        self.until.load(Ordering::Relaxed) == 0
    }

    /// Returns whether checks report that the server is down.
    pub(crate) fn is_down(&self) -> bool {
        self.until.load(Ordering::Relaxed) & DOWN != 0
    }

    /// Returns whether the server may have another open request.
    pub(crate) fn has_capacity(&self, limit: u32) -> bool {
        self.open.load(Ordering::Relaxed) < limit
    }

    /// Counts an open request. Returns `false` at the limit.
    pub(crate) fn open_request(&self, limit: u32) -> bool {
        let next = |open: u32| (open < limit).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    pub(crate) fn close_request(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the milliseconds until the next trial; not meaningful while the server is down.
    pub(crate) fn retry_delay(&self, now: u64) -> u64 {
        self.until.load(Ordering::Relaxed).saturating_sub(now)
    }

    /// Claims the trial of an ejected server that is due. Returns `false` if another request has
    /// it.
    pub(crate) fn claim_trial(&self, rule: &UpstreamHealth, now: u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        let next = now.saturating_add(self.out(rule));
        until <= now
            && self
                .until
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn succeeded(&self) {
        if !self.is_in_rotation() || self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.trials.store(0, Ordering::Relaxed);
            self.change(|until| until & DOWN);
        }
    }

    pub(crate) fn failed(&self, rule: &UpstreamHealth, is_trial: bool, now: u64) {
        if is_trial {
            self.trials.fetch_add(1, Ordering::Relaxed);
        } else if !self.is_in_rotation()
            || self.failures.fetch_add(1, Ordering::Relaxed) + 1 < rule.failures
        {
            // A request from before the ejection does not count again.
            return;
        }
        let next = now.saturating_add(self.out(rule)) & !DOWN;
        self.change(|until| (until & DOWN) | next);
    }

    /// Records the result of checks. It does not end an ejection: checks do not show whether
    /// requests succeed.
    pub(crate) fn checked(&self, is_up: bool) {
        self.change(|until| if is_up { until & !DOWN } else { until | DOWN });
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let updated =
            self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| Some(to(until)));
        let before = updated.expect("invariant: each value has a next one");
        let (before, after) = (condition(before), condition(to(before)));
        if before != after
            && let Some(tell) = self.observer.on_change.get()
        {
            tell(self.state_of(after));
        }
    }

    fn out(&self, rule: &UpstreamHealth) -> u64 {
        let of = |time: crate::config::Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
        let doubled = 1_u64 << self.trials.load(Ordering::Relaxed).min(32);
        of(rule.out).saturating_mul(doubled).min(of(rule.out_max))
    }
}

fn condition(until: u64) -> ServerCondition {
    match until {
        0 => ServerCondition::Up,
        down if down & DOWN != 0 => ServerCondition::Down,
        _ => ServerCondition::Ejected,
    }
}

/// Returns whether a request without a response counts as a failure of the server.
pub(crate) fn counts(rule: &UpstreamHealth, error: &Error, has_content: bool) -> bool {
    use pronghorn_engine::Error as E;
    let kind = match error {
        Error::Lookup { .. } | Error::TimedOut(Phase::Connect) => FailureKind::Connect,
        // Clients that keep all connections busy must not eject a server.
        Error::TimedOut(Phase::Queue) => return false,
        Error::TimedOut(_) => FailureKind::Timeout,
        Error::Exchange(error) => match **error {
            E::Connect { .. } | E::Handshake { .. } => FailureKind::Connect,
            // A server that sends too large a head works. A refusal by one of its addresses says
            // nothing about the others.
            E::Unsupported(_) | E::NoUpgrade(_) | E::Refused(_) | E::HeadTooLarge(_) => {
                return false;
            }
            _ => FailureKind::Broken,
        },
        _ => return false,
    };
    rule.failures > 0
        && (kind == FailureKind::Connect || !has_content)
        && rule.count.contains(&kind)
}

/// Returns whether a response counts as a failure of the server.
pub(crate) fn counts_status(rule: &UpstreamHealth, status: StatusCode) -> bool {
    !rule.statuses.is_empty() && rule.failures > 0 && rule.statuses.contains(&status.as_u16())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Time;

    fn rule() -> UpstreamHealth {
        UpstreamHealth {
            failures: 2,
            out: Time::seconds(1),
            out_max: Time::seconds(3),
            ..UpstreamHealth::default()
        }
    }

    #[test]
    fn failures_in_a_row_take_a_server_out_for_a_growing_time() {
        let (health, rule) = (ServerHealth::default(), rule());
        health.failed(&rule, false, 100);
        health.succeeded();
        health.failed(&rule, false, 100);
        assert!(health.is_in_rotation(), "a success resets the count");
        health.failed(&rule, false, 100);
        assert_eq!((health.is_in_rotation(), health.retry_delay(100)), (false, 1000));
        health.failed(&rule, false, 900);
        assert_eq!(
            health.retry_delay(100),
            1000,
            "an earlier request does not extend the ejection"
        );
        for (now, retry_delay) in [(1100, 2000), (3100, 3000), (6100, 3000)] {
            assert!(!health.claim_trial(&rule, now - 1) && health.claim_trial(&rule, now));
            health.failed(&rule, true, now);
            assert_eq!(health.retry_delay(now), retry_delay);
        }
        health.succeeded();
        assert!(health.is_in_rotation());
        health.failed(&rule, false, 9000);
        health.failed(&rule, false, 9000);
        assert_eq!(health.retry_delay(9000), 1000, "a success ends the growth");
    }

    #[test]
    fn one_request_tries_a_server_and_another_if_it_never_ends() {
        let (health, rule) = (ServerHealth::default(), rule());
        (0..2).for_each(|_| health.failed(&rule, false, 1));
        assert!(health.claim_trial(&rule, 1001));
        assert!(!health.claim_trial(&rule, 1001) && !health.claim_trial(&rule, 2000));
        assert!(health.claim_trial(&rule, 2001));
    }

    #[test]
    fn only_what_is_the_servers_doing_counts() {
        let all = UpstreamHealth {
            count: vec![FailureKind::Connect, FailureKind::Timeout, FailureKind::Broken],
            ..rule()
        };
        let broken = Error::from(pronghorn_engine::Error::Closed("gone".into()));
        let refused = Error::from(pronghorn_engine::Error::Refused("full".into()));
        assert!(counts(&rule(), &Error::TimedOut(Phase::Connect), true));
        assert!(
            !counts(&rule(), &broken, false)
                && !counts(&rule(), &Error::TimedOut(Phase::Head), false)
        );
        assert!(!counts(&all, &Error::TimedOut(Phase::Queue), false));
        assert!(counts(&all, &broken, false) && counts(&all, &Error::TimedOut(Phase::Head), false));
        assert!(!counts(&all, &broken, true) && !counts(&all, &Error::TimedOut(Phase::Head), true));
        assert!(!counts(&all, &refused, false) && !counts(&all, &Error::Busy("a".into()), false));
        let statuses = UpstreamHealth { statuses: vec![503], ..rule() };
        assert!(
            counts_status(&statuses, StatusCode::SERVICE_UNAVAILABLE)
                && !counts_status(&statuses, StatusCode::BAD_GATEWAY)
        );
    }

    #[test]
    fn checks_and_requests_each_take_a_server_out_and_bring_back_only_that() {
        use ServerCondition::{Down, Ejected, Up};
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (observer, seen) = (Arc::new(Observer::default()), told.clone());
        observer.set(Box::new(move |state| seen.lock().unwrap().push(state.condition)));
        let (health, rule) =
            (ServerHealth::new(&"app".into(), "http://a:1".to_owned(), &observer), rule());
        health.checked(false);
        health.checked(false);
        assert!(
            health.is_down()
                && !health.is_in_rotation()
                && health.retry_delay(1) > 1000
                && !health.claim_trial(&rule, u64::MAX >> 2)
        );
        health.succeeded();
        assert!(health.is_down(), "an earlier request does not change the state");
        health.checked(true);
        (0..2).for_each(|_| health.failed(&rule, false, 1));
        assert_eq!((health.is_in_rotation(), health.is_down()), (false, false));
        health.checked(true);
        assert_eq!(health.retry_delay(1), 1000, "a successful check does not end the ejection");
        health.checked(false);
        health.failed(&rule, true, 1001);
        assert!(health.is_down());
        health.checked(true);
        assert_eq!(health.retry_delay(1001), 2000);
        health.succeeded();
        assert_eq!(health.state().condition, ServerCondition::Up);
        assert_eq!(
            *told.lock().unwrap(),
            [Down, Up, Ejected, Down, Ejected, Up],
            "each change is reported once"
        );
    }

    #[test]
    fn nothing_counts_where_no_failures_are_allowed_for() {
        let off = UpstreamHealth { failures: 0, statuses: vec![503], ..rule() };
        assert!(
            !counts(&off, &Error::TimedOut(Phase::Connect), false)
                && !counts_status(&off, StatusCode::SERVICE_UNAVAILABLE)
        );
    }
}
