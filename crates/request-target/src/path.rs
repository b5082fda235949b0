//! Paths: the canonical form that is forwarded, and the readings that servers may have of it.

use crate::octets::{escape, is_pchar, is_plain, is_unreserved, push_comparable, push_escape};

/// Why a path is invalid or ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// The path does not start with a slash.
    NoSlash,
    /// The path climbs above the root.
    AboveRoot,
    /// An escape is not a percent sign with two hexadecimal digits.
    Escape,
    /// The path contains a NUL byte.
    Nul,
    /// The path contains an unencoded non-ASCII character.
    NotAscii,
    /// A dot segment appears when encoded slashes are decoded or path parameters are removed:
    /// `..%2F`, `..;x`.
    HiddenDots,
    /// An encoded slash or backslash occurs in a path parameter, as in `a;x%2Fb`: servers disagree
    /// on whether it belongs to the parameter.
    HiddenSlash,
}

impl std::fmt::Display for BadPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "the path does not start with a slash",
            Self::AboveRoot => "the path climbs above the root",
            Self::Escape => "a percent sign in the path is not followed by two hexadecimal digits",
            Self::Nul => "the path contains a NUL byte",
            Self::NotAscii => "the path contains a non-ASCII character: percent-encode it",
            Self::HiddenDots => {
                "the path has a dot segment next to an encoded slash, a backslash or a path \
                parameter"
            }
            Self::HiddenSlash => "the path has an encoded slash or backslash after a semicolon",
        })
    }
}

impl std::error::Error for BadPath {}

/// A path that is not plain: the form in which it is forwarded, and its readings.
///
/// The forwarded form is RFC 3986's normal form (section 6.2.2): unreserved characters decoded, the
/// digits of escapes in upper case, dot segments resolved. In addition, characters that a path must
/// not contain unencoded (`\`, `"`, `[`) are percent-encoded, and empty leading segments are
/// removed, since some servers parse the text after two slashes as a host. Reserved characters stay
/// as they were written: servers do not agree that `%3B` and `;`, or `%2F` and `/`, are the same.
///
/// A reading is the path that some server may derive from the forwarded form: with encoded slashes
/// or backslashes decoded or not, with path parameters (`;x`) or without. Readings have no empty
/// segments, no dot segments, and one form for each octet, so that they can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    passed: String,
    /// The first reading decodes no separators and keeps all parameters.
    readings: Vec<String>,
    has_separators: bool,
}

/// How a server reads a path: the escapes that it treats as slashes, and the parameters that it
/// removes.
#[derive(Clone, Copy)]
struct Reader {
    slashes: bool,
    backslashes: bool,
    parameters: bool,
    /// Parameters after an encoded semicolon.
    encoded_parameters: bool,
}

impl Spelling {
    /// Returns the canonical form of a path without a query, or `None` if the path is canonical and
    /// has one reading.
    ///
    /// # Errors
    ///
    /// If the path is invalid or ambiguous.
    pub fn of(path: &str) -> Result<Option<Box<Self>>, BadPath> {
        if is_plain(path) {
            return Ok(None);
        }
        let passed = resolve(&decode(path)?)?;
        let has = |what| passed.contains(what);
        let there = [has("%2F"), has("%5C"), has(";"), has("%3B")];
        let mut readings: Vec<String> = Vec::new();
        for number in 0..16_u8 {
            let is_asked = [1, 2, 4, 8].map(|bit| number & bit > 0);
            if is_asked.iter().zip(there).any(|(is_asked, is_there)| *is_asked && !is_there) {
                continue;
            }
            let [slashes, backslashes, parameters, encoded_parameters] = is_asked;
            let reading =
                Reader { slashes, backslashes, parameters, encoded_parameters }.read(&passed)?;
            if !readings.contains(&reading) {
                readings.push(reading);
            }
        }
        Ok(Some(Box::new(Self { passed, readings, has_separators: there[0] || there[1] })))
    }

    /// Returns the form that is forwarded.
    pub fn passed(&self) -> &str {
        &self.passed
    }

    /// Returns the reading that decodes no separators, in the form that patterns are compared with.
    pub fn literal(&self) -> &str {
        self.readings.first().map_or("/", String::as_str)
    }

    /// Returns whether all servers read the same path.
    pub fn has_one_reading(&self) -> bool {
        self.readings.len() == 1
    }

    /// Returns whether the path contains encoded slashes or backslashes.
    pub fn has_separators(&self) -> bool {
        self.has_separators
    }

    /// Returns the result of `find` if it is the same for every reading. Otherwise the intended
    /// reading is unknown.
    ///
    /// # Errors
    ///
    /// If the results differ.
    pub fn agreed<T: PartialEq>(&self, mut find: impl FnMut(&str) -> T) -> Result<T, Disagreement> {
        let mut found = self.readings.iter().map(|reading| find(reading));
        let first = found.next().ok_or(Disagreement)?;
        if found.all(|other| other == first) { Ok(first) } else { Err(Disagreement) }
    }
}

