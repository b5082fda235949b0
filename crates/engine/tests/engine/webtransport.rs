//! WebTransport sessions between the engine's client and server.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::{BodyExt, Collected};
use pronghorn_engine::{
    Body, Config, ConnectError, Connection, DatagramError, Group, Limits, Protocol, RecvStream,
    Request, Responder, Response, SessionEnd, SessionStreamError, Upgrade, WebTransport,
};

use crate::support::{Bench, fetch, get, trust};

/// Sessions that servers have accepted.
type Accepted = Rc<RefCell<VecDeque<WebTransport>>>;

fn offering(limits: Limits) -> Config {
    Config { webtransport: true, limits, ..Config::default() }
}

/// A server that accepts sessions at `/session` and refuses all others with 404.
fn bench_with(server: &Config, client: Config) -> (Bench, Accepted) {
    let accepted = Accepted::default();
    let known = accepted.clone();
    let bench = Bench::with_client(&Group::new(1), &trust(), server, client, |_| {
        let accepted = known.clone();
        move |request: Request, responder: Responder| match request.uri.path() {
            "/session" if WebTransport::is_requested(&request) => {
                let session = WebTransport::accept(request, responder, HeaderMap::new()).unwrap();
                accepted.borrow_mut().push_back(session);
            }
            "/hello" => responder.send(Response::new(StatusCode::OK).with_body("hello")),
            _ => responder.send(Response::new(StatusCode::NOT_FOUND)),
        }
    });
    (bench, accepted)
}

fn bench() -> (Bench, Accepted) {
    bench_with(&offering(Limits::default()), offering(Limits::default()))
}

fn uri(path: &str) -> Uri {
    format!("https://localhost{path}").parse().unwrap()
}

/// Opens a session. Returns the client's and the server's handle, and the connection.
fn sessions(bench: &mut Bench, accepted: &Accepted) -> (WebTransport, WebTransport, Connection) {
    let mut connection = bench.connect(Protocol::Http3);
    let (client, connection) = bench.run(async move {
        let session =
            WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new()).await;
        (session.unwrap(), connection)
    });
    let server = accepted.borrow_mut().pop_front().unwrap();
    (client, server, connection)
}

async fn read_to_end(mut stream: RecvStream) -> Result<Vec<u8>, SessionStreamError> {
    let mut content = Vec::new();
    while let Some(piece) = stream.read().await? {
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place ^ ((place >> 8) * 31)) as u8).collect()
}

#[test]
fn streams_of_both_kinds_carry_content_both_ways() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    for (from, to) in [(client.clone(), server.clone()), (server, client)] {
        let sent = content(300_000);
        let expected = sent.clone();
        let (there, back, uni) = bench.run(async move {
            let (mut send, receive) = from.open_bi().await.unwrap();
            send.write(sent.clone()).await.unwrap();
            send.finish();
            let (mut answer, asked) = to.accept_bi().await.unwrap();
            let there = read_to_end(asked).await.unwrap();
            answer.write("and back").await.unwrap();
            answer.finish();
            let back = read_to_end(receive).await.unwrap();
            let mut one_way = from.open_uni().await.unwrap();
            one_way.write("one way").await.unwrap();
            one_way.finish();
            (there, back, read_to_end(to.accept_uni().await.unwrap()).await.unwrap())
        });
        assert!(there == expected);
        assert_eq!((&back[..], &uni[..]), (&b"and back"[..], &b"one way"[..]));
    }
    assert_eq!(bench.count(|stats| stats.webtransport_sessions.value()), 1);
}

#[test]
fn many_streams_come_and_go_at_once() {
    const STREAMS: usize = 250;
    // The limit is lower than the number of opened streams, so that some wait.
    let limits = || Limits::default().with_webtransport_streams(20).unwrap();
    let (mut bench, accepted) = bench_with(&offering(limits()), offering(limits()));
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    for (from, to) in [(client.clone(), server.clone()), (server, client)] {
        let handle = to.handle().clone();
        let worker = handle.clone();
        handle.spawn(async move {
            loop {
                let Ok((mut send, receive)) = to.accept_bi().await else { return };
                worker.spawn(async move {
                    let content = read_to_end(receive).await.unwrap();
                    send.write(content).await.unwrap();
                    send.finish();
                });
            }
        });
        let echoed = Rc::new(RefCell::new(0));
        for number in 0..STREAMS {
            let (from, echoed) = (from.clone(), echoed.clone());
            from.handle().clone().spawn(async move {
                let (mut send, receive) = from.open_bi().await.unwrap();
                let sent = format!("stream {number}").repeat(100);
                send.write(sent.clone()).await.unwrap();
                send.finish();
                assert_eq!(read_to_end(receive).await.unwrap(), sent.into_bytes());
                *echoed.borrow_mut() += 1;
            });
        }
        bench.turn_until(|_| *echoed.borrow() == STREAMS);
    }
}

