//! Resumption and early data (0-RTT) over the three protocols.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{Bench, PROTOCOLS, fetch, get};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use pronghorn_engine::{
    Body, Config, Connection, EarlyData, EarlyRequest, Handler, Incoming, LimitError, Limits, Peer,
    Protocol, Qlog, Request as EngineRequest, Responder, Response, Resumption, TlsSummary, Upgrade,
};

fn config(early_data: EarlyData) -> Config {
    Config { early_data, ..Config::default() }
}

/// Responds with how the request arrived.
fn describe(_: usize) -> impl Handler {
    |request: EngineRequest, responder: Responder| {
        let text = format!("{} early={}", request.method, request.peer.early_data);
        // A success would accept the upgrade.
        let status = if request.upgrade.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK };
        responder.send(Response::new(status).with_body(text));
    }
}

fn post(path: &str) -> Request<Body> {
    let mut request = get(path);
    *request.method_mut() = Method::POST;
    *request.body_mut() = Body::from(Bytes::from_static(b"content"));
    request
}

/// Makes a connection and waits for its tickets, so that the next one can resume.
fn meet(bench: &mut Bench, protocol: Protocol) {
    let first = bench.connect(protocol);
    assert!(!first.tls().unwrap().resumed);
    // The response arrives after the tickets.
    let (answer, _) = ask(bench, first, get("/"));
    assert_eq!(answer, (StatusCode::OK, "GET early=false".into()));
}

fn ask(
    bench: &mut Bench,
    mut connection: Connection,
    request: Request<Body>,
) -> ((StatusCode, Bytes), TlsSummary) {
    bench.run(async move { finish(&mut connection, request).await })
}

async fn finish(
    connection: &mut Connection,
    request: Request<Body>,
) -> ((StatusCode, Bytes), TlsSummary) {
    let answer = fetch(connection, request).await.unwrap();
    connection.handshake().await.unwrap();
    // With this response, the server has completed the handshake too, and its tickets have arrived.
    fetch(connection, get("/")).await.unwrap();
    (answer, connection.tls().unwrap())
}

/// Connects and sends at once.
fn ask_again(
    bench: &mut Bench,
    protocol: Protocol,
    resumption: Resumption,
    request: Request<Body>,
) -> ((StatusCode, Bytes), TlsSummary) {
    let connecting = bench.connecting(protocol, resumption);
    bench.run(async move {
        let mut connection = connecting.await.unwrap();
        assert_eq!(
            connection.tls().is_none(),
            resumption == Resumption::EarlyData,
            "whether the handshake is waited for"
        );
        finish(&mut connection, request).await
    })
}

#[test]
fn safe_request_in_early_data_is_answered_and_marked() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        let (answer, tls) = ask_again(&mut bench, protocol, Resumption::EarlyData, get("/"));
        assert_eq!(answer, (StatusCode::OK, "GET early=true".into()), "{protocol}");
        assert!(tls.resumed, "{protocol}");
        assert_eq!(tls.early_data_accepted, Some(true), "{protocol}");
        assert_eq!(bench.count(|stats| stats.early_data_accepted.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_early.value()), 1, "{protocol}");
        assert_eq!(
            bench.count(|stats| stats.tcp_resumed.value() + stats.quic_resumed.value()),
            1,
            "{protocol}"
        );
    }
}

#[test]
fn mark_ends_with_the_handshake() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        let second = bench.connecting(protocol, Resumption::EarlyData);
        let answers = bench.run(async move {
            let mut second = second.await.unwrap();
            let early = fetch(&mut second, get("/")).await.unwrap();
            second.handshake().await.unwrap();
            let mut answers = vec![early.1];
            // Sent after the server's last handshake message; the next one after the client's.
            for _ in 0..2 {
                answers.push(fetch(&mut second, get("/")).await.unwrap().1);
            }
            answers
        });
        assert_eq!(answers[0], "GET early=true", "{protocol}");
        assert_eq!(answers[2], "GET early=false", "{protocol}");
    }
}

