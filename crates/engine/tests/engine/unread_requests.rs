//! Client tests: request content that the server does not read, and abandoned requests.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use pronghorn_engine::{
    Body, ClientRequest, Config, Connection, Error, Limits, Protocol, Request as EngineRequest,
    Responder, Response,
};

use crate::raw_server::{
    self, CANCEL, END_STREAM, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, RawServer,
    WINDOW_UPDATE, head, settings,
};
use crate::support::{Bench, Failing, PROTOCOLS, fetch, get, hello};

const SECOND: Duration = Duration::from_secs(1);

/// An endless body, counted while it exists.
struct Endless {
    /// Number of pieces taken.
    alive: Rc<Cell<usize>>,
    /// Whether it yields pieces; otherwise it never does.
    flows: bool,
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if !self.flows {
            return Poll::Pending;
        }
        self.alive.set(self.alive.get() + 1);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 10_000])))))
    }
}

fn endless(flows: bool) -> (Body, Rc<Cell<usize>>) {
    let alive = Rc::default();
    (Body::stream(Endless { alive: Rc::clone(&alive), flows }), alive)
}

/// Runs until no more of the content is taken, despite losses and delays.
fn fill(bench: &mut Bench, taken: &Cell<usize>) {
    let (mut before, mut quiet) = (taken.get(), 0);
    while quiet < 10 {
        bench.skip(SECOND / 10);
        turns(bench);
        quiet = if taken.get() == before { quiet + 1 } else { 0 };
        before = taken.get();
    }
}

/// Result of a request.
#[derive(Clone, Default)]
struct Outcome(Rc<RefCell<Option<Result<StatusCode, Error>>>>);

impl Outcome {
    fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }

    fn take(&self) -> Result<StatusCode, Error> {
        self.0.take().unwrap()
    }
}

/// Sends a request and reads its response to the end. The connection stays open as long as the
/// bench.
fn begin(bench: &Bench, connection: &Connection, request: Request<Body>) -> Outcome {
    let (mut connection, outcome) = (connection.share().unwrap(), Outcome::default());
    let slot = outcome.clone();
    bench.client.handle().spawn(async move {
        let result = match connection.send(request).await {
            Ok(response) => {
                let status = response.status();
                response
                    .into_body()
                    .collect()
                    .await
                    .map(|_| status)
                    .map_err(|error| Error::from(&error))
            }
            Err(error) => Err(error),
        };
        *slot.0.borrow_mut() = Some(result);
        std::future::pending::<()>().await;
        drop(connection);
    });
    outcome
}

fn turns(bench: &mut Bench) {
    for _ in 0..20 {
        bench.turn();
    }
}

/// Responds at once, and reads nothing for 40 s. The unread content stays buffered.
fn early(_: usize) -> impl Fn(EngineRequest, Responder) + 'static {
    move |request: EngineRequest, responder: Responder| {
        if request.uri.path() == "/upload" {
            let later = responder.handle().clone();
            responder.handle().spawn(async move {
                let _unread = request.body;
                later.sleep(40 * SECOND).await;
            });
        }
        responder.send(Response::new(StatusCode::OK).with_body("early"));
    }
}

#[test]
fn unread_content_frees_its_slot_after_response() {
    for flows in [false, true] {
        let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
        let connection = server.connect(&mut bench, Protocol::Http2);
        server.send(settings(&[(MAX_CONCURRENT_STREAMS, 1)]));
        let (body, alive) = endless(flows);
        let first = begin(&bench, &connection, raw_server::post(body));
        bench.turn_until(|_| server.requests() == [1]);
        server.send(head(1, &[(":status", "200")], true));
        bench.turn_until(|_| first.is_there());
        assert!(matches!(first.take(), Ok(StatusCode::OK)));
        let second = begin(&bench, &connection, raw_server::ask("/"));
        for _ in 0..29 {
            bench.skip(SECOND);
            turns(&mut bench);
        }
        assert_eq!(
            (server.requests(), server.resets(1), Rc::strong_count(&alive)),
            (vec![1], vec![], 2),
            "flows: {flows}"
        );
        for _ in 0..2 {
            bench.skip(SECOND);
            turns(&mut bench);
        }
        assert_eq!(
            (server.requests(), server.resets(1), Rc::strong_count(&alive)),
            (vec![1, 3], vec![CANCEL], 1),
            "flows: {flows}"
        );
        server.send(head(3, &[(":status", "204")], true));
        bench.turn_until(|_| second.is_there());
    }
}

