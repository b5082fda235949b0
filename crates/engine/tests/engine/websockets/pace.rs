//! WebSocket: back-pressure, fragments, and aborted connections.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use pronghorn_engine::websocket::{
    self, CloseCode, CloseReason, Error, Event, Fragment, FragmentError, Kind, Message, Options,
    Prepared, WebSocket, WebSocketUpgrade, deflate,
};
use pronghorn_engine::{Config, Protocol, Request as EngineRequest, Responder};

use super::{Ends, echo, open, serving, turns};
use crate::support::{Bench, PROTOCOLS};

#[test]
fn slow_reader_holds_the_sender_back() {
    const MESSAGES: usize = 2_000;
    for protocol in PROTOCOLS {
        let sent = Rc::new(Cell::new(0));
        let most = Rc::new(Cell::new(0));
        let (counted, buffered) = (sent.clone(), most.clone());
        let serve = move |mut socket: WebSocket, _| {
            let (sent, most) = (counted.clone(), buffered.clone());
            async move {
                for _ in 0..MESSAGES {
                    socket.send(Message::binary(vec![1; 32 << 10])).await.unwrap();
                    sent.set(sent.get() + 1);
                    most.set(most.get().max(socket.sender().buffered_amount()));
                }
                socket.close(CloseReason::from(CloseCode::NORMAL));
                while socket.recv().await.is_some() {}
            }
        };
        let mut bench = Bench::new(
            1,
            &Config::default(),
            serving(&Options::default(), &Ends::default(), serve),
        );
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let mut before = 0;
        loop {
            turns(&mut bench, 300);
            if std::mem::replace(&mut before, sent.get()) == sent.get() && before > 0 {
                break;
            }
        }
        assert!(before < MESSAGES / 2, "{protocol}: {before} messages of 32 KiB were taken");
        assert!(most.get() < (64 + 33) << 10, "{protocol}: {} bytes waited", most.get());
        assert!(bench.count(|stats| stats.websocket_senders_held_back.value()) > 0, "{protocol}");
        let count = bench.run(async move {
            let mut count = 0;
            while let Some(message) = socket.recv().await {
                message.unwrap();
                count += 1;
            }
            count
        });
        assert_eq!(count, MESSAGES, "{protocol}");
    }
}

#[test]
fn reads_per_turn_are_limited() {
    const MESSAGES: usize = 20_000;
    for protocol in PROTOCOLS {
        for (size, most) in [(0, 256), (40 << 10, 7)] {
            let count = if size == 0 { MESSAGES } else { 100 };
            // Messages received in each turn.
            let seen = Rc::<RefCell<Vec<(u64, usize)>>>::default();
            let noted = seen.clone();
            let options = Options::default().with_deflate(deflate::Options::default());
            let mut bench = Bench::new(1, &Config::default(), move |_| {
                let (options, noted) = (options.clone(), noted.clone());
                move |request: EngineRequest, responder: Responder| {
                    let handle = responder.handle().clone();
                    let upgrade = WebSocketUpgrade::from_request(&request, &options).unwrap();
                    let mut socket = upgrade.accept(responder, request.body);
                    let noted = noted.clone();
                    handle.clone().spawn(async move {
                        while let Some(Ok(_)) = socket.recv().await {
                            let mut seen = noted.borrow_mut();
                            match seen.last_mut() {
                                Some((turn, count)) if *turn == handle.turn() => *count += 1,
                                _ => seen.push((handle.turn(), 1)),
                            }
                        }
                    });
                }
            });
            let (socket, _connection) = open(
                &mut bench,
                protocol,
                &Options::default().with_deflate(deflate::Options::default()),
            );
            for _ in 0..count {
                socket.sender().push(&Message::binary(vec![0; size])).unwrap();
            }
            bench.turn_until(|_| {
                seen.borrow().iter().map(|(_, count)| count).sum::<usize>() == count
            });
            let largest = seen.borrow().iter().map(|(_, count)| *count).max().unwrap();
            assert!(largest <= most, "{protocol}: {largest} messages of {size} bytes in a turn");
        }
    }
}

#[test]
fn message_pushed_to_many_arrives_at_each() {
    let sockets = Rc::<RefCell<Vec<websocket::Sender>>>::default();
    let all = sockets.clone();
    let serve = move |mut socket: WebSocket, _| {
        all.borrow_mut().push(socket.sender().clone());
        async move { while socket.recv().await.is_some() {} }
    };
    let options = Options::default().with_deflate(deflate::Options::default());
    let mut bench = Bench::new(1, &Config::default(), serving(&options, &Ends::default(), serve));
    let mut open_sockets: Vec<_> = PROTOCOLS
        .into_iter()
        .flat_map(|protocol| [(protocol, options.clone()), (protocol, Options::default())])
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(protocol, options)| open(&mut bench, protocol, &options))
        .collect();
    bench.turn_until(|_| sockets.borrow().len() == 6);
    let prepared = Prepared::new(Message::text("news ".repeat(1_000)));
    for socket in sockets.borrow().iter() {
        assert!(socket.push_prepared(&prepared).unwrap() > 0);
    }
    bench.run(async move {
        for (socket, _) in &mut open_sockets {
            assert_eq!(socket.recv().await.unwrap().unwrap(), *prepared.message());
        }
    });
}