#[test]
fn datagrams_arrive_and_those_that_cannot_are_refused() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    for (from, to) in [(client.clone(), server.clone()), (server, client)] {
        let most = from.max_datagram_size().unwrap();
        assert!(most > 1000, "{most}");
        for sent in [Bytes::new(), Bytes::from_static(b"datagram"), content(most).into()] {
            from.send_datagram(sent.clone()).unwrap();
            let to = to.clone();
            assert_eq!(bench.run(async move { to.read_datagram().await }), Ok(sent));
        }
        let size = from.max_datagram_size().unwrap() + 1;
        assert_eq!(
            from.send_datagram(content(size)),
            Err(DatagramError::TooLarge { size, max: size - 1 })
        );
    }
}

#[test]
fn unread_datagrams_evict_the_oldest() {
    let limits = Limits::default().with_webtransport_datagram_bytes(4096).unwrap();
    let (mut bench, accepted) = bench_with(&offering(limits), offering(Limits::default()));
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    for number in 0..20_u8 {
        client.send_datagram(vec![number; 936]).unwrap();
    }
    bench.turn_until(|bench| {
        bench.count(|stats| stats.webtransport_datagrams_dropped.value()) == 16
    });
    bench.run(async move {
        for number in 16..20_u8 {
            assert_eq!(server.read_datagram().await.unwrap()[0], number);
        }
    });
}

#[test]
fn datagrams_sent_before_the_connection_knows_of_the_session_arrive() {
    let greet = |request: Request, responder: Responder| {
        let session = WebTransport::accept(request, responder, HeaderMap::new()).unwrap();
        assert_eq!(session.max_datagram_size(), None);
        session.send_datagram("at once").unwrap();
        // The path does not allow datagrams of this size.
        session.send_datagram(content(20_000)).unwrap();
        session.send_datagram("and behind it").unwrap();
        session.handle().clone().spawn(async move { drop(session.closed().await) });
    };
    let mut bench = Bench::with_client(
        &Group::new(1),
        &trust(),
        &offering(Limits::default()),
        offering(Limits::default()),
        |_| greet,
    );
    let mut connection = bench.connect(Protocol::Http3);
    let received = bench.run(async move {
        let session =
            WebTransport::connect(&mut connection, uri("/"), HeaderMap::new()).await.unwrap();
        [session.read_datagram().await.unwrap(), session.read_datagram().await.unwrap()]
    });
    assert_eq!(received, ["at once", "and behind it"]);
    assert_eq!(bench.count(|stats| stats.webtransport_datagrams_dropped.value()), 1);
}

#[test]
fn datagrams_are_sent_from_another_thread() {
    let limits = Limits::default().with_webtransport_datagram_bytes(4096).unwrap();
    let (mut bench, accepted) = bench_with(&offering(limits), offering(Limits::default()));
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    let sender = server.datagram_sender();
    assert_eq!(sender.max_size(), server.max_datagram_size());
    let sender = std::thread::spawn(move || {
        // The worker does not run meanwhile, so the oldest datagrams are dropped.
        for number in 0..20_u8 {
            sender.send(vec![number; 936]).unwrap();
        }
        let size = sender.max_size().unwrap() + 1;
        assert_eq!(
            sender.send(content(size)),
            Err(DatagramError::TooLarge { size, max: size - 1 })
        );
        sender
    });
    let sender = sender.join().unwrap();
    let received = bench.run(async move {
        let mut received = Vec::new();
        while received.len() < 4 {
            received.push(client.read_datagram().await.unwrap()[0]);
        }
        client.close(3, "enough");
        received
    });
    assert_eq!(received, [16, 17, 18, 19]);
    assert_eq!(bench.count(|stats| stats.webtransport_datagrams_dropped.value()), 16);
    let end = SessionEnd::Peer { code: 3, reason: "enough".to_owned() };
    bench.turn_until(|_| sender.send("late") == Err(DatagramError::Ended(end.clone())));
}

