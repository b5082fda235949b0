//! Connections: their beginning, and all kinds of ends.

use std::time::Duration;

use super::pair::{client_address, content};
use super::{Limits, Pair, Subject};
use crate::simulation::network::NetworkConditions;
use crate::transport::{Closed, Datagram, Dir, Event, Read, Transport, Write, steer};

fn dead() -> NetworkConditions {
    NetworkConditions { loss: 1.0, ..NetworkConditions::calm(Duration::from_millis(10)) }
}

pub(super) fn handshake_is_told_on_both_sides_and_once<S: Subject>() {
    let mut pair = Pair::<S>::new(&Limits::default());
    let key = pair.begin_connecting();
    pair.run_for(Duration::from_secs(1));
    let Some(handshake) = pair.client.take(key, |event| {
        if let Event::Connected { handshake, .. } = event { Some(*handshake) } else { None }
    }) else {
        panic!("the client was not notified: {:?}", pair.client.events)
    };
    assert!((20..200).contains(&handshake.as_millis()), "{handshake:?} over a network of 10 ms");
    let events: Vec<_> =
        pair.server.events.iter().filter(|(_, event)| !matches!(event, Event::Available)).collect();
    let [
        (first, Event::Accepted { remote }),
        (agreed, Event::Agreed(_)),
        (named, Event::ServerName(name)),
        (second, Event::Connected { .. }),
    ] = events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(agreed, second);
    assert_eq!((first, *remote), (second, client_address()));
    assert_eq!((named, &**name), (second, "localhost"));
    assert!(
        pair.client.events.iter().all(|(_, event)| matches!(event, Event::Available)),
        "{:?}",
        pair.client.events
    );
}

/// For any lost part of the server's flight. Without the ServerHello, the client can neither
/// decrypt nor acknowledge the rest.
pub(super) fn handshake_survives_the_loss_of_any_of_its_packets<S: Subject>() {
    for from in 0..10 {
        for count in 1..10 {
            let mut pair = Pair::<S>::new(&Limits::default());
            pair.lost = from..from + count;
            pair.connect();
        }
    }
}

pub(super) fn close_tells_the_peer_code_and_reason<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    pair.run_for(Duration::from_secs(1));
    let sent = pair.server.sent;
    pair.client.transport.close(pair.now, client, 0x107, "enough");
    pair.client.transport.close(pair.now, client, 0x108, "again");
    pair.run_for(Duration::from_secs(60));
    assert_eq!(
        pair.server.take_closed(server),
        Some(Closed::ByPeer { code: 0x107, reason: "enough".to_owned() })
    );
    assert_eq!(pair.client.take_closed(client), Some(Closed::Locally));
    assert_eq!(
        (pair.client.take_closed(client), pair.server.take_closed(server)),
        (None, None),
        "reported twice"
    );
    assert_eq!(pair.server.sent, sent, "nothing may be sent on a closed connection");
    // No timer is left that would wake a worker.
    assert_eq!(
        (pair.client.transport.poll_timeout(), pair.server.transport.poll_timeout()),
        (None, None)
    );
}

pub(super) fn close_is_told_although_the_window_is_full<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.server.open(server, Dir::Uni);
    pair.server.write_up_to(server, stream, 90_000);
    pair.exchange();
    pair.server.transport.close(pair.now, server, 1, "");
    pair.run_for(Duration::from_millis(11));
    assert_eq!(
        pair.client.take_closed(client),
        Some(Closed::ByPeer { code: 1, reason: String::new() })
    );
}

pub(super) fn key_of_closed_connection_is_invalid<S: Subject>() {
    let (mut pair, client, _) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.transport.close(pair.now, client, 0, "");
    pair.run_for(Duration::from_secs(60));
    pair.client.events.clear();
    let sent = pair.client.sent;
    assert_eq!(pair.client.transport.open(client, Dir::Bidi), None);
    assert_eq!(pair.client.read(client, stream).1, Read::Gone);
    assert_eq!(pair.client.write_up_to(client, stream, 10), (0, Write::Stopped));
    pair.client.finish(client, stream);
    assert!(!pair.client.transport.reset(client, stream, 0));
    pair.client.transport.stop(client, stream, 0);
    pair.client.transport.close(pair.now, client, 0, "");
    pair.exchange();
    assert!(pair.client.events.is_empty(), "{:?}", pair.client.events);
    assert_eq!(pair.client.sent, sent);
}

