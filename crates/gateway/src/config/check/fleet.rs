//! Checks of the table `[fleet]`.

use std::time::Duration;

use crate::config::configuration::Config;
use crate::config::fleet::{KeyLocation, SecretsSource};
use crate::config::location::Location;
use crate::config::problem::Problem;
use crate::config::site::Tls;

const NODE_BYTES: usize = 64;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let fleet = &config.fleet;
    let location = Location { file: 0, path: vec!["fleet".into()] };
    let mut problem = |key: &[&'static str], message: &str, hint: &str| {
        let location = key.iter().fold(location.clone(), |location, key| location.key(key));
        problems.push(config.problem(&location, message).with_hint(hint));
    };
    let is_valid = |node: &str| {
        let letters =
            node.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        !node.is_empty() && node.len() <= NODE_BYTES && letters
    };
    if fleet.node.as_deref().is_some_and(|node| !is_valid(node)) {
        problem(
            &["node"],
            "invalid name of a server",
            "use up to 64 letters, digits, dots, hyphens and underscores",
        );
    }
    for (name, signer) in &fleet.signers {
        if signer.addresses.is_empty() {
            problems.push(
                config
                    .problem(
                        &location.key("signers").child([name.as_str().into()]),
                        "missing address of the signer",
                    )
                    .with_hint("add one to `addresses`, such as \"10.0.0.7:2407\""),
            );
        }
    }
    check_keys(config, problems);
    let mut problem = |key: &[&'static str], message: &str, hint: &str| {
        let location = key.iter().fold(location.clone(), |location, key| location.key(key));
        problems.push(config.problem(&location, message).with_hint(hint));
    };
    let Some(sessions) = &fleet.sessions else {
        if fleet.secrets == Some(SecretsSource::Redis) {
            problem(
                &["secrets"],
                "secrets in Redis need the Redis of the sessions",
                "add [fleet.sessions], or name a file",
            );
        }
        return;
    };
    if fleet.secrets.is_none() && !config.may_be_set(&location.key("secrets")) {
        problem(
            &["sessions"],
            "shared sessions need shared secrets, which seal them",
            "set `secrets` in [fleet] to a file that all servers have",
        );
    }
    if sessions.redis.is_empty() && !config.may_be_set(&location.key("sessions").key("redis")) {
        problem(
            &["sessions"],
            "missing address of Redis",
            "set `redis` in [fleet.sessions], such as [\"redis://10.0.0.5:6379\"]",
        );
    }
    if sessions.sentinel.is_some() && sessions.cluster {
        problem(
            &["sessions", "cluster"],
            "a Redis Cluster has no Sentinels",
            "remove `cluster` or `sentinel`",
        );
    }
    if sessions.replicas > 100 {
        problem(&["sessions", "replicas"], "invalid number of replicas", "use at most 100");
    }
    let times = Duration::from_millis(1)..=Duration::from_secs(10);
    if !times.contains(&sessions.timeout.0) {
        problem(
            &["sessions", "timeout"],
            "invalid time to wait for Redis",
            "use a time from 1ms to 10s: each handshake that offers a session may wait as long",
        );
    }
}

/// Checks where the keys of the sites' certificates are.
fn check_keys(config: &Config, problems: &mut Vec<Problem>) {
    for site in &config.sites {
        let Some(Tls::Files(tls)) = &site.tls else { continue };
        let location = site.location.key("tls");
        if tls.key.is_some() != tls.keys.is_empty() {
            let message = match tls.key {
                Some(_) => "a certificate has either `key` or `keys`",
                None => "missing key of the certificate",
            };
            let problem = config.problem(&location, message);
            problems
                .push(problem.with_hint("set `key` to its file, or list where it is in `keys`"));
        }
        for key in &tls.keys {
            if let KeyLocation::Signer(name) = key
                && !config.fleet.signers.contains_key(name)
            {
                let problem = config.problem(&location, format_args!("unknown signer {name:?}"));
                problems
                    .push(problem.with_hint("add it as a table of this name to [fleet.signers]"));
            }
        }
    }
}
