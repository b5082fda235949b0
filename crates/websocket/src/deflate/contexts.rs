//! Compressing and decompressing messages.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{MAX_WINDOW_BITS, TAIL};
use crate::Error;

/// Contexts of each kind that a thread keeps for the next messages.
const MAX_SPARES: usize = 2;
const FIRST_BYTES: usize = 4 << 10;

#[derive(Default)]
struct Spares {
    compress: Vec<((u8, u8), Box<Compress>)>,
    #[expect(clippy::vec_box, reason = "a connection has them in a box, which they leave and enter as they are")]
    decompress: Vec<Box<Decompress>>,
}

thread_local! {
    static SPARES: RefCell<Spares> = RefCell::default();
}

/// Decompresses what the peer sends.
pub(crate) struct Inflater {
    takeover: bool,
    window_bits: u8,
    /// Of the message that is under way, or of the connection.
    context: Option<Box<Decompress>>,
}

impl Inflater {
    pub(super) fn new(takeover: bool, window_bits: u8) -> Self {
        // A context that is not kept serves for all windows.
        let window_bits = if takeover { window_bits.max(super::MIN_WINDOW_BITS) } else { MAX_WINDOW_BITS };
        Self { takeover, window_bits, context: None }
    }

    /// Appends what comes of `input` to `out`, which may have `limit` bytes.
    pub(crate) fn inflate(&mut self, input: &[u8], out: &mut Vec<u8>, limit: u64) -> Result<(), Error> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX - 1);
        let (takeover, window_bits) = (self.takeover, self.window_bits);
        let context = self.context.get_or_insert_with(|| {
            let spare = if takeover { None } else { SPARES.with_borrow_mut(|spares| spares.decompress.pop()) };
            spare.unwrap_or_else(|| Box::new(Decompress::new_with_window_bits(false, window_bits)))
        });
        let mut rest = input;
        loop {
            if out.len() == out.capacity() {
                // One byte more than may be shows that there are too many.
                out.reserve_exact(out.len().max(FIRST_BYTES).min(limit.saturating_add(1) - out.len()));
            }
            let (before, written) = (context.total_in(), out.len());
            let status = context.decompress_vec(rest, out, FlushDecompress::None).map_err(|_| Error::NotDeflate)?;
            let taken = (context.total_in() - before) as usize;
            rest = &rest[taken..];
            if out.len() > limit {
                return Err(Error::TooLarge);
            }
            match status {
                // RFC 7692, section 7.2.3.5: a last block is not the end of the message.
                Status::StreamEnd => context.reset(false),
                Status::Ok | Status::BufError if out.len() == out.capacity() => continue,
                Status::Ok | Status::BufError if taken == 0 && out.len() == written && !rest.is_empty() => return Err(Error::NotDeflate),
                Status::Ok | Status::BufError => {}
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// The message is whole.
    pub(crate) fn end_message(&mut self) {
        if !self.takeover
            && let Some(mut context) = self.context.take()
        {
            context.reset(false);
            SPARES.with_borrow_mut(|spares| {
                if spares.decompress.len() < MAX_SPARES {
                    spares.decompress.push(context);
                }
            });
        }
    }
}

/// Compresses what is sent.
pub(crate) struct Deflater {
    level: u8,
    takeover: bool,
    window_bits: u8,
    /// Of the connection.
    context: Option<Box<Compress>>,
}

impl Deflater {
    pub(super) fn new(level: u8, takeover: bool, window_bits: u8) -> Self {
        Self { level, takeover, window_bits, context: None }
    }

    fn compress(&self) -> Box<Compress> {
        Box::new(Compress::new_with_window_bits(Compression::new(u32::from(self.level)), false, self.window_bits))
    }

    /// One whole message, which is not empty; `None` where it may as well be sent as it is.
    pub(crate) fn deflate(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let mut context = self.take_context();
        let compressed = run(&mut context, data);
        self.give_back(context);
        // Where a context is kept the peer has to see it, since what follows may refer to it.
        (self.takeover || compressed.len() < data.len()).then_some(compressed)
    }

    /// A message that comes in parts. It needs its context until [`Deflater::end`].
    pub(crate) fn begin(&mut self) -> Stream {
        Stream { context: self.take_context(), state: StreamState::Empty }
    }

    /// The message is whole.
    pub(crate) fn end(&mut self, stream: Stream) {
        self.give_back(stream.context);
    }

    fn take_context(&mut self) -> Box<Compress> {
        let spare = if self.takeover {
            self.context.take()
        } else {
            let kind = (self.level, self.window_bits);
            SPARES.with_borrow_mut(|spares| {
                let place = spares.compress.iter().position(|(spare, _)| *spare == kind)?;
                Some(spares.compress.swap_remove(place).1)
            })
        };
        spare.unwrap_or_else(|| self.compress())
    }

    fn give_back(&mut self, mut context: Box<Compress>) {
        if self.takeover {
            self.context = Some(context);
            return;
        }
        context.reset();
        SPARES.with_borrow_mut(|spares| {
            // The oldest goes, so that a kind that is used no more does not stay.
            if spares.compress.len() == MAX_SPARES {
                spares.compress.remove(0);
            }
            spares.compress.push(((self.level, self.window_bits), context));
        });
    }
}

/// A message that is compressed part by part.
pub(crate) struct Stream {
    context: Box<Compress>,
    state: StreamState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    /// Nothing has come out yet.
    Empty,
    /// The end of what has come out was held back, as it may be that of the message.
    Flushed,
}

impl Stream {
    /// A part that is not the last.
    pub(crate) fn deflate(&mut self, data: &[u8]) -> Vec<u8> {
        if data.is_empty() {
            return Vec::new();
        }
        let compressed = run(&mut self.context, data);
        match std::mem::replace(&mut self.state, StreamState::Flushed) {
            StreamState::Empty => compressed,
            StreamState::Flushed => [&TAIL[..], &compressed].concat(),
        }
    }

    /// The last part.
    pub(crate) fn finish(&mut self, data: &[u8]) -> Vec<u8> {
        match self.state {
            // RFC 7692, section 7.2.3.6: an empty block, whose end is the tail.
            StreamState::Empty if data.is_empty() => vec![0],
            _ => self.deflate(data),
        }
    }
}

fn run(context: &mut Compress, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() / 2 + 64);
    let mut rest = data;
    loop {
        if out.capacity() - out.len() < 16 {
            out.reserve(out.len().max(64));
        }
        let before = context.total_in();
        // With room to write to, nothing but a broken invariant makes it fail.
        let status = context.compress_vec(rest, &mut out, FlushCompress::Sync).expect("invariant: the state is one of the library's");
        rest = &rest[(context.total_in() - before) as usize..];
        // It has written all that it had when it leaves room.
        if rest.is_empty() && (out.len() < out.capacity() || status == Status::BufError) {
            break;
        }
    }
    debug_assert!(out.ends_with(&TAIL), "a flush ends with an empty block");
    out.truncate(out.len() - TAIL.len());
    out
}