#[test]
fn content_being_read_continues_after_response() {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let connection = server.connect(&mut bench, Protocol::Http2);
    server.send(settings(&[(MAX_CONCURRENT_STREAMS, 1)]));
    // One piece, of which the server reads some now and then.
    let content = Bytes::from(vec![b'x'; 1 << 20]);
    let first = begin(&bench, &connection, raw_server::post(Body::from(content)));
    bench.turn_until(|_| server.requests() == [1]);
    server.send(head(1, &[(":status", "200")], true));
    bench.turn_until(|_| first.is_there());
    let sent = |server: &mut RawServer| {
        let data = server.frames().into_iter().filter(|frame| frame.kind == raw_server::DATA);
        data.map(|frame| frame.content.len()).sum::<usize>()
    };
    let credit = (64_u32 << 10).to_be_bytes();
    while sent(&mut server) < 1 << 20 {
        bench.skip(20 * SECOND);
        turns(&mut bench);
        server.send(
            [
                raw_server::frame(WINDOW_UPDATE, 0, 0, &credit),
                raw_server::frame(WINDOW_UPDATE, 0, 1, &credit),
            ]
            .concat(),
        );
        turns(&mut bench);
        assert_eq!(server.resets(1), Vec::<u32>::new(), "after {:?}", bench.elapsed());
    }
    bench.turn_until(|_| {
        server
            .frames()
            .iter()
            .any(|frame| frame.kind == raw_server::DATA && frame.flags & END_STREAM != 0)
    });
}

#[test]
fn unread_http3_content_is_abandoned_after_response() {
    for flows in [false, true] {
        let limits = Limits::default().with_concurrent_streams(1).unwrap();
        let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, early);
        let connection = bench.connect(Protocol::Http3);
        let (body, alive) = endless(flows);
        let first = begin(
            &bench,
            &connection,
            Request::post("https://localhost/upload").body(body).unwrap(),
        );
        bench.turn_until(|_| first.is_there());
        assert!(matches!(first.take(), Ok(StatusCode::OK)));
        let second = begin(&bench, &connection, get("/"));
        fill(&mut bench, &alive);
        let full = bench.elapsed();
        while Rc::strong_count(&alive) > 1 {
            assert!(!second.is_there(), "flows: {flows}");
            bench.skip(SECOND / 2);
            turns(&mut bench);
        }
        // By the workers' clock, which also advances with real time; the window was full for part
        // of it before.
        let waited = bench.elapsed().saturating_sub(full);
        assert!(waited > 25 * SECOND && waited < 35 * SECOND, "flows: {flows}, {waited:?}");
        bench.skip(10 * SECOND);
        bench.turn_until(|_| second.is_there());
        assert!(matches!(second.take(), Ok(StatusCode::OK)), "flows: {flows}");
    }
}

#[test]
fn content_that_an_http3_server_takes_goes_on_after_a_complete_response() {
    let handler = |_| {
        |request: EngineRequest, responder: Responder| {
            responder.handle().spawn(async move { drop(request.body.collect().await) });
            responder.send(Response::new(StatusCode::OK).with_body("early"));
        }
    };
    let mut bench = Bench::new(1, &Config::default(), handler);
    let connection = bench.connect(Protocol::Http3);
    let (alive, handle) = (Rc::new(()), bench.client.handle().clone());
    let counted = alive.clone();
    let steady = Steady { sleep: Box::pin(handle.sleep(SECOND)), handle, _alive: counted };
    let first = begin(
        &bench,
        &connection,
        Request::post("https://localhost/upload").body(Body::stream(steady)).unwrap(),
    );
    bench.turn_until(|_| first.is_there());
    for _ in 0..100 {
        bench.skip(SECOND);
        turns(&mut bench);
    }
    assert_eq!(Rc::strong_count(&alive), 2);
}