#[test]
fn handshake_goes_on_while_the_answer_to_an_early_request_is_made() {
    for (protocol, content) in
        PROTOCOLS.into_iter().flat_map(|protocol| [(protocol, ""), (protocol, "content")])
    {
        let asked = Rc::<RefCell<Option<(EngineRequest, Responder)>>>::default();
        let handler_asked = asked.clone();
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), move |number| {
            let (asked, describe) = (handler_asked.clone(), describe(number));
            move |request: EngineRequest, responder: Responder| match request.uri.path() {
                "/waits" => *asked.borrow_mut() = Some((request, responder)),
                _ => describe.handle(request, responder),
            }
        });
        meet(&mut bench, protocol);
        let mut request = get("/waits");
        *request.body_mut() = Body::from(Bytes::from_static(content.as_bytes()));
        let connecting = bench.connecting(protocol, Resumption::EarlyData);
        let answer = Rc::<RefCell<Option<_>>>::default();
        let slot = answer.clone();
        bench.client.handle().spawn(async move {
            let mut connection = connecting.await.unwrap();
            *slot.borrow_mut() = Some(fetch(&mut connection, request).await);
        });
        bench.turn_until(|_| asked.borrow().is_some());
        assert!(asked.borrow().as_ref().unwrap().0.peer.early_data, "{protocol}");
        for _ in 0..20 {
            bench.turn();
        }
        // The content is not read.
        bench.skip(Limits::default().handshake_timeout() + Duration::from_secs(1));
        for _ in 0..20 {
            bench.turn();
        }
        assert_eq!(bench.count(|stats| stats.handshakes_timed_out.value()), 0, "{protocol}");
        let (_request, responder) = asked.take().unwrap();
        responder.send(Response::new(StatusCode::OK).with_body("late"));
        bench.turn_until(|_| answer.borrow().is_some());
        assert_eq!(answer.take().unwrap().unwrap(), (StatusCode::OK, "late".into()), "{protocol}");
    }
}

#[test]
fn response_is_delayed_until_address_is_validated() {
    const SIZE: usize = 100_000;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answer-that-waits");
    let _ = std::fs::remove_dir_all(&folder);
    let large = |_| {
        |_, responder: Responder| {
            responder.send(Response::new(StatusCode::OK).with_body(vec![b'x'; SIZE]));
        }
    };
    let config = Config {
        qlog: Some(Qlog::to_directory(&folder).unwrap()),
        ..config(EarlyData::SafeMethods)
    };
    let mut bench = Bench::new(1, &config, large);
    let first = bench.connect(Protocol::Http3);
    ask(&mut bench, first, get("/"));
    // A server that does not accept the first one's tokens.
    bench.replace(&config, large);
    drop(config);
    // Three times the first flight is not a multiple of the datagram size.
    let mut request = get("/");
    request.headers_mut().insert("x-padding", HeaderValue::from_str(&"x".repeat(1_500)).unwrap());
    let (answer, tls) = ask_again(&mut bench, Protocol::Http3, Resumption::EarlyData, request);
    assert_eq!((answer.1.len(), tls.early_data_accepted), (SIZE, Some(true)));
    // The amplification limit was lower than the initial window.
    assert!(bench.count(|stats| stats.amplification_withheld.value()) > 0);
    drop(bench);
    let logs = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let lost: Vec<_> = logs
        .flat_map(|log| {
            log.lines()
                .filter(|line| line.contains("packet_lost"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

//= RFC 8470 section 4
//# MUST NOT send unsafe methods (or methods whose safety is not known) in early data.
#[test]
fn unsafe_request_waits_for_the_handshake() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::All), describe);
        meet(&mut bench, protocol);
        let (answer, tls) = ask_again(&mut bench, protocol, Resumption::EarlyData, post("/"));
        assert_eq!(answer, (StatusCode::OK, "POST early=false".into()), "{protocol}");
        assert!(tls.resumed, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_early.value()), 0, "{protocol}");
    }
}

