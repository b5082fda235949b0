//! Warnings about routes that never match or match differently from how they look.

use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::matches::MatchTable;
use crate::config::problem::Problem;
use crate::config::response::Rewrite;
use crate::config::site::{HeaderRules, Paths, Redirect, Route, Site};
use crate::config::values::FieldValue;
use crate::routing::route_index::RouteIndex;

/// Warns about unreachable routes.
pub(super) fn check_reach(config: &Config, site: &Site, warnings: &mut Vec<Problem>) {
    let index = RouteIndex::new(site.routes.iter().map(|route| &route.matches.0[..]));
    for (number, route) in (0..).zip(&site.routes) {
        let Some(first) = route.matches.0.first() else { continue };
        let covered = |one: &MatchTable, earlier: &Route| {
            earlier.matches.0.iter().any(|wide| wide.covers(one))
        };
        let takes_all = |earlier: &Route| route.matches.0.iter().all(|one| covered(one, earlier));
        // The search ends at the route's own number: only earlier routes can cover it.
        let found = index.find_cover(first, |(earlier, _)| {
            earlier >= number || takes_all(&site.routes[earlier as usize])
        });
        if let Some((earlier, _)) = found.filter(|(earlier, _)| *earlier < number) {
            let problem = config.problem(
                &route.location,
                format_args!(
                    "unreachable route: route {} of the site matches all its requests",
                    earlier + 1
                ),
            );
            warnings.push(
                problem.with_hint("the first route that matches is used: move this one before it"),
            );
        }
    }
}

/// Warns about variables of other servers, which are sent as they are written.
pub(super) fn check_variables(config: &Config, site: &Site, warnings: &mut Vec<Problem>) {
    const CLIENT_HINT: &str =
        "in values of request fields, {client} stands for the client's address";
    const FIXED_HINT: &str = "write the value itself";

    let mut check = |location: Location, value: &str, known: &str| {
        if let Some(variable) = variable(value) {
            let problem = config.problem(
                &location,
                format_args!("{variable:?} is no variable here: it is sent as it is written"),
            );
            warnings.push(problem.with_hint(known));
        }
    };
    let text = |value: &FieldValue| value.0.to_str().unwrap_or_default().to_owned();
    let mut check_rules = |location: &Location, rules: &HeaderRules, known: &str| {
        for (kind, table) in [("set", &rules.set), ("add", &rules.add)] {
            for (name, value) in table {
                let location = location.child([kind.into(), name.name().as_str().into()]);
                check(location, &text(value), known);
            }
        }
    };
    check_rules(&site.location.key("response_headers"), &site.response_headers, FIXED_HINT);
    for route in &site.routes {
        let at = |key| route.location.key(key);
        check_rules(&at("request_headers"), &route.request_headers, CLIENT_HINT);
        check_rules(&at("response_headers"), &route.response_headers, FIXED_HINT);
    }
    for route in &site.routes {
        if let Some(Redirect(redirect)) = &route.redirect {
            check(
                route.location.key("redirect"),
                &text(&redirect.to),
                "use {host} and {path}: {path} is the requested path with its query",
            );
        }
        if let Some(Rewrite(target)) = &route.rewrite {
            check(route.location.key("rewrite"), target, "use {path}, the requested path");
        }
    }
}

/// Returns the first variable as NGINX and shells write it: `$name` or `$1`.
fn variable(value: &str) -> Option<&str> {
    value.match_indices('$').find_map(|(at, _)| {
        let name = &value[at + 1..];
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let length = name.bytes().take_while(|byte| is_part(*byte)).count();
        (length > 0).then(|| &value[at..=at + length])
    })
}

/// Warns about paths that match differently from how they look.
pub(super) fn check_spelling(config: &Config, site: &Site, warnings: &mut Vec<Problem>) {
    for route in &site.routes {
        let location = route.location.key("match");
        for path in route.matches.paths() {
            if let Some(written) = path.written() {
                let problem = config.problem(
                    &location,
                    format_args!("the path {written:?} is not in canonical form"),
                );
                warnings.push(problem.with_hint(format_args!(
                    "it is compared as {:?}: use that form",
                    path.to_string()
                )));
            }
            if path.has_separators() {
                let message = format_args!(
                    "the path {:?} has an encoded slash or a backslash, which also matches in \
                        decoded form",
                    path.to_string()
                );
                let problem = config.problem(&location, message);
                warnings.push(problem.with_hint(match route.paths() {
                    Paths::Strict => {
                        "no request matches it with paths = \"strict\": write the path with a \
                            slash"
                    }
                    Paths::Compatible => "match the path with a slash as well",
                }));
            }
        }
    }
}
