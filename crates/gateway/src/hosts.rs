//! What is found by a host's name.

use rustc_hash::FxHashMap;

use crate::config::HostPattern;

/// Values by host: a name alone goes before one with a star, and that before what is for all.
#[derive(Debug)]
pub(crate) struct Hosts<T> {
    exact: FxHashMap<Box<str>, T>,
    /// By what follows the first label, with its dot.
    below: FxHashMap<Box<str>, T>,
    any: Option<T>,
}

impl<T> Hosts<T> {
    pub(crate) fn new() -> Self {
        Self { exact: FxHashMap::default(), below: FxHashMap::default(), any: None }
    }

    pub(crate) fn insert(&mut self, pattern: &HostPattern, value: T) {
        match pattern {
            HostPattern::Exact(name) => drop(self.exact.insert(name.as_str().into(), value)),
            HostPattern::Below(suffix) => drop(self.below.insert(suffix.as_str().into(), value)),
            HostPattern::Any => self.any = Some(value),
        }
    }

    /// What `host` means, whatever its case; one dot at its end says nothing.
    pub(crate) fn find(&self, host: &str) -> Option<&T> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let lower;
        let host = if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = host.to_ascii_lowercase();
            &lower
        } else {
            host
        };
        let below = || self.below.get(&host[host.find('.')?..]);
        self.exact.get(host).or_else(below).or(self.any.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_goes_first() {
        let mut hosts = Hosts::new();
        for (number, pattern) in ["a.example", "*.example", "*"].iter().enumerate() {
            hosts.insert(&pattern.parse().expect("a pattern"), number);
        }
        for (host, number) in [("a.example", 0), ("A.EXAMPLE.", 0), ("b.example", 1), ("c.b.example", 2), ("example", 2), ("", 2)] {
            assert_eq!(hosts.find(host), Some(&number), "{host}");
        }
        let empty: Hosts<()> = Hosts::new();
        assert_eq!(empty.find("a"), None);
    }
}
