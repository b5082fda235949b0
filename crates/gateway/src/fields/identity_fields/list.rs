//! The list of identity fields.

use super::kind::Kind;

/// Returns the kind of a field with a plain name. Called for each field of each request: the first
/// two letters distinguish nearly all of them.
pub(super) fn kind_of(name: &str) -> Option<Kind> {
    let &[first, second, ..] = name.as_bytes() else { return None };
    match [first, second] {
        [b'x', b'-'] => with_x(&name[2..]),
        [b'a', b'u'] if name == "auth-user" => Some(Kind::Asserted),
        [b'c', b'd'] if name == "cdn-src-ip" => Some(Kind::Forwarding),
        [b'c', b'f'] => match name {
            "cf-connecting-ip" | "cf-connecting-ipv6" | "cf-pseudo-ipv4" | "cf-visitor" => {
                Some(Kind::Forwarding)
            }
            "cf-access-authenticated-user-email" => Some(Kind::Asserted),
            _ => None,
        },
        [b'c', b'l'] => match name {
            "client-ip" | "cloudfront-viewer-address" | "cloudfront-forwarded-proto" => {
                Some(Kind::Forwarding)
            }
            _ => starts(name, "client-cert").then_some(Kind::Asserted),
        },
        [b'd', b'o'] if name == "do-connecting-ip" => Some(Kind::Forwarding),
        [b'e', b'a'] if name == "early-data" => Some(Kind::Forwarding),
        [b'f', b'o' | b'a' | b'r' | b'l'] => matches!(
            name,
            "forwarded"
                | "forwarded-for"
                | "fastly-client-ip"
                | "front-end-https"
                | "fly-client-ip"
        )
        .then_some(Kind::Forwarding),
        [b'h', b't'] if name == "http-method-override" => Some(Kind::Target),
        [b'i', b'm'] if starts(name, "impersonate-") => Some(Kind::Asserted),
        [b'i', b'n'] if name == "incap-client-ip" => Some(Kind::Forwarding),
        [b'o', b'i'] if starts(name, "oidc-") => Some(Kind::Asserted),
        [b'p', b'r'] => match name {
            // CGI programs would use it as their outgoing proxy: CVE-2016-5385 (httpoxy).
            "proxy" => Some(Kind::Forbidden),
            "proxy-client-ip" | "proxy-remote-addr" => Some(Kind::Forwarding),
            _ => None,
        },
        [b'r', b'e'] => match name {
            "remote-addr" | "remote-host" | "remote-ip" | "remote-port" => Some(Kind::Forwarding),
            "remote-user" | "remote-group" | "remote-groups" | "remote-name" | "remote-email"
            | "remote-ident" => Some(Kind::Asserted),
            _ => None,
        },
        [b's', b's'] if starts(name, "ssl-client") => Some(Kind::Asserted),
        [b't', b'r'] => match name {
            "true-client-ip" => Some(Kind::Forwarding),
            // Request trailers are not forwarded.
            "trailer" => Some(Kind::Forbidden),
            _ => None,
        },
        [b't', b'a'] if starts(name, "tailscale-user-") => Some(Kind::Asserted),
        [b'w', b'l'] => {
            matches!(name, "wl-proxy-client-ip" | "wl-proxy-ssl" | "wl-proxy-client-cert")
                .then_some(Kind::Forwarding)
        }
        _ => None,
    }
}

/// Returns the kind of an `x-` field; `name` is without `x-`.
fn with_x(name: &str) -> Option<Kind> {
    match name {
        "forwarded-user"
        | "forwarded-groups"
        | "forwarded-email"
        | "forwarded-preferred-username"
        | "forwarded-access-token"
        | "forwarded-client-cert" => return Some(Kind::Asserted),
        "original-url" | "original-uri" | "original-method" | "original-path" | "rewrite-url" | "rewrite-uri" | "override-url"
        | "http-method-override" | "http-method" | "method-override" | "http-path-override" | "rewrite-path" | "envoy-original-path"
        | "waws-unencoded-url" | "http-destinationurl"
        // Rack::Sendfile (CVE-2025-61780) lets the client choose the files to send.
        | "sendfile-type" | "accel-mapping" => {
            return Some(Kind::Target);
        }
        "forwarded"
        | "real-ip"
        | "client-ip"
        | "cluster-client-ip"
        | "azure-clientip"
        | "azure-socketip"
        | "appengine-user-ip"
        | "envoy-external-address"
        | "envoy-internal"
        | "forward-for"
        | "sucuri-clientip"
        | "arr-ssl"
        | "nf-client-connection-ip"
        | "vercel-forwarded-for"
        | "original-for"
        | "original-forwarded-for"
        | "original-host"
        | "original-proto"
        | "original-remote-addr"
        | "originating-ip"
        | "remote-ip"
        | "remote-addr"
        | "remote-host"
        | "proxyuser-ip"
        | "host"
        | "http-host-override"
        | "host-override"
        | "scheme"
        | "url-scheme" => return Some(Kind::Forwarding),
        "remote-user" | "remote-group" | "remote-groups" | "remote-name" | "remote-email" | "remote-uid" | "webauth-user" | "auth-user"
        | "proxy-user" | "vouch-user" | "arr-clientcert" | "client-verify" | "client-dn" | "cert" => {
            return Some(Kind::Asserted);
        }
        _ => {}
    }
    match name.as_bytes().first()? {
        b'f' if starts(name, "forwarded-tls-client-cert") => Some(Kind::Asserted),
        b'f' if starts(name, "forwarded-") => Some(Kind::Forwarding),
        b'c' if starts(name, "client-cert") => Some(Kind::Asserted),
        b's' if starts(name, "ssl-") => Some(Kind::Asserted),
        b't' if starts(name, "tls-client-") => Some(Kind::Asserted),
        b'a' if ["amzn-mtls-", "amzn-oidc-", "auth-request-", "authenticated-", "authentik-"]
            .iter()
            .any(|prefix| starts(name, prefix)) =>
        {
            Some(Kind::Asserted)
        }
        b'c' if starts(name, "consumer-") => Some(Kind::Asserted),
        b'p' if starts(name, "pomerium-") => Some(Kind::Asserted),
        b'r' if starts(name, "remote-extra-") => Some(Kind::Asserted),
        b'g' if starts(name, "goog-authenticated-user-") => Some(Kind::Asserted),
        b'm' if starts(name, "ms-client-principal") => Some(Kind::Asserted),
        // Next.js (CVE-2025-29927) treats it as an internal, already authorised request.
        b'm' if starts(name, "middleware-") => Some(Kind::Target),
        _ => None,
    }
}

fn starts(name: &str, with: &str) -> bool {
    name.starts_with(with)
}
