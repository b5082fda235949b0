//! A server that is killed and restarted with the same secret.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use http::StatusCode;
use pronghorn_engine::{Config, Group, Limits, Protocol, Resumption, Secret, Target};

use crate::support::{Bench, fetch, get, hello, trust};

/// Makes every client without a token validate its address.
fn wary() -> Config {
    Config { limits: Limits::default().with_open_handshakes(0).unwrap(), ..Config::default() }
}

/// Drops the servers without notifying their clients, and starts others in their place.
fn restart(bench: &mut Bench, workers: usize, secret: &Secret, config: &Config) {
    bench.restart_as(&Group::with_secret(workers, secret), config, hello);
}

#[test]
fn connection_to_a_server_that_was_restarted_ends_at_once() {
    for workers in [1, 3] {
        let (secret, trust) = (Secret::random(), trust());
        let mut bench = Bench::with_group(
            &Group::with_secret(workers, &secret),
            &trust,
            &Config::default(),
            hello,
        );
        let mut connection = bench.connect(Protocol::Http3);
        let mut connection = bench.run(async move {
            fetch(&mut connection, get("/")).await.unwrap();
            connection
        });
        restart(&mut bench, workers, &secret, &Config::default());
        let before = bench.now();
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert!(
            answer.as_ref().is_err_and(|error| error.contains("stateless reset")),
            "{workers} workers: {answer:?}"
        );
        assert_eq!(bench.count(|stats| stats.stateless_resets_sent.value()), 1);
        assert!(
            bench.now() - before < Duration::from_secs(30),
            "not by the idle timeout: no time was skipped"
        );
    }
}

#[test]
fn server_whose_secret_was_rotated_ends_connections_of_the_earlier_one() {
    for workers in [1, 3] {
        let (earlier, trust) = (Secret::random(), trust());
        let group = Group::with_secrets(workers, &earlier, &[], "a node");
        let mut bench = Bench::with_group(&group, &trust, &Config::default(), hello);
        let mut connection = bench.connect(Protocol::Http3);
        let rotated = Group::with_secrets(workers, &Secret::random(), &[earlier], "a node");
        bench.restart_as(&rotated, &Config::default(), hello);
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert!(
            answer.as_ref().is_err_and(|error| error.contains("stateless reset")),
            "{workers} workers: {answer:?}"
        );
    }
}

#[test]
fn tokens_of_earlier_secrets_are_taken_until_they_are_removed() {
    for is_removed in [false, true] {
        let (earlier, present, trust) = (Secret::random(), Secret::random(), trust());
        let group = Group::with_secrets(1, &earlier, &[], "one node");
        let mut bench = Bench::with_group(&group, &trust, &Config::default(), hello);
        let mut connection = bench.connect(Protocol::Http3);
        assert!(bench.run(async move { fetch(&mut connection, get("/")).await }).is_ok());
        let other = Group::with_secrets(1, &present, &[earlier], "another node");
        if is_removed {
            other.set_token_secrets(&present, &[]);
        }
        bench.restart_as(&other, &wary(), hello);
        let _connection = bench.connect(Protocol::Http3);
        let counts = |bench: &Bench| {
            let accepted = bench.count(|stats| stats.tokens_accepted.value());
            (accepted, bench.count(|stats| stats.quic_retries_sent.value()) > 0)
        };
        assert_eq!(counts(&bench), if is_removed { (0, true) } else { (1, false) });
    }
}

#[test]
fn server_with_another_secret_cannot_end_a_connection() {
    stays_open(&Group::new(1), &Group::new(1));
}

/// The stateless reset of a machine must not end a living connection of another one, whose packet
/// has come to it.
#[test]
fn another_machine_with_the_same_secret_cannot_end_a_connection() {
    let secret = Secret::random();
    let group = |node| Group::with_secrets(1, &secret, &[], node);
    stays_open(&group("one node"), &group("another node"));
}

/// Checks that a client of the one group is not disconnected by the other.
fn stays_open(one: &Group, other: &Group) {
    let trust = trust();
    let mut bench = Bench::with_group(one, &trust, &Config::default(), hello);
    let mut connection = bench.connect(Protocol::Http3);
    bench.restart_as(other, &Config::default(), hello);
    let ended = std::rc::Rc::new(std::cell::RefCell::new(None));
    let slot = ended.clone();
    bench.client.handle().spawn(async move {
        let answer = fetch(&mut connection, get("/")).await;
        *slot.borrow_mut() = Some(answer);
    });
    for _ in 0..10 {
        bench.skip(Duration::from_secs(1));
        for _ in 0..5 {
            bench.turn();
        }
        assert!(ended.borrow().is_none());
    }
    bench.skip(Duration::from_secs(60));
    bench.turn_until(|_| ended.borrow().is_some());
    let answer = ended.take().unwrap();
    assert!(
        answer.as_ref().is_err_and(|error| error.contains("nothing received from the peer")),
        "{answer:?}"
    );
}

#[test]
fn token_of_the_server_before_proves_the_address_once() {
    let (secret, trust) = (Secret::random(), trust());
    let mut bench =
        Bench::with_group(&Group::with_secret(2, &secret), &trust, &Config::default(), hello);
    let mut connection = bench.connect(Protocol::Http3);
    assert!(bench.run(async move { fetch(&mut connection, get("/")).await }).is_ok());
    restart(&mut bench, 2, &secret, &wary());
    let mut connection = bench.connect(Protocol::Http3);
    assert_eq!(
        bench.run(async move { fetch(&mut connection, get("/")).await }),
        Ok((StatusCode::OK, "hello".into()))
    );
    assert_eq!(bench.count(|stats| stats.tokens_accepted.value()), 1);
    assert_eq!(bench.count(|stats| stats.quic_retries_sent.value()), 0);
}

