//! Locations of values in configuration files.

/// A step from a table or list to an entry in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// The location of a value: the number of its file, and the path in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) file: usize,
    pub(crate) path: Vec<Step>,
}

impl Location {
    /// Returns the location of an entry below this one.
    pub(crate) fn child(&self, steps: impl IntoIterator<Item = Step>) -> Self {
        let mut path = self.path.clone();
        path.extend(steps);
        Self { file: self.file, path }
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        self.child([key.into()])
    }
}
