//! Checks of a calibration, and what they compare.

use serde::Serialize;

use super::probe::Sample;
use crate::profile::{Direction, Profile};
use crate::report::{DirectionReport, Report};
use crate::way::Way;

/// Maximum relative deviation of the measured rate from the profile's.
pub const RATE_BOUND: f64 = 0.01;
/// Maximum deviation of the median delay from the profile's, in addition to the sampling error of a
/// median under jitter.
pub const DELAY_BOUND_MS: f64 = 0.3;
/// The share of lost probes must be inside this binomial interval.
pub const CONFIDENCE: f64 = 0.99;

/// A requested and a measured value.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Time of the profile's change before the measurement; absent for the initial link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<f64>,
    /// `up`, `down`.
    pub direction: &'static str,
    /// `rate`, `delay`, `loss`, `bypass` or `lateness`.
    pub what: &'static str,
    /// The profile's value, with its unit.
    pub asked: String,
    /// The measured value, with its unit.
    pub measured: String,
    /// The permitted range.
    pub bound: String,
    /// Whether the measured value is in the range.
    pub passed: bool,
}

/// Results of the probes.
pub(super) struct Probed {
    pub(super) report: Report,
    pub(super) up: Sample,
    pub(super) down: Sample,
}

pub(super) fn direction(profile: &Profile, way: Way) -> &Direction {
    match way {
        Way::Up => &profile.up,
        Way::Down => &profile.down,
    }
}

pub(super) fn direction_report(report: &Report, way: Way) -> &DirectionReport {
    match way {
        Way::Up => &report.up,
        Way::Down => &report.down,
    }
}

pub(super) fn name(way: Way) -> &'static str {
    match way {
        Way::Up => "up",
        Way::Down => "down",
    }
}
