//! Which servers of an upstream are left alone, over all workers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use http::StatusCode;
use pronghorn_client::{Error, Phase};

use super::trouble::{Cause, Troubles};
use crate::buffering::Buffers;
use crate::config::{FailureKind, UpstreamHealth};
use crate::tunnels::{TunnelCounters, TunnelCounts};

/// Set in `until` while checks say that the server is down.
const DOWN: u64 = 1 << 63;

/// How one server did. Times are milliseconds of [`now`].
///
/// Whoever reads it may be a moment late: at worst a request more goes to a server that fails.
#[derive(Default)]
pub(crate) struct ServerHealth {
    upstream: Arc<str>,
    server: String,
    observer: Arc<Observer>,
    /// In a row, while the server is asked.
    failures: AtomicU32,
    /// When the server may be tried again, and whether checks say that it is down; 0 while it is asked as usual.
    until: AtomicU64,
    /// How often in a row it was tried in vain.
    trials: AtomicU32,
    /// Requests of all workers, where they are limited.
    open: AtomicU32,
}

/// Whether requests go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCondition {
    /// It is asked as usual.
    Up,
    /// It is left alone for a while, because requests to it failed.
    LeftAlone,
    /// It is down, as checks say.
    Down,
}

/// A server of an upstream as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// The upstream's name; of one that a route has of its own, its servers.
    pub upstream: String,
    /// The server's address, as the configuration writes it.
    pub server: String,
    /// Whether requests go to it.
    pub condition: ServerCondition,
}

type OnChange = Box<dyn Fn(ServerState) + Send + Sync>;

/// What upstreams tell: who hears of servers that go out and come back and of what goes wrong, and what is counted.
#[derive(Default)]
pub(crate) struct Observer {
    on_change: OnceLock<OnChange>,
    pub(crate) counts: Counters,
    pub(crate) troubles: Troubles,
    pub(crate) buffers: Arc<Buffers>,
}

/// Counted over all upstreams, workers and reloads.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) sent_again: AtomicU64,
    pub(crate) not_sent_again: AtomicU64,
    pub(crate) no_server: AtomicU64,
    pub(crate) all_busy: AtomicU64,
    pub(crate) tunnels: TunnelCounters,
}

/// What was counted of upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamCounts {
    /// Requests sent to another server after one failed.
    pub sent_again: u64,
    /// Requests that were not, because too many others were.
    pub not_sent_again: u64,
    /// Requests answered 503 because all servers were down or left alone.
    pub no_server: u64,
    /// Requests answered 503 because all servers had as many open as they may.
    pub all_busy: u64,
    /// Bytes of responses held in memory now, for clients that read slowly.
    pub held_in_memory: u64,
    /// The same on the disk.
    pub held_on_disk: u64,
    /// What was counted of requests that went on in another protocol.
    pub tunnels: TunnelCounts,
    failures: [u64; Cause::NAMES.len()],
}

impl UpstreamCounts {
    /// Requests to servers that got no response or not all of it, each attempt, by the reason.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Cause::NAMES.into_iter().zip(self.failures)
    }

    pub(crate) fn of(observer: &Observer) -> Self {
        let Counters { sent_again, not_sent_again, no_server, all_busy, tunnels } = &observer.counts;
        let [sent_again, not_sent_again, no_server, all_busy] =
            [sent_again, not_sent_again, no_server, all_busy].map(|count| count.load(Ordering::Relaxed));
        let [held_in_memory, held_on_disk] = observer.buffers.held();
        let failures = observer.troubles.failures();
        let tunnels = TunnelCounts::of(tunnels);
        Self { sent_again, not_sent_again, no_server, all_busy, held_in_memory, held_on_disk, tunnels, failures }
    }
}

impl Observer {
    /// `tell` is called on workers, which it must not hold up. The first one stays.
    pub(crate) fn set(&self, tell: OnChange) {
        let _ = self.on_change.set(tell);
    }
}

