//! Ends of connections: timeouts, shutdown, vanished peers. On a virtual clock.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{Bench, Failing, PROTOCOLS, fetch, get, hello, trust};
use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_engine::{
    Body, Config, Connection, Error, Group, Limits, Protocol, Request, Responder, Response,
    Resumption, Stats, Target,
};

fn open(stats: &Stats) -> u64 {
    stats.tcp_open.value() + stats.quic_open.value()
}

fn requests(stats: &Stats) -> u64 {
    stats.requests_http1.value() + stats.requests_http2.value() + stats.requests_http3.value()
}

/// Answers `late` after `delay`.
fn late(delay: Duration) -> impl Fn(usize) -> Box<dyn Fn(Request, Responder)> {
    move |_| {
        Box::new(move |_, responder| {
            let handle = responder.handle().clone();
            responder.respond(async move {
                handle.sleep(delay).await;
                Response::new(StatusCode::OK).with_body("late")
            });
        })
    }
}

/// Answers with an endless body, counted in `alive`.
fn endless(alive: &Rc<Cell<i32>>) -> impl Fn(usize) -> Box<dyn Fn(Request, Responder)> {
    move |_| {
        let alive = alive.clone();
        Box::new(move |_, responder| {
            responder
                .send(Response::new(StatusCode::OK).with_body(Body::stream(Endless::new(&alive))));
        })
    }
}

#[test]
fn idle_connection_is_closed_at_its_timeout_and_not_before() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), hello);
        let mut connection = bench.connect(protocol);
        let (answer, connection) =
            bench.run(async move { (fetch(&mut connection, get("/")).await, connection) });
        assert!(answer.is_ok());
        bench.skip(Duration::from_secs(25));
        for _ in 0..20 {
            bench.turn();
        }
        assert_eq!(bench.count(open), 1, "{protocol}: closed too early");
        bench.turn_until(|bench| {
            bench.skip(Duration::from_secs(1));
            bench.count(open) == 0
        });
        drop(connection);
    }
}

#[test]
fn exchange_that_waits_for_its_handler_outlives_the_idle_timeout() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), late(Duration::from_secs(300)));
        let mut connection = bench.connect(protocol);
        let done = Rc::new(Cell::new(false));
        let mark = done.clone();
        bench.client.handle().spawn(async move {
            assert_eq!(
                fetch(&mut connection, get("/")).await,
                Ok((StatusCode::OK, "late".into())),
                "{protocol}"
            );
            mark.set(true);
        });
        bench.turn_until(|bench| bench.count(requests) == 1);
        for _ in 0..30 {
            bench.skip(Duration::from_secs(10));
            for _ in 0..5 {
                bench.turn();
            }
        }
        bench.turn_until(|_| done.get());
    }
}

#[test]
fn client_goes_by_the_shorter_idle_timeout_of_its_server() {
    let limits = Limits::default().with_idle_timeout(Duration::from_secs(8)).unwrap();
    let mut bench =
        Bench::new(1, &Config { limits, ..Config::default() }, late(Duration::from_secs(60)));
    let mut connection = bench.connect(Protocol::Http3);
    let done = Rc::new(Cell::new(false));
    let mark = done.clone();
    bench.client.handle().spawn(async move {
        assert_eq!(fetch(&mut connection, get("/")).await, Ok((StatusCode::OK, "late".into())));
        mark.set(true);
    });
    bench.turn_until(|bench| bench.count(requests) == 1);
    for _ in 0..31 {
        bench.skip(Duration::from_secs(2));
        for _ in 0..5 {
            bench.turn();
        }
    }
    bench.turn_until(|_| done.get());
}

#[test]
fn client_of_a_server_that_is_gone_knows_what_may_be_sent_again() {
    let limits = Limits::default().with_concurrent_streams(1).unwrap();
    let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, |_| {
        |_, responder: Responder| std::mem::forget(responder)
    });
    let connection = bench.connect(Protocol::Http3);
    let errors = Rc::new(RefCell::new(Vec::new()));
    for number in 0..2 {
        let (mut connection, errors) = (connection.share().unwrap(), errors.clone());
        bench.client.handle().spawn(async move {
            let error = connection.send(get("/")).await.unwrap_err();
            errors.borrow_mut().push((number, error));
        });
    }
    bench.turn_until(|bench| bench.count(requests) == 1);
    for _ in 0..20 {
        bench.turn();
    }
    // The server is stopped. The first unanswered PING restarts the timeout.
    for _ in 0..50 {
        bench.skip(Duration::from_secs(1));
        for _ in 0..5 {
            let now = bench.now();
            bench.client.turn(now).unwrap();
        }
    }
    errors.borrow_mut().sort_by_key(|(number, _)| *number);
    assert!(
        matches!(errors.borrow()[..], [(0, Error::Unreachable(_)), (1, Error::Refused(_))]),
        "{errors:?}"
    );
}

