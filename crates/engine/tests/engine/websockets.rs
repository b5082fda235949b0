//! WebSocket over the three protocols: messages both ways, closing, what is refused, and peers that do not read or are gone.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use pronghorn_engine::websocket::{
    self, CloseCode, CloseReason, ConnectError, Error, Event, Fragment, FragmentError, Kind, Message, Options, Prepared, ProtocolError,
    Sender, WebSocket, WebSocketUpgrade, deflate,
};
use pronghorn_engine::{Body, Config, Connection, Limits, Protocol, Request as Asked, Responder, Response, Upgrade};

use crate::support::{Bench, PROTOCOLS};

type Answering = Box<dyn Fn(Asked, Responder)>;
/// How the server's connections ended, and what with.
type Ends = Rc<RefCell<Vec<(Result<(), Error>, Option<u16>)>>>;

/// Gives each message back.
fn echo(options: &Options, ends: &Ends) -> impl Fn(usize) -> Answering + use<> {
    serving(options, ends, |mut socket, ends| async move {
        let end = loop {
            match socket.recv().await {
                Some(Ok(message)) => match socket.send(message).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            }
        };
        ends.borrow_mut().push((end, socket.reason().map(|reason| reason.code.number())));
    })
}

fn serving<F, S>(options: &Options, ends: &Ends, serve: S) -> impl Fn(usize) -> Answering + use<F, S>
where
    F: Future<Output = ()> + 'static,
    S: Fn(WebSocket, Ends) -> F + Clone + 'static,
{
    let (options, ends) = (options.clone(), ends.clone());
    move |_| {
        let (options, ends, serve) = (options.clone(), ends.clone(), serve.clone());
        Box::new(move |request: Asked, responder: Responder| match WebSocketUpgrade::from_request(&request, &options) {
            Ok(upgrade) => {
                let handle = responder.handle().clone();
                handle.spawn(serve(upgrade.accept(responder, request.body), ends.clone()));
            }
            Err(refusal) => responder.send(refusal.into()),
        })
    }
}

/// Reads once, says how that ended, and puts what sends where the test finds it.
fn lending(sender: &Rc<RefCell<Option<Sender>>>) -> impl Fn(WebSocket, Ends) -> Pin<Box<dyn Future<Output = ()>>> + Clone + 'static {
    let sender = sender.clone();
    move |mut socket, ends| {
        sender.replace(Some(socket.sender().clone()));
        Box::pin(async move {
            let end = socket.recv().await.map_or(Ok(()), |message| message.map(drop));
            ends.borrow_mut().push((end, None));
        })
    }
}

fn uri() -> Uri {
    Uri::from_static("https://localhost/chat")
}

fn open(bench: &mut Bench, protocol: Protocol, options: &Options) -> (WebSocket, Connection) {
    let mut connection = bench.connect(protocol);
    let options = options.clone();
    bench.run(async move {
        let socket = websocket::connect(&mut connection, uri(), HeaderMap::new(), &options).await;
        (socket.unwrap_or_else(|error| panic!("{protocol}: {error}")), connection)
    })
}

fn turns(bench: &mut Bench, count: usize) {
    for _ in 0..count {
        bench.turn();
    }
}

#[test]
fn messages_come_back_and_the_close_is_answered() {
    let keeping = deflate::Options::default().with_own_context(15).with_peer_context(15);
    for protocol in PROTOCOLS {
        for options in [
            Options::default(),
            Options::default().with_deflate(deflate::Options::default()),
            Options::default().with_deflate(keeping).with_protocol("chat.2").with_protocol("chat.1"),
        ] {
            let ends = Ends::default();
            let mut bench = Bench::new(1, &Config::default(), echo(&options.clone().with_protocol("chat.1"), &ends));
            let (mut socket, connection) = open(&mut bench, protocol, &options);
            let expected = format!("{options:?}").contains("chat.2").then_some("chat.2");
            assert!(socket.protocol().is_none() || socket.protocol() == expected, "{protocol}");
            let reason = bench.run(async move {
                for size in [0, 1, 125, 126, 5_000, 65_536, 900_000] {
                    for message in [Message::text("€x".repeat(size / 4)), Message::binary(vec![7; size])] {
                        socket.send(message.clone()).await.unwrap();
                        assert_eq!(socket.recv().await.unwrap().unwrap(), message);
                    }
                }
                socket.close(CloseReason { code: CloseCode::new(4001).unwrap(), text: "done".to_owned() });
                assert!(socket.recv().await.is_none());
                assert_eq!(socket.send(Message::text("late")).await, Err(Error::Closed));
                socket.reason().cloned()
            });
            assert_eq!(reason.unwrap().code.number(), 4001, "{protocol}");
            bench.turn_until(|_| !ends.borrow().is_empty());
            assert_eq!(*ends.borrow(), [(Ok(()), Some(4001))], "{protocol}");
            drop(connection);
            bench.turn_until(|bench| bench.count(|stats| stats.tcp_open.value() + stats.quic_open.value()) == 0);
            let bad = |stats: &pronghorn_engine::Stats| stats.requests_aborted.value() + stats.websocket_errors.value();
            assert_eq!(bench.count(bad), 0, "{protocol}");
        }
    }
}

