//! Checks HTTP/2 field blocks before h2 reads them.
//!
//! h2 ends the whole connection for a field that it has no type for, such as a name in capitals: it
//! stops in the middle of a block, and its dynamic table then differs from the peer's. Such a
//! message is malformed, which should affect its stream alone (RFC 9113, section 8.1.1). So blocks
//! are read here first. An invalid field that goes into the table is replaced by one of the same
//! size. Another field is added for which h2 treats the message as malformed: a `te` other than
//! `trailers`.
//!
//! A block that cannot be decoded here ends the connection, whatever h2 would do with it: from
//! there on the two tables may differ.

mod hpack;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::hpack::{FORBIDDEN, Table, Undecodable};
use super::frames::{Frame, HEAD, PREFACE, flags, kind};
use crate::limits::Limits;

/// Maximum size of a frame that h2 accepts: the smallest value that RFC 9113, section 6.5.2,
/// allows.
const MAX_FRAME_BYTES: usize = 16 << 10;
/// Bytes in front of a block whose frame has the PRIORITY flag.
const PRIORITY_BYTES: usize = 5;
/// A frame that ends a connection: its block contains the index 0.
const NO_BLOCK: &[u8] = b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x80";

/// Limits on a block that is buffered until it is complete.
#[derive(Clone, Copy)]
struct BlockLimits {
    frames: usize,
    bytes: usize,
}

/// A connection whose field blocks h2 can always decode.
pub(crate) struct CheckedFieldBlocks<T> {
    io: T,
    blocks: Blocks,
    /// Buffers for bytes that cannot pass unchanged. Few connections ever need it.
    detour: Option<Box<PendingFrames>>,
}

#[derive(Default)]
struct PendingFrames {
    /// Bytes that have not passed yet. They begin with a frame, and are not examined before there
    /// are `needed` of them.
    held: Vec<u8>,
    needed: usize,
    /// Bytes that have passed. Those before `handed_on` were read.
    passed: Vec<u8>,
    handed_on: usize,
}

impl<T> CheckedFieldBlocks<T> {
    /// Checks what a client sends, beginning with its preface.
    pub(crate) fn of_client(io: T, limits: &Limits) -> Self {
        Self::new(io, PREFACE, limits)
    }

    /// Checks what a server sends.
    pub(crate) fn of_server(io: T, limits: &Limits) -> Self {
        Self::new(io, 0, limits)
    }

    fn new(io: T, skip: usize, limits: &Limits) -> Self {
        // Encoded names and values may be longer than their counted size, and too long ones still
        // have to be answered.
        let bytes = limits.field_section_bytes() as usize * 2 + 2 * MAX_FRAME_BYTES;
        // More than `FrameWatch`, which counts them, lets pass.
        let frames = 2 * (limits.continuation_frames() as usize).max(bytes / MAX_FRAME_BYTES);
        Self {
            io,
            blocks: Blocks {
                skip,
                table: Table::default(),
                block_limits: BlockLimits { frames, bytes },
                is_over: false,
            },
            detour: None,
        }
    }

    /// Takes received bytes. Returns how many of them, from the start, pass unchanged. The rest is
    /// kept.
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

