//! Limits on open requests, and on peers that read slowly.

use super::*;

#[test]
fn requests_over_what_a_worker_has_open_are_answered_503() {
    for protocol in PROTOCOLS {
        let config = limited(|limits| limits.with_open_requests(2));
        let mut bench = Bench::new(1, &config, |_| {
            |_, responder: Responder| responder.respond(std::future::pending())
        });
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let connection = bench.connect(protocol);
                start(&bench, connection, get("/"))
            })
            .collect();
        turns(&mut bench, 20);
        assert!(waiting.iter().all(|outcome| outcome.borrow().is_none()));
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer.unwrap().0, StatusCode::SERVICE_UNAVAILABLE, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_shed.value()), 1, "{protocol}");
    }
}

#[test]
fn answered_requests_free_their_slots() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &limited(|limits| limits.with_open_requests(1)), hello);
        let mut connection = bench.connect(protocol);
        for _ in 0..5 {
            let (answer, back) =
                bench.run(async move { (fetch(&mut connection, get("/")).await, connection) });
            assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "{protocol}");
            connection = back;
        }
    }
}

#[test]
fn response_that_is_not_taken_is_given_up_and_its_memory_freed() {
    for (protocol, in_memory) in
        PROTOCOLS.into_iter().flat_map(|protocol| [(protocol, false), (protocol, true)])
    {
        let alive = Rc::new(());
        let held = alive.clone();
        let config = limited(|limits| limits.with_response_timeout(Duration::from_secs(5)));
        let mut bench = Bench::new(1, &config, |_| {
            let held = held.clone();
            move |_, responder: Responder| {
                let held = held.clone();
                let body =
                    if in_memory { Body::from(vec![0; 40 << 20]) } else { Body::stream(Endless) };
                responder.send(
                    Response::new(StatusCode::OK).with_body(body.on_end(move |_| drop(held))),
                );
            }
        });
        drop(held);
        let mut connection = bench.connect(protocol);
        // The client's worker runs, so it acknowledges data; its application reads nothing.
        let _response =
            bench.run(async move { (connection.send(get("/")).await.unwrap(), connection) });
        turns(&mut bench, 300);
        assert_eq!(
            bench.count(|stats| stats.response_timeouts.value() + stats.responses_too_slow.value()),
            0,
            "{protocol}: too early"
        );
        // On a busy machine the windows may not be full yet: filling them counts as progress.
        let began = Instant::now();
        let mut counted = std::iter::from_fn(|| {
            bench.skip(Duration::from_secs(6));
            turns(&mut bench, 20);
            let counted = bench
                .count(|stats| stats.response_timeouts.value() + stats.responses_too_slow.value());
            (began.elapsed() < Duration::from_secs(30)).then_some(counted)
        });
        assert_eq!(
            counted.find(|counted| *counted > 0),
            Some(1),
            "{protocol}, in memory: {in_memory}"
        );
    }
}

/// The client reads much of some responses and nothing of others, as HTTP/2 does on a slow path.
/// The client does not choose which.
#[test]
fn response_that_waits_for_others_is_not_given_up() {
    let trust = trust();
    let config = limited(|limits| limits.with_response_timeout(Duration::from_secs(5)));
    let handler = |_| {
        |_, responder: Responder| {
            responder.send(Response::new(StatusCode::OK).with_body(Body::stream(Endless)));
        }
    };
    let mut bench = Bench::with_group(&Group::new(1), &trust, &config, handler);
    let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
    let open = [&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat();
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    raw.send(&frame(SETTINGS, 0, 0, &open));
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    for stream in 0..20 {
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * stream + 1, GET));
    }
    for _ in 0..60 {
        take(&mut bench, &mut raw, 1 << 20);
        bench.skip(Duration::from_secs(1));
    }
    assert!(!raw.is_closed);
    assert_eq!(
        bench.count(|stats| stats.response_timeouts.value() + stats.responses_too_slow.value()),
        0
    );
    // And each stream gets its turns.
    let mut bytes = BTreeMap::<u32, usize>::new();
    for (kind, stream, length) in frames(&raw.received) {
        if kind == DATA {
            *bytes.entry(stream).or_default() += length;
        }
    }
    let fair_share = bytes.values().sum::<usize>() / 20;
    assert!(bytes.len() == 20 && bytes.values().all(|taken| *taken > fair_share / 10), "{bytes:?}");
}

