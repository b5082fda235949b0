//! HTTP/1.1 clients that send more, or disconnect, while a response is being made.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use pronghorn_engine::{Config, Group, Handle, Incoming, Request, Responder, Response};

use crate::raw_tls::RawTls;
use crate::support::{Bench, Trust, trust};

const MINUTES: Duration = Duration::from_secs(300);

/// State recorded by a handler.
#[derive(Default)]
struct HandlerLog {
    may_read_on: Cell<bool>,
    content: Cell<usize>,
    left: Cell<bool>,
    begun: Cell<usize>,
}

/// How a handler reads the content.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    Nothing,
    /// In the poll of the connection: a piece, and the rest once allowed.
    Slowly,
    /// The same in another task.
    Elsewhere,
}

impl HandlerLog {
    async fn read(self: Rc<Self>, mut body: Incoming) {
        while let Some(Ok(frame)) = body.frame().await {
            self.content.set(self.content.get() + frame.into_data().unwrap().len());
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if self.may_read_on.get() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
}

/// The future of a pending response. It is dropped when the client has disconnected.
struct Unmade {
    log: Rc<HandlerLog>,
    _held: Option<Request>,
    reads: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Future for Unmade {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        if let Some(reading) = &mut self.reads
            && reading.as_mut().poll(cx).is_ready()
        {
            self.reads = None;
        }
        Poll::Pending
    }
}

impl Drop for Unmade {
    fn drop(&mut self) {
        self.log.left.set(true);
    }
}

fn bench(log: &Rc<HandlerLog>, reading: Reading) -> (Bench, Trust) {
    let (trust, log) = (trust(), log.clone());
    let handle = Rc::<RefCell<Option<Handle>>>::default();
    let handler_handle = handle.clone();
    let mut config = Config::default();
    // Only the client and the handler may wake the connection.
    let limits =
        config.limits.with_handshake_timeout(MINUTES).unwrap().with_head_timeout(MINUTES).unwrap();
    config.limits = limits.with_idle_timeout(MINUTES).unwrap();
    let bench = Bench::with_group(&Group::new(1), &trust, &config, move |_| {
        let (log, handle) = (log.clone(), handler_handle.clone());
        move |request: Request, responder: Responder| {
            log.begun.set(log.begun.get() + 1);
            let mut held = None;
            let mut reads: Option<Pin<Box<dyn Future<Output = ()>>>> = None;
            match reading {
                Reading::Nothing => held = Some(request),
                Reading::Slowly => reads = Some(Box::pin(log.clone().read(request.body))),
                Reading::Elsewhere => {
                    handle.borrow().as_ref().unwrap().spawn(log.clone().read(request.body));
                }
            }
            responder.respond_eagerly(Unmade { log: log.clone(), _held: held, reads });
        }
    });
    *handle.borrow_mut() = Some(bench.servers[0].handle().clone());
    (bench, trust)
}

fn turns(bench: &mut Bench, client: &mut RawTls) {
    for _ in 0..50 {
        client.step();
        bench.turn();
    }
}

fn by_length(content: &[u8]) -> Vec<u8> {
    [
        format!("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", content.len())
            .as_bytes(),
        content,
    ]
    .concat()
}

fn in_chunks(content: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        content.len()
    );
    [head.as_bytes(), content, b"\r\n0\r\n\r\n"].concat()
}

#[test]
fn content_of_a_client_that_has_left_is_read_to_its_end() {
    let content = vec![b'x'; 60_000];
    for (request, reading) in [by_length(&content), in_chunks(&content)]
        .iter()
        .flat_map(|request| [Reading::Slowly, Reading::Elsewhere].map(|reading| (request, reading)))
    {
        let log = Rc::<HandlerLog>::default();
        let (mut bench, trust) = bench(&log, reading);
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send(request);
        client.leave();
        turns(&mut bench, &mut client);
        assert!(!log.left.get(), "{reading:?}: nobody could have read what it had sent");
        log.may_read_on.set(true);
        bench.turn_until(|_| log.left.get());
        assert_eq!(log.content.get(), content.len(), "{reading:?}");
    }
}

#[test]
fn client_that_leaves_is_noticed_when_its_content_has_been_read() {
    for request in [by_length(b"content"), in_chunks(b"content")] {
        for reading in [Reading::Slowly, Reading::Elsewhere] {
            let log = Rc::<HandlerLog>::default();
            let (mut bench, trust) = bench(&log, reading);
            log.may_read_on.set(true);
            let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
            client.send(&request);
            turns(&mut bench, &mut client);
            assert_eq!((log.content.get(), log.left.get()), (7, false), "{reading:?}");
            client.leave();
            bench.turn_until(|_| log.left.get());
        }
    }
}

#[test]
fn client_that_leaves_is_noticed_though_nobody_reads_what_it_has_sent() {
    let get = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let large = vec![b'x'; 60_000];
    let without_end = |request: Vec<u8>| request[..request.len() - 6].to_vec();
    let waiting =
        b"POST / HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 7\r\n\r\n";
    let with_empty_line = |request: &[u8]| [request, b"\r\n"].concat();
    for request in [
        get.to_vec(),
        with_empty_line(get),
        by_length(b"content"),
        in_chunks(b"content"),
        with_empty_line(&by_length(b"content")),
        // The library does not read what follows.
        by_length(&large),
        in_chunks(&large),
        without_end(by_length(b"content")),
        without_end(in_chunks(b"content")),
        waiting.to_vec(),
        [get, &get[..]].concat(),
        [get, &get[..9]].concat(),
        [&by_length(b"content"), &get[..]].concat(),
    ] {
        let log = Rc::<HandlerLog>::default();
        let (mut bench, trust) = bench(&log, Reading::Nothing);
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send(&request);
        turns(&mut bench, &mut client);
        assert!(!log.left.get());
        client.leave();
        bench.turn_until(|_| log.left.get());
        // Later pipelined requests are not begun.
        turns(&mut bench, &mut client);
        assert_eq!(log.begun.get(), 1);
    }
}

/// Paths of requests, and their responders.
type OpenRequests = Rc<RefCell<Vec<(String, Responder)>>>;

/// A server that leaves the responses to the test.
fn collecting() -> (Bench, Trust, OpenRequests) {
    let (trust, asked) = (trust(), OpenRequests::default());
    let handler_asked = asked.clone();
    let bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let asked = handler_asked.clone();
        move |request: Request, responder: Responder| {
            asked.borrow_mut().push((request.uri.path().to_owned(), responder));
        }
    });
    (bench, trust, asked)
}

#[test]
fn requests_that_come_while_an_answer_is_made_are_answered_after_it() {
    let (mut bench, trust, asked) = collecting();
    let get = |path: &str| format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let later = [get("second"), get("third")].concat();
    for cut in 0..=later.len() {
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send(get("first").as_bytes());
        bench.turn_until(|_| asked.borrow().len() == 1);
        for part in [&later[..cut], &later[cut..]] {
            client.send(part.as_bytes());
            for _ in 0..5 {
                bench.turn();
            }
        }
        assert_eq!(asked.borrow().len(), 1, "an answer is due");
        for expected in ["/first", "/second", "/third"] {
            bench.turn_until(|_| asked.borrow().len() == 1);
            let (path, responder) = asked.borrow_mut().pop().unwrap();
            assert_eq!(path, expected, "cut at {cut}");
            responder.send(Response::new(StatusCode::OK).with_body(path));
            bench.turn_until(|_| {
                client.step();
                client.received.ends_with(expected.as_bytes())
            });
        }
    }
}
