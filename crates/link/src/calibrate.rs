//! Measures a link against its profile: sends packets over a real one and compares.
//!
//! Two links are made for it, one after the other. Over the first, small probes cross in both directions at a low rate,
//! so that they never wait for each other: they give delay and loss. Over the second, full packets come a tenth faster
//! than the profile's rate, first up, then down: their arrivals give the rate. Each packet carries its number and the
//! time it was sent; one machine has one clock, so delays are one-way.

mod probe;
mod verdict;

use std::time::Duration;

use serde::Serialize;

use crate::emulator::{self, ClockStart};
use crate::profile::Direction;
use crate::report::{DirectionReport, ProfileReport, Scheduling};
use crate::scheduler::Way;
use crate::{Error, Link, Options, Profile, Report};
use probe::{PROBE_WIRE_BYTES, Plan, Sample};

/// How far the measured rate may be from the profile's, as a share.
pub const RATE_BOUND: f64 = 0.01;
/// How far the median delay may be from the profile's, beyond the sampling error of a median under jitter.
pub const DELAY_BOUND_MS: f64 = 0.3;
/// The share of lost probes has to be inside this binomial interval.
pub const CONFIDENCE: f64 = 0.99;

/// What was measured, and whether the link does what its profile says.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// What was asked for.
    pub profile: ProfileReport,
    /// The seed of the link's random draws.
    pub seed: u64,
    /// Of the emulator's thread.
    pub scheduling: Scheduling,
    /// One line each.
    pub checks: Vec<Check>,
    /// What the profile says beside and was not measured.
    pub unchecked: Vec<String>,
    /// All checks passed.
    pub passed: bool,
}

/// One value, asked and measured.
#[derive(Debug, Serialize)]
pub struct Check {
    /// After which of the profile's changes; absent for the link as it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<f64>,
    /// `up`, `down`.
    pub direction: &'static str,
    /// `rate`, `delay`, `loss`, `bypass` or `lateness`.
    pub what: &'static str,
    /// The profile's value, with its unit.
    pub asked: String,
    /// With its unit.
    pub measured: String,
    /// What is allowed.
    pub bound: String,
    /// Whether the measured value is inside.
    pub passed: bool,
}

/// Measures for about `seconds` with probes and `seconds` at full rate in each direction; again for each change that gives a direction
/// other values, which is measured as a link of its own. Rules are left out: probes are not what they are for.
///
/// Unless the process is root, call [`crate::enter_user_namespace_unless_root`] first.
pub fn calibrate(profile: &Profile, seed: u64, seconds: u32) -> Result<Calibration, Error> {
    let options = Options { seed, ..Options::default() };
    let time = Duration::from_secs(seconds.into());
    let mut checks = Vec::new();
    let mut scheduling = Scheduling::Other;
    for (after_ms, phase) in phases(profile) {
        let probed = probe_both_ways(&phase, &options, time)?;
        scheduling = probed.report.scheduling;
        for way in [Way::Up, Way::Down] {
            let (rate, full_rate) = verdict::rate(way, &phase, &options, time)?.unzip();
            let found = rate.into_iter().chain(verdict::probes(way, direction(&phase, way), &probed, full_rate.as_ref()));
            checks.extend(found.map(|check| Check { after_ms, ..check }));
        }
    }
    Ok(Calibration {
        passed: checks.iter().all(|check| check.passed),
        profile: ProfileReport::of(profile),
        seed,
        scheduling,
        checks,
        unchecked: unchecked(profile),
    })
}

/// About how long [`calibrate`] takes.
pub fn takes_seconds(profile: &Profile, seconds: u32) -> u32 {
    let measurements =
        |phase: &Profile| 1 + [&phase.up, &phase.down].iter().filter(|way| way.rate_bits_per_second.is_some()).count() as u32;
    phases(profile).iter().map(|(_, phase)| measurements(phase).saturating_mul(seconds)).sum()
}

/// The link as it begins and as its changes leave it, each as a profile without rules and changes.
fn phases(profile: &Profile) -> Vec<(Option<f64>, Profile)> {
    let mut phase = Profile { rules: Vec::new(), changes: Vec::new(), ..profile.clone() };
    let mut phases = vec![(None, phase.clone())];
    for change in profile.changes.iter().filter(|change| change.up.is_some() || change.down.is_some()) {
        phase.up = change.up.clone().unwrap_or(phase.up);
        phase.down = change.down.clone().unwrap_or(phase.down);
        phases.push((Some(change.asked().after_ms), phase.clone()));
    }
    phases
}

