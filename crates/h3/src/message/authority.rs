//! The authority of a request, from `:authority` or `host`: a host and an optional port (RFC 3986
//! section 3.2).

use std::net::Ipv6Addr;

/// A valid authority without userinfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) port: Port,
}

/// The part after the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    /// Nothing, or only a colon, which is equivalent.
    Absent,
    Number(u16),
}

/// Parses an authority. Returns `None` if it is invalid, has userinfo, or has no host.
pub(super) fn parse(text: &[u8]) -> Option<Authority> {
    let (is_host, port) = if let Some(rest) = text.strip_prefix(b"[") {
        let (address, port) = rest.split_at(rest.iter().position(|&byte| byte == b']')?);
        (str::from_utf8(address).ok()?.parse::<Ipv6Addr>().is_ok(), &port[1..])
    } else {
        let (name, port) =
            text.split_at(text.iter().position(|&byte| byte == b':').unwrap_or(text.len()));
        (is_reg_name(name), port)
    };
    let port = match port {
        [] | [b':'] => Port::Absent,
        [b':', digits @ ..] if digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
            Port::Number(str::from_utf8(digits).ok()?.parse().ok()?)
        }
        _ => return None,
    };
    is_host.then_some(Authority { port })
}

/// A name or an IPv4 address (RFC 3986 section 3.2.2), not empty.
fn is_reg_name(name: &[u8]) -> bool {
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        let is_valid = match byte {
            b'%' => [bytes.next(), bytes.next()]
                .into_iter()
                .all(|digit| digit.is_some_and(u8::is_ascii_hexdigit)),
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+'
            | b',' | b';' | b'=' => true,
            byte => byte.is_ascii_alphanumeric(),
        };
        if !is_valid {
            return false;
        }
    }
    !name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_port_are_read() {
        for (text, port) in [
            ("example.com", Port::Absent),
            ("example.com:", Port::Absent),
            ("example.com:443", Port::Number(443)),
            ("192.0.2.1:0", Port::Number(0)),
            ("xn--bcher-kva.example:65535", Port::Number(65535)),
            ("a_b-c~d", Port::Absent),
            ("%41b", Port::Absent),
            ("[::1]", Port::Absent),
            ("[2001:db8::1]:8443", Port::Number(8443)),
            ("[::ffff:192.0.2.1]", Port::Absent),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(Authority { port }), "{text}");
        }
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        for text in [
            "",
            ":",
            ":443",
            "a@b",
            "a:b@c",
            "@",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "a:b",
            "a:1:2",
            "a:65536",
            "a:000080",
            "a:-1",
            "a:+1",
            "[",
            "[]",
            "[::1",
            "::1",
            "[::1]x",
            "[::1]]",
            "[192.0.2.1]",
            "[fe80::1%25eth0]",
            "%4",
            "%zz",
            "b\u{fc}cher",
            "a\"b",
            "a<b",
            "a|b",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