/// The readings of a path have different results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement;

impl Reader {
    /// Returns this server's reading of a forwarded path.
    fn read(self, passed: &str) -> Result<String, BadPath> {
        let mut reading = String::with_capacity(passed.len());
        let mut is_empty = false;
        for segment in passed.split('/').skip(1) {
            let (mut rest, parameters) = segment.split_at(self.end(segment));
            if parameters.contains("%2F") || parameters.contains("%5C") {
                return Err(BadPath::HiddenSlash);
            }
            loop {
                let (part, after) = self.split(rest);
                if matches!(part, "." | "..") {
                    return Err(BadPath::HiddenDots);
                }
                is_empty = part.is_empty();
                if !is_empty {
                    reading.push('/');
                    push_comparable(&mut reading, part);
                }
                match after {
                    Some(after) => rest = after,
                    None => break,
                }
            }
        }
        // An empty last segment marks a folder.
        if is_empty {
            reading.push('/');
        }
        Ok(reading)
    }

    /// Returns the offset of a segment's parameters if this server removes them, or the segment's
    /// length.
    fn end(self, segment: &str) -> usize {
        let first = |is_taken: bool, what: &str| {
            segment.find(what).filter(|_| is_taken).unwrap_or(segment.len())
        };
        first(self.parameters, ";").min(first(self.encoded_parameters, "%3B"))
    }

    /// Splits a segment at the first escape that this server treats as a slash.
    fn split(self, segment: &str) -> (&str, Option<&str>) {
        let is_separator = |at: &usize| match segment.get(*at..at + 3) {
            Some("%2F") => self.slashes,
            Some("%5C") => self.backslashes,
            _ => false,
        };
        match segment.match_indices('%').map(|(at, _)| at).find(is_separator) {
            Some(at) => (&segment[..at], Some(&segment[at + 3..])),
            None => (segment, None),
        }
    }
}

/// Converts each octet to the form in which it is forwarded.
fn decode(path: &str) -> Result<String, BadPath> {
    if !path.starts_with('/') {
        return Err(BadPath::NoSlash);
    }
    let mut decoded = String::with_capacity(path.len() + 16);
    let mut bytes = path.as_bytes();
    while let Some((&first, after)) = bytes.split_first() {
        if first == b'%' {
            let byte = escape(bytes).ok_or(BadPath::Escape)?;
            match byte {
                0 => return Err(BadPath::Nul),
                byte if is_unreserved(byte) => decoded.push(char::from(byte)),
                byte => push_escape(&mut decoded, byte),
            }
            bytes = &bytes[3..];
            continue;
        }
        match first {
            0 => return Err(BadPath::Nul),
            0x80.. => return Err(BadPath::NotAscii),
            b'/' => decoded.push('/'),
            byte if is_pchar(byte) => decoded.push(char::from(byte)),
            byte => push_escape(&mut decoded, byte),
        }
        bytes = after;
    }
    Ok(decoded)
}

/// Resolves dot segments (RFC 3986, section 5.2.4) and removes empty leading segments. `path`
/// starts with a slash.
fn resolve(path: &str) -> Result<String, BadPath> {
    let mut segments: Vec<&str> = Vec::new();
    let mut rest = path.split('/').skip(1).peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        if segment == ".." {
            segments.pop().ok_or(BadPath::AboveRoot)?;
        }
        match segment {
            // A path that names a folder ends with a slash.
            "." | ".." if is_last => segments.push(""),
            "." | ".." => {}
            _ => segments.push(segment),
        }
    }
    let resolved = format!("/{}", segments.join("/"));
    Ok(format!("/{}", resolved.trim_start_matches('/')))
}

