//! WebSocket: peers that are silent, do not answer or have vanished.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use pronghorn_engine::websocket::{Error, Message, Options, WebSocket};
use pronghorn_engine::{Config, Limits, Protocol};

use super::{Ends, echo, lending, open, serving, turns};
use crate::support::{Bench, PROTOCOLS};

#[test]
fn pings_keep_idle_websocket_open() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &ends));
        let (mut socket, _connection) = open(
            &mut bench,
            protocol,
            &Options::default().with_timeout(Duration::from_secs(100_000)),
        );
        let sender = socket.sender().clone();
        let received = Rc::new(Cell::new(0));
        let count = received.clone();
        bench.client.handle().spawn(async move {
            while let Some(Ok(_)) = socket.recv().await {
                count.set(count.get() + 1);
            }
        });
        for _ in 0..120 {
            bench.skip(Duration::from_secs(10));
            turns(&mut bench, 20);
        }
        assert!(ends.borrow().is_empty(), "{protocol}: {:?}", ends.borrow());
        sender.push(&Message::text("still here")).unwrap();
        bench.turn_until(|_| received.get() == 1);
    }
}

#[test]
fn unanswered_ping_times_out() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let limits = Limits::default().with_websocket_timeout(Duration::from_secs(20)).unwrap();
        let mut bench = Bench::new(
            1,
            &Config { limits, ..Config::default() },
            echo(&Options::default(), &ends),
        );
        // The client receives data, so the underlying connection lives, but never processes it.
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        for _ in 0..19 {
            bench.skip(Duration::from_secs(1));
            turns(&mut bench, 20);
        }
        assert!(ends.borrow().is_empty(), "{protocol}: {:?}", ends.borrow());
        bench.skip(Duration::from_secs(2));
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Err(Error::TimedOut), None)], "{protocol}");
        assert_eq!(bench.count(|stats| stats.websockets_timed_out.value()), 1, "{protocol}");
        drop(socket);
    }
}

#[test]
fn silent_peer_times_out_without_pings() {
    for protocol in PROTOCOLS {
        for (options, ends_silent) in [
            (Options::default().without_pings().with_timeout(Duration::from_secs(20)), true),
            (Options::default().with_timeout(Duration::from_secs(20)), false),
            (Options::default().with_timeout(Duration::MAX), false),
        ] {
            let ends = Ends::default();
            let mut bench = Bench::new(1, &Config::default(), echo(&options, &ends));
            // The client would answer each ping.
            let (mut socket, _connection) =
                open(&mut bench, protocol, &Options::default().with_timeout(Duration::MAX));
            let sender = socket.sender().clone();
            bench
                .client
                .handle()
                .spawn(async move { while let Some(Ok(_)) = socket.recv().await {} });
            for second in 0..60 {
                if second == 10 {
                    sender.push(&Message::text("by itself")).unwrap();
                }
                bench.skip(Duration::from_secs(1));
                turns(&mut bench, 20);
                let gone = second > 34 && ends_silent;
                let expected = if gone { vec![(Err(Error::TimedOut), None)] } else { vec![] };
                assert!(
                    *ends.borrow() == expected || (28..=34).contains(&second),
                    "{protocol}: {second} s, {ends:?}"
                );
            }
        }
    }
}

#[test]
fn busy_application_does_not_time_out_peer() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let listens = Rc::new(Cell::new(false));
        let reads = listens.clone();
        let serve = move |mut socket: WebSocket, ends: Ends| {
            let reads = reads.clone();
            async move {
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if reads.get() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                let came = socket.recv().await.map(|message| message.map(drop));
                ends.borrow_mut().push((
                    came.unwrap_or(Ok(())),
                    socket.reason().map(|reason| reason.code.number()),
                ));
            }
        };
        let options = Options::default().with_timeout(Duration::from_secs(20));
        let mut bench = Bench::new(1, &Config::default(), serving(&options, &ends, serve));
        let (mut socket, _connection) =
            open(&mut bench, protocol, &Options::default().with_timeout(Duration::MAX));
        let sender = socket.sender().clone();
        bench.client.handle().spawn(async move { while let Some(Ok(_)) = socket.recv().await {} });
        // The application is busy with something else for long.
        for _ in 0..100 {
            bench.skip(Duration::from_secs(1));
            turns(&mut bench, 20);
        }
        listens.set(true);
        for _ in 0..30 {
            bench.skip(Duration::from_secs(1));
            turns(&mut bench, 20);
        }
        assert!(ends.borrow().is_empty(), "{protocol}: {ends:?}");
        sender.push(&Message::text("there")).unwrap();
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Ok(()), None)], "{protocol}");
    }
}

