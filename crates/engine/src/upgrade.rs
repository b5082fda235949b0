//! The protocol that a request asks to switch to.

use std::fmt;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, Method, Version};

/// A request to switch to another protocol, such as `websocket`, in both directions.
///
/// Over HTTP/1.1 this is the `upgrade` field (RFC 9110 section 7.8); over HTTP/2 and HTTP/3 it is
/// the `:protocol` pseudo-header field of an extended CONNECT (RFC 8441, RFC 9220).
/// [`Responder::upgrade`](crate::Responder::upgrade) accepts the upgrade; any other response
/// refuses it.
///
/// A client puts it into the extensions of the request that it passes to
/// [`Connection::send`](crate::Connection::send).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    protocol: Box<str>,
}

impl Upgrade {
    /// Creates a request for `protocol`, which must be a token (RFC 9110 section 5.6.2).
    pub fn new(protocol: &str) -> Self {
        Self { protocol: protocol.into() }
    }

    /// Returns the protocol. Over HTTP/1.1 it is in lower case, since case has no meaning there,
    /// and it is the first if the request names several.
    pub fn protocol(&self) -> &str {
        &self.protocol
    }

    /// Reads the upgrade of an HTTP/1.1 request without content; the head says so.
    pub(crate) fn from_http1(
        version: Version,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<Self> {
        //= RFC 9110 section 7.8
        //# A server MUST ignore an Upgrade header field that is received in an HTTP/1.0 request.
        if version < Version::HTTP_11 || method != Method::GET {
            return None;
        }
        let mut options = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        if !options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade")) {
            return None;
        }
        let named = headers.get(UPGRADE)?.to_str().ok()?;
        let first =
            named.split(',').next().map(str::trim_ascii).filter(|first| is_protocol(first))?;
        Some(Self { protocol: first.to_ascii_lowercase().into() })
    }

    /// Whether the value names exactly one protocol. Any other value could be read as several
    /// protocols, or as another one, by the next recipient.
    pub(crate) fn is_one_protocol(&self) -> bool {
        is_protocol(&self.protocol)
    }
}

/// RFC 9110, section 7.8: `protocol = protocol-name ["/" protocol-version]`, both tokens.
fn is_protocol(text: &str) -> bool {
    let is_token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    match text.split_once('/') {
        Some((name, version)) => is_token(name) && is_token(version),
        None => is_token(text),
    }
}

impl fmt::Display for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.protocol)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asked(
        version: Version,
        method: &Method,
        lines: &[(http::HeaderName, &'static str)],
    ) -> Option<Upgrade> {
        let lines =
            lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        lines.for_each(|(name, value)| {
            headers.append(name, value);
        });
        Upgrade::from_http1(version, method, &headers)
    }

    #[test]
    fn upgrade_needs_the_connection_option_a_get_and_http_1_1() {
        let lines = [(CONNECTION, "keep-alive, Upgrade"), (UPGRADE, "WebSocket")];
        assert_eq!(asked(Version::HTTP_11, &Method::GET, &lines), Some(Upgrade::new("websocket")));
        assert_eq!(asked(Version::HTTP_10, &Method::GET, &lines), None);
        assert_eq!(asked(Version::HTTP_11, &Method::POST, &lines), None);
        assert_eq!(asked(Version::HTTP_11, &Method::GET, &lines[..1]), None);
        assert_eq!(asked(Version::HTTP_11, &Method::GET, &lines[1..]), None);
        assert_eq!(
            asked(Version::HTTP_11, &Method::GET, &[(CONNECTION, "close"), (UPGRADE, "websocket")]),
            None
        );
        assert_eq!(
            asked(Version::HTTP_11, &Method::GET, &[(CONNECTION, "upgrade"), (UPGRADE, ", ")]),
            None
        );
        assert_eq!(
            asked(Version::HTTP_11, &Method::GET, &[(CONNECTION, "upgrade"), (UPGRADE, "a b")]),
            None
        );
        let split = [(CONNECTION, "close"), (CONNECTION, "upgrade"), (UPGRADE, "h2c, websocket")];
        assert_eq!(asked(Version::HTTP_11, &Method::GET, &split), Some(Upgrade::new("h2c")));
    }

    #[test]
    fn one_protocol_is_a_token_perhaps_with_a_version() {
        for one in ["websocket", "connect-udp", "h2c", "TLS/1.3"] {
            assert!(Upgrade::new(one).is_one_protocol(), "{one}");
        }
        for other in [
            "",
            "a b",
            "websocket, h2c",
            "websocket,",
            "a/",
            "/a",
            "a/b/c",
            "a\tb",
            "caf\u{e9}",
            "a\r\nb: c",
        ] {
            assert!(!Upgrade::new(other).is_one_protocol(), "{other:?}");
        }
    }
}
