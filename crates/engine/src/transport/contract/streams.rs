//! Streams: written data arrives, unread data holds back the writer, and every end is reported.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_h3::{Priority, StreamId};

use super::pair::content;
use super::{End, Limits, Pair, Subject};
use crate::simulation::network::NetworkConditions;
use crate::transport::{ConnectionKey, Dir, Event, Order, Read, Transport, Write};

pub(super) fn bytes_arrive_whole_and_in_order<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    for size in [0, 1, 1000, 100_000, 1_000_000] {
        let stream = pair.client.open(client, Dir::Bidi);
        let sent = content(size);
        assert!(pair.upload((client, server), stream, &sent) == sent, "{size} bytes");
    }
}

pub(super) fn bytes_arrive_whole_over_a_bad_network<S: Subject>() {
    let bad = NetworkConditions {
        jitter: Duration::from_millis(20),
        loss: 0.1,
        duplication: 0.1,
        corruption: 0.05,
        ..NetworkConditions::calm(Duration::from_millis(10))
    };
    let mut pair = Pair::<S>::over(bad, &Limits::default(), &Limits::default());
    let (client, server) = pair.connect();
    let stream = pair.client.open(client, Dir::Bidi);
    let sent = content(200_000);
    assert!(pair.upload((client, server), stream, &sent) == sent);
}

/// RFC 9000, section 2.1.
pub(super) fn streams_are_numbered_as_quic_says<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let numbers = |end: &mut End<S::Transport>, key| {
        [Dir::Bidi, Dir::Uni, Dir::Bidi, Dir::Uni].map(|dir| end.open(key, dir).0)
    };
    assert_eq!(numbers(&mut pair.client, client), [0, 2, 4, 6]);
    assert_eq!(numbers(&mut pair.server, server), [1, 3, 5, 7]);
}

pub(super) fn unread_stream_holds_the_writer_back<S: Subject>() {
    let (mut pair, client, server) =
        Pair::<S>::connected(&Limits { stream_window_bytes: 20_000, ..Limits::default() });
    let stream = pair.client.open(client, Dir::Bidi);
    let mut chunks = VecDeque::from([Bytes::from(content(100_000))]);
    let mut written = 0;
    // Without a reader, writing stops at the window.
    pair.client.events.clear();
    assert_eq!(
        pair.client.transport.write(client, stream, &mut chunks, usize::MAX, false, None),
        Write::Blocked
    );
    pair.run_for(Duration::from_secs(5));
    assert_eq!(
        pair.client.take(client, |event| matches!(event, Event::Writable(_)).then_some(())),
        None,
        "writable though nothing was read"
    );
    written += 100_000 - chunks.iter().map(Bytes::len).sum::<usize>();
    assert_eq!(written, 20_000);
    // With a reader it continues, after an event each time.
    let mut received = Vec::new();
    while !chunks.is_empty() {
        pair.run_until(|pair| {
            pair.server.read_to(server, stream, &mut received);
            pair.client
                .take(client, |event| {
                    matches!(event, Event::Writable(id) if *id == stream).then_some(())
                })
                .is_some()
        });
        pair.client.transport.write(client, stream, &mut chunks, usize::MAX, false, None);
    }
    pair.client.finish(client, stream);
    pair.run_until(|pair| pair.server.read_to(server, stream, &mut received));
    assert!(received == content(100_000));
}

pub(super) fn unacknowledged_bytes_are_bounded<S: Subject>() {
    let limits =
        Limits { send_window_bytes: 30_000, stream_window_bytes: 1_000_000, ..Limits::default() };
    let (mut pair, client, _) = Pair::<S>::connected(&limits);
    pair.change_weather(NetworkConditions {
        loss: 1.0,
        ..NetworkConditions::calm(Duration::from_millis(10))
    });
    let mut taken = 0;
    for _ in 0..5 {
        let stream = pair.client.open(client, Dir::Bidi);
        taken += pair.client.write_up_to(client, stream, 100_000).0;
        pair.run_for(Duration::from_millis(500));
    }
    assert_eq!(taken, 30_000);
}

