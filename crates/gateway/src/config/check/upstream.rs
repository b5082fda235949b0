//! Checks of upstreams.

use std::time::Duration;

use super::{buffering, health, sticky};
use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::problem::{Problem, nearest};
use crate::config::upstream::{Policy, Upstream, UpstreamProtocol};

/// `example`: an address that is valid at this location.
pub(super) fn check_name(
    config: &Config,
    name: &str,
    location: &Location,
    example: &str,
    problems: &mut Vec<Problem>,
) {
    if config.upstreams.contains_key(name) || config.has_upstream(name) {
        return;
    }
    let hint = match nearest(name, config.upstreams.keys().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("define it as [upstreams.{name}], or use an address such as {example:?}"),
    };
    problems
        .push(config.problem(location, format_args!("unknown upstream {name:?}")).with_hint(hint));
}

pub(super) fn check_upstream(
    config: &Config,
    upstream: &Upstream,
    location: &Location,
    problems: &mut Vec<Problem>,
) {
    health::check(config, upstream, location, problems);
    buffering::check(config, upstream, location, problems);
    sticky::check(config, upstream.sticky.as_ref(), location, problems);
    if upstream.servers.is_empty() && !config.may_be_set(&location.key("servers")) {
        problems.push(
            config
                .problem(&location.key("servers"), "the upstream has no servers")
                .with_hint("add one, such as \"http://127.0.0.1:3000\""),
        );
    }
    if upstream.connections == 0 {
        problems.push(
            config
                .problem(&location.key("connections"), "`connections` must not be 0")
                .with_hint("allow at least 1"),
        );
    }
    if config.is_whole && (upstream.policy == Policy::Header) != upstream.policy_header.is_some() {
        let problem = config.problem(
            &location.key("policy"),
            "policy \"header\" and `policy_header` require each other",
        );
        problems.push(
            problem.with_hint("set both, as in policy = \"header\", policy_header = \"x-user\""),
        );
    }
    if upstream.requests == Some(0) {
        let problem = config.problem(&location.key("requests"), "`requests` must not be 0");
        problems.push(problem.with_hint("allow at least 1, or leave `requests` out"));
    }
    if upstream.resolve.0 > Duration::ZERO && upstream.resolve.0 < Duration::from_secs(1) {
        let problem = config.problem(&location.key("resolve"), "`resolve` is too short");
        problems
            .push(problem.with_hint("use at least 1s, or 0s to resolve only for new connections"));
    }
    let is_fastcgi = upstream.speaks_fastcgi();
    for (index, server) in upstream.servers.iter().enumerate() {
        let (location, address) =
            (location.child(["servers".into(), index.into()]), &server.0.address);
        if is_fastcgi && !address.fastcgi && address.socket.is_none() {
            let problem = config.problem(
                &location,
                format_args!("{address} is an HTTP server, but the upstream uses FastCGI"),
            );
            problems.push(problem.with_hint(format_args!("use fastcgi://{}", address.authority)));
        } else if !is_fastcgi && address.fastcgi {
            let problem = config.problem(
                &location,
                format_args!("{address} is a FastCGI server, but `protocol` is another"),
            );
            problems.push(problem.with_hint("leave `protocol` out, or set it to fastcgi"));
        }
    }
    for (index, server) in upstream.servers.iter().enumerate() {
        if upstream.protocol == UpstreamProtocol::Http3 && server.0.address.socket.is_some() {
            let problem = config.problem(
                &location.child(["servers".into(), index.into()]),
                "HTTP/3 is not possible over a Unix socket",
            );
            problems
                .push(problem.with_hint("leave `protocol` out for HTTP/1.1, or set it to http2"));
        } else if upstream.protocol == UpstreamProtocol::Http3 && !server.0.address.secure {
            let problem = config
                .problem(&location.child(["servers".into(), index.into()]), "HTTP/3 requires TLS");
            problems.push(
                problem.with_hint(format_args!("use https://{}", server.0.address.authority)),
            );
        }
    }
}
