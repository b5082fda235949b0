//! Sticky sessions by cookie.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

use crate::config::{SameSite, Sticky, Upstream};

/// 96 bits: IDs can be neither guessed nor collide.
const ID_BYTES: usize = 12;

/// The cookies of an upstream.
pub(crate) struct Cookies {
    name: String,
    /// Cookies by index of the server.
    servers: Vec<ServerCookie>,
}

struct ServerCookie {
    id: String,
    in_clear_text: HeaderValue,
    over_tls: HeaderValue,
}

impl Cookies {
    pub(crate) fn new(upstream: &Upstream) -> Option<Self> {
        let sticky = upstream.sticky.as_ref()?;
        let servers = upstream
            .servers
            .iter()
            .map(|server| ServerCookie::new(sticky, &server.0.address.to_string()))
            .collect();
        Some(Self { name: sticky.cookie.0.clone(), servers })
    }

    /// Returns the server that the client's cookie names.
    pub(crate) fn server(&self, headers: &HeaderMap) -> Option<usize> {
        let pairs = headers
            .get_all(COOKIE)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let values = pairs.filter_map(|pair| {
            pair.trim_ascii().strip_prefix(self.name.as_bytes())?.strip_prefix(b"=")
        });
        values
            .into_iter()
            .find_map(|value| self.servers.iter().position(|server| server.id.as_bytes() == value))
    }

    /// Returns the `set-cookie` value for this server.
    pub(crate) fn of(&self, server: usize, is_secure: bool) -> HeaderValue {
        let ServerCookie { in_clear_text, over_tls, .. } = &self.servers[server];
        if is_secure { over_tls.clone() } else { in_clear_text.clone() }
    }
}

impl ServerCookie {
    /// The ID depends neither on the other servers nor on the order.
    fn new(sticky: &Sticky, address: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, sticky.secret.reveal().as_bytes());
        let signed = hmac::sign(&key, address.as_bytes());
        let id = BASE64_URL_SAFE_NO_PAD.encode(&signed.as_ref()[..ID_BYTES]);
        let mut text = format!("{}={id}; Path=/; HttpOnly", sticky.cookie.0);
        text += match sticky.same_site {
            SameSite::Lax => "; SameSite=Lax",
            SameSite::Strict => "; SameSite=Strict",
            SameSite::None => "; SameSite=None",
        };
        if let Some(max_age) = sticky.max_age {
            // Writing to a string cannot fail.
            let _ = write!(text, "; Max-Age={}", max_age.0.as_secs());
        }
        let value = |text: &str| {
            HeaderValue::try_from(text).expect("invariant: a token and Base64 are visible ASCII")
        };
        Self { id, in_clear_text: value(&text), over_tls: value(&(text + "; Secure")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{UpstreamServer, UpstreamServerTable};

    fn cookies(secret: &str, servers: &[&str]) -> Cookies {
        let mut upstream = Upstream::of("http://a:1".parse().expect("an address"));
        let server = |address: &&str| {
            UpstreamServer(UpstreamServerTable {
                address: address.parse().expect("an address"),
                weight: 1,
            })
        };
        upstream.servers = servers.iter().map(server).collect();
        let text = format!(
            "cookie = \"at\"\nsecret = \"{secret}\"\nmax_age = \"1h\"\nsame_site = \"strict\""
        );
        upstream.sticky = Some(toml::from_str(&text).expect("it is right"));
        Cookies::new(&upstream).expect("it is sticky")
    }

    fn server(cookies: &Cookies, lines: &[&str]) -> Option<usize> {
        let lines =
            lines.iter().map(|line| (COOKIE, HeaderValue::try_from(*line).expect("a value")));
        cookies.server(&lines.collect())
    }

    const SERVERS: [&str; 2] = ["http://10.0.0.1:80", "http://10.0.0.2:80"];

    #[test]
    fn cookie_means_a_server_wherever_that_stands() {
        let (before, after) = (
            cookies("0123456789abcdef", &SERVERS),
            cookies("0123456789abcdef", &["http://c:1", SERVERS[1], SERVERS[0]]),
        );
        let ids: Vec<_> = before.servers.iter().map(|server| server.id.clone()).collect();
        assert_ne!(ids[0], ids[1]);
        assert_eq!(server(&after, &[&format!("a=b; at={}", ids[0])]), Some(2));
        assert_eq!(server(&after, &["a=b", &format!("at={} ", ids[1])]), Some(1));
        assert_eq!(
            server(&cookies("fedcba9876543210", &SERVERS), &[&format!("at={}", ids[0])]),
            None,
            "another secret"
        );
        assert_eq!(
            server(&cookies("0123456789abcdef", &["http://c:1"]), &[&format!("at={}", ids[0])]),
            None,
            "the server was removed"
        );
    }

    #[test]
    fn what_is_no_cookie_of_a_server_is_nothing() {
        let cookies = cookies("0123456789abcdef", &SERVERS);
        let id = &cookies.servers[0].id;
        for line in [
            "",
            "at",
            "at=",
            "at=x",
            &format!("AT={id}"),
            &format!("bat={id}"),
            &format!("at=\"{id}\""),
            &format!("at={id}x"),
        ] {
            assert_eq!(server(&cookies, &[line]), None, "{line}");
        }
        assert_eq!(
            server(&cookies, &[&format!("at=wrong; at={id}")]),
            Some(0),
            "a cookie of another site of the domain comes first"
        );
    }

    #[test]
    fn cookie_is_for_no_script_and_no_clear_text() {
        let cookies = cookies("0123456789abcdef", &SERVERS);
        let id = &cookies.servers[0].id;
        let text = format!("at={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age=3600");
        assert_eq!(cookies.of(0, false), text);
        assert_eq!(cookies.of(0, true), format!("{text}; Secure"));
        assert!(id.len() == 16 && !text.contains("10.0"));
    }
}