pub(super) fn full_connection_is_told_from_a_shut_stream<S: Subject>() {
    let limits =
        Limits { send_window_bytes: 30_000, stream_window_bytes: 20_000, ..Limits::default() };
    let (mut pair, client, _) = Pair::<S>::connected(&limits);
    let [first, second] = [(); 2].map(|()| pair.client.open(client, Dir::Bidi));
    let own = pair.client.open(client, Dir::Control);
    // The data is acknowledged but not read, so the window stays closed.
    pair.client.write_up_to(client, first, 100_000);
    pair.run_for(Duration::from_secs(1));
    assert!(!pair.client.transport.is_full(client, own));
    pair.change_weather(NetworkConditions {
        loss: 1.0,
        ..NetworkConditions::calm(Duration::from_millis(10))
    });
    for stream in [second, pair.client.open(client, Dir::Bidi)] {
        pair.client.write_up_to(client, stream, 100_000);
    }
    assert!(pair.client.transport.is_full(client, own));
}

pub(super) fn acknowledged_bytes_are_counted<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let before = pair.client.transport.acknowledged(client);
    let stream = pair.client.open(client, Dir::Bidi);
    pair.upload((client, server), stream, &content(50_000));
    pair.run_for(Duration::from_secs(1));
    let after = pair.client.transport.acknowledged(client);
    assert!((50_000..60_000).contains(&(after - before)), "{before}, then {after}");
    pair.change_weather(NetworkConditions {
        loss: 1.0,
        ..NetworkConditions::calm(Duration::from_millis(10))
    });
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, stream, 50_000);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.transport.acknowledged(client), after);
}

/// Returns how long it takes both sides to send these sizes at the same time.
fn send_both_ways<S: Subject>(sizes: [usize; 2]) -> Duration {
    let (mut pair, client, server) =
        Pair::<S>::connected(&Limits { stream_window_bytes: 1_000_000, ..Limits::default() });
    let (up, down) = (pair.client.open(client, Dir::Uni), pair.server.open(server, Dir::Uni));
    let mut chunks = sizes.map(|size| VecDeque::from([Bytes::from(content(size))]));
    let (mut written, mut read, mut received) = ([false; 2], [false; 2], [Vec::new(), Vec::new()]);
    let began = pair.now;
    pair.run_until(|pair| {
        for (at, (end, key, stream)) in
            [(&mut pair.client, client, up), (&mut pair.server, server, down)]
                .into_iter()
                .enumerate()
        {
            if !written[at]
                && end.transport.write(key, stream, &mut chunks[at], usize::MAX, false, None)
                    == Write::Done
            {
                end.finish(key, stream);
                written[at] = true;
            }
        }
        read[0] |= pair.server.read_to(server, up, &mut received[0]);
        read[1] |= pair.client.read_to(client, down, &mut received[1]);
        read == [true; 2]
    });
    assert!(received == sizes.map(content));
    pair.now - began
}

/// RFC 9002, section 7: congestion control does not hold back acknowledgments.
pub(super) fn sides_that_both_send_acknowledge_in_time<S: Subject>() {
    let alone = send_both_ways::<S>([300_000, 0]);
    let both = send_both_ways::<S>([300_000, 300_000]);
    assert!(both < alone * 3 / 2, "{both:?} where one direction takes {alone:?}");
}

pub(super) fn blocked_read_is_followed_by_an_event<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    for round in 0..3 {
        pair.client.write_up_to(client, stream, 10);
        pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
        assert!(
            matches!(pair.server.read(server, stream), (data, Read::Blocked) if data.len() == 10),
            "round {round}"
        );
    }
    pair.client.finish(client, stream);
    pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
    assert_eq!(pair.server.read(server, stream).1, Read::Finished);
}

pub(super) fn read_goes_on_where_it_was_left<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, stream, 5000);
    pair.client.finish(client, stream);
    pair.run_for(Duration::from_secs(1));
    let mut first = 0;
    let left = pair.server.transport.read(server, stream, |data| {
        assert_eq!(first, 0, "a piece after the reader had stopped");
        first += data.len();
        false
    });
    assert!(left == Read::Left && first > 0 && first < 5000, "{left:?} after {first} bytes");
    assert!(
        matches!(pair.server.read(server, stream), (rest, Read::Finished) if first + rest.len() == 5000)
    );
    // The end is not read along with the last piece.
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, stream, 10);
    pair.client.finish(client, stream);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.transport.read(server, stream, |_| false), Read::Left);
    assert_eq!(pair.server.read(server, stream), (Vec::new(), Read::Finished));
}

