//! The events of a run, as one number: two runs with the same trace did the same things at the same
//! times.

use std::hash::Hasher;
use std::time::Instant;

use rustc_hash::FxHasher;

pub(crate) struct Trace {
    began: Instant,
    hasher: FxHasher,
    events: u64,
    /// Whether to print events to stderr, to compare two runs or to analyse a failure.
    verbose: bool,
}

impl Trace {
    pub(crate) fn new(began: Instant, verbose: bool) -> Self {
        Self { began, hasher: FxHasher::default(), events: 0, verbose }
    }

    pub(crate) fn note(&mut self, now: Instant, what: &str, who: u64, value: u64) {
        let at = now.duration_since(self.began);
        self.hasher.write_u128(at.as_nanos());
        self.hasher.write(what.as_bytes());
        self.hasher.write_u64(who);
        self.hasher.write_u64(value);
        self.events += 1;
        if self.verbose {
            eprintln!("{:12.6} {what} {who} {value}", at.as_secs_f64());
        }
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Returns the number of events and the hash over them.
    pub(crate) fn summary(&self) -> (u64, u64) {
        (self.events, self.hasher.finish())
    }
}
