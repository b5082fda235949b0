//! Limits on request heads.

use super::*;

#[test]
fn head_with_too_many_lines_is_answered_431() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &limited(|limits| limits.with_field_lines(20)), hello);
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        for number in 0..30 {
            request
                .headers_mut()
                .insert(HeaderName::try_from(format!("x-{number}")).unwrap(), 1.into());
        }
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert_eq!(answer.unwrap().0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{protocol}");
        assert_eq!(bench.count(|stats| stats.heads_too_many_lines.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_refused.value()), 1, "{protocol}");
    }
}

#[test]
fn heads_of_many_lines_are_answered_in_turn_with_those_of_few() {
    let waiting = Rc::<RefCell<Vec<Responder>>>::default();
    let held = waiting.clone();
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let held = held.clone();
        move |request: EngineRequest, responder: Responder| match request.uri.path() {
            "/held" => held.borrow_mut().push(responder),
            path => responder.send(
                Response::new(StatusCode::OK)
                    .with_body(format!("{path} has {}", request.headers.len())),
            ),
        }
    });
    let mut raw = RawTls::connect(&mut bench, &trust, b"http/1.1");
    let head = |path: &str, lines: usize| {
        let others: Vec<_> = (1..lines).map(|number| format!("x-{number}: y\r\n")).collect();
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", others.concat())
    };
    // All at once, as a client that does not wait may send them: the second exceeds the library's
    // initial buffer.
    let heads = [head("/held", 2), head("/a", 150), head("/b", 2), head("/c", 200)];
    raw.send(heads.concat().as_bytes());
    bench.turn_until(|_| waiting.borrow().len() == 1);
    turns(&mut bench, 5);
    raw.step();
    assert!(raw.received.is_empty(), "{:?}", String::from_utf8_lossy(&raw.received));
    waiting
        .take()
        .into_iter()
        .for_each(|responder| responder.send(Response::new(StatusCode::OK).with_body("held")));
    let bodies = ["held", "/a has 150", "/b has 2", "/c has 200"];
    bench.turn_until(|_| {
        raw.step();
        raw.received.ends_with(bodies[3].as_bytes())
    });
    let text = String::from_utf8_lossy(&raw.received).into_owned();
    let places = bodies.map(|body| text.find(body));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    raw.send(head("/d", 201).as_bytes());
    bench.turn_until(|_| {
        raw.step();
        raw.is_closed
    });
    assert!(String::from_utf8_lossy(&raw.received[text.len()..]).starts_with("HTTP/1.1 431 "));
    assert_eq!(bench.count(|stats| stats.heads_too_many_lines.value()), 1);
}

#[test]
fn head_with_too_many_bytes_is_answered_431() {
    // Over HTTP/3 this client knows the limit and sends no such head.
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut bench =
            Bench::new(1, &limited(|limits| limits.with_field_section_bytes(4 << 10)), hello);
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        request.headers_mut().insert("x-large", "x".repeat(5_000).try_into().unwrap());
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert_eq!(answer.unwrap().0, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{protocol}");
        assert_eq!(bench.count(|stats| stats.heads_too_large.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_refused.value()), 1, "{protocol}");
    }
}

#[test]
fn slow_head_over_http1_is_given_up_though_bytes_come() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut slow = RawTls::connect(&mut bench, &trust, b"http/1.1");
    slow.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n");
    for _ in 0..9 {
        bench.skip(Duration::from_secs(1));
        slow.send(b"x");
        turns(&mut bench, 5);
    }
    assert_eq!(bench.count(open), 1, "given up too early");
    bench.skip(Duration::from_secs(2));
    slow.wait_for_close(&mut bench);
    assert_eq!(bench.count(|stats| stats.head_timeouts.value()), 1);
    assert_eq!(bench.count(|stats| stats.idle_timeouts.value()), 0);
}

#[test]
fn idle_time_between_requests_is_no_head_timeout() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    for count in 1..4 {
        client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        bench.turn_until(|_| {
            client.step();
            client.received.windows(5).filter(|window| window == b"hello").count() == count
        });
        bench.skip(Duration::from_secs(20));
        turns(&mut bench, 5);
    }
    assert!(!client.is_closed);
    assert_eq!(bench.count(|stats| stats.head_timeouts.value()), 0);
}

#[test]
fn slow_head_over_http2_is_given_up_though_bytes_come() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let mut slow = begin_http2(&mut bench, &trust);
    slow.send(&frame(HEADERS, 0, 1, &GET[..1]));
    for byte in &GET[1..] {
        bench.skip(Duration::from_secs(2));
        slow.send(&frame(PING, 0, 0, &[0; 8])[..1]);
        turns(&mut bench, 5);
        let _ = byte;
    }
    bench.skip(Duration::from_secs(5));
    turns(&mut bench, 5);
    assert_eq!(bench.count(|stats| stats.head_timeouts.value()), 1);
}
