//! Which connections are kept, shared and abandoned.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use pronghorn_client::{Error, Http3, Options, Phase, Resolve};
use pronghorn_engine::{Body, Protocol, Request, Responder, Response, Upgrade};

use crate::support::{Bench, PROTOCOLS, hello, only, silent_at_first};

#[test]
fn unused_connection_is_closed_after_the_idle_timeout() {
    for protocol in PROTOCOLS {
        // Shorter than the server's idle timeout.
        let mut bench =
            Bench::new(Options { idle_timeout: Duration::from_secs(20), ..only(protocol) }, &hello);
        assert_eq!(bench.fetch(), "hello");
        bench.skipped += Duration::from_secs(5);
        for _ in 0..20 {
            bench.turn();
        }
        assert_eq!(bench.open(), 1, "{protocol}");
        for _ in 0..4 {
            bench.skipped += Duration::from_secs(6);
            for _ in 0..20 {
                bench.turn();
            }
        }
        while bench.open() > 0 {
            bench.turn();
        }
        assert_eq!(
            bench.sum(|stats| stats.idle_timeouts.value() + stats.quic_timed_out.value()),
            0,
            "{protocol}"
        );
        assert_eq!(bench.fetch(), "hello");
        assert_eq!(bench.accepted(), 2, "{protocol}");
    }
}

#[test]
fn idle_connection_closed_by_the_server_is_closed_immediately() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut bench = Bench::new(only(Protocol::Http1), &hello);
    let uri = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
    let outcome = bench.begin(http::Request::get(uri).body(Body::empty()).unwrap());
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    bench.turn_until(|_| {
        accepted = accepted.take().or_else(|| listener.accept().ok());
        accepted.is_some()
    });
    let (mut socket, _) = accepted.unwrap();
    socket.set_nonblocking(true).unwrap();
    bench.turn_until(|_| socket.read(&mut [0; 4096]).is_ok());
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").unwrap();
    bench.turn_until(|_| outcome.borrow().is_some());
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut is_closed = false;
    bench.turn_until(|_| {
        is_closed |= socket.read(&mut [0; 4096]).is_ok_and(|count| count == 0);
        is_closed
    });
    assert!(bench.skipped.is_zero(), "no timeout has passed");
}

#[test]
fn missing_response_head_times_out() {
    let silent = |_, responder: Responder| std::mem::forget(responder);
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(
            Options { head_timeout: Duration::from_secs(20), ..only(protocol) },
            &silent,
        );
        let (pool, request) = (bench.pool.clone(), bench.request());
        let result = Rc::new(OnceCell::new());
        let slot = result.clone();
        bench.client.handle().spawn(async move {
            let sent = pool.send(request).await;
            slot.set(sent.map(drop)).unwrap();
        });
        while bench.requests() == 0 {
            bench.turn();
        }
        bench.skipped += Duration::from_secs(19);
        for _ in 0..20 {
            bench.turn();
        }
        assert!(result.get().is_none(), "{protocol}");
        bench.skipped += Duration::from_secs(2);
        while result.get().is_none() {
            bench.turn();
        }
        assert!(matches!(result.get().unwrap(), Err(Error::TimedOut(Phase::Head))), "{protocol}");
    }
}

#[test]
fn request_refused_during_shutdown_is_retried_on_another_connection() {
    let handler: fn(Request, Responder) = silent_at_first;
    let mut bench = Bench::with_servers(2, only(Protocol::Http2), &handler);
    let (pool, request) = (bench.pool.clone(), bench.request());
    // Keeps the connection open during the server's shutdown.
    bench.client.handle().spawn(async move { drop(pool.send(request).await) });
    while bench.requests() == 0 {
        bench.turn();
    }
    let ending = usize::from(bench.stats[0].requests_http2.value() == 0);
    bench.servers[ending].shut_down(Instant::now() + bench.skipped, Duration::from_secs(60));
    for _ in 0..20 {
        bench.turn();
    }
    assert_eq!(bench.stats[ending].tcp_open.value(), 1);
    // Any method is retried: the server has not processed the request.
    let uri = format!("https://localhost:{}/other", bench.address.port());
    let request = http::Request::post(uri).body(Body::from("once")).unwrap();
    assert_eq!(bench.send(request).unwrap().status(), StatusCode::OK);
    assert_eq!(bench.stats[1 - ending].requests_http2.value(), 1);
}

