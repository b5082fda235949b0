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

use crate::emulator;
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
    /// All checks passed.
    pub passed: bool,
}

/// One value, asked and measured.
#[derive(Debug, Serialize)]
pub struct Check {
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

/// Measures for about `seconds` with probes and `seconds` at full rate in each direction.
///
/// Unless the process is root, call [`crate::enter_user_namespace_unless_root`] first.
pub fn calibrate(profile: &Profile, seed: u64, seconds: u32) -> Result<Calibration, Error> {
    let options = Options { seed, ..Options::default() };
    let time = Duration::from_secs(seconds.into());
    let probed = probe_both_ways(profile, &options, time)?;
    let mut checks = Vec::new();
    for way in [Way::Up, Way::Down] {
        checks.extend(verdict::rate(way, profile, &options, time)?);
        checks.extend(verdict::probes(way, direction(profile, way), &probed));
    }
    Ok(Calibration {
        passed: checks.iter().all(|check| check.passed),
        profile: probed.report.profile,
        seed,
        scheduling: probed.report.scheduling,
        checks,
    })
}

/// What the probes gave.
struct Probed {
    report: Report,
    up: Sample,
    down: Sample,
}

fn probe_both_ways(profile: &Profile, options: &Options, time: Duration) -> Result<Probed, Error> {
    let link = Link::start(profile, options)?;
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
        for check in &self.checks {
            let Check { direction, what, asked, measured, bound, passed } = check;
            writeln!(f, "{direction:<6}{what:<10}{asked:<18}{measured:<18}{bound:<44}{}", verdict::word(*passed))?;
        }
        write!(f, "\n{}", verdict::word(self.passed))
    }
}
