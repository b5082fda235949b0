//! Patterns of paths.

use std::fmt;

use crate::octets::{escape, is_pchar, push_comparable, push_escape};

/// A path with stars: `*` for one segment, and at the end for all that follows. It has the form of what it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Segment>,
    /// Whether anything may follow.
    open: bool,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Any,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPattern {
    /// It does not begin with a slash.
    NoSlash,
    /// It has a query or a fragment.
    Query,
    /// A star is part of a segment.
    Star,
    /// It climbs above the root.
    AboveRoot,
    /// An escape is broken, or stands for a zero byte.
    Escape,
}

impl Pattern {
    /// Reads a pattern, in whatever spelling: it is put into canonical form.
    ///
    /// # Errors
    ///
    /// When it is none.
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
                    // Paths are compared without empty segments, but for the one at the end, which makes a folder.
                    if is_last && (is_dots || text.is_empty()) {
                        segments.push(Segment::Text(String::new()));
                    } else if !is_dots && !text.is_empty() {
                        segments.push(Segment::Text(text));
                    }
                }
            }
        }
        let named = segments.iter().map_while(|segment| if let Segment::Text(text) = segment { Some(text.as_str()) } else { None });
        let prefix = named.filter(|text| !text.is_empty()).fold(String::new(), |prefix, text| prefix + "/" + text);
        Ok(Self { segments, open, prefix })
    }

    /// Whether a reading of a path is meant.
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

    /// What comes before the first star, without the slash at its end, in the form of readings.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Its segments in the form of readings; `None` for a star. The star at the end that stands for all that follows is none of them.
    pub fn segments(&self) -> impl Iterator<Item = Option<&str>> {
        self.segments.iter().map(|segment| if let Segment::Text(text) = segment { Some(text.as_str()) } else { None })
    }

    /// Whether anything may follow its segments: a slash at least.
    pub fn is_open(&self) -> bool {
        self.open
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

    /// Whether it has an encoded slash or backslash, which paths have on routes alone that take them.
    pub fn has_separators(&self) -> bool {
        let has = |text: &String| text.contains("%2F") || text.contains("%5C");
        self.segments.iter().any(|segment| matches!(segment, Segment::Text(text) if has(text)))
    }
}

/// The canonical spelling: a star that stands for itself is `%2A`.
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

/// A segment in the form of readings. Patterns may be written as people read them: with letters that are not ASCII, and spaces.
fn segment(part: &str) -> Result<String, BadPattern> {
    let mut plain = String::with_capacity(part.len());
    let mut bytes = part.as_bytes();
    while let Some((&first, after)) = bytes.split_first() {
        bytes = after;
        if first == b'%' {
            let byte = escape(&[b"%", after].concat()).filter(|byte| *byte != 0).ok_or(BadPattern::Escape)?;
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
            ("/users/*/photo", &["/users/7/photo"], &["/users//photo", "/users/7/photo/", "/users/7/8/photo"]),
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
    fn pattern_covers_what_it_means_wholly() {
        for (wide, narrow) in [("/*", "/"), ("/*", "/a/*"), ("/a/*", "/a/b"), ("/a/*", "/a/*"), ("/*/b", "/a/b"), ("/a", "/a")] {
            assert!(pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
        for (wide, narrow) in [("/a/*", "/a"), ("/a", "/a/*"), ("/a/b", "/*/b"), ("/a/*", "/b/*"), ("/a/*", "/*"), ("/*/", "/")] {
            assert!(!pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
    }

    #[test]
    fn spellings_of_a_pattern_are_one() {
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
        for (text, prefix) in [("/a/b/*", "/a/b"), ("/%40a/*/b", "/@a"), ("/*", ""), ("/a/", "/a"), ("/", ""), ("/a%2Ab/*", "/a*b")] {
            assert_eq!(pattern(text).prefix(), prefix, "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_why() {
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
