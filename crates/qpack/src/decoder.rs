//! Decodes field sections.

mod encoder_stream;

use bytes::{Bytes, BytesMut};

use crate::{
    dynamic_table::{DynamicTable, Entry, max_entries},
    error::{DecompressionError, EncoderStreamError},
    field::FieldSection,
    huffman, integer,
    prefix::Prefix,
    static_table,
};

use encoder_stream::EncoderStream;

/// Result of decoding a valid section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All lines were decoded.
    Complete,
    /// The section needs dynamic table entries that have not arrived. Keep it, and decode it again
    /// when [`Decoder::poll_unblocked`] returns its stream. Until then nothing else of the stream
    /// may be decoded. Never returned while [`Decoder::max_blocked_streams`] is zero.
    Blocked,
}

/// Decodes the field sections of a connection, reads the peer's encoder stream and writes the local
/// decoder stream.
///
/// 1. Pass sections to [`Decoder::decode`], and bytes of the encoder stream to
///    [`Decoder::handle_encoder_stream`]. An error ends the connection, unless it concerns one
///    message only.
/// 2. After encoder stream bytes, call [`Decoder::poll_unblocked`] until it is empty.
/// 3. Pass streams that are reset, or no longer read before their end, to
///    [`Decoder::cancel_stream`].
/// 4. Call [`Decoder::take_instructions`] once for a batch of the above, so that one instruction
///    covers all insertions.
///
/// It stores the table, at worst about twice its capacity, a partial insertion, and a few bytes for
/// each blocked stream. Blocked sections are stored by the caller.
#[derive(Debug, Default)]
pub struct Decoder {
    max_table_capacity: u64,
    max_blocked_streams: u64,
    table: DynamicTable,
    encoder_stream: EncoderStream,
    /// Blocked streams with their required insert counts, in the order in which they were blocked.
    blocked: Vec<(u64, u64)>,
    instructions: BytesMut,
    /// Number of insertions already acknowledged to the peer.
    known_received_count: u64,
}

impl Decoder {
    /// Returns a decoder without a dynamic table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a decoder whose peer may use a dynamic table of this capacity in bytes, and block
    /// this many streams on it. Both values must be announced in SETTINGS.
    ///
    /// # Panics
    /// Panics if the capacity exceeds 1 GiB.
    pub fn with_table(max_table_capacity: u64, max_blocked_streams: u64) -> Self {
        assert!(max_table_capacity <= 1 << 30, "a dynamic table of more than 1 GiB");
        Self { max_table_capacity, max_blocked_streams, ..Self::default() }
    }

    /// Value for SETTINGS_QPACK_MAX_TABLE_CAPACITY.
    pub const fn max_table_capacity(&self) -> u64 {
        self.max_table_capacity
    }

    /// Value for SETTINGS_QPACK_BLOCKED_STREAMS.
    pub const fn max_blocked_streams(&self) -> u64 {
        self.max_blocked_streams
    }

    /// Returns the size of the dynamic table in bytes, as defined in RFC 9204 section 3.2.1.
    pub const fn table_size(&self) -> u64 {
        self.table.size()
    }

    /// Decodes a section and appends its lines to `into`, whose size ([`FieldSection::size`]) must
    /// then not exceed `limit` bytes. After an error `into` contains the lines before it.
    pub fn decode(
        &mut self,
        stream_id: u64,
        section: &[u8],
        limit: u64,
        into: &mut FieldSection,
    ) -> Result<Decoded, DecompressionError> {
        let mut input = section;
        let prefix = Prefix::decode(
            &mut input,
            max_entries(self.max_table_capacity),
            self.table.insert_count(),
        )?;
        if prefix.required_insert_count > self.table.insert_count() {
            self.block(stream_id, prefix.required_insert_count)?;
            return Ok(Decoded::Blocked);
        }
        // Typical size of a decoded section: Huffman codes have at least 5 bits, and a dynamic
        // table index stands for several bytes.
        into.reserve(input.len() * 2, input.len() / 2);
        let references = References { table: &self.table, prefix };
        //= RFC 9204 section 2.2
        //# The decoder MUST emit field lines in the order their representations appear in the encoded field section.
        while let Some(&first) = input.first() {
            references.decode_line(first, &mut input, limit, into)?;
            if into.size() > limit {
                return Err(DecompressionError::SectionTooLarge { limit });
            }
        }
        if prefix.required_insert_count > 0 {
            self.acknowledge(stream_id, prefix.required_insert_count);
        }
        Ok(Decoded::Complete)
    }

