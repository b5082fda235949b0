//! Which requests are retried.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::LINK;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_client::{ClientRequest, Error, Options};
use pronghorn_engine::{
    Body, Config, Error as Failure, Limits, Protocol, Request, Responder, Response,
};

use crate::support::{Bench, PROTOCOLS, only, silent_at_first};

/// A body that cannot be repeated.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

#[test]
fn queued_request_moves_to_another_connection_with_its_body() {
    let limits = Limits::default().with_concurrent_streams(1).unwrap();
    let config = Config { limits, ..Config::default() };
    let heard = Rc::new(RefCell::new(Vec::new()));
    let seen = heard.clone();
    let handler = move |Request { uri, body, .. }: Request, responder: Responder| {
        if uri.path() == "/" {
            return std::mem::forget(responder);
        }
        let seen = seen.clone();
        responder.respond(async move {
            let content = body.collect().await.unwrap().to_bytes();
            seen.borrow_mut().push(content.clone());
            Response::new(StatusCode::OK).with_body(content)
        });
    };
    let mut bench = Bench::with_config(2, &config, only(Protocol::Http2), &handler);
    let _silent = bench.begin(bench.request());
    bench.turn_until(|bench| bench.requests() == 1);
    let content = Pieces([Bytes::from_static(b"exists "), Bytes::from_static(b"once")].into());
    let uri = format!("https://localhost:{}/other", bench.address.port());
    let waiting = bench.begin(http::Request::post(uri).body(Body::stream(content)).unwrap());
    bench.turns(20);
    let ending = usize::from(bench.stats[0].requests_http2.value() == 0);
    let now = Instant::now() + bench.skipped;
    bench.servers[ending].shut_down(now, Duration::from_secs(600));
    bench.turn_until(|_| waiting.borrow().is_some());
    assert_eq!(waiting.take().unwrap().unwrap(), "exists once");
    assert_eq!(*heard.borrow(), ["exists once"]);
    assert_eq!(bench.stats[1 - ending].requests_http2.value(), 1);
}

/// Advances the clock while the server does nothing.
fn stall(bench: &mut Bench, seconds: u32) {
    for _ in 0..seconds {
        bench.skipped += Duration::from_secs(1);
        for _ in 0..10 {
            bench.client.turn(Instant::now() + bench.skipped).unwrap();
        }
    }
}

#[test]
fn request_on_a_lost_connection_is_not_retried() {
    let handler: fn(Request, Responder) = silent_at_first;
    let options = Options { head_timeout: Duration::from_secs(300), ..only(Protocol::Http3) };
    let mut bench = Bench::new(options, &handler);
    let first = bench.begin(bench.get("/first"));
    bench.turn_until(|_| first.borrow().is_some());
    let lost = bench.begin(bench.request());
    bench.turn_until(|bench| bench.requests() == 2);
    stall(&mut bench, 70);
    let error = lost.take().unwrap().unwrap_err();
    assert!(
        matches!(&error, Error::Exchange(error) if matches!(**error, Failure::Unreachable(_))),
        "{error}"
    );
    assert!(!error.is_unprocessed());
}

#[test]
fn first_request_on_a_closed_connection_is_not_retried() {
    // The second server listens on the same port and would receive the retry.
    let asked = Rc::new(Cell::new(0));
    let counter = asked.clone();
    let silent = move |_: Request, responder: Responder| {
        counter.set(counter.get() + 1);
        std::mem::forget(responder);
    };
    let mut bench = Bench::with_servers(2, only(Protocol::Http2), &silent);
    let outcome = bench.begin(bench.request());
    bench.turn_until(|_| asked.get() == 1);
    let ending = usize::from(bench.stats[0].requests_http2.value() == 0);
    drop(bench.servers.remove(ending));
    bench.turn_until(|_| outcome.borrow().is_some());
    let error = outcome.take().unwrap().unwrap_err();
    assert!(
        matches!(&error, Error::Exchange(error) if matches!(**error, Failure::Closed(_))),
        "{error}"
    );
    bench.turns(20);
    assert_eq!(asked.get(), 1);
}

#[test]
fn interim_responses_are_passed_to_the_callback() {
    for protocol in PROTOCOLS {
        let hinting = |_: Request, mut responder: Responder| {
            responder.send_interim(
                StatusCode::EARLY_HINTS,
                &[(LINK, HeaderValue::from_static("</a>"))].into_iter().collect(),
            );
            responder.send(Response::new(StatusCode::OK).with_body("hello"));
        };
        let mut bench = Bench::new(only(protocol), &hinting);
        let (pool, request) = (bench.pool.clone(), bench.request());
        let (status, interim) = bench.run(async move {
            let mut interim = Vec::new();
            let mut on_interim = |status: StatusCode, mut headers: HeaderMap| {
                interim.push((status, headers.remove(LINK)));
            };
            let sent = pool.send(ClientRequest::new(request).on_interim(&mut on_interim)).await;
            (sent.unwrap().status(), interim)
        });
        let hint = (StatusCode::EARLY_HINTS, Some(HeaderValue::from_static("</a>")));
        assert_eq!((status, interim), (StatusCode::OK, vec![hint]), "{protocol}");
    }
}

#[test]
fn retry_after_a_stale_connection_uses_a_new_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let uri = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
    let mut bench = Bench::new(
        Options { retries: 1, ..only(Protocol::Http1) },
        &(silent_at_first as fn(Request, Responder)),
    );
    let accept = || {
        let (socket, _) = listener.accept().ok()?;
        socket.set_nonblocking(true).unwrap();
        Some(socket)
    };
    let is_asked =
        |mut socket: &TcpStream| socket.read(&mut [0; 4096]).is_ok_and(|count| count > 0);
    let say =
        |mut socket: &TcpStream, response: &str| socket.write_all(response.as_bytes()).unwrap();
    let get = || http::Request::get(&uri).body(Body::empty()).unwrap();
    let (mut kept, mut asked) = (Vec::new(), 0);
    let outcomes = [bench.begin(get()), bench.begin(get())];
    bench.turn_until(|_| {
        kept.extend(accept());
        asked += kept.iter().filter(|socket| is_asked(socket)).count();
        // Both requests are received before one is answered, so that there are two connections.
        if asked == 2 {
            for socket in &kept {
                say(socket, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
            }
            asked = 0;
        }
        outcomes.iter().all(|outcome| outcome.borrow().is_some())
    });
    assert_eq!(kept.len(), 2);
    // The server restarts: it closes each connection when a request arrives on it.
    let mut anew = None;
    let outcome = bench.begin(get());
    bench.turn_until(|_| {
        kept.retain(|socket| !is_asked(socket));
        anew = anew.take().or_else(accept);
        if let Some(socket) = anew.as_ref().filter(|socket| is_asked(socket)) {
            say(socket, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nanew");
        }
        outcome.borrow().is_some()
    });
    assert_eq!(outcome.take().unwrap().unwrap(), "anew");
}
