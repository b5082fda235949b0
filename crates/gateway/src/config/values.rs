//! Values that are written as strings: times, sizes, addresses, networks.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use pronghorn_engine::Unit;
use serde::Deserializer;
use serde::de::{self, Visitor};

/// Implements deserialization by `FromStr`, and describes the type as a string in the schema.
macro_rules! string_type {
    ($type:ty, $name:literal, $description:literal, $($example:literal),+) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                super::values::deserialize(deserializer, $description, [$($example),+][0])
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $description, "examples": [$($example),+] })
            }
        }
    };
}
pub(crate) use string_type;

/// Parses within the visitor, so that an error is reported at the string and not at the list that
/// contains it.
pub(crate) fn deserialize<'de, T, D>(
    deserializer: D,
    description: &'static str,
    example: &'static str,
) -> Result<T, D::Error>
where
    T: FromStr<Err = String>,
    D: Deserializer<'de>,
{
    struct Text<T> {
        description: &'static str,
        example: &'static str,
        value: PhantomData<T>,
    }

    impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self { description, example, .. } = self;
            let description = description.trim_end_matches('.');
            let mut letters = description.chars();
            // The first word is lower-cased unless it has further capitals.
            match letters.next().filter(|_| !letters.as_str().starts_with(char::is_uppercase)) {
                Some(first) => write!(f, "{}{}", first.to_lowercase(), letters.as_str()),
                None => f.write_str(description),
            }?;
            write!(f, "; write it in quotes, such as {example:?}")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Text { description, example, value: PhantomData })
}

/// A time, such as `30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl Time {
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) const fn milliseconds(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let milliseconds = Unit::Time.read(text).ok_or_else(|| {
            format!("invalid time {text:?}: use a form such as 30s, 500ms, 5m or 1h")
        })?;
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}
string_type!(Time, "time", "A time: a whole number with ms, s, m or h.", "30s");

/// A date or time, such as `2026-11-23T08:00:00Z` or `2026-11-23`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub SystemTime);

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = humantime::parse_rfc3339(text)
            .or_else(|_| humantime::parse_rfc3339(&format!("{text}T00:00:00Z")));
        parsed.map(Self).map_err(|_| {
            format!(
                "invalid date {text:?}: use a form such as 2026-11-23T08:00:00Z or 2026-11-23, in \
                    UTC"
            )
        })
    }
}
string_type!(Timestamp, "moment", "A date, or a date and time in UTC.", "2026-11-23T08:00:00Z");

/// A number of bytes, such as `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Unit::Bytes.read(text).map(Self).ok_or_else(|| {
            format!("invalid size {text:?}: use a number of bytes, such as 65536, 64KiB or 10MiB")
        })
    }
}
string_type!(
    Size,
    "size",
    "A number of bytes: a whole number, alone or with KiB, MiB or GiB.",
    "64KiB"
);

/// An address to listen on: `[::]:443` for TLS with HTTP/1.1, 2 and 3, `http://[::]:80` for clear
/// text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listen {
    /// Address with the port.
    pub address: SocketAddr,
    /// Whether the listener uses TLS.
    pub secure: bool,
}

/// An address to listen on whose host may be a name. The one grammar of listen addresses, for
/// configurations and command lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenHost {
    /// An IP address without brackets, or a name.
    pub host: String,
    /// Port; 0 lets the system choose.
    pub port: u16,
    /// Whether the listener uses TLS.
    pub secure: bool,
}

impl ListenHost {
    /// Returns the first address of the host.
    ///
    /// # Errors
    ///
    /// Returns an error if the name cannot be resolved.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let mut addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        addresses.next().ok_or_else(|| io::Error::other("the name has no address"))
    }
}

impl fmt::Display for ListenHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl FromStr for ListenHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (secure, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "unsupported scheme {scheme}://: use http:// for clear text, or no scheme for \
                        TLS"
                ));
            }
        };
        let invalid = || {
            format!(
                "invalid listen address {text:?}: use a form such as [::]:443, 127.0.0.1:8443 or \
                    http://[::]:80"
            )
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(invalid)?;
        let port = port.parse().map_err(|_| invalid())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        // Without brackets, the last part of an IPv6 address would pass for the port.
        if bare.is_empty() || bare.contains(':') != (bare != host) {
            return Err(invalid());
        }
        Ok(Self { host: bare.to_owned(), port, secure })
    }
}

/// Returns whether two listen addresses conflict because one includes the other. `0.0.0.0` includes
/// every IPv4 address, `[::]` every address of both families. Port 0 never conflicts.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let has = |wide: IpAddr, narrow: IpAddr| {
        wide == narrow || (wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4()))
    };
    let (first, second) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() != 0 && one.port() == other.port() && (has(first, second) || has(second, first))
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let host: ListenHost = text.parse()?;
        // Names such as localhost are resolved once.
        let address =
            host.resolve().map_err(|error| format!("cannot listen on {text}: {error}"))?;
        Ok(Self { address, secure: host.secure })
    }
}
string_type!(
    Listen,
    "listen",
    "An address to listen on: HOST:PORT for TLS with HTTP/1.1, 2 and 3, http://HOST:PORT for clear \
        text.",
    "[::]:443"
);

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.address)
    }
}

