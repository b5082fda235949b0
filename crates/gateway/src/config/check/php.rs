//! Checks of a `php` action.

use super::upstream::{check_name, check_upstream};
use crate::application::scripts::is_script;
use crate::config::configuration::Config;
use crate::config::location::Location;
use crate::config::php::Php;
use crate::config::problem::Problem;
use crate::config::proxy::Proxy;

pub(super) fn check(config: &Config, php: &Php, location: &Location, problems: &mut Vec<Problem>) {
    let server = location.key("server");
    if let Proxy::Named(name) = &php.server {
        check_name(config, name, &server, "unix:/run/php/php-fpm.sock", problems);
    }
    if let Some(upstream) = php.upstream(&config.upstreams) {
        if !upstream.speaks_fastcgi() {
            let hint = match &php.server {
                Proxy::Named(name) => {
                    format!("set protocol = \"fastcgi\" in [upstreams.{name}]")
                }
                Proxy::Own(_) => "leave `protocol` out".to_owned(),
            };
            problems.push(
                config
                    .problem(
                        &server,
                        "`php` requires FastCGI, but this upstream uses another protocol",
                    )
                    .with_hint(hint),
            );
        } else if let Proxy::Own(_) = &php.server {
            check_upstream(config, &upstream, &server, problems);
        }
    }
    for (key, names) in
        [("index", &php.index[..]), ("fallback", std::slice::from_ref(&php.fallback))]
    {
        for name in names {
            let is_below =
                !name.starts_with('/') && !name.split('/').any(|part| matches!(part, "." | ".."));
            let is_name = is_below
                && !name.ends_with('/')
                && (key == "fallback" || !name.is_empty() && !name.contains('/'));
            let is_run = key == "index" || name.is_empty() || is_script(name.as_bytes());
            if !is_name || !is_run {
                let problem = config.problem(
                    &location.key(key),
                    format_args!(
                        "invalid {} name {name:?}",
                        if key == "index" { "file" } else { "script" }
                    ),
                );
                problems.push(
                    problem.with_hint("use a name relative to the folder, such as \"index.php\""),
                );
            }
        }
    }
    if php.script_root.as_ref().is_some_and(|root| !root.is_absolute()) {
        let problem =
            config.problem(&location.key("script_root"), "`script_root` is not an absolute path");
        problems.push(problem.with_hint("use the absolute path as PHP-FPM sees it"));
    }
}
