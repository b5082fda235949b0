//! Checks of a configuration as a whole.

mod acme;
mod admin;
mod buffering;
mod fleet;
mod health;
mod listeners;
mod log;
mod php;
mod route;
mod sticky;
mod upgrades;
mod upstream;
mod warnings;

use std::collections::HashMap;
use std::collections::HashSet;

use self::upstream::check_upstream;
use self::warnings::{check_reach, check_spelling, check_variables};
use super::configuration::Config;
use super::location::Location;
use super::patterns::HostPattern;
use super::problem::Problem;
use super::proxy::Proxy;
use super::site::Site;

/// Adds errors to `problems`, and returns warnings about probable mistakes.
pub(crate) fn check(config: &Config, problems: &mut Vec<Problem>) -> Vec<Problem> {
    let mut warnings = Vec::new();
    listeners::check(config, problems, &mut warnings);
    admin::check(config, problems);
    acme::check(config, problems);
    fleet::check(config, problems);
    log::check(config, problems);
    for upstream in config.upstreams.values() {
        check_upstream(config, upstream, &upstream.location, problems);
    }
    let mut known: HashMap<&HostPattern, &Location> = HashMap::new();
    for site in &config.sites {
        check_site(config, site, problems);
        for (index, host) in site.hosts.iter().enumerate() {
            let location = site.location.child(["hosts".into(), index.into()]);
            if known.insert(host, &site.location).is_some() {
                let problem =
                    config.problem(&location, "duplicate host: another site already has it");
                problems.push(problem.with_hint("merge the routes into one site"));
            }
        }
        check_reach(config, site, &mut warnings);
        check_spelling(config, site, &mut warnings);
        check_variables(config, site, &mut warnings);
    }
    let used: HashSet<&str> = config
        .sites
        .iter()
        .flat_map(|site| &site.routes)
        .filter_map(|route| {
            match route.proxy.as_ref().or(route.php.as_ref().map(|php| &php.server)) {
                Some(Proxy::Named(name)) => Some(name.as_str()),
                _ => None,
            }
        })
        .collect();
    for (name, upstream) in &config.upstreams {
        if !used.contains(name.as_str()) {
            warnings.push(config.problem(
                &upstream.location,
                format_args!("unused upstream {name:?}: no route refers to it"),
            ));
        }
    }
    warnings
}

fn check_site(config: &Config, site: &Site, problems: &mut Vec<Problem>) {
    if site.hosts.is_empty() && !config.may_be_set(&site.location.key("hosts")) {
        problems.push(
            config
                .problem(&site.location.key("hosts"), "the site has no hosts")
                .with_hint("add one, or \"*\" for all hosts of no other site"),
        );
    }
    if site.tls.is_none()
        && site.http3 == Some(true)
        && !config.may_be_set(&site.location.key("tls"))
    {
        problems.push(
            config
                .problem(&site.location.key("http3"), "HTTP/3 needs a certificate")
                .with_hint("set `tls` for the site"),
        );
    }
    if site.routes.is_empty() && !config.may_be_set(&site.location.key("routes")) {
        problems.push(
            config
                .problem(&site.location, "the site has no routes")
                .with_hint("add [[sites.routes]] with files, proxy, php, redirect or respond"),
        );
    }
    for route in &site.routes {
        route::check(config, route, problems);
    }
}
