//! Client tests: handles that share a connection, the stream limit, the end of a connection, and
//! statistics.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_engine::{Body, ClientRequest, Config, Error, Limits, Protocol, Responder, Response};

use crate::support::{Bench, PROTOCOLS, fetch, get, hello};

const MULTIPLEXED: [Protocol; 2] = [Protocol::Http2, Protocol::Http3];

#[test]
fn requests_beyond_the_limit_of_streams_wait_their_turn() {
    for protocol in MULTIPLEXED {
        let limits = Limits::default().with_concurrent_streams(3).unwrap();
        let most = Rc::new(Cell::new((0, 0)));
        let seen = most.clone();
        let handler = move |_| {
            let seen = seen.clone();
            move |_, responder: Responder| {
                let (open, most) = seen.get();
                seen.set((open + 1, most.max(open + 1)));
                let (seen, handle) = (seen.clone(), responder.handle().clone());
                responder.respond(async move {
                    handle.sleep(Duration::from_millis(1)).await;
                    let (open, most) = seen.get();
                    seen.set((open - 1, most));
                    Response::new(StatusCode::OK)
                });
            }
        };
        let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, handler);
        let connection = bench.connect(protocol);
        let answered = Rc::new(Cell::new(0));
        for _ in 0..20 {
            let (mut connection, answered) = (connection.share().unwrap(), answered.clone());
            bench.client.handle().spawn(async move {
                assert!(fetch(&mut connection, get("/")).await.is_ok(), "{protocol}");
                answered.set(answered.get() + 1);
            });
        }
        bench.turn_until(|_| answered.get() == 20);
        assert_eq!(most.get().1, 3, "{protocol}");
    }
}

#[test]
fn connection_stays_open_until_its_last_handle_is_dropped() {
    for protocol in MULTIPLEXED {
        let mut bench = Bench::new(1, &Config::default(), hello);
        let first = bench.connect(protocol);
        let mut second = first.share().unwrap();
        drop(first);
        let (answer, second) =
            bench.run(async move { (fetch(&mut second, get("/")).await, second) });
        assert!(answer.is_ok(), "{protocol}: {answer:?}");
        drop(second);
        bench.turn_until(|bench| {
            bench.count(|stats| stats.tcp_open.value() + stats.quic_open.value()) == 0
        });
    }
}

#[test]
fn http1_connection_is_not_shared() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    assert!(bench.connect(Protocol::Http1).share().is_none());
}

#[test]
fn request_after_the_end_of_its_connection_is_refused_and_not_lost() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), hello);
        let mut connection = bench.connect(protocol);
        let (answer, mut connection) =
            bench.run(async move { (fetch(&mut connection, get("/")).await, connection) });
        assert!(answer.is_ok());
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::ZERO);
        let gone = Rc::new(Cell::new(false));
        let mark = gone.clone();
        bench.client.handle().spawn(async move {
            let error = loop {
                if let Err(error) = connection.send(get("/")).await {
                    break error;
                }
            };
            assert!(matches!(error, Error::Refused(_) | Error::Closed(_)), "{protocol}: {error}");
            // The rest of a closed connection reports that it is unusable, and refuses further
            // requests.
            let again = connection.send(get("/")).await.unwrap_err();
            assert!(matches!(again, Error::Refused(_)), "{protocol}: {again}");
            assert!(!connection.is_usable(), "{protocol}");
            mark.set(true);
        });
        bench.turn_until(|_| gone.get());
    }
}

#[test]
fn connection_whose_server_goes_away_is_of_no_use_while_its_requests_go_on() {
    for protocol in MULTIPLEXED {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |_, responder: Responder| std::mem::forget(responder)
        });
        let connection = bench.connect(protocol);
        let mut asking = connection.share().unwrap();
        let answered = Rc::new(Cell::new(false));
        let mark = answered.clone();
        bench.client.handle().spawn(async move {
            let _ = asking.send(get("/")).await;
            mark.set(true);
        });
        bench.turn_until(|bench| {
            bench.count(|stats| stats.requests_http2.value() + stats.requests_http3.value()) == 1
        });
        assert!(connection.is_usable(), "{protocol}");
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::from_secs(60));
        bench.turn_until(|_| !connection.is_usable());
        assert!(!answered.get(), "{protocol}: its request was ended");
    }
}

