//! Byte ranges (RFC 9110, section 14).

use std::ops::Range;

/// Maximum number of ranges in a response; a request for more gets the whole content.
const MAX_RANGES: usize = 16;

/// A `range` field applied to content of a known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RangeRequest {
    /// The whole content: the field is malformed, has another unit, or has too many or overlapping
    /// ranges, so that the whole is less work.
    Whole,
    /// One part.
    Part(Range<u64>),
    /// Two or more parts, in this order. They do not overlap, so together they are no larger than
    /// the whole.
    Parts(Vec<Range<u64>>),
    /// No range is within the content.
    Unsatisfiable,
}

pub(crate) fn parse(field: &str, length: u64) -> RangeRequest {
    let Some((unit, set)) = field.split_once('=') else { return RangeRequest::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return RangeRequest::Whole;
    }
    if !set.contains(',') {
        return parse_one(set, length);
    }
    let mut parts: Vec<Range<u64>> = Vec::new();
    for (number, one) in set.split(',').enumerate() {
        if number == MAX_RANGES {
            return RangeRequest::Whole;
        }
        match parse_one(one, length) {
            //= RFC 9110 section 14.2
            //# A server that supports range requests MAY ignore or reject a Range header field that contains an invalid ranges-specifier
            //# (Section 14.1.1), a ranges-specifier with more than two overlapping ranges, or a set of many small ranges that are not listed
            //# in ascending order
            RangeRequest::Part(part)
                if parts.iter().any(|other| part.start < other.end && other.start < part.end) =>
            {
                return RangeRequest::Whole;
            }
            RangeRequest::Part(part) => parts.push(part),
            RangeRequest::Unsatisfiable => {}
            RangeRequest::Whole | RangeRequest::Parts(_) => return RangeRequest::Whole,
        }
    }
    match parts.pop() {
        None => RangeRequest::Unsatisfiable,
        Some(only) if parts.is_empty() => RangeRequest::Part(only),
        Some(last) => {
            parts.push(last);
            RangeRequest::Parts(parts)
        }
    }
}

fn parse_one(range: &str, length: u64) -> RangeRequest {
    let Some((first, last)) = range.trim().split_once('-') else { return RangeRequest::Whole };
    match (position(first), position(last)) {
        (Position::LeftOut, Position::At(0)) => RangeRequest::Unsatisfiable,
        (Position::LeftOut, Position::At(_)) if length == 0 => RangeRequest::Unsatisfiable,
        (Position::LeftOut, Position::At(suffix)) => {
            RangeRequest::Part(length.saturating_sub(suffix)..length)
        }
        (Position::At(first), Position::At(last)) if last < first => RangeRequest::Whole,
        (Position::At(first), Position::At(_) | Position::LeftOut) if first >= length => {
            RangeRequest::Unsatisfiable
        }
        (Position::At(first), Position::At(last)) => {
            RangeRequest::Part(first..length.min(last.saturating_add(1)))
        }
        (Position::At(first), Position::LeftOut) => RangeRequest::Part(first..length),
        _ => RangeRequest::Whole,
    }
}

enum Position {
    At(u64),
    LeftOut,
    Malformed,
}

/// Parses a position. A number that overflows becomes the largest one.
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
        assert_eq!(parse("bytes=0-0", 10), RangeRequest::Part(0..1));
        assert_eq!(parse("bytes=2-5", 10), RangeRequest::Part(2..6));
        assert_eq!(parse("bytes=2-", 10), RangeRequest::Part(2..10));
        assert_eq!(parse("bytes=-3", 10), RangeRequest::Part(7..10));
    }

    #[test]
    fn range_past_the_end_is_cut() {
        assert_eq!(parse("bytes=2-99", 10), RangeRequest::Part(2..10));
        assert_eq!(parse("bytes=-99", 10), RangeRequest::Part(0..10));
        assert_eq!(parse("bytes=2-99999999999999999999999", 10), RangeRequest::Part(2..10));
    }

    #[test]
    fn range_outside_of_content_is_unsatisfiable() {
        for (field, length) in [
            ("bytes=10-", 10),
            ("bytes=10-12", 10),
            ("bytes=-0", 10),
            ("bytes=0-", 0),
            ("bytes=-1", 0),
        ] {
            assert_eq!(parse(field, length), RangeRequest::Unsatisfiable, "{field} of {length}");
        }
    }

    #[test]
    fn range_that_may_be_ignored_is() {
        for field in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-2",
            "lines=1-2",
            "bytes=0-1,x",
            "bytes=+1-2",
        ] {
            assert_eq!(parse(field, 10), RangeRequest::Whole, "{field}");
        }
    }

    #[test]
    fn several_ranges_are_kept_in_their_order() {
        assert_eq!(parse("bytes=0-1, 4-4,-2", 10), RangeRequest::Parts(vec![0..2, 4..5, 8..10]));
        assert_eq!(parse("bytes=6-7,0-1", 10), RangeRequest::Parts(vec![6..8, 0..2]));
        // Ranges outside of the content are omitted.
        assert_eq!(parse("bytes=0-1,10-", 10), RangeRequest::Part(0..2));
        assert_eq!(parse("bytes=10-,11-", 10), RangeRequest::Unsatisfiable);
    }

    #[test]
    fn ranges_that_come_to_more_than_the_whole_are_the_whole() {
        for field in ["bytes=0-4,4-5", "bytes=0-,0-", "bytes=-9,0-1"] {
            assert_eq!(parse(field, 10), RangeRequest::Whole, "{field}");
        }
        let many = |count: u64| {
            format!(
                "bytes={}",
                (0..count).map(|at| format!("{0}-{0}", at * 2)).collect::<Vec<_>>().join(",")
            )
        };
        assert!(matches!(parse(&many(16), 1000), RangeRequest::Parts(parts) if parts.len() == 16));
        assert_eq!(parse(&many(17), 1000), RangeRequest::Whole);
    }
}