#[test]
fn request_waiting_for_a_busy_connection_times_out_in_the_queue_phase() {
    let silent: fn(Request, Responder) = silent_at_first;
    let mut bench =
        Bench::new(Options { connections_per_origin: 1, ..only(Protocol::Http1) }, &silent);
    let late: Rc<RefCell<Vec<Error>>> = Rc::default();
    for _ in 0..2 {
        let (pool, request, late) = (bench.pool.clone(), bench.request(), late.clone());
        bench.client.handle().spawn(async move {
            if let Err(error) = pool.send(request).await {
                late.borrow_mut().push(error);
            }
        });
    }
    while bench.requests() == 0 {
        bench.turn();
    }
    bench.skipped += Options::default().connect_timeout + Duration::from_secs(1);
    while late.borrow().is_empty() {
        bench.turn();
    }
    assert!(matches!(late.borrow()[..], [Error::TimedOut(Phase::Queue)]), "{:?}", late.borrow());
}

#[test]
fn dropped_request_frees_its_slot() {
    let silent: fn(Request, Responder) = silent_at_first;
    let mut bench =
        Bench::new(Options { connections_per_origin: 1, ..only(Protocol::Http1) }, &silent);
    let (pool, request) = (bench.pool.clone(), bench.request());
    let handle = bench.client.handle().clone();
    let dropped = Rc::new(Cell::new(false));
    let seen = dropped.clone();
    bench.client.handle().spawn(async move {
        let mut sent = Box::pin(pool.send(request));
        let mut sleep = Box::pin(handle.sleep(Duration::from_secs(1)));
        std::future::poll_fn(|cx| {
            assert!(sent.as_mut().poll(cx).is_pending());
            sleep.as_mut().poll(cx)
        })
        .await;
        drop(sent);
        seen.set(true);
    });
    while bench.requests() == 0 {
        bench.turn();
    }
    bench.skipped += Duration::from_secs(2);
    while !dropped.get() {
        bench.turn();
    }
    let mut other = bench.request();
    *other.uri_mut() = format!("https://localhost:{}/other", bench.address.port()).parse().unwrap();
    assert_eq!(bench.send(other).unwrap().status(), StatusCode::OK);
}

/// Pending requests with their paths.
type Kept = Rc<RefCell<Vec<(String, Responder)>>>;

fn keeping(kept: &Kept) -> impl Fn(Request, Responder) + Clone + 'static {
    let kept = kept.clone();
    move |Request { uri, .. }, responder| kept.borrow_mut().push((uri.path().to_owned(), responder))
}

fn answer(kept: &Kept) {
    kept.borrow_mut().remove(0).1.send(Response::new(StatusCode::OK).with_body("hello"));
}

#[test]
fn failed_connection_attempt_fails_one_request_and_others_continue() {
    let kept = Kept::default();
    let lookups = Arc::new(AtomicUsize::new(0));
    let counter = lookups.clone();
    let resolve = Resolve::new(move |_, port| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        async move {
            if number == 2 {
                Err(std::io::Error::other("as planned"))
            } else {
                Ok(vec![(Ipv4Addr::LOCALHOST, port).into()])
            }
        }
    });
    let mut bench = Bench::new(Options { resolve, ..only(Protocol::Http1) }, &keeping(&kept));
    // From the first response, the pool knows that each request needs its own connection.
    let first = bench.begin(bench.get("/first"));
    bench.turn_until(|_| kept.borrow().len() == 1);
    let others: Vec<_> =
        (0..4).map(|number| bench.begin(bench.get(&format!("/{number}")))).collect();
    bench.turn_until(|_| kept.borrow().len() == 4);
    while !kept.borrow().is_empty() {
        answer(&kept);
    }
    bench.turn_until(|_| {
        first.borrow().is_some() && others.iter().all(|other| other.borrow().is_some())
    });
    let failed = others
        .iter()
        .filter(|other| matches!(*other.borrow(), Some(Err(Error::Lookup { .. }))))
        .count();
    let answered = others.iter().filter(|other| matches!(*other.borrow(), Some(Ok(_)))).count();
    assert_eq!((failed, answered, lookups.load(Ordering::Relaxed)), (1, 3, 5));
}