/// The peer knows that the data has arrived.
pub(super) fn received_data_is_readable_at_close_event<S: Subject>() {
    for is_closed in [true, false] {
        let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
        let stream = pair.client.open(client, Dir::Bidi);
        pair.client.write_up_to(client, stream, 50_000);
        pair.client.finish(client, stream);
        pair.run_for(Duration::from_secs(1));
        assert!(pair.server.transport.take_windows(server).is_none(), "more data may arrive");
        pair.server.last_stream = Some(stream);
        if is_closed {
            pair.client.transport.close(pair.now, client, 0, "");
        } else {
            // Nothing wakes the server until the connection is gone.
            pair.change_weather(dead());
        }
        pair.run_for(Duration::from_secs(60));
        assert!(pair.server.take_closed(server).is_some());
        let (received, read) = pair.server.last_read.take().unwrap();
        assert!(
            received == content(50_000) && read == Read::Finished,
            "closed: {is_closed}, {} bytes, {read:?}",
            received.len()
        );
        assert_eq!(pair.server.read(server, stream).1, Read::Gone);
        assert!(pair.server.transport.take_windows(server).is_none());
    }
}

pub(super) fn key_is_not_given_to_another_connection<S: Subject>() {
    let (mut pair, first, _) = Pair::<S>::connected(&Limits::default());
    pair.client.transport.close(pair.now, first, 0, "");
    pair.run_for(Duration::from_secs(60));
    let (second, server) = pair.connect();
    assert_ne!(first, second);
    // Packets for the first connection do not reach the second.
    pair.client.transport.close(pair.now, first, 0, "");
    pair.run_for(Duration::from_secs(1));
    assert_eq!((pair.client.take_closed(second), pair.server.take_closed(server)), (None, None));
}

pub(super) fn silent_peer_is_given_up_after_the_idle_timeout<S: Subject>() {
    let (mut pair, client, server) =
        Pair::<S>::connected(&Limits { idle_timeout: Duration::from_secs(8), ..Limits::default() });
    pair.run_for(Duration::from_secs(1));
    pair.change_weather(dead());
    pair.run_for(Duration::from_secs(6));
    assert_eq!(
        (pair.client.take_closed(client), pair.server.take_closed(server)),
        (None, None),
        "too early"
    );
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.client.take_closed(client), Some(Closed::TimedOut));
    assert_eq!(pair.server.take_closed(server), Some(Closed::TimedOut));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(
        (pair.client.transport.poll_timeout(), pair.server.transport.poll_timeout()),
        (None, None)
    );
}

pub(super) fn client_learns_the_idle_timeout_of_its_server<S: Subject>() {
    let server = Limits { idle_timeout: Duration::from_millis(8_250), ..Limits::default() };
    let mut pair = Pair::<S>::over(
        NetworkConditions::calm(Duration::from_millis(10)),
        &Limits::default(),
        &server,
    );
    let key = pair.begin_connecting();
    let mut learnt = None;
    pair.run_until(|pair| {
        learnt = pair.client.take(key, |event| {
            if let Event::Connected { idle_timeout, .. } = event {
                Some(*idle_timeout)
            } else {
                None
            }
        });
        learnt.is_some()
    });
    assert_eq!(learnt, Some(Some(Duration::from_millis(8_250))));
}

pub(super) fn connection_of_a_server_that_restarted_is_reset<S: Subject>() {
    let (mut pair, client, _) = Pair::<S>::connected(&Limits::default());
    pair.run_for(Duration::from_secs(1));
    pair.server.transport = pair.subject.server(&Limits::default(), 0);
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, stream, 100);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.client.take_closed(client), Some(Closed::Reset));
}