#[test]
fn peer_that_does_not_read_times_out() {
    for protocol in PROTOCOLS {
        let alive = Rc::new(Cell::new(0));
        let mut bench = Bench::new(1, &Config::default(), endless(&alive));
        let mut connection = bench.connect(protocol);
        let response =
            bench.run(async move { (connection.send(get("/")).await.unwrap(), connection) });
        for _ in 0..300 {
            bench.turn();
        }
        assert_eq!(bench.count(open), 1, "{protocol}: closed too early");
        give_up(&mut bench);
        assert_eq!(alive.get(), 0, "{protocol}: its body is still there");
        drop(response);
    }
}

#[test]
fn upload_that_stalls_is_given_up() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |request: Request, responder: Responder| {
                responder.respond(async move {
                    let _ = request.body.collect().await;
                    Response::new(StatusCode::OK)
                });
            }
        });
        let mut connection = bench.connect(protocol);
        bench.client.handle().spawn(async move {
            let request =
                http::Request::post("https://localhost/").body(Body::stream(Stalled)).unwrap();
            assert!(
                connection.send(request).await.is_err(),
                "{protocol}: answered without its content"
            );
        });
        bench.turn_until(|bench| bench.count(requests) == 1);
        for _ in 0..20 {
            bench.turn();
        }
        give_up(&mut bench);
    }
}

/// Lets the server's timeouts pass. HTTP/2 first sends GOAWAY and gives the peer the same time
/// again. On a busy machine the peer's kernel may take more of a response after time was skipped,
/// which is progress: until its buffers are full.
fn give_up(bench: &mut Bench) {
    for _ in 0..8 {
        if bench.count(open) == 0 {
            return;
        }
        bench.skip(Duration::from_secs(31));
        for _ in 0..50 {
            let now = bench.now();
            bench.servers[0].turn(now).unwrap();
        }
    }
    assert_eq!(bench.count(open), 0, "the connection is still there");
}

/// A body that never yields.
struct Stalled;

impl http_body::Body for Stalled {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Pending
    }
}

/// An endless body that counts its instances.
struct Endless(Rc<Cell<i32>>);

impl Endless {
    fn new(alive: &Rc<Cell<i32>>) -> Self {
        alive.set(alive.get() + 1);
        Self(alive.clone())
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 4096])))))
    }
}

#[test]
fn client_gone_in_mid_body_frees_the_producer() {
    for protocol in PROTOCOLS {
        let alive = Rc::new(Cell::new(0));
        let mut bench = Bench::new(1, &Config::default(), endless(&alive));
        let mut connection = bench.connect(protocol);
        let connection = bench.run(async move {
            let mut body = connection.send(get("/")).await.unwrap().into_body();
            assert!(body.frame().await.unwrap().is_ok());
            connection
        });
        assert_eq!(alive.get(), 1, "{protocol}");
        drop(connection);
        bench.turn_until(|_| alive.get() == 0);
        bench.turn_until(|bench| bench.count(open) == 0);
    }
}

#[test]
fn upload_that_nobody_reads_is_stopped_when_its_response_fails() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |request: Request, responder: Responder| {
                drop(request);
                responder.send(Response::new(StatusCode::OK).with_body(Body::stream(Failing)));
            }
        });
        let alive = Rc::new(Cell::new(0));
        let upload = Body::stream(Endless::new(&alive));
        let mut connection = bench.connect(protocol);
        bench.client.handle().spawn(async move {
            let response = connection
                .send(http::Request::post("https://localhost/").body(upload).unwrap())
                .await;
            // Kept, so that the client does not abandon it.
            std::future::pending::<()>().await;
            drop(response);
        });
        assert_eq!(alive.get(), 1, "{protocol}");
        bench.turn_until(|_| alive.get() == 0);
    }
}

