//! A session is taken once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Barrier, mpsc};

use pronghorn_engine::{SharedSession, SharedSessions};
use pronghorn_fleet::sessions::RedisSessions;

use crate::server::{HANG, Server, is_installed};
use crate::store::{config, connected, get, name, put, session, take, take_all, value, wait_for};

#[test]
fn session_of_one_server_is_taken_by_another() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let (first, second) =
        (connected(config(server.servers())), connected(config(server.servers())));
    put(&first, 1);
    put(&first, 2);
    let taken = take_all(&second, &[1, 7, 2]);
    assert_eq!(taken[0].as_ref().unwrap().value, session(1));
    assert!(taken[0].as_ref().unwrap().is_taken_for_good);
    assert!(taken[1].is_none());
    assert_eq!(taken[2].as_ref().unwrap().value, session(2));
    assert_eq!(take(&first, 1), None);
    assert_eq!((value(&second, "found"), value(&second, "taken_for_good")), (2, 2));
    assert_eq!((value(&second, "missing"), value(&first, "missing")), (1, 1));
    assert_eq!(second.latency().count(), 1);
}

#[test]
fn session_that_is_read_stays_and_never_gives_early_data() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let store = connected(config(server.servers()));
    put(&store, 1);
    for _ in 0..2 {
        let found = get(&store, 1).unwrap();
        assert_eq!((found.value, found.is_taken_for_good), (session(1), false));
    }
    assert!(get(&store, 2).is_none());
    assert_eq!(take(&store, 1), Some(true));
    assert!(get(&store, 1).is_none());
}

#[test]
fn session_expires_in_redis() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let store = connected(config(server.servers()));
    store.put(name(1), session(1), std::time::Duration::from_millis(1500));
    wait_for(&store, "stored", 1);
    let mut admin = server.admin();
    let key = admin.run("RANDOMKEY");
    // Already expired on a machine that is very busy.
    if !key.starts_with('$') {
        let left: i64 = admin.run(&format!("PTTL {key}")).parse().unwrap();
        assert!((-2..=1500).contains(&left) && left != -1, "{left}");
    }
    crate::server::eventually("the session expires", || admin.size() == "0");
    assert_eq!(take(&store, 1), None);
}

#[test]
fn each_of_2000_sessions_is_taken_once_by_8_threads_over_2_servers() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let stores = [connected(config(server.servers())), connected(config(server.servers()))];
    race(&stores, 2000);
    assert_eq!(server.admin().size(), "0");
}

#[test]
fn each_of_500_sessions_is_taken_once_with_a_replica() {
    if !is_installed() {
        return;
    }
    let (server, replica) = (Server::start(&[]), Server::start(&[]));
    replica.admin().replicate(server.port);
    let with_replica = || {
        let mut config = config(server.servers());
        config.replicas = 1;
        connected(config)
    };
    race(&[with_replica(), with_replica()], 500);
    assert_eq!(replica.admin().size(), "0", "each removal was acknowledged");
}

/// Stores sessions, takes each by 8 threads over both stores at once, and checks that one of them
/// got it for good and the others did not find it.
fn race(stores: &[Arc<RedisSessions>; 2], sessions: u32) {
    const TOGETHER: usize = 250;
    for number in 0..sessions {
        stores[0].put(name(number), session(number), crate::store::HOUR);
    }
    wait_for(&stores[0], "stored", u64::from(sessions));
    let found: Arc<Vec<[AtomicU32; 2]>> =
        Arc::new((0..sessions).map(|_| Default::default()).collect());
    let together = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (store, found, together) = (&stores[thread % 2], &found, &together);
            scope.spawn(move || {
                let numbers: Vec<_> = (0..sessions).collect();
                for some in numbers.chunks(TOGETHER) {
                    together.wait();
                    let (done, answered) = mpsc::channel();
                    for number in some.iter().copied() {
                        let (done, found) = (done.clone(), found.clone());
                        let count = move |sessions: Vec<Option<SharedSession>>| {
                            if let Some(taken) = &sessions[0] {
                                let of_name = &found[number as usize];
                                of_name[0].fetch_add(1, Relaxed);
                                of_name[1].fetch_add(taken.is_taken_for_good.into(), Relaxed);
                            }
                            done.send(()).unwrap();
                        };
                        store.take(vec![name(number)], Box::new(count));
                    }
                    for _ in some {
                        answered.recv_timeout(HANG).unwrap();
                    }
                }
            });
        }
    });
    for (number, counts) in found.iter().enumerate() {
        let counts = counts.each_ref().map(|count| count.load(Relaxed));
        assert_eq!(counts, [1, 1], "session {number}: found, taken for good");
    }
}
