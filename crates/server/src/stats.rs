//! Counters, summed over the workers.

use std::collections::BTreeMap;

/// A server's counters at one moment, summed over all workers.
///
/// ```
/// # fn show(handle: &pronghorn_server::Handle) {
/// let stats = handle.stats();
/// println!("{} requests over HTTP/3", stats.count("requests_http3"));
/// for (name, value) in stats.iter() {
///     println!("{name} {value}");
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats(BTreeMap<&'static str, u64>);

impl Stats {
    pub(crate) fn sum(values: impl Iterator<Item = (&'static str, u64)>) -> Self {
        let mut sums = BTreeMap::new();
        for (name, value) in values {
            *sums.entry(name).or_default() += value;
        }
        Self(sums)
    }

    /// Returns the counter of this name, or 0 if there is none.
    ///
    /// The names are those of [`pronghorn_engine::Stats`], plus `service_errors` and `body_errors`.
    /// For these two and `handler_panics` see [`Server::on_failure`](crate::Server::on_failure).
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the number of requests over all HTTP versions.
    pub fn requests(&self) -> u64 {
        ["requests_http1", "requests_http2", "requests_http3"]
            .map(|name| self.count(name))
            .iter()
            .sum()
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> u64 {
        self.count("tcp_open") + self.count("quic_open")
    }

    /// Iterates over all names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(name, value)| (*name, *value))
    }
}