#[test]
fn fragments_arrive_as_one_message_and_others_wait_for_the_last() {
    const PING: &[u8] = b"still there?";
    let first = |compress| Fragment::First { kind: Kind::Text, compress };
    for protocol in PROTOCOLS {
        for options in
            [Options::default(), Options::default().with_deflate(deflate::Options::default())]
        {
            let mut bench = Bench::new(1, &Config::default(), echo(&options, &Ends::default()));
            let (mut socket, _connection) = open(&mut bench, protocol, &options);
            bench.run(async move {
                let parts = [
                    "€ and more ".repeat(5_000),
                    "x".to_owned(),
                    String::new(),
                    "y".repeat(100_000),
                ];
                let whole = Message::text(parts.concat());
                for compress in [true, false] {
                    let [begin, middle @ .., end] = &parts;
                    let sender = socket.sender().clone();
                    sender.push_fragment(first(compress), begin.clone()).unwrap();
                    assert_eq!(
                        sender.push_fragment(first(compress), ""),
                        Err(Error::Fragment(FragmentError::UnderWay))
                    );
                    // Each message counts with its header.
                    let waiting = sender.buffered_amount();
                    assert_eq!(sender.push(&Message::text("behind")), Ok(waiting + 8));
                    assert_eq!(
                        sender.push_prepared(&Prepared::new(Message::text("it"))),
                        Ok(waiting + 12)
                    );
                    sender.ping(PING);
                    // The pong arrives although the message is not complete.
                    let pong = loop {
                        match poll_fn(|cx| socket.poll_event(cx)).await.unwrap().unwrap() {
                            Event::Pong(data) => break data,
                            event => assert!(matches!(event, Event::Ping(_)), "{event:?}"),
                        }
                    };
                    assert_eq!((pong, sender.buffered_amount()), (Bytes::from_static(PING), 12));
                    for part in middle {
                        sender.push_fragment(Fragment::Middle, part.clone()).unwrap();
                    }
                    sender.push_fragment(Fragment::Last, end.clone()).unwrap();
                    for message in [whole.clone(), Message::text("behind"), Message::text("it")] {
                        assert_eq!(socket.recv().await.unwrap().unwrap(), message, "{protocol}");
                    }
                }
            });
        }
    }
}

#[test]
fn sender_of_parts_is_not_held_back_by_what_waits_for_its_last() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let (parts, others) = (socket.sender().clone(), socket.sender().clone());
        parts
            .push_fragment(Fragment::First { kind: Kind::Binary, compress: false }, "begun")
            .unwrap();
        // More than the queue allows: senders of whole messages must wait from here on.
        others.push(&Message::binary(vec![0; 200 << 10])).unwrap();
        let whole = Rc::new(Cell::new(false));
        let sent = whole.clone();
        bench.client.handle().spawn(async move {
            others.send(&Message::text("later")).await.unwrap();
            sent.set(true);
        });
        bench.run(async move {
            parts.drained(0).await.unwrap();
            assert!(!whole.get(), "{protocol}");
            parts.push_fragment(Fragment::Last, " and ended").unwrap();
            assert_eq!(
                socket.recv().await.unwrap().unwrap(),
                Message::binary("begun and ended"),
                "{protocol}"
            );
            assert_eq!(socket.recv().await.unwrap().unwrap().data().len(), 200 << 10);
            assert_eq!(socket.recv().await.unwrap().unwrap(), Message::text("later"));
            assert!(whole.get());
        });
    }
}

#[test]
fn message_whose_last_part_never_comes_holds_up_no_close() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &ends));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        bench.run(async move {
            socket
                .sender()
                .push_fragment(Fragment::First { kind: Kind::Binary, compress: false }, "begun")
                .unwrap();
            socket.sender().push(&Message::text("behind")).unwrap();
            socket.close(CloseReason::from(CloseCode::POLICY));
            assert_eq!(socket.sender().push_fragment(Fragment::Last, "late"), Err(Error::Closed));
            socket.sender().drained(0).await.unwrap();
            assert!(socket.recv().await.is_none());
            assert_eq!(socket.sender().buffered_amount(), 0);
        });
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Ok(()), Some(1008))], "{protocol}");
    }
}

