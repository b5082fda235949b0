//! Single byte ranges (RFC 9110, section 14).

use std::ops::Range;

/// What a `range` field asks of content of a known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All of it: the field is malformed, of another unit, or names several ranges, all of which may be ignored.
    Whole,
    /// This part.
    Part(Range<u64>),
    /// Nothing that there is.
    Unsatisfiable,
}

pub(crate) fn parse(field: &str, length: u64) -> Asked {
    let Some((unit, set)) = field.split_once('=') else { return Asked::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return Asked::Whole;
    }
    let Some((first, last)) = set.trim().split_once('-') else { return Asked::Whole };
    match (position(first), position(last)) {
        (Position::LeftOut, Position::At(0)) => Asked::Unsatisfiable,
        (Position::LeftOut, Position::At(_)) if length == 0 => Asked::Unsatisfiable,
        (Position::LeftOut, Position::At(suffix)) => Asked::Part(length.saturating_sub(suffix)..length),
        (Position::At(first), Position::At(last)) if last < first => Asked::Whole,
        (Position::At(first), Position::At(_) | Position::LeftOut) if first >= length => Asked::Unsatisfiable,
        (Position::At(first), Position::At(last)) => Asked::Part(first..length.min(last.saturating_add(1))),
        (Position::At(first), Position::LeftOut) => Asked::Part(first..length),
        _ => Asked::Whole,
    }
}

enum Position {
    At(u64),
    LeftOut,
    Malformed,
}

/// A number too large for any file is as good as the largest.
fn position(digits: &str) -> Position {
    if digits.is_empty() {
        Position::LeftOut
    } else if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        Position::At(digits.parse().unwrap_or(u64::MAX))
    } else {
        Position::Malformed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_within_content_is_that_part() {
        assert_eq!(parse("bytes=0-0", 10), Asked::Part(0..1));
        assert_eq!(parse("bytes=2-5", 10), Asked::Part(2..6));
        assert_eq!(parse("bytes=2-", 10), Asked::Part(2..10));
        assert_eq!(parse("bytes=-3", 10), Asked::Part(7..10));
    }

    #[test]
    fn range_past_the_end_is_cut() {
        assert_eq!(parse("bytes=2-99", 10), Asked::Part(2..10));
        assert_eq!(parse("bytes=-99", 10), Asked::Part(0..10));
        assert_eq!(parse("bytes=2-99999999999999999999999", 10), Asked::Part(2..10));
    }

    #[test]
    fn range_outside_of_content_is_unsatisfiable() {
        for (field, length) in [("bytes=10-", 10), ("bytes=10-12", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-1", 0)] {
            assert_eq!(parse(field, length), Asked::Unsatisfiable, "{field} of {length}");
        }
    }

    #[test]
    fn range_that_may_be_ignored_is() {
        for field in ["", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "lines=1-2", "bytes=0-1,3-4", "bytes=+1-2"] {
            assert_eq!(parse(field, 10), Asked::Whole, "{field}");
        }
    }
}