/// Yields a piece each second.
struct Steady {
    handle: pronghorn_engine::Handle,
    sleep: Pin<Box<pronghorn_engine::Sleep>>,
    _alive: Rc<()>,
}

impl http_body::Body for Steady {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        std::task::ready!(self.sleep.as_mut().poll(cx));
        self.sleep = Box::pin(self.handle.sleep(SECOND));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 10_000])))))
    }
}

#[test]
fn http1_connection_ends_with_a_dropped_response_although_its_request_goes_on() {
    // If a response is complete at once, the library discards its rest and continues the request.
    for (flows, whole) in [(false, false), (false, true), (true, false), (true, true)] {
        let silent = move |_| {
            move |request: EngineRequest, responder: Responder| {
                responder.handle().spawn(async move {
                    let _unread = request.body;
                    std::future::pending::<()>().await;
                });
                let body = if whole { Body::from("hello") } else { endless(false).0 };
                responder.send(Response::new(StatusCode::OK).with_body(body));
            }
        };
        let mut bench = Bench::new(1, &Config::default(), silent);
        let mut connection = bench.connect(Protocol::Http1);
        let (body, alive) = endless(flows);
        let (response, is_usable) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(true)));
        let (slot, usable) = (response.clone(), is_usable.clone());
        bench.client.handle().spawn(async move {
            let request = Request::post("https://localhost/").body(body).unwrap();
            *slot.borrow_mut() = Some(connection.send(request).await.unwrap());
            std::future::poll_fn::<(), _>(|cx| {
                usable.set(connection.is_usable());
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        });
        bench.turn_until(|_| response.borrow().is_some());
        turns(&mut bench);
        assert_eq!(
            (Rc::strong_count(&alive), is_usable.get()),
            (2, true),
            "flows: {flows}, whole: {whole}"
        );
        drop(response.take());
        turns(&mut bench);
        assert_eq!(
            (Rc::strong_count(&alive), is_usable.get()),
            (1, false),
            "flows: {flows}, whole: {whole}"
        );
    }
}

#[test]
fn http1_connection_serves_on_after_a_dropped_response_that_was_there() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    let mut connection = bench.connect(Protocol::Http1);
    let answer = bench.run(async move {
        for _ in 0..3 {
            drop(connection.send(get("/")).await.unwrap());
        }
        fetch(&mut connection, get("/")).await
    });
    assert_eq!(answer.unwrap().1, "hello");
    assert_eq!(bench.count(|stats| stats.tcp_accepted.value()), 1);
}

#[test]
fn requests_in_the_queue_obey_a_server_that_lowers_its_limit() {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let connection = server.connect(&mut bench, Protocol::Http2);
    server.send(settings(&[(MAX_CONCURRENT_STREAMS, 3)]));
    turns(&mut bench);
    let queued = Rc::new(Cell::new(0_i32));
    for number in 0..5 {
        let (mut connection, queued) = (connection.share().unwrap(), queued.clone());
        bench.client.handle().spawn(async move {
            let path = format!("/{number}");
            let mut count = |is_queued| queued.set(queued.get() + if is_queued { 1 } else { -1 });
            let request = ClientRequest::new(raw_server::ask(&path)).on_queue(&mut count);
            drop(connection.send(request).await);
            std::future::pending::<()>().await;
        });
    }
    bench.turn_until(|_| server.requests().len() == 3);
    turns(&mut bench);
    assert_eq!(queued.get(), 2);
    server.send(settings(&[(MAX_CONCURRENT_STREAMS, 1)]));
    turns(&mut bench);
    for (answered, waiting) in [(1, 2), (3, 2), (5, 1), (7, 0)] {
        server.send(head(answered, &[(":status", "204")], true));
        turns(&mut bench);
        assert_eq!(queued.get(), waiting, "after the answer to {answered}");
    }
    // And the server raises the limit again.
    server.send(settings(&[(MAX_CONCURRENT_STREAMS, 100)]));
    turns(&mut bench);
    let more: Vec<_> =
        (0..2).map(|_| begin(&bench, &connection, raw_server::ask("/more"))).collect();
    bench.turn_until(|_| server.requests().len() == 7);
    for stream in [9, 11, 13] {
        server.send(head(stream, &[(":status", "204")], true));
    }
    bench.turn_until(|_| more.iter().all(Outcome::is_there));
}