fn unchecked(profile: &Profile) -> Vec<String> {
    let mut unchecked = Vec::new();
    if !profile.rules.is_empty() {
        unchecked.push(format!("{} of [[rules]]: what they drop stands in the report of a run", profile.rules.len()));
    }
    let addresses = profile.changes.iter().filter(|change| change.new_client_address).count();
    if addresses > 0 {
        unchecked.push(format!("{addresses} new client address: when it came stands in the report of a run"));
    }
    unchecked
}

/// What the probes gave.
struct Probed {
    report: Report,
    up: Sample,
    down: Sample,
}

fn probe_both_ways(profile: &Profile, options: &Options, time: Duration) -> Result<Probed, Error> {
    let link = Link::start(profile, options)?;
    link.start_clock(ClockStart::Now)?.expect("invariant: no change has been made yet");
    let (near, far) = probe::sockets(&link)?;
    let [up_plan, down_plan] = [&profile.up, &profile.down].map(|direction| Plan::probes(direction, time));
    let (up, down) = std::thread::scope(|scope| {
        let up = scope.spawn(|| probe::measure(&near, &far, &up_plan));
        let down = probe::measure(&far, &near, &down_plan);
        (up.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), down)
    });
    let failed = "send probes over the link";
    let (up, down) = (up.map_err(Error::system(failed))?, down.map_err(Error::system(failed))?);
    Ok(Probed { report: link.stop()?, up, down })
}

fn direction(profile: &Profile, way: Way) -> &Direction {
    match way {
        Way::Up => &profile.up,
        Way::Down => &profile.down,
    }
}

fn direction_report(report: &Report, way: Way) -> &DirectionReport {
    match way {
        Way::Up => &report.up,
        Way::Down => &report.down,
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Up => "up",
        Way::Down => "down",
    }
}

/// The table that `pronghorn link --calibrate` prints.
impl std::fmt::Display for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheduling = match self.scheduling {
            Scheduling::Fifo { priority } => format!("real-time scheduling (fifo {priority})"),
            Scheduling::Other => "ordinary scheduling".into(),
        };
        writeln!(f, "{}, seed {}, {scheduling}\n{}\n", self.profile.name, self.seed, self.profile.hash)?;
        writeln!(f, "{:<6}{:<10}{:<18}{:<18}{:<44}", "", "", "asked", "measured", "bound")?;
        let mut last_ms = None;
        for check in &self.checks {
            let Check { after_ms, direction, what, asked, measured, bound, passed } = check;
            if let Some(after_ms) = after_ms.filter(|_| *after_ms != last_ms) {
                writeln!(f, "after the change at {after_ms} ms")?;
            }
            last_ms = *after_ms;
            writeln!(f, "{direction:<6}{what:<10}{asked:<18}{measured:<18}{bound:<44}{}", verdict::word(*passed))?;
        }
        for left_out in &self.unchecked {
            writeln!(f, "not measured: {left_out}")?;
        }
        write!(f, "\n{}", verdict::word(self.passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_direction_is_a_phase_of_its_own() {
        let text = "name='t'\nup={delay_ms=1}\ndown={delay_ms=2}\n[[rules]]\nblock=true\n\
            [[changes]]\nafter_ms=100\nup={delay_ms=3}\n[[changes]]\nafter_ms=200\nnew_client_address=true\n\
            [[changes]]\nafter_ms=300\ndown={delay_ms=4}\n";
        let profile = Profile::from_toml(text).unwrap();
        let delays_ms = |phase: &Profile| (phase.up.delay_ns / 1_000_000, phase.down.delay_ns / 1_000_000);
        let phases = phases(&profile);
        let found: Vec<_> = phases.iter().map(|(after_ms, phase)| (after_ms.map(|ms| ms as u64), delays_ms(phase))).collect();
        assert_eq!(found, [(None, (1, 2)), (Some(100), (3, 2)), (Some(300), (3, 4))]);
        assert!(phases.iter().all(|(_, phase)| phase.rules.is_empty() && phase.changes.is_empty()));
        assert_eq!(unchecked(&profile).len(), 2);
        // Probes only: there is no rate.
        assert_eq!(takes_seconds(&profile, 5), 15);
        let limited = Profile::from_toml("name='t'\nup={delay_ms=1,rate_mbit_per_second=1,queue_ms=50}\ndown={delay_ms=2}").unwrap();
        assert_eq!(takes_seconds(&limited, 5), 10);
    }
}