#[test]
fn dropping_worker_drops_its_futures() {
    for protocol in PROTOCOLS {
        let alive = Rc::new(Cell::new(0));
        let mut bench = Bench::new(1, &Config::default(), endless(&alive));
        let mut connection = bench.connect(protocol);
        let response =
            bench.run(async move { (connection.send(get("/")).await.unwrap(), connection) });
        assert_eq!(alive.get(), 1, "{protocol}");
        bench.servers.clear();
        assert_eq!(alive.get(), 0, "{protocol}: a future outlived its worker");
        drop(response);
    }
}

#[test]
fn slow_reader_holds_the_producer_back() {
    for protocol in PROTOCOLS {
        let produced = Rc::new(Cell::new(0_u64));
        let counter = produced.clone();
        let mut bench = Bench::new(1, &Config::default(), |_| {
            let counter = counter.clone();
            move |_, responder: Responder| {
                let counter = counter.clone();
                let body = Endless::new(&Rc::default()).map_frame(move |frame| {
                    counter
                        .set(counter.get() + frame.data_ref().map_or(0, |data| data.len() as u64));
                    frame
                });
                responder.send(Response::new(StatusCode::OK).with_body(Body::stream(body)));
            }
        });
        let mut connection = bench.connect(protocol);
        let response =
            bench.run(async move { (connection.send(get("/")).await.unwrap(), connection) });
        let mut last = u64::MAX;
        bench.turn_until(|_| {
            std::mem::replace(&mut last, produced.get()) == produced.get() && produced.get() > 0
        });
        for _ in 0..1000 {
            bench.turn();
        }
        // Windows, socket buffers and queues together; without back-pressure it would be 4 MiB per
        // turn.
        assert!(
            produced.get() < 16 << 20,
            "{protocol}: {} bytes for a client that reads none",
            produced.get()
        );
        drop(response);
    }
}

#[test]
fn unread_upload_is_held_back_too() {
    for protocol in PROTOCOLS {
        // Keeps request and responder without reading.
        let kept = Rc::new(std::cell::RefCell::new(Vec::new()));
        let keep = kept.clone();
        let mut bench = Bench::new(1, &Config::default(), |_| {
            let keep = keep.clone();
            move |request, responder| keep.borrow_mut().push((request, responder))
        });
        let sent = Rc::new(Cell::new(0_u64));
        let counter = sent.clone();
        let mut connection = bench.connect(protocol);
        let body = Endless::new(&Rc::default()).map_frame(move |frame| {
            counter.set(counter.get() + frame.data_ref().map_or(0, |data| data.len() as u64));
            frame
        });
        bench.client.handle().spawn(async move {
            let request =
                http::Request::post("https://localhost/").body(Body::stream(body)).unwrap();
            drop(connection.send(request).await);
        });
        bench.turn_until(|_| !kept.borrow().is_empty());
        for _ in 0..2000 {
            bench.turn();
        }
        assert!(
            sent.get() < 16 << 20,
            "{protocol}: {} bytes for a handler that reads none",
            sent.get()
        );
        kept.borrow_mut().clear();
    }
}

#[test]
fn shutdown_finishes_what_runs() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), late(Duration::from_secs(3)));
        let mut connection = bench.connect(protocol);
        let done = Rc::new(Cell::new(false));
        let mark = done.clone();
        bench.client.handle().spawn(async move {
            assert_eq!(
                fetch(&mut connection, get("/")).await,
                Ok((StatusCode::OK, "late".into())),
                "{protocol}"
            );
            mark.set(true);
        });
        bench.turn_until(|bench| bench.count(requests) == 1);
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::from_secs(10));
        for _ in 0..20 {
            bench.turn();
        }
        assert!(!bench.servers[0].is_finished(), "{protocol}: an exchange is still open");
        bench.skip(Duration::from_secs(3));
        bench.turn_until(|_| done.get());
        bench.turn_until(|bench| bench.servers[0].is_finished());
    }
}

#[test]
fn shutdown_told_again_ends_with_the_shorter_grace() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |_, responder: Responder| responder.respond(std::future::pending())
        });
        let mut connection = bench.connect(protocol);
        bench.client.handle().spawn(async move { drop(fetch(&mut connection, get("/")).await) });
        bench.turn_until(|bench| bench.count(requests) == 1);
        // Of several deadlines, the earliest counts.
        for grace in [Duration::from_secs(600), Duration::from_secs(10), Duration::from_secs(300)] {
            let now = bench.now();
            bench.servers[0].shut_down(now, grace);
        }
        bench.turn();
        assert!(!bench.servers[0].is_finished(), "{protocol}: grace was cut short");
        bench.skip(Duration::from_secs(11));
        bench.turn_until(|bench| bench.servers[0].is_finished());
    }
}

