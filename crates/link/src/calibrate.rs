//! Measures a real link with packets and compares it with its profile.
//!
//! Two links are created, one after the other. On the first, small probes cross in both directions
//! at a low rate, so that they never wait for each other: they measure delay and loss. On the
//! second, full packets are sent a tenth faster than the profile's rate, first up, then down: their
//! arrivals measure the rate. Each packet carries its number and send time; both ends share one
//! clock, so delays are one-way.

mod check;
mod probe;
mod verdict;

use std::time::Duration;

use serde::Serialize;

use crate::emulator::ClockStart;
use crate::report::{ProfileReport, Scheduling};
use crate::way::Way;
use crate::{Error, Link, Options, Profile};
pub use check::{CONFIDENCE, Check, DELAY_BOUND_MS, RATE_BOUND};
use check::{Probed, direction};
use probe::Plan;

/// Measured values, and whether the link matches its profile.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// The requested profile.
    pub profile: ProfileReport,
    /// Seed of the link's random draws.
    pub seed: u64,
    /// Scheduling of the emulator's thread.
    pub scheduling: Scheduling,
    /// The checks, one per line of the table.
    pub checks: Vec<Check>,
    /// Parts of the profile that were not measured.
    pub unchecked: Vec<String>,
    /// Whether all checks passed.
    pub passed: bool,
}

/// Measures for about `seconds` with probes and `seconds` at full rate in each direction, and again
/// for each change that changes a direction, which is measured as a separate link. Rules are
/// omitted, because they are not meant for probes.
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
            let found = rate.into_iter().chain(verdict::probes(
                way,
                direction(&phase, way),
                &probed,
                full_rate.as_ref(),
            ));
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

/// Returns about how long [`calibrate`] takes.
pub fn takes_seconds(profile: &Profile, seconds: u32) -> u32 {
    let measurements = |phase: &Profile| {
        1 + [&phase.up, &phase.down].iter().filter(|way| way.rate_bits_per_second.is_some()).count()
            as u32
    };
    phases(profile).iter().map(|(_, phase)| measurements(phase).saturating_mul(seconds)).sum()
}

/// Returns the initial link and the link after each change, each as a profile without rules and
/// changes.
fn phases(profile: &Profile) -> Vec<(Option<f64>, Profile)> {
    let mut phase = Profile { rules: Vec::new(), changes: Vec::new(), ..profile.clone() };
    let mut phases = vec![(None, phase.clone())];
    for change in
        profile.changes.iter().filter(|change| change.up.is_some() || change.down.is_some())
    {
        phase.up = change.up.clone().unwrap_or(phase.up);
        phase.down = change.down.clone().unwrap_or(phase.down);
        phases.push((Some(change.asked().after_ms), phase.clone()));
    }
    phases
}

fn unchecked(profile: &Profile) -> Vec<String> {
    let mut unchecked = Vec::new();
    if !profile.rules.is_empty() {
        unchecked.push(format!(
            "{} of [[rules]]: what they drop stands in the report of a run",
            profile.rules.len()
        ));
    }
    let addresses = profile.changes.iter().filter(|change| change.new_client_address).count();
    if addresses > 0 {
        unchecked.push(format!(
            "{addresses} new client address: when it came stands in the report of a run"
        ));
    }
    unchecked
}

fn probe_both_ways(profile: &Profile, options: &Options, time: Duration) -> Result<Probed, Error> {
    let link = Link::start(profile, options)?;
    link.start_clock(ClockStart::Now)?.expect("invariant: no change has been made yet");
    let (near, far) = probe::sockets(&link)?;
    let [up_plan, down_plan] =
        [&profile.up, &profile.down].map(|direction| Plan::probes(direction, time));
    let (up, down) = std::thread::scope(|scope| {
        let up = scope.spawn(|| probe::measure(&near, &far, &up_plan));
        let down = probe::measure(&far, &near, &down_plan);
        (up.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), down)
    });
    let failed = "send probes over the link";
    let (up, down) = (up.map_err(Error::system(failed))?, down.map_err(Error::system(failed))?);
    Ok(Probed { report: link.stop()?, up, down })
}

/// The table that `pronghorn link --calibrate` prints.
impl std::fmt::Display for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheduling = match self.scheduling {
            Scheduling::Fifo { priority } => format!("real-time scheduling (fifo {priority})"),
            Scheduling::Other => "ordinary scheduling".into(),
        };
        writeln!(
            f,
            "{}, seed {}, {scheduling}\n{}\n",
            self.profile.name, self.seed, self.profile.hash
        )?;
        writeln!(f, "{:<6}{:<10}{:<18}{:<18}{:<44}", "", "", "asked", "measured", "bound")?;
        let mut last_ms = None;
        for check in &self.checks {
            let Check { after_ms, direction, what, asked, measured, bound, passed } = check;
            if let Some(after_ms) = after_ms.filter(|_| *after_ms != last_ms) {
                writeln!(f, "after the change at {after_ms} ms")?;
            }
            last_ms = *after_ms;
            writeln!(
                f,
                "{direction:<6}{what:<10}{asked:<18}{measured:<18}{bound:<44}{}",
                verdict::word(*passed)
            )?;
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
    fn each_change_of_a_direction_is_a_separate_phase() {
        let text = "name='t'\nup={delay_ms=1}\ndown={delay_ms=2}\n[[rules]]\nblock=true\n\
            [[changes]]\nafter_ms=100\nup={delay_ms=3}\n[[changes]]\nafter_ms=200\nnew_client_address=true\n\
            [[changes]]\nafter_ms=300\ndown={delay_ms=4}\n";
        let profile = Profile::from_toml(text).unwrap();
        let delays_ms =
            |phase: &Profile| (phase.up.delay_ns / 1_000_000, phase.down.delay_ns / 1_000_000);
        let phases = phases(&profile);
        let found: Vec<_> = phases
            .iter()
            .map(|(after_ms, phase)| (after_ms.map(|ms| ms as u64), delays_ms(phase)))
            .collect();
        assert_eq!(found, [(None, (1, 2)), (Some(100), (3, 2)), (Some(300), (3, 4))]);
        assert!(phases.iter().all(|(_, phase)| phase.rules.is_empty() && phase.changes.is_empty()));
        assert_eq!(unchecked(&profile).len(), 2);
        // Only probes, because there is no rate.
        assert_eq!(takes_seconds(&profile, 5), 15);
        let limited = Profile::from_toml(
            "name='t'\nup={delay_ms=1,rate_mbit_per_second=1,queue_ms=50}\ndown={delay_ms=2}",
        )
        .unwrap();
        assert_eq!(takes_seconds(&limited, 5), 10);
    }
}