/// Answers early requests to `/held` after the handshake, and says how often they waited.
fn hold(number: usize) -> impl Handler {
    let describe = describe(number);
    move |request: EngineRequest, mut responder: Responder| {
        if request.uri.path() != "/held" {
            return describe.handle(request, responder);
        }
        let was_early = request.peer.early_data;
        let handle = responder.handle().clone();
        handle.spawn(async move {
            // The second time there is nothing to wait for.
            let complete = responder.handshake().await && responder.handshake().await;
            responder.send(
                Response::new(StatusCode::OK).with_body(format!("early={was_early} {complete}")),
            );
        });
    }
}

#[test]
fn early_request_is_held_until_the_handshake_is_complete() {
    for protocol in PROTOCOLS {
        // The larger content stays unread, which is more than a library reads ahead.
        for size in [0, 12_000] {
            let mut bench = Bench::new(1, &config(EarlyData::All), hold);
            meet(&mut bench, protocol);
            let mut request = get("/held");
            *request.body_mut() = Body::from(Bytes::from(vec![b'x'; size]));
            let connecting = bench.connecting(protocol, Resumption::EarlyData);
            let answer = bench.run(async move {
                let mut connection = connecting.await.unwrap();
                fetch(&mut connection, request).await.unwrap()
            });
            assert_eq!(answer, (StatusCode::OK, "early=true true".into()), "{protocol}, {size}");
            let counted = bench.count(|stats| stats.requests_held.value());
            assert_eq!((counted, bench.count(|stats| stats.requests_early.value())), (1, 0));
            assert_eq!(bench.count(|stats| stats.handshakes_timed_out.value()), 0, "{protocol}");
        }
    }
}

#[test]
fn held_request_of_a_client_that_leaves_ends() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::All), hold);
        meet(&mut bench, protocol);
        let connecting = bench.connecting(protocol, Resumption::EarlyData);
        let left = Rc::<Cell<bool>>::default();
        let slot = left.clone();
        bench.client.handle().spawn(async move {
            let mut connection = connecting.await.unwrap();
            let answer = connection.send(get("/held"));
            drop(answer);
            drop(connection);
            slot.set(true);
        });
        bench.turn_until(|_| left.get());
        bench.skip(Limits::default().idle_timeout() + Duration::from_secs(1));
        bench.turn_until(|bench| bench.count(|stats| stats.requests_open.value()) == 0);
    }
}

#[test]
fn policy_treats_early_requests_by_their_method() {
    use EarlyRequest::{Answer, Hold, Refuse};

    let treat = |policy: EarlyData, method: Method, early_data, upgrade: Option<Upgrade>| {
        let peer = Peer {
            protocol: Protocol::Http3,
            remote: ([127, 0, 0, 1], 1).into(),
            secure: true,
            early_data,
            tls: None,
            server_name: None,
            client_certificate: None,
        };
        policy.treat(&EngineRequest {
            method,
            uri: "https://localhost/".parse().unwrap(),
            headers: HeaderMap::new(),
            peer,
            upgrade,
            body: Incoming::empty(),
        })
    };
    for (policy, safe, other) in [
        (EarlyData::Off, Refuse, Refuse),
        (EarlyData::SafeMethods, Answer, Refuse),
        (EarlyData::Hold, Answer, Hold),
        (EarlyData::All, Answer, Answer),
    ] {
        assert_eq!(treat(policy, Method::GET, true, None), safe, "{policy}");
        assert_eq!(treat(policy, Method::POST, true, None), other, "{policy}");
        // Its data would be sent again together with the request.
        let upgrade = Some(Upgrade::new("websocket"));
        assert_eq!(treat(policy, Method::GET, true, upgrade), other, "{policy}");
        assert_eq!(treat(policy, Method::POST, false, None), Answer, "{policy}");
    }
}