#[test]
fn subprotocol_is_the_first_of_the_clients_that_the_server_has() {
    for protocol in PROTOCOLS {
        let server = Options::default().with_protocol("a").with_protocol("b");
        let mut bench = Bench::new(1, &Config::default(), echo(&server, &Ends::default()));
        for (asked, taken) in [(&["x", "b", "a"][..], Some("b")), (&["x"], None), (&[], None)] {
            let options = asked.iter().fold(Options::default(), |options, name| options.with_protocol(name));
            let (socket, _connection) = open(&mut bench, protocol, &options);
            assert_eq!(socket.protocol(), taken, "{protocol} {asked:?}");
        }
    }
}

#[test]
fn server_closes_with_a_reason_and_what_was_sent_before_arrives() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let serve = |mut socket: WebSocket, _| async move {
            for number in 0..100 {
                socket.sender().push(&Message::text(number.to_string())).unwrap();
            }
            socket.close(CloseReason::from(CloseCode::POLICY));
            // Only the first says why.
            socket.close(CloseReason::from(CloseCode::NORMAL));
            while socket.recv().await.is_some() {}
        };
        let mut bench = Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let (count, code) = bench.run(async move {
            let mut count = 0;
            while let Some(message) = socket.recv().await {
                assert_eq!(message.unwrap().as_text(), Some(count.to_string().as_str()));
                count += 1;
            }
            (count, socket.reason().map(|reason| reason.code))
        });
        assert_eq!((count, code), (100, Some(CloseCode::POLICY)), "{protocol}");
    }
}

#[test]
fn socket_that_is_dropped_goes_away() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &ends));
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        drop(socket);
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Ok(()), Some(1001))], "{protocol}");
    }
}

#[test]
fn connection_that_ends_without_a_close_is_an_error() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &ends));
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        socket.sender().abort();
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Err(Error::Aborted), None)], "{protocol}");
    }
}

#[test]
fn message_over_the_limit_is_refused_with_1009() {
    let limits = Limits::default().with_websocket_message_bytes(1_000).unwrap();
    for protocol in PROTOCOLS {
        for deflate in [None, Some(deflate::Options::default())] {
            let options = deflate.map_or(Options::default(), |deflate| Options::default().with_deflate(deflate));
            let ends = Ends::default();
            let config = Config { limits: limits.clone(), ..Config::default() };
            let mut bench = Bench::new(1, &config, echo(&options, &ends));
            let (mut socket, _connection) = open(&mut bench, protocol, &options);
            let code = bench.run(async move {
                socket.send(Message::binary(vec![0; 1_000])).await.unwrap();
                assert!(socket.recv().await.unwrap().is_ok());
                socket.send(Message::binary(vec![0; 1_001])).await.unwrap();
                assert!(socket.recv().await.is_none());
                socket.reason().map(|reason| reason.code)
            });
            assert_eq!(code, Some(CloseCode::TOO_LARGE), "{protocol}");
            bench.turn_until(|_| !ends.borrow().is_empty());
            assert_eq!(*ends.borrow(), [(Err(ProtocolError::TooLarge.into()), None)], "{protocol}");
            assert_eq!(bench.count(|stats| stats.websocket_messages_too_large.value()), 1, "{protocol}");
        }
    }
}

// ---- time -------------------------------------------------------------------------------------------------------------------