pub(super) fn client_is_told_that_no_new_connection_is_taken<S: Subject>() {
    let (mut pair, first, server) = Pair::<S>::connected(&Limits::default());
    pair.server.transport.refuse_new();
    pair.server.events.clear();
    let second = pair.begin_connecting();
    pair.run_for(Duration::from_secs(1));
    assert!(
        matches!(pair.client.take_closed(second), Some(Closed::Transport(_))),
        "{:?}",
        pair.client.events
    );
    assert!(!pair.server.events.iter().any(|(_, event)| matches!(event, Event::Accepted { .. })));
    // Existing connections are unaffected.
    let stream = pair.client.open(first, Dir::Bidi);
    assert_eq!(pair.upload((first, server), stream, b"hello"), b"hello");
}

pub(super) fn connections_over_the_limit_are_refused<S: Subject>() {
    let (mut pair, first, server) =
        Pair::<S>::connected(&Limits { connections: 1, ..Limits::default() });
    let second = pair.begin_connecting();
    pair.run_for(Duration::from_secs(1));
    assert!(
        matches!(pair.client.take_closed(second), Some(Closed::Transport(_))),
        "{:?}",
        pair.client.events
    );
    pair.client.transport.close(pair.now, first, 0, "");
    pair.run_for(Duration::from_secs(5));
    assert!(pair.server.take_closed(server).is_some());
    pair.connect();
}

pub(super) fn client_proves_its_address_when_handshakes_pile_up<S: Subject>() {
    let mut pair = Pair::<S>::new(&Limits { open_handshakes: 0, ..Limits::default() });
    let key = pair.begin_connecting();
    pair.run_until(|pair| {
        pair.client
            .take(key, |event| matches!(event, Event::Connected { .. }).then_some(()))
            .is_some()
    });
    // One round trip for the token, one for the handshake.
    assert_eq!((pair.now - pair.began).as_millis(), 40);
    // No state is kept for an unvalidated address.
    let mut flood = Pair::<S>::new(&Limits { open_handshakes: 0, ..Limits::default() });
    flood.begin_connecting();
    flood.exchange();
    let initial = flood.client.last_sent.clone();
    flood.send_from_stranger(&initial);
    flood.exchange();
    assert!(flood.server.events.is_empty() && flood.server.transport.poll_timeout().is_none());
    assert_eq!(flood.server.sent, 1);
}

pub(super) fn foreign_datagrams_leave_nothing_behind<S: Subject>() {
    let mut pair = Pair::<S>::new(&Limits::default());
    for length in 0..1500 {
        for first in [0x00, 0x40, 0xc0, 0xe0, 0xff] {
            let mut data = content(length);
            data.splice(..length.min(1), [first].into_iter().take(length.min(1)));
            pair.send_from_stranger(&data);
        }
        pair.exchange();
    }
    assert!(pair.server.events.is_empty(), "{:?}", pair.server.events);
    assert_eq!(pair.server.transport.poll_timeout(), None);
}

pub(super) fn answers_to_foreign_datagrams_are_bounded<S: Subject>() {
    let mut pair = Pair::<S>::new(&Limits::default());
    let mut version_7 = content(1200);
    version_7[..6].copy_from_slice(&[0xc0, 0, 0, 0, 7, 8]);
    for _ in 0..10_000 {
        pair.send_from_stranger(&version_7);
    }
    pair.exchange();
    assert!((1..=300).contains(&pair.server.sent), "{} answers to a flood", pair.server.sent);
}

pub(super) fn unknown_version_is_answered_with_the_known_one<S: Subject>() {
    let mut pair = Pair::<S>::new(&Limits::default());
    let mut data = content(1200);
    // Two connection IDs of one byte each.
    data[..9].copy_from_slice(&[0xc0, 0, 0, 0, 7, 1, 0xaa, 1, 0xbb]);
    pair.send_from_stranger(&data);
    pair.exchange();
    let answer = &pair.server.last_sent;
    assert!(answer[0] & 0x80 != 0 && answer[1..9] == [0, 0, 0, 0, 1, 0xbb, 1, 0xaa], "{answer:x?}");
    assert!(answer[9..].chunks(4).any(|version| version == [0, 0, 0, 1]), "{answer:x?}");
}

