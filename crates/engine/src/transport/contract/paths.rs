//! The share of a path that one stream fills, in virtual time, with each congestion controller.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::bottleneck::{Bottleneck, Link};
use super::pair::Pair;
use super::subject::{Limits, Subject};
use crate::config::Congestion;
use crate::simulation::network::NetworkConditions;
use crate::transport::{ConnectionKey, Dir, Event, Transport};

const BYTES_PER_SECOND: u64 = 12_500_000;

/// A path of 100 Mbit/s and 100 ms, with a queue of one bandwidth-delay product.
fn path(loss: f64) -> NetworkConditions {
    let held = BYTES_PER_SECOND / 10;
    NetworkConditions {
        rate: Some(BYTES_PER_SECOND),
        queue: held,
        loss,
        ..NetworkConditions::calm(Duration::from_millis(50))
    }
}

/// Default windows.
fn limits(congestion: Congestion) -> Limits {
    let defaults = crate::Limits::default();
    Limits {
        stream_window_bytes: defaults.stream_window_bytes(),
        connection_window_bytes: defaults.connection_window_bytes(),
        send_window_bytes: defaults.send_window_bytes(),
        congestion,
        ..Limits::default()
    }
}

/// Result of a transfer.
#[derive(Debug)]
struct Outcome {
    /// Content in relation to the path's capacity in that time.
    fill: f64,
    /// Datagrams sent in relation to those that the content needed.
    overhead: f64,
}

/// Sends this many MiB on one stream.
fn send<S: Subject>(conditions: NetworkConditions, limits: &Limits, mebibytes: usize) -> Outcome {
    let mut pair = Pair::<S>::over(conditions, limits, limits);
    let (client, server) = pair.connect();
    let (began, stream) = (pair.now, pair.client.open(client, Dir::Bidi));
    let size = mebibytes << 20;
    let mut chunks: VecDeque<_> =
        std::iter::repeat_n(Bytes::from(vec![7; 1 << 20]), mebibytes).collect();
    let mut received = 0;
    let before = pair.client.sent;
    pair.run_until(|pair| {
        pair.client.transport.write(client, stream, &mut chunks, usize::MAX, false, None);
        pair.client.events.clear();
        received += pair.server.read_count(server, stream);
        received == size
    });
    let seconds = (pair.now - began).as_secs_f64();
    let datagrams = (pair.client.sent - before) as f64;
    Outcome {
        fill: size as f64 / BYTES_PER_SECOND as f64 / seconds,
        overhead: datagrams / (size as f64 / 1_415.0),
    }
}

/// quinn-proto's own CUBIC sends 15 % of this twice: it doubles until the queue has overflowed for
/// a whole round trip.
pub(super) fn slow_start_ends_before_much_is_lost<S: Subject>() {
    // As large as a browser's.
    let wide = Limits { stream_window_bytes: 8 << 20, ..limits(Congestion::Cubic) };
    let outcome = send::<S>(path(0.0), &wide, 20);
    assert!(outcome.fill > 0.68 && outcome.overhead < 1.06, "{outcome:?}");
}

pub(super) fn cubic_fills_a_path_without_loss<S: Subject>() {
    let outcome = send::<S>(path(0.0), &limits(Congestion::Cubic), 40);
    // Content is 0.957 of a path's capacity, and the start costs 0.6 s.
    assert!(outcome.fill > 0.77 && outcome.overhead < 1.03, "{outcome:?}");
}

/// quinn-proto's own BBR keeps a queue of one bandwidth-delay product full, and sends 30 % of this
/// twice.
pub(super) fn bbr_fills_a_path_without_loss<S: Subject>() {
    let outcome = send::<S>(path(0.0), &limits(Congestion::Bbr), 40);
    assert!(outcome.fill > 0.78 && outcome.overhead < 1.01, "{outcome:?}");
}