    /// Copies bytes that have passed. Returns whether there were any.
    fn pass_on(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
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

impl PendingFrames {
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

impl<T: AsyncRead + Unpin> AsyncRead for CheckedFieldBlocks<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        while !self.pass_on(buffer) {
            // h2 has got the bytes for which it ends the connection, and is closing it. It needs no
            // more.
            if self.blocks.is_over {
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
            let read = buffer.filled().len() - before;
            if read == 0 {
                // h2 reports a frame that breaks off.
                if let Some(detour) = &mut self.detour {
                    detour.passed = std::mem::take(&mut detour.held);
                }
                self.pass_on(buffer);
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

impl<T: AsyncWrite + Unpin> AsyncWrite for CheckedFieldBlocks<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
    /// Remaining bytes of a frame that is not part of a block.
    skip: usize,
    table: Table,
    block_limits: BlockLimits,
    /// Set after bytes that could not be decoded.
    is_over: bool,
}

/// The result of [`Blocks::read`].
enum Step {
    All,
    /// A block is incomplete. At least `needed` bytes are required.
    Incomplete {
        needed: usize,
    },
    /// Frames of `length` bytes are replaced.
    Replaced {
        length: usize,
        by: Vec<u8>,
    },
    /// The connection has to end.
    Over,
}

/// The frames of a block, as far as they have arrived.
enum Found {
    Part {
        needed: usize,
    },
    All(BlockFrames),
    /// Frames of `length` bytes make h2 end the connection, or should.
    Broken {
        length: usize,
    },
}

/// All frames of one block.
struct BlockFrames {
    /// Total size in bytes.
    length: usize,
    /// Position of the first frame's fragment.
    first: std::ops::Range<usize>,
    /// The joined block, if it has more than one frame.
    joined: Option<Vec<u8>>,
}

impl Blocks {
    /// Returns how many of `bytes` pass unchanged, and what follows.
    fn read(&mut self, bytes: &[u8]) -> (usize, Step) {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            (at, self.skip) = (at + skipped, self.skip - skipped);
            let rest = &bytes[at..];
            if rest.is_empty() {
                return (bytes.len(), Step::All);
            }
            let Some(head) = Frame::begun(rest) else {
                return (at, Step::Incomplete { needed: HEAD });
            };
            if head.kind != kind::HEADERS && head.kind != kind::PUSH_PROMISE {
                self.skip = HEAD + head.length;
                continue;
            }
            let found = match find(head, rest, self.block_limits.frames) {
                Found::All(found) => found,
                Found::Part { needed } if needed <= self.block_limits.bytes => {
                    return (at, Step::Incomplete { needed });
                }
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

    /// Returns the bytes that replace the frames of a block, if they have to be replaced.
    fn check(
        &mut self,
        head: Frame<'_>,
        bytes: &[u8],
        found: &BlockFrames,
    ) -> Result<Option<Vec<u8>>, Undecodable> {
        let block = found.joined.as_deref().unwrap_or(&bytes[found.first.clone()]);
        let of_priority = if head.flags & flags::PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
        let mut priority = &bytes[found.first.start - of_priority..found.first.start];
        let mut flags = head.flags & !flags::PADDED | flags::END_HEADERS;
        let mut changed = self.table.check(block, MAX_FRAME_BYTES)?;
        // h2 resets a stream that depends on itself without reading its block.
        if let Some(depends_on) = priority.first_chunk()
            && u32::from_be_bytes(*depends_on) & 0x7fff_ffff == head.stream
        {
            (priority, flags) = (&[], flags & !flags::PRIORITY);
            changed.get_or_insert_with(|| block.to_vec()).extend_from_slice(FORBIDDEN);
        }
        // With more than one frame, h2 forgets that the first was malformed. So such blocks are
        // joined into one frame if they fit.
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

/// Finds the frames of the block that begins with `head`.
fn find(head: Frame<'_>, bytes: &[u8], most_frames: usize) -> Found {
    // h2 accepts no frame of this size, and refuses it by its head.
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
    // Neither side has allowed pushes.
    if head.kind == kind::PUSH_PROMISE || head.stream == 0 || first.start > first.end {
        return Found::Broken { length };
    }
    if head.flags & flags::END_HEADERS != 0 {
        return Found::All(BlockFrames { length, first, joined: None });
    }
    let mut joined = bytes[first.clone()].to_vec();
    for _ in 1..most_frames {
        let start = length + HEAD;
        let Some(next) = Frame::begun(&bytes[length..]) else {
            return Found::Part { needed: start };
        };
        if next.kind != kind::CONTINUATION || next.stream != head.stream {
            return Found::Broken { length };
        }
        if next.length > MAX_FRAME_BYTES {
            return Found::Broken { length: start };
        }
        length = start + next.length;
        let Some(fragment) = bytes.get(start..length) else {
            return Found::Part { needed: length };
        };
        joined.extend_from_slice(fragment);
        if next.flags & flags::END_HEADERS != 0 {
            return Found::All(BlockFrames { length, first, joined: Some(joined) });
        }
    }
    // More frames than h2 accepts: it closes the connection with ENHANCE_YOUR_CALM.
    Found::Broken { length }
}

#[cfg(test)]
mod tests;
