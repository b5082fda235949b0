//! Checks of a route's upgrades and kept fields.

use crate::config::configuration::Config;
use crate::config::problem::Problem;
use crate::config::proxy::Proxy;
use crate::config::site::Route;
use crate::config::upstream::Upstream;
use crate::config::values::FieldName;
use crate::fields::identity_fields::{self, Kind, folded};

/// Adds errors in a route's upgrades and kept fields.
pub(super) fn check(config: &Config, route: &Route, problems: &mut Vec<Problem>) {
    let is_fastcgi = match &route.proxy {
        Some(Proxy::Named(name)) => {
            config.upstreams.get(name).is_some_and(Upstream::speaks_fastcgi)
        }
        Some(Proxy::Own(upstream)) => upstream.speaks_fastcgi(),
        None => route.php.is_some(),
    };
    if route.upgrades.is_some() && (route.proxy.is_none() || is_fastcgi) && config.is_whole {
        let problem = config.problem(
            &route.location.key("upgrades"),
            "`upgrades` requires a route with `proxy` over HTTP",
        );
        problems
            .push(problem.with_hint("leave `upgrades` out, or set `proxy` to a server over HTTP"));
    }
    if route.upgrades.as_ref().is_some_and(|upgrades| upgrades.idle_timeout.0.is_zero()) {
        let problem = config.problem(
            &route.location.child(["upgrades".into(), "idle_timeout".into()]),
            "`idle_timeout` must not be 0",
        );
        problems.push(problem.with_hint("use a time such as \"5m\""));
    }
    for (index, field) in route.keep_fields.iter().enumerate() {
        if let Some((message, hint)) = kept_field_error(config, route, field, is_fastcgi) {
            let problem = config
                .problem(&route.location.child(["keep_fields".into(), index.into()]), message);
            problems.push(problem.with_hint(hint));
        }
    }
}

/// Returns why a route cannot keep a field, and what to do.
fn kept_field_error(
    config: &Config,
    route: &Route,
    field: &FieldName,
    is_fastcgi: bool,
) -> Option<(String, &'static str)> {
    let name = field.name();
    let name = name.as_str();
    let changed = || route.request_headers.remove.iter().chain(route.request_headers.set.keys());
    if let Some(other) = changed().find(|other| folded(other.name().as_str()) == folded(name)) {
        let message = format!(
            "applications may confuse {name} with {}, which `request_headers` removes or sets",
            other.name()
        );
        return Some((message, "remove one of the two"));
    }
    match identity_fields::kind(name) {
        None => Some((format!("{name} is always kept"), "leave it out")),
        Some(Kind::Forwarding) => Some((
            format!("{name} is kept only from trusted proxies"),
            "list the proxy in `trusted_proxies` of [server]",
        )),
        Some(Kind::Forbidden) => Some((
            format!(
                "{name} is never accepted: applications would read it as another field, or as a \
                    proxy to use"
            ),
            "leave it out",
        )),
        Some(Kind::Asserted) if config.server.trusted_proxies.is_empty() => Some((
            format!("{name} identifies a client, and is kept only from trusted proxies"),
            "list the proxy that sets it in `trusted_proxies` of [server]",
        )),
        Some(Kind::Unusual) if is_fastcgi => Some((
            format!(
                "{name} cannot be passed over FastCGI: it becomes the same variable as {}",
                folded(name)
            ),
            "have clients use a name of letters, digits and dashes",
        )),
        Some(Kind::Asserted | Kind::Target | Kind::Unusual) => None,
    }
}
