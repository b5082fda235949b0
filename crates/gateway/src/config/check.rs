//! What is wrong with a configuration as a whole.

use std::collections::HashMap;
use std::collections::HashSet;
use std::time::Duration;

use super::Place;
use super::load::Config;
use super::matches::MatchTable;
use super::patterns::HostPattern;
use super::problem::{Problem, nearest};
use super::site::{Paths, Proxy, Route, Site};
use super::upstream::{Policy, Upstream, UpstreamProtocol};
use super::values::overlap;
use crate::route_index::RouteIndex;

/// Adds what is wrong to `problems`, and returns what is probably not meant.
pub(crate) fn check(config: &Config, problems: &mut Vec<Problem>) -> Vec<Problem> {
    let mut warnings = Vec::new();
    check_listeners(config, problems, &mut warnings);
    super::admin::check(config, problems);
    super::acme::check(config, problems);
    super::log::check(config, problems);
    for upstream in config.upstreams.values() {
        check_upstream(config, upstream, &upstream.place, problems);
    }
    let mut known: HashMap<&HostPattern, &Place> = HashMap::new();
    for site in &config.sites {
        check_site(config, site, problems);
        for (index, host) in site.hosts.iter().enumerate() {
            let place = site.place.of(["hosts".into(), index.into()]);
            if known.insert(host, &site.place).is_some() {
                let problem = config.problem(&place, "this host has a site already");
                problems.push(problem.with_hint("a host belongs to one site: put the routes together"));
            }
        }
        check_reach(config, site, &mut warnings);
        check_spelling(config, site, &mut warnings);
    }
    let used: HashSet<&str> = config
        .sites
        .iter()
        .flat_map(|site| &site.routes)
        .filter_map(|route| match route.proxy.as_ref().or(route.php.as_ref().map(|php| &php.server)) {
            Some(Proxy::Named(name)) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    for (name, upstream) in &config.upstreams {
        if !used.contains(name.as_str()) {
            warnings.push(config.problem(&upstream.place, format_args!("no route asks the upstream {name:?}")));
        }
    }
    warnings
}

fn check_listeners(config: &Config, problems: &mut Vec<Problem>, warnings: &mut Vec<Problem>) {
    let listen = &config.server.listen;
    let place = Place { file: 0, path: vec!["server".into(), "listen".into()] };
    if listen.is_empty() && !config.may_have(&place) {
        problems.push(
            config.problem(&place, "there is no address to listen on").with_hint("add one, such as \"[::]:443\", or leave `listen` out"),
        );
    }
    for (index, one) in listen.iter().enumerate() {
        let Some(other) = listen[..index].iter().find(|other| overlap(other.address, one.address)) else { continue };
        let place = place.of([index.into()]);
        problems.push(if other.address == one.address {
            config.problem(&place, format_args!("{} is there twice", one.address)).with_hint("leave one out")
        } else {
            let wide = if other.address.ip().is_unspecified() { other } else { one };
            let all = if wide.address.is_ipv6() { "address of this machine" } else { "IPv4 address of this machine" };
            config
                .problem(&place, format_args!("{} and {} cannot be listened on both", other.address, one.address))
                .with_hint(format_args!("{} is each {all}: leave the other out, or choose another port", wide.address.ip()))
        });
    }
    if config.sites.is_empty() && !config.may_have(&Place { file: 0, path: vec!["sites".into()] }) {
        let place = Place { file: 0, path: Vec::new() };
        problems.push(config.problem(&place, "there is no site").with_hint("add one: [[sites]] with hosts and routes"));
    }
    // Of addresses that could not be read, nobody knows what they speak.
    let is_unknown = config.may_have(&place);
    let has_secure = is_unknown || listen.iter().any(|one| one.secure);
    let has_clear = is_unknown || listen.iter().any(|one| !one.secure);
    if config.sites.iter().all(|site| site.tls.is_none()) {
        for (index, one) in listen.iter().enumerate().filter(|(_, one)| one.secure) {
            let problem = config.problem(
                &place.of([index.into()]),
                format_args!("no TLS handshake succeeds at {}: no site has a certificate", one.address),
            );
            warnings.push(problem.with_hint(format_args!(
                "give a site one with `tls`, or name only addresses such as \"http://{}\" in `listen`",
                one.address
            )));
        }
    }
    for site in &config.sites {
        match &site.tls {
            Some(_) if !has_secure => {
                let problem = config.problem(&site.place.key("tls"), "no address speaks TLS");
                problems.push(problem.with_hint("add one such as \"[::]:443\" to `listen` in [server]"));
            }
            None if !has_clear && !config.may_have(&site.place.key("tls")) => {
                let problem = config.problem(&site.place, "the site has no certificate, and no address speaks clear text");
                problems.push(
                    problem.with_hint("give it one with `tls`, or add an address such as \"http://[::]:80\" to `listen` in [server]"),
                );
            }
            _ => {}
        }
    }
}

fn check_site(config: &Config, site: &Site, problems: &mut Vec<Problem>) {
    if site.hosts.is_empty() && !config.may_have(&site.place.key("hosts")) {
        problems.push(
            config.problem(&site.place.key("hosts"), "a site needs a host").with_hint("name one, or \"*\" for all that no other site has"),
        );
    }
    if site.tls.is_none() && site.http3 == Some(true) && !config.may_have(&site.place.key("tls")) {
        problems.push(config.problem(&site.place.key("http3"), "HTTP/3 needs a certificate").with_hint("give the site one with `tls`"));
    }
    if site.routes.is_empty() && !config.may_have(&site.place.key("routes")) {
        problems.push(
            config
                .problem(&site.place, "the site has no routes")
                .with_hint("add [[sites.routes]] with files, proxy, php, redirect or respond"),
        );
    }
    for route in &site.routes {
        check_route(config, route, problems);
    }
}

const ACTIONS: [&str; 5] = ["files", "proxy", "php", "redirect", "respond"];

fn check_route(config: &Config, route: &Route, problems: &mut Vec<Problem>) {
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
        // It may have been meant to do what could not be read.
        [] if ACTIONS.iter().any(|name| config.may_have(&route.place.key(name))) => {}
        [] => {
            let problem = config.problem(&route.place, "the route does nothing");
            problems.push(problem.with_hint("add one of files, proxy, php, redirect and respond"));
        }
        [first, second, ..] => {
            let problem = config.problem(&route.place.key(second), format_args!("the route has {first} and {second}"));
            problems.push(problem.with_hint("only one can answer: make two routes"));
        }
    }
    match &route.proxy {
        Some(Proxy::Named(name)) => check_name(config, name, &route.place.key("proxy"), "http://127.0.0.1:3000", problems),
        Some(Proxy::Own(upstream)) => check_upstream(config, upstream, &route.place.key("proxy"), problems),
        None => {}
    }
    if let Some(php) = &route.php {
        super::php::check(config, php, &route.place.key("php"), problems);
    }
    if let Some(redirect) = &route.redirect
        && !matches!(redirect.0.status, 301 | 302 | 303 | 307 | 308)
    {
        let problem =
            config.problem(&route.place.of(["redirect".into(), "status".into()]), format_args!("{} is no redirect", redirect.0.status));
        problems.push(problem.with_hint("301 and 308 are for good, 302, 303 and 307 for now"));
    }
    if route.matches.0.is_empty() && !config.may_have(&route.place.key("match")) {
        let problem = config.problem(&route.place.key("match"), "no request is meant: the list is empty");
        problems.push(problem.with_hint("name a path such as \"/api/*\", or leave `match` out for all requests"));
    }
    if route.strip_prefix && config.is_whole && !route.matches.paths().any(|path| !path.prefix().is_empty()) {
        let problem = config.problem(&route.place.key("strip_prefix"), "there is no prefix to take away");
        problems.push(problem.with_hint("match a path such as \"/app/*\""));
    }
    super::upgrades::check(config, route, problems);
    check_index(config, route, problems);
    if let Some(files) = &route.files
        && let Some(fallback) = &files.0.fallback
        && (fallback.starts_with('/') || fallback.split('/').any(|part| part == ".."))
    {
        let problem =
            config.problem(&route.place.of(["files".into(), "fallback".into()]), format_args!("{fallback:?} is not in the folder"));
        problems.push(problem.with_hint("name a file as seen from the folder, such as \"index.html\""));
    }
}

fn check_index(config: &Config, route: &Route, problems: &mut Vec<Problem>) {
    let Some(files) = &route.files else { return };
    for (number, index) in files.0.index.iter().enumerate() {
        if index.is_empty() || index.contains('/') || matches!(&**index, "." | "..") {
            let place = route.place.of(["files".into(), "index".into(), number.into()]);
            problems
                .push(config.problem(&place, format_args!("{index:?} is no name of a file")).with_hint("name one such as \"index.html\""));
        }
    }
}

/// `example`: an address that could stand there.
pub(super) fn check_name(config: &Config, name: &str, place: &Place, example: &str, problems: &mut Vec<Problem>) {
    if config.upstreams.contains_key(name) || config.has_upstream(name) {
        return;
    }
    let hint = match nearest(name, config.upstreams.keys().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("define it as [upstreams.{name}], or write an address such as {example:?}"),
    };
    problems.push(config.problem(place, format_args!("there is no upstream {name:?}")).with_hint(hint));
}

pub(super) fn check_upstream(config: &Config, upstream: &Upstream, place: &Place, problems: &mut Vec<Problem>) {
    super::health::check(config, upstream, place, problems);
    super::buffering::check(config, upstream, place, problems);
    super::sticky::check(config, upstream.sticky.as_ref(), place, problems);
    if upstream.servers.is_empty() && !config.may_have(&place.key("servers")) {
        problems.push(
            config.problem(&place.key("servers"), "an upstream needs a server").with_hint("add one, such as \"http://127.0.0.1:3000\""),
        );
    }
    if upstream.connections == 0 {
        problems.push(config.problem(&place.key("connections"), "without connections nothing can be asked").with_hint("allow at least 1"));
    }
    if config.is_whole && (upstream.policy == Policy::Header) != upstream.policy_header.is_some() {
        let problem = config.problem(&place.key("policy"), "the policy \"header\" and `policy_header` go together");
        problems.push(problem.with_hint("name the field, as in policy = \"header\", policy_header = \"x-user\""));
    }
    if upstream.requests == Some(0) {
        let problem = config.problem(&place.key("requests"), "servers that may have no request open can be asked nothing");
        problems.push(problem.with_hint("allow at least 1, or leave `requests` out"));
    }
    if upstream.resolve.0 > Duration::ZERO && upstream.resolve.0 < Duration::from_secs(1) {
        let problem = config.problem(&place.key("resolve"), "name servers would be asked all the time");
        problems.push(problem.with_hint("look names up again each second or less often, or not (0s)"));
    }
    let is_fastcgi = upstream.speaks_fastcgi();
    for (index, server) in upstream.servers.iter().enumerate() {
        let (place, address) = (place.of(["servers".into(), index.into()]), &server.0.address);
        if is_fastcgi && !address.fastcgi && address.socket.is_none() {
            let problem = config.problem(&place, format_args!("{address} speaks HTTP, and FastCGI is asked for"));
            problems.push(problem.with_hint(format_args!("write fastcgi://{}", address.authority)));
        } else if !is_fastcgi && address.fastcgi {
            let problem = config.problem(&place, format_args!("{address} speaks FastCGI, and another protocol is asked for"));
            problems.push(problem.with_hint("leave `protocol` out, or write fastcgi"));
        }
    }
    for (index, server) in upstream.servers.iter().enumerate() {
        if upstream.protocol == UpstreamProtocol::Http3 && server.0.address.socket.is_some() {
            let problem = config.problem(&place.of(["servers".into(), index.into()]), "there is no HTTP/3 over a Unix socket");
            problems.push(problem.with_hint("leave `protocol` out for HTTP/1.1, or write http2"));
        } else if upstream.protocol == UpstreamProtocol::Http3 && !server.0.address.secure {
            let problem = config.problem(&place.of(["servers".into(), index.into()]), "there is no HTTP/3 in clear text");
            problems.push(problem.with_hint(format_args!("write https://{}", server.0.address.authority)));
        }
    }
}

/// Warns of routes that no request reaches.
fn check_reach(config: &Config, site: &Site, warnings: &mut Vec<Problem>) {
    let index = RouteIndex::new(site.routes.iter().map(|route| &route.matches.0[..]));
    for (number, route) in (0..).zip(&site.routes) {
        let Some(first) = route.matches.0.first() else { continue };
        let covered = |one: &MatchTable, earlier: &Route| earlier.matches.0.iter().any(|wide| wide.covers(one));
        let takes_all = |earlier: &Route| route.matches.0.iter().all(|one| covered(one, earlier));
        // Past the routes before it the search ends; which of them it is says the route's own number.
        let found = index.find_cover(first, |(earlier, _)| earlier >= number || takes_all(&site.routes[earlier as usize]));
        if let Some((earlier, _)) = found.filter(|(earlier, _)| *earlier < number) {
            let problem =
                config.problem(&route.place, format_args!("no request gets here: route {} of the site takes them all", earlier + 1));
            warnings.push(problem.with_hint("the first route that matches answers: put this one before it"));
        }
    }
}

/// Warns of paths that are not what they look like.
fn check_spelling(config: &Config, site: &Site, warnings: &mut Vec<Problem>) {
    for route in &site.routes {
        let place = route.place.key("match");
        for path in route.matches.paths() {
            if let Some(written) = path.written() {
                let problem = config.problem(&place, format_args!("the path {written:?} is not in canonical form"));
                warnings.push(problem.with_hint(format_args!("it is compared as {:?}: write that", path.to_string())));
            }
            if path.has_separators() {
                let message =
                    format_args!("the path {:?} has an encoded slash or a backslash, which are compared decoded as well", path.to_string());
                let problem = config.problem(&place, message);
                warnings.push(problem.with_hint(match route.paths() {
                    Paths::Strict => "no request gets here with paths = \"strict\": write the path with a slash",
                    Paths::Compatible => "name the path with a slash beside it",
                }));
            }
        }
    }
}