#[test]
fn silence_is_broken_by_pings_and_the_connection_lives() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &ends));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default().with_timeout(Duration::from_secs(100_000)));
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
fn peer_that_answers_no_ping_is_given_up() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let limits = Limits::default().with_websocket_timeout(Duration::from_secs(20)).unwrap();
        let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, echo(&Options::default(), &ends));
        // It takes what comes, so that the connection below lives, and never looks at it.
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
fn peer_that_is_not_asked_has_to_speak_by_itself() {
    for protocol in PROTOCOLS {
        for (options, ends_silent) in [
            (Options::default().without_pings().with_timeout(Duration::from_secs(20)), true),
            (Options::default().with_timeout(Duration::from_secs(20)), false),
            (Options::default().with_timeout(Duration::MAX), false),
        ] {
            let ends = Ends::default();
            let mut bench = Bench::new(1, &Config::default(), echo(&options, &ends));
            // It would answer each ping.
            let (mut socket, _connection) = open(&mut bench, protocol, &Options::default().with_timeout(Duration::MAX));
            let sender = socket.sender().clone();
            bench.client.handle().spawn(async move { while let Some(Ok(_)) = socket.recv().await {} });
            for second in 0..60 {
                if second == 10 {
                    sender.push(&Message::text("by itself")).unwrap();
                }
                bench.skip(Duration::from_secs(1));
                turns(&mut bench, 20);
                let gone = second > 34 && ends_silent;
                let expected = if gone { vec![(Err(Error::TimedOut), None)] } else { vec![] };
                assert!(*ends.borrow() == expected || (28..=34).contains(&second), "{protocol}: {second} s, {ends:?}");
            }
        }
    }
}

