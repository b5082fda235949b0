//! Compares what was measured with what the profile says.

use std::time::Duration;

use super::probe::{self, Arrival, Plan, Sample};
use super::{CONFIDENCE, Check, DELAY_BOUND_MS, PROBE_WIRE_BYTES, Probed, RATE_BOUND, direction, direction_report, name};
use crate::profile::{Direction, MTU};
use crate::report::LATENESS_P99_BOUND_US;
use crate::scheduler::{JITTER_STEP_NS, Way};
use crate::{Error, Link, Options, Profile, binomial};

/// Left out at the beginning, until the queue is never empty.
const WARM_UP_NS: u64 = 200_000_000;

pub(super) fn word(passed: bool) -> &'static str {
    if passed { "PASS" } else { "FAIL" }
}

/// Loads a link of its own; nothing to measure without a rate.
pub(super) fn rate(way: Way, profile: &Profile, options: &Options, time: Duration) -> Result<Option<Check>, Error> {
    let asked = direction(profile, way);
    let Some(rate) = asked.rate_bits_per_second else {
        return Ok(None);
    };
    let link = Link::start(profile, options)?;
    let (near, far) = probe::sockets(&link)?;
    let (from, to) = match way {
        Way::Up => (&near, &far),
        Way::Down => (&far, &near),
    };
    let plan = Plan::saturation(asked, rate, time);
    let sample = probe::measure(from, to, &plan).map_err(Error::system("send packets over the link"))?;
    let report = link.stop()?;
    let counted = direction_report(&report, way);
    // A lost packet has used the rate: what arrives is the rest of it.
    let sent_on_wire = counted.packets_out + counted.packets_lost;
    let arrived_share = counted.packets_out as f64 / (sent_on_wire as f64).max(1.0);
    let measured = arrival_rate(&sample.arrivals) / arrived_share;
    Ok(Some(Check {
        direction: name(way),
        what: "rate",
        asked: format!("{:.3} Mbit/s", rate as f64 / 1e6),
        measured: format!("{:.3} Mbit/s", measured / 1e6),
        bound: format!("within {} %", RATE_BOUND * 100.0),
        passed: (measured / rate as f64 - 1.0).abs() <= RATE_BOUND,
    }))
}

/// Bits of full packets in a second, or NaN with too few of them.
fn arrival_rate(arrivals: &[Arrival]) -> f64 {
    let Some(first) = arrivals.first() else {
        return f64::NAN;
    };
    let counted: Vec<_> = arrivals.iter().filter(|arrival| arrival.received_ns >= first.received_ns + WARM_UP_NS).collect();
    let [start, .., end] = counted[..] else {
        return f64::NAN;
    };
    // Between n arrivals lie n - 1 packets.
    (counted.len() - 1) as f64 * MTU as f64 * 8e9 / (end.received_ns - start.received_ns) as f64
}

/// Delay, loss, packets that went another way, and the emulator's lateness.
pub(super) fn probes(way: Way, asked: &Direction, probed: &Probed) -> [Check; 4] {
    let sample = match way {
        Way::Up => &probed.up,
        Way::Down => &probed.down,
    };
    [delay(way, asked, sample), loss(way, asked, sample), bypass(way, sample, probed), lateness(way, probed)]
}

fn delay(way: Way, asked: &Direction, sample: &Sample) -> Check {
    let expected_ms = (asked.delay_ns + asked.serialisation_ns(PROBE_WIRE_BYTES as u64)) as f64 / 1e6;
    let mut delays_ms: Vec<f64> = independent(&sample.arrivals, asked.jitter_ns)
        .map(|arrival| arrival.received_ns.saturating_sub(arrival.sent_ns) as f64 / 1e6)
        .collect();
    delays_ms.sort_unstable_by(f64::total_cmp);
    let count = delays_ms.len();
    let (mut bound, mut measured, mut passed) = ("no probe arrived".into(), "-".into(), asked.loss_probability() >= 1.0);
    if count > 0 {
        // The ranks between which the true median lies: exact for any distribution.
        let (low, high) = binomial::interval(count as u64, 0.5, CONFIDENCE);
        let low_ms = delays_ms[(low as usize).saturating_sub(1).min(count - 1)];
        let high_ms = delays_ms[(high as usize).min(count - 1)];
        let median_ms = delays_ms[count / 2];
        let sampling_ms = (high_ms - low_ms) / 2.0;
        measured = format!("{median_ms:.3} ms");
        bound = format!("within {DELAY_BOUND_MS} ms + {sampling_ms:.3} (sampling, n {count})");
        passed = (low_ms - DELAY_BOUND_MS..=high_ms + DELAY_BOUND_MS).contains(&expected_ms);
    }
    Check { direction: name(way), what: "delay", asked: format!("{expected_ms:.3} ms"), measured, bound, passed }
}

/// Under jitter, probes so far apart that their jitter has nothing in common; otherwise all of them.
fn independent(arrivals: &[Arrival], jitter_ns: u64) -> impl Iterator<Item = &Arrival> {
    let apart_ns = if jitter_ns == 0 { 0 } else { 2 * JITTER_STEP_NS };
    let mut next_ns = 0;
    arrivals.iter().filter(move |arrival| {
        let taken = arrival.sent_ns >= next_ns;
        if taken {
            next_ns = arrival.sent_ns + apart_ns;
        }
        taken
    })
}