pub(super) fn bbr_takes_no_single_loss_for_congestion<S: Subject>() {
    // The losses at the end of startup have a large effect, which is random.
    let losses = [0.001, 0.008, 0.01, 0.012];
    let outcomes = losses.map(|loss| send::<S>(path(loss), &limits(Congestion::Bbr), 20));
    assert!(
        outcomes.iter().all(|outcome| outcome.fill > 0.5 && outcome.overhead < 1.02),
        "{outcomes:?}"
    );
    assert!(
        outcomes.iter().map(|outcome| outcome.fill).sum::<f64>() > 0.57 * losses.len() as f64,
        "{outcomes:?}"
    );
}

/// A link of 20 Mbit/s and 40 ms with a queue of this many bytes; its bandwidth-delay product is
/// 100,000.
fn narrow(queue: u64) -> Link {
    Link {
        bytes_per_second: 2_500_000,
        delay: Duration::from_millis(20),
        queue,
        grouping: Duration::ZERO,
    }
}

/// Returns the share of each of two connections, of which the second begins 3 s after the first,
/// measured from 5 to 13 s after that.
fn share<S: Subject>(link: Link, controllers: [Congestion; 2]) -> Vec<f64> {
    let mut path = Bottleneck::<S>::new(link, &limits(Congestion::default()));
    path.add(&limits(controllers[0]), Duration::ZERO);
    path.add(&limits(controllers[1]), Duration::from_secs(3));
    path.run_for(Duration::from_secs(8));
    path.run_for(Duration::from_secs(8))
}

pub(super) fn bbr_shares_a_path_with_bbr<S: Subject>() {
    let parts = share::<S>(narrow(100_000), [Congestion::Bbr; 2]);
    assert!(parts.iter().all(|part| *part > 0.3) && parts.iter().sum::<f64>() > 0.93, "{parts:?}");
}

/// In either order.
pub(super) fn bbr_shares_a_path_with_cubic<S: Subject>() {
    for controllers in [[Congestion::Bbr, Congestion::Cubic], [Congestion::Cubic, Congestion::Bbr]]
    {
        let parts = share::<S>(narrow(200_000), controllers);
        assert!(
            parts.iter().all(|part| *part > 0.2) && parts.iter().sum::<f64>() > 0.93,
            "{controllers:?}: {parts:?}"
        );
    }
}

pub(super) fn bbr_fills_a_path_whose_acknowledgements_come_in_groups<S: Subject>() {
    for milliseconds in [5, 20] {
        let link = Link { grouping: Duration::from_millis(milliseconds), ..narrow(100_000) };
        let mut path = Bottleneck::<S>::new(link, &limits(Congestion::default()));
        path.add(&limits(Congestion::Bbr), Duration::ZERO);
        path.run_for(Duration::from_secs(2));
        let parts = path.run_for(Duration::from_secs(6));
        assert!(
            parts[0] > 0.94 && path.dropped * 1_000 < path.sent,
            "{milliseconds} ms: {parts:?}, {} dropped",
            path.dropped
        );
    }
}

/// A probe needs more than this queue holds: its losses bound the next probe.
pub(super) fn bbr_loses_little_in_a_short_queue<S: Subject>() {
    let mut path = Bottleneck::<S>::new(narrow(10_000), &limits(Congestion::default()));
    path.add(&limits(Congestion::Bbr), Duration::ZERO);
    path.run_for(Duration::from_secs(2));
    let (sent, dropped) = (path.sent, path.dropped);
    let parts = path.run_for(Duration::from_secs(14));
    let dropped = (path.dropped - dropped) as f64 / (path.sent - sent) as f64;
    assert!(parts[0] > 0.78 && dropped < 0.01, "{parts:?}, {dropped}");
}

pub(super) fn loss_based_controllers_yield_to_loss<S: Subject>() {
    for congestion in [Congestion::Cubic, Congestion::NewReno] {
        let fills =
            [0.009, 0.01, 0.011].map(|loss| send::<S>(path(loss), &limits(congestion), 4).fill);
        // The controllers' formulas allow about 0.02 at 100 ms and one loss in a hundred; the start
        // adds to that.
        assert!(
            (0.01..0.1).contains(&(fills.iter().sum::<f64>() / 3.0)),
            "{congestion}: {fills:?}"
        );
    }
}

