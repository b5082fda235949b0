//! Parses the peer's encoder stream (RFC 9204 section 4.3), split anywhere.

use crate::{
    dynamic_table::{DynamicTable, ENTRY_OVERHEAD, Entry},
    error::EncoderStreamError,
    huffman,
    integer::{Progress, Step},
    static_table,
};

/// The longest code of the Huffman table: a string of n bytes stands for at least n * 8 / 30
/// characters.
const MAX_CODE_BITS: usize = 30;
/// Maximum memory kept between instructions.
const KEPT_BYTES: usize = 512;

/// Parses instructions and applies them to the table.
///
/// A string's length is checked against the table's capacity before any of it is stored, so a
/// partial instruction uses at most about five times the capacity: a value in the longest Huffman
/// code, and the name before it.
#[derive(Debug, Default)]
pub(super) struct EncoderStream {
    state: State,
    /// Name of the inserted entry, followed by its value.
    text: Vec<u8>,
    name_len: usize,
    /// Received part of an incomplete string, as on the wire.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Expects the first byte of an instruction.
    #[default]
    Start,
    Integer(Integer, Progress),
    /// Expects the first byte of the value's length.
    ValueLength,
    Text(Text),
}

/// Meaning of an integer.
#[derive(Clone, Copy, Debug)]
enum Integer {
    Capacity,
    Duplicate,
    StaticName,
    DynamicName,
    Length { part: Part, is_huffman: bool },
}

/// A partially received string.
#[derive(Clone, Copy, Debug)]
struct Text {
    part: Part,
    is_huffman: bool,
    missing: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Name,
    Value,
}

impl EncoderStream {
    /// Releases memory that is kept for the next instruction.
    pub(super) fn release_memory(&mut self) {
        self.text.shrink_to_fit();
        self.partial.shrink_to_fit();
    }

    /// Reads bytes in order. `limit` is the maximum capacity that the peer may set.
    pub(super) fn read(
        &mut self,
        mut bytes: &[u8],
        limit: u64,
        table: &mut DynamicTable,
    ) -> Result<(), EncoderStreamError> {
        loop {
            if let State::Text(text) = self.state {
                if !self.read_text(text, &mut bytes, table)? {
                    return Ok(());
                }
                continue;
            }
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            let (integer, step) = match self.state {
                State::Start => start(byte),
                State::ValueLength => (
                    Integer::Length { part: Part::Value, is_huffman: byte & 0x80 != 0 },
                    Progress::start(7, byte),
                ),
                State::Integer(integer, progress) => {
                    (integer, progress.next(byte).map_err(|_| EncoderStreamError::IntegerOverflow)?)
                }
                State::Text(_) => unreachable!("invariant: strings are read above"),
            };
            self.state = match step {
                Step::NeedsMore(progress) => State::Integer(integer, progress),
                Step::Complete(value) => self.on_integer(integer, value, limit, table)?,
            };
        }
    }

    fn on_integer(
        &mut self,
        integer: Integer,
        value: u64,
        limit: u64,
        table: &mut DynamicTable,
    ) -> Result<State, EncoderStreamError> {
        match integer {
            Integer::Capacity => {
                //= RFC 9204 section 4.3.1
                //# The decoder MUST treat a new dynamic table capacity value that exceeds this limit as a connection error
                //# of type QPACK_ENCODER_STREAM_ERROR.
                if value > limit {
                    return Err(EncoderStreamError::CapacityExceedsLimit {
                        capacity: value,
                        limit,
                    });
                }
                table.set_capacity(value);
                Ok(State::Start)
            }
            Integer::Duplicate => {
                let entry = named_entry(table, value)?.clone();
                //= RFC 9204 section 3.2
                //# Therefore, duplicate entries MUST NOT be treated as an error by the decoder.
                insert(table, entry)?;
                Ok(State::Start)
            }
            Integer::StaticName => {
                //= RFC 9204 section 3.1
                //# If this index is received on the encoder stream, this MUST be treated as a connection error of type
                //# QPACK_ENCODER_STREAM_ERROR.
                let index = u8::try_from(value)
                    .ok()
                    .filter(|index| usize::from(*index) < static_table::LEN);
                let name = static_table::name(index.ok_or(EncoderStreamError::InvalidStaticIndex)?);
                self.start_value(name, table)
            }
            Integer::DynamicName => {
                let entry = named_entry(table, value)?;
                self.start_value(entry.name(), table)
            }
            Integer::Length { part, is_huffman } => {
                let least = if is_huffman {
                    value.saturating_mul(8).saturating_sub(7) / MAX_CODE_BITS as u64
                } else {
                    value
                };
                check_room(table, (self.text.len() as u64).saturating_add(least))?;
                let missing =
                    usize::try_from(value).map_err(|_| EncoderStreamError::EntryTooLarge)?;
                Ok(State::Text(Text { part, is_huffman, missing }))
            }
        }
    }