#[test]
fn request_for_another_protocol_waits_for_the_handshake() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::All), describe);
        meet(&mut bench, protocol);
        let mut request = get("/");
        request.extensions_mut().insert(Upgrade::new("echo"));
        let (answer, _) = ask_again(&mut bench, protocol, Resumption::EarlyData, request);
        let method = if protocol == Protocol::Http1 { "GET" } else { "CONNECT" };
        assert_eq!(
            answer,
            (StatusCode::FORBIDDEN, format!("{method} early=false").into()),
            "{protocol}"
        );
    }
}

#[test]
fn server_without_early_data_resumes() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::Off), describe);
        meet(&mut bench, protocol);
        let second = bench.connecting(protocol, Resumption::EarlyData);
        let (answer, tls) =
            bench.run(async move { finish(&mut second.await.unwrap(), get("/")).await });
        assert_eq!(answer, (StatusCode::OK, "GET early=false".into()), "{protocol}");
        assert!(tls.resumed, "{protocol}");
        assert_eq!(tls.early_data_accepted, None, "{protocol}: the ticket does not allow it");
    }
}

#[test]
fn client_resumes_without_early_data_and_not_at_all_when_told() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        for (resumption, resumed) in [(Resumption::Session, true), (Resumption::Off, false)] {
            let (answer, tls) = ask_again(&mut bench, protocol, resumption, get("/"));
            assert_eq!(answer.1, "GET early=false", "{protocol}");
            assert_eq!(
                (tls.resumed, tls.early_data_accepted),
                (resumed, None),
                "{protocol} {resumption:?}"
            );
        }
    }
}

#[test]
fn refused_early_data_is_sent_again_after_the_handshake() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        // The server restarts with the same certificate; its sessions are gone.
        bench.restart(&config(EarlyData::SafeMethods), describe);
        let second = bench.connecting(protocol, Resumption::EarlyData);
        let (answers, tls) = bench.run(async move {
            let mut second = second.await.unwrap();
            let mut answers = Vec::new();
            for _ in 0..3 {
                answers.push(fetch(&mut second, get("/")).await.unwrap());
            }
            (answers, second.tls().unwrap())
        });
        assert_eq!(
            answers,
            vec![(StatusCode::OK, Bytes::from("GET early=false")); 3],
            "{protocol}"
        );
        assert_eq!((tls.resumed, tls.early_data_accepted), (false, Some(false)), "{protocol}");
        assert_eq!(
            bench.count(|stats| stats.early_data_refused_no_session.value()),
            1,
            "{protocol}"
        );
        assert_eq!(bench.count(|stats| stats.early_data_accepted.value()), 0, "{protocol}");
    }
}

//= RFC 9114 section 10.9
//# The anti-replay mitigations in [HTTP-REPLAY] MUST be applied when using HTTP/3 with 0-RTT.
#[test]
fn many_requests_in_refused_early_data_are_each_answered_once() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        let seen = Rc::<RefCell<Vec<String>>>::default();
        let note = seen.clone();
        bench.restart(&config(EarlyData::SafeMethods), move |_| {
            let note = note.clone();
            move |request: EngineRequest, responder: Responder| {
                note.borrow_mut().push(request.uri.path().to_owned());
                responder
                    .send(Response::new(StatusCode::OK).with_body(request.uri.path().to_owned()));
            }
        });
        let connecting = bench.connecting(protocol, Resumption::EarlyData);
        let handle = bench.client.handle().clone();
        let answers = Rc::<RefCell<Vec<String>>>::default();
        let answered = answers.clone();
        bench.run(async move {
            let mut connection = connecting.await.unwrap();
            for number in 0..20 {
                let (mut connection, answered) = (connection.share().unwrap(), answered.clone());
                handle.spawn(async move {
                    let path = format!("/{number:02}");
                    let (status, body) = fetch(&mut connection, get(&path)).await.unwrap();
                    assert_eq!((status, &*body), (StatusCode::OK, path.as_bytes()));
                    answered.borrow_mut().push(path);
                });
            }
            connection.handshake().await.unwrap();
            assert_eq!(connection.tls().unwrap().early_data_accepted, Some(false));
            fetch(&mut connection, get("/last")).await.unwrap();
        });
        bench.turn_until(|_| answers.borrow().len() == 20);
        let all: Vec<_> = (0..20).map(|number| format!("/{number:02}")).collect();
        // The server gets the requests in the order in which they were sent, each once.
        assert_eq!(
            seen.borrow().iter().filter(|path| *path != "/last").cloned().collect::<Vec<_>>(),
            all,
            "{protocol}"
        );
    }
}

