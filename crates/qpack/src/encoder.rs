//! Field lines to field sections.

use bytes::{Bytes, BytesMut};

use crate::{
    error::DecoderStreamError,
    field::FieldLine,
    huffman,
    integer::{self, Progress, Step},
    static_table::{self, Match},
};

/// The size that RFC 9114 section 4.2.2 adds for each line.
const LINE_OVERHEAD: u64 = 32;

/// Encodes the field sections of one connection and reads the peer's decoder stream.
///
/// It refers to the static table only, whatever the peer allows, so it never has instructions to send.
#[derive(Debug, Default)]
pub struct Encoder {
    max_table_capacity: u64,
    max_blocked_streams: u64,
    incoming: Option<(Instruction, Progress)>,
}

/// What arrives on the decoder stream (RFC 9204 section 4.4).
#[derive(Clone, Copy, Debug)]
enum Instruction {
    SectionAcknowledgment,
    StreamCancellation,
    InsertCountIncrement,
}

impl Encoder {
    /// An encoder for a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what the peer's SETTINGS say: the largest dynamic table that it keeps for us and the streams that may be
    /// blocked on it. Both are zero before.
    pub fn set_peer_settings(&mut self, max_table_capacity: u64, max_blocked_streams: u64) {
        self.max_table_capacity = max_table_capacity;
        self.max_blocked_streams = max_blocked_streams;
    }

    /// Appends a field section for a stream to `section` and returns the size of what was encoded, as RFC 9114 section
    /// 4.2.2 counts it, so that the caller can compare it with the peer's limit.
    pub fn encode<'a>(&mut self, _stream_id: u64, lines: impl IntoIterator<Item = FieldLine<'a>>, section: &mut BytesMut) -> u64 {
        // Required Insert Count 0 and Base 0: nothing refers to the dynamic table (RFC 9204 section 4.5.1).
        section.extend_from_slice(&[0, 0]);
        let mut size = 0;
        for line in lines {
            size += line.name.len() as u64 + line.value.len() as u64 + LINE_OVERHEAD;
            encode_line(&line, section);
        }
        size
    }

    /// Bytes for our encoder stream, if any are due.
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        None
    }

    /// Takes bytes of the peer's decoder stream, in order, cut anywhere.
    pub fn handle_decoder_stream(&mut self, bytes: &[u8]) -> Result<(), DecoderStreamError> {
        for &byte in bytes {
            let (instruction, step) = match self.incoming.take() {
                None => start(byte),
                Some((instruction, progress)) => (instruction, progress.next(byte).map_err(|_| DecoderStreamError::IntegerOverflow)?),
            };
            match step {
                Step::Complete(value) => on_instruction(instruction, value)?,
                Step::NeedsMore(progress) => self.incoming = Some((instruction, progress)),
            }
        }
        Ok(())
    }
}

fn start(byte: u8) -> (Instruction, Step) {
    if byte & 0x80 != 0 {
        (Instruction::SectionAcknowledgment, Progress::start(7, byte))
    } else if byte & 0x40 != 0 {
        (Instruction::StreamCancellation, Progress::start(6, byte))
    } else {
        (Instruction::InsertCountIncrement, Progress::start(6, byte))
    }
}

fn on_instruction(instruction: Instruction, value: u64) -> Result<(), DecoderStreamError> {
    match instruction {
        //= RFC 9204 section 4.4.1
        //# If an encoder receives a Section Acknowledgment instruction referring to a stream on which every encoded
        //# field section with a non-zero Required Insert Count has already been acknowledged, this MUST be treated as a
        //# connection error of type QPACK_DECODER_STREAM_ERROR.
        // No section of ours has a Required Insert Count above zero.
        Instruction::SectionAcknowledgment => Err(DecoderStreamError::UnexpectedAcknowledgment { stream_id: value }),
        Instruction::StreamCancellation => Ok(()),
        //= RFC 9204 section 4.4.3
        //# An encoder that receives an Increment field equal to zero, or one that increases the Known Received Count
        //# beyond what the encoder has sent, MUST treat this as a connection error of type QPACK_DECODER_STREAM_ERROR.
        Instruction::InsertCountIncrement if value == 0 => Err(DecoderStreamError::IncrementIsZero),
        Instruction::InsertCountIncrement => Err(DecoderStreamError::IncrementExceedsInserts),
    }
}

/// One field line representation (RFC 9204 sections 4.5.2, 4.5.4 and 4.5.6).
fn encode_line(line: &FieldLine<'_>, out: &mut BytesMut) {
    let never_index = line.never_index;
    match static_table::find(line.name, line.value) {
        // A secret value never equals a public table's entry in a way that matters, but the N bit has to reach the
        // next hop, and an indexed line has no room for it.
        Some(Match::Full(index)) if !never_index => integer::encode(0b1100_0000, 6, index.into(), out),
        Some(Match::Full(index) | Match::Name(index)) => {
            let flags = if never_index { 0b0111_0000 } else { 0b0101_0000 };
            integer::encode(flags, 4, index.into(), out);
            encode_string(0, 7, line.value, out);
        }
        None => {
            let flags = if never_index { 0b0011_0000 } else { 0b0010_0000 };
            encode_string(flags, 3, line.name, out);
            encode_string(0, 7, line.value, out);
        }
    }
}

/// A string literal: the H bit stands above the length's prefix (RFC 9204 section 4.1.2). Plain unless Huffman is shorter.
fn encode_string(flags: u8, prefix_bits: u32, text: &[u8], out: &mut BytesMut) {
    let huffman_len = huffman::encoded_len(text);
    if huffman_len < text.len() {
        integer::encode(flags | 1 << prefix_bits, prefix_bits, huffman_len as u64, out);
        huffman::encode(text, out);
    } else {
        integer::encode(flags, prefix_bits, text.len() as u64, out);
        out.extend_from_slice(text);
    }
}
