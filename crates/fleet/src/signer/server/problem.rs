//! A problem in a configuration file, with its position.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A problem in a configuration file: `signer.toml:3:8: unknown field "certs"; …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File, as it was named.
    pub file: PathBuf,
    /// Line and column, from 1; `None` if the problem concerns the whole file.
    pub position: Option<(usize, usize)>,
    /// Description of the problem.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Kind of the cause.
    pub fault: Fault,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A file is malformed or contradicts itself.
    Malformed,
    /// A file is missing or cannot be read.
    Missing,
    /// The user lacks permission to read a file.
    Permission,
    /// A security module cannot be used.
    Unavailable,
}

impl From<io::ErrorKind> for Fault {
    fn from(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::PermissionDenied => Self::Permission,
            io::ErrorKind::InvalidData => Self::Malformed,
            _ => Self::Missing,
        }
    }
}

impl Problem {
    pub(super) fn of_file(file: &Path, message: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            position: None,
            message: message.to_string(),
            hint: None,
            fault: Fault::Malformed,
        }
    }

    /// `span`: bytes of the file's text.
    pub(super) fn at(
        file: &Path,
        text: &str,
        span: &Range<usize>,
        message: impl fmt::Display,
    ) -> Self {
        let before = &text[..text.floor_char_boundary(span.start)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        Self { position: Some((line, column)), ..Self::of_file(file, message) }
    }

    #[must_use]
    pub(super) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    #[must_use]
    pub(super) fn with_fault(mut self, fault: impl Into<Fault>) -> Self {
        self.fault = fault.into();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}
