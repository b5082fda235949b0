//! Path patterns.

use std::fmt;

use crate::octets::{escape, is_pchar, push_comparable, push_escape};

/// A path with wildcards: `*` matches one segment, or at the end everything that follows. It is
/// stored in the form of the readings that it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Segment>,
    /// Whether any further segments may follow.
    open: bool,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Any,
}

/// Why a pattern is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPattern {
    /// The pattern does not start with a slash.
    NoSlash,
    /// The pattern has a query or a fragment.
    Query,
    /// A star is only part of a segment.
    Star,
    /// The pattern climbs above the root.
    AboveRoot,
    /// An escape is malformed or stands for a NUL byte.
    Escape,
}

impl Pattern {
    /// Parses a pattern in any spelling and converts it to canonical form.
    ///
    /// # Errors
    ///
    /// If the pattern is invalid.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let rest = text.strip_prefix('/').ok_or(BadPattern::NoSlash)?;
        if rest.contains(['?', '#']) {
            return Err(BadPattern::Query);
        }
        let (mut segments, mut open) = (Vec::new(), false);
        let mut parts = rest.split('/').peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            match part {
                "*" if is_last => open = true,
                "*" => segments.push(Segment::Any),
                _ if part.contains('*') => return Err(BadPattern::Star),
                _ => {
                    let text = segment(part)?;
                    let is_dots = matches!(text.as_str(), "." | "..");
                    if text == ".." {
                        segments.pop().ok_or(BadPattern::AboveRoot)?;
                    }
                    // Paths are compared without empty segments, except for the last one, which
                    // marks a folder.
                    if is_last && (is_dots || text.is_empty()) {
                        segments.push(Segment::Text(String::new()));
                    } else if !is_dots && !text.is_empty() {
                        segments.push(Segment::Text(text));
                    }
                }
            }
        }
        let named = segments.iter().map_while(|segment| {
            if let Segment::Text(text) = segment { Some(text.as_str()) } else { None }
        });
        let prefix = named
            .filter(|text| !text.is_empty())
            .fold(String::new(), |prefix, text| prefix + "/" + text);
        Ok(Self { segments, open, prefix })
    }

    /// Returns whether a reading of a path matches.
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
        // An open pattern ends with a slash, so at least an empty segment follows.
        given.next().is_none() != self.open
    }

    /// Returns the part before the first star, without its trailing slash, in the form of readings.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the segments in the form of readings; `None` for a star. The final star that matches
    /// everything that follows is not included.
    pub fn segments(&self) -> impl Iterator<Item = Option<&str>> {
        self.segments.iter().map(|segment| {
            if let Segment::Text(text) = segment { Some(text.as_str()) } else { None }
        })
    }

    /// Returns whether any further segments may follow; a slash at least must follow.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Returns whether this pattern matches every path that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        if !self.open && (other.open || self.segments.len() != other.segments.len()) {
            return false;
        }
        if other.segments.len() < self.segments.len()
            || (!other.open && self.open && other.segments.len() == self.segments.len())
        {
            return false;
        }
        self.segments.iter().zip(&other.segments).all(|(one, other)| match (one, other) {
            (Segment::Any, Segment::Text(text)) => !text.is_empty(),
            (Segment::Any, Segment::Any) => true,
            (Segment::Text(_), _) => one == other,
        })
    }

    /// Returns whether the pattern contains an encoded slash or backslash. Only routes that accept
    /// such paths can match it.
    pub fn has_separators(&self) -> bool {
        let has = |text: &String| text.contains("%2F") || text.contains("%5C");
        self.segments.iter().any(|segment| matches!(segment, Segment::Text(text) if has(text)))
    }
}

/// The canonical spelling: a literal star is `%2A`.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => write!(f, "/{}", text.replace('*', "%2A"))?,
                Segment::Any => f.write_str("/*")?,
            }
        }
        f.write_str(if self.open { "/*" } else { "" })
    }
}

