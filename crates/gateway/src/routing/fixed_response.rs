//! Actions that answer immediately.

use http::header::{CONTENT_TYPE, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Uri};
use pronghorn_engine::Response;

use super::action::ActionPlan;
use crate::responses::text;
use crate::routing::canonical;

impl ActionPlan {
    /// Returns the response of an action that needs no other component.
    pub(crate) fn fixed_response(&self, uri: &Uri) -> Response {
        match self {
            Self::Respond { status, content_type, body } => Response::new(*status)
                .with_header(CONTENT_TYPE, content_type.clone())
                .with_body(body.clone()),
            Self::Redirect { to, status } => redirect(to, *status, uri),
            Self::Files(_) | Self::Proxy(_) | Self::Application(_) => {
                text(StatusCode::INTERNAL_SERVER_ERROR, "not started\n")
            }
        }
    }
}

fn redirect(to: &str, status: StatusCode, uri: &Uri) -> Response {
    let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    // In this order: a host has no braces, and a client's target must not be treated as a template.
    let location = match uri.port_u16().filter(|_| keeps_port(to, uri)) {
        Some(port) => {
            to.replacen("{host}", &format!("{}:{port}", uri.host().unwrap_or_default()), 1)
        }
        None => to.to_owned(),
    };
    let location =
        location.replace("{host}", uri.host().unwrap_or_default()).replace("{path}", target);
    // The configuration may name another host with two slashes; a client's target may not.
    let location = if to.starts_with("//") { location } else { canonical::location(location) };
    match HeaderValue::try_from(location) {
        Ok(location) => text(status, "moved\n").with_header(LOCATION, location),
        Err(_) => text(StatusCode::BAD_REQUEST, "invalid path\n"),
    }
}

/// Returns whether the first `{host}` ends the host of a URL with the request's scheme, so that the
/// port applies to it.
fn keeps_port(to: &str, uri: &Uri) -> bool {
    let Some((scheme, rest)) = to.split_once("//") else { return false };
    let Some((before, after)) = rest.split_once("{host}") else { return false };
    let is_same = scheme.is_empty()
        || scheme.strip_suffix(':').is_some_and(|scheme| uri.scheme_str() == Some(scheme));
    let is_end =
        after.is_empty() || after.starts_with(['/', '?', '#']) || after.starts_with("{path}");
    is_same && is_end && !before.contains(['/', '?', '#', '{'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_the_port_where_it_leads_to_the_same_server() {
        for (to, wanted) in [
            ("https://{host}/z{path}", "https://old.example:8443/z/a"),
            ("https://www.{host}{path}", "https://www.old.example:8443/a"),
            ("//{host}", "//old.example:8443"),
            ("https://{host}?{host}", "https://old.example:8443?old.example"),
            // Another scheme, another port or another host.
            ("http://{host}{path}", "http://old.example/a"),
            ("https://{host}:9443{path}", "https://old.example:9443/a"),
            ("https://{host}.backup.example{path}", "https://old.example.backup.example/a"),
            ("https://new.example/{host}", "https://new.example/old.example"),
            ("/{host}", "/old.example"),
        ] {
            let answer =
                redirect(to, StatusCode::FOUND, &Uri::from_static("https://old.example:8443/a"));
            assert_eq!(
                answer.headers.get(LOCATION).map(HeaderValue::as_bytes),
                Some(wanted.as_bytes()),
                "{to}"
            );
        }
    }

    #[test]
    fn redirect_leads_to_another_host_only_where_it_names_one() {
        for (to, target, wanted) in [
            ("{path}", "/a?b", "/a?b"),
            ("{path}", "//evil.example", "/evil.example"),
            ("/{path}", "/evil.example", "/evil.example"),
            ("/x{path}", "/a", "/x/a"),
            ("https://new.example{path}", "/a", "https://new.example/a"),
            ("https://{host}{path}", "/a", "https://old.example/a"),
            ("//new.example{path}", "/a", "//new.example/a"),
        ] {
            let uri: Uri = format!("https://old.example{target}").parse().expect("a target");
            let answer = redirect(to, StatusCode::FOUND, &uri);
            assert_eq!(
                answer.headers.get(LOCATION).map(HeaderValue::as_bytes),
                Some(wanted.as_bytes()),
                "{to} {target}"
            );
        }
    }
}