#[test]
fn peer_that_does_not_answer_a_close_is_given_up() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let serve = |mut socket: WebSocket, ends: Ends| async move {
            socket.close(None);
            let end = socket.recv().await.map_or(Ok(()), |message| message.map(drop));
            ends.borrow_mut().push((end, None));
        };
        let mut bench =
            Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (_socket, _connection) = open(&mut bench, protocol, &Options::default());
        turns(&mut bench, 100);
        bench.skip(Duration::from_secs(9));
        turns(&mut bench, 100);
        assert!(ends.borrow().is_empty(), "{protocol}");
        bench.skip(Duration::from_secs(2));
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Err(Error::TimedOut), None)], "{protocol}");
        assert_eq!(bench.count(|stats| stats.websocket_closes_timed_out.value()), 1, "{protocol}");
    }
}

#[test]
fn data_before_close_extends_close_timeout() {
    // More than the underlying connections buffer at once.
    const MESSAGES: usize = 40;
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let serve = |mut socket: WebSocket, ends: Ends| async move {
            for _ in 0..MESSAGES {
                socket.sender().push(&Message::binary(vec![0; 1 << 20])).unwrap();
            }
            socket.close(None);
            let end = socket.recv().await.map_or(Ok(()), |message| message.map(drop));
            ends.borrow_mut().push((end, None));
        };
        let mut bench =
            Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        for message in 0..MESSAGES {
            bench.skip(Duration::from_secs(3));
            let came;
            (socket, came) = bench.run(async move {
                let came = socket.recv().await;
                (socket, came)
            });
            assert!(
                matches!(came, Some(Ok(_))),
                "{protocol}: {came:?} instead of message {message}"
            );
        }
        let came = bench.run(async move { socket.recv().await });
        assert!(came.is_none(), "{protocol}: {came:?}");
        // The last data accepted by the underlying connection was in transit for longer than the
        // close timeout.
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert!(
            matches!(ends.borrow()[..], [(Ok(()) | Err(Error::TimedOut), None)]),
            "{protocol}: {ends:?}"
        );
    }
}

#[test]
fn peer_close_timeout_is_enforced() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let sender = Rc::new(RefCell::new(None));
        let serve = lending(&sender);
        let mut bench =
            Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (_socket, _connection) = open(&mut bench, protocol, &Options::default());
        turns(&mut bench, 100);
        // While the application waits for messages.
        sender.borrow().as_ref().unwrap().close(None);
        turns(&mut bench, 100);
        bench.skip(Duration::from_secs(9));
        turns(&mut bench, 100);
        assert!(ends.borrow().is_empty(), "{protocol}");
        bench.skip(Duration::from_secs(2));
        turns(&mut bench, 100);
        assert_eq!(*ends.borrow(), [(Err(Error::TimedOut), None)], "{protocol}");
        assert_eq!(bench.count(|stats| stats.websocket_closes_timed_out.value()), 1, "{protocol}");
    }
}

#[test]
fn peer_that_goes_on_sending_does_not_put_off_the_close() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let serve = |mut socket: WebSocket, ends: Ends| async move {
            socket.close(None);
            let end = loop {
                match socket.recv().await {
                    Some(Ok(_)) => {}
                    end => break end.map_or(Ok(()), |message| message.map(drop)),
                }
            };
            ends.borrow_mut().push((end, None));
        };
        let mut bench =
            Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        for _ in 0..60 {
            // More than is read in a turn, and the close is not read.
            for _ in 0..1_000 {
                let _ = socket.sender().push(&Message::text("x"));
            }
            turns(&mut bench, 1);
            bench.skip(Duration::from_secs(1));
        }
        assert_eq!(*ends.borrow(), [(Err(Error::TimedOut), None)], "{protocol}");
    }
}

#[test]
fn vanished_peer_fails_pending_operations() {
    for protocol in PROTOCOLS {
        for is_sent_to in [false, true] {
            let ends = Ends::default();
            let sender = Rc::new(RefCell::new(None));
            let serve = lending(&sender);
            let mut bench =
                Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
            let (_socket, _connection) = open(&mut bench, protocol, &Options::default());
            turns(&mut bench, 100);
            let sender = sender.take().unwrap();
            if is_sent_to {
                for _ in 0..40 {
                    sender.push(&Message::binary(vec![1; 1 << 20])).unwrap();
                }
            }
            // From here on the client is silent, even its kernel.
            let began = bench.now();
            while ends.borrow().is_empty() {
                bench.skip(Duration::from_secs(1));
                let now = bench.now();
                (0..20).for_each(|_| bench.servers[0].turn(now).unwrap());
                assert!(
                    now - began < Duration::from_secs(130),
                    "{protocol}, sent to: {is_sent_to}: not noticed"
                );
            }
            assert!(
                matches!(ends.borrow()[..], [(Err(Error::TimedOut | Error::Aborted), None)]),
                "{protocol}: {ends:?}"
            );
            assert_eq!(
                (sender.buffered_amount(), sender.is_closed()),
                (0, true),
                "{protocol}, sent to: {is_sent_to}"
            );
            if protocol == Protocol::Http1 {
                let now = bench.now();
                (0..20).for_each(|_| bench.servers[0].turn(now).unwrap());
                assert_eq!(bench.count(|stats| stats.tcp_open.value()), 0);
            }
        }
    }
}
