//! Clients of HTTP/1.1 that send more, or leave, while an answer is made.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use http::StatusCode;
use http_body_util::BodyExt;
use pronghorn_engine::{Config, Group, Request, Responder, Response};

use crate::raw_tls::RawTls;
use crate::support::{Bench, trust};

#[derive(Default)]
struct Seen {
    may_read: Cell<bool>,
    content: Cell<usize>,
    gone: Cell<bool>,
}

impl Seen {
    /// Reads the content when it may, and never answers.
    async fn read(self: Rc<Self>, request: Request) -> Response {
        struct Mark(Rc<Seen>);
        impl Drop for Mark {
            fn drop(&mut self) {
                self.0.gone.set(true);
            }
        }
        let mark = Mark(self);
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if mark.0.may_read.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let mut body = request.body;
        while let Some(Ok(frame)) = body.frame().await {
            mark.0.content.set(mark.0.content.get() + frame.into_data().unwrap().len());
        }
        std::future::pending().await
    }
}

#[test]
fn content_of_a_client_that_has_left_is_read_to_its_end() {
    const CONTENT_BYTES: usize = 60_000;
    let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {CONTENT_BYTES}\r\n\r\n");
    let content = vec![b'x'; CONTENT_BYTES];
    let by_length = [head.as_bytes(), &content].concat();
    let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{CONTENT_BYTES:x}\r\n");
    let in_chunks = [head.as_bytes(), &content, b"\r\n0\r\n\r\n"].concat();
    for request in [by_length, in_chunks] {
        let (trust, seen) = (trust(), Rc::<Seen>::default());
        let handler_sees = seen.clone();
        let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
            let seen = handler_sees.clone();
            move |request: Request, responder: Responder| responder.respond_eagerly(Box::pin(seen.clone().read(request)))
        });
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send(&request);
        client.leave();
        for _ in 0..50 {
            client.step();
            bench.turn();
        }
        assert!(!seen.gone.get(), "nobody could have read what it had sent");
        seen.may_read.set(true);
        bench.turn_until(|_| seen.gone.get());
        assert_eq!(seen.content.get(), CONTENT_BYTES);
    }
}

#[test]
fn requests_that_come_while_an_answer_is_made_are_answered_after_it() {
    let (trust, asked) = (trust(), Rc::<RefCell<Vec<(String, Responder)>>>::default());
    let handler_asked = asked.clone();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let asked = handler_asked.clone();
        move |request: Request, responder: Responder| asked.borrow_mut().push((request.uri.path().to_owned(), responder))
    });
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

#[test]
fn client_that_leaves_a_part_of_a_request_behind_has_the_answer_before_it() {
    let (trust, asked) = (trust(), Rc::<RefCell<Vec<Responder>>>::default());
    let handler_asked = asked.clone();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let asked = handler_asked.clone();
        move |_: Request, responder: Responder| asked.borrow_mut().push(responder)
    });
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\nGET /ne");
    client.leave();
    bench.turn_until(|_| asked.borrow().len() == 1);
    for _ in 0..50 {
        bench.turn();
    }
    let responder = asked.borrow_mut().pop().unwrap();
    responder.send(Response::new(StatusCode::OK).with_body("answer"));
    client.wait_for_close(&mut bench);
    let received = String::from_utf8_lossy(&client.received);
    assert!(received.starts_with("HTTP/1.1 200 OK\r\n") && received.contains("\r\n\r\nanswer"), "{received}");
}