#[test]
fn close_brings_code_and_reason_to_the_other_side() {
    for closed_by_client in [true, false] {
        let (mut bench, accepted) = bench();
        let (client, server, mut connection) = sessions(&mut bench, &accepted);
        let (from, to) = if closed_by_client { (client, server) } else { (server, client) };
        let (mut send, receive) = {
            let from = from.clone();
            bench.run(async move { from.open_bi().await.unwrap() })
        };
        let other = to.clone();
        let (there, their_stream) = bench.run(async move {
            send.write("hello").await.unwrap();
            (send, other.accept_bi().await.unwrap())
        });
        from.close(4_000_000_000, "that is it");
        from.close(1, "not any more");
        let end = {
            let to = to.clone();
            bench.run(async move { to.closed().await })
        };
        assert_eq!(end, SessionEnd::Peer { code: 4_000_000_000, reason: "that is it".to_owned() });
        let (own, ours, theirs, late) = bench.run(async move {
            let ours = read_to_end(receive).await;
            let mut answer = their_stream.0;
            (from.closed().await, ours, answer.stopped().await, from.open_uni().await.map(|_| ()))
        });
        drop(there);
        assert_eq!(own, SessionEnd::Local { code: 4_000_000_000, reason: "that is it".to_owned() });
        assert_eq!(ours, Err(SessionStreamError::SessionEnded));
        assert!(
            matches!(
                theirs,
                SessionStreamError::SessionEnded | SessionStreamError::Stopped { code: None }
            ),
            "{theirs:?}"
        );
        assert_eq!(late, Err(SessionStreamError::SessionEnded));
        assert!(matches!(to.send_datagram("late"), Err(DatagramError::Ended(_))));
        // The connection goes on, and a slot is free for the next session.
        let (hello, next) = bench.run(async move {
            let hello = fetch(&mut connection, get("/hello")).await.unwrap();
            (
                hello,
                WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new())
                    .await
                    .map(|session| (session, connection)),
            )
        });
        assert_eq!(hello.0, StatusCode::OK);
        assert!(next.is_ok(), "{next:?}");
    }
}

#[test]
fn streams_can_be_opened_as_soon_as_there_is_a_session() {
    let opened = Rc::new(RefCell::new(None));
    let result = opened.clone();
    let config = offering(Limits::default());
    let mut bench =
        Bench::with_client(&Group::new(1), &trust(), &config, config.clone(), move |_| {
            let result = result.clone();
            move |request: Request, responder: Responder| {
                let session = WebTransport::accept(request, responder, HeaderMap::new()).unwrap();
                // Opened before anything else could run.
                let mut opening = Box::pin({
                    let session = session.clone();
                    async move { session.open_bi().await.map(drop) }
                });
                assert!(
                    opening.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
                );
                let result = result.clone();
                session.handle().clone().spawn(async move {
                    *result.borrow_mut() = Some(opening.await);
                    session.closed().await;
                });
            }
        });
    let mut connection = bench.connect(Protocol::Http3);
    let streams = bench.run(async move {
        let session = WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new())
            .await
            .unwrap();
        let uni = session.open_uni().await.map(drop);
        let bidi = session.open_bi().await.map(drop);
        (uni, bidi)
    });
    assert_eq!(streams, (Ok(()), Ok(())));
    bench.turn_until(|_| opened.borrow().is_some());
    assert_eq!(opened.take(), Some(Ok(())));
}

type Wait = fn(&WebTransport) -> Pin<Box<dyn Future<Output = ()> + '_>>;

