//! Checks of the table `[log]`.

use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::problem::Problem;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let location =
        |key: &str| Location { file: 0, path: vec!["log".into(), "qlog".into(), key.into()] };
    let Some(rule) = &config.log.qlog else { return };
    if !(0.0..=1.0).contains(&rule.share) {
        let problem =
            config.problem(&location("share"), format_args!("invalid share {}", rule.share));
        problems.push(
            problem.with_hint(
                "use a number from 0 to 1, such as 0.01 for one connection in a hundred",
            ),
        );
    }
    if rule.files == 0 {
        problems.push(
            config
                .problem(&location("files"), "`files` must not be 0")
                .with_hint("allow at least 1"),
        );
    }
}