pub(super) fn packets_name_the_worker_that_issued_their_connection_id<S: Subject>() {
    let mut pair = Pair::<S>::new(&Limits::default());
    pair.server.transport = pair.subject.server(&Limits::default(), 5);
    let (client, server) = pair.connect();
    let ids = pair.subject.ids().clone();
    let stream = pair.client.open(client, Dir::Bidi);
    for _ in 0..5 {
        pair.client.write_up_to(client, stream, 100);
        pair.exchange();
        assert_eq!(steer(&ids, &pair.client.last_sent), Some(5));
        pair.run_for(Duration::from_millis(100));
        pair.server.read_to(server, stream, &mut Vec::new());
    }
}

/// If the clock is checked only after several probe timeouts, just one of them sends probes.
pub(super) fn late_timeout_sends_no_burst<S: Subject>() {
    let mut pair = Pair::<S>::over(dead(), &Limits::default(), &Limits::default());
    pair.begin_connecting();
    pair.exchange();
    let first_flight = pair.client.sent;
    pair.sleep(Duration::from_secs(20));
    pair.client.transport.handle_timeout(pair.now);
    pair.exchange();
    let probes = pair.client.sent - first_flight;
    assert!((1..=2).contains(&probes), "{probes} probes at once");
}

/// Each packet sets a loss timer. As nearly all are acknowledged in time, these must not cost a
/// wake-up each.
pub(super) fn postponed_deadline_causes_no_wakeup<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    pair.run_for(Duration::from_secs(1));
    let stream = pair.server.open(server, Dir::Uni);
    pair.server.write_up_to(server, stream, 100);
    pair.server.finish(server, stream);
    pair.run_until(|pair| {
        pair.server
            .take(server, |event| matches!(event, Event::Acknowledged(_)).then_some(()))
            .is_some()
    });
    assert_eq!(pair.client.read_count(client, stream), 100);
    let next = pair.server.transport.poll_timeout().map(|deadline| deadline - pair.now);
    assert!(next.is_none_or(|wait| wait > Duration::from_secs(1)), "{next:?}");
}

pub(super) fn connection_survives_a_new_port<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    pair.run_for(Duration::from_secs(1));
    pair.change_weather(NetworkConditions {
        rebinds: vec![Duration::from_secs(1)],
        ..NetworkConditions::calm(Duration::from_millis(10))
    });
    let stream = pair.client.open(client, Dir::Bidi);
    let sent = content(300_000);
    assert!(pair.upload((client, server), stream, &sent) == sent);
    assert_eq!((pair.client.take_closed(client), pair.server.take_closed(server)), (None, None));
}

pub(super) fn transmits_keep_to_their_segments<S: Subject>() {
    let (mut pair, _, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.server.open(server, Dir::Uni);
    pair.server.write_up_to(server, stream, 90_000);
    for segments in [1, 2, 7] {
        let mut buffer = Vec::new();
        let transmit = pair
            .server
            .transport
            .poll_transmit(pair.now, segments, &mut buffer)
            .expect("a large backlog");
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        assert!(
            transmit.size.div_ceil(segment) <= segments && segment <= 1500,
            "{transmit:?} with {segments} segments"
        );
        assert!(buffer.len() >= transmit.size);
        assert_eq!(transmit.remote, client_address());
    }
}

/// By flipped bits, or by an attacker that saw a packet: a Retry is not authenticated by a secret.
pub(super) fn handshake_survives_a_forged_retry<S: Subject>() {
    let mut pair = Pair::<S>::new(&Limits::default());
    let client = pair.begin_connecting();
    pair.exchange();
    let first = pair.client.last_sent.clone();
    // The first datagram with the connection ID that the server has chosen, in front of the
    // original one.
    let id = |datagram: &[u8]| datagram[5..=5 + usize::from(datagram[5])].to_vec();
    pair.run_until(|pair| id(&pair.client.last_sent) != id(&first));
    let mut forged = pair.client.last_sent.clone();
    forged[0] |= 0x30;
    let datagram = Datagram {
        remote: client_address(),
        local_ip: None,
        ecn: None,
        data: forged.as_slice().into(),
    };
    pair.server.transport.handle_datagram(pair.now, datagram);
    pair.run_until(|pair| {
        pair.client
            .take(client, |event| matches!(event, Event::Connected { .. }).then_some(()))
            .is_some()
    });
    pair.run_for(Duration::from_secs(1));
    assert!(pair.client.take_closed(client).is_none());
}