fn loss(way: Way, asked: &Direction, sample: &Sample) -> Check {
    let lost = sample.sent.saturating_sub(sample.arrivals.len() as u64);
    let probability = asked.loss_probability();
    let (low, high) = binomial::interval(sample.sent, probability, CONFIDENCE);
    Check {
        direction: name(way),
        what: "loss",
        asked: format!("{} %", probability * 100.0),
        measured: format!("{:.3} %", lost as f64 / sample.sent.max(1) as f64 * 100.0),
        bound: format!("{low} to {high} of {} ({lost} lost)", sample.sent),
        passed: (low..=high).contains(&lost),
    }
}

/// Each packet sent has to be one that the emulator saw, or that its device dropped before.
fn bypass(way: Way, sample: &Sample, probed: &Probed) -> Check {
    let counted = direction_report(&probed.report, way);
    let accounted = counted.packets_in + counted.tun_drops;
    Check {
        direction: name(way),
        what: "bypass",
        asked: "0 packets".into(),
        measured: format!("{} packets", sample.sent.abs_diff(accounted)),
        bound: format!("sent {}, seen {}, tun drops {}", sample.sent, counted.packets_in, counted.tun_drops),
        passed: sample.sent == accounted && counted.tun_drops == 0,
    }
}

fn lateness(way: Way, probed: &Probed) -> Check {
    let p99_us = direction_report(&probed.report, way).lateness_us.p99;
    Check {
        direction: name(way),
        what: "lateness",
        asked: "-".into(),
        measured: format!("{p99_us:.0} us (p99)"),
        bound: format!("at most {LATENESS_P99_BOUND_US:.0} us"),
        passed: p99_us <= LATENESS_P99_BOUND_US,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Loss;

    const MS: u64 = 1_000_000;

    fn asked() -> Direction {
        Direction {
            rate_bits_per_second: Some(12_000_000),
            delay_ns: 35 * MS,
            jitter_ns: 0,
            loss: Loss::Independent { percent: 15.0 },
            queue_bytes: Some(450_000),
        }
    }

    /// Probes 2 ms apart, each with the delay that `delay_ns` gives.
    fn sample(count: u64, delay_ns: impl Fn(u64) -> u64) -> Sample {
        let arrivals =
            (0..count).map(|number| Arrival { sent_ns: number * 2 * MS, received_ns: number * 2 * MS + delay_ns(number) }).collect();
        Sample { sent: count, arrivals }
    }

    #[test]
    fn delay_counts_the_probe_on_the_wire_and_allows_its_bound_only() {
        // 128 bytes at 12 Mbit/s are 85.333 us.
        let right = 35 * MS + 85_333;
        assert!(delay(Way::Up, &asked(), &sample(500, |_| right)).passed);
        assert!(delay(Way::Up, &asked(), &sample(500, |_| right + 299_000)).passed);
        assert!(!delay(Way::Up, &asked(), &sample(500, |_| right + 301_000)).passed);
        assert!(!delay(Way::Up, &asked(), &sample(500, |_| right - 301_000)).passed);
    }

    #[test]
    fn few_late_probes_do_not_move_the_median() {
        let late = |number: u64| 35 * MS + 85_333 + if number.is_multiple_of(10) { 20 * MS } else { 0 };
        assert!(delay(Way::Up, &asked(), &sample(500, late)).passed);
    }

    #[test]
    fn jitter_widens_the_bound_by_its_sampling_error_alone() {
        let jittery = Direction { jitter_ns: 8 * MS, ..asked() };
        // A saw-tooth over ± 8 ms that no multiple of the 20 ms between independent probes follows.
        let tooth = |number: u64| 27 * MS + 85_333 + (number / 10 * 7919) % (16 * MS / 1000) * 1000;
        assert!(delay(Way::Up, &jittery, &sample(20_000, tooth)).passed);
        assert!(!delay(Way::Up, &jittery, &sample(20_000, |number| tooth(number) + 2 * MS)).passed);
    }

    #[test]
    fn no_arrival_at_all_fails_unless_all_were_to_be_lost() {
        let nothing = Sample { sent: 100, arrivals: Vec::new() };
        assert!(!delay(Way::Up, &asked(), &nothing).passed);
        let all = Direction { loss: Loss::Independent { percent: 100.0 }, ..asked() };
        assert!(delay(Way::Up, &all, &nothing).passed && loss(Way::Up, &all, &nothing).passed);
    }

    #[test]
    fn loss_outside_the_binomial_interval_fails() {
        let with_lost = |lost: usize| {
            let mut sample = sample(20_000, |_| MS);
            sample.arrivals.truncate(20_000 - lost);
            loss(Way::Up, &asked(), &sample).passed
        };
        assert!(with_lost(2871) && with_lost(3131));
        assert!(!with_lost(2870) && !with_lost(3132));
    }

    #[test]
    fn rate_is_taken_between_arrivals_after_the_warm_up() {
        // 1500 bytes a millisecond, after a start that was twice as fast.
        let arrival = |received_ns| Arrival { sent_ns: 0, received_ns };
        let fast = (0..100).map(|number| arrival(number * MS / 2));
        let steady = (0..2000).map(|number| arrival(50 * MS + number * MS));
        let arrivals: Vec<_> = fast.chain(steady).collect();
        assert!((arrival_rate(&arrivals) - 12e6).abs() < 1.0);
        assert!(arrival_rate(&arrivals[..3]).is_nan());
    }
}