#[test]
fn failed_connection_attempt_spares_requests_queued_later() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = attempts.clone();
    let slow = Options { connect_timeout: Duration::from_secs(10), ..only(Protocol::Http2) };
    let resolve = Resolve::new(move |_, port| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        async move {
            if number == 0 {
                std::future::pending::<()>().await;
            }
            Ok(vec![(Ipv4Addr::LOCALHOST, port).into()])
        }
    });
    let mut bench = Bench::new(Options { resolve, ..slow }, &hello);
    let first = bench.begin(bench.request());
    bench.turns(5);
    bench.pass(1, Duration::from_secs(9));
    let second = bench.begin(bench.request());
    bench.turns(5);
    bench.skipped += Duration::from_secs(2);
    bench.turn_until(|_| first.borrow().is_some() && second.borrow().is_some());
    assert!(matches!(*first.borrow(), Some(Err(Error::TimedOut(Phase::Connect)))), "{first:?}");
    assert!(matches!(*second.borrow(), Some(Ok(_))), "{second:?}");
}

#[test]
fn free_connection_goes_to_the_longest_waiting_request() {
    let kept = Kept::default();
    let mut bench =
        Bench::new(Options { connections_per_origin: 1, ..only(Protocol::Http1) }, &keeping(&kept));
    let (pool, first, late) = (bench.pool.clone(), bench.get("/first"), bench.get("/late"));
    bench.client.handle().spawn(async move {
        let response = pool.send(first).await.unwrap();
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        // At the moment the connection becomes free.
        pool.send(late).await.unwrap();
    });
    bench.turn_until(|_| kept.borrow().len() == 1);
    for path in ["/1", "/2", "/3"] {
        drop(bench.begin(bench.get(path)));
        bench.turns(5);
    }
    for path in ["/first", "/1", "/2", "/3", "/late"] {
        bench.turn_until(|_| kept.borrow().len() == 1);
        assert_eq!(kept.borrow()[0].0, path);
        answer(&kept);
    }
    assert_eq!(bench.accepted(), 1);
}

#[test]
fn timed_out_request_abandons_its_connection_unless_others_were_answered() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        for others in [false, true] {
            let handler: fn(Request, Responder) = silent_at_first;
            let mut bench = Bench::new(
                Options { head_timeout: Duration::from_secs(10), ..only(protocol) },
                &handler,
            );
            let silent = bench.begin(bench.request());
            bench.turn_until(|bench| bench.requests() == 1);
            if others {
                let other = bench.begin(bench.get("/other"));
                bench.turn_until(|_| other.borrow().is_some());
            }
            bench.pass(3, Duration::from_secs(4));
            bench.turn_until(|_| silent.borrow().is_some());
            assert!(
                matches!(*silent.borrow(), Some(Err(Error::TimedOut(Phase::Head)))),
                "{protocol}"
            );
            let next = bench.begin(bench.get("/next"));
            bench.turn_until(|_| next.borrow().is_some());
            assert_eq!(bench.accepted(), if others { 1 } else { 2 }, "{protocol}");
        }
    }
}

#[test]
fn http3_is_not_attempted_again_while_an_http3_connection_exists() {
    let kept = Kept::default();
    let options = Options { http3: Http3::AltSvc, ..only(Protocol::Http1) };
    let mut bench = Bench::new(options, &keeping(&kept));
    // Each uses its own connection. The first response announces HTTP/3; the second arrives when
    // the HTTP/3 connection exists.
    let requests = [bench.begin(bench.get("/1")), bench.begin(bench.get("/2"))];
    bench.turn_until(|_| kept.borrow().len() == 2);
    for request in &requests {
        let begun = |bench: &Bench| bench.sum(|stats| stats.quic_accepted.value());
        answer(&kept);
        bench.turn_until(|bench| {
            kept.borrow().len() < 2
                && begun(bench) == 1
                && bench.sum(|stats| stats.quic_connected.value()) == 1
        });
        bench.turns(200);
        assert_eq!(begun(&bench), 1);
        assert!(
            request.borrow().is_some() || requests.iter().any(|request| request.borrow().is_some())
        );
    }
    let third = bench.begin(bench.get("/3"));
    bench.turn_until(|_| kept.borrow().len() == 1);
    answer(&kept);
    bench.turn_until(|_| third.borrow().is_some());
    assert_eq!(bench.sum(|stats| stats.requests_http3.value()), 1);
}

