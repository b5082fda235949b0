//! Patterns of hosts and paths.

use std::str::FromStr;

use pronghorn_target::{BadPattern, Pattern};

use super::values::string_type;

/// A host name, `*.example.org` for all names with one more label, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Any one label followed by this suffix: `.example.org`.
    Wildcard(String),
    /// Any host.
    Any,
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(suffix) => write!(f, "*{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl HostPattern {
    /// Returns whether a host matches, ignoring case.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name.eq_ignore_ascii_case(host),
            Self::Wildcard(suffix) => {
                host.find('.').is_some_and(|dot| host[dot..].eq_ignore_ascii_case(suffix))
            }
            Self::Any => true,
        }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let lower = text.to_ascii_lowercase();
        let (name, pattern) = match lower.strip_prefix("*.") {
            Some(name) => (name, Self::Wildcard(format!(".{name}"))),
            None => (lower.as_str(), Self::Exact(lower.clone())),
        };
        if let Some(address) = pronghorn_target::address(&lower) {
            return Ok(Self::Exact(address));
        }
        let is_address =
            name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().is_ok();
        let is_name = !name.is_empty()
            && name.split('.').all(|label| {
                !label.is_empty()
                    && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
            });
        if is_address && pattern == Self::Exact(lower.clone()) || is_name {
            return Ok(pattern);
        }
        let hint = if text.contains("://") || text.contains('/') {
            "remove the scheme and path"
        } else if text.contains(':') {
            "remove the port"
        } else if text.contains('*') {
            "a wildcard can only replace the first label, as in *.example.org"
        } else if text.is_empty() {
            "use a name, or \"*\" for all hosts"
        } else if !text.is_ascii() {
            "use the ASCII form of international names (xn--…)"
        } else if text.chars().any(|char| char.is_whitespace() || char == ',') {
            "write each name as its own string, without spaces, as in [\"a.example\", \
                \"b.example\"]"
        } else if text.ends_with('.') && text.len() > 1 {
            "remove the trailing dot"
        } else if text.split('.').any(str::is_empty) {
            "remove the empty label"
        } else {
            "use only letters, digits, hyphens, underscores and dots"
        };
        Err(format!("invalid host name {text:?}: {hint}"))
    }
}
string_type!(
    HostPattern,
    "host",
    "A host name, *.example.org for all names with one more label, or * for all.",
    "example.org"
);

/// A pattern of a request's path: exact, or with `*` for one segment, or at the end for the rest.
/// It is converted to canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pattern: Pattern,
    /// Original spelling, if it is not the canonical form.
    written: Option<Box<str>>,
}

impl PathPattern {
    /// Returns whether a path matches. `path` must be a reading in the canonical form of patterns.
    pub fn matches(&self, path: &str) -> bool {
        self.pattern.matches(path)
    }

    /// Returns the part before the first wildcard, without the trailing slash: the part that
    /// `strip_prefix` removes.
    pub fn prefix(&self) -> &str {
        self.pattern.prefix()
    }

    /// Returns whether this pattern matches every path that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        self.pattern.covers(&other.pattern)
    }

    /// Returns the segments, with `None` for a wildcard. A wildcard at the end that matches the
    /// rest is not included.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Option<&str>> {
        self.pattern.segments()
    }

    /// Returns whether anything may follow the segments.
    pub(crate) fn is_open(&self) -> bool {
        self.pattern.is_open()
    }

    /// Returns the original spelling, if it is not the canonical form.
    pub(crate) fn written(&self) -> Option<&str> {
        self.written.as_deref()
    }

    /// Returns whether the pattern has an encoded slash or a backslash.
    pub(crate) fn has_separators(&self) -> bool {
        self.pattern.has_separators()
    }
}

/// Formats the pattern in canonical form.
impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pattern.fmt(f)
    }
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = Pattern::parse(text).map_err(|error| match error {
            BadPattern::NoSlash => {
                format!("invalid path {text:?}: it must begin with a slash, as in /api/*")
            }
            BadPattern::Query => format!("invalid path {text:?}: remove the query or fragment"),
            BadPattern::Star => {
                format!(
                    "invalid path pattern {text:?}: a wildcard replaces a whole segment, as in \
                        /users/*/photo, or the rest of the path"
                )
            }
            BadPattern::AboveRoot => {
                format!("invalid path {text:?}: it leads above the root; remove the excess ..")
            }
            BadPattern::Escape => {
                format!(
                    "invalid path {text:?}: it has a percent sign without two hexadecimal digits, \
                        or %00; write %25 for a literal percent sign"
                )
            }
        })?;
        let canonical = pattern.to_string();
        Ok(Self { pattern, written: (canonical != text).then(|| text.into()) })
    }
}
string_type!(
    PathPattern,
    "path",
    "A path; * stands for one segment, or at the end for the rest: /api/* matches /api/ and all \
        paths below it, but not /api.",
    "/api/*"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_knows_that_it_was_written_in_another_way() {
        for (text, written) in [
            ("/api/*", None),
            ("/%40admin/*", Some("/%40admin/*")),
            ("/priv\u{e9}", Some("/priv\u{e9}")),
        ] {
            assert_eq!(
                text.parse::<PathPattern>().expect("a pattern").written(),
                written,
                "{text}"
            );
        }
        for wrong in ["a", "/a*b", "/a?b", "/%zz", "/.."] {
            assert!(
                wrong.parse::<PathPattern>().is_err_and(|error| error.contains(wrong)),
                "{wrong}"
            );
        }
    }

    #[test]
    fn host_says_what_to_leave_out() {
        let host = |text: &str| text.parse::<HostPattern>();
        assert_eq!(host("Example.org"), Ok(HostPattern::Exact("example.org".into())));
        assert_eq!(host("*.example.org"), Ok(HostPattern::Wildcard(".example.org".into())));
        assert_eq!(host("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        for (wrong, hint) in [
            ("https://example.org", "remove the scheme and path"),
            ("example.org:443", "remove the port"),
            ("a.*.example.org", "first label"),
            ("bücher.example", "xn--"),
            ("", "use a name"),
            ("example.org.", "trailing dot"),
            ("a b", "spaces"),
        ] {
            assert!(host(wrong).is_err_and(|error| error.contains(hint)), "{wrong}");
        }
    }
}
