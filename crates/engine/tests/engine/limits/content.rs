//! Limits on the content of requests.

use super::*;

#[test]
fn content_announced_too_large_is_answered_413_before_a_handler_sees_it() {
    for protocol in PROTOCOLS {
        let asked = Rc::new(Cell::new(false));
        let mark = asked.clone();
        let config = limited(|limits| limits.with_request_body_bytes(1_000));
        let mut bench = Bench::new(1, &config, |_| {
            let mark = mark.clone();
            move |_, responder: Responder| {
                mark.set(true);
                drop(responder);
            }
        });
        let connection = bench.connect(protocol);
        let drip = Drip::default();
        let request = Request::post("https://localhost/")
            .header(CONTENT_LENGTH, 1_001)
            .body(Body::stream(drip.clone()))
            .unwrap();
        let outcome = start(&bench, connection, request);
        assert_eq!(
            status_of(&mut bench, &outcome),
            Ok(StatusCode::PAYLOAD_TOO_LARGE),
            "{protocol}"
        );
        assert!(!asked.get(), "{protocol}");
        assert_eq!(bench.count(|stats| stats.bodies_too_large.value()), 1, "{protocol}");
    }
}

#[test]
fn content_that_turns_out_too_large_is_answered_413() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(1, &limited(|limits| limits.with_request_body_bytes(1_000)), reader);
        let connection = bench.connect(protocol);
        let drip = Drip::default();
        let request = Request::post("https://localhost/").body(Body::stream(drip.clone())).unwrap();
        let outcome = start(&bench, connection, request);
        drip.let_go(200);
        turns(&mut bench, 20);
        assert!(outcome.borrow().is_none(), "{protocol}: 1,000 bytes are allowed");
        drip.let_go(1);
        assert_eq!(
            status_of(&mut bench, &outcome),
            Ok(StatusCode::PAYLOAD_TOO_LARGE),
            "{protocol}"
        );
        assert_eq!(bench.count(|stats| stats.bodies_too_large.value()), 1, "{protocol}");
    }
}

#[test]
fn content_that_stops_is_answered_408() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), reader);
        let connection = bench.connect(protocol);
        let drip = Drip::default();
        let outcome = start(
            &bench,
            connection,
            Request::post("https://localhost/").body(Body::stream(drip.clone())).unwrap(),
        );
        drip.let_go(1);
        turns(&mut bench, 20);
        bench.skip(Duration::from_secs(19));
        turns(&mut bench, 20);
        assert!(outcome.borrow().is_none(), "{protocol}: given up too early");
        bench.skip(Duration::from_secs(2));
        assert_eq!(status_of(&mut bench, &outcome), Ok(StatusCode::REQUEST_TIMEOUT), "{protocol}");
        assert_eq!(bench.count(|stats| stats.body_timeouts.value()), 1, "{protocol}");
    }
}

#[test]
fn content_that_comes_too_slowly_is_answered_408() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), reader);
        let connection = bench.connect(protocol);
        let drip = Drip::default();
        let outcome = start(
            &bench,
            connection,
            Request::post("https://localhost/").body(Body::stream(drip.clone())).unwrap(),
        );
        turns(&mut bench, 20);
        let mut seconds = 0;
        while outcome.borrow().is_none() {
            bench.skip(Duration::from_secs(5));
            seconds += 5;
            drip.let_go(1);
            turns(&mut bench, 20);
            assert!(
                seconds <= 30,
                "{protocol}: a piece in five seconds keeps the handler waiting for ever"
            );
        }
        assert!(seconds >= 20, "{protocol}: given up too early");
        assert_eq!(status_of(&mut bench, &outcome), Ok(StatusCode::REQUEST_TIMEOUT), "{protocol}");
        assert_eq!(bench.count(|stats| stats.bodies_too_slow.value()), 1, "{protocol}");
    }
}

#[test]
fn content_may_pause_after_response_begins() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |request: EngineRequest, responder: Responder| {
                responder.send(Response::new(StatusCode::OK).with_body(Body::stream(request.body)));
            }
        });
        let mut connection = bench.connect(protocol);
        let drip = Drip::default();
        let body = Body::stream(drip.clone());
        let response = bench.run(async move {
            (
                connection
                    .send(Request::post("https://localhost/").body(body).unwrap())
                    .await
                    .unwrap(),
                connection,
            )
        });
        turns(&mut bench, 5);
        bench.skip(Duration::from_secs(25));
        turns(&mut bench, 5);
        drip.let_go(1);
        let (mut response, _connection) = response;
        let frame = bench.run(async move { response.body_mut().frame().await.unwrap().unwrap() });
        assert_eq!(frame.into_data().unwrap(), "piece", "{protocol}");
        assert_eq!(
            bench.count(|stats| stats.body_timeouts.value() + stats.bodies_too_slow.value()),
            0
        );
    }
}

/// Result of reading content alongside the response.
type Read = Rc<RefCell<Option<Result<usize, String>>>>;

/// Reads the content alongside the response, which `answer` creates.
fn reads_on(read: Read, answer: impl Fn() -> Response + 'static) -> impl Handler {
    move |request: EngineRequest, responder: Responder| {
        let read = read.clone();
        responder.handle().clone().spawn(async move {
            let content = request.body.collect().await;
            *read.borrow_mut() = Some(
                content.map(|content| content.to_bytes().len()).map_err(|error| error.to_string()),
            );
        });
        responder.send(answer());
    }
}

#[test]
fn content_that_stops_after_the_answer_is_given_up() {
    const SILENT: &str = "timed out waiting for the request body";
    for protocol in PROTOCOLS {
        let (answer, drip, read) = (Drip::default(), Drip::default(), Read::default());
        for streams in [false, true] {
            let mut bench = Bench::new(1, &Config::default(), |_| {
                let answer = answer.clone();
                reads_on(read.clone(), move || {
                    let body =
                        if streams { Body::stream(answer.clone()) } else { Body::from("whole") };
                    Response::new(StatusCode::OK).with_body(body)
                })
            });
            let connection = bench.connect(protocol);
            let outcome = start(
                &bench,
                connection,
                Request::post("https://localhost/").body(Body::stream(drip.clone())).unwrap(),
            );
            drip.let_go(1);
            turns(&mut bench, 20);
            if streams {
                bench.skip(Duration::from_secs(25));
                turns(&mut bench, 20);
                assert!(
                    read.borrow().is_none(),
                    "{protocol}: it may rest while the answer goes on"
                );
                answer.end();
            }
            assert_eq!(status_of(&mut bench, &outcome), Ok(StatusCode::OK), "{protocol}");
            bench.skip(Duration::from_secs(19));
            turns(&mut bench, 20);
            assert!(read.borrow().is_none(), "{protocol}: given up too early");
            bench.skip(Duration::from_secs(2));
            bench.turn_until(|_| read.borrow().is_some());
            assert_eq!(read.take(), Some(Err(SILENT.into())), "{protocol}");
            assert_eq!(bench.count(|stats| stats.body_timeouts.value()), 1, "{protocol}");
        }
    }
}
