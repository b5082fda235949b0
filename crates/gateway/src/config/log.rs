//! The access log and qlog files.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::values::{Network, string_enum};

/// The table `[log]`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(default)]
pub struct Log {
    /// Destination of the access log, one line per request: a file, `stderr`, `stdout` or `off`.
    #[schemars(default = "written_access")]
    pub access: Option<String>,
    /// Format of the access log.
    pub format: LogFormat,
    /// qlog files of QUIC connections, one per connection.
    pub qlog: Option<QlogRule>,
}

/// Selection of QUIC connections that get a qlog file, and its folder.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct QlogRule {
    /// Folder for the files.
    pub folder: PathBuf,
    /// Share of connections, chosen at random: from 0 to 1.
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: f64,
    /// Clients whose connections are selected; if left out, all.
    #[serde(default)]
    pub clients: Vec<Network>,
    /// Maximum number of files in the folder; the oldest is removed for a new one.
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
    /// Decides whether a client's new connection gets a file.
    pub fn chooses(&self, client: IpAddr) -> bool {
        let is_meant = self.clients.is_empty()
            || self.clients.iter().any(|network| network.0.contains(&client.to_canonical()));
        is_meant && rand::random_bool(self.share.clamp(0.0, 1.0))
    }
}

fn written_access() -> &'static str {
    "stderr"
}

string_enum! {
    /// Format of access log lines.
    #[derive(Default)]
    LogFormat: "format of the access log" {
        /// Time, client, protocol, method, target, status, bytes, duration, and `aborted` if the
        /// response was not sent completely.
        #[default]
        Text = "text",
        /// One JSON object per line.
        Json = "json",
        /// Common log format.
        Common = "common",
        /// Combined log format: the common format with `referer` and `user-agent`.
        Combined = "combined",
    }
}
