//! Compression and decompression contexts.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::window::{MAX_WINDOW_BITS, MIN_WINDOW_BITS};
use crate::Error;

/// End of each compressed message, which is not sent (RFC 7692 section 7.2.1).
pub(crate) const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
/// Maximum number of contexts of each kind that a thread keeps for later messages.
const MAX_SPARES: usize = 2;
const FIRST_BYTES: usize = 4 << 10;

#[derive(Default)]
struct Spares {
    compress: Vec<((u8, u8), Box<Compress>)>,
    #[expect(
        clippy::vec_box,
        reason = "connections store contexts boxed, and the boxes move unchanged"
    )]
    decompress: Vec<Box<Decompress>>,
}

thread_local! {
    static SPARES: RefCell<Spares> = RefCell::default();
}

/// Decompresses received messages.
pub(crate) struct Inflater {
    takeover: bool,
    window_bits: u8,
    /// Context of the message in progress, or of the connection.
    context: Option<Box<Decompress>>,
}

impl Inflater {
    pub(super) fn new(takeover: bool, window_bits: u8) -> Self {
        // A context that is not kept between messages is created for the largest window.
        let window_bits = if takeover { window_bits.max(MIN_WINDOW_BITS) } else { MAX_WINDOW_BITS };
        Self { takeover, window_bits, context: None }
    }

    /// Decompresses `input` and appends to `out`, which must not exceed `limit` bytes.
    pub(crate) fn inflate(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        limit: u64,
    ) -> Result<(), Error> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX - 1);
        let (takeover, window_bits) = (self.takeover, self.window_bits);
        let context = self.context.get_or_insert_with(|| {
            let spare = if takeover {
                None
            } else {
                SPARES.with_borrow_mut(|spares| spares.decompress.pop())
            };
            spare.unwrap_or_else(|| Box::new(Decompress::new_with_window_bits(false, window_bits)))
        });
        let mut rest = input;
        loop {
            if out.len() == out.capacity() {
                // One byte more than permitted, to detect too large a message.
                out.reserve_exact(
                    out.len().max(FIRST_BYTES).min(limit.saturating_add(1) - out.len()),
                );
            }
            let (before, written) = (context.total_in(), out.len());
            let status = context
                .decompress_vec(rest, out, FlushDecompress::None)
                .map_err(|_| Error::NotDeflate)?;
            let taken = (context.total_in() - before) as usize;
            rest = &rest[taken..];
            if out.len() > limit {
                return Err(Error::TooLarge);
            }
            match status {
                // RFC 7692, section 7.2.3.5: a final block does not end the message.
                Status::StreamEnd => context.reset(false),
                Status::Ok | Status::BufError if out.len() == out.capacity() => continue,
                Status::Ok | Status::BufError
                    if taken == 0 && out.len() == written && !rest.is_empty() =>
                {
                    return Err(Error::NotDeflate);
                }
                Status::Ok | Status::BufError => {}
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Ends the message.
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

/// Compresses sent messages.
pub(crate) struct Deflater {
    level: u8,
    takeover: bool,
    window_bits: u8,
    /// Context of the connection, if kept.
    context: Option<Box<Compress>>,
}

impl Deflater {
    pub(super) fn new(level: u8, takeover: bool, window_bits: u8) -> Self {
        Self { level, takeover, window_bits, context: None }
    }

    fn compress(&self) -> Box<Compress> {
        Box::new(Compress::new_with_window_bits(
            Compression::new(u32::from(self.level)),
            false,
            self.window_bits,
        ))
    }

    /// Compresses a whole, non-empty message. Returns `None` if the message should be sent
    /// uncompressed.
    pub(crate) fn deflate(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let mut context = self.take_context();
        let compressed = run(&mut context, data);
        self.give_back(context);
        // If the context is kept, the peer must receive the data, because later messages may refer
        // to it.
        (self.takeover || compressed.len() < data.len()).then_some(compressed)
    }

    /// Begins a fragmented message, which uses the context until [`Deflater::end`].
    pub(crate) fn begin(&mut self) -> Stream {
        Stream { context: self.take_context(), state: StreamState::Empty }
    }

    /// Ends the message.
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
            // Evict the oldest, so that an unused kind does not stay.
            if spares.compress.len() == MAX_SPARES {
                spares.compress.remove(0);
            }
            spares.compress.push(((self.level, self.window_bits), context));
        });
    }
}

/// A message that is compressed in fragments.
pub(crate) struct Stream {
    context: Box<Compress>,
    state: StreamState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    /// No output yet.
    Empty,
    /// The tail of the output was withheld, because the message may end there.
    Flushed,
}

impl Stream {
    /// Compresses a fragment other than the last.
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

    /// Compresses the last fragment.
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
        // With output space available, only a violated invariant can make it fail.
        let status = context
            .compress_vec(rest, &mut out, FlushCompress::Sync)
            .expect("invariant: the compressor's state is valid");
        rest = &rest[(context.total_in() - before) as usize..];
        // Spare output space means that all output was written.
        if rest.is_empty() && (out.len() < out.capacity() || status == Status::BufError) {
            break;
        }
    }
    debug_assert!(out.ends_with(&TAIL), "a flush ends with an empty block");
    out.truncate(out.len() - TAIL.len());
    out
}