#[test]
fn sender_hears_when_what_waits_has_gone() {
    const MESSAGES: usize = 64;
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let sender = socket.sender().clone();
        let (left, seen) = (Rc::<RefCell<Vec<usize>>>::default(), sender.clone());
        let noted = left.clone();
        // More than the echo forwards before its messages are read, and twice the reported number:
        // a socket buffers megabytes at once.
        for _ in 0..MESSAGES {
            sender.push(&Message::binary(vec![0; 512 << 10])).unwrap();
        }
        bench.client.handle().spawn(async move {
            for bytes in [16 << 20, 0] {
                seen.drained(bytes).await.unwrap();
                assert!(seen.buffered_amount() <= bytes);
                noted.borrow_mut().push(seen.buffered_amount());
            }
        });
        turns(&mut bench, 2_000);
        assert!(
            left.borrow().is_empty(),
            "{protocol}: {} bytes wait, and {left:?} was told",
            sender.buffered_amount()
        );
        bench.run(async move {
            for _ in 0..MESSAGES {
                socket.recv().await.unwrap().unwrap();
            }
        });
        bench.turn_until(|_| left.borrow().len() == 2);
        assert!(left.borrow()[0] > 1 << 20 && left.borrow()[1] == 0, "{protocol}: {left:?}");
    }
}

#[test]
fn dropped_waits_are_deregistered() {
    struct Task;
    impl std::task::Wake for Task {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
    let (socket, _connection) = open(&mut bench, Protocol::Http2, &Options::default());
    let sender = socket.sender();
    sender.push(&Message::binary(vec![0; 1 << 20])).unwrap();
    let task = std::sync::Arc::new(Task);
    let waker = std::task::Waker::from(task.clone());
    let mut cx = std::task::Context::from_waker(&waker);
    let message = Message::text("waits");
    let (mut sending, mut draining) =
        (Box::pin(sender.send(&message)), Box::pin(sender.drained(0)));
    for _ in 0..2 {
        assert!(
            sending.as_mut().poll(&mut cx).is_pending()
                && draining.as_mut().poll(&mut cx).is_pending()
        );
    }
    assert_eq!(std::sync::Arc::strong_count(&task), 4);
    drop((sending, draining));
    assert_eq!(std::sync::Arc::strong_count(&task), 2);
}

#[test]
fn abort_notifies_reader_and_senders() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let sender = socket.sender().clone();
        let (heard, drained) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
        let (reader, waiting, drains) = (heard.clone(), sender.clone(), drained.clone());
        bench.client.handle().spawn(async move {
            let mut end = socket.recv().await;
            while let Some(Ok(_)) = end {
                end = socket.recv().await;
            }
            reader.set(end);
        });
        bench.client.handle().spawn(async move { drains.set(Some(waiting.drained(0).await)) });
        for _ in 0..80 {
            sender.push(&Message::binary(vec![0; 512 << 10])).unwrap();
        }
        turns(&mut bench, 5);
        sender.abort();
        turns(&mut bench, 5);
        assert!(matches!(heard.take(), Some(Err(Error::Aborted))), "{protocol}");
        assert_eq!(drained.take(), Some(Err(Error::Closed)), "{protocol}");
        assert_eq!(
            (sender.buffered_amount(), sender.push(&Message::text("late"))),
            (0, Err(Error::Closed)),
            "{protocol}"
        );
    }
}

#[test]
fn connection_ends_at_once_although_its_peer_takes_nothing() {
    for protocol in PROTOCOLS {
        let sender = Rc::new(RefCell::new(None));
        let given = sender.clone();
        let serve = move |mut socket: WebSocket, _| {
            given.replace(Some(socket.sender().clone()));
            async move { while let Some(Ok(_)) = socket.recv().await {} }
        };
        let mut bench = Bench::new(
            1,
            &Config::default(),
            serving(&Options::default(), &Ends::default(), serve),
        );
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        turns(&mut bench, 10);
        let sender = sender.take().unwrap();
        for _ in 0..40 {
            sender.push(&Message::binary(vec![0; 1 << 20])).unwrap();
        }
        let mut waiting = usize::MAX;
        while std::mem::replace(&mut waiting, sender.buffered_amount()) != sender.buffered_amount()
        {
            turns(&mut bench, 300);
        }
        assert!(waiting > 10 << 20, "{protocol}: {waiting}");
        sender.abort();
        turns(&mut bench, 20);
        if protocol == Protocol::Http1 {
            assert_eq!(bench.count(|stats| stats.tcp_open.value()), 0);
        } else {
            assert_eq!(bench.count(|stats| stats.requests_aborted.value()), 1, "{protocol}");
        }
        drop(socket);
    }
}
