//! Alternative services over HTTP/3 (RFC 7838).

use std::time::Duration;

use http::{HeaderMap, header};

/// RFC 7838, section 3.1: an alternative is fresh for 24 hours unless `ma` says otherwise.
const DEFAULT_MAX_AGE: Duration = Duration::from_hours(24);
/// Maximum time that an alternative is remembered.
const LONGEST_MAX_AGE: Duration = Duration::from_hours(30 * 24);

/// What a response's `alt-svc` field says about HTTP/3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AltSvc {
    /// The field is missing.
    Absent,
    /// Earlier advertisements no longer apply.
    Clear,
    /// HTTP/3 is available.
    Http3(Alternative),
}

/// An advertised HTTP/3 endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    /// Host, if it differs from the origin's.
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) max_age: Duration,
}

impl AltSvc {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut said = false;
        for line in headers.get_all(header::ALT_SVC) {
            let Ok(line) = line.to_str() else { continue };
            if line.trim() == "clear" {
                return Self::Clear;
            }
            said = true;
            // Use the first supported alternative: the server lists them in order of preference.
            if let Some(alternative) = split(line, b',').find_map(Alternative::parse) {
                return Self::Http3(alternative);
            }
        }
        // The latest list replaces earlier ones, even if it has no HTTP/3 entry.
        if said { Self::Clear } else { Self::Absent }
    }
}

impl Alternative {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = split(text, b';');
        let (protocol, authority) = parts.next()?.split_once('=')?;
        if protocol.trim() != "h3" {
            return None;
        }
        let (host, port) = unquote(authority.trim())?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut max_age = DEFAULT_MAX_AGE;
        for parameter in parts {
            if let Some((name, value)) = parameter.split_once('=')
                && name.trim() == "ma"
            {
                let value = value.trim();
                max_age = Duration::from_secs(unquote(value).unwrap_or(value).parse().ok()?)
                    .min(LONGEST_MAX_AGE);
            }
        }
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some(Self { host: (!host.is_empty()).then(|| host.to_ascii_lowercase()), port, max_age })
    }
}

fn unquote(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// Splits `text` at separators outside quoted strings.
fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |character: char| {
        if character == '"' {
            quoted = !quoted;
        }
        !quoted && character == char::from(separator)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> AltSvc {
        AltSvc::of(&lines.iter().map(|line| (header::ALT_SVC, line.parse().unwrap())).collect())
    }

    fn http3(host: Option<&str>, port: u16, seconds: u64) -> AltSvc {
        AltSvc::Http3(Alternative {
            host: host.map(str::to_owned),
            port,
            max_age: Duration::from_secs(seconds),
        })
    }

    #[test]
    fn http3_is_found_among_others() {
        assert_eq!(said(&["h3=\":443\"; ma=86400"]), http3(None, 443, 86_400));
        assert_eq!(
            said(&[
                "h2=\"a,b:80\", h3-29=\":1\";ma=5, h3=\"Alt.example:8443\";ma=\"60\";persist=1"
            ]),
            http3(Some("alt.example"), 8443, 60)
        );
        assert_eq!(said(&["h2=\":443\"", "h3=\"[::1]:9\""]), http3(Some("::1"), 9, 86_400));
    }

    #[test]
    fn clear_and_lists_without_http3_end_what_was_said() {
        assert_eq!(said(&["clear"]), AltSvc::Clear);
        assert_eq!(said(&["h2=\":443\""]), AltSvc::Clear);
        assert_eq!(said(&[]), AltSvc::Absent);
    }

    #[test]
    fn nonsense_names_nothing() {
        for line in [
            "h3",
            "h3=",
            "h3=\"\"",
            "h3=\":0\"",
            "h3=\":70000\"",
            "h3=\":443\"; ma=x",
            "h3=:443",
            "=",
            ";",
            ",",
        ] {
            assert_eq!(said(&[line]), AltSvc::Clear, "{line}");
        }
    }
}
