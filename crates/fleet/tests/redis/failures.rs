//! Redis is down, slow, full or of another mind.

use std::time::Duration;

use pronghorn_engine::SharedSessions;

use crate::fake::Proxy;
use crate::server::{Server, eventually, is_installed};
use crate::store::{
    HOUR, config, connected, get, has_line, logged, name, put, session, start, take, value,
    wait_for,
};

#[test]
fn stopped_server_costs_no_time_and_is_used_again_when_it_is_back() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    let mut config = config(server.servers());
    let lines = logged(&mut config);
    let store = connected(config);
    put(&store, 1);
    server.kill();
    eventually("the store has noticed", || value(&store, "servers_reachable") == 0);
    let skipped = value(&store, "skipped");
    assert_eq!(take(&store, 1), None);
    assert!(get(&store, 1).is_none());
    store.put(name(2), session(2), HOUR);
    eventually("three commands are not sent", || value(&store, "skipped") == skipped + 3);
    assert_eq!(value(&store, "timeouts"), 0);
    assert!(has_line(&lines, "is not reachable"), "{lines:?}");
    server.restart();
    put(&store, 3);
    assert_eq!(take(&store, 3), Some(true));
    assert!(has_line(&lines, "is reachable again after"), "{lines:?}");
}

#[test]
fn server_that_starts_later_is_found() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    server.kill();
    let mut config = config(server.servers());
    let lines = logged(&mut config);
    let store = start(config);
    eventually("the reason is logged", || has_line(&lines, "Connection refused"));
    assert_eq!(take(&store, 1), None);
    server.restart();
    put(&store, 1);
    assert_eq!(take(&store, 1), Some(true));
}

#[test]
fn slow_server_is_not_waited_for_until_it_is_fast_again() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port, Duration::from_millis(900));
    let mut config = config(proxy.servers());
    config.timeout = Duration::from_millis(200);
    let lines = logged(&mut config);
    let store = connected(config);
    proxy.set_slow(true);
    eventually("handshakes do not wait any more", || {
        assert_eq!(take(&store, 1), None);
        value(&store, "skipped") > 0
    });
    assert!(value(&store, "timeouts") >= 1);
    assert!(has_line(&lines, "is not reachable: no reply within"), "{lines:?}");
    // Each check finds it slow.
    let timeouts = value(&store, "timeouts");
    let connections = value(&store, "connections");
    wait_for(&store, "connections", connections + 2);
    assert_eq!(take(&store, 1), None);
    assert_eq!(value(&store, "timeouts"), timeouts);
    proxy.set_slow(false);
    put(&store, 2);
    eventually("a session is found again", || {
        put(&store, 3);
        take(&store, 3) == Some(true)
    });
}

#[test]
fn frozen_server_costs_three_timeouts() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let mut config = config(server.servers());
    config.timeout = Duration::from_millis(300);
    let store = connected(config);
    server.freeze(true);
    eventually("handshakes do not wait any more", || {
        assert!(get(&store, 1).is_none());
        value(&store, "skipped") > 0
    });
    // The background check may have noticed first.
    assert!(value(&store, "timeouts") <= 3);
    server.freeze(false);
    put(&store, 2);
    eventually("a session is found again", || {
        put(&store, 3);
        take(&store, 3) == Some(true)
    });
}

#[test]
fn full_server_refuses_sessions_and_still_returns_them() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let mut config = config(server.servers());
    let lines = logged(&mut config);
    let store = connected(config);
    put(&store, 1);
    server.admin().ok("CONFIG SET maxmemory 1");
    for number in 2..5 {
        store.put(name(number), session(number), HOUR);
    }
    wait_for(&store, "not_stored", 3);
    assert_eq!(take(&store, 1), Some(true));
    assert_eq!(value(&store, "servers_reachable"), 1);
    server.admin().ok("CONFIG SET maxmemory 0");
    put(&store, 6);
    assert_eq!(take(&store, 6), Some(true));
    let lines = lines.lock().unwrap();
    let about = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!(about("does not store TLS sessions: OOM"), 1, "{lines:?}");
    assert_eq!(about("stores TLS sessions again"), 1, "{lines:?}");
}

#[test]
fn key_of_wrong_type_costs_its_session_alone() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let store = connected(config(server.servers()));
    put(&store, 1);
    let mut admin = server.admin();
    let key = admin.run("RANDOMKEY");
    admin.run(&format!("DEL {key}"));
    admin.run(&format!("LPUSH {key} x"));
    assert_eq!(take(&store, 1), None);
    assert_eq!(value(&store, "failures"), 1);
    put(&store, 2);
    assert_eq!(take(&store, 2), Some(true));
}

#[test]
fn connections_that_are_killed_are_opened_again() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let store = connected(config(server.servers()));
    put(&store, 1);
    server.admin().run("CLIENT KILL TYPE normal SKIPME yes");
    wait_for(&store, "connections", 2);
    wait_for(&store, "servers_reachable", 1);
    // The server's run is the same, so the session still gives early data.
    let mut taken = None;
    eventually("the session is found", || {
        taken = take(&store, 1);
        taken.is_some()
    });
    assert_eq!(taken, Some(true));
}

#[test]
fn session_that_is_too_large_is_not_stored() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let store = connected(config(server.servers()));
    store.put(name(1), vec![7; (16 << 10) + 1], HOUR);
    store.put(name(2), vec![7; 16 << 10], Duration::ZERO);
    wait_for(&store, "not_stored", 2);
    store.put(name(3), vec![7; 16 << 10], HOUR);
    wait_for(&store, "stored", 1);
    let taken = crate::store::take_all(&store, &[3]).pop().unwrap().unwrap();
    assert_eq!(taken.value, vec![7; 16 << 10]);
}
