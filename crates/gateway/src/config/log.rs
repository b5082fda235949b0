//! What is told of requests.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::load::Config;
use super::problem::Problem;
use super::source::Place;
use super::values::{Network, choice};

/// The table `[log]`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(default)]
pub struct Log {
    /// Where a line for each request goes: a file, or `stderr`, `stdout` or `off`.
    #[schemars(default = "written_access")]
    pub access: Option<String>,
    /// How the lines look.
    pub format: LogFormat,
    /// What happens on QUIC connections, each in a file of its own.
    pub qlog: Option<QlogRule>,
}

/// Which QUIC connections get a qlog file, and where.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct QlogRule {
    /// The folder for the files.
    pub folder: PathBuf,
    /// How many of the connections, chosen by chance: from 0 to 1.
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: f64,
    /// Clients whose connections are meant; all, if it is left out.
    #[serde(default)]
    pub clients: Vec<Network>,
    /// Files in the folder at the most; for one more, the oldest goes.
    #[serde(default = "most_files")]
    #[schemars(range(min = 1))]
    pub files: u32,
}

fn all() -> f64 {
    1.0
}

fn most_files() -> u32 {
    1_000
}

impl QlogRule {
    /// Whether the connection that a client begins gets a file.
    pub fn chooses(&self, client: IpAddr) -> bool {
        let is_meant = self.clients.is_empty() || self.clients.iter().any(|network| network.0.contains(&client.to_canonical()));
        is_meant && rand::random_bool(self.share.clamp(0.0, 1.0))
    }
}

impl Config {
    /// Where files of QUIC connections go, and which connections have one.
    pub fn qlog(&self) -> Option<(PathBuf, &QlogRule)> {
        let place = Place { file: 0, path: Vec::new() };
        self.log.qlog.as_ref().map(|rule| (self.path(&place, &rule.folder), rule))
    }
}

pub(crate) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let place = |key: &str| Place { file: 0, path: vec!["log".into(), "qlog".into(), key.into()] };
    let Some(rule) = &config.log.qlog else { return };
    if !(0.0..=1.0).contains(&rule.share) {
        let problem = config.problem(&place("share"), format_args!("{} is no share", rule.share));
        problems.push(problem.with_hint("write a number from 0 to 1, such as 0.01 for one connection in a hundred"));
    }
    if rule.files == 0 {
        problems.push(config.problem(&place("files"), "no file could be written").with_hint("allow at least 1"));
    }
}

fn written_access() -> &'static str {
    "stderr"
}

choice! {
    /// How lines of the access log look.
    #[derive(Default)]
    LogFormat: "format of the access log" {
        /// Time, client, protocol, method, target, status, bytes, duration, and `aborted` where the response did not go out whole.
        #[default]
        Text = "text",
        /// An object of JSON a line.
        Json = "json",
        /// The common log format of web servers.
        Common = "common",
        /// The same with `referer` and `user-agent`.
        Combined = "combined",
    }
}
