//! Mapping of a request path to a path below a folder.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The only public name that starts with a dot (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// Why a path is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathError {
    /// The path climbs above the folder, or contains a NUL byte.
    Forbidden,
}

/// A path below a folder: decoded, without empty, `.` and `..` segments, and without a leading
/// slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Below<'a> {
    pub(crate) path: Cow<'a, [u8]>,
    /// Length of the prefix that can name files; less than the whole where a segment has an encoded
    /// slash, which no file name contains.
    pub(crate) names: usize,
}

/// Returns the path below the folder for the request path `path`.
///
/// Segments are decoded first, so that `%2e%2e` and `..` are the same. The part before a segment
/// with an encoded slash may name a file.
pub(crate) fn below(path: &str) -> Result<Below<'_>, PathError> {
    if let Some(plain) = plain(path) {
        return Ok(Below { path: Cow::Borrowed(plain), names: plain.len() });
    }
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in path.split('/') {
        let segment: Vec<u8> = percent_decode_str(segment).collect();
        match segment.as_slice() {
            b"" | b"." => {}
            b".." => drop(segments.pop().ok_or(PathError::Forbidden)?),
            name if name.contains(&0) => return Err(PathError::Forbidden),
            _ => segments.push(segment),
        }
    }
    let named = segments.iter().take_while(|segment| !segment.contains(&b'/'));
    let lengths: Vec<_> = named.map(Vec::len).collect();
    let path = segments.join(&b'/');
    let names = if lengths.len() == segments.len() {
        path.len()
    } else {
        lengths.iter().sum::<usize>() + lengths.len().saturating_sub(1)
    };
    Ok(Below { path: Cow::Owned(path), names })
}

/// Returns the path if it needs no processing, as nearly all: nothing is encoded, and no segment is
/// empty or starts with a dot.
fn plain(path: &str) -> Option<&[u8]> {
    let below = path.as_bytes().strip_prefix(b"/")?;
    let mut last = b'/';
    for &byte in below {
        if byte == b'%' || (last == b'/' && (byte == b'/' || byte == b'.')) {
            return None;
        }
        last = byte;
    }
    Some(below.strip_suffix(b"/").unwrap_or(below))
}

/// Returns whether any name in the path starts with a dot, except `.well-known` at the top.
pub(crate) fn is_hidden(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/').enumerate();
    names.any(|(depth, name)| name.starts_with(b".") && !(depth == 0 && name == WELL_KNOWN))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the path, if all of it can name a file.
    fn named(path: &str) -> Result<Vec<u8>, PathError> {
        let below = below(path)?;
        assert_eq!(below.names, below.path.len(), "{path}");
        Ok(below.path.into_owned())
    }

    #[test]
    fn plain_path_loses_its_leading_slash() {
        assert_eq!(named("/a/b.txt"), Ok(b"a/b.txt".to_vec()));
        assert_eq!(named("/a/b/"), Ok(b"a/b".to_vec()));
        assert_eq!(named("/"), Ok(Vec::new()));
    }

    #[test]
    fn dot_segments_are_resolved_in_any_spelling() {
        assert_eq!(named("/a/./c/%2e%2E/b"), Ok(b"a/b".to_vec()));
        assert_eq!(named("/a/%2e/b"), Ok(b"a/b".to_vec()));
    }

    #[test]
    fn path_above_the_folder_is_forbidden() {
        for path in [
            "/..",
            "/../etc/passwd",
            "/a/../../b",
            "/%2e%2e/b",
            "/.%2e/b",
            "//../b",
            "/a%2fb/../../c",
            "/a%00b",
        ] {
            assert_eq!(below(path), Err(PathError::Forbidden), "{path}");
        }
    }

    #[test]
    fn segment_with_an_encoded_slash_names_nothing() {
        for (path, decoded, names) in [
            ("/a%2fb", "a/b", ""),
            ("/..%2f..%2fb", "../../b", ""),
            ("/x/y/a%2Fb/c", "x/y/a/b/c", "x/y"),
            ("/%2f", "/", ""),
            ("/x/a%2Fb/../c", "x/c", "x/c"),
        ] {
            let below = below(path).expect("a path");
            assert_eq!(
                (&*below.path, &below.path[..below.names]),
                (decoded.as_bytes(), names.as_bytes()),
                "{path}"
            );
        }
    }

    proptest! {
        #[test]
        fn plain_path_is_what_its_encoding_is(path in "/[/.a-c]{0,12}") {
            // An encoded letter disables the fast path.
            prop_assert_eq!(below(&path).map(|below| (below.path.into_owned(), below.names)),
                below(&path.replace('a', "%61")).map(|below| (below.path.into_owned(), below.names)));
        }

        #[test]
        fn what_names_files_never_climbs(path in "[/.%2eEfF0a]{0,40}") {
            if let Ok(below) = below(&path) {
                let names = &below.path[..below.names];
                prop_assert!(!names.starts_with(b"/"));
                prop_assert!(names.split(|byte| *byte == b'/').all(|segment| segment != b".." && segment != b"."));
            }
        }
    }

    #[test]
    fn names_with_a_dot_are_hidden_but_for_well_known_at_the_top() {
        for path in
            [".git/config", "a/.htaccess", "a/.well-known/x", ".well-known/.x", ".well-known2/x"]
        {
            assert!(is_hidden(path.as_bytes()), "{path}");
        }
        for path in [".well-known/acme-challenge/x", "a.b/c.d", "a"] {
            assert!(!is_hidden(path.as_bytes()), "{path}");
        }
    }
}
