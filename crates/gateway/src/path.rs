//! From the path of a request to a path below a folder.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Why a path names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathError {
    /// It climbs above the folder, or holds a byte that no file name has.
    Forbidden,
}

/// The file below the folder that `path` names: decoded, without empty, `.` and `..` segments, and without a leading slash.
///
/// Decoding comes first, so that `%2e%2e` and `..` are the same; an encoded slash is not a separator and no name has one.
pub(crate) fn below(path: &str) -> Result<Cow<'_, [u8]>, PathError> {
    if let Some(plain) = plain(path) {
        return Ok(Cow::Borrowed(plain));
    }
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in path.split('/') {
        let segment: Vec<u8> = percent_decode_str(segment).collect();
        match segment.as_slice() {
            b"" | b"." => {}
            b".." => drop(segments.pop().ok_or(PathError::Forbidden)?),
            name if name.contains(&b'/') || name.contains(&0) => return Err(PathError::Forbidden),
            _ => segments.push(segment),
        }
    }
    Ok(Cow::Owned(segments.join(&b'/')))
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

    #[test]
    fn plain_path_loses_its_leading_slash() {
        assert_eq!(below("/a/b.txt").as_deref(), Ok(&b"a/b.txt"[..]));
        assert_eq!(below("/a/b/").as_deref(), Ok(&b"a/b"[..]));
        assert_eq!(below("/").as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn dot_segments_are_resolved_in_any_spelling() {
        assert_eq!(below("/a/./c/%2e%2E/b").as_deref(), Ok(&b"a/b"[..]));
        assert_eq!(below("/a/%2e/b").as_deref(), Ok(&b"a/b"[..]));
    }

    #[test]
    fn path_above_the_folder_is_forbidden() {
        for path in ["/..", "/../etc/passwd", "/a/../../b", "/%2e%2e/b", "/.%2e/b", "//../b"] {
            assert_eq!(below(path), Err(PathError::Forbidden), "{path}");
        }
    }

    #[test]
    fn encoded_slash_and_nul_are_forbidden() {
        assert_eq!(below("/a%2fb"), Err(PathError::Forbidden));
        assert_eq!(below("/..%2f..%2fb"), Err(PathError::Forbidden));
        assert_eq!(below("/a%00b"), Err(PathError::Forbidden));
    }

    proptest! {
        #[test]
        fn plain_path_is_what_its_encoding_is(path in "/[/.a-c]{0,12}") {
            // An encoded letter keeps a path from being taken as it is.
            prop_assert_eq!(below(&path).map(Cow::into_owned), below(&path.replace('a', "%61")).map(Cow::into_owned));
        }

        #[test]
        fn result_never_climbs(path in "[/.%2eEfF0a]{0,40}") {
            if let Ok(below) = below(&path) {
                prop_assert!(!below.starts_with(b"/"));
                prop_assert!(below.split(|byte| *byte == b'/').all(|segment| segment != b".." && segment != b"."));
            }
        }
    }
}
