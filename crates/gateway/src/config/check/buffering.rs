//! Checks of `buffering` of an upstream.

use crate::config::buffering::{Buffering, BufferingTable};
use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::upstream::Upstream;

pub(super) fn check(
    config: &Config,
    upstream: &Upstream,
    location: &Location,
    problems: &mut Vec<Problem>,
) {
    let Some(Buffering::On(one)) = &upstream.buffering else { return };
    let (all, default) = (&config.server.buffering, BufferingTable::default());
    for (key, one, all, default) in [
        ("memory", one.memory, all.memory, default.memory),
        ("disk", one.disk, all.disk, default.disk),
    ] {
        // A default value is not an error: it is lowered to the total.
        if one.0 > all.0 && one != default {
            let problem = config.problem(
                &location.child(["buffering".into(), key.into()]),
                "the buffer for one response exceeds the total for all responses",
            );
            problems.push(
                problem.with_hint(format_args!("lower it, or raise `buffering.{key}` in [server]")),
            );
        }
    }
}