pub(super) fn end_without_data_is_an_event<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    for dir in [Dir::Bidi, Dir::Uni] {
        let stream = pair.client.open(client, dir);
        pair.client.finish(client, stream);
        pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
        assert_eq!(pair.server.read(server, stream).1, Read::Finished);
    }
}

fn acknowledgements<T: Transport>(end: &mut End<T>, key: ConnectionKey) -> usize {
    std::iter::from_fn(|| {
        end.take(
            key,
            |event| if let Event::Acknowledged(streams) = event { Some(*streams) } else { None },
        )
    })
    .sum()
}

pub(super) fn each_finished_stream_is_acknowledged_once<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let streams = [0; 5].map(|_| pair.client.open(client, Dir::Bidi));
    for stream in streams {
        pair.client.write_up_to(client, stream, 5000);
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(
        acknowledgements(&mut pair.client, client),
        0,
        "acknowledged before it was finished"
    );
    for stream in &streams[..3] {
        pair.client.finish(client, *stream);
    }
    pair.exchange();
    assert_eq!(
        acknowledgements(&mut pair.client, client),
        0,
        "acknowledged before it can have arrived"
    );
    // It does not matter whether the peer's application has read the data.
    pair.run_for(Duration::from_secs(1));
    assert_eq!(acknowledgements(&mut pair.client, client), 3);
    for stream in streams {
        pair.server.read_to(server, stream, &mut Vec::new());
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(acknowledgements(&mut pair.client, client), 0, "acknowledged twice");
}

pub(super) fn reset_reaches_the_reader_and_ends_writing<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, stream, 100);
    pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
    assert_eq!(pair.server.read_count(server, stream), 100);
    assert!(pair.client.transport.reset(client, stream, 0x10c));
    assert!(!pair.client.transport.reset(client, stream, 0x10d), "reset twice");
    assert_eq!(pair.client.write_up_to(client, stream, 10), (0, Write::Stopped));
    pair.client.finish(client, stream);
    pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
    assert_eq!(pair.server.read(server, stream).1, Read::Reset(0x10c));
    assert_eq!(pair.server.read(server, stream).1, Read::Gone, "a reset is reported once");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(acknowledgements(&mut pair.client, client), 0);
    // The other direction is unaffected.
    assert_eq!(pair.server.write_up_to(server, stream, 10), (10, Write::Done));
}

pub(super) fn reset_after_the_end_prevents_its_acknowledgement<S: Subject>() {
    let (mut pair, client, _) = Pair::<S>::connected(&Limits::default());
    let [first, second] = [0; 2].map(|_| pair.client.open(client, Dir::Bidi));
    for stream in [first, second] {
        pair.client.write_up_to(client, stream, 50_000);
        pair.client.finish(client, stream);
    }
    assert!(pair.client.transport.reset(client, first, 1));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(acknowledgements(&mut pair.client, client), 1);
    assert!(!pair.client.transport.reset(client, second, 1), "there is nothing left to reset");
}

pub(super) fn stop_reaches_the_writer<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, stream, 100);
    pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
    pair.server.transport.stop(server, stream, 0x102);
    pair.run_until(|pair| {
        pair.client
            .take(client, |event| {
                matches!(event, Event::Stopped(id, 0x102) if *id == stream).then_some(())
            })
            .is_some()
    });
    assert_eq!(pair.client.write_up_to(client, stream, 10), (0, Write::Stopped));
    assert!(
        pair.client.transport.reset(client, stream, 0x10c),
        "RFC 9000, section 3.5: the stream has to be reset"
    );
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.read(server, stream).1, Read::Gone);
    assert_eq!(pair.server.take_readable(server), None, "a stopped stream has nothing to read");
}