/// Milliseconds on a clock of the process, never 0.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
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
        ServerState { upstream: (*self.upstream).to_owned(), server: self.server.clone(), condition }
    }

    /// Whether it is asked as usual: one load, for the hot path.
    pub(crate) fn is_in(&self) -> bool {
        self.until.load(Ordering::Relaxed) == 0
    }

    /// Whether checks say that it is down.
    pub(crate) fn is_down(&self) -> bool {
        self.until.load(Ordering::Relaxed) & DOWN != 0
    }

    /// Whether it may have another request beside those that are open.
    pub(crate) fn has_room(&self, limit: u32) -> bool {
        self.open.load(Ordering::Relaxed) < limit
    }

    /// Takes a place for a request. `false` if there is none.
    pub(crate) fn enter(&self, limit: u32) -> bool {
        let next = |open: u32| (open < limit).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// In how many milliseconds it may be tried; of one that is down that is not known.
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
            self.change(|until| until & DOWN);
        }
    }

    pub(crate) fn failed(&self, rule: &UpstreamHealth, is_trial: bool, now: u64) {
        if is_trial {
            self.trials.fetch_add(1, Ordering::Relaxed);
        } else if !self.is_in() || self.failures.fetch_add(1, Ordering::Relaxed) + 1 < rule.failures {
            // What began before the server was left alone says nothing new of it.
            return;
        }
        let next = now.saturating_add(self.out(rule)) & !DOWN;
        self.change(|until| (until & DOWN) | next);
    }

    /// What checks say of it. Whether requests fail is another question, which they do not answer.
    pub(crate) fn checked(&self, is_up: bool) {
        self.change(|until| if is_up { until & !DOWN } else { until | DOWN });
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let updated = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| Some(to(until)));
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
        _ => ServerCondition::LeftAlone,
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
            // With a head that is too large it works, and what one address answers says nothing of the others.
            E::Unsupported(_) | E::NoUpgrade(_) | E::Refused(_) | E::HeadTooLarge(_) => return false,
            _ => FailureKind::Broken,
        },
        _ => return false,
    };
    rule.failures > 0 && (kind == FailureKind::Connect || !has_content) && rule.count.contains(&kind)
}

/// Whether a response counts against the server.
pub(crate) fn counts_status(rule: &UpstreamHealth, status: StatusCode) -> bool {
    !rule.statuses.is_empty() && rule.failures > 0 && rule.statuses.contains(&status.as_u16())
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

    #[test]
    fn checks_and_requests_each_take_a_server_out_and_bring_back_only_that() {
        use ServerCondition::{Down, LeftAlone, Up};
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (observer, seen) = (Arc::new(Observer::default()), told.clone());
        observer.set(Box::new(move |state| seen.lock().unwrap().push(state.condition)));
        let (health, rule) = (ServerHealth::new(&"app".into(), "http://a:1".to_owned(), &observer), rule());
        health.checked(false);
        health.checked(false);
        assert!(health.is_down() && !health.is_in() && health.waits(1) > 1000 && !health.claim(&rule, u64::MAX >> 2));
        health.succeeded();
        assert!(health.is_down(), "a request that began before says nothing of it");
        health.checked(true);
        (0..2).for_each(|_| health.failed(&rule, false, 1));
        assert_eq!((health.is_in(), health.is_down()), (false, false));
        health.checked(true);
        assert_eq!(health.waits(1), 1000, "a good check does not say that requests succeed");
        health.checked(false);
        health.failed(&rule, true, 1001);
        assert!(health.is_down());
        health.checked(true);
        assert_eq!(health.waits(1001), 2000);
        health.succeeded();
        assert_eq!(health.state().condition, ServerCondition::Up);
        assert_eq!(*told.lock().unwrap(), [Down, Up, LeftAlone, Down, LeftAlone, Up], "each change once");
    }

    #[test]
    fn nothing_counts_where_no_failures_are_allowed_for() {
        let off = UpstreamHealth { failures: 0, statuses: vec![503], ..rule() };
        assert!(!counts(&off, &Error::TimedOut(Phase::Connect), false) && !counts_status(&off, StatusCode::SERVICE_UNAVAILABLE));
    }
}
