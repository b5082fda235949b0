//! Field lines with the same encoding on every connection.

use bytes::BytesMut;

use crate::{encoder::static_line, field::FieldLine, static_table};

/// A field line that is encoded once, for all later sections on all connections.
///
/// Only lines that encoders never look up in the dynamic table are supported: lines in the static
/// table, and lines whose name is there and whose value is never inserted, such as `etag`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyLine(Box<[u8]>);

impl ReadyLine {
    /// Encodes a line. Returns `None` for a line that each connection encodes differently, and for
    /// a pseudo-header field.
    pub fn new(line: &FieldLine<'_>) -> Option<Self> {
        let is_ready = line.name.first() != Some(&b':')
            && static_table::find(line.name, line.value)
                .is_some_and(|found| static_line::is_static(line, found));
        is_ready.then(|| {
            let mut encoded = BytesMut::new();
            static_line::encode_static_line(line, &mut encoded);
            Self(encoded[..].into())
        })
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.0
    }
}

/// A line to encode. A [`FieldLine`] converts to it.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingLine<'a> {
    /// The line.
    pub line: FieldLine<'a>,
    ready: Option<&'a ReadyLine>,
    is_checked: bool,
}

impl<'a> OutgoingLine<'a> {
    /// `ready`: the result of [`ReadyLine::new`] for the same line.
    pub fn new(line: FieldLine<'a>, ready: Option<&'a ReadyLine>) -> Self {
        debug_assert!(
            ready.is_none_or(|ready| ReadyLine::new(&line).as_ref() == Some(ready)),
            "made of another line"
        );
        Self { line, ready, is_checked: ready.is_some() }
    }

    /// Returns a line whose name the caller guarantees: it is in lower case, no pseudo-header
    /// field, and permitted in HTTP/3.
    #[inline]
    pub const fn checked(line: FieldLine<'a>) -> Self {
        Self { line, ready: None, is_checked: true }
    }

    /// Returns whether the line is from [`OutgoingLine::checked`], or ready.
    #[inline]
    pub const fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Returns the prepared encoding. The line's name is then in the static table, and no
    /// pseudo-header field.
    #[inline]
    pub const fn ready(&self) -> Option<&'a ReadyLine> {
        self.ready
    }
}

impl<'a> From<FieldLine<'a>> for OutgoingLine<'a> {
    #[inline]
    fn from(line: FieldLine<'a>) -> Self {
        Self { line, ready: None, is_checked: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Encoder;

    /// An encoder with a dynamic table takes the line for what was prepared, the first time and the
    /// next.
    #[test]
    fn line_is_ready_if_each_encoder_encodes_it_so_always() {
        let mut encoder = Encoder::new();
        encoder.set_peer_settings(4096, 16);
        let lines = [
            (FieldLine::new(b"etag", b"\"1\""), true),
            (FieldLine::new(b"content-length", b"13"), true),
            (FieldLine::new(b"accept-ranges", b"bytes"), true),
            (FieldLine::never_indexed(b"accept-ranges", b"bytes"), true),
            (FieldLine::never_indexed(b"set-cookie", b"a=b"), true),
            (FieldLine::new(b"server", b"pronghorn"), false),
            (FieldLine::new(b"last-modified", b"Sun, 22 Nov 2026 09:00:00 GMT"), false),
            (FieldLine::new(b"x-other", b"1"), false),
            (FieldLine::never_indexed(b"x-other", b"1"), false),
            (FieldLine::new(b":status", b"200"), false),
        ];
        for (line, expected) in lines {
            let ready = ReadyLine::new(&line);
            assert_eq!(ready.is_some(), expected, "{line:?}");
            let Some(ready) = ready else { continue };
            for stream in [0, 4, 8] {
                let (mut plain, mut prepared) = (BytesMut::new(), BytesMut::new());
                let size = encoder.encode(stream, [line], &mut plain);
                assert_eq!(
                    encoder.encode(stream, [OutgoingLine::new(line, Some(&ready))], &mut prepared),
                    size
                );
                assert_eq!(plain, prepared, "{line:?}");
            }
            assert!(!encoder.has_instructions(), "{line:?}");
        }
    }
}