/// A body that counts how often it is polled.
struct PollCounter(Rc<Cell<usize>>);

impl http_body::Body for PollCounter {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.0.set(self.0.get() + 1);
        Poll::Ready(None)
    }
}

#[test]
fn queued_request_is_reported_and_keeps_its_body() {
    for protocol in MULTIPLEXED {
        for ends in [false, true] {
            let limits = Limits::default().with_concurrent_streams(1).unwrap();
            let kept = Rc::new(RefCell::new(Vec::new()));
            let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, |_| {
                let kept = kept.clone();
                move |_, responder: Responder| kept.borrow_mut().push(responder)
            });
            let connection = bench.connect(protocol);
            let (mut first, mut second) =
                (connection.share().unwrap(), connection.share().unwrap());
            bench.client.handle().spawn(async move { drop(first.send(get("/")).await) });
            bench.turn_until(|_| kept.borrow().len() == 1);
            let (asked, queued, result) = (
                Rc::new(Cell::new(0)),
                Rc::new(RefCell::new(Vec::new())),
                Rc::new(RefCell::new(None)),
            );
            let (body, seen, slot) =
                (Body::stream(PollCounter(asked.clone())), queued.clone(), result.clone());
            bench.client.handle().spawn(async move {
                let request = Request::post("https://localhost/").body(body).unwrap();
                let mut note = |is_queued| seen.borrow_mut().push(is_queued);
                let sent = second.send(ClientRequest::new(request).on_queue(&mut note)).await;
                *slot.borrow_mut() = Some(sent.map(|response| response.status()));
            });
            bench.turn_until(|_| *queued.borrow() == [true]);
            for _ in 0..20 {
                bench.turn();
            }
            assert_eq!(asked.get(), 0, "{protocol}: body of a request that was not begun");
            if ends {
                let now = bench.now();
                bench.servers[0].shut_down(now, Duration::ZERO);
                bench.turn_until(|_| result.borrow().is_some());
                let result = result.take().unwrap();
                assert!(matches!(result, Err(Error::Refused(_))), "{protocol}: {result:?}");
                assert_eq!((&*queued.borrow(), asked.get()), (&vec![true, false], 0), "{protocol}");
            } else {
                kept.borrow_mut().remove(0).send(Response::new(StatusCode::OK));
                bench.turn_until(|_| kept.borrow().len() == 1);
                kept.borrow_mut().remove(0).send(Response::new(StatusCode::OK));
                bench.turn_until(|_| result.borrow().is_some());
                assert!(matches!(result.take().unwrap(), Ok(StatusCode::OK)), "{protocol}");
                assert_eq!((&*queued.borrow(), asked.get()), (&vec![true, false], 1), "{protocol}");
            }
        }
    }
}

#[test]
fn requests_in_the_queue_of_a_server_that_goes_away_are_refused_before_the_others_end() {
    for protocol in MULTIPLEXED {
        let limits = Limits::default().with_concurrent_streams(1).unwrap();
        let silent = |_| |_, responder: Responder| std::mem::forget(responder);
        let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, silent);
        let connection = bench.connect(protocol);
        let refused = Rc::new(Cell::new(0));
        for _ in 0..5 {
            let (mut connection, refused) = (connection.share().unwrap(), refused.clone());
            bench.client.handle().spawn(async move {
                let error = connection.send(get("/")).await.unwrap_err();
                assert!(matches!(error, Error::Refused(_)), "{protocol}: {error}");
                refused.set(refused.get() + 1);
            });
        }
        bench.turn_until(|bench| {
            bench.count(|stats| stats.requests_http2.value() + stats.requests_http3.value()) == 1
        });
        let now = bench.now();
        bench.servers[0].shut_down(now, Duration::from_secs(600));
        bench.turn_until(|_| refused.get() == 4);
    }
}

