//! Load balancing: choice of the server for a request.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::health::{self, ServerHealth};
use crate::clock;
use crate::config::{Policy, ServerAddress, Upstream, UpstreamHealth};

/// The servers of an upstream on one worker.
pub(crate) struct Balance {
    servers: Vec<Rc<Server>>,
    policy: Policy,
    rule: Rc<UpstreamHealth>,
    /// Minimum time after which health checks can report a server that is down as up again, in
    /// milliseconds.
    check_wait: u64,
}

struct Server {
    address: ServerAddress,
    weight: u32,
    /// Requests of this worker whose responses are not complete.
    open: Cell<u32>,
    /// Smooth weighted round robin: grows by the weight at each choice, and falls by all weights
    /// when it is chosen.
    credit: Cell<i64>,
    /// `None` if failures are not counted, and there are neither checks nor limits.
    health: Option<Arc<ServerHealth>>,
    /// Maximum number of open requests of all workers.
    limit: Option<u32>,
    rule: Rc<UpstreamHealth>,
}

/// The key of the policies that hash.
#[derive(Clone, Copy, Hash)]
pub(crate) enum Key<'a> {
    Client(IpAddr),
    Text(&'a [u8]),
}

/// An open request to a server, counted until it is dropped.
pub(crate) struct OpenRequest {
    server: Rc<Server>,
    index: usize,
    /// Whether the request is the trial of an ejected server.
    is_trial: bool,
}

impl OpenRequest {
    /// Returns `None` if the server is at its limit.
    fn new(server: &Rc<Server>, index: usize, is_trial: bool) -> Option<Self> {
        if let (Some(limit), Some(health)) = (server.limit, &server.health)
            && !health.open_request(limit)
        {
            return None;
        }
        server.open.set(server.open.get() + 1);
        Some(Self { server: server.clone(), index, is_trial })
    }

    /// Returns the server's index.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn address(&self) -> &ServerAddress {
        &self.server.address
    }

    /// Records a response.
    pub(crate) fn answered(&self, status: http::StatusCode) {
        let Some(health) = &self.server.health else { return };
        if health::counts_status(&self.server.rule, status) {
            health.failed(&self.server.rule, self.is_trial, clock::now());
        } else {
            health.succeeded();
        }
    }

    /// Records a failure without a response.
    pub(crate) fn failed(&self, error: &pronghorn_client::Error, has_content: bool) {
        if let Some(health) = &self.server.health
            && health::counts(&self.server.rule, error, has_content)
        {
            health.failed(&self.server.rule, self.is_trial, clock::now());
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.server.open.set(self.server.open.get() - 1);
        if let (Some(_), Some(health)) = (self.server.limit, &self.server.health) {
            health.close_request();
        }
    }
}

impl Server {
    /// Returns whether the server is in rotation or due for a trial.
    fn is_available(&self) -> bool {
        self.health
            .as_ref()
            .is_none_or(|health| health.is_in_rotation() || health.retry_delay(clock::now()) == 0)
    }

    fn has_capacity(&self) -> bool {
        self.limit.is_none_or(|limit| {
            self.health.as_ref().is_none_or(|health| health.has_capacity(limit))
        })
    }

    /// Compares open requests relative to weight; multiplied crosswise to avoid a division.
    fn is_less_busy_than(&self, other: &Self) -> bool {
        u64::from(self.open.get()) * u64::from(other.weight)
            < u64::from(other.open.get()) * u64::from(self.weight)
    }
}

