//! The canonical form of a request, shared by routes, layers, logs, applications and upstreams: it
//! is made once, before anything else reads the request.
//!
//! The request is changed in place, so that no other view of it exists: its path is canonical
//! ([`Spelling`]), its host has one spelling in the target and in `host`, and an extended CONNECT
//! becomes a GET, as over HTTP/1.1. Few requests need a change; for all others the cost is one scan
//! of path and host.

use std::cell::RefCell;

use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::{Request, Response};
use pronghorn_target::{BadPath, Spelling};

use crate::config::Paths;
use crate::responses::text;

/// The part of the canonical form that is not in the request itself.
#[derive(Default)]
pub(crate) struct CanonicalView {
    /// The spelling of the path; `None` if the path is its own and only reading.
    spelling: Option<Box<Spelling>>,
}

/// Number of slots of the cache of hosts.
const SLOTS: usize = 16;
/// Length of the longest host that is cached, in bytes.
const MAX_HOST_BYTES: usize = 255;

/// A worker's cache of hosts, with their ports, that are canonical as written: most requests name
/// one of a few.
#[derive(Default)]
pub(crate) struct KnownHosts(RefCell<[Option<KnownHost>; SLOTS]>);

struct KnownHost {
    authority: Box<str>,
    /// Whether the request came over TLS, which decides the default port.
    secure: bool,
}

impl KnownHosts {
    /// Returns the canonical form of a host and port, or `None` if it is already canonical.
    fn canonical(&self, authority: &str, secure: bool) -> Result<Option<String>, InvalidRequest> {
        let bytes = authority.as_bytes();
        let middle = bytes.get(bytes.len() / 2).copied().unwrap_or_default();
        let slot = &mut self.0.borrow_mut()[(bytes.len() + usize::from(middle)) % SLOTS];
        if slot
            .as_ref()
            .is_some_and(|known| known.secure == secure && *known.authority == *authority)
        {
            return Ok(None);
        }
        let written = pronghorn_target::authority(authority, secure).map_err(|_| BAD_HOST)?;
        if written.is_none() && authority.len() <= MAX_HOST_BYTES {
            *slot = Some(KnownHost { authority: authority.into(), secure });
        }
        Ok(written)
    }
}

/// The path of a request as routes compare it, stored in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct PathReading {
    pub(crate) path: Box<str>,
    /// Whether all servers read the path in the same way.
    pub(crate) is_only: bool,
}

/// Refusal of a request that has no canonical form or matches no single route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRequest(&'static str);

impl From<InvalidRequest> for Response {
    fn from(InvalidRequest(message): InvalidRequest) -> Self {
        text(StatusCode::BAD_REQUEST, message)
    }
}

const BAD_METHOD: InvalidRequest = InvalidRequest("invalid method: methods are upper case\n");
const BAD_HOST: InvalidRequest = InvalidRequest("invalid host\n");
const BAD_PATH: InvalidRequest = InvalidRequest("invalid path\n");
pub(crate) const AMBIGUOUS: InvalidRequest =
    InvalidRequest("invalid path: servers disagree on its encoded slash or path parameter\n");
const SEPARATOR: InvalidRequest =
    InvalidRequest("invalid path: contains an encoded slash or a backslash\n");

impl From<BadPath> for InvalidRequest {
    fn from(path: BadPath) -> Self {
        match path {
            BadPath::HiddenDots | BadPath::HiddenSlash => AMBIGUOUS,
            _ => BAD_PATH,
        }
    }
}

impl CanonicalView {
    /// Makes a request canonical.
    ///
    /// # Errors
    ///
    /// If there is no canonical form. The request may be partly changed then.
    pub(crate) fn of(request: &mut Request, known: &KnownHosts) -> Result<Self, InvalidRequest> {
        check_method(&request.method)?;
        if request.upgrade.is_some() && request.method == Method::CONNECT {
            request.method = Method::GET;
        }
        let written = request
            .uri
            .authority()
            .map(|authority| known.canonical(authority.as_str(), request.peer.secure));
        if let Some(host) = written.transpose()?.flatten() {
            set_host(request, host)?;
        }
        let spelling = Spelling::of(request.uri.path())?;
        if let Some(spelling) =
            spelling.as_deref().filter(|spelling| spelling.passed() != request.uri.path())
        {
            request.uri = with_path(&request.uri, spelling.passed()).ok_or(BAD_PATH)?;
        }
        Ok(Self { spelling })
    }

    /// Returns the path in the form that patterns are compared with.
    pub(crate) fn literal<'a>(&'a self, uri: &'a Uri) -> &'a str {
        self.spelling.as_ref().map_or_else(|| uri.path(), |spelling| spelling.literal())
    }

    /// Returns the reading of the path for layers that decide by path; `None` if it is the path
    /// itself.
    pub(crate) fn reading(&self) -> Option<PathReading> {
        let spelling = self.spelling.as_ref()?;
        Some(PathReading { path: spelling.literal().into(), is_only: spelling.has_one_reading() })
    }

