//! Field lines, and field sections stored in one allocation.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::{dynamic_table::Entry, static_table};

/// RFC 9114 section 4.2.2: overhead added to the size of each field line.
const LINE_OVERHEAD: u64 = 32;
/// Up to this size a copy costs less than a separate allocation.
const POOLED_BYTES: usize = 1024;

/// A field line to encode, with borrowed name and value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FieldLine<'a> {
    /// The name, in lower case.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether the line is secret: no party on the path may insert it into a compression table (RFC
    /// 9204 section 7.1.3).
    pub never_index: bool,
}

impl<'a> FieldLine<'a> {
    /// Returns a line that may be inserted into compression tables.
    pub const fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        Self { name, value, never_index: false }
    }

    /// Returns a line with a secret value, such as a cookie or a password.
    pub const fn never_indexed(name: &'a [u8], value: &'a [u8]) -> Self {
        Self { name, value, never_index: true }
    }
}

impl fmt::Debug for FieldLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, self.name, self.value, self.never_index)
    }
}

/// A line of a [`FieldSection`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SectionLine<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether the line is secret, see [`FieldLine::never_index`].
    pub never_index: bool,
    static_name_index: Option<u8>,
    /// Static table entry that holds the value.
    static_value: Option<u8>,
}

impl SectionLine<'_> {
    /// Returns the value without a copy. `memory`: the result of [`FieldSection::share`].
    pub fn value_in(&self, memory: &Bytes) -> Bytes {
        match self.static_value {
            Some(index) => Bytes::from_static(static_table::value(index)),
            None => memory.slice_ref(self.value),
        }
    }

    /// Returns whether the value is stored in the static table.
    pub const fn has_static_value(&self) -> bool {
        self.static_value.is_some()
    }

    /// Returns a static table index with the same name, so that a caller can map it to a ready-made
    /// constant. It is always the lowest such index, whichever the peer used. `None` only means
    /// that the peer sent a literal name, which may still be in the static table.
    pub const fn static_name_index(&self) -> Option<u8> {
        self.static_name_index
    }
}

//= RFC 9204 section 4.5.4
//# In particular, when a peer sends a field line that it received represented as a literal field line with the 'N' bit set,
//# it MUST use a literal representation to forward this field line.
//= RFC 9204 section 7.1.3
//# An intermediary MUST NOT re-encode a value that uses a literal representation with the 'N' bit set with another
//# representation that would index it.
//= RFC 9204 section 7.1.3
//# If QPACK is used for re-encoding, a literal representation with the 'N' bit set MUST be used.
impl<'a> From<SectionLine<'a>> for FieldLine<'a> {
    fn from(line: SectionLine<'a>) -> Self {
        Self { name: line.name, value: line.value, never_index: line.never_index }
    }
}

impl fmt::Debug for SectionLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, self.name, self.value, self.never_index)
    }
}

/// Secret values are not logged.
fn write_line(
    f: &mut fmt::Formatter<'_>,
    name: &[u8],
    value: &[u8],
    never_index: bool,
) -> fmt::Result {
    if never_index {
        write!(f, "{}: <{} bytes>", name.escape_ascii(), value.len())
    } else {
        write!(f, "{}: {}", name.escape_ascii(), value.escape_ascii())
    }
}

/// Location of a line's name and value.
#[derive(Clone, Copy)]
struct Line {
    name: Text,
    value: Text,
    never_index: bool,
}

/// Location of bytes, in the arena or in the static table.
#[derive(Clone, Copy)]
enum Text {
    /// `bytes[start..start + len]`.
    Arena { start: u32, len: u32 },
    /// The name or the value of this entry.
    Static(u8),
}

impl Text {
    fn len(self, of_entry: impl FnOnce(u8) -> &'static [u8]) -> u64 {
        match self {
            Self::Arena { len, .. } => len.into(),
            Self::Static(index) => of_entry(index).len() as u64,
        }
    }
}

/// Owned field lines in order: one arena for all bytes that are not in the static table, and one
/// list of lines.
///
/// It needs two allocations however many lines it has, and none when reused after
/// [`FieldSection::clear`].
#[derive(Clone, Default)]
pub struct FieldSection {
    bytes: Vec<u8>,
    /// The content of `bytes` before [`FieldSection::share`].
    shared: Bytes,
    lines: Vec<Line>,
    size: u64,
}

