//! A map by host name.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::config::HostPattern;

/// Values by host pattern: an exact name wins over a wildcard, and a wildcard over `*`.
#[derive(Debug)]
pub(crate) struct Hosts<T> {
    exact: FxHashMap<Box<str>, T>,
    /// Wildcards, by the suffix after the first label, with its dot.
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
            HostPattern::Wildcard(suffix) => drop(self.below.insert(suffix.as_str().into(), value)),
            HostPattern::Any => self.any = Some(value),
        }
    }

    /// Returns the value for `host`, ignoring case and a trailing dot.
    pub(crate) fn find(&self, host: &str) -> Option<&T> {
        let host = &*canonical(host);
        self.exact.get(host).or_else(|| self.below(host)).or(self.any.as_ref())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.below.is_empty() && self.any.is_none()
    }

    /// Returns all values that match `host`, the most specific first.
    pub(crate) fn each(&self, host: &str) -> [Option<&T>; 3] {
        let host = &*canonical(host);
        [self.exact.get(host), self.below(host), self.any.as_ref()]
    }

    fn below(&self, host: &str) -> Option<&T> {
        self.below.get(&host[host.find('.')?..])
    }

    /// Returns the value of the pattern itself.
    pub(crate) fn get(&self, pattern: &HostPattern) -> Option<&T> {
        match pattern {
            HostPattern::Exact(name) => self.exact.get(name.as_str()),
            HostPattern::Wildcard(suffix) => self.below.get(suffix.as_str()),
            HostPattern::Any => self.any.as_ref(),
        }
    }

    pub(crate) fn entry(&mut self, pattern: &HostPattern) -> &mut T
    where
        T: Default,
    {
        match pattern {
            HostPattern::Exact(name) => self.exact.entry(name.as_str().into()).or_default(),
            HostPattern::Wildcard(suffix) => self.below.entry(suffix.as_str().into()).or_default(),
            HostPattern::Any => self.any.get_or_insert_default(),
        }
    }
}

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn canonical(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
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
        for (host, number) in [
            ("a.example", 0),
            ("A.EXAMPLE.", 0),
            ("b.example", 1),
            ("c.b.example", 2),
            ("example", 2),
            ("", 2),
        ] {
            assert_eq!(hosts.find(host), Some(&number), "{host}");
        }
        let empty: Hosts<()> = Hosts::new();
        assert_eq!(empty.find("a"), None);
    }
}
