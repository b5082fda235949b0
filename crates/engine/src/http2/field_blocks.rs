//! Field blocks of HTTP/2 on their way to the library.
//!
//! The library ends the whole connection for a field that it has no type for, such as a name in capitals: it stops in the middle of a
//! block, after which its dynamic table is not the peer's any more. Such a message is malformed, which concerns its stream alone (RFC 9113,
//! section 8.1.1). So blocks are read here before. A field of that kind is replaced by one of the same size, where it goes into the table, and
//! another one is added that the library takes the message for malformed for: a `te` that asks for something else than trailers.
//!
//! What cannot be followed ends the connection, whatever the library would make of it: from there on the two tables may differ.

mod hpack;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::hpack::{FORBIDDEN, Table};
use super::frames::{Frame, HEAD, PREFACE, flags, kind};
use crate::limits::Limits;

/// What a frame may have that the library takes: the least that RFC 9113, section 6.5.2, allows to set.
const MAX_FRAME_BYTES: usize = 16 << 10;
/// What stands before a block whose frame says something of its stream's priority.
const PRIORITY_BYTES: usize = 5;
/// What ends a connection: a block that has the index 0.
const NO_BLOCK: &[u8] = b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x80";

/// How much of a block that comes in pieces is held until it is whole.
#[derive(Clone, Copy)]
struct Most {
    frames: usize,
    bytes: usize,
}

/// A connection whose field blocks the library can always decode.
pub(crate) struct Checked<T> {
    io: T,
    blocks: Blocks,
    /// Where what was read goes that cannot pass as it is. Few connections ever need it.
    detour: Option<Box<Detour>>,
}

#[derive(Default)]
struct Detour {
    /// What has not passed yet: it begins with a frame, and there is no use in looking at it before it has so many bytes.
    held: Vec<u8>,
    needed: usize,
    /// What has passed, from `handed_on` on.
    passed: Vec<u8>,
    handed_on: usize,
}

impl<T> Checked<T> {
    /// What a client sends, from its preface on.
    pub(crate) fn of_client(io: T, limits: &Limits) -> Self {
        Self::new(io, PREFACE, limits)
    }

    /// What a server sends.
    pub(crate) fn of_server(io: T, limits: &Limits) -> Self {
        Self::new(io, 0, limits)
    }

    fn new(io: T, skip: usize, limits: &Limits) -> Self {
        // Names and values as they are written may be longer than those that count, and those that are too long are answered.
        let bytes = limits.field_section_bytes() as usize * 2 + 2 * MAX_FRAME_BYTES;
        // More than who counts them lets come.
        let frames = 2 * (limits.continuation_frames() as usize).max(bytes / MAX_FRAME_BYTES);
        Self { io, blocks: Blocks { skip, table: Table::default(), most: Most { frames, bytes }, is_over: false }, detour: None }
    }

    /// Takes what was read. Returns how much of it, from its start, passes as it is; the rest is kept.
    fn take(&mut self, bytes: &[u8]) -> usize {
        if let Some(detour) = &mut self.detour {
            detour.take(bytes, &mut self.blocks);
            return 0;
        }
        let (as_is, step) = self.blocks.read(bytes);
        if !matches!(step, Step::All) {
            self.detour.get_or_insert_default().go_on(&bytes[as_is..], step, &mut self.blocks);
        }
        as_is
    }

    /// Whether there was anything that had passed.
    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let Some(detour) = &mut self.detour else { return false };
        let left = &detour.passed[detour.handed_on..];
        let part = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..part]);
        detour.handed_on += part;
        if detour.handed_on == detour.passed.len() {
            (detour.passed, detour.handed_on) = (Vec::new(), 0);
            if detour.held.is_empty() {
                self.detour = None;
            }
        }
        part > 0
    }
}

impl Detour {
    fn take(&mut self, bytes: &[u8], blocks: &mut Blocks) {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= self.needed {
            let held = std::mem::take(&mut self.held);
            let (as_is, step) = blocks.read(&held);
            self.passed.extend_from_slice(&held[..as_is]);
            self.go_on(&held[as_is..], step, blocks);
        }
    }

