//! Stores of a test, and what is done with them.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_engine::{Secret, SessionName, SharedSession, SharedSessions};
use pronghorn_fleet::secrets::Secrets;
use pronghorn_fleet::sessions::{RedisServers, RedisSessions, RedisSessionsConfig};

use crate::server::{HANG, eventually};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) type Lines = Arc<Mutex<Vec<String>>>;

/// Returns secrets that are the same in all tests.
pub(crate) fn secrets(numbers: &[u8]) -> Secrets {
    let secret = |number: &u8| Secret::new(std::array::from_fn(|at| at as u8 ^ number));
    Secrets::new(numbers.iter().map(secret).collect()).unwrap()
}

/// Returns a configuration whose timeout a busy machine does not reach.
pub(crate) fn config(servers: RedisServers) -> RedisSessionsConfig {
    let mut config = RedisSessionsConfig::new(servers);
    config.timeout = Duration::from_secs(10);
    config
}

/// Collects the log lines of a store.
pub(crate) fn logged(config: &mut RedisSessionsConfig) -> Lines {
    let lines = Lines::default();
    let its_lines = lines.clone();
    config.log = Arc::new(move |line| its_lines.lock().unwrap().push(line.to_owned()));
    lines
}

pub(crate) fn has_line(lines: &Lines, part: &str) -> bool {
    lines.lock().unwrap().iter().any(|line| line.contains(part))
}

pub(crate) fn start(config: RedisSessionsConfig) -> Arc<RedisSessions> {
    RedisSessions::start(config, &secrets(&[1])).unwrap()
}

/// Starts a store and waits until it is connected.
pub(crate) fn connected(config: RedisSessionsConfig) -> Arc<RedisSessions> {
    let store = start(config);
    wait_for(&store, "servers_reachable", 1);
    store
}

pub(crate) fn value(store: &RedisSessions, name: &str) -> u64 {
    let name = format!("shared_sessions_{name}");
    let values = store.values();
    values.iter().find(|(this, _)| *this == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Waits until a value is at least as large.
pub(crate) fn wait_for(store: &RedisSessions, name: &str, least: u64) {
    eventually(&format!("{name} is {least}"), || value(store, name) >= least);
}

pub(crate) fn name(number: u32) -> SessionName {
    let mut name = [0x5a; 32];
    name[..4].copy_from_slice(&number.to_be_bytes());
    name
}

pub(crate) fn session(number: u32) -> Vec<u8> {
    format!("session {number} with a secret in it").into_bytes()
}

/// Stores a session; repeats until Redis has it, because a failover may be under way.
pub(crate) fn put(store: &RedisSessions, number: u32) {
    let before = value(store, "stored");
    eventually("a session is stored", || {
        let attempts = value(store, "stored") + value(store, "not_stored");
        store.put(name(number), session(number), HOUR);
        eventually("a session is stored or not", || {
            value(store, "stored") + value(store, "not_stored") > attempts
        });
        value(store, "stored") > before
    });
}

/// Takes sessions and waits for them.
pub(crate) fn take_all(store: &RedisSessions, numbers: &[u32]) -> Vec<Option<SharedSession>> {
    let (done, taken) = mpsc::channel();
    let names = numbers.iter().map(|number| name(*number)).collect();
    store.take(names, Box::new(move |sessions| done.send(sessions).unwrap()));
    let sessions = taken.recv_timeout(HANG).expect("the store answers");
    assert!(taken.recv().is_err(), "the store answers once");
    sessions
}

/// Takes a session. Returns whether it is taken for good, or nothing if it is not found.
pub(crate) fn take(store: &RedisSessions, number: u32) -> Option<bool> {
    let taken = take_all(store, &[number]).pop().unwrap()?;
    assert_eq!(taken.value, session(number));
    Some(taken.is_taken_for_good)
}

pub(crate) fn get(store: &RedisSessions, number: u32) -> Option<SharedSession> {
    let (done, found) = mpsc::channel();
    store.get(name(number), Box::new(move |sessions| done.send(sessions).unwrap()));
    found.recv_timeout(HANG).expect("the store answers").pop().unwrap()
}