/// Converts a segment to the form of readings. Patterns may contain unencoded non-ASCII letters and
/// spaces.
fn segment(part: &str) -> Result<String, BadPattern> {
    let mut plain = String::with_capacity(part.len());
    let mut bytes = part.as_bytes();
    while let Some((&first, after)) = bytes.split_first() {
        bytes = after;
        if first == b'%' {
            let byte = escape(&[b"%", after].concat())
                .filter(|byte| *byte != 0)
                .ok_or(BadPattern::Escape)?;
            push_escape(&mut plain, byte);
            bytes = &after[2..];
        } else if first == 0 {
            return Err(BadPattern::Escape);
        } else if is_pchar(first) {
            plain.push(char::from(first));
        } else {
            push_escape(&mut plain, first);
        }
    }
    let mut comparable = String::with_capacity(plain.len());
    push_comparable(&mut comparable, &plain);
    Ok(comparable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).expect("a pattern")
    }

    #[test]
    fn path_matches_segment_by_segment() {
        for (text, matching, others) in [
            ("/", &["/"][..], &["/a", "//"][..]),
            ("/*", &["/", "/a", "/a/b/"], &["*", ""]),
            ("/api/*", &["/api/", "/api/x", "/api/x/y"], &["/api", "/apix", "/API/x"]),
            ("/api", &["/api"], &["/api/", "/api/x"]),
            (
                "/users/*/photo",
                &["/users/7/photo"],
                &["/users//photo", "/users/7/photo/", "/users/7/8/photo"],
            ),
            ("/users/*/files/*", &["/users/7/files/", "/users/7/files/a/b"], &["/users/7/files"]),
        ] {
            for given in matching {
                assert!(pattern(text).matches(given), "{text} {given}");
            }
            for given in others {
                assert!(!pattern(text).matches(given), "{text} {given}");
            }
        }
    }

    #[test]
    fn wider_pattern_covers_narrower_one() {
        for (wide, narrow) in [
            ("/*", "/"),
            ("/*", "/a/*"),
            ("/a/*", "/a/b"),
            ("/a/*", "/a/*"),
            ("/*/b", "/a/b"),
            ("/a", "/a"),
        ] {
            assert!(pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("/a/*", "/a"),
            ("/a", "/a/*"),
            ("/a/b", "/*/b"),
            ("/a/*", "/b/*"),
            ("/a/*", "/*"),
            ("/*/", "/"),
        ] {
            assert!(!pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
    }

    #[test]
    fn pattern_is_written_in_canonical_form() {
        for (text, canonical) in [
            ("/files/%40admin/*", "/files/@admin/*"),
            ("/files/priv%28x%29/*", "/files/priv(x)/*"),
            ("/priv\u{e9}/*", "/priv%C3%A9/*"),
            ("/priv%c3%a9/*", "/priv%C3%A9/*"),
            ("/%7Euser/*", "/~user/*"),
            ("/%61/*", "/a/*"),
            ("/a b", "/a%20b"),
            ("/a\\b", "/a%5Cb"),
            ("/a%2A/b", "/a%2A/b"),
            ("//a//b/", "/a/b/"),
            ("/a/./b/../c/..", "/a/"),
            ("/a/%2e%2e/*", "/*"),
        ] {
            assert_eq!(pattern(text).to_string(), canonical, "{text}");
            assert_eq!(pattern(canonical), pattern(text), "{text}");
        }
        assert!(pattern("/%2A/x").matches("/*/x") && !pattern("/%2A/x").matches("/a/x"));
    }

    #[test]
    fn prefix_ends_before_the_first_star() {
        for (text, prefix) in [
            ("/a/b/*", "/a/b"),
            ("/%40a/*/b", "/@a"),
            ("/*", ""),
            ("/a/", "/a"),
            ("/", ""),
            ("/a%2Ab/*", "/a*b"),
        ] {
            assert_eq!(pattern(text).prefix(), prefix, "{text}");
        }
    }

    #[test]
    fn invalid_pattern_error_gives_the_reason() {
        for (text, why) in [
            ("a", BadPattern::NoSlash),
            ("/a?b", BadPattern::Query),
            ("/a*b", BadPattern::Star),
            ("/a/../..", BadPattern::AboveRoot),
            ("/%zz", BadPattern::Escape),
            ("/%0", BadPattern::Escape),
            ("/%00", BadPattern::Escape),
        ] {
            assert_eq!(Pattern::parse(text), Err(why), "{text}");
        }
    }
}
