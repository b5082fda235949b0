//! Finds HTTP/2 frames in a stream of bytes (RFC 9113, section 4.1).

pub(super) const HEAD: usize = 9;
/// Bytes of a frame's payload that are kept: error codes with their debug data, window increments.
const KEPT_PAYLOAD_BYTES: usize = 40;
/// The same for PRIORITY_UPDATE, as large as HTTP/3 accepts.
const KEPT_OF_PRIORITY_UPDATE: usize = 1 << 10;
/// Size of the client connection preface.
pub(super) const PREFACE: usize = 24;

/// Frame types, RFC 9113, section 6.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    /// RFC 9218, section 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

pub(super) mod flags {
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// One frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) length: usize,
    /// Whether the whole frame has arrived; otherwise only its head.
    pub(super) complete: bool,
    content: &'a [u8],
}

impl<'a> Frame<'a> {
    fn new(head: [u8; HEAD]) -> Self {
        Self {
            length: usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]),
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]),
            complete: false,
            content: &[],
        }
    }

    /// Returns the frame that begins `bytes`, if its head is complete.
    pub(super) fn begun(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|head| Self::new(*head))
    }

    /// Returns the frame as complete, with its payload.
    fn completed(self, content: &'a [u8]) -> Self {
        Self { complete: true, content: &content[..content.len().min(self.kept())], ..self }
    }

    /// Returns how many bytes of the payload are kept.
    fn kept(&self) -> usize {
        if self.kind == kind::PRIORITY_UPDATE {
            KEPT_OF_PRIORITY_UPDATE
        } else {
            KEPT_PAYLOAD_BYTES
        }
    }

    /// Returns the payload from `offset` on, as far as it is kept.
    pub(super) fn content(&self, offset: usize) -> &[u8] {
        self.content.get(offset..).unwrap_or_default()
    }

    /// Returns a four-byte integer of the payload; 0 if it has none there.
    pub(super) fn word(&self, index: usize) -> u32 {
        self.content
            .get(4 * index..)
            .and_then(<[u8]>::first_chunk)
            .map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }
}

/// Finds frames in bytes that arrive in pieces of any size.
#[derive(Default)]
pub(super) struct Frames {
    /// Head of the frame that is arriving in pieces.
    head: [u8; HEAD],
    head_bytes: usize,
    content: Vec<u8>,
    content_bytes: usize,
}

impl Frames {
    /// Calls `on_frame` when a frame's head has arrived, and again when the frame is complete.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(&Frame<'_>)) {
        while !bytes.is_empty() {
            // Nearly all frames arrive in one piece.
            if self.head_bytes == 0
                && let Some((head, rest)) = bytes.split_first_chunk()
                && let frame = Frame::new(*head)
                && let Some((content, rest)) = rest.split_at_checked(frame.length)
            {
                on_frame(&frame);
                on_frame(&frame.completed(content));
                bytes = rest;
                continue;
            }
            if self.head_bytes < HEAD {
                let part = bytes.len().min(HEAD - self.head_bytes);
                self.head[self.head_bytes..self.head_bytes + part].copy_from_slice(&bytes[..part]);
                self.head_bytes += part;
                bytes = &bytes[part..];
                if self.head_bytes < HEAD {
                    return;
                }
                self.content_bytes = 0;
                self.content.clear();
                on_frame(&Frame::new(self.head));
            }
            let frame = Frame::new(self.head);
            let part = bytes.len().min(frame.length - self.content_bytes);
            let kept = part.min(frame.kept().saturating_sub(self.content_bytes));
            self.content.extend_from_slice(&bytes[..kept]);
            self.content_bytes += part;
            bytes = &bytes[part..];
            if self.content_bytes == frame.length {
                self.head_bytes = 0;
                on_frame(&frame.completed(&self.content));
            }
        }
    }
}

/// The fixed bytes that a client begins with.
#[derive(Default)]
pub(super) struct Preface {
    seen: usize,
}

impl Preface {
    /// Returns the part of `bytes` after the preface.
    pub(super) fn strip<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let part = bytes.len().min(PREFACE - self.seen);
        self.seen += part;
        &bytes[part..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
    }

    #[test]
    fn frames_are_found_whatever_the_pieces() {
        let wire = [
            frame(kind::SETTINGS, 0, 0, &[0; 6]),
            frame(kind::HEADERS, flags::END_HEADERS, 1, &[7; 300]),
            frame(kind::DATA, flags::END_STREAM, 1, &[]),
            frame(kind::RST_STREAM, 0, 3, &7_u32.to_be_bytes()),
            frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 3, b'x', b'y']),
        ]
        .concat();
        for size in 1..wire.len() {
            let (mut frames, mut heads, mut whole) = (Frames::default(), 0, Vec::new());
            for piece in wire.chunks(size) {
                frames.read(piece, |frame| {
                    if frame.complete {
                        assert_eq!(
                            frame.content(8),
                            if frame.kind == kind::GOAWAY {
                                &b"xy"[..]
                            } else {
                                &[7; 300][..frame.length.clamp(8, 40) - 8]
                            }
                        );
                        whole.push((
                            frame.kind,
                            frame.stream,
                            frame.length,
                            frame.word(0),
                            frame.word(1),
                        ));
                    } else {
                        heads += 1;
                    }
                });
            }
            assert_eq!(heads, 5, "pieces of {size}");
            let headers = u32::from_be_bytes([7; 4]);
            assert_eq!(
                whole,
                [
                    (4, 0, 6, 0, 0),
                    (1, 1, 300, headers, headers),
                    (0, 1, 0, 0, 0),
                    (3, 3, 4, 7, 0),
                    (7, 0, 10, 9, 3)
                ]
            );
        }
    }

    #[test]
    fn bytes_after_the_preface_are_left() {
        let mut preface = Preface::default();
        assert_eq!(preface.strip(b"PRI * HTTP/2.0\r\n"), b"");
        assert_eq!(preface.strip(b"\r\nSM\r\n\r\nrest"), b"rest");
        assert_eq!(preface.strip(b"more"), b"more");
    }
}
