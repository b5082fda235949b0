//! How much of a path one stream fills, in virtual time, with each congestion controller.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

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
        pair.client.transport.write(client, stream, &mut chunks, usize::MAX);
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
    assert!(outcome.fill > 0.87 && outcome.overhead < 1.02, "{outcome:?}");
}

pub(super) fn bbr_takes_no_single_loss_for_congestion<S: Subject>() {
    let outcome = send::<S>(path(0.01), &limits(Congestion::Bbr), 20);
    assert!(outcome.fill > 0.6 && outcome.overhead < 1.03, "{outcome:?}");
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
            // The handshake has opened the window by what it took, or has some of it in flight; and the library's BBR begins with a probe
            // of the round trip, for which it holds back a quarter.
            let most = usize::from(datagrams) + 3;
            assert!((most * 3 / 4 - 3..=most).contains(&flight), "{congestion}: {flight} datagrams, not {datagrams}");
        }
    }
}
