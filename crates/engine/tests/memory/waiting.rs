//! Memory of a server for requests that wait for their responses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pronghorn_engine::{Config, Protocol, Request, Responder, Response};

use crate::idle::grown_until;
use crate::support::{Bench, fetch, get};

const CONNECTIONS: usize = 100;

/// Returns the bytes per waiting request, alone on a connection that has served one before.
fn waiting(protocol: Protocol) -> i64 {
    let held = Rc::<RefCell<Vec<(Request, Responder)>>>::default();
    let held_by_it = held.clone();
    let mut bench = Bench::new(1, &Config::default(), move |_| {
        let held = held_by_it.clone();
        move |request: Request, responder: Responder| match request.uri.path() {
            "/wait" => held.borrow_mut().push((request, responder)),
            _ => responder.send(Response::new(http::StatusCode::OK)),
        }
    });
    held.borrow_mut().reserve(CONNECTIONS);
    let (ready, may_ask) = (Rc::<Cell<usize>>::default(), Rc::<Cell<bool>>::default());
    for _ in 0..CONNECTIONS {
        let mut connection = bench.connect(protocol);
        let (ready, may_ask) = (ready.clone(), may_ask.clone());
        bench.client.handle().spawn(async move {
            fetch(&mut connection, get("/")).await.unwrap();
            ready.set(ready.get() + 1);
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if may_ask.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            fetch(&mut connection, get("/wait")).await.unwrap();
        });
    }
    bench.turn_until(|_| ready.get() == CONNECTIONS);
    for _ in 0..20 {
        bench.turn();
    }
    may_ask.set(true);
    let mut turns = 0;
    let grown = grown_until(&mut bench, |_| {
        turns += 1;
        turns > 100
    });
    assert_eq!(held.borrow().len(), CONNECTIONS);
    grown / CONNECTIONS as i64
}

#[test]
fn request_that_waits_holds_little() {
    for (protocol, most) in
        [(Protocol::Http1, 2 << 10), (Protocol::Http2, 4 << 10), (Protocol::Http3, 4 << 10)]
    {
        let bytes = waiting(protocol);
        println!("{protocol}: {bytes} bytes");
        assert!(bytes <= most, "{protocol}: {bytes} bytes, {most} are allowed");
    }
}
