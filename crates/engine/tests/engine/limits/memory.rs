//! The memory budget of all workers.

use pronghorn_engine::{MemoryHold, MemoryPressure};

use super::*;

const BUDGET: u64 = 1 << 40;

/// Returns a server whose memory is used to this percentage by something else.
fn pressed(percent: u64) -> (Bench, Group, MemoryHold) {
    let group = Group::new(1);
    let config = limited(|limits| limits.with_memory(BUDGET));
    let bench = Bench::with_group(&group, &trust(), &config, reader);
    let mut hold = group.memory().hold();
    hold.grow(BUDGET / 100 * percent);
    (bench, group, hold)
}

fn retry_after(response: &http::Response<pronghorn_engine::Incoming>) -> Option<&str> {
    response.headers().get(http::header::RETRY_AFTER)?.to_str().ok()
}

#[test]
fn requests_get_503_while_memory_is_used_up_and_are_served_after() {
    for protocol in PROTOCOLS {
        let (mut bench, group, mut hold) = pressed(0);
        let mut connection = bench.connect(protocol);
        hold.grow(BUDGET / 100 * 95);
        assert_eq!(group.memory().pressure(), MemoryPressure::RefuseRequests);
        turns(&mut bench, 2);
        let response = bench.run(async move { connection.send(get("/")).await.unwrap() });
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{protocol}");
        assert_eq!(retry_after(&response), Some("1"), "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_refused_for_memory.value()), 1);
        drop(response);
        drop(hold);
        turns(&mut bench, 2);
        let mut connection = bench.connect(protocol);
        let status = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(status.map(|(status, _)| status), Ok(StatusCode::OK), "{protocol}");
    }
}

#[test]
fn connections_are_refused_before_requests() {
    for protocol in PROTOCOLS {
        let (mut bench, _group, mut hold) = pressed(0);
        let mut connection = bench.connect(protocol);
        hold.grow(BUDGET / 100 * 88);
        turns(&mut bench, 2);
        assert!(bench.try_connect(protocol).is_err(), "{protocol}: a new connection");
        assert!(bench.count(|stats| stats.connections_refused_for_memory.value()) > 0);
        let status = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(status.map(|(status, _)| status), Ok(StatusCode::OK), "{protocol}");
    }
}

#[test]
fn idle_connections_close_when_no_memory_is_left() {
    for protocol in PROTOCOLS {
        let (mut bench, _group, mut hold) = pressed(0);
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move {
            let answer = fetch(&mut connection, get("/")).await;
            (answer, connection)
        });
        assert!(answer.0.is_ok());
        hold.grow(BUDGET / 100 * 95);
        turns(&mut bench, 2);
        bench.turn_until(|bench| {
            bench.skip(Duration::from_millis(100));
            bench.count(open) == 0
        });
    }
}

#[test]
fn unread_content_is_counted_until_its_reader_is_dropped() {
    for protocol in PROTOCOLS {
        let group = Group::new(1);
        let kept = Rc::<RefCell<Vec<_>>>::default();
        let deaf = |_| {
            let kept = kept.clone();
            move |request: EngineRequest, responder: Responder| {
                kept.borrow_mut().push((request, responder));
            }
        };
        let mut bench = Bench::with_group(&group, &trust(), &Config::default(), deaf);
        let connection = bench.connect(protocol);
        let upload = Request::post("https://localhost/").body(vec![7; 900 << 10].into()).unwrap();
        let outcome = start(&bench, connection, upload);
        let expected = if protocol == Protocol::Http1 { 48 << 10 } else { 800 << 10 };
        bench.turn_until(|_| group.memory().held() >= expected);
        assert!(group.memory().held() <= 2 << 20, "{protocol}: {:?}", group.memory());
        assert!(outcome.borrow().is_none());
        kept.borrow_mut().clear();
        bench.turn_until(|bench| {
            bench.skip(Duration::from_millis(100));
            group.memory().held() <= 64 << 10
        });
    }
}

#[test]
fn content_that_is_read_at_once_counts_as_nothing() {
    for protocol in PROTOCOLS {
        let group = Group::new(1);
        let mut bench = Bench::with_group(&group, &trust(), &Config::default(), reader);
        let connection = bench.connect(protocol);
        let upload = Request::post("https://localhost/").body(vec![7; 8 << 20].into()).unwrap();
        let outcome = start(&bench, connection, upload);
        let mut most = 0;
        bench.turn_until(|_| {
            most = most.max(group.memory().held());
            outcome.borrow().is_some()
        });
        assert_eq!(status_of(&mut bench, &outcome), Ok(StatusCode::OK));
        assert!(most < 2 << 20, "{protocol}: {most} bytes of 8 MiB");
    }
}

#[test]
fn uploads_and_downloads_complete_under_lasting_pressure() {
    let echo = |_| {
        |request: EngineRequest, responder: Responder| {
            responder.send(Response::new(StatusCode::OK).with_body(Body::stream(request.body)));
        }
    };
    for protocol in PROTOCOLS {
        let group = Group::new(1);
        let config = limited(|limits| limits.with_memory(BUDGET));
        let mut bench = Bench::with_group(&group, &trust(), &config, echo);
        let mut hold = group.memory().hold();
        hold.grow(BUDGET / 100 * 75);
        turns(&mut bench, 1);
        let content: Bytes = (0..3_u32 << 20).map(|number| (number % 251) as u8).collect();
        let upload = Request::post("https://localhost/").body(content.clone().into()).unwrap();
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, upload).await });
        let (status, found) = answer.unwrap();
        assert_eq!(status, StatusCode::OK, "{protocol}");
        assert!(found == content, "{protocol}: {} bytes came back", found.len());
    }
}