#[test]
fn peer_is_not_given_up_because_nobody_listened() {
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
                ends.borrow_mut().push((came.unwrap_or(Ok(())), socket.reason().map(|reason| reason.code.number())));
            }
        };
        let options = Options::default().with_timeout(Duration::from_secs(20));
        let mut bench = Bench::new(1, &Config::default(), serving(&options, &ends, serve));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default().with_timeout(Duration::MAX));
        let sender = socket.sender().clone();
        bench.client.handle().spawn(async move { while let Some(Ok(_)) = socket.recv().await {} });
        // Busy with something else for long.
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
        let mut bench = Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
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
fn close_from_elsewhere_is_given_its_time_and_no_more() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let sender = Rc::new(RefCell::new(None));
        let serve = lending(&sender);
        let mut bench = Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (_socket, _connection) = open(&mut bench, protocol, &Options::default());
        turns(&mut bench, 100);
        // While somebody waits for messages.
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
        let mut bench = Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        for _ in 0..60 {
            // More than is read in a turn, and nobody reads the close.
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
fn peer_that_vanishes_is_noticed_and_what_waits_for_it_let_go() {
    for protocol in PROTOCOLS {
        for is_sent_to in [false, true] {
            let ends = Ends::default();
            let sender = Rc::new(RefCell::new(None));
            let serve = lending(&sender);
            let mut bench = Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
            let (_socket, _connection) = open(&mut bench, protocol, &Options::default());
            turns(&mut bench, 100);
            let sender = sender.take().unwrap();
            if is_sent_to {
                for _ in 0..40 {
                    sender.push(&Message::binary(vec![1; 1 << 20])).unwrap();
                }
            }
            // From here on nothing is heard of the client, not even of its kernel's loss.
            let began = bench.now();
            while ends.borrow().is_empty() {
                bench.skip(Duration::from_secs(1));
                let now = bench.now();
                (0..20).for_each(|_| bench.servers[0].turn(now).unwrap());
                assert!(now - began < Duration::from_secs(130), "{protocol}, sent to: {is_sent_to}: not noticed");
            }
            assert!(matches!(ends.borrow()[..], [(Err(Error::TimedOut | Error::Aborted), None)]), "{protocol}: {ends:?}");
            assert_eq!((sender.buffered_amount(), sender.is_closed()), (0, true), "{protocol}, sent to: {is_sent_to}");
            if protocol == Protocol::Http1 {
                let now = bench.now();
                (0..20).for_each(|_| bench.servers[0].turn(now).unwrap());
                assert_eq!(bench.count(|stats| stats.tcp_open.value()), 0);
            }
        }
    }
}

// ---- what holds back --------------------------------------------------------------------------------------------------------

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
        let mut bench = Bench::new(1, &Config::default(), serving(&Options::default(), &Ends::default(), serve));
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
fn reader_takes_only_so_much_in_a_turn_of_its_worker() {
    const MESSAGES: usize = 20_000;
    for protocol in PROTOCOLS {
        for (size, most) in [(0, 256), (40 << 10, 7)] {
            let count = if size == 0 { MESSAGES } else { 100 };
            // How many came in a turn, turn by turn.
            let seen = Rc::<RefCell<Vec<(u64, usize)>>>::default();
            let noted = seen.clone();
            let options = Options::default().with_deflate(deflate::Options::default());
            let mut bench = Bench::new(1, &Config::default(), move |_| {
                let (options, noted) = (options.clone(), noted.clone());
                move |request: Asked, responder: Responder| {
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
            let (socket, _connection) = open(&mut bench, protocol, &Options::default().with_deflate(deflate::Options::default()));
            for _ in 0..count {
                socket.sender().push(&Message::binary(vec![0; size])).unwrap();
            }
            bench.turn_until(|_| seen.borrow().iter().map(|(_, count)| count).sum::<usize>() == count);
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
        for options in [Options::default(), Options::default().with_deflate(deflate::Options::default())] {
            let mut bench = Bench::new(1, &Config::default(), echo(&options, &Ends::default()));
            let (mut socket, _connection) = open(&mut bench, protocol, &options);
            bench.run(async move {
                let parts = ["€ and more ".repeat(5_000), "x".to_owned(), String::new(), "y".repeat(100_000)];
                let whole = Message::text(parts.concat());
                for compress in [true, false] {
                    let [begin, middle @ .., end] = &parts;
                    let sender = socket.sender().clone();
                    sender.push_fragment(first(compress), begin.clone()).unwrap();
                    assert_eq!(sender.push_fragment(first(compress), ""), Err(Error::Fragment(FragmentError::UnderWay)));
                    let waiting = sender.buffered_amount();
                    assert_eq!(sender.push(&Message::text("behind")), Ok(waiting + 6));
                    assert_eq!(sender.push_prepared(&Prepared::new(Message::text("it"))), Ok(waiting + 8));
                    sender.ping(PING);
                    // The answer comes although the message is not done.
                    let pong = loop {
                        match poll_fn(|cx| socket.poll_event(cx)).await.unwrap().unwrap() {
                            Event::Pong(data) => break data,
                            event => assert!(matches!(event, Event::Ping(_)), "{event:?}"),
                        }
                    };
                    assert_eq!((pong, sender.buffered_amount()), (Bytes::from_static(PING), 8));
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
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let (parts, others) = (socket.sender().clone(), socket.sender().clone());
        parts.push_fragment(Fragment::First { kind: Kind::Binary, compress: false }, "begun").unwrap();
        // More than may wait: whoever sends whole messages has to wait from here on.
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
            assert_eq!(socket.recv().await.unwrap().unwrap(), Message::binary("begun and ended"), "{protocol}");
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
            socket.sender().push_fragment(Fragment::First { kind: Kind::Binary, compress: false }, "begun").unwrap();
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
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let sender = socket.sender().clone();
        let (left, seen) = (Rc::<RefCell<Vec<usize>>>::default(), sender.clone());
        let noted = left.clone();
        // More than the echo lets through before somebody reads what comes back.
        for _ in 0..40 {
            sender.push(&Message::binary(vec![0; 512 << 10])).unwrap();
        }
        bench.client.handle().spawn(async move {
            for bytes in [5 << 20, 0] {
                seen.drained(bytes).await.unwrap();
                assert!(seen.buffered_amount() <= bytes);
                noted.borrow_mut().push(seen.buffered_amount());
            }
        });
        turns(&mut bench, 2_000);
        assert!(left.borrow().is_empty(), "{protocol}: {} bytes wait, and {left:?} was told", sender.buffered_amount());
        bench.run(async move {
            for _ in 0..40 {
                socket.recv().await.unwrap().unwrap();
            }
        });
        bench.turn_until(|_| left.borrow().len() == 2);
        assert!(left.borrow()[0] > 4 << 20 && left.borrow()[1] == 0, "{protocol}: {left:?}");
    }
}

#[test]
fn waits_that_are_given_up_leave_nothing_behind() {
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
    let (mut sending, mut draining) = (Box::pin(sender.send(&message)), Box::pin(sender.drained(0)));
    for _ in 0..2 {
        assert!(sending.as_mut().poll(&mut cx).is_pending() && draining.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(std::sync::Arc::strong_count(&task), 4);
    drop((sending, draining));
    assert_eq!(std::sync::Arc::strong_count(&task), 2);
}

#[test]
fn connection_that_this_side_ends_at_once_is_heard_by_its_reader_and_senders() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
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
        assert_eq!((sender.buffered_amount(), sender.push(&Message::text("late"))), (0, Err(Error::Closed)), "{protocol}");
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
        let mut bench = Bench::new(1, &Config::default(), serving(&Options::default(), &Ends::default(), serve));
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        turns(&mut bench, 10);
        let sender = sender.take().unwrap();
        for _ in 0..40 {
            sender.push(&Message::binary(vec![0; 1 << 20])).unwrap();
        }
        let mut waiting = usize::MAX;
        while std::mem::replace(&mut waiting, sender.buffered_amount()) != sender.buffered_amount() {
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

// ---- refusals ---------------------------------------------------------------------------------------------------------------

#[test]
fn requests_that_ask_wrongly_are_refused() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
        let ask = |bench: &mut Bench, upgrade: Option<&str>, lines: &[(HeaderName, &'static str)]| {
            let mut request = Request::get(uri()).body(Body::empty()).unwrap();
            request.headers_mut().extend(lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))));
            if let Some(upgrade) = upgrade {
                request.extensions_mut().insert(Upgrade::new(upgrade));
            }
            let mut connection = bench.connect(protocol);
            bench.run(async move {
                let response = connection.send(request).await.unwrap();
                let (head, body) = response.into_parts();
                if head.status != StatusCode::SWITCHING_PROTOCOLS {
                    let _: Bytes = body.collect().await.unwrap().to_bytes();
                }
                head
            })
        };
        let key = (HeaderName::from_static("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ==");
        let version = (SEC_WEBSOCKET_VERSION, "13");
        let is_http1 = protocol == Protocol::Http1;
        let no = if is_http1 { StatusCode::UPGRADE_REQUIRED } else { StatusCode::BAD_REQUEST };
        let head = ask(&mut bench, None, &[key.clone(), version.clone()]);
        assert_eq!((head.status, head.headers.contains_key(UPGRADE)), (no, is_http1), "{protocol}");
        assert_eq!(ask(&mut bench, Some("h2c"), &[key.clone(), version.clone()]).status, no, "{protocol}");
        let head = ask(&mut bench, Some("websocket"), &[key.clone(), (SEC_WEBSOCKET_VERSION, "8")]);
        assert_eq!((head.status, &head.headers[SEC_WEBSOCKET_VERSION]), (StatusCode::UPGRADE_REQUIRED, &HeaderValue::from_static("13")));
        if is_http1 {
            assert_eq!(ask(&mut bench, Some("websocket"), std::slice::from_ref(&version)).status, StatusCode::BAD_REQUEST);
            let short = (key.0.clone(), "c2hvcnQ=");
            assert_eq!(ask(&mut bench, Some("websocket"), &[short, version.clone()]).status, StatusCode::BAD_REQUEST);
            // RFC 6455, section 1.3.
            let head = ask(&mut bench, Some("websocket"), &[key, version]);
            assert_eq!(head.headers[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
    }
}

#[test]
fn client_learns_what_the_server_says_instead() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |_, responder: Responder| responder.send(Response::new(StatusCode::FORBIDDEN).with_body("members only"))
        });
        let mut connection = bench.connect(protocol);
        let text = bench.run(async move {
            match websocket::connect(&mut connection, uri(), HeaderMap::new(), &Options::default()).await {
                Err(ConnectError::Refused(response)) => {
                    assert_eq!(response.status(), StatusCode::FORBIDDEN);
                    response.into_body().collect().await.unwrap().to_bytes()
                }
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(text, "members only", "{protocol}");
    }
}

#[test]
fn server_that_grants_what_was_not_asked_for_hears_that_it_is_refused() {
    for protocol in PROTOCOLS {
        let end = Rc::new(RefCell::new(None));
        let told = end.clone();
        let mut bench = Bench::new(1, &Config::default(), move |_| {
            let told = told.clone();
            move |request: Asked, responder: Responder| {
                let handle = responder.handle().clone();
                let mut upgrade = WebSocketUpgrade::from_request(&request, &Options::default()).unwrap();
                upgrade.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("another"));
                let mut socket = upgrade.accept(responder, request.body);
                let told = told.clone();
                handle.spawn(async move {
                    *told.borrow_mut() = Some(socket.recv().await);
                });
            }
        });
        let mut connection = bench.connect(protocol);
        let (result, _connection) =
            bench.run(async move { (websocket::connect(&mut connection, uri(), HeaderMap::new(), &Options::default()).await, connection) });
        assert!(matches!(result, Err(ConnectError::Invalid(_))), "{protocol}: {result:?}");
        turns(&mut bench, 100);
        assert_eq!(end.take(), Some(Some(Err(Error::Aborted))), "{protocol}");
    }
}
