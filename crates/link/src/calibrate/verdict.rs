//! Compares what was measured with what the profile says.

use std::time::Duration;

use super::probe::{self, Arrival, Plan, Sample};
use super::{CONFIDENCE, Check, DELAY_BOUND_MS, PROBE_WIRE_BYTES, Probed, RATE_BOUND, direction, direction_report, name};
use crate::profile::{Direction, Loss, MTU};
use crate::report::LATENESS_P99_BOUND_US;
use crate::scheduler::{Jitter, Way};
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
    let mut drawn = Jitter::of(asked, probed.report.seed, way);
    let jitter = |departed_ns: u64| drawn.at(departed_ns.saturating_sub(probed.report.live_since_ns));
    [delay(way, asked, sample, jitter), loss(way, asked, sample), bypass(way, sample, probed), lateness(way, probed)]
}

/// `jitter`: what the link drew for a packet that left the queue at this time, which is taken off. What remains is the same for all
/// probes, so that a few of them tell the delay as exactly as a link without jitter does.
fn delay(way: Way, asked: &Direction, sample: &Sample, mut jitter: impl FnMut(u64) -> i64) -> Check {
    let serialisation_ns = asked.serialisation_ns(PROBE_WIRE_BYTES as u64);
    let expected_ms = (asked.delay_ns + serialisation_ns) as f64 / 1e6;
    let delay_ms = |arrival: &Arrival| {
        let measured_ns = arrival.received_ns.saturating_sub(arrival.sent_ns) as f64;
        (measured_ns - jitter(arrival.sent_ns + serialisation_ns) as f64) / 1e6
    };
    let mut delays_ms: Vec<f64> = sample.arrivals.iter().map(delay_ms).collect();
    delays_ms.sort_unstable_by(f64::total_cmp);
    let (measured, passed) = match delays_ms.get(delays_ms.len() / 2) {
        Some(median_ms) => (format!("{median_ms:.3} ms"), (median_ms - expected_ms).abs() <= DELAY_BOUND_MS),
        None => ("-".into(), asked.loss_probability() >= 1.0),
    };
    let bound = format!("within {DELAY_BOUND_MS} ms (median of {})", delays_ms.len());
    Check { direction: name(way), what: "delay", asked: format!("{expected_ms:.3} ms"), measured, bound, passed }
}

fn loss(way: Way, asked: &Direction, sample: &Sample) -> Check {
    let lost = sample.sent.saturating_sub(sample.arrivals.len() as u64);
    let probability = asked.loss_probability();
    let (low, high) = expected_losses(sample.sent, asked.loss);
    Check {
        direction: name(way),
        what: "loss",
        asked: format!("{} %", probability * 100.0),
        measured: format!("{:.3} %", lost as f64 / sample.sent.max(1) as f64 * 100.0),
        bound: format!("{low} to {high} of {} ({lost} lost)", sample.sent),
        passed: (low..=high).contains(&lost),
    }
}

/// How many of so many packets may be lost. What comes in bursts says less: as much as fewer packets would, each by itself.
fn expected_losses(packets: u64, loss: Loss) -> (u64, u64) {
    let (after_arrival, after_loss) = loss.chances();
    let likeness = after_loss - after_arrival;
    let worth = (1.0 - likeness) / (1.0 + likeness);
    let (low, high) = binomial::interval((packets as f64 * worth).ceil() as u64, loss.percent() / 100.0, CONFIDENCE);
    ((low as f64 / worth).floor() as u64, (high as f64 / worth).ceil() as u64)
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
    use crate::scheduler::{Scheduler, Verdict};

    const MS: u64 = 1_000_000;

    fn still(_: u64) -> i64 {
        0
    }

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
        assert!(delay(Way::Up, &asked(), &sample(500, |_| right), still).passed);
        assert!(delay(Way::Up, &asked(), &sample(500, |_| right + 299_000), still).passed);
        assert!(!delay(Way::Up, &asked(), &sample(500, |_| right + 301_000), still).passed);
        assert!(!delay(Way::Up, &asked(), &sample(500, |_| right - 301_000), still).passed);
    }

    #[test]
    fn few_late_probes_do_not_move_the_median() {
        let late = |number: u64| 35 * MS + 85_333 + if number.is_multiple_of(10) { 20 * MS } else { 0 };
        assert!(delay(Way::Up, &asked(), &sample(500, late), still).passed);
    }

    #[test]
    fn delay_under_jitter_is_as_exact_as_without() {
        let jittery = Direction { jitter_ns: 8 * MS, ..asked() };
        let live_ns = 5 * MS;
        let check = |seed_of_link: u64, error_ns: u64| {
            let mut link = Scheduler::new(&jittery, seed_of_link, Way::Up);
            let arrivals = (0..2000).filter_map(|number| {
                let sent_ns = live_ns + number * 2 * MS;
                match link.handle_packet(PROBE_WIRE_BYTES, sent_ns - live_ns) {
                    Verdict::Deliver { deadline_ns } => Some(Arrival { sent_ns, received_ns: live_ns + deadline_ns + error_ns }),
                    Verdict::Lost | Verdict::QueueFull => None,
                }
            });
            let sample = Sample { sent: 2000, arrivals: arrivals.collect() };
            let mut drawn = Jitter::of(&jittery, 7, Way::Up);
            delay(Way::Up, &jittery, &sample, |departed_ns| drawn.at(departed_ns - live_ns)).passed
        };
        assert!(check(7, 0) && check(7, 250_000));
        assert!(!check(7, 350_000));
    }

    #[test]
    fn no_arrival_at_all_fails_unless_all_were_to_be_lost() {
        let nothing = Sample { sent: 100, arrivals: Vec::new() };
        assert!(!delay(Way::Up, &asked(), &nothing, still).passed);
        let all = Direction { loss: Loss::Independent { percent: 100.0 }, ..asked() };
        assert!(delay(Way::Up, &all, &nothing, still).passed && loss(Way::Up, &all, &nothing).passed);
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
    fn bursts_as_they_are_asked_for_pass() {
        let bursts = Loss::Bursts { percent: 15.0, packets: 4.0 };
        let failed = |seed: &u64| {
            let mut link = Scheduler::new(&Direction { loss: bursts, ..asked() }, *seed, Way::Up);
            let lost = (0..5_000).filter(|number| link.handle_packet(PROBE_WIRE_BYTES, number * 2 * MS) == Verdict::Lost).count();
            let (low, high) = expected_losses(5_000, bursts);
            !(low..=high).contains(&(lost as u64))
        };
        // Two of 200 are to be expected.
        let failed = (0..200).filter(failed).count();
        assert!((0..=8).contains(&failed), "{failed} of 200 fail");
        let (low, high) = expected_losses(5_000, bursts);
        let (alone_low, alone_high) = expected_losses(5_000, Loss::Independent { percent: 15.0 });
        assert!(low < alone_low && high > alone_high && high < 2 * alone_high);
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
