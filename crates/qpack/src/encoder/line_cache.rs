//! Remembers how the lines of the latest section were encoded.

/// Maximum number of remembered lines, of 16 bytes each: most heads have fewer lines.
const MAX_PLACES: usize = 24;

/// Where the text of a line was found. Only a hint for the next line at the same index, whose text
/// is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedMatch {
    /// The line equals this static table entry.
    Static(u8),
    /// The name is that of this static table entry, and the value is never inserted.
    Name(u8),
    /// The line is this dynamic table entry, by absolute index, if it still exists.
    Dynamic(u64),
}

/// Lines of the latest section, by index. Heads of one kind have mostly the same lines in the same
/// order, so the search can often be skipped.
#[derive(Debug, Default)]
pub(super) struct LineCache(Vec<Option<CachedMatch>>);

impl LineCache {
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<CachedMatch> {
        self.0.get(place).copied().flatten()
    }

    pub(super) fn set(&mut self, place: usize, known: Option<CachedMatch>) {
        match self.0.get_mut(place) {
            Some(latest) => *latest = known,
            // Lines come in order, so this is the next index.
            None if place < MAX_PLACES => self.0.push(known),
            None => {}
        }
    }
}
