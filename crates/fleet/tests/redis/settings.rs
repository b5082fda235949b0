//! Servers whose settings differ say so in their logs.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_fleet::sessions::{Announcement, Effect, RedisServers, RedisSessions, Setting};

use crate::fake::{Fake, primary};
use crate::server::{HANG, Server, eventually, is_installed};
use crate::store::{Lines, config, has_line, logged, put, secrets, start, take, value, wait_for};

const HASH: &str = "pronghorn:session:nodes";

/// A server of a fleet. It writes its settings each time that the test announces them.
struct Node {
    name: &'static str,
    store: Arc<RedisSessions>,
    lines: Lines,
}

impl Node {
    fn start(name: &'static str, servers: RedisServers) -> Self {
        Self::with_secrets(name, servers, &[1])
    }

    fn with_secrets(name: &'static str, servers: RedisServers, numbers: &[u8]) -> Self {
        let mut config = config(servers);
        let lines = logged(&mut config);
        let store = RedisSessions::start(config, &secrets(numbers)).unwrap();
        Self { name, store, lines }
    }

    fn announce(&self, idle: &str) {
        let setting = |name: &str, value: &str, default: &str, effect| {
            let [name, value, default] = [name, value, default].map(str::to_owned);
            Setting { name, value, default, effect }
        };
        self.store.announce(Announcement {
            node: self.name.to_owned(),
            version: "0.1.0".to_owned(),
            settings: vec![
                setting("limits.idle_timeout", idle, "30s", Effect::QuicSessions),
                setting("server.min_tls", "1.2", "1.2", Effect::Sessions),
            ],
        });
    }

    fn count(&self, part: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

/// Announces settings, of each node its own, until the condition is true.
fn until(what: &str, nodes: &[(&Node, &str)], mut is_true: impl FnMut() -> bool) {
    eventually(what, || {
        for (node, idle) in nodes {
            node.announce(idle);
        }
        is_true()
    });
}

pub(crate) fn entries(server: &Server) -> String {
    server.admin().run(&format!("HLEN {HASH}"))
}

#[test]
fn different_setting_is_logged_by_both_servers_once_and_when_it_is_gone() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let [one, two] = ["edge-1", "edge-2"].map(|name| Node::start(name, server.servers()));
    let different =
        "has limits.idle_timeout = 30s, this server 60s: neither resumes the QUIC sessions";
    let reverse =
        "has limits.idle_timeout = 60s, this server 30s: neither resumes the QUIC sessions";
    until("both log the difference", &[(&one, "60s"), (&two, "30s")], || {
        one.count(&format!("warning: fleet: edge-2 {different}")) == 1
            && two.count(&format!("warning: fleet: edge-1 {reverse}")) == 1
    });
    assert_eq!(entries(&server), "2");
    let alike = "fleet: the settings of edge-2 are those of this server";
    until("the difference is gone", &[(&one, "60s"), (&two, "60s")], || {
        one.count(alike) == 1 && two.count("fleet: the settings of edge-1 are those") == 1
    });
    // Many comparisons later nothing was logged again.
    let connections = value(&one.store, "connections") + 5;
    until("some more comparisons", &[(&one, "60s"), (&two, "60s")], || {
        value(&one.store, "connections") >= connections
    });
    assert_eq!((one.count("idle_timeout"), one.count(alike)), (1, 1), "{:?}", one.lines);
    put(&one.store, 1);
    assert_eq!(take(&two.store, 1), Some(true));
}

#[test]
fn redis_sees_neither_settings_nor_secrets() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let node = Node::start("edge-1", server.servers());
    until("an entry is written", &[(&node, "59s")], || entries(&server) == "1");
    server.admin().ok("SAVE");
    let dump = std::fs::read(server.dump()).unwrap();
    let contains = |part: &[u8]| dump.windows(part.len()).any(|window| window == part);
    assert!(contains(b"pronghorn:session:nodes") && contains(b"edge-1/"));
    assert!(!contains(b"idle_timeout") && !contains(b"59s") && !contains(b"0.1.0"));
}

#[test]
fn older_secret_opens_settings_and_another_one_is_named() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let old = Node::with_secrets("edge-1", server.servers(), &[1]);
    let rotated = Node::with_secrets("edge-2", server.servers(), &[2, 1]);
    until("the old entry is opened", &[(&old, "30s"), (&rotated, "60s")], || {
        rotated.count("edge-1 has limits.idle_timeout = 30s, this server 60s") == 1
    });
    until("the new one cannot be", &[(&old, "30s"), (&rotated, "60s")], || {
        old.count("edge-2 has other secrets than this server: neither resumes the sessions") == 1
    });
    old.store.set_secrets(&secrets(&[1, 2]));
    until("both have the same secrets", &[(&old, "30s"), (&rotated, "30s")], || {
        old.count("the settings of edge-2 are those") == 1
            && rotated.count("the settings of edge-1 are those") == 1
    });
}

#[test]
fn two_servers_with_one_name_are_logged() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let nodes = [Node::start("edge-1", server.servers()), Node::start("edge-1", server.servers())];
    let line = "warning: fleet: another server has the name edge-1 too: give each its own `node`";
    until("both log it", &[(&nodes[0], "30s"), (&nodes[1], "30s")], || {
        nodes.iter().all(|node| node.count(line) == 1)
    });
}

