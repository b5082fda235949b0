//! Checks of `sticky` of an upstream.

use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::sticky::Sticky;

/// Minimum length of the secret. A shorter one could be found by trying, which would reveal the
/// servers' addresses.
const SECRET_CHARACTERS: usize = 16;

pub(super) fn check(
    config: &Config,
    sticky: Option<&Sticky>,
    location: &Location,
    problems: &mut Vec<Problem>,
) {
    let Some(sticky) = sticky else { return };
    if sticky.secret.reveal().chars().count() < SECRET_CHARACTERS {
        let problem = config.problem(
            &location.child(["sticky".into(), "secret".into()]),
            "the secret is too short",
        );
        problems.push(problem.with_hint(format_args!(
            "use at least {SECRET_CHARACTERS} characters, such as from `openssl rand -hex 16`, in \
                a file: \"${{file:sticky}}\""
        )));
    }
}
