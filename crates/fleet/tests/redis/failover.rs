//! What a session is worth after Redis has failed over or was restarted.

use std::process::{Command, Stdio};
use std::time::Duration;

use pronghorn_fleet::sessions::{RedisServers, RedisSessionsConfig};

use crate::admin::Admin;
use crate::server::{Server, eventually, free_port, is_installed};
use crate::store::{config, connected, has_line, logged, put, take, value, wait_for};

/// A port at which no primary listens: TCP port multiplexer.
const NO_PRIMARY: u16 = 1;

fn with_replicas(servers: RedisServers, replicas: u32) -> RedisSessionsConfig {
    let mut config = config(servers);
    config.replicas = replicas;
    config
}

/// A store whose removals wait half a second in vain.
fn impatient(servers: RedisServers) -> RedisSessionsConfig {
    let mut config = with_replicas(servers, 1);
    config.timeout = Duration::from_secs(1);
    config
}

#[test]
fn session_is_never_taken_for_good_twice_over_20_failovers() {
    if !is_installed() {
        return;
    }
    let servers = [Server::start(&[]), Server::start(&[])];
    let mut admins = [servers[0].admin(), servers[1].admin()];
    let both = RedisServers::Single(vec![servers[0].address(), servers[1].address()]);
    admins[1].replicate(servers[0].port);
    // Each pair are two servers of a fleet.
    let stores = [
        [connected(config(both.clone())), connected(config(both.clone()))],
        [connected(impatient(both.clone())), connected(with_replicas(both, 1))],
    ];
    for round in 0..20_usize {
        let (primary, replica) = (round % 2, (round + 1) % 2);
        let numbers = [0, 1].map(|pair| round as u32 * 10 + pair as u32);
        for pair in 0..2 {
            put(&stores[pair][0], numbers[pair]);
        }
        eventually("the replica has the sessions", || {
            let [size, its_size] = admins.each_mut().map(Admin::size);
            size == its_size
        });
        admins[replica].ok(&format!("REPLICAOF 127.0.0.1 {NO_PRIMARY}"));
        let first = [0, 1].map(|pair| take(&stores[pair][0], numbers[pair]));
        assert_eq!(first[0], Some(true), "round {round}");
        assert_eq!(first[1], Some(false), "round {round}: no replica acknowledged");
        admins[replica].ok("REPLICAOF NO ONE");
        admins[primary].replicate(servers[replica].port);
        for pair in 0..2 {
            let (number, [one, other]) = (numbers[pair], &stores[pair]);
            // Both have found the new primary when they have stored something there.
            put(one, number + 2);
            put(other, number + 4);
            let again = take(other, number);
            assert_eq!(again, Some(false), "round {round}, {pair} replicas: found, not for good");
            let new = [take(other, number + 2), take(other, number + 4)];
            assert_eq!(new, [Some(true); 2], "round {round}, {pair} replicas: early data is back");
        }
    }
    assert_eq!(value(&stores[0][1], "of_another_run"), 20);
}

#[test]
fn frozen_replica_costs_early_data_and_not_the_session() {
    if !is_installed() {
        return;
    }
    let (primary, replica) = (Server::start(&[]), Server::start(&[]));
    replica.admin().replicate(primary.port);
    let mut config = impatient(primary.servers());
    let lines = logged(&mut config);
    let store = connected(config);
    for number in 0..5 {
        put(&store, number);
    }
    assert_eq!(take(&store, 0), Some(true));
    replica.freeze(true);
    for number in 1..5 {
        assert_eq!(take(&store, number), Some(false));
    }
    assert_eq!(value(&store, "unacknowledged"), 4);
    assert!(has_line(&lines, "fewer replicas than required (1)"), "{lines:?}");
    replica.freeze(false);
    // The first waits may end before the replica has caught up.
    let mut number = 10;
    eventually("early data is back", || {
        number += 1;
        put(&store, number);
        take(&store, number) == Some(true)
    });
    assert!(has_line(&lines, "the required replicas (1) acknowledge again"), "{lines:?}");
}