pub(super) fn stop_after_the_end_is_harmless<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    let sent = content(1000);
    assert!(pair.upload((client, server), stream, &sent) == sent);
    pair.server.transport.stop(server, stream, 1);
    pair.server.transport.stop(server, stream, 2);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(
        pair.client.take(client, |event| matches!(event, Event::Stopped(..)).then_some(())),
        None
    );
    assert_eq!((pair.client.take_closed(client), pair.server.take_closed(server)), (None, None));
}

pub(super) fn stream_limit_holds_until_a_stream_is_done<S: Subject>() {
    let (mut pair, client, server) =
        Pair::<S>::connected(&Limits { streams: 3, ..Limits::default() });
    let streams = [0; 3].map(|_| pair.client.open(client, Dir::Bidi));
    assert_eq!(pair.client.transport.open(client, Dir::Bidi), None);
    for stream in streams {
        pair.client.write_up_to(client, stream, 10);
    }
    pair.run_for(Duration::from_secs(1));
    pair.client.events.clear();
    assert_eq!(pair.client.transport.open(client, Dir::Bidi), None);
    // A stream is done when both directions are.
    pair.upload((client, server), streams[1], b"end");
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.transport.open(client, Dir::Bidi), None, "one direction is still open");
    pair.server.finish(server, streams[1]);
    pair.run_until(|pair| {
        pair.client.read_to(client, streams[1], &mut Vec::new());
        pair.client.take(client, |event| matches!(event, Event::Available).then_some(())).is_some()
    });
    assert_eq!(pair.client.transport.open(client, Dir::Bidi), Some(StreamId(12)));
    assert_eq!(pair.client.transport.open(client, Dir::Bidi), None);
}

//= RFC 9114 section 6.1
//# So as to not unnecessarily limit parallelism, at least 100 request streams SHOULD be permitted at a time.
pub(super) fn client_that_uses_its_streams_is_allowed_all_there_may_be<S: Subject>() {
    let (mut pair, client, server) =
        Pair::<S>::connected(&Limits { streams: 256, ..Limits::default() });
    let open_all = |pair: &mut Pair<S>| {
        std::iter::from_fn(|| pair.client.transport.open(client, Dir::Bidi))
            .take(300)
            .collect::<Vec<_>>()
    };
    let mut opened = open_all(&mut pair);
    assert!((100..=256).contains(&opened.len()), "{}", opened.len());
    let mut used = 0;
    for _ in 0..5 {
        // Not all of them: a peer that has credit left need not be granted more.
        let most = if opened.len() < 256 { opened.len() * 4 / 5 } else { 256 };
        for stream in &opened[used..most] {
            pair.client.write_up_to(client, *stream, 1);
        }
        used = most;
        pair.run_for(Duration::from_secs(1));
        opened.extend(open_all(&mut pair));
    }
    assert_eq!((opened.len(), used), (256, 256));
    // The peer may not have more streams open than that.
    pair.server.finish(server, opened[0]);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(open_all(&mut pair), []);
}

pub(super) fn one_connection_does_not_hold_up_another<S: Subject>() {
    let (mut pair, first_client, first) = Pair::<S>::connected(&Limits::default());
    let (_, second) = pair.connect();
    // The first connection has grown a large window, so that it could keep sending.
    for _ in 0..5 {
        let stream = pair.client.open(first_client, Dir::Bidi);
        pair.upload((first_client, first), stream, b"begin");
        pair.server.write_up_to(first, stream, 90_000);
        pair.server.finish(first, stream);
        pair.run_until(|pair| pair.client.read_to(first_client, stream, &mut Vec::new()));
    }
    for key in [first, second] {
        let stream = pair.server.open(key, Dir::Uni);
        pair.server.write_up_to(key, stream, 5000);
        let stream = pair.server.open(key, Dir::Uni);
        pair.server.write_up_to(key, stream, 90_000);
    }
    // Sent one datagram at a time, the second connection gets its turn before the first has sent
    // everything.
    let mut lengths = Vec::new();
    let mut buffer = Vec::new();
    while let Some(transmit) = pair.server.transport.poll_transmit(pair.now, 1, &mut buffer) {
        lengths.push(destination_id(&buffer[..transmit.size]));
    }
    let turns = lengths.chunk_by(|one, other| one == other).count();
    assert!(turns > 2, "{turns} turns in {} datagrams", lengths.len());
}