impl Balance {
    /// `health` has an entry for each server, or is empty if nothing is counted or checked.
    pub(crate) fn new(upstream: &Upstream, health: &[Arc<ServerHealth>]) -> Self {
        let mut rule = upstream.health.clone();
        // There is no other server to fail over to.
        if upstream.servers.len() == 1 {
            rule.failures = 0;
        }
        let rule = Rc::new(rule);
        let check_wait = upstream.check.as_ref().map_or(0, |check| {
            check.0.every.0.as_millis().saturating_mul(check.0.successes.into())
        });
        let server = |(index, server): (usize, &crate::config::UpstreamServer)| {
            let (address, weight) = (server.0.address.clone(), server.0.weight);
            Rc::new(Server {
                address,
                weight,
                open: Cell::new(0),
                credit: Cell::new(0),
                health: health.get(index).cloned(),
                limit: upstream.requests,
                rule: rule.clone(),
            })
        };
        Self {
            servers: upstream.servers.iter().enumerate().map(server).collect(),
            policy: upstream.policy,
            rule: rule.clone(),
            check_wait: u64::try_from(check_wait).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns the number of seconds until the first ejected server may be tried.
    pub(crate) fn seconds_to_wait(&self) -> u64 {
        let now = clock::now();
        let wait = |health: &Arc<ServerHealth>| {
            if health.is_down() { self.check_wait } else { health.retry_delay(now) }
        };
        let retry_delay =
            self.servers.iter().filter_map(|server| server.health.as_ref()).map(wait).min();
        retry_delay.unwrap_or(0).div_ceil(1000).max(1)
    }

    /// Returns whether a server is unavailable only because of its limit of open requests.
    pub(crate) fn is_busy(&self) -> bool {
        self.servers.iter().any(|server| server.is_available() && !server.has_capacity())
    }

    /// Chooses a server for a request with this `key`, excluding ejected servers and those in
    /// `tried`. `wanted` is preferred if it is in rotation.
    pub(crate) fn choose(
        &self,
        key: Key<'_>,
        wanted: Option<usize>,
        tried: &[usize],
    ) -> Option<OpenRequest> {
        if let Some(index) = wanted
            && let Some(server) = self.servers.get(index)
            && !tried.contains(&index)
            && server.health.as_ref().is_none_or(|health| health.is_in_rotation())
            && let Some(open) = OpenRequest::new(server, index, false)
        {
            return Some(open);
        }
        loop {
            let (index, server) = self.pick(key, tried)?;
            let chosen = match &server.health {
                // Another worker has claimed the trial; the server stays ejected.
                Some(health)
                    if !health.is_in_rotation()
                        && !health.claim_trial(&self.rule, clock::now()) =>
                {
                    None
                }
                Some(health) => OpenRequest::new(server, index, !health.is_in_rotation()),
                None => OpenRequest::new(server, index, false),
            };
            // If another worker took the last slot, the next iteration sees that the server is
            // full.
            if chosen.is_some() {
                return chosen;
            }
        }
    }

    fn pick(&self, key: Key<'_>, tried: &[usize]) -> Option<Candidate<'_>> {
        let candidates = || {
            self.servers.iter().enumerate().filter(|(index, server)| {
                !tried.contains(index) && server.is_available() && server.has_capacity()
            })
        };
        match self.policy {
            _ if self.servers.len() == 1 => candidates().next(),
            Policy::First => candidates().next(),
            Policy::RoundRobin => round_robin(candidates()),
            Policy::LeastRequests => candidates().reduce(less_busy),
            Policy::RandomOfTwo => {
                let count = candidates().count();
                match count {
                    0 => None,
                    1 => candidates().next(),
                    _ => {
                        let first = rand::random_range(0..count);
                        let second = (first + rand::random_range(1..count)) % count;
                        candidates()
                            .nth(first)
                            .zip(candidates().nth(second))
                            .map(|(one, other)| less_busy(one, other))
                    }
                }
            }
            Policy::ClientAddress | Policy::Path | Policy::Header => candidates()
                .max_by(|(_, one), (_, other)| rank(one, key).total_cmp(&rank(other, key))),
        }
    }
}

type Candidate<'a> = (usize, &'a Rc<Server>);

fn less_busy<'a>(one: Candidate<'a>, other: Candidate<'a>) -> Candidate<'a> {
    if other.1.is_less_busy_than(one.1) { other } else { one }
}

fn round_robin<'a>(candidates: impl Iterator<Item = Candidate<'a>>) -> Option<Candidate<'a>> {
    let (mut best, mut total): (Option<Candidate<'a>>, i64) = (None, 0);
    for (index, server) in candidates {
        let credit = server.credit.get() + i64::from(server.weight);
        server.credit.set(credit);
        total += i64::from(server.weight);
        if best.is_none_or(|(_, best)| credit > best.credit.get()) {
            best = Some((index, server));
        }
    }
    let (_, server) = best?;
    server.credit.set(server.credit.get() - total);
    best
}

/// Weighted rendezvous hashing: a client keeps its server when others are added or removed.
fn rank(server: &Server, key: Key<'_>) -> f64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    match &server.address.socket {
        Some(path) => (path, key).hash(&mut hasher),
        None => (server.address.secure, server.address.authority.as_str(), key).hash(&mut hasher),
    }
    // In the open interval from 0 to 1, where the logarithm is finite.
    let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    f64::from(server.weight) / -uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamServer;

