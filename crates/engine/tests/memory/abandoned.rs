//! Memory of a client for abandoned requests.

use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;

use allocation_counter::measure;
use pronghorn_engine::{ClientRequest, Config, Limits, Protocol, Responder};

use crate::support::{Bench, get};

#[test]
fn requests_that_are_given_up_in_the_queue_leave_nothing() {
    const ROUNDS: usize = 20;
    const REQUESTS: usize = 50;
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let limits = Limits::default().with_concurrent_streams(1).unwrap();
        let silent = |_| |_, responder: Responder| std::mem::forget(responder);
        let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, silent);
        let connection = bench.connect(protocol);
        let mut first = connection.share().unwrap();
        bench.client.handle().spawn(async move { drop(first.send(get("/")).await) });
        bench.turn_until(|bench| {
            bench.count(|stats| stats.requests_http2.value() + stats.requests_http3.value()) == 1
        });
        let mut grown = Vec::new();
        for _ in 0..ROUNDS {
            let given_up = Rc::new(Cell::new(0));
            let bytes = measure(|| {
                for _ in 0..REQUESTS {
                    let (mut connection, given_up) =
                        (connection.share().unwrap(), given_up.clone());
                    bench.client.handle().spawn(async move {
                        let is_queued = Cell::new(false);
                        let mut note = |queued| is_queued.set(queued);
                        let request = ClientRequest::new(get("/given-up")).on_queue(&mut note);
                        let mut sent = Box::pin(connection.send(request));
                        std::future::poll_fn(|cx| {
                            assert!(sent.as_mut().poll(cx).is_pending());
                            cx.waker().wake_by_ref();
                            if is_queued.get() { Poll::Ready(()) } else { Poll::Pending }
                        })
                        .await;
                        given_up.set(given_up.get() + 1);
                    });
                }
                while given_up.get() < REQUESTS {
                    let now = bench.now();
                    bench.client.turn(now).unwrap();
                }
                for _ in 0..5 {
                    let now = bench.now();
                    bench.client.turn(now).unwrap();
                }
            });
            grown.push(bytes.bytes_current);
        }
        // After the first, kept memory serves the others.
        let later: i64 = grown[1..].iter().sum();
        assert!(
            later < 20 * 1024,
            "{protocol}: {later} bytes for {} requests: {grown:?}",
            (ROUNDS - 1) * REQUESTS
        );
    }
}