#[test]
fn dropped_waits_are_deregistered() {
    struct Task;
    impl std::task::Wake for Task {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    for session in [client, server] {
        let waits: [Wait; 5] = [
            |session| Box::pin(async { drop(session.accept_bi().await) }),
            |session| Box::pin(async { drop(session.accept_uni().await) }),
            |session| Box::pin(async { drop(session.read_datagram().await) }),
            |session| Box::pin(async { drop(session.closed().await) }),
            |session| Box::pin(session.draining()),
        ];
        for wait in waits {
            let task = std::sync::Arc::new(Task);
            let waker = Waker::from(task.clone());
            let mut waiting = wait(&session);
            for _ in 0..2 {
                assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            assert_eq!(std::sync::Arc::strong_count(&task), 3);
            drop(waiting);
            assert_eq!(std::sync::Arc::strong_count(&task), 2);
        }
    }
}

#[test]
fn peer_that_does_not_end_a_closed_session_is_given_up() {
    let (mut bench, accepted) = bench();
    let mut connection = bench.connect(Protocol::Http3);
    // A session made by hand: it does not answer the close, it reads what arrives, and its sending
    // side never ends.
    let endless = Body::stream(Failing(Rc::default()));
    let request = http::Request::connect("https://localhost/session")
        .extension(Upgrade::new("webtransport"))
        .body(endless)
        .unwrap();
    let (response, mut connection) =
        bench.run(async move { (connection.send(request).await.unwrap(), connection) });
    let end = Rc::new(RefCell::new(None));
    let told = end.clone();
    bench.client.handle().spawn(async move {
        let came = response.into_body().collect().await.map(Collected::to_bytes);
        *told.borrow_mut() = Some(came.map_err(|error| error.to_string()));
    });
    let server = accepted.borrow_mut().pop_front().unwrap();
    server.close(7, "enough");
    let turns = |bench: &mut Bench, seconds| {
        bench.skip(Duration::from_secs(seconds));
        for _ in 0..100 {
            bench.turn();
        }
    };
    turns(&mut bench, 0);
    turns(&mut bench, 9);
    assert_eq!(bench.count(|stats| stats.webtransport_closes_timed_out.value()), 0);
    turns(&mut bench, 2);
    assert_eq!(bench.count(|stats| stats.webtransport_closes_timed_out.value()), 1);
    // The close has arrived, and the slot is free.
    assert_eq!(
        end.take().unwrap().unwrap(),
        [&[0x68, 0x43, 10, 0, 0, 0, 7][..], b"enough"].concat()
    );
    let next = bench.run(async move {
        WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new()).await.map(drop)
    });
    assert!(next.is_ok(), "{next:?}");
}

/// A body that never yields, and fails when the test says so.
struct Failing(Rc<Cell<bool>>);

impl http_body::Body for Failing {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<http_body::Frame<Bytes>>>> {
        cx.waker().wake_by_ref();
        if self.0.get() {
            Poll::Ready(Some(Err(std::io::Error::other("given up"))))
        } else {
            Poll::Pending
        }
    }
}

#[test]
fn session_that_is_reset_while_streams_are_opened_ends_them() {
    for turns in 1..12 {
        let fails = Rc::new(Cell::new(false));
        let (fail, config) = (fails.clone(), offering(Limits::default()));
        // A session accepted by hand can be reset.
        let mut bench =
            Bench::with_client(&Group::new(1), &trust(), &config, config.clone(), move |_| {
                let fail = fail.clone();
                move |_, responder: Responder| {
                    responder.upgrade(HeaderMap::new(), Body::stream(Failing(fail.clone())));
                }
            });
        let mut connection = bench.connect(Protocol::Http3);
        let (session, _connection) = bench.run(async move {
            (
                WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new())
                    .await
                    .unwrap(),
                connection,
            )
        });
        // One per turn: in one of the turns the driver knows of the end, and the session does not
        // yet.
        let ended = Rc::new(Cell::new(false));
        let told = ended.clone();
        session.handle().clone().spawn(async move {
            let mut opening = VecDeque::new();
            let mut closed = Box::pin(session.closed());
            poll_fn(|cx| {
                let mut another = Box::pin(session.open_bi());
                let opened = another.as_mut().poll(cx);
                opening.push_back((another, opened));
                if opening.len() > 50 {
                    opening.pop_front();
                }
                cx.waker().wake_by_ref();
                closed.as_mut().poll(cx)
            })
            .await;
            told.set(true);
        });
        for _ in 0..turns {
            bench.turn();
        }
        fails.set(true);
        bench.turn_until(|_| ended.get());
    }
}

#[test]
fn dropped_session_is_closed_with_zero() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    drop(client);
    assert_eq!(
        bench.run(async move { server.closed().await }),
        SessionEnd::Peer { code: 0, reason: String::new() }
    );
}

#[test]
fn close_is_received_before_connection_ends() {
    for reason in ["good bye", ""] {
        let (mut bench, accepted) = bench();
        let (client, server, connection) = sessions(&mut bench, &accepted);
        // The server sleeps until everything has arrived.
        if reason.is_empty() {
            drop(client);
        } else {
            client.close(99, reason);
        }
        let now = bench.now();
        for _ in 0..10 {
            bench.client.turn(now).unwrap();
        }
        drop(connection);
        for _ in 0..10 {
            bench.client.turn(now).unwrap();
        }
        let code = if reason.is_empty() { 0 } else { 99 };
        let end = bench.run(async move { server.closed().await });
        assert_eq!(end, SessionEnd::Peer { code, reason: reason.to_owned() });
    }
}