#[test]
fn disabled_early_data_is_refused_and_session_resumed() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        bench.replace(&config(EarlyData::Off), describe);
        let (answer, tls) = ask_again(&mut bench, protocol, Resumption::EarlyData, get("/"));
        assert_eq!(answer, (StatusCode::OK, "GET early=false".into()), "{protocol}");
        assert_eq!((tls.resumed, tls.early_data_accepted), (true, Some(false)), "{protocol}");
        assert_eq!(bench.count(|stats| stats.early_data_refused_off.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_early.value()), 0, "{protocol}");
    }
}

//= RFC 8470 section 5.2
//# A user agent SHOULD retry automatically, but any retries MUST NOT be sent in early data.
#[test]
fn early_request_that_a_handler_finds_too_early_is_sent_again() {
    let wary = |_| {
        |request: EngineRequest, responder: Responder| {
            let status =
                if request.peer.early_data { StatusCode::TOO_EARLY } else { StatusCode::OK };
            responder.send(Response::new(status));
        }
    };
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::All), wary);
        let first = bench.connect(protocol);
        ask(&mut bench, first, get("/"));
        let (answer, tls) = ask_again(&mut bench, protocol, Resumption::EarlyData, get("/"));
        assert_eq!((answer.0, tls.early_data_accepted), (StatusCode::OK, Some(true)), "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_too_early.value()), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_early.value()), 0, "{protocol}");
    }
}

#[test]
fn early_data_survives_a_retry() {
    let mut config = config(EarlyData::SafeMethods);
    // A token of the first connection would validate the address as well.
    config.limits = config
        .limits
        .with_open_handshakes(0)
        .and_then(|limits| limits.with_used_tokens(0))
        .unwrap();
    let mut bench = Bench::new(1, &config, describe);
    meet(&mut bench, Protocol::Http3);
    let (answer, tls) = ask_again(&mut bench, Protocol::Http3, Resumption::EarlyData, get("/"));
    assert_eq!(answer, (StatusCode::OK, "GET early=true".into()));
    assert_eq!(tls.early_data_accepted, Some(true));
    // One for each datagram of a ClientHello.
    assert!(bench.count(|stats| stats.quic_retries_sent.value()) >= 2);
}

#[test]
fn session_serves_one_connection() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        for number in 1..=5 {
            let (_, tls) = ask_again(&mut bench, protocol, Resumption::EarlyData, get("/"));
            assert_eq!(tls.early_data_accepted, Some(true), "{protocol}");
            // Each handshake, resumed or not, leaves two.
            let held = bench.session_count("sessions_held");
            assert_eq!(
                (held, bench.count(|stats| stats.sessions_taken.value())),
                (2 + number, number),
                "{protocol}"
            );
        }
    }
}

fn limited(set: impl FnOnce(Limits) -> Result<Limits, LimitError>) -> Config {
    Config { limits: set(Limits::default()).unwrap(), ..config(EarlyData::SafeMethods) }
}