    /// Returns the result of `find` for the path, if it is the same for every reading.
    ///
    /// # Errors
    ///
    /// If the results differ.
    pub(crate) fn agreed<T: PartialEq>(
        &self,
        uri: &Uri,
        mut find: impl FnMut(&str) -> T,
    ) -> Result<T, InvalidRequest> {
        match &self.spelling {
            None => Ok(find(uri.path())),
            Some(spelling) => spelling.agreed(find).map_err(|_| AMBIGUOUS),
        }
    }

    /// Checks whether a route accepts the path.
    ///
    /// # Errors
    ///
    /// If the route does not accept it.
    pub(crate) fn allowed(&self, paths: Paths) -> Result<(), InvalidRequest> {
        let has_separators = paths == Paths::Strict
            && self.spelling.as_ref().is_some_and(|spelling| spelling.has_separators());
        if has_separators { Err(SEPARATOR) } else { Ok(()) }
    }
}

/// Rules name methods in upper case, and some applications treat `get` as GET.
fn check_method(method: &Method) -> Result<(), InvalidRequest> {
    let is_usual = *method == Method::GET || *method == Method::POST;
    if is_usual || !method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        Ok(())
    } else {
        Err(BAD_METHOD)
    }
}

/// Sets the host in the target and in the `host` field, which must agree.
fn set_host(request: &mut Request, host: String) -> Result<(), InvalidRequest> {
    let value = HeaderValue::try_from(host.as_str()).map_err(|_| BAD_HOST)?;
    let mut parts = std::mem::take(&mut request.uri).into_parts();
    parts.authority = Some(Authority::try_from(host).map_err(|_| BAD_HOST)?);
    request.uri = Uri::from_parts(parts).map_err(|_| BAD_HOST)?;
    request.headers.insert(HOST, value);
    Ok(())
}

/// Returns the target with another path.
pub(crate) fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(target.into_bytes()).ok()?);
    Uri::from_parts(parts).ok()
}

/// Returns the host of an admitted request, empty if there is none. The library's method searches
/// the whole authority for user information, which no admitted request has.
pub(crate) fn host(uri: &Uri) -> &str {
    split_authority(uri).0
}

/// Returns the port of the target.
pub(crate) fn port(uri: &Uri) -> Option<u16> {
    split_authority(uri).1.parse().ok()
}

/// Splits host and port; a port has at most five digits.
fn split_authority(uri: &Uri) -> (&str, &str) {
    let authority = uri.authority().map_or("", Authority::as_str);
    let digits = authority.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (host, port) = authority.split_at(authority.len() - digits);
    host.strip_suffix(':').map_or((authority, ""), |host| (host, port))
}

/// Returns a redirect location that stays on this server unless `location` names another one: some
/// clients treat `\` as `/`, and the text after two of either as a host.
pub(crate) fn location(location: String) -> String {
    let is_slash = |character: char| matches!(character, '/' | '\\');
    if !location.starts_with(is_slash) {
        return location;
    }
    format!("/{}", location.trim_start_matches(is_slash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_what_the_library_says() {
        for uri in [
            "/",
            "http://a",
            "http://a:1/",
            "http://a1/",
            "http://10.0.0.1:8080/x",
            "http://10.0.0.1/",
            "http://[::1]/",
            "http://[::1]:443/",
        ] {
            let uri: Uri = uri.parse().expect("a URI");
            assert_eq!(
                (host(&uri), port(&uri)),
                (uri.host().unwrap_or_default(), uri.port_u16()),
                "{uri}"
            );
        }
    }

    #[test]
    fn host_that_was_seen_before_has_the_same_form() {
        let known = KnownHosts::default();
        let long = format!("{}.test", "a".repeat(300));
        let texts = [
            "a.test",
            "A.test",
            "a.test:443",
            "a.test:80",
            "a.test.",
            "b.test",
            "[::1]",
            "[::01]",
            "a b",
            "",
            &long,
        ];
        for _ in 0..3 {
            for text in texts {
                for secure in [true, false] {
                    assert_eq!(
                        known.canonical(text, secure),
                        pronghorn_target::authority(text, secure).map_err(|_| BAD_HOST),
                        "{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn method_in_small_letters_is_refused() {
        for (method, is_good) in [
            ("GET", true),
            ("PURGE", true),
            ("M-SEARCH", true),
            ("get", false),
            ("Post", false),
            ("pURGE", false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(check_method(&method).is_ok(), is_good, "{method}");
        }
    }

    #[test]
    fn place_on_this_server_names_no_other() {
        for (given, wanted) in [
            ("/a", "/a"),
            ("//evil.example/", "/evil.example/"),
            ("/\\evil.example", "/evil.example"),
            ("\\/evil.example", "/evil.example"),
            ("https://a.example//b", "https://a.example//b"),
        ] {
            assert_eq!(location(given.to_owned()), wanted, "{given}");
        }
    }
}
