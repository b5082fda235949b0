//! Checks of the table `[admin]`.

use crate::config::admin::{Admin, AdminListen};
use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::problem::Problem;

/// Minimum length of the token. A program that can connect without limit could guess a shorter one.
const TOKEN_CHARACTERS: usize = 16;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let Admin { listen, token } = &config.admin;
    let location = |key: &str| Location { file: 0, path: vec!["admin".into(), key.into()] };
    if let Some(AdminListen::Tcp(address)) = listen {
        if !address.ip().to_canonical().is_loopback() {
            let problem = config
                .problem(&location("listen"), format_args!("{address} is not a loopback address"));
            problems.push(problem.with_hint(
                "use unix:PATH or an address such as 127.0.0.1:2019; for access from other \
                    machines, use a tunnel such as ssh -L",
            ));
        }
        if token.is_none() && config.is_whole {
            let problem = config.problem(
                &location("listen"),
                "every user of this machine can connect to this address",
            );
            problems
                .push(problem.with_hint("add token = \"${file:admin-token}\", or use unix:PATH"));
        }
    }
    if token.as_ref().is_some_and(|token| {
        token.reveal().chars().count() < TOKEN_CHARACTERS
            || !token.reveal().bytes().all(|byte| byte.is_ascii_graphic())
    }) {
        let problem = config.problem(
            &location("token"),
            "the token is too short, or has characters that a header field cannot carry",
        );
        problems.push(problem.with_hint(format_args!(
            "use at least {TOKEN_CHARACTERS} letters and digits, such as from `openssl rand -hex \
                16`"
        )));
    }
}
