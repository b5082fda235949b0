//! Client and server in one thread, on a clock and over a network that are generated from a seed.
//!
//! A seed determines a [`Plan`]: the network, the limits of both sides, and a few dozen exchanges
//! with everything that can happen to them. [`run`] executes the plan. It checks that each exchange
//! ends as planned, that memory limits are kept, and that nothing is left at the end. The same seed
//! does the same things at the same times, to the last datagram.
//!
//! `PRONGHORN_SIM_SEED` selects a single seed and prints its events; `PRONGHORN_SIM_SEEDS` sets the
//! number of seeds, and `PRONGHORN_SIM_FIRST` the first of them.

mod content;
mod exchange;
mod host;
pub(crate) mod network;
mod plan;
mod pressure;
pub(crate) mod tls;
pub(crate) mod trace;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use self::exchange::{Ended, Log, User};
use self::host::Host;
use self::network::{Network, NetworkConditions, Side};
use self::plan::{Exchange, Plan};
use self::trace::Trace;
use crate::transport::Datagram;
use crate::{Connector, Limits, Responder};

/// Maximum virtual time of a run. The slowest link, the longest idle timeout and the longest wait
/// together take less, even if requests run one at a time over a path that loses a tenth in each
/// direction.
const PATIENCE: Duration = Duration::from_secs(1000);
/// Maximum virtual time on the worst networks. An acknowledgment that finally arrives makes the
/// round-trip time as long as the distance of the probes, many seconds, and the idle timeout is at
/// least three probe timeouts (RFC 9000, section 10.1).
const PATIENCE_IN_DEADLY_WEATHER: Duration = Duration::from_secs(4000);
/// More turns than this without time passing mean an endless loop.
const TURNS_AT_ONCE: u32 = 1000;

/// Result of a seed.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Number of events, and their hash.
    trace: (u64, u64),
    /// Virtual duration.
    lasted: Duration,
    /// Number of exchanges, and the server's counters.
    counts: Counts,
}

type Counts = BTreeMap<&'static str, u64>;

struct Simulation {
    plan: Plan,
    began: Instant,
    now: Instant,
    server: Host,
    client: Host,
    network: Network,
    trace: Trace,
    exchanges: Rc<Vec<Exchange>>,
    log: Log,
}

/// Runs a seed.
///
/// # Panics
///
/// When a check fails.
fn run(seed: u64, verbose: bool) -> Outcome {
    let plan = Plan::draw(seed);
    if verbose {
        eprintln!("{plan:#?}");
    }
    let mut simulation = Simulation::new(plan, seed, verbose);
    simulation.run();
    simulation.check()
}

impl Simulation {
    fn new(plan: Plan, seed: u64, verbose: bool) -> Self {
        let began = Instant::now();
        let exchanges: Rc<Vec<Exchange>> = Rc::new(
            plan.connections.iter().flat_map(|connection| connection.requests.clone()).collect(),
        );
        let log: Log = Log::default();
        log.borrow_mut().resize_with(exchanges.len(), Default::default);
        // Every second run parks all handshakes, which must make no difference.
        let tls = if seed.is_multiple_of(2) {
            tls::Tls::new(&plan.server)
        } else {
            tls::Tls::parked(&plan.server)
        };
        let handler = exchange::handler(exchanges.clone(), log.clone());
        let addresses =
            ["192.0.2.1:443", "198.51.100.1:40000"].map(|address| address.parse().unwrap());
        let server = Host::new(began, plan.server.clone(), Some(tls.server), handler, seed ^ 1);
        let refuse = |_, responder: Responder| drop(responder);
        let client = Host::new(began, plan.client.clone(), None, refuse, seed ^ 2);
        let network =
            Network::new(plan.conditions.clone(), seed ^ 3, began, addresses[1], addresses[0]);
        let user = User {
            connector: Connector::new(
                client.handle().clone(),
                &tls.client,
                client.http3.client(),
                None,
                Limits::default(),
            )
            .unwrap(),
            handle: client.handle().clone(),
            server: addresses[0],
            resumption: plan.resumption,
            log: log.clone(),
        };
        for connection in &plan.connections {
            client.handle().spawn(user.clone().connection(connection.clone()));
        }
        Self {
            plan,
            began,
            now: began,
            server,
            client,
            network,
            trace: Trace::new(began, verbose),
            exchanges,
            log,
        }
    }

