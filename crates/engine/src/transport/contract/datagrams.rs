//! Datagrams: they arrive unchanged or not at all, and the queue is limited.

use std::time::Duration;

use bytes::Bytes;

use super::pair::content;
use super::{End, Limits, Pair, Subject};
use crate::simulation::network::NetworkConditions;
use crate::transport::{ConnectionKey, DatagramWrite, Dir, Event, Transport};

fn with_datagrams() -> Limits {
    Limits { datagram_bytes: Some(20_000), ..Limits::default() }
}

fn take_datagrams<T: Transport>(end: &mut End<T>, key: ConnectionKey) -> Vec<Bytes> {
    let take = || {
        end.take(
            key,
            |event| if let Event::Datagram(data) = event { Some(data.clone()) } else { None },
        )
    };
    std::iter::from_fn(take).collect()
}

pub(super) fn datagrams_arrive_as_they_were_sent<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&with_datagrams());
    let largest =
        pair.client.transport.datagram_size(client).expect("both sides support datagrams");
    assert!(largest > 1100, "{largest}");
    let sent = [0, 1, 100, largest].map(|size| Bytes::from(content(size)));
    for data in &sent {
        assert_eq!(pair.client.transport.send_datagram(client, data.clone()), DatagramWrite::Done);
    }
    assert_eq!(
        pair.client.transport.send_datagram(client, content(largest + 1).into()),
        DatagramWrite::Refused
    );
    pair.run_for(Duration::from_millis(100));
    assert_eq!(take_datagrams(&mut pair.server, server), sent);
    assert_eq!(
        pair.server.transport.send_datagram(server, Bytes::from_static(b"back")),
        DatagramWrite::Done
    );
    pair.run_for(Duration::from_millis(100));
    assert_eq!(take_datagrams(&mut pair.client, client), [&b"back"[..]]);
}

pub(super) fn datagrams_wait_up_to_a_bound<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&with_datagrams());
    let datagram = |number: usize| Bytes::from(vec![number as u8; 1000]);
    let mut taken = 0;
    let rest = loop {
        match pair.client.transport.send_datagram(client, datagram(taken)) {
            DatagramWrite::Done => taken += 1,
            DatagramWrite::Blocked(data) => break data,
            DatagramWrite::Refused => panic!("refused after {taken}"),
        }
    };
    assert!((15..=20).contains(&taken), "{taken}");
    assert_eq!(rest, datagram(taken));
    pair.run_until(|pair| {
        pair.client
            .take(client, |event| matches!(event, Event::DatagramsWritable).then_some(()))
            .is_some()
    });
    assert_eq!(pair.client.transport.send_datagram(client, rest), DatagramWrite::Done);
    pair.run_for(Duration::from_secs(1));
    let expected: Vec<_> = (0..=taken).map(datagram).collect();
    assert_eq!(take_datagrams(&mut pair.server, server), expected);
}

/// The connection's window is for streams, and grows when handlers do not read them.
pub(super) fn datagrams_open_no_window<S: Subject>() {
    let limits = Limits { connection_window_bytes: 16 << 20, ..with_datagrams() };
    let window = |datagrams: usize| {
        let (mut pair, client, server) = Pair::<S>::connected(&limits);
        for _ in 0..datagrams {
            pair.client.transport.send_datagram(client, content(1_100).into());
            pair.run_for(Duration::from_millis(1));
            take_datagrams(&mut pair.server, server);
        }
        pair.client.transport.close(pair.now, client, 0, "");
        pair.run_until(|pair| pair.server.take_closed(server).is_some());
        pair.server.transport.take_windows(server).expect("the connection is closed").receive
    };
    assert_eq!(window(3_000), window(0));
}

pub(super) fn lost_datagram_is_not_repeated<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&with_datagrams());
    let calm = NetworkConditions::calm(Duration::from_millis(10));
    pair.change_weather(NetworkConditions { loss: 1.0, ..calm.clone() });
    pair.client.transport.send_datagram(client, Bytes::from_static(b"lost"));
    pair.exchange();
    pair.change_weather(calm);
    pair.client.transport.send_datagram(client, Bytes::from_static(b"found"));
    pair.run_for(Duration::from_secs(20));
    assert_eq!(take_datagrams(&mut pair.server, server), [&b"found"[..]]);
}

pub(super) fn datagrams_are_refused_unless_both_sides_take_them<S: Subject>() {
    let calm = NetworkConditions::calm(Duration::from_millis(10));
    for (client, server) in [(None, Some(20_000)), (Some(20_000), None), (None, None)] {
        let limits = |datagram_bytes| Limits { datagram_bytes, ..Limits::default() };
        let mut pair = Pair::<S>::over(calm.clone(), &limits(client), &limits(server));
        let keys = pair.connect();
        for (end, key) in [(&mut pair.client, keys.0), (&mut pair.server, keys.1)] {
            assert_eq!(end.transport.datagram_size(key), None);
            assert_eq!(
                end.transport.send_datagram(key, Bytes::from_static(b"no")),
                DatagramWrite::Refused
            );
        }
    }
}

pub(super) fn peer_may_open_more_streams_once_it_is_allowed<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let open_all = |end: &mut End<S::Transport>, key, dir| {
        std::iter::from_fn(|| end.transport.open(key, dir)).count() as u64
    };
    for dir in [Dir::Bidi, Dir::Uni] {
        let first = open_all(&mut pair.server, server, dir);
        pair.client.transport.allow_streams(client, dir, first + 20);
        pair.client.transport.allow_streams(client, dir, first);
        pair.run_for(Duration::from_millis(100));
        assert_eq!(open_all(&mut pair.server, server, dir), 20, "{dir:?}");
    }
}
