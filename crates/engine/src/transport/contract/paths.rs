//! How much of a path one stream fills, in virtual time, with each congestion controller.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::bottleneck::{Bottleneck, Link};
use super::pair::Pair;
use super::subject::{Limits, Subject};
use crate::config::Congestion;
use crate::simulation::network::Weather;
use crate::transport::{Dir, Transport};

const BYTES_PER_SECOND: u64 = 12_500_000;

/// A path of 100 Mbit/s and 100 ms, with a queue that holds as much as the path itself.
fn path(loss: f64) -> Weather {
    let held = BYTES_PER_SECOND / 10;
    Weather { rate: Some(BYTES_PER_SECOND), queue: held, loss, ..Weather::calm(Duration::from_millis(50)) }
}

/// Windows as users have them.
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

/// What came of a transfer.
#[derive(Debug)]
struct Outcome {
    /// Content, of what the path could have carried in the time.
    fill: f64,
    /// Datagrams that the sender sent, of what the content needed.
    overhead: f64,
}

/// Sends so many MiB on one stream.
fn send<S: Subject>(weather: Weather, limits: &Limits, mebibytes: usize) -> Outcome {
    let mut pair = Pair::<S>::over(weather, limits, limits);
    let (client, server) = pair.connect();
    let (began, stream) = (pair.now, pair.client.open(client, Dir::Bidi));
    let size = mebibytes << 20;
    let mut chunks: VecDeque<_> = std::iter::repeat_n(Bytes::from(vec![7; 1 << 20]), mebibytes).collect();
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
    Outcome { fill: size as f64 / BYTES_PER_SECOND as f64 / seconds, overhead: datagrams / (size as f64 / 1_415.0) }
}

/// The library's own CUBIC sends 15 % of this twice: it doubles until the queue has overflowed for a whole round trip.
pub(super) fn slow_start_ends_before_much_is_lost<S: Subject>() {
    // As wide as a browser's.
    let wide = Limits { stream_window_bytes: 8 << 20, ..limits(Congestion::Cubic) };
    let outcome = send::<S>(path(0.0), &wide, 20);
    assert!(outcome.fill > 0.68 && outcome.overhead < 1.06, "{outcome:?}");
}

pub(super) fn cubic_fills_a_path_without_loss<S: Subject>() {
    let outcome = send::<S>(path(0.0), &limits(Congestion::Cubic), 40);
    // Content is 0.957 of what a path carries, and the start costs 0.6 s.
    assert!(outcome.fill > 0.77 && outcome.overhead < 1.03, "{outcome:?}");
}

/// The library's own BBR keeps a queue full that is as long as the path, and sends 30 % of this twice.
pub(super) fn bbr_fills_a_path_without_loss<S: Subject>() {
    let outcome = send::<S>(path(0.0), &limits(Congestion::Bbr), 40);
    assert!(outcome.fill > 0.78 && outcome.overhead < 1.01, "{outcome:?}");
}

pub(super) fn bbr_takes_no_single_loss_for_congestion<S: Subject>() {
    for loss in [0.001, 0.01] {
        let outcome = send::<S>(path(loss), &limits(Congestion::Bbr), 20);
        assert!(outcome.fill > 0.57 && outcome.overhead < 1.02, "{loss}: {outcome:?}");
    }
}

/// 20 Mbit/s and 40 ms, with a queue that holds so many bytes; as much as the path holds are 100,000.
fn narrow(queue: u64) -> Link {
    Link { bytes_per_second: 2_500_000, delay: Duration::from_millis(20), queue, grouping: Duration::ZERO }
}

/// What part of a path each of two connections has, of which the second begins 3 s after the first: 5 to 13 s after that.
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

/// Whoever came first.
pub(super) fn bbr_shares_a_path_with_cubic<S: Subject>() {
    for controllers in [[Congestion::Bbr, Congestion::Cubic], [Congestion::Cubic, Congestion::Bbr]] {
        let parts = share::<S>(narrow(200_000), controllers);
        assert!(parts.iter().all(|part| *part > 0.2) && parts.iter().sum::<f64>() > 0.93, "{controllers:?}: {parts:?}");
    }
}

pub(super) fn bbr_fills_a_path_whose_acknowledgements_come_in_groups<S: Subject>() {
    for milliseconds in [5, 20] {
        let link = Link { grouping: Duration::from_millis(milliseconds), ..narrow(100_000) };
        let mut path = Bottleneck::<S>::new(link, &limits(Congestion::default()));
        path.add(&limits(Congestion::Bbr), Duration::ZERO);
        path.run_for(Duration::from_secs(2));
        let parts = path.run_for(Duration::from_secs(6));
        assert!(parts[0] > 0.94 && path.dropped * 1_000 < path.sent, "{milliseconds} ms: {parts:?}, {} dropped", path.dropped);
    }
}

/// A probe needs more than there is place for in this queue: what it loses bounds the next one.
pub(super) fn bbr_loses_little_in_a_short_queue<S: Subject>() {
    let mut path = Bottleneck::<S>::new(narrow(10_000), &limits(Congestion::default()));
    path.add(&limits(Congestion::Bbr), Duration::ZERO);
    path.run_for(Duration::from_secs(2));
    let (sent, dropped) = (path.sent, path.dropped);
    let parts = path.run_for(Duration::from_secs(14));
    let dropped = (path.dropped - dropped) as f64 / (path.sent - sent) as f64;
    assert!(parts[0] > 0.8 && dropped < 0.01, "{parts:?}, {dropped}");
}

pub(super) fn loss_based_controllers_yield_to_loss<S: Subject>() {
    for congestion in [Congestion::Cubic, Congestion::NewReno] {
        let outcome = send::<S>(path(0.01), &limits(congestion), 2);
        // What their formulas allow at 100 ms and one loss in a hundred is about 0.02.
        assert!((0.01..0.1).contains(&outcome.fill), "{congestion}: {outcome:?}");
    }
}

pub(super) fn first_flight_is_the_window_that_was_asked_for<S: Subject>() {
    for congestion in Congestion::ALL {
        for datagrams in [10_u16, 40] {
            let limits = Limits { initial_datagrams: datagrams, ..limits(congestion) };
            let mut pair = Pair::<S>::over(Weather::calm(Duration::from_secs(1)), &limits, &limits);
            let (client, _) = pair.connect();
            let stream = pair.client.open(client, Dir::Bidi);
            let before = pair.client.sent;
            pair.client.write_up_to(client, stream, 1 << 20);
            // No acknowledgement of it is back before two seconds have passed.
            pair.run_for(Duration::from_millis(1_900));
            let flight = pair.client.sent - before;
            // The handshake has opened the window by what it took, or has some of it in flight.
            let most = usize::from(datagrams) + 3;
            assert!((most - 6..=most).contains(&flight), "{congestion}: {flight} datagrams, not {datagrams}");
        }
    }
}