    /// Handles bytes of the peer's encoder stream, in order, split anywhere.
    pub fn handle_encoder_stream(&mut self, bytes: &[u8]) -> Result<(), EncoderStreamError> {
        self.encoder_stream.read(bytes, self.max_table_capacity, &mut self.table)
    }

    /// Returns a stream whose section can now be decoded.
    pub fn poll_unblocked(&mut self) -> Option<u64> {
        let insert_count = self.table.insert_count();
        let place = self.blocked.iter().position(|(_, required)| *required <= insert_count)?;
        Some(self.blocked.remove(place).0)
    }

    /// Returns whether a section of this stream is blocked.
    pub fn is_blocked(&self, stream_id: u64) -> bool {
        self.blocked.iter().any(|(blocked, _)| *blocked == stream_id)
    }

    /// Cancels a stream that was reset, or is no longer read, before all of it was decoded.
    pub fn cancel_stream(&mut self, stream_id: u64) {
        self.blocked.retain(|(blocked, _)| *blocked != stream_id);
        // RFC 9204 section 2.2.2.2: without a table there is nothing to cancel.
        if self.max_table_capacity > 0 {
            integer::encode(0x40, 6, stream_id, &mut self.instructions);
        }
    }

    /// Returns whether [`Decoder::take_instructions`] has bytes.
    pub fn has_instructions(&self) -> bool {
        !self.instructions.is_empty() || self.table.insert_count() > self.known_received_count
    }

    /// Returns bytes for the local decoder stream, if any are due.
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        // Section acknowledgments have covered most insertions; one instruction covers all others.
        let untold = self.table.insert_count() - self.known_received_count;
        if untold > 0 {
            integer::encode(0, 6, untold, &mut self.instructions);
            self.known_received_count = self.table.insert_count();
        }
        if self.instructions.is_empty() { None } else { Some(self.instructions.split().freeze()) }
    }

    /// Releases memory that is kept for later input. The table is kept.
    pub fn release_memory(&mut self) {
        self.encoder_stream.release_memory();
        self.blocked.shrink_to_fit();
        if self.instructions.is_empty() {
            self.instructions = BytesMut::new();
        }
    }

    fn block(&mut self, stream_id: u64, required: u64) -> Result<(), DecompressionError> {
        if let Some(blocked) = self.blocked.iter_mut().find(|(blocked, _)| *blocked == stream_id) {
            blocked.1 = required;
            return Ok(());
        }
        //= RFC 9204 section 2.1.2
        //# If a decoder encounters more blocked streams than it promised to support, it MUST treat this as a connection error
        //# of type QPACK_DECOMPRESSION_FAILED.
        if self.blocked.len() as u64 >= self.max_blocked_streams {
            return Err(DecompressionError::TooManyBlockedStreams {
                limit: self.max_blocked_streams,
            });
        }
        self.blocked.push((stream_id, required));
        Ok(())
    }

    fn acknowledge(&mut self, stream_id: u64, required: u64) {
        //= RFC 9204 section 2.2.2.1
        //# After the decoder finishes decoding a field section encoded using representations containing dynamic table
        //# references, it MUST emit a Section Acknowledgment instruction (Section 4.4.1).
        integer::encode(0x80, 7, stream_id, &mut self.instructions);
        self.known_received_count = self.known_received_count.max(required);
    }
}

/// The entries that a section can refer to.
struct References<'a> {
    table: &'a DynamicTable,
    prefix: Prefix,
}

