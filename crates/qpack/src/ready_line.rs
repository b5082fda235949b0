//! Field lines that are the same on every connection.

use bytes::BytesMut;

use crate::{encoder, field::FieldLine, static_table};

/// A field line that is encoded once, for all sections on all connections to come.
///
/// Only a line that no encoder would look for in its dynamic table can be so: one that is in the static table, and one whose name is
/// there and whose value is never inserted, as that of `etag`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyLine(Box<[u8]>);

impl ReadyLine {
    /// `None` for a line that each connection encodes in its own way, and for a pseudo-header field.
    pub fn new(line: &FieldLine<'_>) -> Option<Self> {
        let is_ready = line.name.first() != Some(&b':')
            && static_table::find(line.name, line.value).is_some_and(|found| encoder::is_static(line, found));
        is_ready.then(|| {
            let mut encoded = BytesMut::new();
            encoder::encode_static_line(line, &mut encoded);
            Self(encoded[..].into())
        })
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.0
    }
}

/// A line for the encoder. A [`FieldLine`] is one too.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingLine<'a> {
    /// The line.
    pub line: FieldLine<'a>,
    ready: Option<&'a ReadyLine>,
    is_checked: bool,
}

impl<'a> OutgoingLine<'a> {
    /// `ready`: what [`ReadyLine::new`] made of the same line.
    pub fn new(line: FieldLine<'a>, ready: Option<&'a ReadyLine>) -> Self {
        debug_assert!(ready.is_none_or(|ready| ReadyLine::new(&line).as_ref() == Some(ready)), "made of another line");
        Self { line, ready, is_checked: ready.is_some() }
    }

    /// A line whose name its maker knows: it is lower-case, none of a pseudo-header field, and HTTP/3 has a place for it.
    #[inline]
    pub const fn checked(line: FieldLine<'a>) -> Self {
        Self { line, ready: None, is_checked: true }
    }

    /// Whether it was made by [`OutgoingLine::checked`], or is ready.
    #[inline]
    pub const fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// How it was encoded before; then its name is one of the static table, and none of a pseudo-header field.
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

    /// An encoder with a dynamic table takes the line for what was prepared, the first time and the next.
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
                assert_eq!(encoder.encode(stream, [OutgoingLine::new(line, Some(&ready))], &mut prepared), size);
                assert_eq!(plain, prepared, "{line:?}");
            }
            assert!(!encoder.has_instructions(), "{line:?}");
        }
    }
}
