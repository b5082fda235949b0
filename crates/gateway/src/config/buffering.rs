//! Responses that are held for clients that read slowly.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::either::{Short, either};
use super::load::Config;
use super::problem::Problem;
use super::source::Place;
use super::upstream::Upstream;
use super::values::Size;

/// Whether an upstream's responses are taken in ahead of clients that read slowly: `"on"`, `"off"`, or a table with bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffering {
    /// They are, up to these bounds.
    On(BufferingTable),
    /// Servers are held back by their clients.
    Off,
}

/// What is held of one response, at most. Beyond that its server is held back.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct BufferingTable {
    /// In memory, in whole blocks of 16 KiB.
    #[schemars(default = "written_memory")]
    pub memory: Size,
    /// After that in a file without a name; `"0"`: none.
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

impl Short for Buffering {
    type Table = BufferingTable;

    const EXPECTED: &'static str = "\"on\", \"off\", or { memory = \"256KiB\", disk = \"1GiB\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::On(BufferingTable::default())),
            "off" => Ok(Self::Off),
            _ => Err(format!("{text:?} says nothing of buffering: write {}", Self::EXPECTED)),
        }
    }

    fn from_table(table: BufferingTable) -> Self {
        Self::On(table)
    }
}
either!(Buffering, "buffering", "on", "off");

/// What is held at most of all responses together, over all upstreams and workers.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct ServerBuffering {
    /// In memory.
    #[schemars(default = "written_all_memory")]
    pub memory: Size,
    /// In files.
    #[schemars(default = "written_all_disk")]
    pub disk: Size,
    /// The folder for these files, on a disk rather than in memory. If it is left out, `/var/tmp`.
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
    /// As it is written, if it is.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new("/var/tmp"))
    }
}

impl Config {
    /// Where files of responses that are held are made.
    pub(crate) fn buffering_folder(&self) -> PathBuf {
        self.path(&Place { file: 0, path: Vec::new() }, self.server.buffering.folder())
    }
}

impl Upstream {
    /// What is held of its responses, if anything is.
    pub(crate) fn buffers(&self) -> Option<BufferingTable> {
        match &self.buffering {
            Some(Buffering::On(table)) => Some(table.clone()),
            Some(Buffering::Off) => None,
            // Each response has a process of its own there, of which there are few.
            None => self.speaks_fastcgi().then(BufferingTable::default),
        }
    }
}

pub(super) fn check(config: &Config, upstream: &Upstream, place: &Place, problems: &mut Vec<Problem>) {
    let Some(Buffering::On(one)) = &upstream.buffering else { return };
    let (all, default) = (&config.server.buffering, BufferingTable::default());
    for (key, one, all, default) in [("memory", one.memory, all.memory, default.memory), ("disk", one.disk, all.disk, default.disk)] {
        // What was left out has another bound then.
        if one.0 > all.0 && one != default {
            let problem = config.problem(&place.of(["buffering".into(), key.into()]), "one response could hold more than all of them may");
            problems.push(problem.with_hint(format_args!("write less, or allow more as `buffering.{key}` in [server]")));
        }
    }
}
