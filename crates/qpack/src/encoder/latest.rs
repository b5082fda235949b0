//! How the lines of the latest section were encoded.

/// Places that are remembered, of 16 bytes each: most heads have fewer lines.
const MAX_PLACES: usize = 24;

/// Where the text of a line stands. Only a hint for the next line in its place, whose text is compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It equals this entry of the static table.
    Static(u8),
    /// Its name is that of this entry of the static table, and its value is never inserted.
    Name(u8),
    /// It is this entry of the dynamic table, by its absolute index, if that is still there.
    Dynamic(u64),
}

/// The lines of the latest section by their places. Heads of one kind have mostly the same lines in the same order, so what a line is found
/// to be needs not be searched for again.
#[derive(Debug, Default)]
pub(super) struct Latest(Vec<Option<Known>>);

impl Latest {
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<Known> {
        self.0.get(place).copied().flatten()
    }

    pub(super) fn set(&mut self, place: usize, known: Option<Known>) {
        match self.0.get_mut(place) {
            Some(latest) => *latest = known,
            // Lines come in order, so this is the next place.
            None if place < MAX_PLACES => self.0.push(known),
            None => {}
        }
    }
}
