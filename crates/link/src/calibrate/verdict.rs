//! Compares measurements with the profile.

use std::time::Duration;

use super::check::{
    CONFIDENCE, Check, DELAY_BOUND_MS, Probed, RATE_BOUND, direction, direction_report, name,
};
use super::probe::PROBE_WIRE_BYTES;
use super::probe::{self, Arrival, Plan, Sample};
use crate::emulator::ClockStart;
use crate::lateness::most_late;
use crate::profile::{Direction, MTU};
use crate::scheduler::{Jitter, Wire, mean_bits_per_second};
use crate::way::Way;
use crate::{Error, Link, Options, Profile, Report, binomial};

/// Omitted at the beginning, until the queue never runs empty.
const WARM_UP_NS: u64 = 200_000_000;

pub(super) fn word(passed: bool) -> &'static str {
    if passed { "PASS" } else { "FAIL" }
}

/// Measures the rate on a separate link; nothing to measure without a rate.
pub(super) fn rate(
    way: Way,
    profile: &Profile,
    options: &Options,
    time: Duration,
) -> Result<Option<(Check, Report)>, Error> {
    let asked = direction(profile, way);
    let Some(rate) = asked.rate_bits_per_second else {
        return Ok(None);
    };
    let link = Link::start(profile, options)?;
    link.start_clock(ClockStart::Now)?.expect("invariant: no change has been made yet");
    let (near, far) = probe::sockets(&link)?;
    let (from, to) = match way {
        Way::Up => (&near, &far),
        Way::Down => (&far, &near),
    };
    let plan = Plan::saturation(asked, rate, time);
    let sample =
        probe::measure(from, to, &plan).map_err(Error::system("send packets over the link"))?;
    let report = link.stop()?;
    let counted = direction_report(&report, way);
    // Lost packets also use the rate; what arrives is the remainder.
    let sent_on_wire = counted.counters.packets_out + counted.counters.packets_lost;
    let arrived_share = counted.counters.packets_out as f64 / (sent_on_wire as f64).max(1.0);
    let (measured, from_ns, to_ns) = arrival_rate(&sample.arrivals).unwrap_or((f64::NAN, 0, 0));
    let measured = measured / arrived_share;
    // Time on the wire of the arrived packets, from time zero.
    let on_wire_ns =
        |received_ns: u64| received_ns.saturating_sub(report.time_zero_ns + asked.delay_ns);
    let expected =
        mean_bits_per_second(asked, options.seed, way, on_wire_ns(from_ns), on_wire_ns(to_ns))
            .unwrap_or(f64::NAN);
    let of = if asked.outages.is_some() { ", outages counted in" } else { "" };
    let check = Check {
        after_ms: None,
        direction: name(way),
        what: "rate",
        asked: format!("{:.3} Mbit/s", expected / 1e6),
        measured: format!("{:.3} Mbit/s", measured / 1e6),
        bound: format!("within {} %{of}", RATE_BOUND * 100.0),
        passed: (measured / expected - 1.0).abs() <= RATE_BOUND,
    };
    Ok(Some((check, report)))
}

/// Returns the bit rate of full packets and the arrival times between which it was counted. `None`
/// with too few packets.
fn arrival_rate(arrivals: &[Arrival]) -> Option<(f64, u64, u64)> {
    let first = arrivals.first()?;
    let counted: Vec<_> = arrivals
        .iter()
        .filter(|arrival| arrival.received_ns >= first.received_ns + WARM_UP_NS)
        .collect();
    let [start, .., end] = counted[..] else { return None };
    // There are n - 1 packets between n arrivals.
    let bits = (counted.len() - 1) as f64 * MTU as f64 * 8.0;
    Some((
        bits * 1e9 / (end.received_ns - start.received_ns) as f64,
        start.received_ns,
        end.received_ns,
    ))
}

/// Checks delay, loss, packets that bypassed the link, and the emulator's lateness, for probes and
/// at full rate.
pub(super) fn probes(
    way: Way,
    asked: &Direction,
    probed: &Probed,
    full_rate: Option<&Report>,
) -> Vec<Check> {
    let sample = match way {
        Way::Up => &probed.up,
        Way::Down => &probed.down,
    };
    let expected = Expected::of(asked, probed.report.seed, way, probed.report.time_zero_ns);
    let mut checks = vec![
        delay(way, asked, sample, expected),
        loss(way, asked, sample),
        bypass(way, sample, probed),
        lateness(way, &probed.report, ""),
    ];
    if let Some(report) = full_rate {
        let held = format!(
            ", {} packets on their way",
            direction_report(report, way).counters.held_max_packets
        );
        checks.push(lateness(way, report, &held));
    }
    checks
}

