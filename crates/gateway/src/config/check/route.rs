//! Checks of a route.

use super::upstream::{check_name, check_upstream};
use super::{php, upgrades};
use crate::config::configuration::Config;
use crate::config::problem::Problem;
use crate::config::proxy::Proxy;
use crate::config::server::EarlyData;
use crate::config::site::Route;

const ACTIONS: [&str; 5] = ["files", "proxy", "php", "redirect", "respond"];

pub(super) fn check(config: &Config, route: &Route, problems: &mut Vec<Problem>) {
    let actions: Vec<_> = [
        ("files", route.files.is_some()),
        ("proxy", route.proxy.is_some()),
        ("php", route.php.is_some()),
        ("redirect", route.redirect.is_some()),
        ("respond", route.respond.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_there)| is_there.then_some(name))
    .collect();
    match actions[..] {
        [_] => {}
        // The action may be a key that could not be read.
        [] if ACTIONS.iter().any(|name| config.may_be_set(&route.location.key(name))) => {}
        [] => {
            let problem = config.problem(&route.location, "the route has no action");
            problems.push(problem.with_hint("add one of files, proxy, php, redirect or respond"));
        }
        [first, second, ..] => {
            let problem = config.problem(
                &route.location.key(second),
                format_args!("the route has both `{first}` and `{second}`"),
            );
            problems.push(problem.with_hint("a route has one action: use two routes"));
        }
    }
    match &route.proxy {
        Some(Proxy::Named(name)) => check_name(
            config,
            name,
            &route.location.key("proxy"),
            "http://127.0.0.1:3000",
            problems,
        ),
        Some(Proxy::Own(upstream)) => {
            check_upstream(config, upstream, &route.location.key("proxy"), problems);
        }
        None => {}
    }
    if route.early_data.is_some_and(|policy| policy != EarlyData::Off)
        && config.server.early_data == EarlyData::Off
    {
        let location = route.location.key("early_data");
        let problem = config.problem(&location, "early data is off for the whole server");
        problems.push(
            problem.with_hint("set `early_data` of [server] to \"safe\", \"hold\" or \"all\""),
        );
    }
    if let Some(php) = &route.php {
        php::check(config, php, &route.location.key("php"), problems);
    }
    if let Some(redirect) = &route.redirect
        && !matches!(redirect.0.status, 301 | 302 | 303 | 307 | 308)
    {
        let problem = config.problem(
            &route.location.child(["redirect".into(), "status".into()]),
            format_args!("invalid redirect status {}", redirect.0.status),
        );
        problems
            .push(problem.with_hint("use 301 or 308 (permanent), or 302, 303 or 307 (temporary)"));
    }
    if route.matches.0.is_empty() && !config.may_be_set(&route.location.key("match")) {
        let problem = config
            .problem(&route.location.key("match"), "`match` is empty, so the route never matches");
        problems.push(problem.with_hint(
            "add a path such as \"/api/*\", or leave `match` out to match all requests",
        ));
    }
    if route.strip_prefix
        && config.is_whole
        && !route.matches.paths().any(|path| !path.prefix().is_empty())
    {
        let problem = config
            .problem(&route.location.key("strip_prefix"), "no matched path has a prefix to strip");
        problems.push(problem.with_hint("match a path such as \"/app/*\""));
    }
    upgrades::check(config, route, problems);
    check_index(config, route, problems);
    if let Some(files) = &route.files
        && let Some(fallback) = &files.0.fallback
        && (fallback.starts_with('/') || fallback.split('/').any(|part| part == ".."))
    {
        let problem = config.problem(
            &route.location.child(["files".into(), "fallback".into()]),
            format_args!("fallback {fallback:?} is outside of the folder"),
        );
        problems
            .push(problem.with_hint("use a path relative to the folder, such as \"index.html\""));
    }
}

fn check_index(config: &Config, route: &Route, problems: &mut Vec<Problem>) {
    let Some(files) = &route.files else { return };
    for (number, index) in files.0.index.iter().enumerate() {
        if index.is_empty() || index.contains('/') || matches!(&**index, "." | "..") {
            let location = route.location.child(["files".into(), "index".into(), number.into()]);
            problems.push(
                config
                    .problem(&location, format_args!("invalid index file {index:?}"))
                    .with_hint("use a name such as \"index.html\""),
            );
        }
    }
}