/// These clients have no reason to retry elsewhere.
#[test]
fn clients_that_came_before_the_end_began_are_answered() {
    for protocol in PROTOCOLS {
        // HTTP/2 and HTTP/3 notify connected clients at once, which then send no more requests.
        let cases = if protocol == Protocol::Http1 {
            &[(false, false), (false, true), (true, false)][..]
        } else {
            &[(false, false), (false, true)]
        };
        for &(has_connected, is_slow) in cases {
            let mut bench = Bench::new(1, &Config::default(), hello);
            let connected = if has_connected { Some(bench.connect(protocol)) } else { None };
            let connecting = bench.connecting(protocol, Resumption::default());
            let answer = Rc::new(RefCell::new(None));
            let slot = answer.clone();
            let ask = async move {
                let mut connection = match connected {
                    Some(connection) => connection,
                    None => connecting.await.unwrap(),
                };
                *slot.borrow_mut() = Some(fetch(&mut connection, get("/")).await);
            };
            if has_connected {
                let now = bench.now();
                bench.servers[0].shut_down(now, Duration::from_secs(60));
                bench.turn();
                bench.client.handle().spawn(ask);
            } else {
                // In the middle of the handshake.
                bench.client.handle().spawn(ask);
                bench.turn_until(|bench| {
                    bench.count(|stats| stats.tcp_open.value() + stats.quic_open.value()) == 1
                });
                let now = bench.now();
                bench.servers[0].shut_down(now, Duration::from_secs(60));
                if is_slow {
                    // With a round trip of a second, after the notice period of connected clients.
                    for _ in 0..10 {
                        bench.skip(Duration::from_millis(100));
                        let now = bench.now();
                        bench.servers[0].turn(now).unwrap();
                    }
                }
            }
            bench.turn_until(|_| answer.borrow().is_some());
            let answer = answer.take().unwrap();
            assert_eq!(
                answer,
                Ok((StatusCode::OK, "hello".into())),
                "{protocol}, connected: {has_connected}, slow: {is_slow}"
            );
            let answered = bench.elapsed();
            bench.turn_until(|bench| bench.servers[0].is_finished());
            assert!(
                bench.elapsed() < answered + Duration::from_secs(30),
                "{protocol}: it was waited for"
            );
        }
    }
}

#[test]
fn connection_that_was_opened_during_a_shutdown_does_not_hold_it_up() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    let before = bench.connect(Protocol::Http3);
    let now = bench.now();
    bench.client.shut_down(now, Duration::from_secs(600));
    // After all notice periods.
    for _ in 0..3 {
        bench.skip(Duration::from_secs(1));
        bench.turn();
    }
    let connecting = bench.connecting(Protocol::Http3, Resumption::default());
    let (answer, after) = bench.run(async move {
        let mut connection = connecting.await.unwrap();
        (fetch(&mut connection, get("/")).await, connection)
    });
    assert!(answer.is_ok(), "{answer:?}");
    bench.turn_until(|bench| bench.client.is_finished());
    assert!(!before.is_usable() && !after.is_usable());
    // Less than the timeout after which it would end anyway.
    assert!(bench.elapsed() < Duration::from_secs(25), "it was waited for");
}