    /// Runs until nothing can happen any more.
    fn run(&mut self) {
        let patience = if self.plan.deadly { PATIENCE_IN_DEADLY_WEATHER } else { PATIENCE };
        let mut turns_at_once = 0;
        let mut go_away = self.plan.go_away.map(|after| self.began + after);
        loop {
            if go_away.is_some_and(|at| at <= self.now) {
                go_away = None;
                self.server.http3.go_away(self.now);
            }
            self.turn();
            let next = if self.server.wants_turn() || self.client.wants_turn() {
                Some(self.now)
            } else {
                [
                    self.network.next_arrival(),
                    self.server.next_deadline(),
                    self.client.next_deadline(),
                    go_away,
                ]
                .into_iter()
                .flatten()
                .min()
            };
            let Some(next) = next else { return };
            if next > self.now {
                turns_at_once = 0;
                self.now = next;
            } else {
                turns_at_once += 1;
                assert!(
                    turns_at_once < TURNS_AT_ONCE,
                    "time stands still at {:?}",
                    self.now - self.began
                );
            }
            assert!(self.now - self.began < patience, "stalled: {:?}", self.open());
        }
    }

    fn turn(&mut self) {
        let (mut to_server, mut to_client) = (Vec::<Datagram>::new(), Vec::new());
        while let Some((side, datagram)) = self.network.poll_arrival(self.now) {
            self.trace.note(self.now, "arrive", side as u64, datagram.data.len() as u64);
            match side {
                Side::Server => to_server.push(datagram),
                Side::Client => to_client.push(datagram),
            }
        }
        let Self { now, network, trace, .. } = self;
        self.server.turn(*now, to_server.into_iter(), |transmit, data| {
            network.send(*now, Side::Server, transmit, data, trace);
        });
        self.client.turn(*now, to_client.into_iter(), |transmit, data| {
            network.send(*now, Side::Client, transmit, data, trace);
        });
    }

    /// Returns the exchanges that have not ended.
    fn open(&self) -> Vec<&Exchange> {
        let log = self.log.borrow();
        self.exchanges
            .iter()
            .filter(|exchange| log[exchange.number as usize].ended.is_none())
            .collect()
    }

    fn check(mut self) -> Outcome {
        let log = self.log.take();
        if self.trace.is_verbose() {
            let stats = self.server.stats().values();
            eprintln!(
                "server: {:?}",
                stats.iter().filter(|(_, value)| *value > 0).collect::<Vec<_>>()
            );
        }
        let kinds = [("complete", 0), ("left", 1), ("failed", 2)];
        for connection in &self.plan.connections {
            let lasts = connection.closes.is_none() && self.plan.lasts();
            for exchange in &connection.requests {
                let record = &log[exchange.number as usize];
                exchange::check_end(exchange, record, lasts);
                exchange::check_memory(&self.plan, exchange, record);
                let (kind, value) = match record.ended {
                    Some(Ended::Complete) => kinds[0],
                    Some(Ended::Left) => kinds[1],
                    _ => kinds[2],
                };
                self.trace.note(record.ended_at.unwrap_or(self.now), kind, exchange.number, value);
                if self.trace.is_verbose() {
                    eprintln!(
                        "exchange {}: {:?}, upload {:?}",
                        exchange.number, record.ended, record.upload
                    );
                }
            }
        }
        let handled: u64 = log.iter().map(|record| record.handled).sum();
        self.check_server(handled);
        for (who, host) in [("server", &self.server), ("client", &self.client)] {
            assert!(host.http3.is_idle(), "the {who} still has connections");
            assert_eq!(host.tasks(), 0, "the {who} still has futures");
        }
        let complete = log.iter().filter(|record| record.ended == Some(Ended::Complete)).count();
        let mut counts = Counts::from_iter(self.server.stats().values());
        counts.extend([("complete", complete as u64), ("exchanges", self.exchanges.len() as u64)]);
        Outcome { trace: self.trace.summary(), lasted: self.now - self.began, counts }
    }

