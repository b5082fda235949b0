//! HTTP/1.1 requests that are sent before the responses to earlier ones have arrived.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use pronghorn_engine::{Body, Config, Group, Handler, KeepAlive, Request, Responder, Response};

use crate::raw_tls::RawTls;
use crate::support::{Bench, Trust, trust};

const MINUTES: Duration = Duration::from_secs(300);

/// Answers in `flush` with the path, except for `/slow`, which waits, and `/abort`, which is
/// aborted. A number is answered with that many bytes.
#[derive(Default)]
struct Paths {
    asked: RefCell<Vec<(String, Responder)>>,
    slow: RefCell<Vec<Responder>>,
}

impl Handler for Paths {
    fn handle(&self, request: Request, responder: Responder) {
        self.asked.borrow_mut().push((request.uri.path().to_owned(), responder));
    }

    fn flush(&self) {
        for (path, responder) in self.asked.take() {
            match path.as_str() {
                "/slow" => self.slow.borrow_mut().push(responder),
                "/abort" => responder.abort(),
                path => {
                    let body = path[1..]
                        .parse()
                        .map_or_else(|_| path.to_owned(), |bytes| "x".repeat(bytes));
                    responder.send(Response::new(StatusCode::OK).with_body(body));
                }
            }
        }
    }
}

/// A body that continues until it is ended.
#[derive(Clone, Default)]
struct Growing(Rc<(Cell<bool>, RefCell<Option<Waker>>)>);

impl Growing {
    fn end(&self) {
        self.0.0.set(true);
        if let Some(waker) = self.0.1.take() {
            waker.wake();
        }
    }
}

impl http_body::Body for Growing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        *self.0.1.borrow_mut() = Some(cx.waker().clone());
        if self.0.0.get() { Poll::Ready(None) } else { Poll::Pending }
    }
}

fn bench(config: &Config) -> (Bench, Trust) {
    let trust = trust();
    (Bench::with_group(&Group::new(1), &trust, config, |_| Paths::default()), trust)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

/// Waits until the received bytes end with `end`.
fn expect(bench: &mut Bench, client: &mut RawTls, end: &str) {
    bench.turn_until(|_| {
        client.step();
        client.received.ends_with(end.as_bytes())
    });
}

fn answers(client: &RawTls) -> usize {
    String::from_utf8_lossy(&client.received).matches("HTTP/1.1 200 OK\r\n").count()
}

#[test]
fn answers_to_pipelined_requests_leave_in_one_record() {
    let (mut bench, trust) = bench(&Config::default());
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    // Tickets arrive before it.
    client.send(get("/first").as_bytes());
    expect(&mut bench, &mut client, "/first");
    let before = client.records().len();
    client.send(
        (0..10).map(|number| get(&format!("/number-{number}"))).collect::<String>().as_bytes(),
    );
    expect(&mut bench, &mut client, "/number-9");
    assert_eq!((answers(&client), client.records().len() - before), (11, 1));
}

#[test]
fn response_does_not_wait_for_a_slow_one() {
    let mut config = Config::default();
    // Nothing else may wake the connection.
    let limits =
        config.limits.with_handshake_timeout(MINUTES).unwrap().with_head_timeout(MINUTES).unwrap();
    config.limits = limits.with_idle_timeout(MINUTES).unwrap();
    for polls in [config.budget.polls, 1] {
        config.budget.polls = polls;
        let (mut bench, trust) = bench(&config);
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send(
            [get("/quick"), get("/quicker"), get("/slow"), get("/after")].concat().as_bytes(),
        );
        expect(&mut bench, &mut client, "/quicker");
        assert_eq!(answers(&client), 2);
    }
}

#[test]
fn answers_go_before_the_connection_that_a_later_request_ends() {
    let (mut bench, trust) = bench(&Config::default());
    for last in [
        get("/abort"),
        "malformed\r\n\r\n".to_owned(),
        "GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_owned(),
    ] {
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send([get("/one"), get("/two"), last.clone(), get("/never")].concat().as_bytes());
        bench.turn_until(|_| {
            client.step();
            client.is_closed
        });
        let received = String::from_utf8_lossy(&client.received);
        assert!(
            received.contains("/one") && received.contains("/two") && !received.contains("/never"),
            "{last}: {received}"
        );
    }
}

#[test]
fn begun_response_may_close_its_connection() {
    let (trust, begun) = (trust(), Rc::<RefCell<Vec<(Growing, KeepAlive)>>>::default());
    let answers_begun = begun.clone();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let begun = answers_begun.clone();
        move |_: Request, responder: Responder| {
            let body = Growing::default();
            begun.borrow_mut().push((body.clone(), responder.keep_alive()));
            responder.send(Response::new(StatusCode::OK).with_body(Body::stream(body)));
        }
    });
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    client.send([get("/"), get("/"), get("/")].concat().as_bytes());
    for (number, is_last) in [(1, false), (2, true)] {
        bench.turn_until(|_| {
            client.step();
            begun.borrow().len() == number && answers(&client) == number
        });
        let (body, keep_alive) = begun.borrow()[number - 1].clone();
        if is_last {
            keep_alive.disable();
        }
        body.end();
    }
    bench.turn_until(|_| {
        client.step();
        client.is_closed
    });
    assert_eq!((answers(&client), begun.borrow().len()), (2, 2));
    assert!(client.received.ends_with(b"0\r\n\r\n"), "all of it");
}

#[test]
fn idle_connection_whose_last_answer_has_gone_is_closed() {
    let (trust, kept) = (trust(), Rc::<RefCell<Option<KeepAlive>>>::default());
    let kept_by_handler = kept.clone();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let kept = kept_by_handler.clone();
        move |_: Request, responder: Responder| {
            *kept.borrow_mut() = Some(responder.keep_alive());
            responder.send(Response::new(StatusCode::OK).with_body("/idle"));
        }
    });
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    client.send(get("/").as_bytes());
    expect(&mut bench, &mut client, "/idle");
    assert!(!client.is_closed);
    kept.take().unwrap().disable();
    bench.turn_until(|_| {
        client.step();
        client.is_closed
    });
}

#[test]
fn large_and_small_answers_come_in_order() {
    let (mut bench, trust) = bench(&Config::default());
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    let sizes = [10, 9000, 9000, 100_000, 10, 40_000, 10];
    client.send(sizes.map(|size| get(&format!("/{size}"))).concat().as_bytes());
    client.send(get("/end").as_bytes());
    expect(&mut bench, &mut client, "/end");
    let received = String::from_utf8(client.received).unwrap();
    let bodies: Vec<_> = received
        .split("HTTP/1.1 200 OK\r\n")
        .skip(1)
        .map(|answer| answer.split("\r\n\r\n").nth(1).unwrap().len())
        .collect();
    assert_eq!(bodies, [&sizes[..], &["/end".len()]].concat());
}
