//! Unification of the forwarding fields of trusted proxies.
//!
//! Proxies describe the origin of a request in `forwarded` (RFC 7239) or in `x-forwarded-for`,
//! `-proto`, `-host` and `-port`. Applications read one family or the other, so both are made to
//! agree before anything here reads them. If a proxy sends both, `x-forwarded-*` wins: nearly all
//! proxies write these, and pass `forwarded` on as a client wrote it.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::fields::client_address::address;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// An element of `forwarded`, written by one proxy.
#[derive(Debug, Default, PartialEq, Eq)]
struct ForwardedElement {
    /// The sender of the request, unquoted: an address, with or without a port, or an obfuscated
    /// name.
    client: Option<String>,
    host: Option<String>,
    proto: Option<String>,
}

/// Makes both families of forwarding fields agree. `trusted` is the trusted proxies, which include
/// the peer.
pub(crate) fn unify(headers: &mut HeaderMap, trusted: &[IpNet]) {
    let family = [&X_FORWARDED_FOR, &X_FORWARDED_PROTO, &X_FORWARDED_HOST];
    if family.iter().any(|name| headers.contains_key(*name)) {
        headers.remove(FORWARDED);
        if let Some(line) = to_forwarded(headers) {
            headers.insert(FORWARDED, line);
        }
    } else if headers.contains_key(FORWARDED) {
        from_forwarded(headers, trusted);
    }
    complete_port(headers);
}

/// Returns whether the client used TLS, according to a trusted proxy's [unified](unify) fields.
pub(crate) fn is_secure(headers: &HeaderMap) -> Option<bool> {
    match first(headers, &X_FORWARDED_PROTO)?.to_ascii_lowercase().as_str() {
        "https" | "wss" => Some(true),
        "http" | "ws" => Some(false),
        _ => None,
    }
}

/// Builds `forwarded` from `x-forwarded-*`. Protocol and host belong to the first hop, which saw
/// the client.
fn to_forwarded(headers: &HeaderMap) -> Option<HeaderValue> {
    let clients = headers
        .get_all(X_FORWARDED_FOR)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    let mut elements: Vec<_> =
        clients.map(|client| format!("for={}", quoted(&node(client.trim())))).collect();
    let parameters = [(&X_FORWARDED_HOST, "host"), (&X_FORWARDED_PROTO, "proto")];
    let said = parameters
        .iter()
        .filter_map(|(name, key)| Some(format!("{key}={}", quoted(first(headers, name)?))));
    let said = said.collect::<Vec<_>>().join(";");
    match elements.first_mut() {
        Some(element) if !said.is_empty() => *element = format!("{element};{said}"),
        Some(_) => {}
        None => elements.push(said),
    }
    HeaderValue::try_from(elements.join(", ")).ok()
}

/// Formats a client for `forwarded` (RFC 7239, section 6): IPv6 addresses in brackets, and anything
/// that is not an address as `unknown`.
fn node(client: &str) -> String {
    match address(client) {
        Some(IpAddr::V6(address)) => format!("[{address}]"),
        Some(address) => address.to_string(),
        None => "unknown".to_owned(),
    }
}

/// Quotes a value unless it is a token.
fn quoted(value: &str) -> String {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_token) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Sets `x-forwarded-*` from `forwarded`, or removes a malformed `forwarded`.
fn from_forwarded(headers: &mut HeaderMap, trusted: &[IpNet]) {
    let lines: Option<Vec<_>> =
        headers.get_all(FORWARDED).iter().map(|line| parse(line.to_str().ok()?)).collect();
    let Some(hops) = lines.map(|lines| lines.into_iter().flatten().collect::<Vec<_>>()) else {
        headers.remove(FORWARDED);
        return;
    };
    let mut insert = |name: &HeaderName, value: Option<&str>| {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    };
    let plain = |client: &String| {
        address(client).map_or_else(|| client.clone(), |address| address.to_string())
    };
    let clients: Vec<_> = hops
        .iter()
        .map(|hop| hop.client.as_ref().map_or_else(|| "unknown".to_owned(), plain))
        .collect();
    if hops.iter().any(|hop| hop.client.is_some()) {
        insert(&X_FORWARDED_FOR, Some(&clients.join(", ")));
    }
    // Protocol and host are those of the outermost trusted proxy, which saw the client. Earlier
    // elements may be forged.
    let is_proxy = |hop: &&ForwardedElement| {
        hop.client
            .as_deref()
            .and_then(address)
            .is_some_and(|hop| trusted.iter().any(|net| net.contains(&hop)))
    };
    if let Some(hop) = hops.iter().rev().find(|hop| !is_proxy(hop)).or(hops.first()) {
        insert(&X_FORWARDED_PROTO, hop.proto.as_deref());
        insert(&X_FORWARDED_HOST, hop.host.as_deref());
    }
}

/// Sets the port: that of the forwarded host, or the default of the forwarded protocol. This
/// server's own port may differ.
fn complete_port(headers: &mut HeaderMap) {
    if headers.contains_key(X_FORWARDED_PORT) {
        return;
    }
    let named = first(headers, &X_FORWARDED_HOST)
        .and_then(|host| host.rsplit_once(':')?.1.parse::<u16>().ok());
    let usual = || is_secure(headers).map(|secure| if secure { 443 } else { 80 });
    if let Some(port) = named.or_else(usual) {
        headers.insert(X_FORWARDED_PORT, port.into());
    }
}

