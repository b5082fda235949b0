//! Values that are written as text: times, sizes, addresses, patterns.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use pronghorn_engine::Unit;
use serde::Deserializer;
use serde::de::{self, Visitor};
/// Reads a type from text by its `FromStr`, and describes it as text in the schema.
macro_rules! written {
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
pub(crate) use written;

/// Parses within the visitor, so that an error is told to be where the text is, not at the list that it is in.
pub(crate) fn deserialize<'de, T, D>(deserializer: D, description: &'static str, example: &'static str) -> Result<T, D::Error>
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
            // The first word is a usual one where it has no further capitals.
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
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let milliseconds = Unit::Time.read(text).ok_or_else(|| format!("{text:?} is no time: write it as 30s, 500ms, 5m or 1h"))?;
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}
written!(Time, "time", "A time: a whole number with ms, s, m or h.", "30s");

/// A moment, such as `2026-11-23T08:00:00Z` or `2026-11-23`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub SystemTime);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = humantime::parse_rfc3339(text).or_else(|_| humantime::parse_rfc3339(&format!("{text}T00:00:00Z")));
        parsed.map(Self).map_err(|_| format!("{text:?} is no moment: write it as 2026-11-23T08:00:00Z or 2026-11-23, in UTC"))
    }
}
written!(Moment, "moment", "A day, or a moment in UTC.", "2026-11-23T08:00:00Z");

/// A number of bytes, such as `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Unit::Bytes.read(text).map(Self).ok_or_else(|| format!("{text:?} is no size: write it in bytes, such as 65536, 64KiB or 10MiB"))
    }
}
written!(Size, "size", "A number of bytes: a whole number, alone or with KiB, MiB or GiB.", "64KiB");

/// Where to listen: `[::]:443` for TLS with HTTP/1.1, 2 and 3, `http://[::]:80` for clear text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listen {
    /// The address, with the port.
    pub address: SocketAddr,
    /// Whether TLS is spoken there.
    pub secure: bool,
}

/// Whether two addresses cannot be listened on side by side, because one has what the other has. `0.0.0.0` has every IPv4 address, `[::]` each of
/// both families. Of port 0 each gets another.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let has = |wide: IpAddr, narrow: IpAddr| wide == narrow || (wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4()));
    let (first, second) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() != 0 && one.port() == other.port() && (has(first, second) || has(second, first))
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (secure, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some((scheme, _)) => return Err(format!("{scheme}:// is not spoken here: use http:// for clear text, and nothing for TLS")),
        };
        let wrong = || format!("{text:?} is no address to listen on: write it as [::]:443, 127.0.0.1:8443 or http://[::]:80");
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let address = match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => SocketAddr::new(address, port),
            // Names such as localhost, of this machine; what they mean is asked once.
            Err(_) if !host.is_empty() => {
                let addresses = (host, port).to_socket_addrs().map_err(|error| format!("cannot listen on {text}: {error}"))?;
                addresses.into_iter().next().ok_or_else(wrong)?
            }
            Err(_) => return Err(wrong()),
        };
        Ok(Self { address, secure })
    }
}
written!(
    Listen,
    "listen",
    "An address to listen on: HOST:PORT for TLS with HTTP/1.1, 2 and 3, http://HOST:PORT for clear text.",
    "[::]:443"
);

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.address)
    }
}

/// Networks by their prefix, such as `10.0.0.0/8`; an address alone is one of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub ipnet::IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let single = || text.parse::<std::net::IpAddr>().ok().map(ipnet::IpNet::from);
        let network = text.parse().ok().or_else(single);
        network.map(Self).ok_or_else(|| format!("{text:?} is no network: write it as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.1"))
    }
}
written!(Network, "network", "A network by its prefix, or an address.", "10.0.0.0/8");

/// A name that has to be one of a few.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident: $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+
        }
    };
}
pub(crate) use choice;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_takes_what_the_command_line_takes() {
        let listen = |text: &str| text.parse::<Listen>();
        assert_eq!(listen("[::]:443").map(|listen| listen.to_string()), Ok("https://[::]:443".into()));
        assert_eq!(listen("http://127.0.0.1:80/").map(|listen| listen.to_string()), Ok("http://127.0.0.1:80".into()));
        assert!(listen("443").is_err());
        assert!(listen(":443").is_err());
        assert!(listen("ftp://[::]:21").is_err_and(|error| error.contains("ftp:// is not spoken here")));
    }

    #[test]
    fn addresses_overlap_where_one_has_the_other() {
        let overlap = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse::<SocketAddr>().expect("an address"));
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
        for (one, other) in [("0.0.0.0:1", "127.0.0.1:2"), ("0.0.0.0:1", "[::1]:1"), ("127.0.0.1:1", "127.0.0.2:1"), ("[::]:0", "[::]:0")] {
            assert!(!overlap(one, other), "{one} {other}");
        }
    }

    #[test]
    fn day_is_its_first_moment() {
        assert_eq!("2026-11-23".parse::<Moment>(), "2026-11-23T00:00:00Z".parse());
        assert!("23.11.2026".parse::<Moment>().is_err_and(|error| error.contains("write it as 2026-11-23")));
    }

    #[test]
    fn time_needs_its_unit() {
        assert_eq!("30s".parse(), Ok(Time::seconds(30)));
        assert!("30".parse::<Time>().is_err_and(|error| error.contains("write it as 30s")));
    }

    #[test]
    fn address_is_a_network_of_one() {
        assert_eq!("192.0.2.1".parse::<Network>().map(|network| network.0.prefix_len()), Ok(32));
    }
}