#[test]
fn token_of_a_server_with_another_secret_proves_nothing() {
    let trust = trust();
    let mut bench = Bench::with_group(
        &Group::with_secret(1, &Secret::random()),
        &trust,
        &Config::default(),
        hello,
    );
    let mut connection = bench.connect(Protocol::Http3);
    assert!(bench.run(async move { fetch(&mut connection, get("/")).await }).is_ok());
    restart(&mut bench, 1, &Secret::random(), &wary());
    let _connection = bench.connect(Protocol::Http3);
    assert_eq!(bench.count(|stats| stats.tokens_accepted.value()), 0);
    assert!(bench.count(|stats| stats.quic_retries_sent.value()) > 0);
}

fn to(remote: SocketAddr) -> Target {
    Target {
        remote,
        server_name: "localhost".to_owned(),
        protocol: Some(Protocol::Http3),
        secure: true,
        resumption: Resumption::default(),
    }
}

/// A client's flight that is replayed from its own address: its token validates that address only
/// once.
#[test]
fn replayed_token_proves_nothing() {
    let (secret, trust) = (Secret::random(), trust());
    let mut bench =
        Bench::with_group(&Group::with_secret(1, &secret), &trust, &Config::default(), hello);
    // Everything passes through this socket, so that the server sees one address for all.
    let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
    for socket in [&inside, &outside] {
        socket.set_nonblocking(true).unwrap();
    }
    let relay = inside.local_addr().unwrap();
    let first_flights = std::cell::RefCell::new(Vec::new());
    let pass = |bench: &mut Bench, client: &mut Option<std::net::SocketAddr>| {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, from)) = inside.recv_from(&mut buffer) {
            *client = Some(from);
            // The long header of an Initial packet with a token (RFC 9000, section 17.2.2).
            let (dcid, scid) =
                (usize::from(buffer[5]), usize::from(buffer[6 + usize::from(buffer[5])]));
            if buffer[0] & 0xf0 == 0xc0 && buffer[7 + dcid + scid] != 0 {
                first_flights.borrow_mut().push(buffer[..length].to_vec());
            }
            outside.send_to(&buffer[..length], bench.address).unwrap();
        }
        while let Ok(length) = outside.recv(&mut buffer) {
            inside.send_to(&buffer[..length], client.unwrap()).unwrap();
        }
        bench.turn();
    };
    let mut client = None;
    for _ in 0..2 {
        let connector = bench.connector.clone();
        let target = to(relay);
        let done = std::rc::Rc::new(std::cell::Cell::new(false));
        let mark = done.clone();
        bench.client.handle().spawn(async move {
            let mut connection = connector.connect(&target).await.unwrap();
            assert!(fetch(&mut connection, get("/")).await.is_ok());
            mark.set(true);
        });
        while !done.get() {
            pass(&mut bench, &mut client);
        }
    }
    assert_eq!(
        bench.count(|stats| stats.tokens_accepted.value()),
        1,
        "the second connection brought a token of the first"
    );
    bench.skip(Duration::from_secs(60));
    for _ in 0..10 {
        bench.turn();
    }
    let replayed = first_flights.borrow()[0].clone();
    for count in 1..4 {
        outside.send_to(&replayed, bench.address).unwrap();
        bench.turn_until(|bench| bench.count(|stats| stats.tokens_refused.value()) >= count);
        bench.skip(Duration::from_secs(60));
        for _ in 0..10 {
            bench.turn();
        }
    }
    assert_eq!(bench.count(|stats| stats.tokens_accepted.value()), 1);
}

#[test]
fn stateless_resets_are_few_and_smaller_than_what_asks_for_them() {
    let (secret, trust) = (Secret::random(), trust());
    let mut bench =
        Bench::with_group(&Group::with_secret(1, &secret), &trust, &Config::default(), hello);
    // A packet of a connection of an earlier server: with one worker, one in 256 connection IDs has
    // its form.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut answers = Vec::new();
    let mut buffer = vec![0; 2_048];
    for number in 0..20_000_u32 {
        let mut packet = vec![0x40];
        packet.extend(number.to_be_bytes());
        packet.resize(60, 7);
        socket.send_to(&packet, bench.address).unwrap();
        if number % 64 == 0 {
            bench.turn();
            while let Ok(length) = socket.recv(&mut buffer) {
                answers.push(length);
            }
        }
    }
    for _ in 0..20 {
        bench.turn();
    }
    while let Ok(length) = socket.recv(&mut buffer) {
        answers.push(length);
    }
    let (sent, withheld) = (
        bench.count(|stats| stats.stateless_resets_sent.value()),
        bench.count(|stats| stats.stateless_resets_withheld.value()),
    );
    assert_eq!(answers.len() as u64, sent);
    assert!(sent > 0 && withheld > 0, "{sent} sent, {withheld} withheld");
    let seconds = bench.elapsed().as_secs_f64();
    assert!(sent as f64 <= 1.0 + 50.0 * seconds, "{sent} in {seconds} seconds");
    assert!(answers.iter().all(|length| *length < 60), "{answers:?}");
}
