//! The origin of a request.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use http::uri::{Authority, Scheme};
use http::{Request, Uri};

use crate::Error;

/// A request extension: sends the request to this Unix socket, in cleartext. The URI still
/// specifies the host.
///
/// ```
/// use std::path::Path;
///
/// use pronghorn_client::UnixSocket;
///
/// let mut request = http::Request::get("http://localhost/version").body(()).expect("a request");
/// request.extensions_mut().insert(UnixSocket(Path::new("/run/app.sock").into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnixSocket(pub Arc<Path>);

/// Scheme, host and port (RFC 6454), by which connections are pooled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) secure: bool,
    /// In lower case; an IPv6 address has no brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The server's Unix socket, if used.
    pub(crate) socket: Option<Arc<Path>>,
}

impl Origin {
    /// Returns the origin of a request, from its URI and extensions.
    pub(crate) fn of_request<B>(request: &Request<B>) -> Result<Self, Error> {
        let origin = Self::of(request.uri())?;
        let Some(UnixSocket(path)) = request.extensions().get() else { return Ok(origin) };
        if origin.secure {
            return Err(Error::Uri {
                uri: request.uri().to_string(),
                reason: "TLS is not supported over Unix sockets; use the scheme http",
            });
        }
        Ok(Self { socket: Some(path.clone()), ..origin })
    }

    fn of(uri: &Uri) -> Result<Self, Error> {
        let fail = |reason| Error::Uri { uri: uri.to_string(), reason };
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(fail("the scheme is neither http nor https")),
        };
        let host = uri
            .host()
            .map(|host| host.trim_start_matches('[').trim_end_matches(']'))
            .unwrap_or_default();
        if host.is_empty() {
            return Err(fail("missing host"));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(fail(
                "the URI contains user information; send it in the authorization header",
            ));
        }
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(Self { secure, host: host.to_ascii_lowercase(), port, socket: None })
    }
}

/// The part of a request that determines its origin, as given.
pub(crate) struct Target {
    scheme: Scheme,
    authority: Authority,
    socket: Option<UnixSocket>,
}

impl Target {
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Self> {
        let (uri, socket) = (request.uri(), request.extensions().get().cloned());
        Some(Self { scheme: uri.scheme()?.clone(), authority: uri.authority()?.clone(), socket })
    }

    /// Returns whether `request` has the same origin, as given.
    pub(crate) fn is_of<B>(&self, request: &Request<B>) -> bool {
        let uri = request.uri();
        uri.scheme() == Some(&self.scheme)
            && uri
                .authority()
                .is_some_and(|authority| authority.as_str() == self.authority.as_str())
            && request.extensions().get() == self.socket.as_ref()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.socket {
            return write!(f, "unix:{}", path.display());
        }
        let scheme = if self.secure { "https" } else { "http" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(uri: &str) -> Result<String, Error> {
        Origin::of(&uri.parse().unwrap()).map(|origin| origin.to_string())
    }

    #[test]
    fn origin_has_the_schemes_port_and_a_host_in_lower_case() {
        assert_eq!(origin("https://Example.ORG/path").unwrap(), "https://example.org:443");
        assert_eq!(origin("http://example.org").unwrap(), "http://example.org:80");
        assert_eq!(origin("https://[::1]:8443/").unwrap(), "https://[::1]:8443");
    }

    #[test]
    fn unix_socket_has_connections_of_its_own_and_no_tls() {
        let request = |uri: &str, path: &str| {
            let mut request = Request::get(uri).body(()).unwrap();
            request.extensions_mut().insert(UnixSocket(Path::new(path).into()));
            Origin::of_request(&request)
        };
        let origin = request("http://localhost/", "/run/a.sock").unwrap();
        assert_eq!(origin.to_string(), "unix:/run/a.sock");
        assert_ne!(origin, request("http://localhost/", "/run/b.sock").unwrap());
        assert_ne!(origin, Origin::of(&"http://localhost/".parse().unwrap()).unwrap());
        assert!(matches!(request("https://localhost/", "/run/a.sock"), Err(Error::Uri { .. })));
    }

    #[test]
    fn target_is_of_requests_that_say_the_same() {
        let request = |uri: &str, path: Option<&str>| {
            let mut request = Request::get(uri).body(()).unwrap();
            if let Some(path) = path {
                request.extensions_mut().insert(UnixSocket(Path::new(path).into()));
            }
            request
        };
        let asked = request("http://localhost:80/a", Some("/run/a.sock"));
        let target = Target::of(&asked).unwrap();
        assert!(
            target.is_of(&asked)
                && target.is_of(&request("http://localhost:80/b", Some("/run/a.sock")))
        );
        for (uri, path) in [
            ("https://localhost:80/a", Some("/run/a.sock")),
            ("http://localhost:81/a", Some("/run/a.sock")),
            ("http://localhost/a", Some("/run/a.sock")),
            ("http://localhost:80/a", Some("/run/b.sock")),
            ("http://localhost:80/a", None),
        ] {
            assert!(!target.is_of(&request(uri, path)), "{uri} {path:?}");
        }
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for uri in ["/path", "ftp://example.org/", "https://user@example.org/"] {
            assert!(matches!(origin(uri), Err(Error::Uri { .. })), "{uri}");
        }
    }
}
