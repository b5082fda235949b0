//! Errors of profiles.

use std::path::PathBuf;

/// An invalid profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read profile {path}: {source}: give a TOML file that says what the link does (docs/link.md)", path = path.display())]
    Unreadable {
        /// The path as given.
        path: PathBuf,
        /// Error returned by the system.
        source: std::io::Error,
    },
    /// The rate trace of a profile cannot be read.
    #[error("cannot read rate_trace {path}: {source}: its path starts where the profile is", path = path.display())]
    TraceUnreadable {
        /// Path of the trace.
        path: PathBuf,
        /// Error returned by the system.
        source: std::io::Error,
    },
    /// An invalid rate trace.
    #[error("rate_trace {path}: {message}", path = path.display())]
    Trace {
        /// Path of the trace.
        path: PathBuf,
        /// Reason why it is invalid.
        message: String,
    },
    /// Invalid TOML, a wrong type, or a missing or unknown key.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line number, from 1.
        line: usize,
        /// The parser's message, in one line.
        message: String,
    },
    /// A number out of range.
    #[error("{field} is {value}: allowed is {allowed}")]
    OutOfRange {
        /// Name of the key with its table, such as `up.delay_ms`.
        field: String,
        /// The value as given.
        value: String,
        /// The permitted range, with its unit.
        allowed: String,
    },
    /// Keys that contradict each other, or a key without another one that it needs.
    #[error("{0}")]
    Inconsistent(String),
    /// An error in a file, with the path of the file.
    #[error("profile {path}: {source}", path = path.display())]
    InFile {
        /// The path as given.
        path: PathBuf,
        /// The error.
        source: Box<Error>,
    },
}

impl Error {
    /// Returns whether a file is missing or unreadable, rather than invalid.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::TraceUnreadable { .. } => true,
            Self::InFile { source, .. } => source.is_unreadable(),
            _ => false,
        }
    }
}

/// `NaN` is outside every range.
pub(super) fn within(
    field: String,
    value: f64,
    low: f64,
    high: f64,
    unit: &str,
) -> Result<(), Error> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(Error::OutOfRange {
        field,
        value: value.to_string(),
        allowed: format!("{low} to {high} {unit}"),
    })
}
