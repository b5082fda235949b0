//! A transfer in slow start over a profile, and whether TCP leaves it early: the detector of delays
//! of Linux's HyStart, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;

use super::{Scheduler, Verdict, Way};
use crate::Profile;
use crate::profile::{Direction, Loss};

const MS: u64 = 1_000_000;
const PACKET_BYTES: usize = 1500;
const ACK_BYTES: usize = 52;
const INITIAL_WINDOW: u64 = 10;
/// 1 MB.
const PACKETS: u64 = 700;
/// `hystart_low_window` and `HYSTART_MIN_SAMPLES` of net/ipv4/tcp_cubic.c.
const LOW_WINDOW: u64 = 16;
const SAMPLES: u32 = 8;

const SEEDS: u64 = 300;

/// `HYSTART_DELAY_THRESH` of an eighth of the lowest round-trip time: minimum extra delay of all
/// samples of a round.
fn threshold_ns(delay_ns: u64) -> u64 {
    (delay_ns / 8).clamp(4 * MS, 16 * MS)
}

/// Returns the packets in flight when slow start ends because of a delay; `None` if the transfer
/// ends before.
fn left_at(profile: &Profile, seed: u64, packets_per_ack: u64) -> Option<u64> {
    let without_loss = |direction: &Direction| Direction {
        loss: Loss::Independent { percent: 0.0 },
        ..direction.clone()
    };
    let mut down = Scheduler::new(&without_loss(&profile.down), seed, Way::Down);
    let mut up = Scheduler::new(&without_loss(&profile.up), seed, Way::Up);
    // The client's request is time zero.
    let Verdict::Deliver { deadline_ns: begin_ns } = up.handle_packet(ACK_BYTES, 0) else {
        return None;
    };
    let mut sent_ns = Vec::new();
    // Arrivals of packets at the client, and of their acknowledgments at the server.
    let mut events = BinaryHeap::new();
    let mut send = |sent_ns: &mut Vec<u64>, events: &mut BinaryHeap<_>, now_ns| {
        if let Verdict::Deliver { deadline_ns } = down.handle_packet(PACKET_BYTES, now_ns) {
            events.push(Reverse((deadline_ns, Way::Down as u64, sent_ns.len() as u64)));
        }
        sent_ns.push(now_ns);
    };
    for _ in 0..INITIAL_WINDOW {
        send(&mut sent_ns, &mut events, begin_ns);
    }
    let (mut window, mut acknowledged, mut round_end) = (INITIAL_WINDOW, 0, 0);
    let (mut delay_ns, mut round_ns, mut samples) = (u64::MAX, u64::MAX, 0);
    while let Some(Reverse((now_ns, way, number))) = events.pop() {
        if way == Way::Down as u64 {
            if (number + 1) % packets_per_ack == 0
                && let Verdict::Deliver { deadline_ns } = up.handle_packet(ACK_BYTES, now_ns)
            {
                events.push(Reverse((deadline_ns, Way::Up as u64, number)));
            }
            continue;
        }
        let rtt_ns = now_ns - sent_ns[number as usize];
        if number >= round_end {
            (round_end, round_ns, samples) = (sent_ns.len() as u64, u64::MAX, 0);
        }
        delay_ns = delay_ns.min(rtt_ns);
        if window >= LOW_WINDOW {
            round_ns = round_ns.min(rtt_ns);
            if samples < SAMPLES {
                samples += 1;
            } else if round_ns > delay_ns + threshold_ns(delay_ns) {
                return Some(window);
            }
        }
        window += number + 1 - acknowledged;
        acknowledged = number + 1;
        while (sent_ns.len() as u64) < PACKETS && (sent_ns.len() as u64) < acknowledged + window {
            send(&mut sent_ns, &mut events, now_ns);
        }
    }
    None
}

fn profiles() -> Vec<Profile> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| Profile::load(&path).unwrap())
        .collect()
}

/// Lossless, without outages: what ends slow start then is the link's capacity, or jitter that
/// looks like a queue.
#[test]
fn jitter_of_the_shipped_profiles_does_not_end_slow_start() {
    let mut compared = 0;
    for profile in profiles() {
        let directions = [&profile.up, &profile.down];
        let jitters = directions.iter().any(|direction| direction.jitter_ns > 0);
        let by_itself = |direction: &&Direction| {
            direction.reorder || direction.outages.is_some() || direction.rate_trace.is_some()
        };
        if !jitters || directions.iter().any(by_itself) {
            continue;
        }
        compared += 1;
        let steady = |direction: &Direction| Direction { jitter_ns: 0, ..direction.clone() };
        let without =
            Profile { up: steady(&profile.up), down: steady(&profile.down), ..profile.clone() };
        for packets_per_ack in [1, 2] {
            // Without jitter all seeds are equal. Once the link is full, leaving costs nothing.
            let full = directions[1].rate_bits_per_second.map_or(u64::MAX, |rate| {
                rate * (profile.up.delay_ns + profile.down.delay_ns) / MS / 12_000_000
            });
            let right = left_at(&without, 1, packets_per_ack).unwrap_or(u64::MAX).min(full);
            let early = (0..SEEDS)
                .filter(|seed| {
                    left_at(&profile, *seed, packets_per_ack).is_some_and(|left| left < right)
                })
                .count();
            assert!(
                early == 0,
                "{}: slow start ended before {right} packets under {early} of {SEEDS} seeds",
                profile.name
            );
        }
    }
    assert!(compared >= 20, "{compared}");
}
