//! Buffering of responses for slow clients.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::short_form::{ShortForm, short_or_table};
use super::values::Size;

/// Whether an upstream's responses are buffered for slow clients: `"on"`, `"off"`, or a table with
/// sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffering {
    /// Responses are buffered, up to these sizes.
    On(BufferingTable),
    /// Responses are not buffered, so slow clients hold back the servers.
    Off,
}

/// Buffer sizes for one response. When they are full, the server is held back.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct BufferingTable {
    /// Memory, in whole blocks of 16 KiB.
    #[schemars(default = "written_memory")]
    pub memory: Size,
    /// Disk space used after the memory, in an unnamed file; `"0"` for none.
    #[schemars(default = "written_disk")]
    pub disk: Size,
}

impl Default for BufferingTable {
    fn default() -> Self {
        Self { memory: Size(256 << 10), disk: Size(1 << 30) }
    }
}

fn written_memory() -> &'static str {
    "256KiB"
}

fn written_disk() -> &'static str {
    "1GiB"
}

impl ShortForm for Buffering {
    type Table = BufferingTable;

    const EXPECTED: &'static str = "\"on\", \"off\", or { memory = \"256KiB\", disk = \"1GiB\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::On(BufferingTable::default())),
            "off" => Ok(Self::Off),
            _ => Err(format!("invalid buffering {text:?}: use {}", Self::EXPECTED)),
        }
    }

    fn from_table(table: BufferingTable) -> Self {
        Self::On(table)
    }
}
short_or_table!(Buffering, "buffering", "on", "off");

/// Buffer sizes for all responses together, over all upstreams and workers.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct ServerBuffering {
    /// Total memory.
    #[schemars(default = "written_all_memory")]
    pub memory: Size,
    /// Total disk space.
    #[schemars(default = "written_all_disk")]
    pub disk: Size,
    /// Folder for these files, on a disk rather than in memory. If left out, `/var/tmp`.
    pub folder: Option<PathBuf>,
}

impl Default for ServerBuffering {
    fn default() -> Self {
        Self { memory: Size(64 << 20), disk: Size(4 << 30), folder: None }
    }
}

fn written_all_memory() -> &'static str {
    "64MiB"
}

fn written_all_disk() -> &'static str {
    "4GiB"
}

impl ServerBuffering {
    /// Returns the configured folder or its default, unresolved.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new("/var/tmp"))
    }
}