#[test]
fn session_ends_with_its_connection() {
    let (mut bench, accepted) = bench();
    let (client, server, connection) = sessions(&mut bench, &accepted);
    let (send, receive) = {
        let client = client.clone();
        bench.run(async move { client.open_bi().await.unwrap() })
    };
    drop(connection);
    for session in [client, server] {
        let end = bench.run(async move { session.closed().await });
        assert!(matches!(end, SessionEnd::Lost(_)), "{end:?}");
    }
    assert_eq!(bench.run(read_to_end(receive)), Err(SessionStreamError::SessionEnded));
    drop(send);
}

#[test]
fn refusal_has_its_status() {
    let (mut bench, _) = bench();
    let mut connection = bench.connect(Protocol::Http3);
    let (refused, hello) = bench.run(async move {
        let refused =
            WebTransport::connect(&mut connection, uri("/nowhere"), HeaderMap::new()).await;
        (refused, fetch(&mut connection, get("/hello")).await.unwrap())
    });
    assert!(matches!(refused, Err(ConnectError::Refused(StatusCode::NOT_FOUND))), "{refused:?}");
    assert_eq!(hello.0, StatusCode::OK);
}

#[test]
fn session_is_not_requested_without_support() {
    let default = Config::default;
    for (server, client) in
        [(default(), offering(Limits::default())), (offering(Limits::default()), default())]
    {
        let (mut bench, accepted) = bench_with(&server, client);
        for protocol in [Protocol::Http2, Protocol::Http3] {
            let mut connection = bench.connect(protocol);
            let result = bench.run(async move {
                WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new()).await
            });
            assert!(matches!(result, Err(ConnectError::Unsupported)), "{protocol}: {result:?}");
        }
        assert!(accepted.borrow().is_empty());
    }
}

#[test]
fn session_above_the_limit_is_refused_as_unprocessed() {
    let (mut bench, accepted) = bench();
    let (_client, _server, mut connection) = sessions(&mut bench, &accepted);
    let second = bench.run(async move {
        let second =
            WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new()).await;
        second.map(|_| ()).map_err(|error| (error, connection))
    });
    let (error, _connection) = second.unwrap_err();
    assert!(
        matches!(error, ConnectError::Failed(pronghorn_engine::Error::Refused(_))),
        "{error:?}"
    );
    assert_eq!(bench.count(|stats| stats.webtransport_sessions_refused.value()), 1);
    assert_eq!(accepted.borrow().len(), 0);
}

#[test]
fn sessions_of_one_connection_are_told_apart() {
    let limits = || Limits::default().with_webtransport_sessions(3).unwrap();
    let (mut bench, accepted) = bench_with(&offering(limits()), offering(limits()));
    let mut connection = bench.connect(Protocol::Http3);
    let clients: Vec<WebTransport> = bench.run(async move {
        let mut sessions = Vec::new();
        for _ in 0..3 {
            sessions.push(
                WebTransport::connect(&mut connection, uri("/session"), HeaderMap::new())
                    .await
                    .unwrap(),
            );
        }
        std::mem::forget(connection);
        sessions
    });
    for (number, client) in clients.iter().enumerate().rev() {
        client.send_datagram(vec![number as u8]).unwrap();
        let client = client.clone();
        bench.run(async move {
            let mut send = client.open_uni().await.unwrap();
            send.write(vec![number as u8]).await.unwrap();
            send.finish();
        });
    }
    for (number, server) in accepted.take().into_iter().enumerate() {
        let received = bench.run(async move {
            (
                server.read_datagram().await.unwrap(),
                read_to_end(server.accept_uni().await.unwrap()).await.unwrap(),
            )
        });
        assert_eq!((&received.0[..], &received.1[..]), (&[number as u8][..], &[number as u8][..]));
    }
}

#[test]
fn reset_and_stop_carry_the_codes_of_the_application() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    for (from, to) in [(client.clone(), server.clone()), (server, client)] {
        let (read, stopped) = bench.run(async move {
            let (mut send, receive) = from.open_bi().await.unwrap();
            send.write("some").await.unwrap();
            let (mut answer, mut asked) = to.accept_bi().await.unwrap();
            assert_eq!(asked.read().await.unwrap().as_deref(), Some(&b"some"[..]));
            send.reset(77);
            receive.stop(0xffff_ffff);
            (asked.read().await, answer.stopped().await)
        });
        assert_eq!(read, Err(SessionStreamError::Reset { code: Some(77) }));
        assert_eq!(stopped, SessionStreamError::Stopped { code: Some(0xffff_ffff) });
    }
}