#[test]
fn body_timeout_applies_to_a_refused_upgrade() {
    // A body that never produces data and never ends.
    struct Never;
    impl http_body::Body for Never {
        type Data = bytes::Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>>
        {
            std::task::Poll::Pending
        }
    }
    let refusing = |_: Request, responder: Responder| {
        responder.send(Response::new(StatusCode::OK).with_body(Body::stream(Never)));
    };
    let mut bench = Bench::new(
        Options { body_timeout: Duration::from_secs(10), ..only(Protocol::Http1) },
        &refusing,
    );
    let mut request = bench.request();
    request.extensions_mut().insert(Upgrade::new("websocket"));
    let response = bench.send(request).unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let end = Rc::new(RefCell::new(None));
    let slot = end.clone();
    bench.client.handle().spawn(async move {
        let content = http_body_util::BodyExt::collect(response.into_body()).await;
        *slot.borrow_mut() = Some(content.map(|_| ()).unwrap_err());
    });
    bench.pass(9, Duration::from_secs(1));
    assert!(end.borrow().is_none());
    bench.pass(3, Duration::from_secs(1));
    let error = end.take().expect("the body timed out");
    assert!(matches!(error.downcast_ref(), Some(Error::TimedOut(Phase::Body))), "{error}");
}

#[test]
fn http1_connection_closed_after_a_response_is_not_reused() {
    for response in [
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: \
            chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and unsolicited data",
    ] {
        // Without retries, each wrongly reused connection is an error.
        let options = Options { retries: 0, connections_per_origin: 2, ..only(Protocol::Http1) };
        let mut bench = Bench::new(options, &(hello as fn(Request, Responder)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let uri = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let mut open: Vec<(TcpStream, Vec<u8>)> = Vec::new();
        let mut accepted = 0;
        for _ in 0..3 {
            let outcomes = [(); 3]
                .map(|()| bench.begin(http::Request::get(&uri).body(Body::empty()).unwrap()));
            bench.turn_until(|_| {
                while let Ok((socket, _)) = listener.accept() {
                    socket.set_nonblocking(true).unwrap();
                    accepted += 1;
                    open.push((socket, Vec::new()));
                }
                open.retain_mut(|(socket, asked)| {
                    let mut buffer = [0; 4096];
                    if let Ok(count) = socket.read(&mut buffer) {
                        asked.extend_from_slice(&buffer[..count]);
                    }
                    let is_whole = asked.ends_with(b"\r\n\r\n");
                    if is_whole {
                        socket.write_all(response.as_bytes()).unwrap();
                    }
                    !is_whole
                });
                outcomes.iter().all(|outcome| outcome.borrow().is_some())
            });
            for outcome in outcomes {
                assert_eq!(outcome.take().unwrap().unwrap(), "hello", "{response}");
            }
        }
        assert_eq!(accepted, 9, "{response}");
    }
}

#[test]
fn http3_only_client_rejects_http_uris() {
    let mut bench = Bench::new(only(Protocol::Http3), &hello);
    for _ in 0..2 {
        let asked = http::Request::get("http://localhost/").body(Body::empty()).unwrap();
        let error = bench.send(asked).unwrap_err();
        assert!(matches!(&error, Error::Uri { uri, .. } if uri == "http://localhost/"), "{error}");
        assert!(error.to_string().contains("HTTP/3") && error.is_unprocessed(), "{error}");
    }
    assert_eq!(bench.fetch(), "hello");
}