/// Returns the eight bytes of the client's connection ID.
fn destination_id(datagram: &[u8]) -> Vec<u8> {
    datagram[1..9].to_vec()
}

pub(super) fn write_keeps_to_its_limit<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    let mut chunks =
        VecDeque::from([Bytes::from(content(1000)), Bytes::new(), Bytes::from(content(500))]);
    let left = |chunks: &VecDeque<Bytes>| chunks.iter().map(Bytes::len).sum::<usize>();
    assert_eq!(
        pair.client.transport.write(client, stream, &mut chunks, 300, false, None),
        Write::More
    );
    assert_eq!(left(&chunks), 1200);
    assert_eq!(
        pair.client.transport.write(client, stream, &mut chunks, 900, false, None),
        Write::More
    );
    assert_eq!(left(&chunks), 300);
    assert_eq!(
        pair.client.transport.write(client, stream, &mut chunks, 300, false, None),
        Write::Done
    );
    pair.client.finish(client, stream);
    let mut received = Vec::new();
    pair.run_until(|pair| pair.server.read_to(server, stream, &mut received));
    assert_eq!(received, [content(1000), content(500)].concat());
}

pub(super) fn reset_is_told_before_what_came_first_is_read<S: Subject>() {
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let stream = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, stream, 1000);
    pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
    assert_eq!(pair.server.transport.received_reset(server, stream), None);
    pair.client.transport.reset(client, stream, 7);
    pair.run_until(|pair| pair.server.take_readable(server) == Some(stream));
    assert_eq!(pair.server.transport.received_reset(server, stream), Some(7));
    assert_eq!(pair.server.transport.received_reset(server, stream), None, "reported twice");
    assert_eq!(pair.server.read(server, stream).1, Read::Gone);
}

pub(super) fn urgent_stream_leaves_first<S: Subject>() {
    // The priority is set before, or given with the first bytes.
    for is_set in [true, false] {
        let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
        let streams = [0; 3].map(|_| pair.client.open(client, Dir::Bidi));
        for stream in streams {
            pair.client.write_up_to(client, stream, 1);
        }
        pair.run_for(Duration::from_secs(1));
        // The last one is the most urgent.
        for (stream, urgency) in streams.into_iter().zip([5, 3, 1]) {
            let priority = Priority { urgency, ..Priority::default() };
            if is_set {
                pair.server.transport.set_priority(server, stream, priority);
            }
            let mut chunks = VecDeque::from([content(40_000).into()]);
            let order = Some(Order { priority, is_new: !is_set });
            assert_eq!(
                pair.server.transport.write(server, stream, &mut chunks, usize::MAX, true, order),
                Write::Done
            );
        }
        let mut order = Vec::new();
        pair.run_until(|pair| {
            for stream in streams {
                if !order.contains(&stream) && pair.client.read_to(client, stream, &mut Vec::new())
                {
                    order.push(stream);
                }
            }
            order.len() == 3
        });
        assert_eq!(order, [streams[2], streams[1], streams[0]], "set before: {is_set}");
    }
}

/// Returns how much of each stream has arrived when the first of them is complete. All have the
/// same urgency and are written at once, 40,000 bytes each, as incremental or not, and to their end
/// or not.
fn beside_the_first<S: Subject, const N: usize>(streams: [(bool, bool); N]) -> [usize; N] {
    const SIZE: usize = 40_000;
    let (mut pair, client, server) = Pair::<S>::connected(&Limits::default());
    let ids = [0; N].map(|_| pair.client.open(client, Dir::Bidi));
    for id in ids {
        pair.client.write_up_to(client, id, 1);
    }
    pair.run_for(Duration::from_secs(1));
    for (id, (incremental, ends)) in ids.into_iter().zip(streams) {
        let priority = Priority { incremental, ..Priority::default() };
        let order = Some(Order { priority, is_new: true });
        let mut chunks = VecDeque::from([content(SIZE).into()]);
        assert_eq!(
            pair.server.transport.write(server, id, &mut chunks, usize::MAX, ends, order),
            Write::Done
        );
    }
    let mut received = [0; N];
    pair.run_until(|pair| {
        for (received, id) in received.iter_mut().zip(ids) {
            *received += pair.client.read_count(client, id);
        }
        received.contains(&SIZE)
    });
    received
}

