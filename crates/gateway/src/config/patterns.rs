//! What hosts and paths have to be like.

use std::str::FromStr;

use pronghorn_target::{BadPattern, Pattern};

use super::values::written;

/// A host name, `*.example.org` for all names with one label more, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// One label and this: `.example.org`.
    Below(String),
    /// Each host.
    Any,
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl HostPattern {
    /// Whether a host is meant, whatever its case.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name.eq_ignore_ascii_case(host),
            Self::Below(suffix) => host.find('.').is_some_and(|dot| host[dot..].eq_ignore_ascii_case(suffix)),
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
            Some(name) => (name, Self::Below(format!(".{name}"))),
            None => (lower.as_str(), Self::Exact(lower.clone())),
        };
        if let Some(address) = pronghorn_target::address(&lower) {
            return Ok(Self::Exact(address));
        }
        let is_address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().is_ok();
        let is_name = !name.is_empty()
            && name.split('.').all(|label| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
        if is_address && pattern == Self::Exact(lower.clone()) || is_name {
            return Ok(pattern);
        }
        let hint = if text.contains("://") || text.contains('/') {
            "leave scheme and path out"
        } else if text.contains(':') {
            "leave the port out"
        } else if text.contains('*') {
            "a star can only stand for the first label, as in *.example.org"
        } else if text.is_empty() {
            "name one, or \"*\" for all hosts"
        } else if !text.is_ascii() {
            "write international names in their ASCII form (xn--…)"
        } else if text.chars().any(|char| char.is_whitespace() || char == ',') {
            "write each name for itself, without blanks, as in [\"a.example\", \"b.example\"]"
        } else if text.ends_with('.') && text.len() > 1 {
            "leave the dot at its end out"
        } else if text.split('.').any(str::is_empty) {
            "a dot stands between two labels, as in www.example.org"
        } else {
            "it has letters, digits, hyphens, underscores and dots alone"
        };
        Err(format!("{text:?} is no host name: {hint}"))
    }
}
written!(HostPattern, "host", "A host name, *.example.org for all names with one label more, or * for all.", "example.org");

/// The path of a request's target: exact, or with `*` for one segment, or at the end for all that follows. It is put into canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pattern: Pattern,
    /// How it was written, where that is not its canonical form.
    written: Option<Box<str>>,
}

impl PathPattern {
    /// Whether a reading of a path is meant: one in the form that patterns have.
    pub fn matches(&self, path: &str) -> bool {
        self.pattern.matches(path)
    }

    /// What comes before the first star, without the slash at its end: what `strip_prefix` takes away.
    pub fn prefix(&self) -> &str {
        self.pattern.prefix()
    }

    /// Whether each path that `other` means is meant by this.
    pub fn covers(&self, other: &Self) -> bool {
        self.pattern.covers(&other.pattern)
    }

    /// Its segments; `None` for a star. The star at the end that stands for all that follows is none of them.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Option<&str>> {
        self.pattern.segments()
    }

    /// Whether anything may follow its segments.
    pub(crate) fn is_open(&self) -> bool {
        self.pattern.is_open()
    }

    /// How it was written, where that is not its canonical form.
    pub(crate) fn written(&self) -> Option<&str> {
        self.written.as_deref()
    }

    /// Whether it has an encoded slash or a backslash.
    pub(crate) fn has_separators(&self) -> bool {
        self.pattern.has_separators()
    }
}

/// The canonical form.
impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pattern.fmt(f)
    }
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = Pattern::parse(text).map_err(|error| match error {
            BadPattern::NoSlash => format!("{text:?} is no path: it begins with a slash, as in /api/*"),
            BadPattern::Query => format!("{text:?} is no path: query and fragment are not part of it"),
            BadPattern::Star => {
                format!("{text:?} is no path pattern: a star stands for a whole segment, as in /users/*/photo, or for the rest")
            }
            BadPattern::AboveRoot => format!("{text:?} climbs above the root: leave out what is too much of .."),
            BadPattern::Escape => {
                format!("{text:?} has a percent sign without two hexadecimal digits, or %00: write %25 for the percent sign itself")
            }
        })?;
        let canonical = pattern.to_string();
        Ok(Self { pattern, written: (canonical != text).then(|| text.into()) })
    }
}
written!(
    PathPattern,
    "path",
    "A path; * stands for one segment, at the end for all that follows: /api/* is /api/ and all below it, not /api.",
    "/api/*"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_knows_that_it_was_written_in_another_way() {
        for (text, written) in [("/api/*", None), ("/%40admin/*", Some("/%40admin/*")), ("/priv\u{e9}", Some("/priv\u{e9}"))] {
            assert_eq!(text.parse::<PathPattern>().expect("a pattern").written(), written, "{text}");
        }
        for wrong in ["a", "/a*b", "/a?b", "/%zz", "/.."] {
            assert!(wrong.parse::<PathPattern>().is_err_and(|error| error.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn host_says_what_to_leave_out() {
        let host = |text: &str| text.parse::<HostPattern>();
        assert_eq!(host("Example.org"), Ok(HostPattern::Exact("example.org".into())));
        assert_eq!(host("*.example.org"), Ok(HostPattern::Below(".example.org".into())));
        assert_eq!(host("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        for (wrong, hint) in [
            ("https://example.org", "leave scheme and path out"),
            ("example.org:443", "leave the port out"),
            ("a.*.example.org", "first label"),
            ("bücher.example", "xn--"),
            ("", "name one"),
            ("example.org.", "dot at its end"),
            ("a b", "blanks"),
        ] {
            assert!(host(wrong).is_err_and(|error| error.contains(hint)), "{wrong}");
        }
    }
}
