//! Canonical spelling of hosts.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An invalid authority: the host is neither a name of letters, digits, dashes and underscores nor
/// an IP address, or the port is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAuthority;

/// Returns the canonical form of a host and port, or `None` if it is already canonical: the host as
/// [`host`] writes it, the port without leading zeros, and no port where it is the scheme's
/// default.
///
/// # Errors
///
/// If the text has no canonical form.
pub fn authority(text: &str, secure: bool) -> Result<Option<String>, BadAuthority> {
    let (name, port) = split(text);
    let usual = if secure { "443" } else { "80" };
    let port = match port {
        None => None,
        Some("") => Some(""),
        Some(port)
            if (port.starts_with('0') && port.len() > 1)
                || port.len() > 5
                || !port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            let digits = Some(port)
                .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
                .ok_or(BadAuthority)?;
            let number: u16 = digits.parse().map_err(|_| BadAuthority)?;
            return with_port(name, number, secure).map(Some);
        }
        Some(port) => Some(port),
    };
    let is_written = !matches!(port, Some(port) if port.is_empty() || port == usual);
    let written = host(name)?;
    if is_written && written.is_none() {
        return if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            Err(BadAuthority)
        } else {
            Ok(None)
        };
    }
    match port.filter(|_| is_written) {
        Some(port) => with_port(name, port.parse().map_err(|_| BadAuthority)?, secure).map(Some),
        None => Ok(Some(written.unwrap_or_else(|| name.to_owned()))),
    }
}

fn with_port(name: &str, port: u16, secure: bool) -> Result<String, BadAuthority> {
    let mut text = host(name)?.unwrap_or_else(|| name.to_owned());
    if port != if secure { 443 } else { 80 } {
        // Writing to a string cannot fail.
        let _ = write!(text, ":{port}");
    }
    Ok(text)
}

/// Splits the text into host and port.
fn split(text: &str) -> (&str, Option<&str>) {
    let end = if text.starts_with('[') {
        text.find(']').map_or(text.len(), |end| end + 1)
    } else {
        text.find(':').unwrap_or(text.len())
    };
    let (name, rest) = text.split_at(end);
    (name, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').unwrap_or("x")) })
}

/// Returns the canonical form of a host without a port, or `None` if it is already canonical: in
/// lower case, without a trailing dot, an IPv6 address in brackets and in the form of RFC 5952.
///
/// # Errors
///
/// If the text has no canonical form.
pub fn host(text: &str) -> Result<Option<String>, BadAuthority> {
    if text.starts_with('[') {
        let address = address(text).ok_or(BadAuthority)?;
        return Ok(Some(address).filter(|address| address != text));
    }
    let (mut is_lower, mut before) = (true, b'.');
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => {}
            b'A'..=b'Z' => is_lower = false,
            // Labels are not empty.
            b'.' if before != b'.' => {}
            _ => return Err(BadAuthority),
        }
        before = byte;
    }
    match (is_lower, text.strip_suffix('.')) {
        (_, Some(name)) => Ok(Some(name.to_ascii_lowercase())),
        (true, None) if text.is_empty() => Err(BadAuthority),
        (true, None) => Ok(None),
        (false, None) => Ok(Some(text.to_ascii_lowercase())),
    }
}

/// Returns the canonical spelling of an IP address as a host.
pub fn address(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(|address| format!("[{address}]")),
        None => text.parse::<Ipv4Addr>().ok().map(|address| address.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn host_is_written_in_canonical_form() {
        for (text, wanted) in [
            ("admin.test", None),
            ("admin.test:8443", None),
            ("127.0.0.1:1", None),
            ("[::1]", None),
            ("admin.test:80", None),
            ("Admin.TEST", Some("admin.test")),
            ("admin.test.", Some("admin.test")),
            ("ADMIN.test.:443", Some("admin.test")),
            ("admin.test:443", Some("admin.test")),
            ("admin.test:", Some("admin.test")),
            ("admin.test:0443", Some("admin.test")),
            ("admin.test.:8443", Some("admin.test:8443")),
            ("admin.test:08080", Some("admin.test:8080")),
            ("[0:0:0:0:0:0:0:1]:8443", Some("[::1]:8443")),
            ("[2001:DB8::1]", Some("[2001:db8::1]")),
        ] {
            assert_eq!(authority(text, true), Ok(wanted.map(str::to_owned)), "{text}");
        }
        assert_eq!(authority("a.test:80", false), Ok(Some("a.test".to_owned())));
        assert_eq!(authority("a.test:443", false), Ok(None));
    }

    #[test]
    fn invalid_host_is_refused() {
        for text in [
            "", ".", "a..", "a..b", ".a", "%61.test", "a,b", "a~b", "a@b", "a:b", "a:65536",
            "a:+1", "[::1", "[::1]x", "::1", "a b",
        ] {
            assert_eq!(authority(text, true), Err(BadAuthority), "{text}");
        }
    }

    proptest! {
        #[test]
        fn canonical_host_is_unchanged(text in "[aA.:0-9\\[\\]]{1,12}", secure in any::<bool>()) {
            if let Ok(Some(written)) = authority(&text, secure) {
                prop_assert_eq!(authority(&written, secure), Ok(None));
            }
        }
    }
}
