//! Redis learns nothing about the sessions, and secrets are rotated.

use pronghorn_fleet::sessions::RedisSessions;

use crate::server::{Server, is_installed};
use crate::store::{config, connected, name, put, secrets, session, take, value, wait_for};

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn dump_of_redis_contains_neither_sessions_nor_names() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let store = connected(config(server.servers()));
    for number in 0..20 {
        put(&store, number);
    }
    let mut admin = server.admin();
    // Shows that the search finds what is in a dump.
    admin.ok("SET known:key with-a-known-value");
    admin.ok("SAVE");
    let dump = std::fs::read(server.dump()).unwrap();
    assert!(contains(&dump, b"known:key") && contains(&dump, b"with-a-known-value"));
    assert!(contains(&dump, b"pronghorn:session:"));
    for number in 0..20 {
        let name = name(number);
        let hex = format!("{:016x}", u64::from_be_bytes(*name.first_chunk().unwrap()));
        for part in [&name[..16], &name[16..], hex.as_bytes(), &session(number)[..12]] {
            assert!(!contains(&dump, part), "{}", String::from_utf8_lossy(part));
        }
    }
    for secret in secrets(&[1]).all() {
        assert!(!contains(&dump, &secret.as_bytes()[..8]));
    }
}

#[test]
fn secrets_are_rotated_without_losing_sessions() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let old = connected(config(server.servers()));
    let with = |numbers: &[u8]| {
        let store = RedisSessions::start(config(server.servers()), &secrets(numbers)).unwrap();
        wait_for(&store, "servers_reachable", 1);
        store
    };
    put(&old, 1);
    put(&old, 2);
    let rotated = with(&[2, 1]);
    assert_eq!(take(&rotated, 1), Some(true), "sealed by the old secret");
    put(&rotated, 3);
    assert_eq!(take(&old, 3), None, "the old server does not know the new secret");
    old.set_secrets(&secrets(&[1, 2]));
    assert_eq!(take(&old, 3), Some(true));
    assert_eq!(take(&old, 2), Some(true));
    put(&old, 4);
    let new = with(&[2]);
    assert_eq!(take(&new, 4), None, "sealed by a secret that is not valid any more");
    assert_eq!(value(&new, "missing"), 1);
    assert_eq!(take(&rotated, 4), Some(true));
}

#[test]
fn value_that_was_moved_to_another_key_is_not_opened() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let store = connected(config(server.servers()));
    let mut admin = server.admin();
    put(&store, 1);
    let first = admin.run("RANDOMKEY");
    admin.ok(&format!("RENAME {first} kept"));
    put(&store, 2);
    let mut second = String::new();
    crate::server::eventually("a key that is not the kept one", || {
        second = admin.run("RANDOMKEY");
        second != "kept"
    });
    admin.ok(&format!("RENAME kept {second}"));
    assert_eq!(take(&store, 2), None);
    assert_eq!(value(&store, "unopened"), 1);
}