/// Removes the first `count` segments of a forwarded path; empty segments do not count. The result
/// starts with exactly one slash.
pub fn without_segments(path: &str, count: usize) -> &str {
    let mut rest = path;
    for _ in 0..count {
        let segment = rest.trim_start_matches('/');
        rest = segment.find('/').map_or("", |end| &segment[end..]);
    }
    if count == 0 {
        return path;
    }
    let trimmed = rest.trim_start_matches('/');
    let slashes = rest.len() - trimmed.len();
    if slashes == 0 { "/" } else { &rest[slashes - 1..] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(path: &str) -> Result<String, BadPath> {
        Ok(Spelling::of(path)?.map_or_else(|| path.to_owned(), |spelling| spelling.passed))
    }

    fn readings(path: &str) -> Vec<String> {
        Spelling::of(path)
            .expect("a path")
            .map_or_else(|| vec![path.to_owned()], |spelling| spelling.readings)
    }

    #[test]
    fn path_is_forwarded_in_normal_form() {
        for (path, wanted) in [
            ("/a/b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/%61pi/x", "/api/x"),
            ("/a/%2e%2E/b", "/b"),
            ("/a%2fb", "/a%2Fb"),
            ("/%e4%b8", "/%E4%B8"),
            ("/.well-known/x", "/.well-known/x"),
            ("//a", "/a"),
            ("///", "/"),
            ("/a//b/", "/a//b/"),
            ("/a//../b", "/a/b"),
            ("/a/..//b", "/b"),
            ("/%40x;y%3Bz", "/%40x;y%3Bz"),
            ("/a[\"]\\b", "/a%5B%22%5D%5Cb"),
        ] {
            assert_eq!(passed(path).as_deref(), Ok(wanted), "{path}");
        }
    }

    #[test]
    fn each_octet_has_one_form_in_a_reading() {
        for (path, wanted) in [
            ("/%40admin", "/@admin"),
            ("/priv%28x%29", "/priv(x)"),
            ("/priv%c3%a9", "/priv%C3%A9"),
            ("/a%20b", "/a%20b"),
            ("/a|b", "/a%7Cb"),
            ("/%2A", "/*"),
            ("//a//%7Eb//", "/a/~b/"),
        ] {
            assert_eq!(readings(path), [wanted], "{path}");
        }
    }

    #[test]
    fn ambiguous_path_has_one_reading_per_interpretation() {
        for (path, wanted) in [
            ("/admin%2fx", &["/admin%2Fx", "/admin/x"][..]),
            ("/admin%5Cx", &["/admin%5Cx", "/admin/x"]),
            ("/admin\\x", &["/admin%5Cx", "/admin/x"]),
            ("/admin;a=1/x", &["/admin;a=1/x", "/admin/x"]),
            ("/admin%3Ba/x", &["/admin;a/x", "/admin/x"]),
            ("/a%2F%2fb%5Cc", &["/a%2F%2Fb%5Cc", "/a/b%5Cc", "/a%2F%2Fb/c", "/a/b/c"]),
            ("/a%2Fb;c", &["/a%2Fb;c", "/a/b;c", "/a%2Fb", "/a/b"]),
            ("/a;x/b%3Bc", &["/a;x/b;c", "/a/b;c", "/a;x/b", "/a/b"]),
            ("/a%2F", &["/a%2F", "/a/"]),
        ] {
            assert_eq!(readings(path), wanted, "{path}");
        }
    }

    #[test]
    fn path_above_the_root_or_malformed_is_refused() {
        for (path, why) in [
            ("/..", BadPath::AboveRoot),
            ("/a/../..", BadPath::AboveRoot),
            ("/%2e%2e/etc", BadPath::AboveRoot),
            ("/%", BadPath::Escape),
            ("/%4", BadPath::Escape),
            ("/%zz", BadPath::Escape),
            ("/%+1", BadPath::Escape),
            ("/%00", BadPath::Nul),
            ("", BadPath::NoSlash),
            ("*", BadPath::NoSlash),
            ("a", BadPath::NoSlash),
            ("/priv\u{e9}", BadPath::NotAscii),
            ("/x/..%2fadmin", BadPath::HiddenDots),
            ("/x/%2e%2e%5cadmin", BadPath::HiddenDots),
            ("/x\\..\\admin", BadPath::HiddenDots),
            ("/x/..;/admin", BadPath::HiddenDots),
            ("/x/.;a/admin", BadPath::HiddenDots),
            ("/x/..%3b/admin", BadPath::HiddenDots),
            ("/a;x%2fb", BadPath::HiddenSlash),
            ("/a%3bx\\b", BadPath::HiddenSlash),
        ] {
            assert_eq!(passed(path), Err(why), "{path}");
        }
    }

    #[test]
    fn prefix_is_removed_by_segments() {
        for (path, count, wanted) in [
            ("/a/b", 1, "/b"),
            ("/a//b", 1, "/b"),
            ("//a//b", 1, "/b"),
            ("/a//b//c", 2, "/c"),
            ("/a/b//c", 1, "/b//c"),
            ("/%40a/b", 1, "/b"),
            ("/a/", 1, "/"),
            ("/a", 1, "/"),
            ("/a/b", 0, "/a/b"),
        ] {
            assert_eq!(without_segments(path, count), wanted, "{path}");
        }
    }

    proptest! {
        #[test]
        fn canonical_path_is_unchanged(path in "/[/.%a2eEfF0;@5cC\\\\]{0,20}") {
            if let Ok(Some(spelling)) = Spelling::of(&path) {
                prop_assert!(!spelling.passed.starts_with("//"));
                prop_assert_eq!(passed(&spelling.passed), Ok(spelling.passed.clone()));
                prop_assert_eq!(&readings(&spelling.passed), &spelling.readings);
                for reading in &spelling.readings {
                    prop_assert!(!reading.contains("//"));
                    prop_assert!(!reading.split('/').any(|segment| segment == "." || segment == ".."));
                }
            }
        }
    }
}
