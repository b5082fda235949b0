//! The path of a request as routes see it.

use std::borrow::Cow;

use http::Uri;

/// Why a path cannot be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPath;

/// A path in its normal form (RFC 3986, section 6.2.2): characters that need no percent-encoding decoded, the hexadecimal digits of
/// others in capitals, and dot segments resolved. Encoded slashes stay what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Normal<'a> {
    /// What is passed on. Empty segments stay, since they mean something to some: there may be a whole URL in a path.
    pub(crate) path: Cow<'a, str>,
    /// Without empty segments, where there are any.
    merged: Option<String>,
}

impl Normal<'_> {
    /// What routes match, so that no spelling of a path gets by a route that it belongs to: folders and most applications take `//a` for
    /// `/a`.
    pub(crate) fn matched(&self) -> &str {
        self.merged.as_deref().unwrap_or(&self.path)
    }

    /// The path without a prefix of what is matched.
    pub(crate) fn without(&self, prefix: &str) -> &str {
        self.path.strip_prefix(prefix).or_else(|| self.matched().strip_prefix(prefix)).unwrap_or(&self.path)
    }
}

/// The normal form of a path.
///
/// # Errors
///
/// When it climbs above the root, or an escape is broken or stands for a zero byte.
pub(crate) fn normal(path: &str) -> Result<Normal<'_>, BadPath> {
    if is_normal(path) {
        return Ok(Normal { path: Cow::Borrowed(path), merged: None });
    }
    let decoded = decode(path)?;
    let mut segments: Vec<&str> = Vec::new();
    let mut rest = decoded.strip_prefix('/').ok_or(BadPath)?.split('/').peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop().ok_or(BadPath)?;
                }
                // What names a folder ends in a slash.
                if is_last {
                    segments.push("");
                }
            }
            _ => segments.push(segment),
        }
    }
    let path = format!("/{}", segments.join("/"));
    let merged = path.contains("//").then(|| merge(&segments));
    Ok(Normal { path: Cow::Owned(path), merged })
}

/// An empty segment at the end is what makes it a folder.
fn merge(segments: &[&str]) -> String {
    let last = segments.len().saturating_sub(1);
    let kept = segments.iter().enumerate().filter(|(index, segment)| !segment.is_empty() || *index == last);
    kept.fold(String::new(), |path, (_, segment)| path + "/" + segment)
}

/// The host that an admitted request is for, empty if there is none. The library looks at the whole authority for a user, which no such
/// request has.
pub(crate) fn host(uri: &Uri) -> &str {
    split_authority(uri).0
}

/// The port that its target names.
pub(crate) fn port(uri: &Uri) -> Option<u16> {
    split_authority(uri).1.parse().ok()
}

/// Host and port; the latter has no more than five digits.
fn split_authority(uri: &Uri) -> (&str, &str) {
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let digits = authority.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (host, port) = authority.split_at(authority.len() - digits);
    host.strip_suffix(':').map_or((authority, ""), |host| (host, port))
}

fn is_normal(path: &str) -> bool {
    let mut last = 0;
    for (index, byte) in path.bytes().enumerate() {
        // A segment that begins with a dot is looked at closely, and so is an empty one.
        if byte == b'%' || (last == b'/' && (byte == b'.' || byte == b'/')) || (index == 0 && byte != b'/') {
            return false;
        }
        last = byte;
    }
    !path.is_empty()
}

fn decode(path: &str) -> Result<String, BadPath> {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(start) = rest.find('%') {
        decoded.push_str(&rest[..start]);
        let digits =
            rest.get(start + 1..start + 3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit())).ok_or(BadPath)?;
        let byte = u8::from_str_radix(digits, 16).map_err(|_| BadPath)?;
        match byte {
            0 => return Err(BadPath),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => decoded.push(char::from(byte)),
            _ => {
                decoded.push('%');
                decoded.push_str(&digits.to_ascii_uppercase());
            }
        }
        rest = &rest[start + 3..];
    }
    decoded.push_str(rest);
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_a_path_are_one() {
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
            ("//a", "//a"),
            ("/a//../b", "/a/b"),
        ] {
            assert_eq!(normal(path).as_ref().map(|normal| &*normal.path), Ok(wanted), "{path}");
        }
    }

    #[test]
    fn routes_see_no_empty_segments() {
        for (path, wanted) in [
            ("/a/b", "/a/b"),
            ("/a/", "/a/"),
            ("//a", "/a"),
            ("//", "/"),
            ("/a///b//", "/a/b/"),
            ("/%2e//./a/%2e%2E//b", "/b"),
            ("/a%2f/b", "/a%2F/b"),
        ] {
            assert_eq!(normal(path).as_ref().map(Normal::matched), Ok(wanted), "{path}");
        }
    }

    #[test]
    fn prefix_is_taken_away_and_what_comes_after_stays() {
        for (path, prefix, wanted) in [
            ("/a/b", "/a", "/b"),
            ("/a//b", "/a", "//b"),
            ("//a//b", "/a", "/b"),
            ("/a//b/c", "/a/b", "/c"),
            ("/a/b", "", "/a/b"),
            ("//a", "", "//a"),
        ] {
            assert_eq!(normal(path).as_ref().map(|normal| normal.without(prefix)), Ok(wanted), "{path}");
        }
    }

    #[test]
    fn what_is_above_the_root_or_broken_is_refused() {
        for path in ["/..", "/a/../..", "/%2e%2e/etc", "/%", "/%4", "/%zz", "/%00", "", "*", "a"] {
            assert_eq!(normal(path), Err(BadPath), "{path}");
        }
    }

    #[test]
    fn host_and_port_are_what_the_library_says() {
        for uri in [
            "/",
            "http://a",
            "http://a:1/",
            "http://a1/",
            "http://10.0.0.1:8080/x",
            "http://10.0.0.1/",
            "http://[::1]/",
            "http://[::1]:443/",
        ] {
            let uri: Uri = uri.parse().expect("a URI");
            assert_eq!((host(&uri), port(&uri)), (uri.host().unwrap_or_default(), uri.port_u16()), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn normal_form_is_its_own(path in "/[/.%a2eEfF0]{0,20}") {
            if let Ok(once) = normal(&path) {
                prop_assert!(!once.path.split('/').any(|segment| segment == "." || segment == ".."));
                prop_assert!(!once.matched().contains("//"));
                for form in [&*once.path, once.matched()] {
                    let again = normal(form);
                    prop_assert_eq!(again.as_ref().map(|again| &*again.path), Ok(form));
                }
            }
        }
    }
}
