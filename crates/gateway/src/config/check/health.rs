//! Checks of `health` and `check` of an upstream.

use std::time::Duration;

use crate::config::configuration::Config;
use crate::config::health::UpstreamCheck;
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::upstream::Upstream;

/// Shorter intervals would be a load of their own.
const EVERY_MIN: Duration = Duration::from_millis(100);

pub(super) fn check(
    config: &Config,
    upstream: &Upstream,
    location: &Location,
    problems: &mut Vec<Problem>,
) {
    for (index, status) in upstream
        .health
        .statuses
        .iter()
        .enumerate()
        .filter(|(_, status)| !(500..600).contains(*status))
    {
        let location = location.child(["health".into(), "statuses".into(), index.into()]);
        let problem = config
            .problem(&location, format_args!("status {status} cannot count as a server failure"));
        problems.push(
            problem
                .with_hint("use statuses from 500 to 599; others depend on the client's request"),
        );
    }
    let Some(UpstreamCheck(check)) = &upstream.check else { return };
    let location = |key: &str| location.child(["check".into(), key.into()]);
    if check.every.0 < EVERY_MIN {
        let problem = config.problem(&location("every"), "`every` is too short");
        problems.push(problem.with_hint("use at least 100ms; the default is 5s"));
    }
    if check.timeout.0.is_zero() {
        problems.push(
            config
                .problem(&location("timeout"), "`timeout` must not be 0")
                .with_hint("use a time such as 2s"),
        );
    }
    for (key, count) in [("failures", check.failures), ("successes", check.successes)] {
        if count == 0 {
            problems.push(
                config
                    .problem(&location(key), "the number of checks must not be 0")
                    .with_hint("use at least 1"),
            );
        }
    }
    for status in check.statuses.iter().filter(|status| !(200..600).contains(*status)) {
        let problem =
            config.problem(&location("statuses"), format_args!("invalid response status {status}"));
        problems.push(problem.with_hint("use statuses from 200 to 599"));
    }
    if let Some(script) = &check.script {
        if !upstream.speaks_fastcgi() {
            let problem = config.problem(
                &location("script"),
                "`script` requires FastCGI, which these servers do not use",
            );
            problems.push(problem.with_hint("leave it out: checks request `path`"));
        } else if !script.is_absolute() {
            let problem = config.problem(&location("script"), "`script` is not an absolute path");
            problems.push(problem.with_hint("use the absolute path as PHP-FPM sees it"));
        }
    }
}
