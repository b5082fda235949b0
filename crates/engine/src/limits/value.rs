//! Parsing and formatting of limit values.

use std::fmt;

/// The unit of a limit's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Number of items.
    Count,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Time,
    /// Items per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
}

const KIB: u64 = 1 << 10;
const BYTES: [(&str, u64); 4] =
    [("GiB", KIB * KIB * KIB), ("MiB", KIB * KIB), ("KiB", KIB), ("B", 1)];
const TIMES: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Unit {
    /// Formats a value in the largest unit that leaves no fraction.
    pub fn write(self, value: u64) -> String {
        let (units, suffix): (&[_], _) = match self {
            Self::Count => return value.to_string(),
            Self::PerSecond => return format!("{value}/s"),
            Self::Bytes => (&BYTES, ""),
            Self::BytesPerSecond => (&BYTES, "/s"),
            Self::Time => (&TIMES, ""),
        };
        let smallest = units[units.len() - 1];
        let (name, size) = units
            .iter()
            .copied()
            .find(|(_, size)| value >= *size && value.is_multiple_of(*size))
            .unwrap_or(smallest);
        let space = if self == Self::Time { "" } else { " " };
        format!("{}{space}{name}{suffix}", value / size)
    }

    /// Parses `text` in this unit, or returns `None` if it is invalid.
    pub fn read(self, text: &str) -> Option<u64> {
        match self {
            Self::Count => text.parse().ok(),
            Self::PerSecond => text.strip_suffix("/s").unwrap_or(text).parse().ok(),
            Self::Bytes => scaled(text, &BYTES, Some(1)),
            Self::BytesPerSecond => {
                scaled(text.strip_suffix("/s").unwrap_or(text), &BYTES, Some(1))
            }
            // A time without a unit is rejected: seconds or milliseconds would be a guess.
            Self::Time => scaled(text, &TIMES, None),
        }
    }

    /// Describes how to write a value.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Count => "a number",
            Self::Bytes => "a number of bytes, such as 65536 or 64KiB",
            Self::Time => "a time, such as 30s or 500ms",
            Self::PerSecond => "a number per second, such as 100",
            Self::BytesPerSecond => "a number of bytes per second, such as 240 or 1KiB",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "number",
            Self::Bytes => "bytes",
            Self::Time => "time",
            Self::PerSecond => "per second",
            Self::BytesPerSecond => "bytes per second",
        })
    }
}

fn scaled(text: &str, units: &[(&str, u64)], without_unit: Option<u64>) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let size = if unit.is_empty() {
        without_unit?
    } else {
        units.iter().find(|(name, _)| *name == unit)?.1
    };
    number.parse::<u64>().ok()?.checked_mul(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_back() {
        for unit in [Unit::Count, Unit::Bytes, Unit::Time, Unit::PerSecond, Unit::BytesPerSecond] {
            for value in
                [0, 1, 999, 1_000, 1_024, 30_000, 65_536, 65_537, 3_600_000, 1 << 30, u64::MAX]
            {
                assert_eq!(
                    unit.read(&unit.write(value)),
                    Some(value),
                    "{unit}: {}",
                    unit.write(value)
                );
            }
        }
    }

    #[test]
    fn value_too_large_for_a_number_is_refused() {
        assert_eq!(Unit::Bytes.read("99999999999999999999"), None);
        assert_eq!(Unit::Bytes.read("18446744073709551615KiB"), None);
        assert_eq!(Unit::Count.read("-1"), None);
    }
}