/// Expected arrival of probes, computed from their send times, the seed's draws, and the order that
/// the link keeps.
///
/// A packet that arrives in a pause waits for its end, and a packet that would overtake waits for
/// the one before. The effect on the median depends on when probes are sent, so it is part of the
/// expectation, not of the permitted deviation.
struct Expected {
    wire: Wire,
    jitter: Jitter,
    delay_ns: u64,
    reorder: bool,
    time_zero_ns: u64,
}

impl Expected {
    fn of(asked: &Direction, seed: u64, way: Way, time_zero_ns: u64) -> Self {
        let (wire, jitter) = (Wire::of(asked, seed, way, 0), Jitter::of(asked, seed, way, 0));
        Self { wire, jitter, delay_ns: asked.delay_ns, reorder: asked.reorder, time_zero_ns }
    }

    /// Returns by how much each arrived probe was later than expected.
    fn lateness_ms(mut self, sample: &Sample) -> Vec<f64> {
        let mut received_ns = vec![None; sample.sent_ns.len()];
        for arrival in &sample.arrivals {
            if let Some(place) = received_ns.get_mut(arrival.number) {
                *place = Some(arrival.received_ns);
            }
        }
        let mut last_ns = 0;
        let mut lateness_ms = Vec::new();
        for (sent_ns, received_ns) in sample.sent_ns.iter().zip(received_ns) {
            let Some(on_wire_ns) =
                self.wire.send(PROBE_WIRE_BYTES as u64, sent_ns.saturating_sub(self.time_zero_ns))
            else {
                continue;
            };
            let arrives_ns =
                self.jitter.arrives_ns(PROBE_WIRE_BYTES as u64, on_wire_ns, self.delay_ns);
            let Some(received_ns) = received_ns else { continue };
            let mut expected_ns = self.time_zero_ns + arrives_ns;
            if !self.reorder {
                expected_ns = expected_ns.max(last_ns);
                last_ns = expected_ns;
            }
            lateness_ms.push((received_ns as f64 - expected_ns as f64) / 1e6);
        }
        lateness_ms.sort_unstable_by(f64::total_cmp);
        lateness_ms
    }
}

/// The remaining deviation is the same for all probes, so a few probes measure the delay under
/// jitter as exactly as without.
fn delay(way: Way, asked: &Direction, sample: &Sample, expected: Expected) -> Check {
    let asked_ms = (asked.delay_ns + asked.serialisation_ns(PROBE_WIRE_BYTES as u64)) as f64 / 1e6;
    let lateness_ms = expected.lateness_ms(sample);
    let (measured, passed) = match lateness_ms.get(lateness_ms.len() / 2) {
        Some(median_ms) => {
            (format!("{:.3} ms", asked_ms + median_ms), median_ms.abs() <= DELAY_BOUND_MS)
        }
        None => ("-".into(), asked.loss_probability() >= 1.0),
    };
    let bound = format!("within {DELAY_BOUND_MS} ms (median of {})", lateness_ms.len());
    Check {
        after_ms: None,
        direction: name(way),
        what: "delay",
        asked: format!("{asked_ms:.3} ms"),
        measured,
        bound,
        passed,
    }
}

fn loss(way: Way, asked: &Direction, sample: &Sample) -> Check {
    let lost = sample.sent().saturating_sub(sample.arrivals.len() as u64);
    let (low, high) = expected_losses(sample.sent(), asked);
    Check {
        after_ms: None,
        direction: name(way),
        what: "loss",
        asked: format!("{} %", asked.loss.percent()),
        measured: format!("{:.3} %", lost as f64 / sample.sent().max(1) as f64 * 100.0),
        bound: format!("{low} to {high} of {} ({lost} lost)", sample.sent()),
        passed: (low..=high).contains(&lost),
    }
}