#[test]
fn handler_keeps_the_connections_that_it_has_opened_while_it_is_waited_for() {
    for protocol in PROTOCOLS {
        let trust = trust();
        let mut behind = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
        let upstream = Rc::new(RefCell::new(None::<Connection>));
        let slot = upstream.clone();
        let mut bench = Bench::new(1, &Config::default(), move |_| {
            let upstream = slot.clone();
            move |_, responder: Responder| {
                let (upstream, handle) = (upstream.clone(), responder.handle().clone());
                responder.respond(async move {
                    handle.sleep(Duration::from_secs(5)).await;
                    let mut upstream = upstream.take().unwrap();
                    let (_, content) = fetch(&mut upstream, get("/")).await.unwrap();
                    Response::new(StatusCode::OK).with_body(content)
                });
            }
        });
        let connector = bench.servers[0].connector(&trust.client).unwrap();
        let server_name = "localhost".to_owned();
        let (remote, protocol_behind, resumption) =
            (behind.address, Some(Protocol::Http3), Resumption::default());
        let target =
            Target { remote, server_name, protocol: protocol_behind, secure: true, resumption };
        let slot = upstream.clone();
        bench.servers[0].handle().spawn(async move {
            let connection = connector.connect(&target).await.unwrap();
            *slot.borrow_mut() = Some(connection);
        });
        bench.turn_until(|_| {
            behind.turn();
            upstream.borrow().is_some()
        });
        let mut connection = bench.connect(protocol);
        let answer = Rc::new(RefCell::new(None));
        let slot = answer.clone();
        bench.client.handle().spawn(async move {
            let fetched = fetch(&mut connection, get("/")).await;
            *slot.borrow_mut() = Some(fetched);
        });
        bench.turn_until(|bench| bench.count(requests) == 1);
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::from_secs(600));
        for _ in 0..6 {
            bench.skip(Duration::from_secs(1));
            behind.skip(Duration::from_secs(1));
            for _ in 0..5 {
                bench.turn();
                behind.turn();
            }
        }
        bench.turn_until(|bench| {
            behind.turn();
            bench.servers[0].is_finished()
        });
        bench.turn_until(|_| answer.borrow().is_some());
        assert_eq!(answer.take().unwrap(), Ok((StatusCode::OK, "hello".into())), "{protocol}");
    }
}

#[test]
fn shutdown_ends_with_its_grace() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            // Never responds.
            |_, responder: Responder| responder.respond(std::future::pending())
        });
        let mut connection = bench.connect(protocol);
        let told = Rc::new(Cell::new(false));
        let mark = told.clone();
        bench.client.handle().spawn(async move {
            assert!(fetch(&mut connection, get("/")).await.is_err(), "{protocol}");
            mark.set(true);
        });
        bench.turn_until(|bench| bench.count(requests) == 1);
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::from_secs(10));
        bench.skip(Duration::from_secs(9));
        for _ in 0..20 {
            bench.turn();
        }
        assert!(!bench.servers[0].is_finished(), "{protocol}: grace was cut short");
        bench.skip(Duration::from_secs(2));
        bench.turn_until(|bench| bench.servers[0].is_finished());
        // The client is notified: on this clock its own timeouts do not expire.
        bench.servers.clear();
        bench.turn_until(|_| told.get());
    }
}

#[test]
fn handler_that_holds_connections_of_its_worker_ends_with_it() {
    for protocol in PROTOCOLS {
        let trust = trust();
        let held = Rc::new(RefCell::new(Vec::<Box<dyn Any>>::new()));
        let ended = Rc::downgrade(&held);
        let held = RefCell::new(Some(held));
        let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), |_| {
            let held = held.take().expect("one worker");
            move |request: Request, responder: Responder| {
                if request.uri.path() == "/hold" {
                    held.borrow_mut().push(Box::new(responder));
                } else {
                    responder.send(Response::new(StatusCode::OK).with_body("hello"));
                }
            }
        });
        let hold =
            |what: Box<dyn Any>| ended.upgrade().expect("the handler").borrow_mut().push(what);
        // The server's worker is its own client, as that of a proxy is a client of others.
        let connector = bench.servers[0].connector(&trust.client).unwrap();
        let target = Target {
            remote: bench.address,
            server_name: "localhost".to_owned(),
            protocol: Some(protocol),
            secure: true,
            resumption: Resumption::default(),
        };
        let connected = Rc::new(RefCell::new(None));
        let (slot, connecting) = (connected.clone(), connector.clone());
        bench.servers[0].handle().spawn(async move {
            let mut connection = connecting.connect(&target).await.unwrap();
            fetch(&mut connection, get("/")).await.unwrap();
            *slot.borrow_mut() = Some(connection);
        });
        bench.turn_until(|_| connected.borrow().is_some());
        hold(Box::new(connector));
        hold(Box::new(connected.take()));
        let mut connection = bench.connect(protocol);
        bench.client.handle().spawn(async move {
            _ = fetch(&mut connection, get("/hold")).await;
        });
        bench.turn_until(|_| ended.upgrade().unwrap().borrow().len() == 3);
        bench.servers.clear();
        assert!(ended.upgrade().is_none(), "{protocol}: the handler outlives its worker");
    }
}
