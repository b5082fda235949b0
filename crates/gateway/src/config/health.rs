//! When a server of an upstream is left alone for a while.

use schemars::JsonSchema;
use serde::Deserialize;

use super::values::{Time, choice};

/// When a server that fails is left alone. Of an upstream with one server nothing is counted: nobody else could be asked.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct UpstreamHealth {
    /// After so many failures in a row, over all workers, no request goes to the server for the time `out`; 0: that never happens.
    #[serde(default = "failures")]
    pub failures: u32,
    /// What counts as a failure besides the statuses.
    #[serde(default = "kinds")]
    #[schemars(default = "written_kinds")]
    pub count: Vec<FailureKind>,
    /// Statuses of responses that count as failures, of 500 to 599. A client that knows how to get one of them can have a server left
    /// alone.
    #[serde(default)]
    pub statuses: Vec<u16>,
    /// How long it is left alone. Then one request tries it: if that fails too, it is left alone for twice as long.
    #[serde(default = "a_second")]
    #[schemars(default = "written_second")]
    pub out: Time,
    /// The longest time for which it is left alone.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub out_max: Time,
}

impl Default for UpstreamHealth {
    fn default() -> Self {
        Self { failures: failures(), count: kinds(), statuses: Vec::new(), out: a_second(), out_max: a_minute() }
    }
}

fn failures() -> u32 {
    3
}

fn kinds() -> Vec<FailureKind> {
    vec![FailureKind::Connect]
}

fn written_kinds() -> [&'static str; 1] {
    ["connect"]
}

fn a_second() -> Time {
    Time::seconds(1)
}

fn written_second() -> &'static str {
    "1s"
}

fn a_minute() -> Time {
    Time::seconds(60)
}

fn written_minute() -> &'static str {
    "1m"
}

choice! {
    /// What counts as a failure of a server. Of requests with content only `connect` is counted: the others may be the client's doing.
    FailureKind: "failure_kind" {
        /// No connection could be made, or none within `connect_timeout`.
        Connect = "connect",
        /// The head of the response did not come in time. A client that knows what takes long can have a server left alone.
        Timeout = "timeout",
        /// The connection or the exchange broke off before the head of the response.
        Broken = "broken",
    }
}