#[test]
fn session_restored_from_an_older_snapshot_gives_no_early_data() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    let stores = [connected(config(server.servers())), connected(config(server.servers()))];
    put(&stores[0], 1);
    put(&stores[0], 2);
    server.admin().ok("SAVE");
    assert_eq!(take(&stores[0], 1), Some(true));
    server.kill();
    eventually("the stores have noticed", || {
        stores.iter().all(|store| value(store, "servers_reachable") == 0)
    });
    server.restart();
    for store in &stores {
        wait_for(store, "servers_reachable", 1);
    }
    // Taken before, but back with the snapshot; the other was never taken, which nobody can know.
    assert_eq!(take(&stores[1], 1), Some(false));
    assert_eq!(take(&stores[1], 2), Some(false));
    assert_eq!(value(&stores[1], "of_another_run"), 2);
    put(&stores[0], 3);
    assert_eq!(take(&stores[1], 3), Some(true));
}

#[test]
fn primary_that_was_a_replica_meanwhile_gives_no_early_data() {
    if !is_installed() {
        return;
    }
    // The process and its connections stay, and its data is that of the replica, which missed the
    // removal.
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let (mut admin, mut its_admin) = (server.admin(), other.admin());
    // Before the store connects: the first replica changes the replication ID, too.
    its_admin.replicate(server.port);
    let store = connected(config(server.servers()));
    put(&store, 1);
    eventually("the replica has the session", || its_admin.size() == "1");
    its_admin.ok(&format!("REPLICAOF 127.0.0.1 {NO_PRIMARY}"));
    assert_eq!(take(&store, 1), Some(true));
    its_admin.ok("REPLICAOF NO ONE");
    admin.replicate(other.port);
    assert_eq!(admin.size(), "1", "the session is back");
    admin.ok("REPLICAOF NO ONE");
    // The store may be connecting again if it saw the server as a replica.
    let mut taken = None;
    eventually("the session is found", || {
        taken = take(&store, 1);
        taken.is_some()
    });
    assert_eq!(taken, Some(false));
}

#[test]
fn store_follows_sentinel_to_the_new_primary() {
    if !is_installed() {
        return;
    }
    let (mut primary, replica) = (Server::start(&[]), Server::start(&[]));
    replica.admin().replicate(primary.port);
    let sentinel = Sentinel::start(primary.port);
    eventually("Sentinel knows the replica", || {
        Admin::connect(sentinel.port).run("SENTINEL replicas main").contains("127.0.0.1")
            || Admin::connect(sentinel.port).run("INFO sentinel").contains("slaves=1")
    });
    let mut config = config(RedisServers::Sentinel {
        // The first is not there.
        sentinels: [NO_PRIMARY, sentinel.port]
            .map(|port| format!("redis://127.0.0.1:{port}").parse().unwrap())
            .to_vec(),
        primary: "main".to_owned(),
    });
    let lines = logged(&mut config);
    let store = connected(config);
    put(&store, 1);
    assert!(has_line(&lines, &format!("redis://127.0.0.1:{}", primary.port)), "{lines:?}");
    eventually("the replica has the session", || replica.admin().size() == "1");
    primary.kill();
    eventually("the store has followed", || {
        has_line(&lines, &format!("redis://127.0.0.1:{} is reachable again", replica.port))
    });
    put(&store, 2);
    assert_eq!(take(&store, 1), Some(false));
    assert_eq!(take(&store, 2), Some(true));
}

struct Sentinel {
    port: u16,
    child: std::process::Child,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        for _ in 0..20 {
            let port = free_port();
            let lines = format!(
                "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor main 127.0.0.1 {primary} 1\n\
                 sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
                folder.path().display()
            );
            std::fs::write(&file, lines).unwrap();
            let mut child = Command::new("redis-sentinel")
                .arg(&file)
                .stdout(Stdio::null())
                .spawn()
                .expect("redis-sentinel is installed");
            eventually("Sentinel listens or ends", || {
                child.try_wait().unwrap().is_some() || Admin::try_connect(port).is_some()
            });
            if child.try_wait().unwrap().is_none() {
                return Self { port, child, _folder: folder };
            }
        }
        panic!("redis-sentinel does not start");
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
