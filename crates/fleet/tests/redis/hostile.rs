//! A server that sends what Redis never would. These tests need no Redis.

use pronghorn_engine::SharedSessions;

use crate::fake::{Fake, is_lookup, primary};
use crate::server::eventually;
use crate::store::{config, connected, get, has_line, logged, name, start, take, value, wait_for};

#[test]
fn bytes_that_are_no_reply_cost_the_session_and_the_connection() {
    let fake = Fake::start(primary);
    let mut config = config(fake.servers());
    let lines = logged(&mut config);
    let store = connected(config);
    let garbage: [&'static [u8]; 9] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\0\0\0\r\n",
        b"*9223372036854775807\r\n$-5\r\n",
        b"$99999999999\r\n",
        b"$1048576000\r\n",
        b"$3\r\nlonger\r\n",
        b":12x\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        b"+\xff\xfe\r\n",
    ];
    for bytes in garbage {
        fake.set(
            move |command| {
                if is_lookup(command) { Some(bytes.to_vec()) } else { primary(command) }
            },
        );
        let failures = value(&store, "failures");
        eventually("the lookup meets the bytes", || {
            assert_eq!(take(&store, 1), None);
            value(&store, "failures") > failures
        });
        fake.set(primary);
        eventually("the store is connected again", || {
            assert!(get(&store, 1).is_none());
            let missing = value(&store, "missing");
            assert_eq!(take(&store, 1), None);
            value(&store, "missing") > missing
        });
    }
    assert!(has_line(&lines, "is not reachable: the reply is"), "{lines:?}");
    assert!(has_line(&lines, "is reachable again after"), "{lines:?}");
    assert_eq!(value(&store, "found"), 0);
}