/// Returns how many of `packets` may be lost. Bursts carry less information, equivalent to fewer
/// independently lost packets.
fn expected_losses(packets: u64, asked: &Direction) -> (u64, u64) {
    let planted = asked.lose_packets.iter().filter(|number| **number <= packets).count() as u64;
    let by_chance = packets - planted;
    let worth = asked.loss.independent_worth();
    let (low, high) = binomial::interval(
        (by_chance as f64 * worth).ceil() as u64,
        asked.loss_probability(),
        CONFIDENCE,
    );
    (
        planted + (low as f64 / worth).floor() as u64,
        planted + ((high as f64 / worth).ceil() as u64).min(by_chance),
    )
}

/// Each sent packet must have been seen by the emulator, or dropped by its device before.
fn bypass(way: Way, sample: &Sample, probed: &Probed) -> Check {
    let counted = direction_report(&probed.report, way);
    let accounted = counted.counters.packets_in + counted.tun_drops;
    Check {
        after_ms: None,
        direction: name(way),
        what: "bypass",
        asked: "0 packets".into(),
        measured: format!("{} packets", sample.sent().abs_diff(accounted)),
        bound: format!(
            "sent {}, seen {}, tun drops {}",
            sample.sent(),
            counted.counters.packets_in,
            counted.tun_drops
        ),
        passed: sample.sent() == accounted && counted.tun_drops == 0,
    }
}

