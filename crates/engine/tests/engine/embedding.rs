//! A worker in different hosts: one descriptor and one function.

use std::cell::Cell;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::support::{Bench, PROTOCOLS, fetch, get, hello, trust};
use http::StatusCode;
use pronghorn_engine::{
    Budget, Config, Group, Listener, Request, Responder, Response, Resumption, Target, Worker,
    Workers, embed_in_tokio,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

fn is_readable(worker: &Worker) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(worker.as_fd(), PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn bare_worker_serves_the_three_protocols() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    for protocol in PROTOCOLS {
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "{protocol}");
    }
}

#[test]
fn worker_waits_on_its_descriptor_alone() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    let connector = bench.connector.clone();
    let target = Target {
        remote: bench.address,
        server_name: "localhost".to_owned(),
        protocol: None,
        secure: true,
        resumption: Resumption::default(),
    };
    let done = Rc::new(Cell::new(false));
    let mark = done.clone();
    bench.client.handle().spawn(async move {
        let mut connection = connector.connect(&target).await.unwrap();
        assert_eq!(fetch(&mut connection, get("/")).await, Ok((StatusCode::OK, "hello".into())));
        mark.set(true);
    });
    // Only workers with a readable descriptor get turns, so all pending work must make it readable.
    let began = Instant::now();
    while !done.get() {
        assert!(began.elapsed() < Duration::from_secs(60), "a worker was never woken");
        let now = Instant::now();
        for worker in bench.servers.iter_mut().chain([&mut bench.client]) {
            if is_readable(worker) {
                worker.turn(now).unwrap();
            }
        }
    }
}

#[test]
fn worker_waiting_for_last_request_is_idle() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |_, responder: Responder| std::mem::forget(responder)
        });
        let mut connection = bench.connect(protocol);
        bench.client.handle().spawn(async move {
            _ = fetch(&mut connection, get("/")).await;
        });
        bench.turn_until(|bench| bench.stats[0].requests_open.value() == 1);
        let server = &mut bench.servers[0];
        let (began, grace) = (Instant::now(), Duration::from_secs(60));
        let mut turns = 0;
        while began.elapsed() < Duration::from_secs(1) {
            let mut descriptors = [PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN)];
            if poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap()
                == 1
            {
                server.turn(Instant::now()).unwrap();
                turns += 1;
            }
            // Like a host that checks after each turn whether to end.
            server.shut_down(Instant::now(), grace);
        }
        assert!(turns < 50, "{protocol}: {turns} turns in a second of waiting");
    }
}

#[test]
fn flood_is_taken_in_bounded_turns_that_are_resumed() {
    const DATAGRAMS: u64 = 600;
    let config =
        Config { budget: Budget { receive_batches: 1, ..Budget::default() }, ..Config::default() };
    let mut bench = Bench::new(1, &config, hello);
    let flood = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for _ in 0..DATAGRAMS {
        flood.send_to(&[0x55; 64], bench.address).unwrap();
    }
    let server = &mut bench.servers[0];
    let (mut turns, mut most_per_turn, mut received) = (0, 0, 0);
    while received < DATAGRAMS {
        assert!(
            is_readable(server),
            "a turn ended early, with {received} of {DATAGRAMS} datagrams taken, and was not \
                resumed"
        );
        server.turn(Instant::now()).unwrap();
        let total = bench.stats[0].datagrams_received.value();
        most_per_turn = most_per_turn.max(total - received);
        received = total;
        turns += 1;
    }
    assert!(turns > 5, "{DATAGRAMS} datagrams in {turns} turns, up to {most_per_turn} in one");
    assert_eq!(bench.stats[0].datagrams_ignored.value(), DATAGRAMS);
    // An idle worker's descriptor is not readable, or the host would spin.
    server.turn(Instant::now()).unwrap();
    assert!(!is_readable(server), "an idle worker asks for turns");
}

#[test]
fn answers_to_a_flood_are_bounded() {
    const DATAGRAMS: u64 = 600;
    // Nothing can be sent, so responses would pile up.
    let config = Config { budget: Budget { sends: 0, ..Budget::default() }, ..Config::default() };
    let mut bench = Bench::new(1, &config, hello);
    let flood = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut unknown_version = [0; 1200];
    unknown_version[..15]
        .copy_from_slice(&[0xc0, 0x0a, 0x0b, 0x0c, 0x0d, 4, 1, 2, 3, 4, 4, 5, 6, 7, 8]);
    for _ in 0..DATAGRAMS {
        flood.send_to(&unknown_version, bench.address).unwrap();
    }
    while bench.stats[0].datagrams_received.value() < DATAGRAMS {
        bench.servers[0].turn(Instant::now()).unwrap();
    }
    let (made, dropped) = (
        bench.stats[0].version_negotiations_sent.value(),
        bench.stats[0].stateless_answers_dropped.value(),
    );
    assert_eq!(made, DATAGRAMS);
    assert!((300..DATAGRAMS).contains(&dropped), "{dropped} of {made} answers dropped");
}