#[test]
fn abandoned_queued_request_drops_its_body() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let limits = Limits::default().with_concurrent_streams(1).unwrap();
        let kept = Rc::new(RefCell::new(Vec::new()));
        let mut bench = Bench::new(1, &Config { limits, ..Config::default() }, |_| {
            let kept = kept.clone();
            move |request: EngineRequest, responder: Responder| {
                kept.borrow_mut().push((request.uri.path().to_owned(), responder));
            }
        });
        let connection = bench.connect(protocol);
        let first = begin(&bench, &connection, get("/first"));
        bench.turn_until(|_| kept.borrow().len() == 1);
        let alive: Rc<Cell<usize>> = Rc::default();
        let (queued, dropped) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        for _ in 0..10 {
            let (mut connection, drop_now, queued) =
                (connection.share().unwrap(), dropped.clone(), queued.clone());
            let body = Body::stream(Endless { alive: alive.clone(), flows: true });
            bench.client.handle().spawn(async move {
                let request = Request::post("https://localhost/given-up").body(body).unwrap();
                let mut count = |_| queued.set(queued.get() + 1);
                let mut sent =
                    Box::pin(connection.send(ClientRequest::new(request).on_queue(&mut count)));
                std::future::poll_fn(|cx| {
                    assert!(sent.as_mut().poll(cx).is_pending());
                    cx.waker().wake_by_ref();
                    if drop_now.get() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                drop(sent);
                std::future::pending::<()>().await;
            });
        }
        bench.turn_until(|_| queued.get() == 10);
        let last = begin(&bench, &connection, get("/last"));
        turns(&mut bench);
        assert_eq!(Rc::strong_count(&alive), 11, "{protocol}");
        dropped.set(true);
        turns(&mut bench);
        assert_eq!(Rc::strong_count(&alive), 1, "{protocol}: the server still allows none");
        kept.borrow_mut().remove(0).1.send(Response::new(StatusCode::OK));
        bench.turn_until(|_| kept.borrow().len() == 1);
        let (path, responder) = kept.borrow_mut().remove(0);
        assert_eq!(path, "/last", "{protocol}");
        responder.send(Response::new(StatusCode::OK));
        bench.turn_until(|_| first.is_there() && last.is_there());
    }
}

#[test]
fn content_ends_with_the_response_that_its_server_resets() {
    for protocol in PROTOCOLS {
        let resetting = |_| {
            |request: EngineRequest, responder: Responder| {
                responder.handle().spawn(async move { drop(request.body.collect().await) });
                responder.send(Response::new(StatusCode::OK).with_body(Body::stream(Failing)));
            }
        };
        let mut bench = Bench::new(1, &Config::default(), resetting);
        let mut connection = bench.connect(protocol);
        let (body, alive) = endless(false);
        let outcome = Outcome::default();
        let slot = outcome.clone();
        bench.client.handle().spawn(async move {
            let request = Request::post("https://localhost/").body(body).unwrap();
            let mut response = None;
            let error = match connection.send(request).await {
                Ok(begun) => {
                    let response = response.insert(begun.into_body());
                    let content = std::future::poll_fn(|cx| {
                        http_body::Body::poll_frame(Pin::new(&mut *response), cx)
                    })
                    .await;
                    Error::from(&content.unwrap().unwrap_err())
                }
                Err(error) => error,
            };
            *slot.0.borrow_mut() = Some(Err(error));
            // The rest of it is kept.
            std::future::pending::<()>().await;
            drop((connection, response));
        });
        bench.turn_until(|_| outcome.is_there());
        turns(&mut bench);
        assert_eq!(Rc::strong_count(&alive), 1, "{protocol}: {:?}", outcome.take());
    }
}