    fn go_on(&mut self, mut bytes: &[u8], mut step: Step, blocks: &mut Blocks) {
        loop {
            match step {
                Step::All => return,
                Step::Incomplete { needed } => {
                    self.needed = needed;
                    return self.held.extend_from_slice(bytes);
                }
                Step::Replaced { length, by } => {
                    self.passed.extend_from_slice(&by);
                    bytes = &bytes[length..];
                }
                Step::Over => {
                    blocks.is_over = true;
                    return self.passed.extend_from_slice(NO_BLOCK);
                }
            }
            let (as_is, next) = blocks.read(bytes);
            self.passed.extend_from_slice(&bytes[..as_is]);
            (bytes, step) = (&bytes[as_is..], next);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Checked<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        while !self.hand_on(buffer) {
            // The library has had what it ends the connection for, and says goodbye. It needs no more for that.
            if self.blocks.is_over {
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
            let read = buffer.filled().len() - before;
            if read == 0 {
                // Of a frame that breaks off, the library says so.
                if let Some(detour) = &mut self.detour {
                    detour.passed = std::mem::take(&mut detour.held);
                }
                self.hand_on(buffer);
                break;
            }
            let as_is = self.take(&buffer.filled()[before..]);
            buffer.set_filled(before + as_is);
            if as_is > 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Checked<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Finds field blocks among frames.
struct Blocks {
    /// Bytes of what has begun and is none.
    skip: usize,
    table: Table,
    most: Most,
    /// What came could not be followed.
    is_over: bool,
}

/// How far it went.
enum Step {
    All,
    /// There is more of a block to come, at least up to this length.
    Incomplete {
        needed: usize,
    },
    /// Frames of so many bytes are replaced.
    Replaced {
        length: usize,
        by: Vec<u8>,
    },
    /// The connection has to end.
    Over,
}

/// What there is of the frames of a block.
enum Found {
    Part {
        needed: usize,
    },
    All(BlockFrames),
    /// So many bytes are frames that make the library end the connection, or should.
    Broken {
        length: usize,
    },
}

/// All frames of a block.
struct BlockFrames {
    /// All of them, in bytes.
    length: usize,
    /// Where the fragment of the first one is.
    first: std::ops::Range<usize>,
    /// The block, where it comes in more than one.
    joined: Option<Vec<u8>>,
}

/// Where the library's table may become another one than the peer's.
struct Undecodable;

impl Blocks {
    /// How much of `bytes` passes as it is, and what comes then.
    fn read(&mut self, bytes: &[u8]) -> (usize, Step) {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            (at, self.skip) = (at + skipped, self.skip - skipped);
            let rest = &bytes[at..];
            if rest.is_empty() {
                return (bytes.len(), Step::All);
            }
            let Some(head) = Frame::begun(rest) else { return (at, Step::Incomplete { needed: HEAD }) };
            if head.kind != kind::HEADERS && head.kind != kind::PUSH_PROMISE {
                self.skip = HEAD + head.length;
                continue;
            }
            let found = match find(head, rest, self.most.frames) {
                Found::All(found) => found,
                Found::Part { needed } if needed <= self.most.bytes => return (at, Step::Incomplete { needed }),
                Found::Part { .. } => return (at, Step::Over),
                Found::Broken { length } => return (at + length, Step::Over),
            };
            match self.check(head, rest, &found) {
                Ok(None) => self.skip = found.length,
                Ok(Some(by)) => return (at, Step::Replaced { length: found.length, by }),
                Err(Undecodable) => return (at, Step::Over),
            }
        }
    }

    /// What stands for the frames of a block, if anything does.
    fn check(&mut self, head: Frame<'_>, bytes: &[u8], found: &BlockFrames) -> Result<Option<Vec<u8>>, Undecodable> {
        let block = found.joined.as_deref().unwrap_or(&bytes[found.first.clone()]);
        let of_priority = if head.flags & flags::PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
        let mut priority = &bytes[found.first.start - of_priority..found.first.start];
        let mut flags = head.flags & !flags::PADDED | flags::END_HEADERS;
        let mut changed = self.table.check(block, MAX_FRAME_BYTES)?;
        // For a stream that depends on itself, the library resets it without a look at its block.
        if let Some(depends_on) = priority.first_chunk()
            && u32::from_be_bytes(*depends_on) & 0x7fff_ffff == head.stream
        {
            (priority, flags) = (&[], flags & !flags::PRIORITY);
            changed.get_or_insert_with(|| block.to_vec()).extend_from_slice(FORBIDDEN);
        }
        // Of more than one frame, the library forgets that the first was malformed. So such blocks become one where they can.
        let is_long = block.len() + priority.len() > MAX_FRAME_BYTES;
        let block = match (&changed, &found.joined) {
            (Some(changed), _) => changed,
            (None, Some(joined)) if !is_long => joined,
            (None, _) => return Ok(None),
        };
        let length = priority.len() + block.len();
        if length > MAX_FRAME_BYTES {
            return Err(Undecodable);
        }
        let mut by = Vec::with_capacity(HEAD + length);
        by.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
        by.extend_from_slice(&[head.kind, flags]);
        by.extend_from_slice(&head.stream.to_be_bytes());
        by.extend_from_slice(priority);
        by.extend_from_slice(block);
        Ok(Some(by))
    }
}

/// Finds the frames of the block that begins with this one.
fn find(head: Frame<'_>, bytes: &[u8], most_frames: usize) -> Found {
    // The library takes none of this size, and sees that by its head.
    if head.length > MAX_FRAME_BYTES {
        return Found::Broken { length: HEAD };
    }
    let mut length = HEAD + head.length;
    let Some(content) = bytes.get(HEAD..length) else { return Found::Part { needed: length } };
    let mut first = HEAD..length;
    if head.flags & flags::PADDED != 0 {
        first.start += 1;
        first.end -= content.first().map_or(0, |padding| usize::from(*padding)).min(content.len());
    }
    if head.flags & flags::PRIORITY != 0 {
        first.start += PRIORITY_BYTES;
    }
    // And nobody promised to take a push.
    if head.kind == kind::PUSH_PROMISE || head.stream == 0 || first.start > first.end {
        return Found::Broken { length };
    }
    if head.flags & flags::END_HEADERS != 0 {
        return Found::All(BlockFrames { length, first, joined: None });
    }
    let mut joined = bytes[first.clone()].to_vec();
    for _ in 1..most_frames {
        let start = length + HEAD;
        let Some(next) = Frame::begun(&bytes[length..]) else { return Found::Part { needed: start } };
        if next.kind != kind::CONTINUATION || next.stream != head.stream {
            return Found::Broken { length };
        }
        if next.length > MAX_FRAME_BYTES {
            return Found::Broken { length: start };
        }
        length = start + next.length;
        let Some(fragment) = bytes.get(start..length) else { return Found::Part { needed: length } };
        joined.extend_from_slice(fragment);
        if next.flags & flags::END_HEADERS != 0 {
            return Found::All(BlockFrames { length, first, joined: Some(joined) });
        }
    }
    // More frames than the library accepts: it closes the connection with ENHANCE_YOUR_CALM.
    Found::Broken { length }
}

#[cfg(test)]
mod tests;