#[test]
fn unread_stream_holds_the_writer_back_and_no_other() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    let written = Rc::new(RefCell::new(0_usize));
    let count = written.clone();
    let writer = client.clone();
    client.handle().clone().spawn(async move {
        let mut send = writer.open_uni().await.unwrap();
        while send.write(vec![7; 10_000]).await.is_ok() {
            *count.borrow_mut() += 10_000;
        }
    });
    let mut unread = {
        let server = server.clone();
        bench.run(async move { server.accept_uni().await.unwrap() })
    };
    // Other streams go on meanwhile.
    for _ in 0..20 {
        let (client, server) = (client.clone(), server.clone());
        bench.run(async move {
            let mut send = client.open_uni().await.unwrap();
            send.write("quick").await.unwrap();
            send.finish();
            assert_eq!(read_to_end(server.accept_uni().await.unwrap()).await.unwrap(), b"quick");
        });
    }
    let held = *written.borrow();
    // The stream's window, and the engine's buffers on each side.
    let most = Limits::default().stream_window_bytes() as usize + (256 << 10);
    assert!(held < most, "{held} bytes were accepted although nothing is read");
    // And it continues once it is read.
    let target = held + 1_000_000;
    bench.run(async move {
        let mut read = 0;
        while read < target {
            read += unread.read().await.unwrap().unwrap().len();
        }
        unread.stop(1);
    });
}

#[test]
fn streams_that_nobody_accepts_hold_up_those_behind_them() {
    const STREAMS: u64 = 60;
    let limits = || Limits::default().with_webtransport_streams(5).unwrap();
    let (mut bench, accepted) = bench_with(&offering(limits()), offering(Limits::default()));
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    // Each is complete as soon as it has arrived.
    let opened = Rc::new(RefCell::new(0));
    let count = opened.clone();
    client.handle().clone().spawn(async move {
        for number in 0..STREAMS {
            let mut send = client.open_uni().await.unwrap();
            send.write(vec![number as u8]).await.unwrap();
            send.finish();
            *count.borrow_mut() += 1;
        }
        client.closed().await;
    });
    bench.turn_until(|_| *opened.borrow() >= 5);
    for _ in 0..200 {
        bench.turn();
    }
    // Some of the allowed streams are HTTP/3's own.
    assert!(
        *opened.borrow() <= 5 + limits().uni_streams(),
        "{} streams although none is accepted",
        opened.borrow()
    );
    bench.run(async move {
        let mut numbers = Vec::new();
        for _ in 0..STREAMS {
            numbers.extend(read_to_end(server.accept_uni().await.unwrap()).await.unwrap());
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..STREAMS as u8));
    });
}

#[test]
fn drain_is_reported_and_session_continues() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    server.drain();
    let draining = client.clone();
    bench.run(async move { draining.draining().await });
    client.send_datagram("still here").unwrap();
    assert_eq!(
        bench.run(async move { server.read_datagram().await }),
        Ok(Bytes::from_static(b"still here"))
    );
}

#[test]
fn shutdown_drains_sessions() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    let now = bench.now();
    bench.servers[0].shut_down(now, Duration::from_secs(60));
    let draining = client.clone();
    bench.run(async move { draining.draining().await });
    // After the notice period, from which on no request is accepted.
    bench.skip(Duration::from_secs(1));
    for (from, to) in [(client.clone(), server.clone()), (server.clone(), client.clone())] {
        bench.run(async move {
            let (mut send, receive) = from.open_bi().await.unwrap();
            send.write("one more").await.unwrap();
            send.finish();
            let (answer, asked) = to.accept_bi().await.unwrap();
            assert_eq!(read_to_end(asked).await.unwrap(), b"one more");
            answer.finish();
            assert_eq!(read_to_end(receive).await.unwrap(), b"");
        });
    }
    client.close(7, "then good bye");
    let end = bench.run(async move { server.closed().await });
    assert_eq!(end, SessionEnd::Peer { code: 7, reason: "then good bye".to_owned() });
}

#[test]
fn idle_session_outlives_the_idle_timeout() {
    let (mut bench, accepted) = bench();
    let (client, server, _connection) = sessions(&mut bench, &accepted);
    for _ in 0..20 {
        bench.skip(Duration::from_secs(10));
        for _ in 0..20 {
            bench.turn();
        }
    }
    client.send_datagram("awake").unwrap();
    assert_eq!(
        bench.run(async move { server.read_datagram().await }),
        Ok(Bytes::from_static(b"awake"))
    );
}
