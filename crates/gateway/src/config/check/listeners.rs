//! Checks of the listeners, and that sites have the listeners they need.

use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::values::overlap;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>, warnings: &mut Vec<Problem>) {
    let listen = &config.server.listen;
    let location = Location { file: 0, path: vec!["server".into(), "listen".into()] };
    if listen.is_empty() && !config.may_be_set(&location) {
        problems.push(
            config
                .problem(&location, "`listen` is empty")
                .with_hint("add an address such as \"[::]:443\", or leave `listen` out"),
        );
    }
    for (index, one) in listen.iter().enumerate() {
        let Some(other) = listen[..index].iter().find(|other| overlap(other.address, one.address))
        else {
            continue;
        };
        let location = location.child([index.into()]);
        problems.push(if other.address == one.address {
            config
                .problem(&location, format_args!("duplicate listen address {}", one.address))
                .with_hint("remove one")
        } else {
            let wide = if other.address.ip().is_unspecified() { other } else { one };
            let all = if wide.address.is_ipv6() {
                "address of this machine"
            } else {
                "IPv4 address of this machine"
            };
            config
                .problem(
                    &location,
                    format_args!("listen addresses {} and {} overlap", other.address, one.address),
                )
                .with_hint(format_args!(
                    "{} covers every {all}: remove the other, or use another port",
                    wide.address.ip()
                ))
        });
    }
    if config.sites.is_empty()
        && !config.may_be_set(&Location { file: 0, path: vec!["sites".into()] })
    {
        let location = Location { file: 0, path: Vec::new() };
        problems.push(
            config
                .problem(&location, "no sites are configured")
                .with_hint("add [[sites]] with hosts and routes"),
        );
    }
    // The protocol of an address that could not be read is unknown.
    let is_unknown = config.may_be_set(&location);
    let has_secure = is_unknown || listen.iter().any(|one| one.secure);
    let has_clear = is_unknown || listen.iter().any(|one| !one.secure);
    if config.sites.iter().all(|site| site.tls.is_none()) {
        for (index, one) in listen.iter().enumerate().filter(|(_, one)| one.secure) {
            let problem = config.problem(
                &location.child([index.into()]),
                format_args!(
                    "TLS handshakes at {} will fail: no site has a certificate",
                    one.address
                ),
            );
            warnings.push(problem.with_hint(format_args!(
                "set `tls` for a site, or use only addresses such as \"http://{}\" in `listen`",
                one.address
            )));
        }
    }
    for site in &config.sites {
        match &site.tls {
            Some(_) if !has_secure => {
                let problem = config.problem(&site.location.key("tls"), "no listener uses TLS");
                problems.push(
                    problem.with_hint("add one such as \"[::]:443\" to `listen` in [server]"),
                );
            }
            None if !has_clear && !config.may_be_set(&site.location.key("tls")) => {
                let problem = config.problem(
                    &site.location,
                    "the site has no certificate, and no listener uses clear text",
                );
                problems.push(problem.with_hint(
                    "set `tls` for the site, or add an address such as \"http://[::]:80\" to \
                        `listen` in [server]",
                ));
            }
            _ => {}
        }
    }
}
