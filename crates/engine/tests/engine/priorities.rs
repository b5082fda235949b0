//! RFC 9218 over HTTP/3: the order of responses.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support::{Bench, get, trust};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use pronghorn_engine::{Config, Group, Protocol, Request, Responder, Response};

const BODY_BYTES: usize = 4 << 20;
/// Data that may already be in the transport and in the client when a more urgent response arrives:
/// on loopback, windows grow far beyond the bandwidth-delay product.
const COMMITTED_BYTES: usize = 2 << 20;

/// Answers all requests in one turn, once there are `count`, with the field that `said` returns for
/// the path.
fn together(
    count: usize,
    said: fn(&str) -> Option<&'static str>,
) -> impl Fn(usize) -> Box<dyn Fn(Request, Responder)> {
    move |_| {
        let waiting = RefCell::new(Vec::new());
        Box::new(move |request, responder| {
            waiting.borrow_mut().push((request, responder));
            if waiting.borrow().len() < count {
                return;
            }
            for (request, responder) in waiting.take() {
                let mut response = Response::new(StatusCode::OK).with_body(vec![b'x'; BODY_BYTES]);
                if let Some(value) = said(request.uri.path()) {
                    response.headers.insert("priority", HeaderValue::from_static(value));
                }
                responder.send(response);
            }
        })
    }
}

/// Requests `paths` in order, each with a `priority` field unless it is empty. Returns the pieces
/// in the order of arrival.
fn arrivals(
    protocol: Protocol,
    paths: &[(&'static str, &'static str)],
    said: fn(&str) -> Option<&'static str>,
) -> Vec<(&'static str, usize)> {
    // A response that is blocked by its own window lets the next one share, and does not get its
    // position back (docs/transport.md).
    let mut client = Config::default();
    client.limits = client.limits.with_stream_window_bytes(2 * BODY_BYTES as u64).unwrap();
    client.limits = client.limits.with_connection_window_bytes(4 * BODY_BYTES as u64).unwrap();
    let mut bench = Bench::with_client(
        &Group::new(1),
        &trust(),
        &Config::default(),
        client,
        together(paths.len(), said),
    );
    let arrived = Rc::new(RefCell::new(Vec::new()));
    let connection = bench.connect(protocol);
    let done = Rc::new(RefCell::new(0));
    for &(path, priority) in paths {
        let mut request = get(path);
        if !priority.is_empty() {
            request.headers_mut().insert("priority", HeaderValue::from_static(priority));
        }
        let mut sender = connection.share().unwrap();
        let (arrived, done) = (arrived.clone(), done.clone());
        bench.client.handle().spawn(async move {
            let mut body = sender.send(request).await.unwrap().into_body();
            while let Some(frame) = body.frame().await {
                arrived.borrow_mut().push((path, frame.unwrap().into_data().unwrap().len()));
            }
            *done.borrow_mut() += 1;
        });
        // Stream IDs follow the order of the requests.
        bench.turn();
    }
    bench.turn_until(|_| *done.borrow() == paths.len());
    arrived.take()
}

/// Returns the bytes of `path` that arrived before the last piece of `other`.
fn before_the_end_of(arrivals: &[(&str, usize)], other: &str, path: &str) -> usize {
    let end = arrivals.iter().rposition(|(name, _)| *name == other).unwrap();
    arrivals[..end].iter().filter(|(name, _)| *name == path).map(|(_, bytes)| bytes).sum()
}

fn nothing(_: &str) -> Option<&'static str> {
    None
}

#[test]
fn urgent_response_comes_before_those_requested_earlier() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let arrived =
            arrivals(protocol, &[("/low", "u=6"), ("/middle", "u=3"), ("/high", "u=0")], nothing);
        assert!(before_the_end_of(&arrived, "/high", "/middle") < COMMITTED_BYTES, "{protocol}");
        assert!(before_the_end_of(&arrived, "/middle", "/low") < COMMITTED_BYTES, "{protocol}");
    }
}

#[test]
fn responses_of_one_urgency_come_in_the_order_of_their_requests() {
    let arrived = arrivals(Protocol::Http3, &[("/1", ""), ("/2", "u=3"), ("/3", "i=?0")], nothing);
    assert!(before_the_end_of(&arrived, "/1", "/2") < COMMITTED_BYTES);
    assert!(before_the_end_of(&arrived, "/2", "/3") < COMMITTED_BYTES);
}

#[test]
fn incremental_responses_share_the_connection() {
    let arrived = arrivals(Protocol::Http3, &[("/1", "i"), ("/2", "u=3, i"), ("/3", "i")], nothing);
    for (one, other) in [("/1", "/2"), ("/2", "/3"), ("/3", "/1")] {
        assert!(
            before_the_end_of(&arrived, one, other) > BODY_BYTES - COMMITTED_BYTES,
            "{one} {other}"
        );
    }
}

#[test]
fn response_field_overrides_the_request() {
    let said = |path: &str| (path == "/1").then_some("u=7");
    let arrived = arrivals(Protocol::Http3, &[("/1", "u=1"), ("/2", "u=2")], said);
    assert!(before_the_end_of(&arrived, "/2", "/1") < COMMITTED_BYTES);
}