#[test]
fn valid_replies_of_wrong_kind_cost_the_session_alone() {
    let fake = Fake::start(primary);
    let store = connected(config(fake.servers()));
    let large = [b"$900000\r\n", &vec![b'x'; 900_000][..], b"\r\n"].concat();
    let replies: [(&[u8], &'static str); 8] = [
        (b":1\r\n", "failures"),
        (b"*1\r\n$1\r\na\r\n", "failures"),
        (b"+OK\r\n", "failures"),
        (b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", "failures"),
        (b"-\r\n", "failures"),
        (b"$0\r\n\r\n", "unopened"),
        (&[b"$100\r\n", &[b'0'; 100][..], b"\r\n"].concat(), "unopened"),
        (&large, "unopened"),
    ];
    for (reply, counter) in replies {
        let its_reply = reply.to_vec();
        fake.set(
            move |command| {
                if is_lookup(command) { Some(its_reply.clone()) } else { primary(command) }
            },
        );
        let before = value(&store, counter);
        assert_eq!(take(&store, 1), None);
        assert!(get(&store, 1).is_none());
        let reply = String::from_utf8_lossy(&reply[..reply.len().min(40)]);
        assert_eq!(value(&store, counter), before + 2, "{reply}");
    }
    assert_eq!(value(&store, "connections"), 1, "no reply was a reason to connect again");
}

#[test]
fn server_that_changes_its_run_during_a_removal_gives_no_early_data() {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};
    let stored = Arc::new(Mutex::new(None));
    let run = Arc::new(AtomicU32::new(0));
    let its_run = run.clone();
    let fake = Fake::start(move |command| {
        let bulk =
            |text: &[u8]| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        match &*command[0] {
            b"SET" => *stored.lock().unwrap() = Some(command[2].clone()),
            b"INFO" if command[1] == b"replication" => {
                let run = its_run.load(Relaxed);
                return Some(bulk(format!("role:master\r\nmaster_replid:run{run}").as_bytes()));
            }
            b"GETDEL" if is_lookup(command) => {
                // Never removed: as if the session came back each time.
                return stored.lock().unwrap().as_ref().map(|value| bulk(value));
            }
            _ => {}
        }
        primary(command)
    });
    let store = connected(config(fake.servers()));
    crate::store::put(&store, 1);
    assert_eq!(take(&store, 1), Some(true));
    run.store(1, Relaxed);
    assert_eq!(take(&store, 1), Some(false));
    assert_eq!(value(&store, "of_another_run"), 1);
}

#[test]
fn server_that_closes_or_says_more_than_it_was_asked_is_left() {
    let fake = Fake::start(primary);
    let store = connected(config(fake.servers()));
    for unasked in [None, Some(b"$-1\r\n+more\r\n:1\r\n".to_vec())] {
        let connections = value(&store, "connections");
        fake.set(
            move |command| if is_lookup(command) { unasked.clone() } else { primary(command) },
        );
        eventually("the connection is closed", || {
            assert_eq!(take(&store, 1), None);
            value(&store, "connections") > connections
        });
    }
}

#[test]
fn server_that_refuses_at_once_is_named_with_its_reason() {
    for (reply, reason) in [
        (&b"-ERR max number of clients reached\r\n"[..], "max number of clients"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "LOADING"),
        (b"$8\r\nrun_id:r\r\n", "no role"),
        (b":1\r\n", "no string"),
        (b"$28\r\nrun_id:r\r\nrole:slave\r\nsome:1\r\n", "is a replica"),
    ] {
        let fake = Fake::start(move |_| Some(reply.to_vec()));
        let mut config = config(fake.servers());
        let lines = logged(&mut config);
        let store = start(config);
        eventually(reason, || has_line(&lines, reason));
        assert_eq!(take(&store, 1), None);
        fake.set(primary);
        wait_for(&store, "servers_reachable", 1);
    }
}

#[test]
fn more_commands_than_the_limit_are_dropped_and_answered() {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    // Never answers a lookup.
    let fake =
        Fake::start(|command| if is_lookup(command) { Some(Vec::new()) } else { primary(command) });
    let store = connected(config(fake.servers()));
    let answers = std::sync::Arc::new(AtomicU32::new(0));
    for number in 0..5000 {
        let answers = answers.clone();
        let count = move |sessions: Vec<Option<_>>| {
            assert!(sessions[0].is_none());
            answers.fetch_add(1, Relaxed);
        };
        store.take(vec![name(number)], Box::new(count));
    }
    assert_eq!(value(&store, "dropped"), 5000 - 4096);
    store.put(name(1), vec![1], crate::store::HOUR);
    assert_eq!(value(&store, "dropped"), 5000 - 4096 + 1);
    drop(store);
    eventually("each lookup is answered when the store ends", || answers.load(Relaxed) == 5000);
}

#[test]
fn server_without_a_replication_id_gives_no_early_data() {
    let stored = std::sync::Mutex::new(None);
    let fake = Fake::start(move |command| {
        let bulk =
            |text: &[u8]| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        match &*command[0] {
            b"SET" => *stored.lock().unwrap() = Some(command[2].clone()),
            b"INFO" => return Some(bulk(b"role:master\r\n")),
            b"GETDEL" if is_lookup(command) => {
                return stored.lock().unwrap().as_ref().map(|value| bulk(value));
            }
            _ => {}
        }
        primary(command)
    });
    let mut config = config(fake.servers());
    let lines = logged(&mut config);
    let store = connected(config);
    crate::store::put(&store, 1);
    assert_eq!(take(&store, 1), Some(false));
    assert!(has_line(&lines, "no replication ID"), "{lines:?}");
}

#[test]
fn primary_that_most_sentinels_name_is_used() {
    let primary_server = Fake::start(primary);
    let old = Fake::start(|_| Some(b"$12\r\nrole:slave\r\n\r\n".to_vec()));
    let naming = |port: u16| {
        Fake::start(move |command| {
            assert_eq!(command[2], b"main");
            let port = port.to_string();
            let reply = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
            Some(reply.into_bytes())
        })
    };
    let unknowing = Fake::start(|_| Some(b"*-1\r\n".to_vec()));
    let sentinels = [
        naming(old.port()),
        unknowing,
        naming(primary_server.port()),
        naming(primary_server.port()),
    ];
    let servers = pronghorn_fleet::sessions::RedisServers::Sentinel {
        sentinels: sentinels.iter().map(Fake::address).collect(),
        primary: "main".to_owned(),
    };
    let mut its_config = config(servers);
    let lines = logged(&mut its_config);
    let _store = connected(its_config);
    let address = primary_server.address().to_string();
    assert!(has_line(&lines, &format!("are shared through Redis at {address}")), "{lines:?}");
}

#[test]
fn sentinel_that_does_not_know_the_primary_is_named() {
    let unknowing = Fake::start(|_| Some(b"*-1\r\n".to_vec()));
    let servers = pronghorn_fleet::sessions::RedisServers::Sentinel {
        sentinels: vec![unknowing.address()],
        primary: "main".to_owned(),
    };
    let mut its_config = config(servers);
    let lines = logged(&mut its_config);
    let _store = start(its_config);
    eventually("the reason is logged", || has_line(&lines, "no primary has the name `main`"));
}

#[test]
fn connections_whose_lookups_have_no_reply_are_closed() {
    // Answers checks in time, so the store connects again and again.
    let fake =
        Fake::start(|command| if is_lookup(command) { Some(Vec::new()) } else { primary(command) });
    for replicas in 0..2 {
        let mut config = config(fake.servers());
        config.timeout = std::time::Duration::from_millis(100);
        config.replicas = replicas;
        let store = connected(config);
        eventually("the server is ejected some times", || {
            assert!(get(&store, 1).is_none());
            assert_eq!(take(&store, 1), None);
            value(&store, "connections") > 6
        });
        fake.set(primary);
        let most = 1 + replicas as usize;
        eventually("the last connections remain", || {
            value(&store, "servers_reachable") == 1 && fake.open_connections() == most
        });
        drop(store);
        eventually("none remains", || fake.open_connections() == 0);
        fake.set(|command| if is_lookup(command) { Some(Vec::new()) } else { primary(command) });
    }
}
