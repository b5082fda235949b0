//! When a server of an upstream is left alone for a while, and how it is asked how it is.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::uri::PathAndQuery;
use schemars::JsonSchema;
use serde::Deserialize;

use super::either::{Short, either};
use super::load::Config;
use super::problem::Problem;
use super::site::FieldValue;
use super::source::Place;
use super::upstream::Upstream;
use super::values::{Time, choice, written};

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

/// How the servers of an upstream are asked how they are: a path, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamCheck(pub UpstreamCheckTable);

/// How the servers of an upstream are asked how they are: by a GET request to each of them, once for all workers, whether clients ask
/// or not. A server that is found to be down gets no requests, also when it is the only one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct UpstreamCheckTable {
    /// What is asked for.
    pub path: CheckPath,
    /// Time from one check of a server to the next.
    #[serde(default = "five_seconds")]
    #[schemars(default = "written_five_seconds")]
    pub every: Time,
    /// Time for one check: connecting, TLS and the whole response.
    #[serde(default = "two_seconds")]
    #[schemars(default = "written_two_seconds")]
    pub timeout: Time,
    /// Statuses of a server that is up; if none are named, 200 to 299.
    #[serde(default)]
    pub statuses: Vec<u16>,
    /// So many checks in a row have to fail before a server counts as down.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub failures: u32,
    /// So many in a row have to succeed before it counts as up again.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub successes: u32,
    /// The host that is asked for; if it is left out, the one that the upstream names as `host`, or else the server's own.
    #[schemars(example = "app.internal")]
    pub host: Option<FieldValue>,
    /// For FastCGI: the script that is run, as the servers see it, such as `/var/www/site/health.php`. If it is left out, PHP-FPM is asked
    /// for `path` itself, which is what its `ping.path` and `pm.status_path` answer to.
    pub script: Option<PathBuf>,
}

const EVERY: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(2);

/// More often would be a load of its own.
const EVERY_MIN: Duration = Duration::from_millis(100);

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
    /// Whether a server that answers with this status is up.
    pub(crate) fn is_good(&self, status: u16) -> bool {
        if self.statuses.is_empty() { (200..300).contains(&status) } else { self.statuses.contains(&status) }
    }
}

impl Short for UpstreamCheck {
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
either!(UpstreamCheck, "upstream_check", "/health");

/// The path, and query, of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPath(pub PathAndQuery);

impl FromStr for CheckPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.parse().ok().filter(|_| text.starts_with('/'));
        parsed.map(Self).ok_or_else(|| format!("{text:?} is no path: write it as /health"))
    }
}
written!(CheckPath, "check_path", "A path, with a query or without.", "/health");

pub(crate) fn check(config: &Config, upstream: &Upstream, place: &Place, problems: &mut Vec<Problem>) {
    for (index, status) in upstream.health.statuses.iter().enumerate().filter(|(_, status)| !(500..600).contains(*status)) {
        let place = place.of(["health".into(), "statuses".into(), index.into()]);
        let problem = config.problem(&place, format_args!("{status} is no failure of a server"));
        problems.push(problem.with_hint("name statuses of 500 to 599; the others are answers to what a client asked"));
    }
    let Some(UpstreamCheck(check)) = &upstream.check else { return };
    let place = |key: &str| place.of(["check".into(), key.into()]);
    if check.every.0 < EVERY_MIN {
        let problem = config.problem(&place("every"), "the servers would have little else to do");
        problems.push(problem.with_hint("leave 100ms or more between two checks; 5s is usual"));
    }
    if check.timeout.0.is_zero() {
        problems
            .push(config.problem(&place("timeout"), "no check could succeed").with_hint("give servers some time to answer, such as 2s"));
    }
    for (key, count) in [("failures", check.failures), ("successes", check.successes)] {
        if count == 0 {
            problems.push(config.problem(&place(key), "no check would be needed for that").with_hint("name a number of 1 or more"));
        }
    }
    for status in check.statuses.iter().filter(|status| !(200..600).contains(*status)) {
        let problem = config.problem(&place("statuses"), format_args!("{status} is no status of a response"));
        problems.push(problem.with_hint("name statuses of 200 to 599"));
    }
    if let Some(script) = &check.script {
        if !upstream.speaks_fastcgi() {
            let problem = config.problem(&place("script"), "scripts are named over FastCGI, which these servers do not speak");
            problems.push(problem.with_hint("leave it out: the servers are asked for `path`"));
        } else if !script.is_absolute() {
            let problem = config.problem(&place("script"), "it is not clear where PHP-FPM finds this script");
            problems.push(problem.with_hint("write the whole path from / on, as PHP-FPM sees it"));
        }
    }
}