/// Progress of other responses does not count for one whose window the client does not open.
#[test]
fn response_without_a_window_is_given_up_while_others_move() {
    let trust = trust();
    let config = limited(|limits| limits.with_response_timeout(Duration::from_secs(5)));
    for in_memory in [true, false] {
        let handler = move |_| {
            move |_, responder: Responder| {
                let body =
                    if in_memory { Body::from(vec![0; 400 << 20]) } else { Body::stream(Endless) };
                responder.send(Response::new(StatusCode::OK).with_body(body));
            }
        };
        let mut bench = Bench::with_group(&Group::new(1), &trust, &config, handler);
        let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // No stream has an initial window.
        raw.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
        for stream in [1, 3, 5] {
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
        }
        for stream in [3, 5] {
            raw.send(&frame(WINDOW_UPDATE, 0, stream, &0x7fff_0000_u32.to_be_bytes()));
        }
        for _ in 0..20 {
            take(&mut bench, &mut raw, 1 << 20);
            bench.skip(Duration::from_secs(1));
        }
        assert!(!raw.is_closed);
        assert_eq!(
            bench.count(|stats| stats.response_timeouts.value()),
            1,
            "in memory: {in_memory}"
        );
        let frames = frames(&raw.received);
        assert!(
            frames.iter().any(|(kind, stream, _)| (*kind, *stream) == (RST_STREAM, 1)),
            "in memory: {in_memory}"
        );
    }
}

/// The kernel buffers much of what the server has written when the server is done, and the client
/// reports its reads now and then.
#[test]
fn response_over_http2_is_whole_though_it_is_taken_slowly_after_a_shutdown() {
    const SIZE: usize = 12 << 20;
    let trust = trust();
    let handler = |_| {
        |_, responder: Responder| {
            responder.send(Response::new(StatusCode::OK).with_body(Body::from(vec![0; SIZE])));
        }
    };
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), handler);
    let mut raw = RawTls::connect(&mut bench, &trust, b"h2");
    raw.let_in_at_most(64 << 10);
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    raw.send(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat()));
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7f00_0000_u32.to_be_bytes()));
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, GET));
    take(&mut bench, &mut raw, 1 << 20);
    let now = bench.now();
    bench.servers[0].shut_down(now, Duration::from_secs(600));
    let content = |raw: &RawTls| -> usize {
        frames(&raw.received)
            .into_iter()
            .filter(|(kind, stream, _)| (*kind, *stream) == (DATA, 1))
            .map(|(_, _, length)| length)
            .sum()
    };
    let (mut is_answered, mut arrived) = (false, 0);
    while !raw.is_closed {
        // The client reads slowly at the end, when the kernel has buffered the rest. Time then
        // advances only once the server's kernel has seen the client's window open.
        let is_slow = raw.received.len() >= SIZE - (400 << 10);
        if is_slow {
            raw.step_at_most(8 << 10);
        } else {
            take(&mut bench, &mut raw, 256 << 10);
        }
        // The server sends a PING to check that its GOAWAY has arrived before it closes. The
        // content has no such bytes.
        let ping = raw
            .received
            .windows(17)
            .find(|bytes| bytes.starts_with(&[0, 0, 8, PING, 0, 0, 0, 0, 0]))
            .map(|ping| ping[9..].to_vec());
        if let Some(ping) = ping.filter(|_| !is_answered) {
            raw.send_alone(&frame(PING, ACK, 0, &ping));
            is_answered = true;
        }
        raw.send_alone(&frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
        let before = std::mem::replace(&mut arrived, raw.arrived());
        if !is_slow || arrived > before || content(&raw) == SIZE {
            bench.skip(Duration::from_secs(6));
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        turns(&mut bench, 3);
    }
    let taken = content(&raw);
    assert_eq!(taken, SIZE);
    assert!(
        bench.elapsed() < Duration::from_secs(600),
        "by itself, and not by the end of what is granted"
    );
}

/// Lets a client read this many bytes. The workers' clock barely moves until the kernel has
/// transferred them.
fn take(bench: &mut Bench, raw: &mut RawTls, bytes: usize) {
    let wanted = raw.received.len() + bytes;
    while raw.received.len() < wanted && !raw.is_closed {
        let before = raw.received.len();
        bench.turn();
        raw.step_at_most(wanted - before);
        if raw.received.len() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An endless body.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 4096])))))
    }
}
