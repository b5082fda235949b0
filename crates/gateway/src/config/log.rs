//! What is told of requests.

use schemars::JsonSchema;
use serde::Deserialize;

use super::values::choice;

/// The table `[log]`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Log {
    /// Where a line for each request goes: a file, or `stderr`, `stdout` or `off`.
    #[schemars(default = "written_access")]
    pub access: Option<String>,
    /// How the lines look.
    pub format: LogFormat,
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
