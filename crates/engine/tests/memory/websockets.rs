//! Memory of a server for idle WebSocket connections.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, Uri};
use pronghorn_engine::websocket::{self, Message, Options, WebSocket, WebSocketUpgrade, deflate};
use pronghorn_engine::{Config, Connection, Protocol, Request, Responder, Resumption};

use crate::idle::grown_until;
use crate::support::Bench;

const KIB: i64 = 1024;
const CONNECTIONS: usize = 100;

fn options() -> Options {
    Options::default().with_deflate(deflate::Options::default())
}

fn echo(_: usize) -> impl Fn(Request, Responder) {
    |request: Request, responder: Responder| {
        let upgrade = WebSocketUpgrade::from_request(&request, &options()).unwrap();
        let handle = responder.handle().clone();
        let mut socket = upgrade.accept(responder, request.body);
        handle.spawn(async move {
            while let Some(Ok(message)) = socket.recv().await {
                socket.send(message).await.unwrap();
            }
        });
    }
}

/// Returns the bytes per connection after some messages, compressed ones included.
fn at_rest(protocol: Protocol) -> i64 {
    let mut bench = Bench::new(1, &Config::default(), echo);
    let held: Rc<RefCell<Vec<(WebSocket, Connection)>>> = Rc::default();
    let mut grown = 0;
    for number in 1..=CONNECTIONS {
        let (connecting, held_by_it) =
            (bench.connecting(protocol, Resumption::default()), held.clone());
        bench.client.handle().spawn(async move {
            let mut connection = connecting.await.unwrap();
            let uri = Uri::from_static("https://localhost/");
            let mut socket = websocket::connect(&mut connection, uri, HeaderMap::new(), &options())
                .await
                .unwrap();
            for message in [Message::text("hello"), Message::text("to and fro ".repeat(1_000))] {
                socket.send(message.clone()).await.unwrap();
                assert_eq!(socket.recv().await.unwrap().unwrap(), message);
            }
            held_by_it.borrow_mut().push((socket, connection));
        });
        let more = grown_until(&mut bench, |_| held.borrow().len() == number);
        // The first connection pays for one-time allocations.
        grown += if number == 1 { 0 } else { more };
    }
    for _ in 0..200 {
        bench.skip(Duration::from_millis(25));
        let mut turns = 0;
        grown += grown_until(&mut bench, |_| {
            turns += 1;
            turns > 4
        });
    }
    grown / (CONNECTIONS - 1) as i64
}

#[test]
fn idle_websocket_holds_little() {
    for (protocol, most) in
        [(Protocol::Http3, 29 * KIB), (Protocol::Http2, 57 * KIB), (Protocol::Http1, 28 * KIB)]
    {
        let bytes = at_rest(protocol);
        println!("{protocol}: {bytes} bytes");
        assert!(bytes <= most, "{protocol}: {bytes} bytes, {most} are allowed");
    }
}

const MESSAGE: usize = 32 << 10;
/// 64 MiB.
const MESSAGES: usize = 2_000;

/// Runs turns until nothing has moved for long. Returns by how much the server's memory has grown.
fn grown_until_stuck(bench: &mut Bench, moved: &Cell<usize>) -> i64 {
    let (mut before, mut idle) = (0, 0);
    grown_until(bench, |_| {
        idle = if before == moved.get() { idle + 1 } else { 0 };
        before = moved.get();
        idle == 2_000
    })
}

/// Returns the server's memory for a peer that reads nothing, or for one whose messages the server
/// does not read.
fn held_back(protocol: Protocol, server_sends: bool) -> (i64, usize) {
    let (moved, begins) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (counted, begin) = (moved.clone(), begins.clone());
    let mut bench = Bench::new(1, &Config::default(), move |_| {
        let (counted, begin) = (counted.clone(), begin.clone());
        move |request: Request, responder: Responder| {
            let upgrade = WebSocketUpgrade::from_request(&request, &Options::default()).unwrap();
            let handle = responder.handle().clone();
            let mut socket = upgrade.accept(responder, request.body);
            let (counted, begin) = (counted.clone(), begin.clone());
            handle.spawn(async move {
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if begin.get() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                while server_sends && counted.get() < MESSAGES {
                    socket.send(Message::binary(vec![1; MESSAGE])).await.unwrap();
                    counted.set(counted.get() + 1);
                }
                std::future::pending::<()>().await;
                drop(socket);
            });
        }
    });
    let mut connection = bench.connect(protocol);
    let (mut socket, _connection) = bench.run(async move {
        let uri = Uri::from_static("https://localhost/");
        (
            websocket::connect(&mut connection, uri, HeaderMap::new(), &Options::default())
                .await
                .unwrap(),
            connection,
        )
    });
    let mut held = None;
    begins.set(true);
    if server_sends {
        held = Some(socket);
    } else {
        let counted = moved.clone();
        bench.client.handle().spawn(async move {
            while counted.get() < MESSAGES {
                socket.send(Message::binary(vec![1; MESSAGE])).await.unwrap();
                counted.set(counted.get() + 1);
            }
        });
    }
    let grown = grown_until_stuck(&mut bench, &moved);
    drop(held);
    (grown, moved.get())
}

#[test]
fn slow_reader_is_held_back_and_not_buffered() {
    // The send queue's limit, and the window of a stream. The overhead depends on the size of the
    // pieces that arrive.
    let (sent, received) = (512 * KIB, 3 * KIB * KIB * 3 / 2);
    for (protocol, server_sends, most) in [
        // Twice the congestion window, which has grown to that while the client's window filled.
        (Protocol::Http3, true, 704 * KIB),
        (Protocol::Http2, true, sent),
        (Protocol::Http1, true, sent),
        (Protocol::Http3, false, received),
        (Protocol::Http2, false, received),
        // The kernel's buffers have the rest.
        (Protocol::Http1, false, 128 * KIB),
    ] {
        let (grown, messages) = held_back(protocol, server_sends);
        println!(
            "{protocol}, server sends: {server_sends}: {grown} bytes held, {messages} messages \
                went"
        );
        assert!(
            messages < MESSAGES / 2,
            "{protocol}, server sends: {server_sends}: {messages} messages went"
        );
        assert!(
            grown <= most,
            "{protocol}, server sends: {server_sends}: {grown} bytes, {most} are allowed"
        );
    }
}