pub(super) fn first_flight_is_the_window_that_was_asked_for<S: Subject>() {
    for congestion in Congestion::ALL {
        for datagrams in [10_u16, 40] {
            let limits = Limits { initial_datagrams: datagrams, ..limits(congestion) };
            let mut pair =
                Pair::<S>::over(NetworkConditions::calm(Duration::from_secs(1)), &limits, &limits);
            let (client, _) = pair.connect();
            let stream = pair.client.open(client, Dir::Bidi);
            let before = pair.client.sent;
            pair.client.write_up_to(client, stream, 1 << 20);
            // No acknowledgment arrives before two seconds have passed.
            pair.run_for(Duration::from_millis(1_900));
            let flight = pair.client.sent - before;
            // The handshake has grown the window, or some of it is in flight. The window is counted
            // in Ethernet datagrams, but the first ones have 1200 bytes.
            let most = usize::from(datagrams) * 1_472 / 1_200 + 3;
            assert!(
                (most - 4..=most).contains(&flight),
                "{congestion}: {flight} datagrams, not {most}"
            );
        }
    }
}

/// Sends one response of this size on its own stream. Returns how long the client waits for it.
fn response<S: Subject>(
    pair: &mut Pair<S>,
    keys: (ConnectionKey, ConnectionKey),
    size: usize,
) -> Duration {
    let (began, stream) = (pair.now, pair.client.open(keys.0, Dir::Bidi));
    pair.client.write_up_to(keys.0, stream, 100);
    pair.client.finish(keys.0, stream);
    let mut content = VecDeque::from([Bytes::from(vec![7; size])]);
    let (mut is_asked, mut received) = (false, 0);
    pair.run_until(|pair| {
        is_asked |= pair.server.read_count(keys.1, stream) > 0;
        if is_asked {
            pair.server.transport.write(keys.1, stream, &mut content, usize::MAX, true, None);
        }
        received += pair.client.read_count(keys.0, stream);
        received == size
    });
    pair.now - began
}

/// From the third on, when the window has grown for such responses, with or without pauses between
/// them.
pub(super) fn responses_in_a_row_take_a_round_trip_each<S: Subject>() {
    let rate = 37_500_000;
    let paths = [10, 28, 70, 200]
        .into_iter()
        .flat_map(|rtt| [15_000, 60_000, 400_000].map(|size| (rtt, size)));
    for ((milliseconds, size), pause) in paths.flat_map(|path| [0, 300].map(|pause| (path, pause)))
    {
        for congestion in Congestion::ALL {
            let rtt = Duration::from_millis(milliseconds);
            let held = rate * milliseconds / 1_000;
            let conditions = NetworkConditions {
                rate: Some(rate),
                queue: held / 4,
                ..NetworkConditions::calm(rtt / 2)
            };
            let wide = Limits {
                stream_window_bytes: 8 << 20,
                connection_window_bytes: 16 << 20,
                ..limits(congestion)
            };
            let mut pair = Pair::<S>::over(conditions, &wide, &wide);
            let keys = pair.connect();
            let before = pair.server.sent;
            let times: Vec<_> = (0..8)
                .map(|_| {
                    let time = response(&mut pair, keys, size);
                    pair.run_for(Duration::from_millis(pause));
                    time
                })
                .collect();
            let case =
                format!("{congestion}, {size} bytes over {milliseconds} ms, every {pause} ms");
            let (sent, needed) = (pair.server.sent - before, 8 * size / 1_415);
            // The rest is acknowledgments, MTU probes, and smaller datagrams until these are
            // answered.
            assert!(
                sent < needed * 11 / 10 + 40,
                "{case}: {sent} datagrams where the content needs {needed}"
            );
            // A response that fills the path has to grow its window into the queue.
            if size < held as usize {
                let most = rtt
                    + Duration::from_secs_f64(size as f64 * 1.05 / rate as f64)
                    + Duration::from_millis(5);
                assert!(
                    times[2..].iter().all(|time| *time <= most),
                    "{case}: {times:?}, and not {most:?}"
                );
            }
        }
    }
}

