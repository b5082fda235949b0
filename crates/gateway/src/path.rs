//! From the path of a request to a path below a folder.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Why a path names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathError {
    /// It climbs above the folder, or holds a byte that no file name has.
    Forbidden,
}

/// A path below a folder: decoded, without empty, `.` and `..` segments, and without a leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Below<'a> {
    pub(crate) path: Cow<'a, [u8]>,
    /// How much of it can name files; less than all where a segment has an encoded slash, which no name has.
    pub(crate) names: usize,
}

/// The path below the folder that `path` stands for.
///
/// Decoding comes first, so that `%2e%2e` and `..` are the same. What stands before a segment with an encoded slash may name something.
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
    let names = if lengths.len() == segments.len() { path.len() } else { lengths.iter().sum::<usize>() + lengths.len().saturating_sub(1) };
    Ok(Below { path: Cow::Owned(path), names })
}

/// The same for a path that says it as it is, as nearly all do: nothing is encoded, and no segment is empty or begins with a dot.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The path, if all of it may name a file.
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
        for path in ["/..", "/../etc/passwd", "/a/../../b", "/%2e%2e/b", "/.%2e/b", "//../b", "/a%2fb/../../c", "/a%00b"] {
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
            assert_eq!((&*below.path, &below.path[..below.names]), (decoded.as_bytes(), names.as_bytes()), "{path}");
        }
    }

    proptest! {
        #[test]
        fn plain_path_is_what_its_encoding_is(path in "/[/.a-c]{0,12}") {
            // An encoded letter keeps a path from being taken as it is.
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
}