#[test]
fn entry_that_never_changes_is_removed_and_not_logged() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let mut admin = server.admin();
    admin.run(&format!("HSET {HASH} edge-9/ended 1 edge-1/ended 2"));
    let mut config = config(server.servers());
    config.announce_interval = Duration::from_millis(20);
    let lines = logged(&mut config);
    let node = Node { name: "edge-1", store: start(config), lines };
    node.announce("30s");
    eventually("only the own entry remains", || entries(&server) == "1");
    assert!(!admin.run(&format!("HKEYS {HASH}")).contains("ended"));
    assert_eq!(node.count("warning"), 0, "{:?}", node.lines);
}

#[test]
fn user_without_the_commands_is_logged_once_until_the_store_connects_again() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let mut admin = server.admin();
    let allowed = "+auth +get +getdel +set +info";
    admin.ok(&format!("ACL SETUSER fleet on >word ~* resetchannels -@all {allowed}"));
    let address = format!("redis://fleet:word@127.0.0.1:{}", server.port).parse().unwrap();
    let node = Node::start("edge-1", RedisServers::Single(vec![address]));
    let refused = "are not compared: NOPERM";
    until("the reason is logged", &[(&node, "30s")], || node.count(refused) == 1);
    assert!(has_line(&node.lines, "allow its user HSET, HGETALL and HDEL"), "{:?}", node.lines);
    assert!(has_line(&node.lines, HASH), "{:?}", node.lines);
    let connections = value(&node.store, "connections");
    for number in 0..5 {
        node.announce("30s");
        put(&node.store, number);
        assert_eq!(take(&node.store, number), Some(true));
    }
    assert_eq!(value(&node.store, "connections"), connections, "no attempt is repeated");
    admin.run("ACL SETUSER fleet +hset +hgetall +hdel");
    admin.run("CLIENT KILL TYPE normal SKIPME yes");
    until("an entry is written", &[(&node, "30s")], || entries(&server) == "1");
    assert_eq!(node.count(refused), 1, "{:?}", node.lines);
}

#[test]
fn settings_are_written_when_redis_is_reachable_later() {
    if !is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    server.kill();
    let node = Node::start("edge-1", server.servers());
    node.announce("30s");
    eventually("the reason is logged", || has_line(&node.lines, "Connection refused"));
    server.restart();
    eventually("an entry is written", || entries(&server) == "1");
}

#[test]
fn lookups_do_not_wait_for_entries_that_never_arrive() {
    let (asked, readings) = std::sync::mpsc::channel();
    let fake = Fake::start(move |command| {
        if command[0] != b"HGETALL" {
            return primary(command);
        }
        // The test may have ended.
        let _ = asked.send(());
        Some(Vec::new())
    });
    let node = Node::start("edge-1", fake.servers());
    wait_for(&node.store, "servers_reachable", 1);
    node.announce("30s");
    readings.recv_timeout(HANG).unwrap();
    for number in 0..20 {
        assert_eq!(take(&node.store, number), None);
    }
    assert_eq!(value(&node.store, "missing"), 20, "each lookup was answered");
    wait_for(&node.store, "failures", 1);
    assert_eq!(value(&node.store, "servers_reachable"), 1);
    assert_eq!(value(&node.store, "timeouts"), 0);
}

#[test]
fn hostile_entries_cost_the_comparison_alone() {
    // A hash with more than a reply may have, with odd names, of another kind, or without an end.
    let many = || {
        let mut reply = b"*6000\r\n".to_vec();
        for number in 0..3000 {
            reply.extend(format!("$6\r\nn/{number:04}\r\n$1\r\nx\r\n").bytes());
        }
        reply
    };
    let large = [b"*2\r\n$3\r\na/b\r\n$1000000\r\n".to_vec(), vec![b'x'; 1_000_000]].concat();
    let replies: [Vec<u8>; 8] = [
        many(),
        [&large[..], b"\r\n"].concat(),
        [b"*2000000\r\n".to_vec(), b"$1\r\nx\r\n".repeat(60_000)].concat(),
        b"*3\r\n$3\r\na/b\r\n:1\r\n*0\r\n".to_vec(),
        b"*2\r\n$4\r\na\n/b\r\n$1\r\nx\r\n".to_vec(),
        b"*2\r\n$2\r\n\xff\xfe\r\n$1\r\nx\r\n".to_vec(),
        b"$-1\r\n".to_vec(),
        b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n".to_vec(),
    ];
    let fake = Fake::start(primary);
    let node = Node::start("edge-1", fake.servers());
    wait_for(&node.store, "servers_reachable", 1);
    for reply in replies {
        let name = String::from_utf8_lossy(&reply[..reply.len().min(30)]).into_owned();
        let (seen, readings) = std::sync::mpsc::channel();
        fake.set(move |command| match &*command[0] {
            b"HSET" => Some(b":1\r\n".to_vec()),
            b"HGETALL" => {
                // The test may have gone on.
                let _ = seen.send(());
                Some(reply.clone())
            }
            _ => primary(command),
        });
        for _ in 0..3 {
            until(&name, &[(&node, "30s")], || readings.try_recv().is_ok());
        }
        assert_eq!(value(&node.store, "servers_reachable"), 1, "{name}");
        let missing = value(&node.store, "missing");
        assert_eq!(take(&node.store, 1), None);
        assert_eq!(value(&node.store, "missing"), missing + 1, "{name}: the lookup was answered");
    }
    assert_eq!(value(&node.store, "timeouts"), 0);
}