impl<'a> References<'a> {
    /// One field line representation (RFC 9204 sections 4.5.2 to 4.5.6).
    fn decode_line(
        &self,
        first: u8,
        input: &mut &[u8],
        limit: u64,
        into: &mut FieldSection,
    ) -> Result<(), DecompressionError> {
        if first & 0x80 != 0 {
            let index = integer::decode(6, input)?;
            if first & 0x40 != 0 {
                into.push_static(static_index(index)?);
                return Ok(());
            }
            return push_entry(self.before_base(index)?, limit, into);
        }
        if first & 0x40 != 0 {
            let index = integer::decode(4, input)?;
            let never_index = first & 0x20 != 0;
            if first & 0x10 == 0 {
                return push_value(self.before_base(index)?, never_index, input, into);
            }
            let index = static_index(index)?;
            let value_start = into.bytes_mut().len();
            decode_string(7, input, into.bytes_mut())?;
            into.push_named(index, value_start, never_index);
            return Ok(());
        }
        if first & 0x20 != 0 {
            let name_start = into.bytes_mut().len();
            decode_string(3, input, into.bytes_mut())?;
            let value_start = into.bytes_mut().len();
            decode_string(7, input, into.bytes_mut())?;
            into.push_spelled(name_start, value_start, first & 0x10 != 0);
            return Ok(());
        }
        if first & 0x10 != 0 {
            let index = integer::decode(4, input)?;
            return push_entry(self.after_base(index)?, limit, into);
        }
        let index = integer::decode(3, input)?;
        push_value(self.after_base(index)?, first & 0x08 != 0, input, into)
    }

    /// Relative indexing (RFC 9204 section 3.2.5).
    fn before_base(&self, index: u64) -> Result<&'a Entry, DecompressionError> {
        self.entry(self.prefix.base.checked_sub(index).and_then(|after| after.checked_sub(1)))
    }

    /// Post-base indexing (RFC 9204 section 3.2.6).
    fn after_base(&self, index: u64) -> Result<&'a Entry, DecompressionError> {
        self.entry(self.prefix.base.checked_add(index))
    }

    fn entry(&self, absolute: Option<u64>) -> Result<&'a Entry, DecompressionError> {
        //= RFC 9204 section 2.2.3
        //# If the decoder encounters a reference in a field line representation to a dynamic table entry that has already
        //# been evicted or that has an absolute index greater than or equal to the declared Required Insert Count
        //# (Section 4.5.1), it MUST treat this as a connection error of type QPACK_DECOMPRESSION_FAILED.
        //= RFC 9204 section 2.2.1
        //# If it encounters a Required Insert Count smaller than expected, it MUST treat this as a connection error of
        //# type QPACK_DECOMPRESSION_FAILED; see Section 2.2.3.
        absolute
            .filter(|absolute| *absolute < self.prefix.required_insert_count)
            .and_then(|absolute| self.table.get(absolute))
            .ok_or(DecompressionError::InvalidDynamicIndex)
    }
}

/// Copies an entry, after checking its size: a reference of a byte or two can stand for a large
/// entry.
fn push_entry(
    entry: &Entry,
    limit: u64,
    into: &mut FieldSection,
) -> Result<(), DecompressionError> {
    if into.size() + entry.size() > limit {
        return Err(DecompressionError::SectionTooLarge { limit });
    }
    into.push_entry(entry);
    Ok(())
}

/// Decodes a line with an entry's name and a literal value.
fn push_value(
    entry: &Entry,
    never_index: bool,
    input: &mut &[u8],
    into: &mut FieldSection,
) -> Result<(), DecompressionError> {
    let name_start = into.bytes_mut().len();
    into.push_entry_name(entry);
    let value_start = into.bytes_mut().len();
    decode_string(7, input, into.bytes_mut())?;
    into.push_with_entry_name(entry, name_start, value_start, never_index);
    Ok(())
}

fn static_index(index: u64) -> Result<u8, DecompressionError> {
    //= RFC 9204 section 3.1
    //# When the decoder encounters an invalid static table index in a field line representation, it MUST treat this as
    //# a connection error of type QPACK_DECOMPRESSION_FAILED.
    match u8::try_from(index) {
        Ok(index) if usize::from(index) < static_table::LEN => Ok(index),
        _ => Err(DecompressionError::InvalidStaticIndex),
    }
}

/// Decodes a string literal and appends it to `out`. Its H bit precedes the length's prefix (RFC
/// 9204 section 4.1.2).
fn decode_string(
    prefix_bits: u32,
    input: &mut &[u8],
    out: &mut Vec<u8>,
) -> Result<(), DecompressionError> {
    let is_huffman = input.first().is_some_and(|byte| byte & (1 << prefix_bits) != 0);
    let len = integer::decode(prefix_bits, input)?;
    let len = usize::try_from(len).map_err(|_| DecompressionError::Truncated)?;
    let (text, rest) = input.split_at_checked(len).ok_or(DecompressionError::Truncated)?;
    *input = rest;
    if is_huffman {
        huffman::decode(text, out)?;
    } else {
        out.extend_from_slice(text);
    }
    Ok(())
}
