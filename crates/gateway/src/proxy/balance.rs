//! Which server a request goes to.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::health::{self, ServerHealth};
use crate::config::{Policy, ServerAddress, Upstream, UpstreamHealth};

/// The servers of an upstream, as one worker sees them.
pub(crate) struct Balance {
    servers: Vec<Rc<Server>>,
    policy: Policy,
    rule: Rc<UpstreamHealth>,
    /// In how many milliseconds a server that is down may be up again.
    check_wait: u64,
}

struct Server {
    address: ServerAddress,
    weight: u32,
    /// Requests of this worker that it has not answered wholly.
    open: Cell<u32>,
    /// Smooth weighted round robin: grows by the weight at each choice, and falls by all weights when it is chosen.
    credit: Cell<i64>,
    /// Missing where nothing is counted, checked or limited.
    health: Option<Arc<ServerHealth>>,
    /// Requests of all workers that it may have open.
    limit: Option<u32>,
    rule: Rc<UpstreamHealth>,
}

/// What a request's server depends on, where that is no matter of turns.
#[derive(Clone, Copy, Hash)]
pub(crate) enum Key<'a> {
    Client(IpAddr),
    Text(&'a [u8]),
}

/// A request that a server has; counted until it is dropped.
pub(crate) struct Open {
    server: Rc<Server>,
    index: usize,
    /// It tries whether the server is there again.
    is_trial: bool,
}

impl Open {
    /// `None` if the server has as many as it may.
    fn new(server: &Rc<Server>, index: usize, is_trial: bool) -> Option<Self> {
        if let (Some(limit), Some(health)) = (server.limit, &server.health)
            && !health.enter(limit)
        {
            return None;
        }
        server.open.set(server.open.get() + 1);
        Some(Self { server: server.clone(), index, is_trial })
    }

    /// The server's number.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn address(&self) -> &ServerAddress {
        &self.server.address
    }

    /// The server has answered.
    pub(crate) fn answered(&self, status: http::StatusCode) {
        let Some(health) = &self.server.health else { return };
        if health::counts_status(&self.server.rule, status) {
            health.failed(&self.server.rule, self.is_trial, health::now());
        } else {
            health.succeeded();
        }
    }

    /// There was no answer.
    pub(crate) fn failed(&self, error: &pronghorn_client::Error, has_content: bool) {
        if let Some(health) = &self.server.health
            && health::counts(&self.server.rule, error, has_content)
        {
            health.failed(&self.server.rule, self.is_trial, health::now());
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.server.open.set(self.server.open.get() - 1);
        if let (Some(_), Some(health)) = (self.server.limit, &self.server.health) {
            health.leave();
        }
    }
}

impl Server {
    /// Whether requests may go to it, or one that tries it.
    fn may_be_asked(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.is_in() || health.waits(health::now()) == 0)
    }

    fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.health.as_ref().is_none_or(|health| health.has_room(limit)))
    }

    /// How busy it is for its weight: compared crosswise, so that nothing is divided.
    fn is_less_busy_than(&self, other: &Self) -> bool {
        u64::from(self.open.get()) * u64::from(other.weight) < u64::from(other.open.get()) * u64::from(self.weight)
    }
}