/// Returns how long a client waits for these responses on a new connection, from its requests on.
fn first_responses<S: Subject>(
    conditions: &NetworkConditions,
    limits: &Limits,
    [count, size]: [usize; 2],
) -> Duration {
    let mut pair = Pair::<S>::over(conditions.clone(), limits, limits);
    let key = pair.begin_connecting();
    pair.run_until(|pair| {
        pair.client
            .take(key, |event| matches!(event, Event::Connected { .. }).then_some(()))
            .is_some()
    });
    let asked = pair.now;
    let mut responses: Vec<_> = (0..count)
        .map(|_| {
            let stream = pair.client.open(key, Dir::Bidi);
            pair.client.write_up_to(key, stream, 100);
            pair.client.finish(key, stream);
            (stream, false, VecDeque::from([Bytes::from(vec![7; size])]))
        })
        .collect();
    let (mut server, mut received) = (None, 0);
    pair.run_until(|pair| {
        server = server.or(pair
            .server
            .events
            .iter()
            .find(|(_, event)| matches!(event, Event::Accepted { .. }))
            .map(|(key, _)| *key));
        for (stream, is_asked, content) in &mut responses {
            let Some(server) = server else { break };
            *is_asked |= pair.server.read_count(server, *stream) > 0;
            if *is_asked {
                pair.server.transport.write(server, *stream, content, usize::MAX, true, None);
            }
            received += pair.client.read_count(key, *stream);
        }
        received == count * size
    });
    pair.now - asked
}

/// Default limits, or with another initial window.
fn first_limits(congestion: Congestion, initial_datagrams: Option<u16>) -> Limits {
    let wide = Limits {
        stream_window_bytes: 8 << 20,
        connection_window_bytes: 16 << 20,
        ..limits(congestion)
    };
    Limits { initial_datagrams: initial_datagrams.unwrap_or(wide.initial_datagrams), ..wide }
}

/// A typical document with its head, on a new connection.
pub(super) fn first_document_takes_a_round_trip<S: Subject>() {
    for (milliseconds, congestion) in [10, 28, 70, 200]
        .into_iter()
        .flat_map(|rtt| Congestion::ALL.map(|congestion| (rtt, congestion)))
    {
        let rtt = Duration::from_millis(milliseconds);
        let conditions = NetworkConditions {
            rate: Some(37_500_000),
            queue: 37_500 * milliseconds,
            ..NetworkConditions::calm(rtt / 2)
        };
        for size in [12_000, 16_000, 25_000] {
            let time =
                first_responses::<S>(&conditions, &first_limits(congestion, None), [1, size]);
            // Pacing spreads the second half of the window.
            assert!(
                time < rtt.mul_f64(1.4) + Duration::from_millis(1),
                "{congestion}, {size} bytes over {rtt:?}: {time:?}"
            );
        }
    }
}

/// Cost of the default initial window where a queue holds less, compared with RFC 9002's 10
/// datagrams.
pub(super) fn initial_window_costs_little_in_short_queues<S: Subject>() {
    let mut worst = (0.0, String::new());
    let mut logarithms = Vec::new();
    for (rate, milliseconds, queue) in
        [(625_000, 28, 15_000), (125_000, 28, 25_000), (125_000, 70, 12_500), (62_500, 200, 12_500)]
    {
        let conditions = NetworkConditions {
            rate: Some(rate),
            queue,
            ..NetworkConditions::calm(Duration::from_millis(milliseconds) / 2)
        };
        for page in [[1, 13_000], [1, 16_000], [1, 30_000], [1, 60_000], [12, 15_000]] {
            let times = [None, Some(10)].map(|datagrams| {
                first_responses::<S>(&conditions, &first_limits(Congestion::Cubic, datagrams), page)
            });
            let ratio = times[0].as_secs_f64() / times[1].as_secs_f64();
            logarithms.push(ratio.ln());
            if ratio > worst.0 {
                worst = (ratio, format!("{page:?} over {conditions:?}: {times:?}"));
            }
        }
    }
    let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
    assert!(mean < 1.1 && worst.0 < 1.5, "{mean}, {worst:?}");
}
