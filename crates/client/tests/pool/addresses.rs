//! Host names whose addresses change.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_client::{Error, Options, Resolve};
use pronghorn_engine::{Config, Protocol, Request, Responder};

use crate::support::{Bench, PROTOCOLS, hello, only, silent_at_first};

const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const EVERY: Duration = Duration::from_secs(10);

/// Addresses of a host name; empty if the lookup fails.
#[derive(Clone, Default)]
struct Name(Arc<Mutex<Vec<Ipv4Addr>>>);

impl Name {
    fn set(&self, addresses: &[Ipv4Addr]) {
        *self.0.lock().unwrap() = addresses.to_vec();
    }

    fn options(&self, protocol: Protocol) -> Options {
        let name = self.clone();
        let resolve = Resolve::new(move |_, port| {
            let found = name.0.lock().unwrap().clone();
            async move {
                let fails = found.is_empty();
                let found = found.into_iter().map(|ip| (ip, port).into()).collect();
                if fails { Err(io::Error::other("no answer")) } else { Ok(found) }
            }
        });
        Options { resolve, resolve_every: Some(EVERY), ..only(protocol) }
    }

    fn bench(&self, protocol: Protocol) -> Bench {
        let handler: fn(Request, Responder) = hello;
        Bench::at(&[FIRST, SECOND], 1, &Config::default(), self.options(protocol), &handler)
    }
}

fn requests(bench: &Bench) -> Vec<u64> {
    let of = |stats: &pronghorn_engine::Stats| {
        stats.requests_http1.value() + stats.requests_http2.value() + stats.requests_http3.value()
    };
    bench.stats.iter().map(|stats| of(stats)).collect()
}

#[test]
fn changed_addresses_move_requests_to_new_connections() {
    for protocol in PROTOCOLS {
        let name = Name::default();
        name.set(&[FIRST]);
        let mut bench = name.bench(protocol);
        bench.fetch();
        name.set(&[SECOND]);
        // On a busy machine, real time adds to this.
        bench.pass(4, Duration::from_secs(1));
        bench.fetch();
        assert_eq!(requests(&bench), [2, 0], "{protocol}: not looked up again yet");
        // The connection stays in use, so that it is not closed as idle.
        bench.pass(18, Duration::from_secs(1));
        bench.fetch();
        assert_eq!(requests(&bench), [2, 1], "{protocol}");
        bench.turn_until(|bench| bench.open() == 1);
        assert_eq!(bench.accepted(), 2, "{protocol}");
    }
}

#[test]
fn request_in_flight_to_a_removed_address_keeps_its_connection() {
    for protocol in PROTOCOLS {
        let name = Name::default();
        name.set(&[FIRST]);
        let handler: fn(Request, Responder) = silent_at_first;
        let options = Options { head_timeout: Duration::from_secs(300), ..name.options(protocol) };
        let mut bench = Bench::at(&[FIRST, SECOND], 1, &Config::default(), options, &handler);
        let silent = bench.begin(bench.request());
        bench.turn_until(|bench| bench.requests() == 1);
        name.set(&[SECOND]);
        bench.pass(22, Duration::from_secs(1));
        assert!(silent.borrow().is_none(), "{protocol}");
        let answered = bench.begin(bench.get("/other"));
        bench.turn_until(|_| answered.borrow().is_some());
        assert_eq!(requests(&bench), [1, 1], "{protocol}");
        assert_eq!(bench.open(), 2, "{protocol}: the earlier request still waits");
    }
}

#[test]
fn failed_lookup_keeps_the_previous_addresses() {
    for protocol in PROTOCOLS {
        let name = Name::default();
        let mut bench = name.bench(protocol);
        assert!(
            matches!(bench.send(bench.request()), Err(Error::Lookup { .. })),
            "{protocol}: no known addresses"
        );
        name.set(&[SECOND]);
        bench.fetch();
        name.set(&[]);
        bench.pass(12, Duration::from_secs(1));
        bench.fetch();
        bench.pool.close_unused();
        bench.turn_until(|bench| bench.open() == 0);
        bench.fetch();
        assert_eq!((requests(&bench), bench.accepted()), (vec![0, 3], 2), "{protocol}");
    }
}

#[test]
fn all_addresses_of_a_name_are_used() {
    let name = Name::default();
    name.set(&[FIRST, SECOND]);
    let mut bench = name.bench(Protocol::Http1);
    for _ in 0..4 {
        bench.fetch();
        bench.pool.close_unused();
    }
    assert_eq!(requests(&bench), [2, 2]);
}

#[test]
fn names_are_looked_up_only_while_there_are_connections() {
    let lookups = Arc::new(Mutex::new(0));
    let counted = lookups.clone();
    let resolve = Resolve::new(move |_, port| {
        *counted.lock().unwrap() += 1;
        async move { Ok(vec![(FIRST, port).into()]) }
    });
    let handler: fn(Request, Responder) = hello;
    let options = Options { resolve, resolve_every: Some(EVERY), ..only(Protocol::Http2) };
    let mut bench = Bench::new(options, &handler);
    bench.fetch();
    bench.pass(2, EVERY);
    bench.turns(20);
    assert_eq!(*lookups.lock().unwrap(), 3);
    bench.pool.close_unused();
    bench.pass(5, EVERY);
    assert_eq!(*lookups.lock().unwrap(), 3);
}
