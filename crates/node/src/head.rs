//! The head of a request as one string, for the framework interfaces.
//! `packages/pronghorn/lib/head.js` parses it.

use std::net::{Ipv4Addr, SocketAddr};

use http::uri::Authority;
use http::{HeaderMap, Method};
use pronghorn_engine::Protocol;
use rustls::CipherSuite;

use crate::exchange::Exchange;

/// Methods by their index in `packages/pronghorn/lib/head.js`.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::OPTIONS,
    Method::PATCH,
];
/// Maximum size of the buffer kept for the next head.
const KEPT_BYTES: usize = 16 << 10;
/// Cipher suites by their index in `packages/pronghorn/lib/head.js`, which has clear text first.
const SUITES: [CipherSuite; 9] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Writes heads into a reused buffer.
#[derive(Default)]
pub(crate) struct HeadText {
    bytes: Vec<u8>,
    /// The client of the last head, and its text. Consecutive requests often have the same client.
    client: Option<(SocketAddr, String)>,
}

impl HeadText {
    /// Returns the head, a character for each byte. It begins with four digits: the protocol (1, 2
    /// or 3), flags (1: encrypted, 2: early data, 4: upgrade), the method's index in [`METHODS`],
    /// and the cipher suite's in [`SUITES`], counted from 1. Then follow, separated by zeros: the
    /// URL if it is plain, the target if it is not, the method if it has no index, the client's
    /// address and port, the server name of the TLS handshake, and name and value of each field
    /// line.
    pub(crate) fn of(&mut self, exchange: &Exchange) -> &[u8] {
        let (uri, peer) = (&exchange.uri, &exchange.peer);
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        let method = METHODS.iter().position(|method| *method == exchange.method);
        let protocol = match peer.protocol {
            Protocol::Http1 => b'1',
            Protocol::Http2 => b'2',
            Protocol::Http3 => b'3',
        };
        let flags = b'0'
            | u8::from(peer.secure)
            | (u8::from(peer.early_data) << 1)
            | (u8::from(exchange.upgrade.is_some()) << 2);
        let suite =
            peer.tls.and_then(|tls| SUITES.iter().position(|suite| *suite == tls.cipher_suite()));
        let suite = suite.map_or(0, |place| place as u8 + 1);
        self.bytes.extend([
            protocol,
            flags,
            b'0' + method.unwrap_or(METHODS.len()) as u8,
            b'0' + suite,
        ]);
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        let host = uri
            .authority()
            .map(Authority::as_str)
            .filter(|host| is_plain(host, target, peer.secure));
        match (host, peer.secure) {
            (Some(host), true) => self.push(["https://", host, target, "\0"]),
            (Some(host), false) => self.push(["http://", host, target, "\0"]),
            (None, _) => self.push(["\0", target]),
        }
        self.push(["\0", if method.is_none() { exchange.method.as_str() } else { "" }, "\0"]);
        let client = match &self.client {
            Some((client, text)) if *client == peer.remote => text,
            _ => {
                &self
                    .client
                    .insert((
                        peer.remote,
                        format!("{}\0{}\0", peer.remote.ip().to_canonical(), peer.remote.port()),
                    ))
                    .1
            }
        };
        self.bytes.extend_from_slice(client.as_bytes());
        self.push([peer.server_name.as_deref().unwrap_or_default()]);
        push_lines(&mut self.bytes, &exchange.headers);
        &self.bytes
    }

    fn push<const N: usize>(&mut self, parts: [&str; N]) {
        for part in parts {
            self.bytes.extend_from_slice(part.as_bytes());
        }
    }
}

/// Adds name and value of each line of `fields`, each with a zero before it.
pub(crate) fn push_lines(bytes: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        bytes.push(0);
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value.as_bytes());
    }
}

/// Returns whether the WHATWG URL of this host and target is the concatenation of scheme, host and
/// target. May return false for such a URL; it is then parsed by JavaScript.
fn is_plain(host: &str, target: &str, is_secure: bool) -> bool {
    is_plain_host(host, if is_secure { "443" } else { "80" }) && is_plain_target(target)
}

/// Returns whether a host is a name that is not a number, or an IPv4 address, with an optional port
/// that is not the scheme's default.
fn is_plain_host(host: &str, own_port: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_plain_port = |port: &str| {
        !port.starts_with(['0', '+']) && port.parse::<u16>().is_ok() && port != own_port
    };
    // A label that begins with a digit may be a number even with letters: 0x1f.
    let is_name = name
        .rsplit('.')
        .next()
        .is_some_and(|label| label.starts_with(|first: char| first.is_ascii_lowercase()))
        && name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
        })
        && !name.contains("xn--");
    port.is_none_or(is_plain_port) && (is_name || name.parse::<Ipv4Addr>().is_ok())
}

/// Returns whether a target has no dot segments and needs no encoding.
fn is_plain_target(target: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || b"_-.~!$&()*+,;=:@/?%".contains(&byte);
    let is_dots = |segment: &str| {
        [".", "..", "%2e", ".%2e", "%2e.", "%2e%2e"]
            .iter()
            .any(|dots| segment.eq_ignore_ascii_case(dots))
    };
    target.starts_with('/')
        && target.bytes().all(is_allowed)
        && !target.split(['/', '?']).any(is_dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_plain_where_a_url_has_it_as_it_is() {
        for host in [
            "example.org",
            "localhost:9400",
            "a-b.example:8443",
            "127.0.0.1",
            "127.0.0.1:65535",
            "1.example",
            "web1:80",
        ] {
            assert!(is_plain_host(host, "443"), "{host}");
        }
        let others = [
            "",
            "Example.org",
            "example.org:443",
            "example.org:0443",
            "example.org:65536",
            "example.org:",
            "1.2.3.999",
            "127.1",
            "0x7f.1",
        ];
        for host in others.into_iter().chain([
            "127.0.0.01",
            "[::1]",
            "a_b",
            "a.",
            "xn--a",
            "a:+80",
            "user@a",
            "1.0x1f",
        ]) {
            assert!(!is_plain_host(host, "443"), "{host}");
        }
        assert!(is_plain_host("a:443", "80") && !is_plain_host("a:80", "80"));
    }

    #[test]
    fn target_is_plain_where_a_url_has_it_as_it_is() {
        for target in [
            "/",
            "/a/b.html?c=d&e=%20",
            "/.well-known/x",
            "/a/.../b",
            "/%2",
            "/a?/b/c",
            "//a",
            "/%2ea",
        ] {
            assert!(is_plain_target(target), "{target}");
        }
        for target in [
            "",
            "*",
            "a",
            "/./a",
            "/a/..",
            "/%2E%2e/a",
            "/.%2e",
            "/a b",
            "/'",
            "/ü",
            "/a?.",
            "/a/.?b",
            "/a|",
            "/a#b",
            "/a\\b",
        ] {
            assert!(!is_plain_target(target), "{target}");
        }
    }
}
