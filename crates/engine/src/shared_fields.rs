//! Field lines that many responses have in common.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue};
use pronghorn_h3::{OutgoingLine, ReadyLine};

use crate::field_line::field_line;

/// Field lines that the engine adds to a response: `server`, `date`, `alt-svc`, `content-length`.
const ADDED_LINES: usize = 4;

/// Field lines that are the same in many responses.
/// [`Response::with_shared`](crate::Response::with_shared) adds them without a copy.
#[derive(Debug)]
pub struct SharedFields {
    lines: HeaderMap,
    present: PresentFields,
    announced: Option<u64>,
    /// The same lines as HTTP/3 sends them.
    outgoing: Vec<(HeaderName, HeaderValue, Option<ReadyLine>)>,
}

impl SharedFields {
    /// Examines the lines once for what the engine has to know of them for each response.
    pub fn new(mut lines: HeaderMap) -> Self {
        // A copy keeps this capacity, so that its lines do not move when others are added.
        lines.reserve(ADDED_LINES);
        let prepare = |(name, value)| {
            (
                HeaderName::clone(name),
                HeaderValue::clone(value),
                ReadyLine::new(&field_line(name, value)),
            )
        };
        let outgoing = lines.iter().map(prepare).collect();
        Self {
            present: PresentFields::of(&lines),
            announced: announced_length(&lines),
            outgoing,
            lines,
        }
    }

    /// Returns the lines.
    pub fn lines(&self) -> &HeaderMap {
        &self.lines
    }

    /// Returns the lines for an encoder.
    pub(crate) fn outgoing(&self) -> impl Iterator<Item = OutgoingLine<'_>> {
        self.outgoing
            .iter()
            .map(|(name, value, ready)| OutgoingLine::new(field_line(name, value), ready.as_ref()))
    }

    pub(crate) fn present(&self) -> PresentFields {
        self.present
    }

    /// See [`announced_length`].
    pub(crate) fn announced(&self) -> Option<u64> {
        self.announced
    }
}

/// Which lines of a handler decide what the engine adds. Found in one pass, since heads are short.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PresentFields {
    pub(crate) alt_svc: bool,
    pub(crate) content_length: bool,
    pub(crate) date: bool,
    pub(crate) priority: bool,
    pub(crate) server: bool,
    pub(crate) trailer: bool,
    pub(crate) transfer_encoding: bool,
}

impl PresentFields {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut present = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "alt-svc" => present.alt_svc = true,
                "content-length" => present.content_length = true,
                "date" => present.date = true,
                "priority" => present.priority = true,
                "server" => present.server = true,
                "trailer" => present.trailer = true,
                "transfer-encoding" => present.transfer_encoding = true,
                _ => {}
            }
        }
        present
    }
}

/// Returns the body length that `content-length` announces. `None` if there is no such line, if
/// there are several, or if the value is not a number.
pub fn announced_length(headers: &HeaderMap) -> Option<u64> {
    let repeats_names = headers.len() > headers.keys_len();
    let length = headers.get(CONTENT_LENGTH)?.as_bytes();
    if length.is_empty()
        || (repeats_names && headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some())
    {
        return None;
    }
    length.iter().try_fold(0_u64, |length, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        length.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_announced_once_and_in_digits() {
        let of = |lines: &[&'static str]| {
            let lines = lines.iter().map(|line| (CONTENT_LENGTH, HeaderValue::from_static(line)));
            announced_length(&lines.collect())
        };
        assert_eq!(
            (of(&["0"]), of(&["0013"]), of(&["18446744073709551615"])),
            (Some(0), Some(13), Some(u64::MAX))
        );
        for lines in [
            &[][..],
            &[""],
            &["+1"],
            &["1 "],
            &["1a"],
            &["18446744073709551616"],
            &["1", "1"],
            &["x", "1"],
        ] {
            assert_eq!(of(lines), None, "{lines:?}");
        }
    }
}
