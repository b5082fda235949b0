//! The client's address of a request that passed through proxies.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the client's address: the peer's, unless the peer is a trusted proxy. Then it is the
/// last address in `x-forwarded-for` (or, without that, in `forwarded`) that is not itself a
/// trusted proxy's: each proxy appends its peer's address, and an untrusted proxy's earlier entries
/// may be forged.
pub(crate) fn client_address(peer: SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.ip().to_canonical();
    if trusted.is_empty() || !is_trusted(&client) {
        return client;
    }
    let hops = if headers.contains_key(X_FORWARDED_FOR) {
        hops(headers, &X_FORWARDED_FOR, address)
    } else {
        hops(headers, &FORWARDED, |hop| address(parameter_for(hop)?))
    };
    for hop in hops.into_iter().rev() {
        // A hidden address ends the traceable part.
        let Some(hop) = hop else { break };
        client = hop;
        if !is_trusted(&client) {
            break;
        }
    }
    client
}

/// Returns the address by which a client is counted: for an IPv6 address its first `ipv6_prefix`
/// bits, since a subscriber has a whole network.
pub(crate) fn network_of(client: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix)).unwrap_or_default();
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

fn hops(
    headers: &HeaderMap,
    name: &HeaderName,
    read: impl Fn(&str) -> Option<IpAddr>,
) -> Vec<Option<IpAddr>> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("?"));
    lines.flat_map(|line| line.split(',')).map(|hop| read(hop.trim())).collect()
}

fn parameter_for(hop: &str) -> Option<&str> {
    let value = |pair: &'_ str| {
        pair.split_once('=')
            .filter(|(name, _)| name.trim().eq_ignore_ascii_case("for"))
            .map(|(name, _)| name.len() + 1)
    };
    hop.split(';').find_map(|pair| value(pair).map(|start| pair[start..].trim()))
}

/// Parses an address, with or without quotes, brackets and a port.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches('"');
    let parsed =
        text.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    parsed
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
        .map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(peer: &str, name: &HeaderName, lines: &[&'static str]) -> String {
        let headers =
            lines.iter().map(|line| (name.clone(), HeaderValue::from_static(line))).collect();
        let trusted =
            ["10.0.0.0/8".parse().expect("a network"), "2001:db8::/32".parse().expect("a network")];
        client_address(SocketAddr::new(peer.parse().expect("an address"), 1), &headers, &trusted)
            .to_string()
    }

    #[test]
    fn stranger_is_not_believed() {
        assert_eq!(client("192.0.2.1", &X_FORWARDED_FOR, &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client("::ffff:192.0.2.1", &X_FORWARDED_FOR, &["198.51.100.7"]), "192.0.2.1");
    }

    #[test]
    fn last_address_that_is_no_trusted_proxy_is_the_client() {
        for (lines, expected) in [
            (&["198.51.100.7"][..], "198.51.100.7"),
            (&["1.1.1.1, 198.51.100.7, 10.2.2.2"], "198.51.100.7"),
            (&["1.1.1.1", "198.51.100.7"], "198.51.100.7"),
            (&["198.51.100.7:5000"], "198.51.100.7"),
            (&["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            (&["1.1.1.1, unknown, 10.2.2.2"], "10.2.2.2"),
            (&["nonsense"], "10.9.9.9"),
            (&[], "10.9.9.9"),
        ] {
            assert_eq!(client("10.9.9.9", &X_FORWARDED_FOR, lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_says_the_same() {
        for (line, expected) in [
            ("for=198.51.100.7;proto=https, for=10.1.1.1", "198.51.100.7"),
            ("proto=https; For=\"[2001:db9::7]:443\"", "2001:db9::7"),
            ("for=_hidden", "10.9.9.9"),
        ] {
            assert_eq!(client("10.9.9.9", &FORWARDED, &[line]), expected, "{line}");
        }
    }
}
