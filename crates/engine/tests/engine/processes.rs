//! Groups that share a port through a directory, as processes do. Here they are on one thread, but
//! share no memory.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use pronghorn_engine::{Directory, Protocol, Resumption, Target};

use crate::steering::Rebinding;
use crate::support::{Bench, Trust, fetch, get, trust};

/// With this many clients the kernel assigns some to either process, except for a chance in a
/// million.
const CLIENTS: usize = 20;
/// Far less than any retransmission timer, by the workers' clock.
const WITHOUT_LOSS: Duration = Duration::from_millis(100);

struct SharedPort {
    bench: Bench,
    trust: Trust,
    directory: Arc<Directory>,
    folder: PathBuf,
}

impl SharedPort {
    fn new() -> Self {
        let folder = std::env::temp_dir()
            .join(format!("pronghorn-processes-{:016x}", rand::random::<u64>()));
        let directory = Arc::new(Directory::open(&folder, "port").unwrap());
        let trust = trust();
        Self { bench: Bench::of_processes(&trust), trust, directory, folder }
    }

    /// Uses another source port for connections from now on.
    fn next_client(&mut self) {
        self.bench.connector = self.bench.client.connector(&self.trust.client).unwrap();
    }

    fn assert_hello(&mut self) {
        let mut connection = self.bench.connect(Protocol::Http3);
        let answer = self.bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())));
    }
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn connection_survives_a_rebinding_to_another_process() {
    let mut shared = SharedPort::new();
    let directory = shared.directory.clone();
    let bench = &mut shared.bench;
    let _claims = [bench.join(&directory), bench.join(&directory)];
    let nat = Rebinding::new(bench.address);
    let mut connection = bench.connect_to(Protocol::Http3, nat.inside.local_addr().unwrap());
    for port in 0..nat.outside.len() {
        nat.port.store(port, Ordering::Relaxed);
        let (answer, back) =
            bench.run(async move { (fetch(&mut connection, get("/")).await, connection) });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "from port {port}");
        connection = back;
    }
    assert!(
        bench.count(|stats| stats.strays_passed_on.value()) > 0,
        "every port led to the same process"
    );
    assert_eq!(bench.count(|stats| stats.quic_accepted.value()), 1);
    assert_eq!(bench.count(|stats| stats.strays_dropped.value()), 0);
    bench.servers.clear();
}

#[test]
fn process_that_leaves_passes_new_connections_to_one_that_stays() {
    let mut shared = SharedPort::new();
    let directory = shared.directory.clone();
    let _claims = [shared.bench.join(&directory), shared.bench.join(&directory)];
    let mut connection = shared.bench.connect(Protocol::Http3);
    let (leaving, staying) =
        if shared.bench.stats[0].quic_accepted.value() == 1 { (0, 1) } else { (1, 0) };
    shared.bench.servers[leaving].stop_listening();
    for _ in 0..CLIENTS {
        shared.next_client();
        shared.assert_hello();
    }
    let answer = shared.bench.run(async move { fetch(&mut connection, get("/")).await });
    assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "the connection that it had");
    let stats = &shared.bench.stats;
    assert_eq!((stats[leaving].quic_accepted.value(), stats[leaving].quic_refused.value()), (1, 0));
    assert_eq!(stats[staying].quic_accepted.value(), CLIENTS as u64);
    assert!(stats[leaving].strays_passed_on.value() > 0, "the kernel gave it no client");
    shared.bench.servers.clear();
}

#[test]
fn last_process_refuses_new_connections_when_it_leaves() {
    let mut shared = SharedPort::new();
    let directory = shared.directory.clone();
    let _claim = shared.bench.join(&directory);
    shared.bench.servers[0].stop_listening();
    assert!(shared.bench.try_connect(Protocol::Http3).is_err());
    assert!(shared.bench.stats[0].quic_refused.value() > 0);
    shared.bench.servers.clear();
}

#[test]
fn handshake_is_done_where_it_began_when_another_process_joins() {
    let mut shared = SharedPort::new();
    let directory = shared.directory.clone();
    let _first = shared.bench.join(&directory);
    for _ in 0..CLIENTS {
        shared.next_client();
        let began = shared.bench.elapsed();
        let connected = Rc::new(RefCell::new(None));
        let (connector, slot) = (shared.bench.connector.clone(), connected.clone());
        let target = Target {
            remote: shared.bench.address,
            server_name: "localhost".to_owned(),
            protocol: Some(Protocol::Http3),
            secure: true,
            resumption: Resumption::default(),
        };
        shared.bench.client.handle().spawn(async move {
            let connection = connector.connect(&target).await;
            *slot.borrow_mut() = Some(connection);
        });
        // The server has begun the handshake, and the client has not answered yet.
        let accepted = shared.bench.stats[0].quic_accepted.value();
        while shared.bench.stats[0].quic_accepted.value() == accepted {
            let now = shared.bench.now();
            shared.bench.client.turn(now).unwrap();
            shared.bench.servers[0].turn(now).unwrap();
        }
        let claim = shared.bench.join(&directory);
        shared.bench.turn_until(|_| connected.borrow().is_some());
        let mut connection = connected.take().unwrap().unwrap();
        let answer = shared.bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())));
        let took = shared.bench.elapsed().saturating_sub(began);
        assert!(took < WITHOUT_LOSS, "after {took:?}");
        shared.bench.servers.pop();
        drop(claim);
    }
    let passed: u64 =
        shared.bench.stats[1..].iter().map(|stats| stats.strays_passed_on.value()).sum();
    assert!(passed > 0, "the kernel moved no client");
    shared.bench.servers.clear();
}

/// Ends the process of a connection. Returns the client's result.
fn end_of_process(is_killed: bool) -> Result<(StatusCode, bytes::Bytes), String> {
    let mut shared = SharedPort::new();
    let directory = shared.directory.clone();
    let mut claims = vec![shared.bench.join(&directory), shared.bench.join(&directory)];
    let mut connection = shared.bench.connect(Protocol::Http3);
    let ending = usize::from(shared.bench.stats[0].quic_accepted.value() != 1);
    let claim = claims.remove(ending);
    drop(shared.bench.servers.remove(ending));
    // A killed process cleans nothing up.
    if is_killed {
        std::mem::forget(claim);
    } else {
        drop(claim);
    }
    let answer = shared.bench.run(async move { fetch(&mut connection, get("/")).await });
    let stays = shared.bench.stats[1 - ending].clone();
    assert!(stays.stateless_resets_sent.value() > 0);
    shared.next_client();
    shared.assert_hello();
    shared.bench.servers.clear();
    answer
}

#[test]
fn connections_of_a_process_that_has_ended_are_reset_by_another() {
    let error = end_of_process(false).unwrap_err();
    assert!(error.contains("stateless reset"), "{error}");
}

#[test]
fn connections_of_a_killed_process_are_reset_by_another() {
    let error = end_of_process(true).unwrap_err();
    assert!(error.contains("stateless reset"), "{error}");
}
