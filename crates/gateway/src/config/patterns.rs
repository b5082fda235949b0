//! What hosts and paths have to be like.

use std::str::FromStr;

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
        } else {
            "write international names in their ASCII form (xn--…)"
        };
        Err(format!("{text:?} is no host name: {hint}"))
    }
}
written!(HostPattern, "host", "A host name, *.example.org for all names with one label more, or * for all.", "example.org");

/// The path of a request's target: exact, or with `*` for one segment, or at the end for all that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
    /// Whether anything may follow.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Any,
}

impl PathPattern {
    /// Whether a path is meant. It is compared as it was sent, with percent-encoding and dot segments resolved by the caller.
    pub fn matches(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix('/') else { return false };
        let mut given = rest.split('/');
        for segment in &self.segments {
            let Some(given) = given.next() else { return false };
            match segment {
                Segment::Text(text) if text != given => return false,
                Segment::Any if given.is_empty() => return false,
                _ => {}
            }
        }
        // What an open pattern ends with is a slash, so there is at least an empty segment.
        given.next().is_none() != self.open
    }

    /// What comes before the first star, without the slash at its end: what `strip_prefix` takes away.
    pub fn prefix(&self) -> &str {
        let end = self.text.find('*').unwrap_or(self.text.len());
        self.text[..end].trim_end_matches('/')
    }

    /// Whether each path that `other` means is meant by this.
    pub fn covers(&self, other: &Self) -> bool {
        if !self.open && (other.open || self.segments.len() != other.segments.len()) {
            return false;
        }
        if other.segments.len() < self.segments.len() || (!other.open && self.open && other.segments.len() == self.segments.len()) {
            return false;
        }
        self.segments.iter().zip(&other.segments).all(|(one, other)| match (one, other) {
            (Segment::Any, Segment::Text(text)) => !text.is_empty(),
            (Segment::Any, Segment::Any) => true,
            (Segment::Text(_), _) => one == other,
        })
    }
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("{text:?} is no path: it begins with a slash, as in /api/*"));
        };
        if rest.contains(['?', '#']) {
            return Err(format!("{text:?} is no path: query and fragment are not part of it"));
        }
        let mut segments = Vec::new();
        let mut parts = rest.split('/').peekable();
        let mut open = false;
        while let Some(part) = parts.next() {
            match part {
                "*" if parts.peek().is_none() => open = true,
                "*" => segments.push(Segment::Any),
                _ if part.contains('*') => {
                    return Err(format!(
                        "{text:?} is no path pattern: a star stands for a whole segment, as in /users/*/photo, or for the rest"
                    ));
                }
                _ => segments.push(Segment::Text(part.to_owned())),
            }
        }
        Ok(Self { text: text.to_owned(), segments, open })
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

    fn path(text: &str) -> PathPattern {
        text.parse().expect("a pattern")
    }

    #[test]
    fn path_matches_segment_by_segment() {
        for (pattern, matching, others) in [
            ("/", &["/"][..], &["/a", "//"][..]),
            ("/*", &["/", "/a", "/a/b/"], &["*", ""]),
            ("/api/*", &["/api/", "/api/x", "/api/x/y"], &["/api", "/apix", "/API/x"]),
            ("/api", &["/api"], &["/api/", "/api/x"]),
            ("/users/*/photo", &["/users/7/photo"], &["/users//photo", "/users/7/photo/", "/users/7/8/photo"]),
            ("/users/*/files/*", &["/users/7/files/", "/users/7/files/a/b"], &["/users/7/files"]),
        ] {
            for given in matching {
                assert!(path(pattern).matches(given), "{pattern} {given}");
            }
            for given in others {
                assert!(!path(pattern).matches(given), "{pattern} {given}");
            }
        }
    }

    #[test]
    fn pattern_covers_what_it_means_wholly() {
        for (wide, narrow) in [("/*", "/"), ("/*", "/a/*"), ("/a/*", "/a/b"), ("/a/*", "/a/*"), ("/*/b", "/a/b"), ("/a", "/a")] {
            assert!(path(wide).covers(&path(narrow)), "{wide} {narrow}");
        }
        for (wide, narrow) in [("/a/*", "/a"), ("/a", "/a/*"), ("/a/b", "/*/b"), ("/a/*", "/b/*"), ("/a/*", "/*"), ("/*/", "//")] {
            assert!(!path(wide).covers(&path(narrow)), "{wide} {narrow}");
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
            ("", "ASCII"),
        ] {
            assert!(host(wrong).is_err_and(|error| error.contains(hint)), "{wrong}");
        }
    }
}