    fn check_server(&self, handled: u64) {
        let stats = self.server.stats();
        assert_eq!(
            (stats.quic_open.value(), stats.requests_open.value(), stats.tunnels_open.value()),
            (0, 0, 0)
        );
        let (connected, handshakes) = (stats.quic_connected.value(), stats.quic_handshake.count());
        assert_eq!((handshakes, stats.tls_1_3.value()), (connected, connected));
        assert!(stats.quic_packets_lost.value() <= stats.quic_packets_sent.value());
        assert_eq!(stats.requests_http3.value(), handled);
        // Requests that crossed GOAWAY on their way are refused.
        assert!(stats.requests_refused.value() == 0 || self.plan.go_away.is_some());
        assert!(stats.requests_aborted.value() <= handled);
        assert!(stats.quic_connected.value() <= stats.quic_accepted.value());
        if self.plan.lasts()
            && self.plan.connections.iter().all(|connection| connection.closes.is_none())
            && self.exchanges.iter().all(Exchange::is_whole)
        {
            assert_eq!(stats.requests_aborted.value(), 0);
            assert_eq!(handled, self.exchanges.len() as u64);
        }
    }
}

// ---- tests

/// Runs seeds on all processors, and adds up their counters.
///
/// # Panics
///
/// When seeds fail; the message has their numbers.
fn run_all(seeds: std::ops::Range<u64>) -> Counts {
    let next = AtomicU64::new(seeds.start);
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let sum = Mutex::new(Counts::new());
    let failures = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            match std::panic::catch_unwind(AssertUnwindSafe(|| run(seed, false))) {
                Ok(outcome) => outcome.counts.into_iter().for_each(|(name, count)| {
                    *sum.lock().unwrap().entry(name).or_default() += count;
                }),
                Err(_) => failures.lock().unwrap().push(seed),
            }
        }
    };
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "seeds {failures:?} failed; inspect one with PRONGHORN_SIM_SEED={}",
        failures[0]
    );
    sum.into_inner().unwrap()
}

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("invalid {name} {text:?}: expected a number"))
    })
}

#[test]
fn every_exchange_of_a_thousand_seeds_ends_as_it_must() {
    if let Some(seed) = number_from_environment("PRONGHORN_SIM_SEED") {
        eprintln!("{:?}", run(seed, true));
        return;
    }
    let seeds = number_from_environment("PRONGHORN_SIM_SEEDS").unwrap_or(1000);
    let first = number_from_environment("PRONGHORN_SIM_FIRST").unwrap_or(0);
    let counts = run_all(first..first + seeds);
    eprintln!("{counts:?}");
    // On a network that loses everything, all checks would pass; and a case that no seed reaches is
    // not tested.
    assert!(
        counts["complete"] * 2 > counts["exchanges"],
        "only {} of {} exchanges were completed",
        counts["complete"],
        counts["exchanges"]
    );
    for name in REACHED {
        assert!(counts[name] > 0 || seeds < 1000, "{name}: not reached by any seed");
    }
}

/// Regressions outside of the first thousand seeds. Each is rare: no hand-made sequence of losses
/// has reproduced it.
#[test]
fn every_exchange_of_seeds_that_have_failed_ends_as_it_must() {
    // The window was full of data that the server could not decrypt before the client's Finished,
    // which waited for the window.
    run_all(1987..1988);
    // Data allowed by the client's Handshake packet was withheld as too much for an unvalidated
    // address.
    run_all(23_080..23_081);
}

/// On a path so slow that most responses wait longer for their turn than the response timeout.
#[test]
fn responses_may_wait_for_their_turn_as_long_as_the_peer_takes_others() {
    let plan = Plan::downloads(
        10,
        100_000,
        NetworkConditions {
            rate: Some(2_000),
            queue: 10_000,
            ..NetworkConditions::calm(Duration::from_millis(50))
        },
    );
    let timeout = plan.server.limits.response_timeout();
    let mut simulation = Simulation::new(plan, 0, false);
    simulation.run();
    let Outcome { lasted, counts, .. } = simulation.check();
    assert!(lasted > 10 * timeout, "{lasted:?}: the path is not slow enough");
    assert_eq!(
        (counts["complete"], counts["response_timeouts"], counts["responses_too_slow"]),
        (10, 0, 0)
    );
}

/// Server counters that the seeds must reach.
const REACHED: [&str; 15] = [
    "qpack_streams_blocked",
    "quic_migrations",
    "quic_held_back_by_peer",
    "quic_packets_lost",
    "quic_peers_held_back",
    "quic_refused",
    "quic_retries_sent",
    "quic_resumed",
    "quic_timed_out",
    "early_data_accepted",
    "requests_early",
    "requests_aborted",
    "requests_refused",
    "datagrams_ignored",
    "stateless_answers_sent",
];

#[test]
fn same_seed_does_the_same() {
    for seed in 0..20 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}

#[test]
fn another_seed_does_something_else() {
    assert_ne!(run(1, false).trace, run(2, false).trace);
}