/// A network by its prefix, such as `10.0.0.0/8`; a single address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub ipnet::IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let single = || text.parse::<std::net::IpAddr>().ok().map(ipnet::IpNet::from);
        let network = text.parse().ok().or_else(single);
        network.map(Self).ok_or_else(|| {
            format!(
                "invalid network {text:?}: use a form such as 10.0.0.0/8, 2001:db8::/32 or \
                    192.0.2.1"
            )
        })
    }
}
string_type!(Network, "network", "A network by its prefix, or an address.", "10.0.0.0/8");

/// An HTTP method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(pub http::Method);

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let method = http::Method::from_bytes(text.as_bytes())
            .ok()
            .filter(|_| text.bytes().all(|b| !b.is_ascii_lowercase()));
        method
            .map(Self)
            .ok_or_else(|| format!("invalid method {text:?}: use capital letters, as in GET"))
    }
}
string_type!(Method, "method", "An HTTP method, in capital letters.", "GET");

/// The name of a header field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldName(String);

impl FieldName {
    pub(crate) fn name(&self) -> http::HeaderName {
        http::HeaderName::from_bytes(self.0.as_bytes()).expect("invariant: it was parsed")
    }
}

impl FromStr for FieldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        http::HeaderName::from_bytes(text.as_bytes())
            .map(|name| Self(name.as_str().to_owned()))
            .map_err(|_| {
                format!(
                    "invalid header name {text:?}: use letters, digits and dashes, as in \
                        cache-control"
                )
            })
    }
}
string_type!(FieldName, "field_name", "The name of a header field.", "cache-control");

/// The value of a header field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldValue(pub http::HeaderValue);

impl FromStr for FieldValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        http::HeaderValue::from_str(text)
            .map(Self)
            .map_err(|_| format!("invalid header value {text:?}: use visible ASCII and spaces"))
    }
}
string_type!(FieldValue, "field_value", "The value of a header field.", "no-store");

/// Declares an enum of names that can be configured.
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident: $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+
        }
    };
}
pub(crate) use string_enum;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_takes_what_the_command_line_takes() {
        let listen = |text: &str| text.parse::<Listen>();
        assert_eq!(
            listen("[::]:443").map(|listen| listen.to_string()),
            Ok("https://[::]:443".into())
        );
        assert_eq!(
            listen("http://127.0.0.1:80/").map(|listen| listen.to_string()),
            Ok("http://127.0.0.1:80".into())
        );
        for text in ["443", ":443", "[]:443", "[localhost]:443", "::1:443", "::", "[::1]:65536"] {
            assert!(
                listen(text).is_err_and(|error| error.contains("invalid listen address")),
                "{text}"
            );
        }
        let scoped = "[fe80::1%1]:443".parse::<ListenHost>().and_then(|listen| {
            listen.resolve().map(|_| listen.to_string()).map_err(|error| error.to_string())
        });
        assert_eq!(scoped.as_deref(), Ok("[fe80::1%1]:443"));
        assert!(
            listen("ftp://[::]:21").is_err_and(|error| error.contains("unsupported scheme ftp://"))
        );
    }

    #[test]
    fn addresses_overlap_where_one_has_the_other() {
        let overlap = |one: &str, other: &str| {
            let [one, other] =
                [one, other].map(|text| text.parse::<SocketAddr>().expect("an address"));
            assert_eq!(overlap(one, other), overlap(other, one));
            overlap(one, other)
        };
        for (one, other) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "127.0.0.1:1"),
            ("[::]:1", "0.0.0.0:1"),
            ("[::]:1", "[::1]:1"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert!(overlap(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("0.0.0.0:1", "127.0.0.1:2"),
            ("0.0.0.0:1", "[::1]:1"),
            ("127.0.0.1:1", "127.0.0.2:1"),
            ("[::]:0", "[::]:0"),
        ] {
            assert!(!overlap(one, other), "{one} {other}");
        }
    }

    #[test]
    fn day_is_its_first_moment() {
        assert_eq!("2026-11-23".parse::<Timestamp>(), "2026-11-23T00:00:00Z".parse());
        assert!(
            "23.11.2026"
                .parse::<Timestamp>()
                .is_err_and(|error| error.contains("use a form such as 2026-11-23"))
        );
    }

    #[test]
    fn time_needs_its_unit() {
        assert_eq!("30s".parse(), Ok(Time::seconds(30)));
        assert!("30".parse::<Time>().is_err_and(|error| error.contains("use a form such as 30s")));
    }

    #[test]
    fn address_is_a_network_of_one() {
        assert_eq!("192.0.2.1".parse::<Network>().map(|network| network.0.prefix_len()), Ok(32));
    }
}
