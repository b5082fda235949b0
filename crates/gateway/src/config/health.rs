//! Health of upstream servers: passive ejection and active checks.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::uri::PathAndQuery;
use schemars::JsonSchema;
use serde::Deserialize;

use super::short_form::{ShortForm, short_or_table};
use super::values::{FieldValue, Time, string_enum, string_type};

/// When a failing server is ejected. With a single server, failures are not counted, since there is
/// no other to use.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct UpstreamHealth {
    /// Consecutive failures, over all workers, after which a server is ejected for the time `out`;
    /// 0 turns ejection off.
    #[serde(default = "failures")]
    pub failures: u32,
    /// Kinds of failures that count, besides `statuses`.
    #[serde(default = "kinds")]
    #[schemars(default = "written_kinds")]
    pub count: Vec<FailureKind>,
    /// Response statuses that count as failures, from 500 to 599. A client that can provoke one of
    /// them can have a server ejected.
    #[serde(default)]
    pub statuses: Vec<u16>,
    /// Time for which a server is ejected. Then one request is sent as a probe; if it fails too,
    /// the server is ejected for twice as long.
    #[serde(default = "a_second")]
    #[schemars(default = "written_second")]
    pub out: Time,
    /// Maximum time for which a server is ejected.
    #[serde(default = "a_minute")]
    #[schemars(default = "written_minute")]
    pub out_max: Time,
}

impl Default for UpstreamHealth {
    fn default() -> Self {
        Self {
            failures: failures(),
            count: kinds(),
            statuses: Vec::new(),
            out: a_second(),
            out_max: a_minute(),
        }
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

string_enum! {
    /// A kind of server failure. For requests with a body only `connect` counts: the client may
    /// have caused the others.
    FailureKind: "failure_kind" {
        /// No connection could be made within `connect_timeout`.
        Connect = "connect",
        /// The response head did not arrive in time. A client that knows a slow request can have a
        /// server ejected.
        Timeout = "timeout",
        /// The connection or the exchange was aborted before the response head.
        Broken = "broken",
    }
}

/// Active health checks of an upstream's servers: a path, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamCheck(pub UpstreamCheckTable);

/// Active health checks of an upstream's servers: a GET request to each server, once for all
/// workers, independent of client requests. A server that is down gets no requests, even if it is
/// the only one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct UpstreamCheckTable {
    /// Path to request.
    pub path: CheckPath,
    /// Interval between checks of a server.
    #[serde(default = "five_seconds")]
    #[schemars(default = "written_five_seconds")]
    pub every: Time,
    /// Timeout of one check: connecting, TLS and the whole response.
    #[serde(default = "two_seconds")]
    #[schemars(default = "written_two_seconds")]
    pub timeout: Time,
    /// Response statuses that mean a server is up; if empty, 200 to 299.
    #[serde(default)]
    pub statuses: Vec<u16>,
    /// Consecutive failed checks after which a server is down.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub failures: u32,
    /// Consecutive successful checks after which it is up again.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub successes: u32,
    /// Host to send in the check; if left out, the upstream's fixed `host`, or else the server's
    /// own.
    #[schemars(example = "app.internal")]
    pub host: Option<FieldValue>,
    /// For FastCGI: path of the script to run, as the servers see it, such as
    /// `/var/www/site/health.php`. If left out, `path` is requested from PHP-FPM itself, which
    /// answers for its `ping.path` and `pm.status_path`.
    pub script: Option<PathBuf>,
}

const EVERY: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(2);

fn five_seconds() -> Time {
    Time(EVERY)
}

fn written_five_seconds() -> &'static str {
    "5s"
}

fn two_seconds() -> Time {
    Time(TIMEOUT)
}

fn written_two_seconds() -> &'static str {
    "2s"
}

fn two() -> u32 {
    2
}

impl UpstreamCheckTable {
    /// Returns whether a server that answers with this status is up.
    pub(crate) fn is_good(&self, status: u16) -> bool {
        if self.statuses.is_empty() {
            (200..300).contains(&status)
        } else {
            self.statuses.contains(&status)
        }
    }
}

impl ShortForm for UpstreamCheck {
    type Table = UpstreamCheckTable;

    const EXPECTED: &'static str = "a path such as \"/health\", or { path = …, every = \"5s\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(UpstreamCheckTable {
            path: text.parse()?,
            every: five_seconds(),
            timeout: two_seconds(),
            statuses: Vec::new(),
            failures: two(),
            successes: two(),
            host: None,
            script: None,
        }))
    }

    fn from_table(table: UpstreamCheckTable) -> Self {
        Self(table)
    }
}
short_or_table!(UpstreamCheck, "upstream_check", "/health");

/// The path of a check, with an optional query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPath(pub PathAndQuery);

impl FromStr for CheckPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.parse().ok().filter(|_| text.starts_with('/'));
        parsed.map(Self).ok_or_else(|| format!("invalid path {text:?}: use a path such as /health"))
    }
}
string_type!(CheckPath, "check_path", "A path, with an optional query.", "/health");
