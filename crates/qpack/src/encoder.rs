//! Encodes field sections.

mod indexed_table;
mod line_cache;
mod policy;
pub(crate) mod static_line;
mod unacknowledged;

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    dynamic_table::{Entry, entry_size, max_entries},
    error::DecoderStreamError,
    field::FieldLine,
    integer::{self, Progress, Step},
    prefix::Prefix,
    ready_line::OutgoingLine,
    static_table::{self, Match},
};

use indexed_table::{IndexedTable, Keys};
use line_cache::{CachedMatch, LineCache};
use policy::{Insertion, Seen};
use static_line::{encode_static_line, encode_string, encode_value};
use unacknowledged::{Section, Unacknowledged};

/// The size that RFC 9114 section 4.2.2 adds for each line.
const LINE_OVERHEAD: u64 = 32;
/// Default maximum capacity used of the peer's table. It suffices for the repeated field lines of a
/// browsing session; a larger table saves little more and costs memory on each connection.
const DEFAULT_MAX_TABLE_CAPACITY: u64 = 4096;
/// Maximum pending instruction bytes; beyond that nothing is inserted.
const MAX_PENDING_INSTRUCTION_BYTES: usize = 16 * 1024;

/// Encodes the field sections of a connection, writes the local encoder stream and reads the peer's
/// decoder stream.
///
/// 1. Call [`Encoder::set_peer_settings`] once, when the peer's SETTINGS have arrived. Before that,
///    and if they permit no dynamic table, sections refer to the static table only.
/// 2. Call [`Encoder::encode`] for each section. Its output must be sent.
/// 3. Call [`Encoder::take_instructions`] afterwards. Send the instructions before the section,
///    though they need not arrive first.
/// 4. Pass received bytes to [`Encoder::handle_decoder_stream`].
///
/// Repeated lines are inserted into the dynamic table, except those marked
/// [`FieldLine::never_index`]. The encoder stores the table, about three times its capacity
/// including the indexes for searching it, and some bytes for each of at most 512 unacknowledged
/// sections.
#[derive(Debug)]
pub struct Encoder {
    /// The local limit.
    max_table_capacity: u64,
    peer_max_table_capacity: u64,
    peer_max_blocked_streams: u64,
    /// Only if the peer permits a dynamic table.
    seen: Option<Seen>,
    line_cache: LineCache,
    table: IndexedTable,
    unacknowledged: Unacknowledged,
    instructions: BytesMut,
    /// Whether the transport has not accepted all instructions yet.
    is_backlogged: bool,
    incoming: Option<(Instruction, Progress)>,
}

/// A decoder stream instruction (RFC 9204 section 4.4).
#[derive(Clone, Copy, Debug)]
enum Instruction {
    SectionAcknowledgment,
    StreamCancellation,
    InsertCountIncrement,
}

/// The field section exceeds the limit; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the field section of {size} bytes is too large")]
pub struct SectionTooLarge {
    /// Size as defined in RFC 9114 section 4.2.2.
    pub size: u64,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::with_max_table_capacity(DEFAULT_MAX_TABLE_CAPACITY)
    }
}

impl Encoder {
    /// Returns an encoder that uses a dynamic table of at most 4096 bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an encoder that uses at most this much of the dynamic table that the peer offers;
    /// zero for none.
    ///
    /// # Panics
    /// Panics if the capacity exceeds 1 GiB.
    pub fn with_max_table_capacity(max_table_capacity: u64) -> Self {
        assert!(max_table_capacity <= 1 << 30, "a dynamic table of more than 1 GiB");
        Self {
            max_table_capacity,
            peer_max_table_capacity: 0,
            peer_max_blocked_streams: 0,
            seen: None,
            line_cache: LineCache::default(),
            table: IndexedTable::default(),
            unacknowledged: Unacknowledged::default(),
            instructions: BytesMut::new(),
            is_backlogged: false,
            incoming: None,
        }
    }

    /// Sets the peer's SETTINGS, once: the maximum capacity of its dynamic table, and the number of
    /// streams that may be blocked on it. Both are initially zero.
    pub fn set_peer_settings(&mut self, max_table_capacity: u64, max_blocked_streams: u64) {
        debug_assert!(self.table.capacity() == 0, "the peer's settings are taken once");
        self.peer_max_table_capacity = max_table_capacity;
        self.peer_max_blocked_streams = max_blocked_streams;
        // A table smaller than one entry is useless.
        self.seen = (max_entries(self.table_capacity()) > 0).then(Seen::new);
    }