fn lateness(way: Way, report: &Report, of: &str) -> Check {
    let found = direction_report(report, way).lateness_us;
    Check {
        after_ms: None,
        direction: name(way),
        what: "lateness",
        asked: "-".into(),
        measured: format!("{} late (p99 {:.0} us)", found.late, found.p99),
        bound: format!(
            "at most {} of {} later than {:.0} us{of}",
            most_late(found.packets),
            found.packets,
            report.lateness_bound_us
        ),
        passed: found.is_kept(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{GilbertElliott, Loss, RateTrace};
    use crate::scheduler::{Scheduler, Verdict};

    const MS: u64 = 1_000_000;

    fn asked() -> Direction {
        up("rate_mbit_per_second=12\nqueue_ms=300\ndelay_ms=35\nloss_percent=15")
    }

    fn up(keys: &str) -> Direction {
        Profile::from_toml(&format!("name='t'\n[up]\n{keys}\n[down]\ndelay_ms=0")).unwrap().up
    }

    fn check_delay(direction: &Direction, sample: &Sample) -> bool {
        delay(Way::Up, direction, sample, Expected::of(direction, 7, Way::Up, 0)).passed
    }

    /// Probes 2 ms apart, each with the delay that `delay_ns` gives.
    fn sample(count: u64, delay_ns: impl Fn(u64) -> u64) -> Sample {
        let sent_ns: Vec<u64> = (0..count).map(|number| number * 2 * MS).collect();
        let arrivals = (0..count).map(|number| Arrival {
            number: number as usize,
            received_ns: number * 2 * MS + delay_ns(number),
        });
        Sample { arrivals: arrivals.collect(), sent_ns }
    }

    #[test]
    fn delay_includes_the_probe_on_the_wire_and_is_bounded() {
        // 128 bytes at 12 Mbit/s take 85.333 us.
        let right = 35 * MS + 85_333;
        assert!(check_delay(&asked(), &sample(500, |_| right)));
        assert!(check_delay(&asked(), &sample(500, |_| right + 299_000)));
        assert!(!check_delay(&asked(), &sample(500, |_| right + 301_000)));
        assert!(!check_delay(&asked(), &sample(500, |_| right - 301_000)));
    }

    #[test]
    fn few_late_probes_do_not_move_the_median() {
        let late =
            |number: u64| 35 * MS + 85_333 + if number.is_multiple_of(10) { 20 * MS } else { 0 };
        assert!(check_delay(&asked(), &sample(500, late)));
    }

    #[test]
    fn delay_check_is_exact_with_jitter_outages_and_traces() {
        let keys = [
            "jitter_ms=8\nloss_percent=15",
            "jitter_ms=35",
            "jitter_ms=35\nreorder=true\nloss_percent=15",
            "outage_ms=[300,600]\noutage_every_ms=[800,1200]\njitter_ms=8",
        ];
        let traced = std::sync::Arc::new(RateTrace::parse("10\n11\n12\n27\n90\n91\n").unwrap());
        let mut directions: Vec<Direction> = keys
            .iter()
            .map(|keys| up(&format!("rate_mbit_per_second=12\nqueue_ms=300\ndelay_ms=35\n{keys}")))
            .collect();
        directions.push(Direction { rate_trace: Some(traced), ..asked() });
        for direction in directions {
            let live_ns = 5 * MS;
            let check = |seed_of_link: u64, error_ns: i64| {
                let mut link = Scheduler::new(&direction, seed_of_link, Way::Up);
                let sent_ns: Vec<u64> = (0..2000).map(|number| live_ns + number * 2 * MS).collect();
                let arrivals = sent_ns.iter().enumerate().filter_map(|(number, sent_ns)| {
                    let Verdict::Deliver { deadline_ns } =
                        link.handle_packet(PROBE_WIRE_BYTES, sent_ns - live_ns)
                    else {
                        return None;
                    };
                    Some(Arrival {
                        number,
                        received_ns: (live_ns + deadline_ns).saturating_add_signed(error_ns),
                    })
                });
                let sample = Sample { arrivals: arrivals.collect(), sent_ns };
                delay(Way::Up, &direction, &sample, Expected::of(&direction, 7, Way::Up, live_ns))
                    .passed
            };
            assert!(check(7, 0) && check(7, 299_000) && check(7, -299_000), "{direction:?}");
            assert!(!check(7, 301_000) && !check(7, -301_000), "{direction:?}");
        }
    }

    #[test]
    fn missing_arrivals_fail_unless_loss_is_total() {
        let nothing = Sample { sent_ns: vec![0; 100], arrivals: Vec::new() };
        assert!(!check_delay(&asked(), &nothing));
        let all = Direction { loss: Loss::Independent { percent: 100.0 }, ..asked() };
        assert!(check_delay(&all, &nothing) && loss(Way::Up, &all, &nothing).passed);
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
    fn configured_bursts_pass() {
        let alone = expected_losses(5_000, &asked());
        let model = GilbertElliott {
            good_to_bad_percent: 4.0,
            bad_to_good_percent: 20.0,
            loss_in_bad_percent: 90.0,
            loss_in_good_percent: 0.0,
        };
        for loss in [Loss::Bursts { percent: 15.0, packets: 4.0 }, Loss::GilbertElliott(model)] {
            let bursts = Direction { loss, ..asked() };
            let failed = |seed: &u64| {
                let mut link = Scheduler::new(&bursts, *seed, Way::Up);
                let lost = (0..5_000)
                    .filter(|number| {
                        link.handle_packet(PROBE_WIRE_BYTES, number * 2 * MS) == Verdict::Lost
                    })
                    .count();
                let (low, high) = expected_losses(5_000, &bursts);
                !(low..=high).contains(&(lost as u64))
            };
            // Two of 200 failures are expected.
            let failed = (0..200).filter(failed).count();
            assert!((0..=8).contains(&failed), "{failed} of 200 fail");
            let (low, high) = expected_losses(5_000, &bursts);
            assert!(low < alone.0 && high > alone.1 && high < 2 * alone.1);
        }
    }

    #[test]
    fn packets_lost_by_number_are_expected() {
        let planted = up("delay_ms=1\nlose_packets=[1,7,900]");
        assert_eq!(expected_losses(500, &planted), (2, 2));
        let both = up("delay_ms=1\nlose_packets=[1,7]\nloss_percent=1");
        let alone = expected_losses(4_998, &up("delay_ms=1\nloss_percent=1"));
        assert_eq!(expected_losses(5_000, &both), (alone.0 + 2, alone.1 + 2));
    }

    #[test]
    fn rate_is_measured_between_arrivals_after_the_warm_up() {
        // 1500 bytes per millisecond, after a start at twice the rate.
        let arrival = |received_ns| Arrival { number: 0, received_ns };
        let fast = (0..100).map(|number| arrival(number * MS / 2));
        let steady = (0..2000).map(|number| arrival(50 * MS + number * MS));
        let arrivals: Vec<_> = fast.chain(steady).collect();
        assert!((arrival_rate(&arrivals).unwrap().0 - 12e6).abs() < 1.0);
        assert!(arrival_rate(&arrivals[..3]).is_none());
    }
}