/// Returns the first element of a list.
fn first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers
        .get(name)?
        .to_str()
        .ok()?
        .split(',')
        .next()
        .map(str::trim)
        .filter(|first| !first.is_empty())
}

/// Parses a line of `forwarded`; `None` if it is malformed.
fn parse(line: &str) -> Option<Vec<ForwardedElement>> {
    let mut hops = Vec::new();
    for element in split(line, b',')? {
        let mut hop = ForwardedElement::default();
        for pair in split(element, b';')? {
            let pair = pair.trim();
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=')?;
            let place = match name.trim().to_ascii_lowercase().as_str() {
                "for" => &mut hop.client,
                "host" => &mut hop.host,
                "proto" => &mut hop.proto,
                _ => continue,
            };
            // RFC 7239, section 4: each parameter occurs at most once.
            if place.replace(unquoted(value.trim())).is_some() {
                return None;
            }
        }
        hops.push(hop);
    }
    Some(hops)
}

/// Splits at separators outside of quotes; `None` if a quoted string is not terminated.
fn split(text: &str, separator: u8) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            byte if byte == separator && !is_quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!is_quoted).then_some(parts)
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        plain.push(if character == '\\' { characters.next().unwrap_or('\\') } else { character });
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the unified fields, sorted by name.
    fn unified(lines: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        unify(&mut headers, &["10.0.0.0/8".parse().expect("a network")]);
        let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
        let mut fields: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        fields.sort();
        fields
    }

    fn check(lines: &[(&'static str, &str)], wanted: &[(&str, &str)]) {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(unified(lines), wanted, "{lines:?}");
    }

    #[test]
    fn forwarded_alone_is_said_in_the_other_fields_too() {
        let said = "for=203.0.113.7;proto=https;host=a.example";
        check(
            &[("forwarded", said)],
            &[
                ("forwarded", said),
                ("x-forwarded-for", "203.0.113.7"),
                ("x-forwarded-host", "a.example"),
                ("x-forwarded-port", "443"),
                ("x-forwarded-proto", "https"),
            ],
        );
        let said = "For=\"[2001:db8::7]:4000\"; Proto=http; Host=\"a.example:8080\"";
        check(
            &[("forwarded", said)],
            &[
                ("forwarded", said),
                ("x-forwarded-for", "2001:db8::7"),
                ("x-forwarded-host", "a.example:8080"),
                ("x-forwarded-port", "8080"),
                ("x-forwarded-proto", "http"),
            ],
        );
    }

    #[test]
    fn protocol_is_that_of_the_outermost_trusted_proxy() {
        let said = "for=1.1.1.1;proto=http, for=198.51.100.7;proto=https, for=10.1.1.1;proto=http";
        check(
            &[("forwarded", said)],
            &[
                ("forwarded", said),
                ("x-forwarded-for", "1.1.1.1, 198.51.100.7, 10.1.1.1"),
                ("x-forwarded-port", "443"),
                ("x-forwarded-proto", "https"),
            ],
        );
    }

    #[test]
    fn other_fields_alone_are_said_in_forwarded_too() {
        check(
            &[
                ("x-forwarded-for", "203.0.113.7, 10.1.1.1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "a.example:8443"),
            ],
            &[
                ("forwarded", "for=203.0.113.7;host=\"a.example:8443\";proto=https, for=10.1.1.1"),
                ("x-forwarded-for", "203.0.113.7, 10.1.1.1"),
                ("x-forwarded-host", "a.example:8443"),
                ("x-forwarded-port", "8443"),
                ("x-forwarded-proto", "https"),
            ],
        );
        check(
            &[("x-forwarded-proto", "https")],
            &[
                ("forwarded", "proto=https"),
                ("x-forwarded-port", "443"),
                ("x-forwarded-proto", "https"),
            ],
        );
        check(
            &[("x-forwarded-for", "2001:db8::7, a\"b")],
            &[
                ("forwarded", "for=\"[2001:db8::7]\", for=unknown"),
                ("x-forwarded-for", "2001:db8::7, a\"b"),
            ],
        );
    }

    #[test]
    fn of_both_the_usual_ones_count() {
        check(
            &[("forwarded", "for=6.6.6.6;proto=https"), ("x-forwarded-for", "203.0.113.7")],
            &[("forwarded", "for=203.0.113.7"), ("x-forwarded-for", "203.0.113.7")],
        );
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        for wrong in ["for=\"1.2.3.4", "for=1.2.3.4;for=5.6.7.8", "nonsense", "for=1.2.3.4, x"] {
            check(&[("forwarded", wrong)], &[]);
        }
        check(&[("forwarded", "proto=https"), ("forwarded", "\"")], &[]);
    }

    proptest! {
        #[test]
        fn whatever_is_sent_stays_readable(line in "[ -~]{0,40}", other in "[ -~]{0,20}") {
            for lines in [vec![("forwarded", &*line)], vec![("x-forwarded-for", &*line), ("x-forwarded-proto", &*other)]] {
                for (name, value) in unified(&lines) {
                    if name == "forwarded" {
                        prop_assert!(parse(&value).is_some(), "{value}");
                    }
                }
            }
        }
    }
}