/// RFC 9218, section 10: an incremental document and non-incremental style sheets must not starve
/// each other.
pub(super) fn streams_of_one_urgency_take_turns<S: Subject>() {
    for second in [true, false] {
        let received = beside_the_first::<S, 2>([(true, false), (second, false)]);
        assert!(
            received[0].abs_diff(received[1]) < 5_000,
            "{received:?}, the second is incremental: {second}"
        );
    }
}

pub(super) fn whole_streams_in_order_leave_one_after_the_other<S: Subject>() {
    let received =
        beside_the_first::<S, 3>([false, false, true].map(|incremental| (incremental, true)));
    assert_eq!(received[0], 40_000);
    // The last packets of one arrive with the first of the next.
    assert!(received[1] < 15_000 && received[2] == 0, "{received:?}");
}

/// A path of 100 Mbit/s and 200 ms, whose bandwidth-delay product of 2.5 MB exceeds an initial
/// window.
fn long_path() -> NetworkConditions {
    NetworkConditions {
        rate: Some(12_500_000),
        queue: 2_500_000,
        ..NetworkConditions::calm(Duration::from_millis(100))
    }
}

pub(super) fn long_path_is_filled<S: Subject>() {
    const SIZE: usize = 24 << 20;
    // Default limits: with a larger window, a slow start that loses every other packet would leave
    // more gaps than quinn-proto accepts.
    let defaults = crate::Limits::default();
    let limits = Limits {
        stream_window_bytes: defaults.stream_window_bytes(),
        connection_window_bytes: defaults.connection_window_bytes(),
        send_window_bytes: defaults.send_window_bytes(),
        ..Limits::default()
    };
    let mut pair = Pair::<S>::over(long_path(), &limits, &limits);
    let (client, server) = pair.connect();
    let (began, stream) = (pair.now, pair.client.open(client, Dir::Bidi));
    let mut chunks: VecDeque<_> =
        std::iter::repeat_n(Bytes::from(vec![7; 1 << 20]), SIZE >> 20).collect();
    let mut received = 0;
    pair.run_until(|pair| {
        pair.client.transport.write(client, stream, &mut chunks, usize::MAX, false, None);
        pair.client.events.retain(|(_, event)| matches!(event, Event::Closed(_)));
        pair.server.events.retain(|(_, event)| matches!(event, Event::Closed(_)));
        received += pair.server.read_count(server, stream);
        received == SIZE
    });
    let seconds = (pair.now - began).as_secs_f64();
    let fill = SIZE as f64 / 12_500_000.0 / seconds;
    // Slow start takes nine round trips, nearly two seconds. A fixed window fills at most 0.42 of
    // the path.
    assert!(fill > 0.5, "{fill:.2} of the path in {seconds:.1} s");
}

pub(super) fn unread_stream_does_not_hold_up_another_one<S: Subject>() {
    let limits = Limits {
        stream_window_bytes: 3 << 20,
        connection_window_bytes: 16 << 20,
        send_window_bytes: 16 << 20,
        ..Limits::default()
    };
    let (mut pair, client, server) = Pair::<S>::connected(&limits);
    // More than the initial connection window; never read.
    let unread = pair.client.open(client, Dir::Bidi);
    let mut chunks: VecDeque<_> = std::iter::repeat_n(Bytes::from(vec![7; 1 << 20]), 4).collect();
    for _ in 0..100 {
        pair.client.transport.write(client, unread, &mut chunks, usize::MAX, false, None);
        pair.run_for(Duration::from_millis(20));
    }
    let read = pair.client.open(client, Dir::Bidi);
    pair.client.write_up_to(client, read, 1_000);
    let mut received = 0;
    pair.run_until(|pair| {
        received += pair.server.read_count(server, read);
        received == 1_000
    });
}
