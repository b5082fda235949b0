//! A variable rate, read from a file.

use std::path::Path;

use super::error::Error;
use super::hash::sha256;

/// Bytes that one line of a trace permits.
pub const OPPORTUNITY_BYTES: u64 = 1500;

const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_PERIOD_MS: u64 = 24 * 3_600_000;
const MS: u64 = 1_000_000;

/// A rate trace in Mahimahi's format: each line is a millisecond at which [`OPPORTUNITY_BYTES`] may
/// pass. After the last line the trace repeats.
#[derive(Debug, PartialEq, Eq)]
pub struct RateTrace {
    /// Opportunities in order, the last one above 0.
    opportunities_ms: Vec<u64>,
}

impl RateTrace {
    pub(super) fn load(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::TraceUnreadable { path: path.to_owned(), source };
        let length = std::fs::metadata(path).map_err(unreadable)?.len();
        if length > MAX_FILE_BYTES {
            let message = format!("it has {length} bytes: allowed are {MAX_FILE_BYTES}");
            return Err(Error::Trace { path: path.to_owned(), message });
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text).map_err(|message| Error::Trace { path: path.to_owned(), message })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut opportunities_ms = Vec::new();
        let mut last = 0;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let number = number + 1;
            let at: u64 = line.parse().map_err(|_| {
                format!("line {number}: `{line}` is not a whole number of milliseconds")
            })?;
            if at < last {
                return Err(format!(
                    "line {number}: {at} ms comes after {last} ms: times must not go back"
                ));
            }
            if at > MAX_PERIOD_MS {
                return Err(format!("line {number}: {at} ms is more than a day"));
            }
            last = at;
            opportunities_ms.push(at);
        }
        if last == 0 {
            return Err(
                "it has no line above 0: each line is a millisecond at which 1500 bytes may pass"
                    .into(),
            );
        }
        Ok(Self { opportunities_ms })
    }

    /// Returns the mean rate of the whole trace, at least 1.
    pub fn mean_bits_per_second(&self) -> u64 {
        bits_per_second(self.opportunities_ms.len(), self.period_ms()).max(1)
    }

    /// Returns the rate in the busiest period of this many milliseconds, or in the whole trace if
    /// that is shorter.
    pub(crate) fn busiest_bits_per_second(&self, stretch_ms: u64) -> u64 {
        let mut first = 0;
        let mut most = 0;
        for (at, ms) in self.opportunities_ms.iter().enumerate() {
            while self.opportunities_ms[first] + stretch_ms <= *ms {
                first += 1;
            }
            most = most.max(at + 1 - first);
        }
        bits_per_second(most, stretch_ms.min(self.period_ms())).max(self.mean_bits_per_second())
    }

    /// Returns the longest time without an opportunity.
    pub(crate) fn longest_gap_ns(&self) -> u64 {
        let gaps = self.opportunities_ms.windows(2).map(|pair| pair[1] - pair[0]);
        // The end of the trace is its last opportunity.
        gaps.chain(self.opportunities_ms.first().copied()).max().unwrap_or(0) * MS
    }

    /// Returns the time of this opportunity, counted through all repetitions from 0.
    pub(crate) fn time_of_ns(&self, number: u64) -> u64 {
        let length = self.opportunities_ms.len() as u64;
        (number / length * self.period_ms() + self.opportunities_ms[(number % length) as usize])
            * MS
    }

    /// Returns the first opportunity at this time or later.
    pub(crate) fn first_from(&self, time_ns: u64) -> u64 {
        let period_ns = self.period_ms() * MS;
        let wanted_ms = (time_ns % period_ns).div_ceil(MS);
        let within = self.opportunities_ms.partition_point(|ms| *ms < wanted_ms);
        time_ns / period_ns * self.opportunities_ms.len() as u64 + within as u64
    }

    /// Hash of the content, so that it does not depend on the file's name or spelling.
    pub(super) fn hash(&self) -> String {
        let bytes: Vec<u8> = self.opportunities_ms.iter().flat_map(|ms| ms.to_be_bytes()).collect();
        sha256(&bytes)
    }

    /// Returns the time after which the trace repeats.
    pub(crate) fn period_ms(&self) -> u64 {
        self.opportunities_ms.last().copied().expect("invariant: a trace has a line")
    }
}

fn bits_per_second(opportunities: usize, ms: u64) -> u64 {
    opportunities as u64 * OPPORTUNITY_BYTES * 8 * 1000 / ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opportunities_repeat_after_the_last_line() {
        let trace = RateTrace::parse("1\n1\n5\n10\n").unwrap();
        let times: Vec<u64> = (0..9).map(|number| trace.time_of_ns(number) / MS).collect();
        assert_eq!(times, [1, 1, 5, 10, 11, 11, 15, 20, 21]);
        assert_eq!(trace.mean_bits_per_second(), 4_800_000);
        assert_eq!(trace.longest_gap_ns(), 5 * MS);
        for (time_ns, number) in [
            (0, 0),
            (MS, 0),
            (MS + 1, 2),
            (5 * MS, 2),
            (9 * MS, 3),
            (10 * MS + 1, 4),
            (20 * MS - 1, 7),
        ] {
            assert_eq!(trace.first_from(time_ns), number, "{time_ns}");
            assert!(trace.time_of_ns(number) >= time_ns);
        }
    }

    #[test]
    fn busiest_interval_is_found() {
        let trace = RateTrace::parse("100\n200\n201\n202\n203\n1000\n").unwrap();
        assert_eq!(trace.busiest_bits_per_second(10), 4 * 12_000 * 100);
        assert_eq!(trace.busiest_bits_per_second(5000), trace.mean_bits_per_second());
    }

    #[test]
    fn invalid_trace_error_names_the_line() {
        assert_eq!(
            RateTrace::parse("1\n2\n1.5\n").unwrap_err(),
            "line 3: `1.5` is not a whole number of milliseconds"
        );
        assert!(
            RateTrace::parse("3\n2\n").unwrap_err().starts_with("line 2: 2 ms comes after 3 ms")
        );
        for empty in ["", "0\n0\n", "\n"] {
            assert!(RateTrace::parse(empty).unwrap_err().contains("no line above 0"));
        }
        assert!(RateTrace::parse("86400001").unwrap_err().contains("more than a day"));
    }
}