impl FieldSection {
    /// Returns an empty section, without allocating.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), shared: Bytes::new(), lines: Vec::new(), size: 0 }
    }

    /// Returns the number of field lines.
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether there are no lines.
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the size as defined in RFC 9114 section 4.2.2: name, value and 32 bytes for each
    /// line.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Appends a line. The section has at most 4 GiB.
    pub fn push(&mut self, name: &[u8], value: &[u8], never_index: bool) {
        let name = match static_table::name_index(name) {
            Some(index) => Text::Static(index),
            None => self.copy(name),
        };
        let value = self.copy(value);
        self.push_line(name, value, never_index);
    }

    /// Returns the memory of all lines that are not in the static table, to be used beyond the
    /// section's lifetime: [`SectionLine::value_in`] slices values from it without a copy. Nothing
    /// can be appended until [`FieldSection::clear`].
    ///
    /// A small section is copied to the end of `pool`, which many sections share, so that few need
    /// their own memory. Keeping one section then keeps the pool's whole allocation.
    pub fn share(&mut self, pool: &mut BytesMut) -> Bytes {
        if self.shared.is_empty() {
            self.shared = if self.bytes.len() <= POOLED_BYTES {
                pool.extend_from_slice(&self.bytes);
                pool.split().freeze()
            } else {
                std::mem::take(&mut self.bytes).into()
            };
        }
        self.shared.clone()
    }

    /// Removes all lines and keeps the memory, unless it is shared.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.shared = Bytes::new();
        self.lines.clear();
        self.size = 0;
    }

    /// Returns the line at this index.
    pub fn get(&self, place: usize) -> Option<SectionLine<'_>> {
        self.lines.get(place).map(|line| self.view(line))
    }

    /// Iterates over the lines in order.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// Iterates over the lines in order, without the first `place`.
    pub fn iter_from(&self, place: usize) -> Iter<'_> {
        Iter { section: self, lines: self.lines.get(place..).unwrap_or_default().iter() }
    }

    /// Returns the number of allocated bytes.
    pub const fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.shared.len() + self.lines.capacity() * size_of::<Line>()
    }

    /// Reserves space for this many bytes and lines, but at most for a typical section.
    pub(crate) fn reserve(&mut self, bytes: usize, lines: usize) {
        self.bytes.reserve(bytes.clamp(64, 1024));
        self.lines.reserve(lines.clamp(8, 32));
    }

    /// Appends an entry of the static table, name and value.
    pub(crate) fn push_static(&mut self, index: u8) {
        self.push_line(Text::Static(index), Text::Static(index), false);
    }

    /// Appends a line of the dynamic table.
    pub(crate) fn push_entry(&mut self, entry: &Entry) {
        let start = self.bytes.len();
        self.push_entry_name(entry);
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(entry.value());
        self.push_with_entry_name(entry, start, value_start, false);
    }

    /// Writes the name of an entry for a following [`FieldSection::push_with_entry_name`].
    pub(crate) fn push_entry_name(&mut self, entry: &Entry) {
        if entry.static_name().is_none() {
            self.bytes.extend_from_slice(entry.name());
        }
    }

    /// Appends a line with the name of an entry; its value was written from `value_start` on.
    pub(crate) fn push_with_entry_name(
        &mut self,
        entry: &Entry,
        name_start: usize,
        value_start: usize,
        never_index: bool,
    ) {
        match entry.static_name() {
            Some(index) => self.push_named(index, value_start, never_index),
            None => self.push_spelled(name_start, value_start, never_index),
        }
    }

    /// Returns the buffer to write to before [`FieldSection::push_named`] or
    /// [`FieldSection::push_spelled`] turns the appended bytes into a line. Bytes that no line
    /// refers to are harmless.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends a line with a static table name; its value was written from `value_start` on.
    pub(crate) fn push_named(&mut self, index: u8, value_start: usize, never_index: bool) {
        let value = self.text(value_start, self.bytes.len());
        self.push_line(Text::Static(index), value, never_index);
    }

    /// Appends a line whose name and value were written from `name_start` and `value_start` on.
    pub(crate) fn push_spelled(
        &mut self,
        name_start: usize,
        value_start: usize,
        never_index: bool,
    ) {
        let name = self.text(name_start, value_start);
        let value = self.text(value_start, self.bytes.len());
        self.push_line(name, value, never_index);
    }

    fn copy(&mut self, text: &[u8]) -> Text {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.text(start, self.bytes.len())
    }

    fn text(&self, start: usize, end: usize) -> Text {
        debug_assert!(start <= end && end <= self.bytes.len());
        let limit = "invariant: a field section holds at most 4 GiB";
        Text::Arena {
            start: u32::try_from(start).expect(limit),
            len: u32::try_from(end - start).expect(limit),
        }
    }

    fn push_line(&mut self, name: Text, value: Text, never_index: bool) {
        debug_assert!(self.shared.is_empty(), "a section that is shared does not grow");
        self.size += name.len(static_table::name) + value.len(static_table::value) + LINE_OVERHEAD;
        self.lines.push(Line { name, value, never_index });
    }

    #[inline]
    fn view(&self, line: &Line) -> SectionLine<'_> {
        let bytes: &[u8] = if self.shared.is_empty() { &self.bytes } else { &self.shared };
        let arena = |start: u32, len: u32| &bytes[start as usize..start as usize + len as usize];
        let (name, static_name_index) = match line.name {
            Text::Arena { start, len } => (arena(start, len), None),
            Text::Static(index) => {
                (static_table::name(index), Some(static_table::first_of_name(index)))
            }
        };
        let (value, static_value) = match line.value {
            Text::Arena { start, len } => (arena(start, len), None),
            Text::Static(index) => (static_table::value(index), Some(index)),
        };
        SectionLine { name, value, never_index: line.never_index, static_name_index, static_value }
    }
}

impl<'a> IntoIterator for &'a FieldSection {
    type Item = SectionLine<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for FieldSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Sections are equal if their lines are, wherever the bytes are stored.
impl PartialEq for FieldSection {
    fn eq(&self, other: &Self) -> bool {
        self.iter().map(FieldLine::from).eq(other.iter().map(FieldLine::from))
    }
}

impl Eq for FieldSection {}

/// Iterator over the lines of a [`FieldSection`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    section: &'a FieldSection,
    lines: std::slice::Iter<'a, Line>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = SectionLine<'a>;

    #[inline]
    fn next(&mut self) -> Option<SectionLine<'a>> {
        self.lines.next().map(|line| self.section.view(line))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.lines.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}