#[test]
fn sessions_over_the_limit_are_dropped_and_their_clients_get_a_full_handshake() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(2, &limited(|limits| limits.with_sessions(1)), describe);
        meet(&mut bench, protocol);
        assert_eq!(bench.session_count("sessions_held"), 1, "{protocol}");
        assert_eq!(bench.count(|stats| stats.sessions_evicted.value()), 1, "{protocol}");

        let mut bench = Bench::new(2, &limited(|limits| limits.with_sessions(0)), describe);
        meet(&mut bench, protocol);
        let (answer, tls) = ask_again(&mut bench, protocol, Resumption::Session, get("/"));
        assert_eq!((answer.0, tls.resumed), (StatusCode::OK, false), "{protocol}");
        assert!(bench.count(|stats| stats.sessions_evicted.value()) > 0, "{protocol}");
    }
}

#[test]
fn sessions_over_their_bytes_are_dropped() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(1, &limited(|limits| limits.with_session_bytes(2 << 10)), describe);
        for _ in 0..5 {
            let connection = bench.connect(protocol);
            ask(&mut bench, connection, get("/"));
        }
        let (held, bytes) =
            (bench.session_count("sessions_held"), bench.session_count("sessions_bytes"));
        assert!(held > 0 && bytes <= 2 << 10, "{protocol}: {held} sessions of {bytes} bytes");
        assert!(bench.count(|stats| stats.sessions_evicted_for_bytes.value()) > 0, "{protocol}");
    }
}

#[test]
fn session_that_is_too_old_is_not_resumed() {
    let lifetime = Duration::from_millis(100);
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(1, &limited(|limits| limits.with_session_lifetime(lifetime)), describe);
        meet(&mut bench, protocol);
        // TLS uses the system's clock. The session is older than the server's response.
        std::thread::sleep(lifetime);
        let (answer, tls) = ask_again(&mut bench, protocol, Resumption::Session, get("/"));
        assert_eq!((answer.0, tls.resumed), (StatusCode::OK, false), "{protocol}");
        assert!(bench.count(|stats| stats.sessions_expired.value()) > 0, "{protocol}");
    }
}

//= RFC 9114 section 7.2.4.2
//# If the server cannot determine that the settings remembered by a client are compatible with its current settings, it MUST NOT
//# accept 0-RTT data.
#[test]
fn server_that_offers_another_header_table_refuses_early_data() {
    let others: [fn(Limits) -> Result<Limits, LimitError>; 2] = [
        |limits| limits.with_qpack_table_bytes(2 << 10),
        |limits| limits.with_qpack_blocked_streams(4),
    ];
    for other in others {
        for protocol in PROTOCOLS {
            let mut bench = Bench::new(1, &config(EarlyData::SafeMethods), describe);
            meet(&mut bench, protocol);
            bench.replace(&limited(other), describe);
            let (answer, tls) = ask_again(&mut bench, protocol, Resumption::EarlyData, get("/"));
            let http3 = protocol == Protocol::Http3;
            assert_eq!(
                answer,
                (StatusCode::OK, format!("GET early={}", !http3).into()),
                "{protocol}"
            );
            assert_eq!(
                (tls.resumed, tls.early_data_accepted),
                (!http3, Some(!http3)),
                "{protocol}"
            );
        }
    }
}

#[test]
fn workers_share_sessions() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(4, &config(EarlyData::SafeMethods), describe);
        meet(&mut bench, protocol);
        for _ in 0..20 {
            let (_, tls) = ask_again(&mut bench, protocol, Resumption::EarlyData, get("/"));
            assert_eq!(tls.early_data_accepted, Some(true), "{protocol}");
        }
        let busy = bench.stats.iter().filter(|stats| stats.early_data_accepted.value() > 0).count();
        // A client has one UDP port, which the kernel assigns to one worker.
        assert!(
            busy > 1 || protocol == Protocol::Http3,
            "{protocol}: the kernel gave all connections to one worker"
        );
    }
}
