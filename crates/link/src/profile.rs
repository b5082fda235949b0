//! A link profile: what a link does in each direction, read from a TOML file and checked once.

mod direction;
mod file;
mod in_flight;
mod rule;
#[cfg(test)]
mod tests;
mod trace;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

use file::File;

pub(crate) use direction::burst_chances;
pub use direction::{Asked, Direction, GilbertElliott, Loss, Outages};
pub(crate) use in_flight::MAX_HELD_BYTES;
pub use rule::{Action, Rule, RuleAsked, RuleDirection, RuleProtocol};
pub use trace::{OPPORTUNITY_BYTES, RateTrace};

/// The largest IP packet of the link. A queue has to hold at least one.
pub const MTU: usize = 1500;

/// What a link does, per direction.
///
/// ```
/// let profile = pronghorn_link::Profile::from_toml(
///     r#"
///     name = "radio"
///     [up]
///     rate_mbit_per_second = 12
///     delay_ms = 35
///     queue_ms = 300
///     loss_percent = 15
///     [down]
///     delay_ms = 35
///     "#,
/// )?;
/// assert_eq!(profile.up.rate_bits_per_second, Some(12_000_000));
/// assert_eq!(profile.down.rate_bits_per_second, None);
/// # Ok::<(), pronghorn_link::profile::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Short name, shown in reports.
    pub name: String,
    /// What the profile stands for and where its numbers come from.
    pub description: String,
    /// Client to server.
    pub up: Direction,
    /// Server to client.
    pub down: Direction,
    /// What happens to some packets only, in their order.
    pub rules: Vec<Rule>,
    /// What becomes different on the way, in the order of time.
    pub changes: Vec<Change>,
}

/// From some time on the link is another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// After time zero: the client's first packet over the link.
    pub after_ns: u64,
    /// Takes the place of the direction; packets on their way arrive as if nothing had happened.
    pub up: Option<Direction>,
    /// The same.
    pub down: Option<Direction>,
    /// The client's end gets other addresses and loses those it had.
    pub new_client_address: bool,
}

/// A change in the units of a profile file, as shown in reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangeAsked {
    /// After time zero: the client's first packet over the link.
    pub after_ms: f64,
    /// The new values; absent if the direction stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<Asked>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<Asked>,
    /// The client's end gets other addresses.
    pub new_client_address: bool,
}

impl Change {
    /// The same in the units of a profile file.
    pub fn asked(&self) -> ChangeAsked {
        ChangeAsked {
            after_ms: self.after_ns as f64 / 1e6,
            up: self.up.as_ref().map(Direction::asked),
            down: self.down.as_ref().map(Direction::asked),
            new_client_address: self.new_client_address,
        }
    }
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read profile {path}: {source}: give a TOML file that says what the link does (docs/link.md)", path = path.display())]
    Unreadable {
        /// As given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The rate trace that a profile names could not be read.
    #[error("cannot read rate_trace {path}: {source}: its path starts where the profile is", path = path.display())]
    TraceUnreadable {
        /// Where it was looked for.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Not a rate trace.
    #[error("rate_trace {path}: {message}", path = path.display())]
    Trace {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Not TOML, a wrong type, or a key that is missing or unknown.
    #[error("line {line}: {message}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The parser's reason, in one line.
        message: String,
    },
    /// A number outside what is allowed.
    #[error("{field} is {value}: allowed is {allowed}")]
    OutOfRange {
        /// With its table, such as `up.delay_ms`.
        field: String,
        /// As given.
        value: String,
        /// The range, with its unit.
        allowed: String,
    },
    /// Keys that do not go together, or one without another that it needs.
    #[error("{0}")]
    Inconsistent(String),
    /// An error in a file, with the file's name.
    #[error("profile {path}: {source}", path = path.display())]
    InFile {
        /// As given.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<Error>,
    },
}

impl Error {
    /// A file is missing or cannot be read, rather than wrong.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::TraceUnreadable { .. } => true,
            Self::InFile { source, .. } => source.is_unreadable(),
            _ => false,
        }
    }
}

impl Profile {
    /// Reads and checks a profile file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_toml_in(&text, folder).map_err(|source| Error::InFile { path: path.to_owned(), source: Box::new(source) })
    }

    /// Checks a profile given as TOML text. Files that it names are looked for in the current folder.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        Self::from_toml_in(text, Path::new(""))
    }

    fn from_toml_in(text: &str, folder: &Path) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| syntax_error(text, &error))?;
        file.check(folder)
    }

    /// `sha256:…` over what the link does. Name, description, comments and spelling do not change it.
    pub fn hash(&self) -> String {
        let (up, down) = (self.up.asked(), self.down.asked());
        // As it was before there were rules, changes and other meanings of a key: what was published keeps its hash as long as it does the same.
        let meanings = self.meanings();
        let meaning = if self.rules.is_empty() && self.changes.is_empty() && meanings.is_empty() {
            serde_json::to_vec(&(up, down))
        } else {
            let rules: Vec<_> = self.rules.iter().map(Rule::asked).collect();
            let changes: Vec<_> = self.changes.iter().map(Change::asked).collect();
            if meanings.is_empty() {
                serde_json::to_vec(&(up, down, rules, changes))
            } else {
                serde_json::to_vec(&(up, down, rules, changes, meanings))
            }
        };
        sha256(&meaning.expect("invariant: plain numbers serialise"))
    }
}

impl Profile {
    /// The same link without jitter and without the reordering that comes from it, to tell what they are answerable for. Its name ends in
    /// `-steady`, unless it has none anyway.
    #[must_use]
    pub fn without_jitter(&self) -> Self {
        let steady = |direction: &Direction| Direction { jitter_ns: 0, reorder: false, ..direction.clone() };
        let changes = self.changes.iter().map(|change| Change {
            up: change.up.as_ref().map(steady),
            down: change.down.as_ref().map(steady),
            ..change.clone()
        });
        let mut without = Self { up: steady(&self.up), down: steady(&self.down), changes: changes.collect(), ..self.clone() };
        if without != *self {
            without.name += "-steady";
        }
        without
    }

    /// Keys that once meant something else under the same values.
    fn meanings(&self) -> Vec<&'static str> {
        let changed = self.changes.iter().flat_map(|change| [&change.up, &change.down]).flatten();
        let directions: Vec<&Direction> = [&self.up, &self.down].into_iter().chain(changed).collect();
        let has = |of: fn(&Direction) -> bool| directions.iter().any(|direction| of(direction));
        let pauses = has(|direction| direction.jitter_ns > 0 && !direction.reorder).then_some("jitter is pauses");
        let offset = has(|direction| direction.rate_trace.is_some()).then_some("trace from the seed's second on");
        pauses.into_iter().chain(offset).collect()
    }
}

fn sha256(meaning: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(meaning) {
        write!(text, "{byte:02x}").expect("invariant: a String takes any text");
    }
    text
}

fn ms_to_ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// `NaN` is outside every range.
fn within(field: String, value: f64, low: f64, high: f64, unit: &str) -> Result<(), Error> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(Error::OutOfRange { field, value: value.to_string(), allowed: format!("{low} to {high} {unit}") })
}

fn syntax_error(text: &str, error: &toml::de::Error) -> Error {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    // What is wrong with a value does not say whose it is.
    let key = text.lines().nth(line - 1).and_then(|text| text.split_once('=')).map(|(key, _)| key.trim());
    let message = match key {
        Some(key) if message.starts_with("invalid") => format!("{key}: {message}"),
        _ => message,
    };
    Error::Syntax { line, message }
}
