//! The steps of memory pressure.

use std::fmt;

/// How short memory is. Each step includes those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPressure {
    /// Nothing is limited beyond the limits of single connections.
    #[default]
    None,
    /// New connections get small windows, and new content is buffered in small pieces.
    SmallWindows,
    /// Windows do not grow on data that no handler reads, and no more is lent for sending.
    NoGrowth,
    /// Windows of existing connections shrink.
    Shrink,
    /// New connections are refused.
    RefuseConnections,
    /// New requests are answered 503.
    RefuseRequests,
}

impl MemoryPressure {
    /// All steps, from the lowest.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::SmallWindows,
        Self::NoGrowth,
        Self::Shrink,
        Self::RefuseConnections,
        Self::RefuseRequests,
    ];

    /// Percentage of the budget from which on a step applies.
    const BEGINS: [u64; 6] = [0, 40, 55, 70, 85, 92];
    /// Percentage of the budget below which a step ends. Well below the other, so that a server at
    /// the border does not change its mind with each request.
    const ENDS: [u64; 6] = [0, 30, 45, 60, 75, 82];

    /// Returns the number of the step, from 0.
    pub fn step(self) -> u8 {
        self as u8
    }

    pub(super) fn from_step(step: u8) -> Self {
        Self::ALL[usize::from(step).min(Self::ALL.len() - 1)]
    }

    /// Returns the step after this one when `held` bytes of `budget` are in use.
    pub(crate) fn next(self, held: u64, budget: u64) -> Self {
        let reaches =
            |percent: u64| u128::from(held) * 100 >= u128::from(budget) * u128::from(percent);
        let applies = |step: &Self| {
            let index = usize::from(step.step());
            reaches(if *step <= self { Self::ENDS[index] } else { Self::BEGINS[index] })
        };
        // The steps' limits ascend, so the last one that applies includes the others.
        Self::ALL.into_iter().rfind(|step| *step == Self::None || applies(step)).unwrap_or_default()
    }

    /// Returns what happens in this step, for logs.
    pub fn effect(self) -> &'static str {
        match self {
            Self::None => "no limit",
            Self::SmallWindows => "new connections get small windows",
            Self::NoGrowth => "windows do not grow on unread data",
            Self::Shrink => "windows shrink",
            Self::RefuseConnections => "new connections are refused",
            Self::RefuseRequests => "new requests are answered 503",
        }
    }
}

impl fmt::Display for MemoryPressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::SmallWindows => "small_windows",
            Self::NoGrowth => "no_growth",
            Self::Shrink => "shrink",
            Self::RefuseConnections => "refuse_connections",
            Self::RefuseRequests => "refuse_requests",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_and_falls_with_hysteresis() {
        let mut pressure = MemoryPressure::None;
        let mut steps = Vec::new();
        for held in (0..=100).chain((0..=100).rev()) {
            let next = pressure.next(held, 100);
            if next != pressure {
                steps.push((held, next.step()));
                pressure = next;
            }
        }
        let up = [(40, 1), (55, 2), (70, 3), (85, 4), (92, 5)];
        let down = [(81, 4), (74, 3), (59, 2), (44, 1), (29, 0)];
        assert_eq!(steps, [up, down].concat());
    }

    #[test]
    fn sudden_change_skips_steps() {
        assert_eq!(MemoryPressure::None.next(99, 100), MemoryPressure::RefuseRequests);
        assert_eq!(MemoryPressure::RefuseRequests.next(0, 100), MemoryPressure::None);
        assert_eq!(MemoryPressure::RefuseRequests.next(70, 100), MemoryPressure::Shrink);
        assert_eq!(MemoryPressure::None.next(u64::MAX, u64::MAX), MemoryPressure::RefuseRequests);
    }

    #[test]
    fn value_at_border_changes_nothing_in_either_direction() {
        for step in MemoryPressure::ALL {
            let between = [20, 35, 50, 65, 80, 88][usize::from(step.step())];
            assert_eq!(step.next(between, 100), step);
        }
    }
}