/// A body that never yields, counted while it exists.
struct Never(Rc<()>);

impl http_body::Body for Never {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        assert!(Rc::strong_count(&self.0) > 1);
        Poll::Pending
    }
}

#[test]
fn upload_ends_with_its_dropped_request_or_response() {
    for protocol in PROTOCOLS {
        for answered in [false, true] {
            let mut bench = Bench::new(1, &Config::default(), |_| {
                move |request: pronghorn_engine::Request, responder: Responder| {
                    responder.respond(async move {
                        if answered {
                            let body = Body::stream(request.body);
                            return Response::new(StatusCode::OK).with_body(body);
                        }
                        let _request = request;
                        std::future::pending().await
                    });
                }
            });
            let mut connection = bench.connect(protocol);
            let alive = Rc::new(());
            let request = Request::post("https://localhost/")
                .body(Body::stream(Never(alive.clone())))
                .unwrap();
            let (seen, dropped) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let (saw, drop_now) = (seen.clone(), dropped.clone());
            bench.client.handle().spawn(async move {
                let mut sent = Box::pin(connection.send(request));
                let mut response = None;
                std::future::poll_fn(|cx| {
                    if response.is_none()
                        && let Poll::Ready(answer) = sent.as_mut().poll(cx)
                    {
                        response = Some(answer.unwrap());
                        saw.set(true);
                    }
                    cx.waker().wake_by_ref();
                    if drop_now.get() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                drop((sent, response));
                // Kept open, so that this does not end the connection.
                std::future::pending::<()>().await;
                drop(connection);
            });
            bench.turn_until(|bench| {
                let begun = bench.count(|stats| {
                    stats.requests_http1.value()
                        + stats.requests_http2.value()
                        + stats.requests_http3.value()
                });
                begun == 1 && seen.get() == answered
            });
            assert_eq!(Rc::strong_count(&alive), 2, "{protocol}");
            dropped.set(true);
            bench.turn_until(|_| Rc::strong_count(&alive) == 1);
        }
    }
}

#[test]
fn counts_of_a_connection_hold_what_was_carried() {
    const SIZE: usize = 300_000;
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |request: pronghorn_engine::Request, responder: Responder| {
                responder.respond(async move {
                    let size = request.body.collect().await.map_or(0, |body| body.to_bytes().len());
                    Response::new(StatusCode::OK).with_body(vec![b'x'; size / 3])
                });
            }
        });
        let mut connection = bench.connect(protocol);
        let probe = connection.stats().clone();
        let before = bench.run(probe.read());
        let upload = Request::post("https://localhost/")
            .body(Body::from(Bytes::from(vec![b'x'; SIZE])))
            .unwrap();
        let (answer, connection) =
            bench.run(async move { (fetch(&mut connection, upload).await, connection) });
        assert_eq!(answer.unwrap().1.len(), SIZE / 3);
        let after = bench.run(probe.read()).since(before);
        assert!(
            (SIZE as u64..2 * SIZE as u64).contains(&after.bytes_sent),
            "{protocol}: {after:?}"
        );
        assert!(
            (SIZE as u64 / 3..SIZE as u64).contains(&after.bytes_received),
            "{protocol}: {after:?}"
        );
        assert!(
            after.packets_sent > 0 && after.packets_received > 0 && after.rtt > Duration::ZERO,
            "{protocol}: {after:?}"
        );
        // The probes outlive the connection.
        drop(connection);
        bench.turn_until(|bench| {
            bench.count(|stats| stats.tcp_open.value() + stats.quic_open.value()) == 0
        });
        let last = bench.run(probe.read());
        assert!(last.since(before).bytes_sent >= after.bytes_sent, "{protocol}: {last:?}");
    }
}
