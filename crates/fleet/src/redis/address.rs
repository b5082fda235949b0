//! Addresses of Redis servers as URLs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

const PORT: u16 = 6379;

/// Address of one Redis server. Written as `redis://host:6379/0`, `rediss://host` (TLS) or
/// `unix:///run/redis.sock`; a user and a password may stand before the host as in any URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) endpoint: Endpoint,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Number of the database; 0 by default.
    pub(crate) database: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp {
        /// Without the brackets of an IPv6 address.
        host: String,
        port: u16,
        tls: bool,
    },
    Unix(PathBuf),
}

/// Why a string is no address of a Redis server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid address of a Redis server: {reason}; write redis://host:port, rediss://host:port or \
     unix:///path"
)]
pub struct InvalidAddress {
    // Without the address itself, which may contain a password.
    reason: &'static str,
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(url: &str) -> Result<Self, InvalidAddress> {
        let invalid = |reason| InvalidAddress { reason };
        let (scheme, rest) = url.split_once("://").ok_or(invalid("it has no scheme"))?;
        if rest.contains(['?', '#']) {
            return Err(invalid("it has a query or a fragment"));
        }
        let tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "unix" | "redis+unix" => return unix(rest),
            _ => return Err(invalid("its scheme is unknown")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host_and_port) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        let (user, password) = login.map_or(Ok((None, None)), credentials)?;
        let (host, port) = host_and_port_of(host_and_port)?;
        let database = match path {
            "" => 0,
            number => number.parse().map_err(|_| invalid("its database is not a number"))?,
        };
        let endpoint = Endpoint::Tcp { host, port, tls };
        Ok(Self { endpoint, user, password, database })
    }
}

fn unix(rest: &str) -> Result<Address, InvalidAddress> {
    let invalid = |reason| InvalidAddress { reason };
    if !rest.starts_with('/') {
        return Err(invalid("the path of its socket is not absolute"));
    }
    let path = PathBuf::from(decoded(rest)?);
    Ok(Address { endpoint: Endpoint::Unix(path), user: None, password: None, database: 0 })
}

fn credentials(login: &str) -> Result<(Option<String>, Option<String>), InvalidAddress> {
    let given = |text: &str| match text {
        "" => Ok(None),
        text => decoded(text).map(Some),
    };
    // `redis://secret@host` has a user by the grammar of URLs, but a server has no use for one
    // without a password.
    match login.split_once(':') {
        Some((user, password)) => Ok((given(user)?, given(password)?)),
        None => Err(InvalidAddress { reason: "its user has no password" }),
    }
}

fn decoded(text: &str) -> Result<String, InvalidAddress> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| InvalidAddress { reason: "it is not valid UTF-8" })
}

fn host_and_port_of(text: &str) -> Result<(String, u16), InvalidAddress> {
    let invalid = |reason| InvalidAddress { reason };
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or(invalid("a bracket is missing"))?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| invalid("its IPv6 address is wrong"))?;
        (host, if port.is_empty() { None } else { port.strip_prefix(':').or(Some("")) })
    } else {
        text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
    };
    if host.is_empty() {
        return Err(invalid("it has no host"));
    }
    let port = match port {
        None => PORT,
        Some(port) => port.parse().map_err(|_| invalid("its port is not a number up to 65535"))?,
    };
    Ok((host.to_owned(), port))
}

impl Address {
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tcp { tls: true, .. })
    }

    /// Returns the address of another server that is reached in the same way.
    pub(crate) fn sibling(&self, host: &str, port: u16) -> Self {
        let endpoint = Endpoint::Tcp { host: host.to_owned(), port, tls: self.is_tls() };
        Self { endpoint, ..self.clone() }
    }
}

/// Without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Tcp { host, port, tls } => {
                let scheme = if *tls { "rediss" } else { "redis" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}")
                } else {
                    write!(f, "{scheme}://{host}:{port}")
                }
            }
            Endpoint::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_with_their_defaults() {
        for (url, shown) in [
            ("redis://cache", "redis://cache:6379"),
            ("rediss://cache:7000/2", "rediss://cache:7000"),
            ("redis://[::1]:7", "redis://[::1]:7"),
            ("redis://[::1]", "redis://[::1]:6379"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
            ("valkey://cache/", "redis://cache:6379"),
        ] {
            assert_eq!(url.parse::<Address>().unwrap().to_string(), shown, "{url}");
        }
        assert_eq!("rediss://cache:7000/2".parse::<Address>().unwrap().database, 2);
    }

    #[test]
    fn passwords_are_decoded_and_never_printed() {
        let address: Address = "redis://me:p%40ss:word@cache".parse().unwrap();
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.password.as_deref(), Some("p@ss:word"));
        assert!(!format!("{address} {address:?}").contains("word"));
        let address: Address = "redis://:word@cache".parse().unwrap();
        assert_eq!((address.user, address.password.as_deref()), (None, Some("word")));
        let error = "redis://:word@cache:x".parse::<Address>().unwrap_err();
        assert!(!error.to_string().contains("word"), "{error}");
    }

    #[test]
    fn wrong_addresses_are_refused_with_the_reason() {
        for (url, reason) in [
            ("cache:6379", "no scheme"),
            ("http://cache", "scheme is unknown"),
            ("redis://", "no host"),
            ("redis://:70", "no host"),
            ("redis://cache:70000", "port"),
            ("redis://cache/x", "database"),
            ("redis://[::1", "bracket"),
            ("redis://[x]:1", "IPv6"),
            ("redis://[::1]1", "port"),
            ("redis://me@cache", "no password"),
            ("redis://cache?x=1", "query"),
            ("unix://run/redis.sock", "absolute"),
            ("redis://:%ff@cache", "UTF-8"),
        ] {
            let error = url.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
