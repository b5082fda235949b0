//! Memory of a server for idle connections.
//!
//! Counts Rust's allocations on the server's worker. The cryptography library's own memory is not
//! included: 1.8 KB for the keys of a connection over QUIC, 1.2 KB over TCP.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use allocation_counter::measure;
use pronghorn_engine::{Config, Connection, Protocol, Resumption};

use crate::support::{Bench, fetch, get, hello};

const KIB: i64 = 1024;
const CONNECTIONS: usize = 100;

/// Runs turns of both workers until `done`. Returns by how much the server's memory has grown.
pub(crate) fn grown_until(bench: &mut Bench, mut done: impl FnMut(&mut Bench) -> bool) -> i64 {
    let mut grown = 0;
    while !done(bench) {
        let now = bench.now();
        grown += measure(|| bench.servers[0].turn(now).unwrap()).bytes_current;
        bench.client.turn(now).unwrap();
    }
    grown
}

/// Returns the bytes per idle connection after its handshake and `requests`.
fn at_rest(protocol: Protocol, requests: usize) -> i64 {
    let mut bench = Bench::new(1, &Config::default(), hello);
    // Pays for one-time allocations.
    let mut first = bench.connect(protocol);
    let answer = bench.run(async move { fetch(&mut first, get("/")).await.map(|_| first) });
    let held: Rc<RefCell<Vec<Connection>>> = Rc::new(RefCell::new(vec![answer.unwrap()]));
    let mut grown = 0;
    for number in 2..CONNECTIONS + 2 {
        let (connecting, held_by_it) =
            (bench.connecting(protocol, Resumption::default()), held.clone());
        bench.client.handle().spawn(async move {
            let mut connection = connecting.await.unwrap();
            for _ in 0..requests {
                fetch(&mut connection, get("/")).await.unwrap();
            }
            held_by_it.borrow_mut().push(connection);
        });
        grown += grown_until(&mut bench, |_| held.borrow().len() == number);
    }
    // Acknowledgments, and then nothing for some seconds of the workers' clock.
    for _ in 0..200 {
        bench.skip(Duration::from_millis(25));
        let mut turns = 0;
        grown += grown_until(&mut bench, |_| {
            turns += 1;
            turns > 4
        });
    }
    grown / CONNECTIONS as i64
}

#[test]
fn idle_connection_holds_little() {
    // The library keeps 400 bytes for each of the latest requests, up to the number that may be
    // open.
    let library = 50 * 400 + 4 * KIB;
    for (protocol, requests, most) in [
        (Protocol::Http3, 0, 22 * KIB),
        (Protocol::Http3, 1, 23 * KIB),
        (Protocol::Http3, 50, 23 * KIB + library),
        (Protocol::Http2, 0, 47 * KIB),
        (Protocol::Http2, 50, 51 * KIB),
        (Protocol::Http1, 0, 32 * KIB),
        (Protocol::Http1, 50, 33 * KIB),
    ] {
        let bytes = at_rest(protocol, requests);
        println!("{protocol} after {requests} requests: {bytes} bytes");
        assert!(
            bytes <= most,
            "{protocol} after {requests} requests: {bytes} bytes, {most} are allowed"
        );
    }
}
