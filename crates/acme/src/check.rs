//! Checks of settings and names, with messages for operators.

use std::net::IpAddr;

/// Directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// A setting that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {hint}")]
pub struct Invalid {
    /// What is wrong.
    pub message: &'static str,
    /// What to do about it.
    pub hint: &'static str,
}

/// Checks the URL of a directory.
///
/// # Errors
///
/// Returns an error unless the URL begins with `https://` and a host.
pub fn check_directory(url: &str) -> Result<(), Invalid> {
    let is_valid = url
        .parse::<http::Uri>()
        .is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
    is_valid.then_some(()).ok_or(Invalid {
        message: "invalid ACME directory",
        hint: "use a URL that begins with https://",
    })
}

/// Checks an email address for the authority.
///
/// # Errors
///
/// Returns an error if it has no `@`, or white space or a scheme.
pub fn check_email(email: &str) -> Result<(), Invalid> {
    let is_valid =
        email.contains('@') && !email.contains(char::is_whitespace) && !email.contains(':');
    is_valid.then_some(()).ok_or(Invalid {
        message: "invalid email address",
        hint: "use a form such as admin@example.org, or leave it out",
    })
}

/// Checks whether the authority of `directory` could issue a certificate for a host.
///
/// # Errors
///
/// Returns an error if no order for the host can succeed.
pub fn check_host(host: &str, directory: &str) -> Result<(), Invalid> {
    let invalid = |message, hint| Err(Invalid { message, hint });
    if host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok() {
        return invalid(
            "ACME certificates need a host name, not an IP address",
            "use the name that leads to this server",
        );
    }
    if host.contains('*') {
        return invalid(
            "a wildcard certificate cannot be ordered with these challenges",
            "list each host",
        );
    }
    if !host.is_ascii() {
        return invalid("invalid host name", "use the ASCII form of international names (xn--…)");
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.len() > 253 || !host.split('.').all(is_label) {
        return invalid(
            "no authority issues a certificate for this name",
            "use a form such as www.example.com",
        );
    }
    if directory == LETS_ENCRYPT && !host.contains('.') {
        return invalid(
            "a public authority issues no certificate for a name without a dot",
            "use the full name, such as www.example.com",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_possible_certificate_are_refused() {
        for host in ["www.example.com", "a-b.example", "xn--bcher-kva.example", "1.example"] {
            assert_eq!(check_host(host, LETS_ENCRYPT), Ok(()), "{host}");
        }
        for host in [
            "192.0.2.1",
            "[2001:db8::1]",
            "2001:db8::1",
            "*.example.com",
            "b\u{fc}cher.example",
            "a_b.example",
            "-a.example",
            "a-.example",
            "a..example",
            "example.com.",
            "../x",
            "",
            "localhost",
        ] {
            assert!(check_host(host, LETS_ENCRYPT).is_err(), "{host}");
        }
        assert_eq!(check_host("localhost", "https://ca.internal/dir"), Ok(()));
    }

    #[test]
    fn directories_and_addresses_are_checked() {
        assert_eq!(check_directory(LETS_ENCRYPT), Ok(()));
        for url in ["", "staging", "http://ca.example/dir", "https://"] {
            assert!(check_directory(url).is_err(), "{url}");
        }
        assert_eq!(check_email("admin@example.org"), Ok(()));
        for email in ["admin", "a b@example.org", "mailto:admin@example.org"] {
            assert!(check_email(email).is_err(), "{email}");
        }
    }
}