#[test]
fn wake_up_from_another_thread_is_never_lost() {
    const ROUNDS: usize = 5_000;
    // Each request is answered by its own thread, which wakes the worker whatever the worker is
    // doing at that moment.
    let (ask, asked) = std::sync::mpsc::channel::<tokio::sync::oneshot::Sender<()>>();
    std::thread::spawn(move || {
        for answer in asked {
            answer.send(()).unwrap();
        }
    });
    let mut bench = Bench::new(1, &Config::default(), |_| {
        let ask = ask.clone();
        move |_, responder: Responder| {
            let (answer, answered) = tokio::sync::oneshot::channel();
            ask.send(answer).unwrap();
            responder.respond(async move {
                answered.await.unwrap();
                Response::new(StatusCode::OK)
            });
        }
    });
    let mut connection = bench.connect(pronghorn_engine::Protocol::Http1);
    let done = Rc::new(Cell::new(false));
    let mark = done.clone();
    bench.client.handle().spawn(async move {
        for _ in 0..ROUNDS {
            assert!(fetch(&mut connection, get("/")).await.is_ok());
        }
        mark.set(true);
    });
    while !done.get() {
        let mut readable = [&bench.servers[0], &bench.client]
            .map(|worker| PollFd::from_borrowed_fd(worker.as_fd(), PollFlags::IN));
        let ready = poll(&mut readable, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
        assert!(ready > 0, "a wake-up was lost");
        bench.turn();
    }
}

#[test]
fn panic_of_a_worker_ends_all_workers() {
    let listener = Listener::clear((Ipv4Addr::LOCALHOST, 0).into(), 2, None).unwrap();
    let handler = |worker| {
        assert_eq!(worker, 0, "as this test wants");
        |_: Request, _: Responder| {}
    };
    let workers =
        Workers::start(Group::new(2), vec![listener], None, &Config::default(), handler).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let ended = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), workers.finished()).await
    });
    assert!(ended.is_ok(), "the other worker serves on");
    assert!(workers.join().is_err());
}

#[test]
fn future_that_never_rests_does_not_hold_its_turn() {
    let config = Config { budget: Budget { polls: 16, ..Budget::default() }, ..Config::default() };
    let mut bench = Bench::new(1, &config, hello);
    let polls = Rc::new(Cell::new(0_u64));
    let counter = polls.clone();
    bench.servers[0].handle().spawn(std::future::poll_fn(move |cx| {
        counter.set(counter.get() + 1);
        cx.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    }));
    for turn in 1..=10 {
        bench.servers[0].turn(Instant::now()).unwrap();
        assert_eq!(polls.get(), turn * 16);
        assert!(
            is_readable(&bench.servers[0]),
            "the waiting future does not make the worker readable"
        );
    }
    // Others are still served.
    let mut connection = bench.connect(pronghorn_engine::Protocol::Http3);
    let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
    assert_eq!(answer, Ok((StatusCode::OK, "hello".into())));
}

#[tokio::test(flavor = "current_thread")]
async fn worker_in_tokio_shares_the_thread_under_a_flood() {
    let trust = trust();
    let config = Config {
        budget: Budget { receive_batches: 1, polls: 16, ..Budget::default() },
        ..Config::default()
    };
    let listener = Listener::secure((Ipv4Addr::LOCALHOST, 0).into(), 1, config.congestion).unwrap();
    let address = listener.address();
    let group = Group::new(1);
    let mut server = Worker::new(0, &group, config, hello(0)).unwrap();
    for sockets in listener.into_sockets() {
        server.listen(sockets, Some(&trust.identity)).unwrap();
    }
    let stats = group.stats().next().unwrap().clone();
    // Always ready, so the worker always has more work than one turn allows.
    server.handle().spawn(std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    }));

    let refuse = |_, responder| drop(responder);
    let mut client = Worker::new(0, &Group::new(1), Config::default(), refuse).unwrap();
    let connector = client.connector(&trust.client).unwrap();
    let answered = Rc::new(Cell::new(0));
    let counter = answered.clone();
    client.handle().spawn(async move {
        for protocol in PROTOCOLS {
            let target = Target {
                remote: address,
                server_name: "localhost".to_owned(),
                protocol: Some(protocol),
                secure: true,
                resumption: Resumption::default(),
            };
            let mut connection = connector.connect(&target).await.unwrap();
            for _ in 0..20 {
                assert_eq!(
                    fetch(&mut connection, get("/")).await,
                    Ok((StatusCode::OK, "hello".into())),
                    "{protocol}"
                );
                counter.set(counter.get() + 1);
            }
        }
    });

    // Three tasks on one thread: the server under a flood, its client, and an unrelated one.
    let flood = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let host_steps = Cell::new(0_u64);
    let host = async {
        while answered.get() < 60 {
            flood.send_to(&[0x55; 64], address).await.unwrap();
            host_steps.set(host_steps.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    let all = async {
        tokio::select! {
            result = embed_in_tokio(&mut server, |_, _| false) => panic!("the server ended: \
                {result:?}"),
            result = embed_in_tokio(&mut client, |_, _| false) => panic!("the client ended: \
                {result:?}"),
            () = host => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("starved");
    assert_eq!(answered.get(), 60);
    assert!(host_steps.get() >= 60, "the host took {} steps beside 60 answers", host_steps.get());
    assert!(stats.datagrams_ignored.value() > 0, "the flood never arrived");
}