    const CLIENT: Key<'static> = Key::Client(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn balance(policy: Policy, weights: &[u32]) -> Balance {
        let server = |(number, weight): (usize, &u32)| {
            let address: ServerAddress =
                format!("http://10.0.0.{number}:80").parse().expect("an address");
            UpstreamServer(crate::config::UpstreamServerTable { address, weight: *weight })
        };
        let mut upstream = Upstream::of("http://a:1".parse().expect("an address"));
        upstream.servers = weights.iter().enumerate().map(server).collect();
        upstream.policy = policy;
        upstream.health.failures = 1;
        upstream.health.out = crate::config::Time::seconds(3600);
        upstream.health.out_max = upstream.health.out;
        let health: Vec<_> = weights.iter().map(|_| Arc::default()).collect();
        Balance::new(&upstream, &health)
    }

    fn indices(balance: &Balance, count: usize) -> Vec<usize> {
        (0..count).map(|_| balance.choose(CLIENT, None, &[]).expect("a server").index()).collect()
    }

    #[test]
    fn round_robin_is_smooth_and_by_weight() {
        assert_eq!(indices(&balance(Policy::RoundRobin, &[5, 1, 1]), 7), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(indices(&balance(Policy::RoundRobin, &[1, 1]), 4), [0, 1, 0, 1]);
    }

    #[test]
    fn least_requests_counts_what_is_open() {
        let balance = balance(Policy::LeastRequests, &[1, 1, 2]);
        let open: Vec<_> =
            (0..8).map(|_| balance.choose(CLIENT, None, &[]).expect("a server")).collect();
        let of = |index| open.iter().filter(|open| open.index() == index).count();
        assert_eq!((of(0), of(1), of(2)), (2, 2, 4));
        drop(open);
        assert_eq!(indices(&balance, 1), [0]);
    }

    #[test]
    fn tried_servers_are_left_out_whatever_the_policy() {
        for policy in [
            Policy::RoundRobin,
            Policy::LeastRequests,
            Policy::RandomOfTwo,
            Policy::First,
            Policy::ClientAddress,
        ] {
            let balance = balance(policy, &[1, 1, 1]);
            for _ in 0..20 {
                let index = balance.choose(CLIENT, None, &[0, 2]).map(|open| open.index());
                assert_eq!(index, Some(1), "{policy:?}");
                assert!(balance.choose(CLIENT, None, &[0, 1, 2]).is_none(), "{policy:?}");
            }
        }
    }

    #[test]
    fn servers_that_fail_are_left_alone_whatever_the_policy() {
        let failure = pronghorn_client::Error::TimedOut(pronghorn_client::Phase::Connect);
        for policy in [
            Policy::RoundRobin,
            Policy::LeastRequests,
            Policy::RandomOfTwo,
            Policy::First,
            Policy::ClientAddress,
        ] {
            let balance = balance(policy, &[1, 1, 1]);
            let late = balance.choose(CLIENT, None, &[1, 2]).expect("a server");
            for down in [0, 2] {
                let others: Vec<_> = (0..3).filter(|index| *index != down).collect();
                balance.choose(CLIENT, None, &others).expect("a server").failed(&failure, true);
            }
            assert_eq!(indices(&balance, 20), [1; 20], "{policy:?}");
            balance.choose(CLIENT, None, &[]).expect("a server").failed(&failure, true);
            assert!(balance.choose(CLIENT, None, &[]).is_none(), "{policy:?}");
            assert!((3590..=3600).contains(&balance.seconds_to_wait()));
            late.answered(http::StatusCode::OK);
            assert_eq!(indices(&balance, 20), [0; 20], "{policy:?}");
        }
    }

    #[test]
    fn client_keeps_its_server_when_another_leaves() {
        let (all, fewer) =
            (balance(Policy::ClientAddress, &[1; 5]), balance(Policy::ClientAddress, &[1; 4]));
        let mut moved = 0;
        for number in 0..1000_u16 {
            let client = IpAddr::from([10, 1, number.to_be_bytes()[0], number.to_be_bytes()[1]]);
            let before = all.choose(Key::Client(client), None, &[]).expect("a server").index();
            let after = fewer.choose(Key::Client(client), None, &[]).expect("a server").index();
            assert!(before == 4 || before == after, "only clients of the one that left may move");
            moved += usize::from(before != after);
        }
        assert!((100..300).contains(&moved), "a fifth was expected to move: {moved}");
    }

    #[test]
    fn clients_spread_over_unix_sockets() {
        let mut upstream = Upstream::of("unix:/run/a.sock".parse().expect("an address"));
        upstream.policy = Policy::ClientAddress;
        upstream
            .servers
            .extend(Upstream::of("unix:/run/b.sock".parse().expect("an address")).servers);
        let balance = Balance::new(&upstream, &[]);
        let of = |last: u8| {
            balance
                .choose(Key::Client(IpAddr::from([10, 0, 0, last])), None, &[])
                .expect("a server")
                .index()
        };
        assert_eq!((0..=255).map(of).collect::<std::collections::BTreeSet<_>>().len(), 2);
    }

    #[test]
    fn random_of_two_avoids_the_busiest() {
        let balance = balance(Policy::RandomOfTwo, &[1, 1]);
        let busy = balance.choose(CLIENT, None, &[1]).expect("a server");
        assert!(indices(&balance, 50).iter().all(|index| *index == 1));
        drop(busy);
    }

    #[test]
    fn wanted_server_is_asked_unless_it_was_tried_or_is_left_alone() {
        let failure = pronghorn_client::Error::TimedOut(pronghorn_client::Phase::Connect);
        let balance = balance(Policy::First, &[1, 1, 1]);
        let asked = |tried: &[usize]| balance.choose(CLIENT, Some(2), tried).expect("a server");
        assert_eq!((asked(&[]).index(), asked(&[2]).index()), (2, 0));
        asked(&[]).failed(&failure, true);
        assert_eq!(asked(&[]).index(), 0);
        assert_eq!(
            balance.choose(CLIENT, Some(7), &[]).expect("a server").index(),
            0,
            "there is no such server"
        );
    }

    #[test]
    fn server_has_no_more_requests_open_than_it_may_over_all_workers() {
        for policy in [
            Policy::RoundRobin,
            Policy::LeastRequests,
            Policy::RandomOfTwo,
            Policy::First,
            Policy::ClientAddress,
        ] {
            let mut upstream = Upstream::of("http://a:1".parse().expect("an address"));
            upstream.servers = [upstream.servers.clone(), upstream.servers].concat();
            (upstream.policy, upstream.requests) = (policy, Some(3));
            let health: Vec<_> = (0..2).map(|_| Arc::default()).collect();
            let workers = [(); 2].map(|()| Balance::new(&upstream, &health));
            let mut open: Vec<_> = (0..6)
                .map(|number| workers[number % 2].choose(CLIENT, Some(0), &[]).expect("a place"))
                .collect();
            assert_eq!(open.iter().filter(|open| open.index() == 0).count(), 3, "{policy:?}");
            assert!(
                workers
                    .iter()
                    .all(|worker| worker.choose(CLIENT, None, &[]).is_none() && worker.is_busy()),
                "{policy:?}"
            );
            let freed = open.swap_remove(2).index();
            assert_eq!(
                workers[0].choose(CLIENT, Some(1 - freed), &[]).map(|open| open.index()),
                Some(freed),
                "{policy:?}"
            );
            drop(open);
            assert!(!workers[1].is_busy());
        }
    }

    #[test]
    fn same_text_is_asked_of_the_same_server_and_texts_are_spread() {
        for policy in [Policy::Path, Policy::Header] {
            let balance = balance(policy, &[1, 1, 2]);
            let of = |text: &str| {
                balance.choose(Key::Text(text.as_bytes()), None, &[]).expect("a server").index()
            };
            let mut counts = [0; 3];
            for number in 0..1000 {
                let text = format!("/path/{number}");
                assert_eq!(of(&text), of(&text), "{policy:?}");
                counts[of(&text)] += 1;
            }
            assert!(
                (200..300).contains(&counts[0]) && (200..300).contains(&counts[1]),
                "{policy:?}: {counts:?}"
            );
        }
    }
}