#[test]
fn unused_connection_closes_although_server_does_not_read() {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let mut connection = server.connect(&mut bench, Protocol::Http2);
    let most = (1_u32 << 31) - 1;
    let credit = (most - 0xffff).to_be_bytes();
    server.send(
        [settings(&[(INITIAL_WINDOW_SIZE, most)]), raw_server::frame(WINDOW_UPDATE, 0, 0, &credit)]
            .concat(),
    );
    turns(&mut bench);
    let (body, alive) = endless(true);
    let leave = Rc::new(Cell::new(false));
    let leave_now = leave.clone();
    bench.client.handle().spawn(async move {
        let mut sent = Box::pin(connection.send(raw_server::post(body)));
        std::future::poll_fn(|cx| {
            assert!(sent.as_mut().poll(cx).is_pending());
            cx.waker().wake_by_ref();
            if leave_now.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    // Until the systems of server and client have filled their buffers.
    fill(&mut bench, &alive);
    leave.set(true);
    turns(&mut bench);
    assert_eq!(Rc::strong_count(&alive), 1);
    let ping = raw_server::frame(6, 1, 0, &[0; 8]);
    for _ in 0..29 {
        bench.skip(SECOND);
        turns(&mut bench);
        server.send(&ping);
    }
    bench.skip(2 * SECOND);
    turns(&mut bench);
    bench.turn_until(|_| !server.try_send(&ping));
}

#[test]
fn request_whose_content_breaks_off_fails_although_its_server_waits_for_the_rest() {
    for protocol in PROTOCOLS {
        for answered in [false, true] {
            let kept = Rc::new(RefCell::new(Vec::new()));
            let mut bench = Bench::new(1, &Config::default(), |_| {
                let kept = kept.clone();
                move |EngineRequest { body, .. }, responder: Responder| {
                    if answered {
                        responder.send(Response::new(StatusCode::OK).with_body(endless(false).0));
                        kept.borrow_mut().push((body, None));
                    } else {
                        kept.borrow_mut().push((body, Some(responder)));
                    }
                }
            });
            let mut connection = bench.connect(protocol);
            let fails = Rc::new(Cell::new(false));
            let body = Body::stream(FailingOnDemand(fails.clone()));
            let outcome = Outcome::default();
            let (slot, has_head) = (outcome.clone(), Rc::new(Cell::new(false)));
            let head = has_head.clone();
            bench.client.handle().spawn(async move {
                let result = match connection
                    .send(Request::post("https://localhost/").body(body).unwrap())
                    .await
                {
                    Ok(response) => {
                        head.set(true);
                        Err(Error::from(
                            &response.into_body().collect().await.map(drop).unwrap_err(),
                        ))
                    }
                    Err(error) => Err(error),
                };
                *slot.0.borrow_mut() = Some(result);
                std::future::pending::<()>().await;
                drop(connection);
            });
            bench.turn_until(|_| kept.borrow().len() == 1 && has_head.get() == answered);
            fails.set(true);
            for _ in 0..2_000 {
                bench.turn();
            }
            assert!(outcome.is_there(), "{protocol}, answered: {answered}");
            let result = outcome.take();
            assert!(
                matches!(result, Err(Error::Exchange(_) | Error::Closed(_))),
                "{protocol}, answered: {answered}: {result:?}"
            );
        }
    }
}

/// A body that fails on demand.
struct FailingOnDemand(Rc<Cell<bool>>);

impl http_body::Body for FailingOnDemand {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if self.0.get() {
            return Poll::Ready(Some(Err(std::io::Error::other("as planned"))));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
