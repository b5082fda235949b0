//! Field sections to field lines.

use bytes::Bytes;

use crate::{
    error::{DecompressionError, EncoderStreamError},
    field::FieldSection,
    huffman,
    integer::{self, Progress, Step},
    static_table,
};

/// How decoding a section ended, when nothing is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All lines are there.
    Complete,
    /// The section needs dynamic table entries that have not arrived: decode it again after
    /// [`Decoder::handle_encoder_stream`]. Never returned while [`Decoder::max_blocked_streams`] is zero.
    Blocked,
}

/// Decodes the field sections of one connection and reads the peer's encoder stream.
///
/// It keeps no dynamic table: [`Decoder::max_table_capacity`] is zero, and the peer learns so from our SETTINGS.
#[derive(Debug, Default)]
pub struct Decoder {
    incoming: Option<Progress>,
}

impl Decoder {
    /// A decoder for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// What our SETTINGS have to say as QPACK_MAX_TABLE_CAPACITY.
    pub const fn max_table_capacity(&self) -> u64 {
        0
    }

    /// What our SETTINGS have to say as QPACK_BLOCKED_STREAMS.
    pub const fn max_blocked_streams(&self) -> u64 {
        0
    }

    /// Appends the lines of an encoded section to `into`, which may then be at most `limit` bytes in size
    /// ([`FieldSection::size`]). After an error `into` holds the lines before it.
    pub fn decode(&mut self, _stream_id: u64, section: &[u8], limit: u64, into: &mut FieldSection) -> Result<Decoded, DecompressionError> {
        let mut input = section;
        decode_prefix(&mut input)?;
        while let Some(&first) = input.first() {
            decode_line(first, &mut input, into)?;
            if into.size() > limit {
                return Err(DecompressionError::SectionTooLarge { limit });
            }
        }
        Ok(Decoded::Complete)
    }

    /// Bytes for our decoder stream, if any are due.
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        None
    }

    /// Takes bytes of the peer's encoder stream, in order, cut anywhere.
    pub fn handle_encoder_stream(&mut self, bytes: &[u8]) -> Result<(), EncoderStreamError> {
        for &byte in bytes {
            let step = match self.incoming.take() {
                None => start_instruction(byte)?,
                Some(progress) => progress.next(byte).map_err(|_| EncoderStreamError::IntegerOverflow)?,
            };
            match step {
                Step::Complete(capacity) => self.on_set_capacity(capacity)?,
                Step::NeedsMore(progress) => self.incoming = Some(progress),
            }
        }
        Ok(())
    }

    fn on_set_capacity(&mut self, capacity: u64) -> Result<(), EncoderStreamError> {
        let limit = self.max_table_capacity();
        //= RFC 9204 section 4.3.1
        //# The decoder MUST treat a new dynamic table capacity value that exceeds this limit as a connection error of
        //# type QPACK_ENCODER_STREAM_ERROR.
        if capacity > limit {
            return Err(EncoderStreamError::CapacityExceedsLimit { capacity, limit });
        }
        Ok(())
    }
}

/// The first byte of an encoder instruction (RFC 9204 section 4.3). Without a dynamic table only "set capacity" can be right.
fn start_instruction(byte: u8) -> Result<Step, EncoderStreamError> {
    match byte >> 5 {
        0b000 => Err(EncoderStreamError::InvalidIndex),
        0b001 => Ok(Progress::start(5, byte)),
        //= RFC 9204 section 3.2.2
        //# It is an error if the encoder attempts to add an entry that is larger than the dynamic table capacity; the
        //# decoder MUST treat this as a connection error of type QPACK_ENCODER_STREAM_ERROR.
        _ => Err(EncoderStreamError::EntryTooLarge),
    }
}

/// Required Insert Count and Base (RFC 9204 section 4.5.1).
fn decode_prefix(input: &mut &[u8]) -> Result<(), DecompressionError> {
    //= RFC 9204 section 4.5.1.1
    //# If the decoder encounters a value of EncodedInsertCount that could not have been produced by a conformant encoder,
    //# it MUST treat this as a connection error of type QPACK_DECOMPRESSION_FAILED.
    if integer::decode(8, input)? != 0 {
        return Err(DecompressionError::InvalidRequiredInsertCount);
    }
    let sign = input.first().is_some_and(|byte| byte & 0x80 != 0);
    integer::decode(7, input)?;
    //= RFC 9204 section 4.5.1.2
    //# The value of Base MUST NOT be negative.
    if sign {
        return Err(DecompressionError::NegativeBase);
    }
    Ok(())
}

/// One field line representation (RFC 9204 sections 4.5.2 to 4.5.6).
fn decode_line(first: u8, input: &mut &[u8], into: &mut FieldSection) -> Result<(), DecompressionError> {
    if first & 0x80 != 0 {
        let index = integer::decode(6, input)?;
        into.push_static(static_index(first & 0x40 != 0, index)?);
        return Ok(());
    }
    if first & 0x40 != 0 {
        let index = integer::decode(4, input)?;
        let index = static_index(first & 0x10 != 0, index)?;
        let value_start = into.bytes_mut().len();
        decode_string(7, input, into.bytes_mut())?;
        into.push_named(index, value_start, first & 0x20 != 0);
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
    // Post-base references name entries of the dynamic table, which has none.
    Err(DecompressionError::InvalidDynamicIndex)
}

fn static_index(is_static: bool, index: u64) -> Result<u8, DecompressionError> {
    if !is_static {
        return Err(DecompressionError::InvalidDynamicIndex);
    }
    //= RFC 9204 section 3.1
    //# When the decoder encounters an invalid static table index in a field line representation, it MUST treat this as
    //# a connection error of type QPACK_DECOMPRESSION_FAILED.
    match u8::try_from(index) {
        Ok(index) if usize::from(index) < static_table::LEN => Ok(index),
        _ => Err(DecompressionError::InvalidStaticIndex),
    }
}

/// Appends a string literal to `out`; its H bit stands above the length's prefix (RFC 9204 section 4.1.2).
fn decode_string(prefix_bits: u32, input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), DecompressionError> {
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
