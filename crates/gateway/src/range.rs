//! Byte ranges (RFC 9110, section 14).

use std::ops::Range;

/// Ranges that are answered at most; a request for more gets the whole content.
const MAX_RANGES: usize = 16;

/// What a `range` field asks of content of a known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All of it: the field is malformed, of another unit, or names so many ranges, or such that overlap, that the whole is less work.
    Whole,
    /// This part.
    Part(Range<u64>),
    /// These parts, two or more, in this order. None overlaps another, so that together they are no more than the whole.
    Parts(Vec<Range<u64>>),
    /// Nothing that there is.
    Unsatisfiable,
}

pub(crate) fn parse(field: &str, length: u64) -> Asked {
    let Some((unit, set)) = field.split_once('=') else { return Asked::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Asked::Whole;
    }
    if !set.contains(',') {
        return parse_one(set, length);
    }
    let mut parts: Vec<Range<u64>> = Vec::new();
    for (number, one) in set.split(',').enumerate() {
        if number == MAX_RANGES {
            return Asked::Whole;
        }
        match parse_one(one, length) {
            //= RFC 9110 section 14.2
            //# A server that supports range requests MAY ignore or reject a Range header field that contains an invalid ranges-specifier
            //# (Section 14.1.1), a ranges-specifier with more than two overlapping ranges, or a set of many small ranges that are not listed
            //# in ascending order
            Asked::Part(part) if parts.iter().any(|other| part.start < other.end && other.start < part.end) => return Asked::Whole,
            Asked::Part(part) => parts.push(part),
            Asked::Unsatisfiable => {}
            Asked::Whole | Asked::Parts(_) => return Asked::Whole,
        }
    }
    match parts.pop() {
        None => Asked::Unsatisfiable,
        Some(only) if parts.is_empty() => Asked::Part(only),
        Some(last) => {
            parts.push(last);
            Asked::Parts(parts)
        }
    }
}

fn parse_one(range: &str, length: u64) -> Asked {
    let Some((first, last)) = range.trim().split_once('-') else { return Asked::Whole };
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
        for field in ["", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "lines=1-2", "bytes=0-1,x", "bytes=+1-2"] {
            assert_eq!(parse(field, 10), Asked::Whole, "{field}");
        }
    }

    #[test]
    fn several_ranges_are_kept_in_their_order() {
        assert_eq!(parse("bytes=0-1, 4-4,-2", 10), Asked::Parts(vec![0..2, 4..5, 8..10]));
        assert_eq!(parse("bytes=6-7,0-1", 10), Asked::Parts(vec![6..8, 0..2]));
        // What there is not is left out.
        assert_eq!(parse("bytes=0-1,10-", 10), Asked::Part(0..2));
        assert_eq!(parse("bytes=10-,11-", 10), Asked::Unsatisfiable);
    }

    #[test]
    fn ranges_that_come_to_more_than_the_whole_are_the_whole() {
        for field in ["bytes=0-4,4-5", "bytes=0-,0-", "bytes=-9,0-1"] {
            assert_eq!(parse(field, 10), Asked::Whole, "{field}");
        }
        let many = |count: u64| format!("bytes={}", (0..count).map(|at| format!("{0}-{0}", at * 2)).collect::<Vec<_>>().join(","));
        assert!(matches!(parse(&many(16), 1000), Asked::Parts(parts) if parts.len() == 16));
        assert_eq!(parse(&many(17), 1000), Asked::Whole);
    }
}
