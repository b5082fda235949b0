//! What a server holds for WebSocket connections on which nothing is said.

use std::cell::RefCell;
use std::rc::Rc;
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

/// Bytes for each connection after some messages, compressed ones too.
fn at_rest(protocol: Protocol) -> i64 {
    let mut bench = Bench::new(1, &Config::default(), echo);
    let held: Rc<RefCell<Vec<(WebSocket, Connection)>>> = Rc::default();
    let mut grown = 0;
    for number in 1..=CONNECTIONS {
        let (connecting, held_by_it) = (bench.connecting(protocol, Resumption::default()), held.clone());
        bench.client.handle().spawn(async move {
            let mut connection = connecting.await.unwrap();
            let uri = Uri::from_static("https://localhost/");
            let mut socket = websocket::connect(&mut connection, uri, HeaderMap::new(), &options()).await.unwrap();
            for message in [Message::text("hello"), Message::text("to and fro ".repeat(1_000))] {
                socket.send(message.clone()).await.unwrap();
                assert_eq!(socket.recv().await.unwrap().unwrap(), message);
            }
            held_by_it.borrow_mut().push((socket, connection));
        });
        let more = grown_until(&mut bench, |_| held.borrow().len() == number);
        // The first needs what is made once, for whoever comes first.
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
    for (protocol, most) in [(Protocol::Http3, 29 * KIB), (Protocol::Http2, 56 * KIB), (Protocol::Http1, 28 * KIB)] {
        let bytes = at_rest(protocol);
        println!("{protocol}: {bytes} bytes");
        assert!(bytes <= most, "{protocol}: {bytes} bytes, {most} are allowed");
    }
}