impl Balance {
    /// `health`: of each server, or nothing where nothing is counted or checked.
    pub(crate) fn new(upstream: &Upstream, health: &[Arc<ServerHealth>]) -> Self {
        let mut rule = upstream.health.clone();
        // Nobody else could be asked.
        if upstream.servers.len() == 1 {
            rule.failures = 0;
        }
        let rule = Rc::new(rule);
        let check_wait = upstream.check.as_ref().map_or(0, |check| check.0.every.0.as_millis().saturating_mul(check.0.successes.into()));
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

    /// In how many seconds the first of the servers that are left alone may be tried.
    pub(crate) fn seconds_to_wait(&self) -> u64 {
        let now = health::now();
        let wait = |health: &Arc<ServerHealth>| if health.is_down() { self.check_wait } else { health.waits(now) };
        let waits = self.servers.iter().filter_map(|server| server.health.as_ref()).map(wait).min();
        waits.unwrap_or(0).div_ceil(1000).max(1)
    }

    /// Whether a server could be asked if it had fewer requests open.
    pub(crate) fn is_busy(&self) -> bool {
        self.servers.iter().any(|server| server.may_be_asked() && !server.has_room())
    }

    /// A server for a request with this `key`, none of those in `tried` and none that is left alone; `wanted`, if that is asked as usual.
    pub(crate) fn choose(&self, key: Key<'_>, wanted: Option<usize>, tried: &[usize]) -> Option<Open> {
        if let Some(index) = wanted
            && let Some(server) = self.servers.get(index)
            && !tried.contains(&index)
            && server.health.as_ref().is_none_or(|health| health.is_in())
            && let Some(open) = Open::new(server, index, false)
        {
            return Some(open);
        }
        loop {
            let (index, server) = self.pick(key, tried)?;
            let chosen = match &server.health {
                // Another worker was faster: now it is left alone again.
                Some(health) if !health.is_in() && !health.claim(&self.rule, health::now()) => None,
                Some(health) => Open::new(server, index, !health.is_in()),
                None => Open::new(server, index, false),
            };
            // Where another worker took the last place, there is none any more when it is looked at again.
            if chosen.is_some() {
                return chosen;
            }
        }
    }

    fn pick(&self, key: Key<'_>, tried: &[usize]) -> Option<Candidate<'_>> {
        let candidates = || {
            self.servers.iter().enumerate().filter(|(index, server)| !tried.contains(index) && server.may_be_asked() && server.has_room())
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
                        candidates().nth(first).zip(candidates().nth(second)).map(|(one, other)| less_busy(one, other))
                    }
                }
            }
            Policy::ClientAddress | Policy::Path | Policy::Header => {
                candidates().max_by(|(_, one), (_, other)| rank(one, key).total_cmp(&rank(other, key)))
            }
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

/// Rendezvous hashing, by weight: a client keeps its server when others come and go.
fn rank(server: &Server, key: Key<'_>) -> f64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    match &server.address.socket {
        Some(path) => (path, key).hash(&mut hasher),
        None => (server.address.secure, server.address.authority.as_str(), key).hash(&mut hasher),
    }
    // In the open interval from 0 to 1, of which the logarithm is finite.
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
            let address: ServerAddress = format!("http://10.0.0.{number}:80").parse().expect("an address");
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
        let open: Vec<_> = (0..8).map(|_| balance.choose(CLIENT, None, &[]).expect("a server")).collect();
        let of = |index| open.iter().filter(|open| open.index() == index).count();
        assert_eq!((of(0), of(1), of(2)), (2, 2, 4));
        drop(open);
        assert_eq!(indices(&balance, 1), [0]);
    }

    #[test]
    fn tried_servers_are_left_out_whatever_the_policy() {
        for policy in [Policy::RoundRobin, Policy::LeastRequests, Policy::RandomOfTwo, Policy::First, Policy::ClientAddress] {
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
        for policy in [Policy::RoundRobin, Policy::LeastRequests, Policy::RandomOfTwo, Policy::First, Policy::ClientAddress] {
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
        let (all, fewer) = (balance(Policy::ClientAddress, &[1; 5]), balance(Policy::ClientAddress, &[1; 4]));
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
        upstream.servers.extend(Upstream::of("unix:/run/b.sock".parse().expect("an address")).servers);
        let balance = Balance::new(&upstream, &[]);
        let of = |last: u8| balance.choose(Key::Client(IpAddr::from([10, 0, 0, last])), None, &[]).expect("a server").index();
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
        assert_eq!(balance.choose(CLIENT, Some(7), &[]).expect("a server").index(), 0, "there is no such server");
    }

    #[test]
    fn server_has_no_more_requests_open_than_it_may_over_all_workers() {
        for policy in [Policy::RoundRobin, Policy::LeastRequests, Policy::RandomOfTwo, Policy::First, Policy::ClientAddress] {
            let mut upstream = Upstream::of("http://a:1".parse().expect("an address"));
            upstream.servers = [upstream.servers.clone(), upstream.servers].concat();
            (upstream.policy, upstream.requests) = (policy, Some(3));
            let health: Vec<_> = (0..2).map(|_| Arc::default()).collect();
            let workers = [(); 2].map(|()| Balance::new(&upstream, &health));
            let mut open: Vec<_> = (0..6).map(|number| workers[number % 2].choose(CLIENT, Some(0), &[]).expect("a place")).collect();
            assert_eq!(open.iter().filter(|open| open.index() == 0).count(), 3, "{policy:?}");
            assert!(workers.iter().all(|worker| worker.choose(CLIENT, None, &[]).is_none() && worker.is_busy()), "{policy:?}");
            let freed = open.swap_remove(2).index();
            assert_eq!(workers[0].choose(CLIENT, Some(1 - freed), &[]).map(|open| open.index()), Some(freed), "{policy:?}");
            drop(open);
            assert!(!workers[1].is_busy());
        }
    }

    #[test]
    fn same_text_is_asked_of_the_same_server_and_texts_are_spread() {
        for policy in [Policy::Path, Policy::Header] {
            let balance = balance(policy, &[1, 1, 2]);
            let of = |text: &str| balance.choose(Key::Text(text.as_bytes()), None, &[]).expect("a server").index();
            let mut counts = [0; 3];
            for number in 0..1000 {
                let text = format!("/path/{number}");
                assert_eq!(of(&text), of(&text), "{policy:?}");
                counts[of(&text)] += 1;
            }
            assert!((200..300).contains(&counts[0]) && (200..300).contains(&counts[1]), "{policy:?}: {counts:?}");
        }
    }
}
