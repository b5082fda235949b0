//! A cluster of three nodes.

use std::process::Command;

use pronghorn_engine::SharedSessions;
use pronghorn_fleet::secrets::Secrets;
use pronghorn_fleet::sessions::{Announcement, RedisServers};

use crate::server::{Server, eventually, free_port, is_installed};
use crate::settings::entries;
use crate::store::{
    HOUR, config, connected, has_line, logged, name, put, session, take, take_all, value, wait_for,
};

fn node() -> Server {
    let bus = free_port().to_string();
    Server::start(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-require-full-coverage",
        "no",
    ])
}

fn cluster() -> [Server; 3] {
    let nodes = [node(), node(), node()];
    let addresses = nodes.each_ref().map(|node| format!("127.0.0.1:{}", node.port));
    let created = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(addresses)
        .args(["--cluster-replicas", "0", "--cluster-yes"])
        .output()
        .expect("redis-cli is installed");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
    for node in &nodes {
        eventually("the node knows the cluster", || {
            node.admin().run("CLUSTER INFO").contains("cluster_state:ok")
        });
    }
    nodes
}

#[test]
fn sessions_are_spread_over_a_cluster_and_follow_their_slots() {
    if !is_installed() {
        return;
    }
    let mut nodes = cluster();
    let servers = RedisServers::Cluster(vec![nodes[0].address()]);
    let mut its_config = config(servers.clone());
    let lines = logged(&mut its_config);
    // No entry is written while the test counts keys.
    its_config.announce_interval = HOUR;
    let stores = [connected(its_config), connected(config(servers.clone()))];
    for store in &stores {
        wait_for(store, "servers_reachable", 3);
    }
    for number in 0..200 {
        stores[0].put(name(number), session(number), HOUR);
    }
    wait_for(&stores[0], "stored", 200);
    for node in &nodes {
        assert_ne!(node.admin().size(), "0", "each node has sessions");
    }
    let numbers: Vec<_> = (0..200).collect();
    for some in numbers.chunks(4) {
        let taken = take_all(&stores[1], some);
        assert!(taken.iter().flatten().all(|taken| taken.is_taken_for_good));
        assert_eq!(taken.iter().flatten().count(), some.len());
    }

    let secrets = Secrets::from_redis(&servers, None, None, None, "fleet:secrets").unwrap();
    let again = Secrets::from_redis(&servers, None, None, None, "fleet:secrets").unwrap();
    assert_eq!(secrets.current().as_bytes(), again.current().as_bytes());
    stores[0].announce(Announcement {
        node: "edge-1".to_owned(),
        version: "0.1.0".to_owned(),
        settings: Vec::new(),
    });
    eventually("the node of the key has the settings", || {
        nodes.iter().any(|node| entries(node) == "1")
    });
    for node in &nodes {
        node.admin().ok("FLUSHALL");
    }

    // One session moves with its slot.
    put(&stores[0], 1000);
    let from = nodes.iter().position(|node| node.admin().size() == "1").unwrap();
    move_slot(&nodes[from], &nodes[(from + 1) % 3]);
    let mut taken = None;
    eventually("the session is found at its new node", || {
        taken = take(&stores[0], 1000);
        taken.is_some()
    });
    assert_eq!(taken, Some(false), "it was stored at another node");
    put(&stores[0], 1000);
    assert_eq!(take(&stores[0], 1000), Some(true));

    // A node that is gone costs its own sessions.
    nodes[from].kill();
    eventually("the store has noticed", || value(&stores[0], "servers_reachable") == 2);
    put(&stores[0], 1000);
    assert_eq!(take(&stores[0], 1000), Some(true));
    let gone = format!("redis://127.0.0.1:{} is not reachable", nodes[from].port);
    assert!(has_line(&lines, &gone), "{lines:?}");
}

/// Moves the slot of the only key, with the key.
fn move_slot(from: &Server, to: &Server) {
    let (mut source, mut target) = (from.admin(), to.admin());
    let key = source.run("RANDOMKEY");
    let slot = source.run(&format!("CLUSTER KEYSLOT {key}"));
    let (id, target_id) = (source.run("CLUSTER MYID"), target.run("CLUSTER MYID"));
    target.ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {id}"));
    source.ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {target_id}"));
    source.ok(&format!("MIGRATE 127.0.0.1 {} {key} 0 60000", to.port));
    target.ok(&format!("CLUSTER SETSLOT {slot} NODE {target_id}"));
    source.ok(&format!("CLUSTER SETSLOT {slot} NODE {target_id}"));
}
