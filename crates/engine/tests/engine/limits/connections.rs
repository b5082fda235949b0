//! Limits on connections and handshakes.

use super::*;

#[test]
fn connections_over_the_total_are_refused_whatever_the_protocol_and_worker() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(2, &limited(|limits| limits.with_connections(3)), hello);
        let mut held: Vec<_> =
            PROTOCOLS.into_iter().map(|protocol| bench.connect(protocol)).collect();
        assert!(bench.try_connect(protocol).is_err(), "{protocol}: a fourth connection");
        assert!(bench.count(|stats| stats.connections_refused.value()) > 0, "{protocol}");
        held.pop();
        bench.turn_until(|bench| bench.count(open) == 2);
        // A QUIC connection frees its slot at the end of its closing period.
        bench.skip(Duration::from_secs(10));
        turns(&mut bench, 10);
        assert!(bench.try_connect(protocol).is_ok(), "{protocol}: a place was free");
    }
}

#[test]
fn client_over_its_share_is_refused_and_another_is_served() {
    let mut bench = Bench::new(2, &limited(|limits| limits.with_connections_per_client(2)), hello);
    let _held = [bench.connect(Protocol::Http2), bench.connect(Protocol::Http1)];
    for protocol in PROTOCOLS {
        let before = bench.count(|stats| stats.connections_refused_per_client.value());
        assert!(bench.try_connect(protocol).is_err(), "{protocol}: a third connection");
        // Over QUIC, once for each datagram of the client's first flight.
        assert!(
            bench.count(|stats| stats.connections_refused_per_client.value()) > before,
            "{protocol}"
        );
    }
    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    other.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    other.connect(&bench.address.into()).unwrap();
    bench.turn_until(|bench| bench.count(|stats| stats.tcp_accepted.value()) == 3);
    let by_transport =
        (bench.count(|stats| stats.tcp_open.value()), bench.count(|stats| stats.quic_open.value()));
    assert_eq!(by_transport, (3, 0));
}

#[test]
fn quic_client_past_half_its_share_proves_its_address() {
    let mut bench = Bench::new(1, &limited(|limits| limits.with_connections_per_client(4)), hello);
    let _held = [bench.connect(Protocol::Http1), bench.connect(Protocol::Http1)];
    assert_eq!(bench.count(|stats| stats.quic_retries_sent.value()), 0);
    let mut connection = bench.connect(Protocol::Http3);
    // One for each datagram of the client's first flight.
    let retries = bench.count(|stats| stats.quic_retries_sent.value());
    assert!(retries > 0);
    assert_eq!(
        bench.run(async move { fetch(&mut connection, get("/")).await }),
        Ok((StatusCode::OK, "hello".into()))
    );
    // Now the client has a token, which validates its address as well.
    let _again = bench.connect(Protocol::Http3);
    assert_eq!(bench.count(|stats| stats.quic_retries_sent.value()), retries);
    assert_eq!(bench.count(|stats| stats.tokens_accepted.value()), 1);
}

#[test]
fn tls_handshake_that_stalls_is_given_up() {
    let mut bench = Bench::new(1, &Config::default(), hello);
    let _silent = TcpStream::connect(bench.address).unwrap();
    bench.turn_until(|bench| bench.count(open) == 1);
    bench.skip(Duration::from_secs(9));
    turns(&mut bench, 5);
    assert_eq!(bench.count(open), 1, "given up too early");
    bench.skip(Duration::from_secs(2));
    bench.turn_until(|bench| bench.count(open) == 0);
    assert_eq!(bench.count(|stats| stats.handshakes_timed_out.value()), 1);
}

#[test]
fn quic_handshake_that_stalls_is_given_up_and_no_more_than_three_times_is_sent() {
    let trust = large_trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), hello);
    let stalled = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stalled.set_nonblocking(true).unwrap();
    // The client talks to this socket, which forwards only its first flight and no replies.
    let connector = bench.connector.clone();
    let target = pronghorn_engine::Target {
        remote: stalled.local_addr().unwrap(),
        server_name: "localhost".to_owned(),
        protocol: Some(Protocol::Http3),
        secure: true,
        resumption: pronghorn_engine::Resumption::default(),
    };
    bench.client.handle().spawn(async move { drop(connector.connect(&target).await) });
    let relay = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    relay.set_nonblocking(true).unwrap();
    let (mut passed, mut came) = (0, 0);
    let mut buffer = vec![0; 65_535];
    bench.turn_until(|bench| {
        if passed < 2_400
            && let Ok(length) = stalled.recv(&mut buffer)
        {
            relay.send_to(&buffer[..length], bench.address).unwrap();
            passed += length;
        }
        passed >= 2_400 && bench.count(|stats| stats.quic_accepted.value()) == 1
    });
    for _ in 0..12 {
        turns(&mut bench, 20);
        while let Ok(length) = relay.recv(&mut buffer) {
            came += length;
        }
        assert!(came <= 3 * passed, "{came} bytes for {passed}");
        bench.skip(Duration::from_secs(1));
    }
    assert!(
        came > 2 * passed,
        "the certificate does not need more than is allowed: {came} bytes for {passed}"
    );
    assert_eq!(bench.count(|stats| stats.handshakes_timed_out.value()), 1);
    assert_eq!(bench.count(|stats| stats.quic_open.value()), 0);
}

/// A certificate that does not fit into three times a client's first flight.
fn large_trust() -> crate::support::Trust {
    let mut names = vec!["localhost".to_owned()];
    names.extend((0..400).map(|number| format!("host-{number}.example.com")));
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = CertificateDer::from(made.cert);
    assert!(certificate.len() > 8_000);
    crate::support::trust_in(
        certificate,
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap(),
    )
}

#[test]
fn windows_shrink_when_their_budget_runs_low() {
    let mut bench =
        Bench::new(1, &limited(|limits| limits.with_window_budget_bytes(64 << 20)), reader);
    let _held: Vec<_> = (0..8).map(|_| bench.connect(Protocol::Http3)).collect();
    assert!(bench.count(|stats| stats.windows_reduced.value()) > 0);
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let connection = bench.connect(protocol);
        let request = Request::post("https://localhost/").body(vec![7; 3 << 20].into()).unwrap();
        let outcome = start(&bench, connection, request);
        assert_eq!(
            status_of(&mut bench, &outcome),
            Ok(StatusCode::OK),
            "{protocol}: a small window still carries all"
        );
    }
}