    /// Continues with the value, after the name.
    fn start_value(
        &mut self,
        name: &[u8],
        table: &DynamicTable,
    ) -> Result<State, EncoderStreamError> {
        check_room(table, name.len() as u64)?;
        self.text.extend_from_slice(name);
        self.name_len = name.len();
        Ok(State::ValueLength)
    }

    /// Reads available bytes of a string. Returns false if more are needed.
    fn read_text(
        &mut self,
        text: Text,
        bytes: &mut &[u8],
        table: &mut DynamicTable,
    ) -> Result<bool, EncoderStreamError> {
        let (taken, rest) = bytes.split_at(text.missing.min(bytes.len()));
        *bytes = rest;
        let missing = text.missing - taken.len();
        if missing > 0 {
            self.partial.extend_from_slice(taken);
            self.state = State::Text(Text { missing, ..text });
            return Ok(false);
        }
        let whole = if self.partial.is_empty() {
            taken
        } else {
            self.partial.extend_from_slice(taken);
            &self.partial
        };
        if text.is_huffman {
            huffman::decode(whole, &mut self.text)?;
        } else {
            self.text.extend_from_slice(whole);
        }
        self.partial.clear();
        self.state = match text.part {
            Part::Name => {
                check_room(table, self.text.len() as u64)?;
                self.name_len = self.text.len();
                State::ValueLength
            }
            Part::Value => {
                check_room(table, self.text.len() as u64)?;
                insert(table, Entry::new(&self.text, self.name_len))?;
                self.text.clear();
                self.text.shrink_to(KEPT_BYTES);
                self.partial.shrink_to(KEPT_BYTES);
                State::Start
            }
        };
        Ok(true)
    }
}

/// Interprets the first byte of an instruction.
fn start(byte: u8) -> (Integer, Step) {
    if byte & 0x80 != 0 {
        let is_static = byte & 0x40 != 0;
        (
            if is_static { Integer::StaticName } else { Integer::DynamicName },
            Progress::start(6, byte),
        )
    } else if byte & 0x40 != 0 {
        (
            Integer::Length { part: Part::Name, is_huffman: byte & 0x20 != 0 },
            Progress::start(5, byte),
        )
    } else if byte & 0x20 != 0 {
        (Integer::Capacity, Progress::start(5, byte))
    } else {
        (Integer::Duplicate, Progress::start(5, byte))
    }
}

fn named_entry(table: &DynamicTable, relative: u64) -> Result<&Entry, EncoderStreamError> {
    //= RFC 9204 section 2.2.3
    //# If the decoder encounters a reference in an encoder instruction to a dynamic table entry that has already been
    //# evicted, it MUST treat this as a connection error of type QPACK_ENCODER_STREAM_ERROR.
    table.newest(relative).ok_or(EncoderStreamError::InvalidIndex)
}

/// Checks that an entry with this much text can fit at all.
fn check_room(table: &DynamicTable, text_len: u64) -> Result<(), EncoderStreamError> {
    let fits = text_len.checked_add(ENTRY_OVERHEAD).is_some_and(|size| size <= table.capacity());
    if fits { Ok(()) } else { Err(EncoderStreamError::EntryTooLarge) }
}

fn insert(table: &mut DynamicTable, entry: Entry) -> Result<(), EncoderStreamError> {
    //= RFC 9204 section 3.2.2
    //# It is an error if the encoder attempts to add an entry that is larger than the dynamic table capacity; the decoder
    //# MUST treat this as a connection error of type QPACK_ENCODER_STREAM_ERROR.
    if table.insert(entry) { Ok(()) } else { Err(EncoderStreamError::EntryTooLarge) }
}