    /// Encodes a field section for a stream and appends it to `section`. Returns the section's
    /// unencoded size, as defined in RFC 9114 section 4.2.2.
    pub fn encode<'a>(
        &mut self,
        stream_id: u64,
        lines: impl IntoIterator<Item: Into<OutgoingLine<'a>>>,
        section: &mut BytesMut,
    ) -> u64 {
        match self.encode_within(u64::MAX, stream_id, lines, section) {
            Ok(size) => size,
            Err(error) => unreachable!("invariant: {error}, and nothing exceeds 2^64 bytes"),
        }
    }

    /// Encodes like [`Encoder::encode`], unless the section is larger than `limit`. Then nothing is
    /// written, and the section does not count as sent.
    pub fn encode_within<'a>(
        &mut self,
        limit: u64,
        stream_id: u64,
        lines: impl IntoIterator<Item: Into<OutgoingLine<'a>>>,
        section: &mut BytesMut,
    ) -> Result<u64, SectionTooLarge> {
        self.encode_if(limit, stream_id, lines, section, || Ok(()))
    }

    /// Encodes like [`Encoder::encode`], unless `check` fails, which is called after the last line.
    /// Then nothing is written, and the section does not count as sent.
    pub fn encode_if<'a, E: From<SectionTooLarge>>(
        &mut self,
        limit: u64,
        stream_id: u64,
        lines: impl IntoIterator<Item: Into<OutgoingLine<'a>>>,
        section: &mut BytesMut,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<u64, E> {
        let start = section.len();
        // Required Insert Count 0 and Base 0 if the section does not refer to the dynamic table
        // (RFC 9204 section 4.5.1).
        section.extend_from_slice(&[0, 0]);
        let mut size = 0;
        let mut references = self.references(stream_id);
        let mut place = 0;
        //= RFC 9204 section 2.1
        //# An encoder MUST emit field representations in the order they appear in the input field section.
        // Internal iteration: with external iteration, a chain of iterators would determine for
        // each line which one is active.
        lines.into_iter().map(Into::into).for_each(|outgoing: OutgoingLine<'a>| {
            let line = outgoing.line;
            size += line.name.len() as u64 + line.value.len() as u64 + LINE_OVERHEAD;
            if size > limit {
                return;
            }
            match (outgoing.ready(), &mut references) {
                (Some(ready), _) => return section.extend_from_slice(ready.encoded()),
                (None, Some(references)) => {
                    self.encode_next_line(place, &line, references, section);
                }
                (None, None) => encode_static_line(&line, section),
            }
            place += 1;
        });
        let too_large = || Err(SectionTooLarge { size }.into());
        if let Err(error) = check().and_then(|()| if size > limit { too_large() } else { Ok(()) }) {
            section.truncate(start);
            return Err(error);
        }
        if let Some(references) =
            references.filter(|references| references.required_insert_count > 0)
        {
            self.on_encoded(stream_id, &references, start, section);
        }
        Ok(size)
    }

    /// Returns the size of the dynamic table in bytes, as defined in RFC 9204 section 3.2.1.
    pub const fn table_size(&self) -> u64 {
        self.table.size()
    }

    /// Returns whether [`Encoder::take_instructions`] has bytes.
    pub fn has_instructions(&self) -> bool {
        !self.instructions.is_empty()
    }

    /// Releases memory that is kept for later sections, including what is remembered of recent
    /// lines. The table is kept.
    pub fn release_memory(&mut self) {
        self.line_cache = LineCache::default();
        self.unacknowledged.release_memory();
        if let Some(seen) = &mut self.seen {
            seen.clear();
        }
        if self.instructions.is_empty() {
            self.instructions = BytesMut::new();
        }
    }

    /// Returns bytes for the local encoder stream, if any are due.
    pub fn take_instructions(&mut self) -> Option<Bytes> {
        if self.instructions.is_empty() { None } else { Some(self.instructions.split().freeze()) }
    }

    /// Sets whether the transport still buffers instructions that were taken. If so, nothing is
    /// inserted, and no section refers to an entry that may not have arrived: the section could
    /// otherwise use up the flow-control credit that the instructions wait for.
    //= RFC 9204 section 2.1.3
    //# To avoid these deadlocks, an encoder SHOULD NOT write an instruction unless sufficient stream and connection
    //# flow-control credit is available for the entire instruction.
    pub const fn set_backlogged(&mut self, is_backlogged: bool) {
        self.is_backlogged = is_backlogged;
    }

    /// Handles bytes of the peer's decoder stream, in order, split anywhere.
    pub fn handle_decoder_stream(&mut self, bytes: &[u8]) -> Result<(), DecoderStreamError> {
        for &byte in bytes {
            let (instruction, step) = match self.incoming.take() {
                None => start(byte),
                Some((instruction, progress)) => (
                    instruction,
                    progress.next(byte).map_err(|_| DecoderStreamError::IntegerOverflow)?,
                ),
            };
            match step {
                Step::Complete(value) => self.on_instruction(instruction, value)?,
                Step::NeedsMore(progress) => self.incoming = Some((instruction, progress)),
            }
        }
        Ok(())
    }

    fn on_instruction(
        &mut self,
        instruction: Instruction,
        value: u64,
    ) -> Result<(), DecoderStreamError> {
        match instruction {
            Instruction::SectionAcknowledgment => {
                //= RFC 9204 section 4.4.1
                //# If an encoder receives a Section Acknowledgment instruction referring to a stream on which every encoded
                //# field section with a non-zero Required Insert Count has already been acknowledged, this MUST be treated
                //# as a connection error of type QPACK_DECODER_STREAM_ERROR.
                let unexpected = DecoderStreamError::UnexpectedAcknowledgment { stream_id: value };
                let section = self.unacknowledged.acknowledge(value).ok_or(unexpected)?;
                self.table.remove_references(&section);
            }
            Instruction::StreamCancellation => {
                // RFC 9204 section 2.2.2.2: a cancellation does not acknowledge any insertion.
                while let Some(section) = self.unacknowledged.cancel(value) {
                    self.table.remove_references(&section);
                }
            }
            //= RFC 9204 section 4.4.3
            //# An encoder that receives an Increment field equal to zero, or one that increases the Known Received Count
            //# beyond what the encoder has sent, MUST treat this as a connection error of type QPACK_DECODER_STREAM_ERROR.
            Instruction::InsertCountIncrement if value == 0 => {
                return Err(DecoderStreamError::IncrementIsZero);
            }
            Instruction::InsertCountIncrement => {
                // Both are below 2^62.
                let received = self.unacknowledged.known_received_count() + value;
                if received > self.table.insert_count() {
                    return Err(DecoderStreamError::IncrementExceedsInserts);
                }
                self.unacknowledged.on_received(received);
            }
        }
        Ok(())
    }

    //= RFC 9204 section 3.2.3
    //# The encoder MUST NOT set a dynamic table capacity that exceeds this maximum, but it can choose to use a lower
    //# dynamic table capacity; see Section 4.3.1.
    //= RFC 9204 section 4.3.1
    //# The new capacity MUST be lower than or equal to the limit described in Section 3.2.3.
    fn table_capacity(&self) -> u64 {
        self.max_table_capacity.min(self.peer_max_table_capacity)
    }

    /// Returns what a section of this stream may refer to; `None` for the static table only.
    //= RFC 9204 section 3.2.3
    //# When the maximum table capacity is zero, the encoder MUST NOT insert entries into the dynamic table and MUST NOT send
    //# any encoder instructions on the encoder stream.
    fn references(&self, stream_id: u64) -> Option<References> {
        if self.seen.is_none() || self.unacknowledged.is_full() {
            return None;
        }
        Some(References {
            stream_id,
            base: self.table.insert_count(),
            required_insert_count: 0,
            oldest: u64::MAX,
            risks_blocking: None,
        })
    }

    /// `place`: index of the line in its section.
    fn encode_next_line(
        &mut self,
        place: usize,
        line: &FieldLine<'_>,
        references: &mut References,
        out: &mut BytesMut,
    ) {
        if let Some(known) = self.line_cache.get(place)
            && self.encode_as(known, line, references, out)
        {
            return;
        }
        let known = self.encode_line(line, references, out);
        self.line_cache.set(place, known);
    }

    /// Encodes the line if it equals the remembered one. The output is the same as that of
    /// [`Encoder::encode_line`].
    fn encode_as(
        &self,
        known: CachedMatch,
        line: &FieldLine<'_>,
        references: &mut References,
        out: &mut BytesMut,
    ) -> bool {
        let FieldLine { name, value, never_index } = *line;
        match known {
            CachedMatch::Static(index)
                if static_table::value(index) == value
                    && static_table::name(index) == name
                    && !never_index =>
            {
                integer::encode(0b1100_0000, 6, index.into(), out);
            }
            // Names whose values are never inserted have only one entry, so a search would find
            // this one.
            CachedMatch::Name(index)
                if static_table::name(index) == name
                    && static_table::value(index) != value
                    && !never_index =>
            {
                encode_value(index, line, out);
            }
            CachedMatch::Dynamic(absolute) if !never_index && !self.table.is_draining(absolute) => {
                let is_same = |entry: &Entry| entry.value() == value && entry.name() == name;
                if !self.table.entry(absolute).is_some_and(is_same)
                    || self.refer(absolute, references).is_none()
                {
                    return false;
                }
                references.encode_indexed(absolute, out);
            }
            _ => return false,
        }
        true
    }

    /// Encodes a line. Returns how to encode the same line the next time, if known.
    fn encode_line(
        &mut self,
        line: &FieldLine<'_>,
        references: &mut References,
        out: &mut BytesMut,
    ) -> Option<CachedMatch> {
        let FieldLine { name, value, never_index } = *line;
        let static_name = match static_table::find(name, value) {
            Some(Match::Full(index)) if !never_index => {
                integer::encode(0b1100_0000, 6, index.into(), out);
                return Some(CachedMatch::Static(index));
            }
            Some(Match::Full(index) | Match::Name(index)) => Some(index),
            None => None,
        };
        let insertion =
            if never_index { Insertion::Never } else { policy::insertion(name, static_name) };
        if insertion == Insertion::Never
            && let Some(index) = static_name
        {
            encode_value(index, line, out);
            return (!never_index).then_some(CachedMatch::Name(index));
        }
        // The lowest index with this name: a full match is a different index.
        let keys = Keys::new(name, static_name.map(static_table::first_of_name), value);
        if insertion != Insertion::Never
            && let Some(absolute) =
                self.find_or_insert(line, static_name, insertion, keys, references)
        {
            references.encode_indexed(absolute, out);
            return Some(CachedMatch::Dynamic(absolute));
        }
        if let Some(index) = static_name {
            encode_value(index, line, out);
            return None;
        }
        match self.find_or_insert_name(line, keys, references) {
            Some(absolute) => references.encode_name(absolute, never_index, out),
            None => {
                encode_string(if never_index { 0b0011_0000 } else { 0b0010_0000 }, 3, name, out);
            }
        }
        encode_string(0, 7, value, out);
        None
    }

    /// Returns a dynamic entry for the line that the section can refer to, inserting one if
    /// worthwhile.
    fn find_or_insert(
        &mut self,
        line: &FieldLine<'_>,
        static_name: Option<u8>,
        insertion: Insertion,
        keys: Keys,
        references: &mut References,
    ) -> Option<u64> {
        let absolute = match self.table.find_line(keys, line.name, line.value) {
            Some(absolute) if self.table.is_draining(absolute) => {
                let copy = self.duplicate(absolute, keys, references);
                return copy
                    .and_then(|copy| self.refer(copy, references))
                    .or_else(|| self.refer(absolute, references));
            }
            Some(absolute) => absolute,
            None => {
                let is_repeated = self.seen.as_mut().is_some_and(|seen| seen.note(keys.line));
                if !is_repeated && insertion == Insertion::OnRepetition {
                    return None;
                }
                self.insert(keys, line.name, static_name, line.value, references)?
            }
        };
        self.refer(absolute, references)
    }

    /// Returns an entry with the line's name, for a line without an entry of its own. A repeated
    /// name gets an entry with an empty value.
    fn find_or_insert_name(
        &mut self,
        line: &FieldLine<'_>,
        keys: Keys,
        references: &mut References,
    ) -> Option<u64> {
        let absolute = match self.table.find_name(keys, line.name) {
            Some(absolute) => absolute,
            None if line.never_index => return None,
            None => {
                if !self.seen.as_mut().is_some_and(|seen| seen.note(keys.name)) {
                    return None;
                }
                self.insert(Keys::new(line.name, None, &[]), line.name, None, &[], references)?
            }
        };
        self.refer(absolute, references)
    }

    /// Records a reference to the entry, if it exists and the section may refer to it.
    fn refer(&self, absolute: u64, references: &mut References) -> Option<u64> {
        self.table.entry(absolute)?;
        if absolute >= self.unacknowledged.known_received_count() {
            let limit = self.peer_max_blocked_streams;
            let may_risk = || {
                !self.is_backlogged
                    && self.unacknowledged.may_risk_blocking(references.stream_id, limit)
            };
            if !*references.risks_blocking.get_or_insert_with(may_risk) {
                return None;
            }
        }
        references.oldest = references.oldest.min(absolute);
        references.required_insert_count = references.required_insert_count.max(absolute + 1);
        Some(absolute)
    }

    fn insert(
        &mut self,
        keys: Keys,
        name: &[u8],
        static_name: Option<u8>,
        value: &[u8],
        references: &References,
    ) -> Option<u64> {
        self.make_room(entry_size(name, value), references)?;
        if let Some(index) = static_name {
            integer::encode(0b1100_0000, 6, index.into(), &mut self.instructions);
        } else if let Some(absolute) = self.table.find_name(keys, name) {
            integer::encode(
                0b1000_0000,
                6,
                self.table.insert_count() - absolute - 1,
                &mut self.instructions,
            );
        } else {
            encode_string(0b0100_0000, 5, name, &mut self.instructions);
        }
        encode_string(0, 7, value, &mut self.instructions);
        Some(self.table.insert(keys, Entry::new(&[name, value].concat(), name.len())))
    }

    fn duplicate(&mut self, absolute: u64, keys: Keys, references: &References) -> Option<u64> {
        let entry = self.table.entry(absolute)?.clone();
        self.make_room(entry.size(), references)?;
        integer::encode(0, 5, self.table.insert_count() - absolute - 1, &mut self.instructions);
        Some(self.table.insert(keys, entry))
    }

    /// Returns whether an entry of this size may be inserted now.
    fn make_room(&mut self, size: u64, references: &References) -> Option<()> {
        if self.is_backlogged || self.instructions.len() > MAX_PENDING_INSTRUCTION_BYTES {
            return None;
        }
        if self.table.capacity() == 0 {
            let capacity = self.table_capacity();
            if size > capacity {
                return None;
            }
            integer::encode(0b0010_0000, 5, capacity, &mut self.instructions);
            self.table.set_capacity(capacity);
        }
        self.table.has_room(size, &self.unacknowledged, references.oldest).then_some(())
    }

    /// Writes the prefix, and remembers the section until it is acknowledged.
    fn on_encoded(
        &mut self,
        stream_id: u64,
        references: &References,
        start: usize,
        section: &mut BytesMut,
    ) {
        /// Bytes reserved for the prefix.
        const RESERVED: usize = 2;
        /// Two integers of 62 bits.
        const LONGEST: usize = 20;
        let References { base, required_insert_count, oldest, .. } = *references;
        let mut bytes = [0; LONGEST];
        let mut rest = &mut bytes[..];
        Prefix { required_insert_count, base }
            .encode(max_entries(self.peer_max_table_capacity), &mut rest);
        let len = LONGEST - rest.len();
        if len > RESERVED {
            let end = section.len();
            section.put_bytes(0, len - RESERVED);
            section.copy_within(start + RESERVED..end, start + len);
        }
        section[start..start + len].copy_from_slice(&bytes[..len]);
        let unacknowledged = Section { stream_id, required_insert_count, oldest };
        self.table.add_references(&unacknowledged);
        self.unacknowledged.push(unacknowledged);
    }
}

/// Entries that the current section refers to.
#[derive(Debug)]
struct References {
    stream_id: u64,
    /// Insertions before the section: newer entries use post-base indices.
    base: u64,
    required_insert_count: u64,
    oldest: u64,
    /// Whether it may refer to entries that may not have arrived; determined when first needed.
    risks_blocking: Option<bool>,
}

impl References {
    /// RFC 9204 sections 4.5.2 and 4.5.3.
    fn encode_indexed(&self, absolute: u64, out: &mut BytesMut) {
        match absolute.checked_sub(self.base) {
            Some(index) => integer::encode(0b0001_0000, 4, index, out),
            None => integer::encode(0b1000_0000, 6, self.base - absolute - 1, out),
        }
    }

    /// Encodes the name of a literal (RFC 9204 sections 4.5.4 and 4.5.5).
    fn encode_name(&self, absolute: u64, never_index: bool, out: &mut BytesMut) {
        match absolute.checked_sub(self.base) {
            Some(index) => {
                integer::encode(if never_index { 0b0000_1000 } else { 0 }, 3, index, out);
            }
            None => integer::encode(
                if never_index { 0b0110_0000 } else { 0b0100_0000 },
                4,
                self.base - absolute - 1,
                out,
            ),
        }
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
