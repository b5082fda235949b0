//! Checks of the table `[acme]`.

use pronghorn_acme::{Invalid, check_directory, check_email, check_host};

use crate::config::acme::{Acme, AcmeChallenge, has_clear};
use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::patterns::HostPattern;
use crate::config::problem::Problem;
use crate::config::site::{Site, Tls};

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let sites: Vec<_> = config.sites.iter().filter(|site| site.tls == Some(Tls::Acme)).collect();
    let Acme { terms_agreed, email, directory, challenges, external_account, .. } = &config.acme;
    let location = |key: &str| Location { file: 0, path: vec!["acme".into(), key.into()] };
    if let Err(Invalid { message, hint }) = check_directory(directory) {
        let problem =
            config.problem(&location("directory"), format_args!("{message} {directory:?}"));
        problems.push(problem.with_hint(hint));
    }
    if let Some(Err(Invalid { message, hint })) = email.as_deref().map(check_email) {
        problems.push(config.problem(&location("email"), message).with_hint(hint));
    }
    if challenges.is_empty() {
        let problem = config.problem(
            &location("challenges"),
            "`challenges` is empty, so no certificate can be issued",
        );
        problems.push(problem.with_hint("add \"tls-alpn-01\", \"http-01\" or both"));
    }
    if external_account.as_ref().is_some_and(|account| account.decoded().is_none()) {
        let problem = config.problem(
            &location("external_account").child(["key".into()]),
            "invalid key: not base64url",
        );
        problems.push(problem.with_hint("copy it as the authority shows it"));
    }
    let Some(first) = sites.first() else { return };
    if !terms_agreed && config.is_whole {
        let problem = config.problem(
            &first.location.key("tls"),
            "ordering certificates requires agreement to the authority's terms",
        );
        problems
            .push(problem.with_hint("set `terms_agreed = true` in [acme] when you have read them"));
    }
    if config.server.state_dir.is_none() && config.is_whole {
        let problem = config.problem(
            &first.location.key("tls"),
            "missing state directory to store certificates in",
        );
        problems
            .push(problem.with_hint("set `state_dir` in [server], such as \"/var/lib/pronghorn\""));
    }
    if challenges[..] == [AcmeChallenge::Http01] && !has_clear(&config.server) {
        let problem = config.problem(
            &location("challenges"),
            "the \"http-01\" challenge needs a clear-text listener",
        );
        problems.push(problem.with_hint(
            "add one such as \"http://[::]:80\" to `listen` in [server], or use \"tls-alpn-01\"",
        ));
    }
    for site in sites {
        check_hosts(config, site, problems);
    }
}

fn check_hosts(config: &Config, site: &Site, problems: &mut Vec<Problem>) {
    for (index, host) in site.hosts.iter().enumerate() {
        let checked = match host {
            HostPattern::Exact(name) => check_host(name, &config.acme.directory),
            HostPattern::Wildcard(_) | HostPattern::Any => check_host("*", &config.acme.directory),
        };
        let Err(Invalid { message, .. }) = checked else { continue };
        let problem = config.problem(&site.location.child(["hosts".into(), index.into()]), message);
        problems.push(
            problem.with_hint("list each host, or set `tls = { cert = …, key = … }` for the site"),
        );
    }
}
