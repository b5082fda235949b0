//! The CGI variables of a request (RFC 3875, section 4.1), with those that applications have come
//! to expect.

use std::net::{IpAddr, SocketAddr};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use pronghorn_engine::Protocol;
use pronghorn_fastcgi::Parameters;

use crate::fields::identity_fields::{self, Kind};

const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The script to run, and its position in the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    /// URL path of the script, starting with `/`; empty for an application that answers all paths.
    pub(crate) name: Vec<u8>,
    /// File of the script, as seen by the application's machine.
    pub(crate) file: Option<Vec<u8>>,
    /// Document root, as seen by the application's machine.
    pub(crate) root: Option<Vec<u8>>,
    /// Part of the path after the script.
    pub(crate) path_info: Vec<u8>,
}

/// Information about a request that is not in its forwarded head.
#[derive(Clone, Debug)]
pub(crate) struct RequestInfo {
    pub(crate) script: Script,
    /// The target in canonical form, before `strip_prefix` and `rewrite`.
    pub(crate) target: Uri,
    /// The client's address, as reported by trusted proxies.
    pub(crate) client: IpAddr,
    /// The peer's address.
    pub(crate) peer: SocketAddr,
    pub(crate) protocol: Protocol,
    /// Whether the peer came over TLS.
    pub(crate) secure: bool,
    /// Whether the peer is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// Length of the request body, in bytes.
    pub(crate) length: u64,
    /// Variables that the configuration adds or overrides.
    pub(crate) variables: std::sync::Arc<[(String, String)]>,
}

/// Returns the parameters of a request.
pub(super) fn of(
    info: &RequestInfo,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Parameters {
    let mut out = VariableWriter { parameters: Parameters::default(), own: &info.variables };
    let RequestInfo { script, target, client, peer, protocol, length, .. } = info;
    // If several proxies added a value, the first proxy saw the client.
    let said = |name: &HeaderName| {
        let line = headers.get(name).filter(|_| info.is_trusted)?.to_str().ok()?;
        line.split(',').next().map(str::trim).filter(|first| !first.is_empty())
    };
    let secure =
        said(&X_FORWARDED_PROTO).map_or(info.secure, |scheme| scheme.eq_ignore_ascii_case("https"));
    out.put("GATEWAY_INTERFACE", "CGI/1.1");
    out.put("SERVER_SOFTWARE", "pronghorn");
    out.put(
        "SERVER_PROTOCOL",
        match protocol {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2.0",
            Protocol::Http3 => "HTTP/3.0",
        },
    );
    out.put("SERVER_NAME", target.host().unwrap_or_default());
    let port = target.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let port = said(&X_FORWARDED_PORT).and_then(|port| port.parse().ok()).unwrap_or(port);
    out.put("SERVER_PORT", port.to_string());
    out.put("REQUEST_SCHEME", if secure { "https" } else { "http" });
    if secure {
        out.put("HTTPS", "on");
    }
    out.put("REQUEST_METHOD", method.as_str());
    out.put("REQUEST_URI", target.path_and_query().map_or("/", http::uri::PathAndQuery::as_str));
    out.put("QUERY_STRING", uri.query().unwrap_or_default());
    out.put("SCRIPT_NAME", &script.name);
    out.put("DOCUMENT_URI", [&*script.name, &script.path_info].concat());
    if let Some(file) = &script.file {
        out.put("SCRIPT_FILENAME", file);
    }
    if let Some(root) = &script.root {
        out.put("DOCUMENT_ROOT", root);
    }
    // Always set: applications test for its presence.
    out.put("PATH_INFO", &script.path_info);
    if let Some(root) = script.root.as_ref().filter(|_| !script.path_info.is_empty()) {
        out.put("PATH_TRANSLATED", [&**root, &script.path_info].concat());
    }
    out.put("REMOTE_ADDR", client.to_string());
    // The port of a client behind a proxy is unknown.
    if peer.ip().to_canonical() == *client {
        out.put("REMOTE_PORT", peer.port().to_string());
    }
    // Required by php-cgi unless `cgi.force_redirect` is off.
    out.put("REDIRECT_STATUS", "200");
    out.put("CONTENT_TYPE", headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes));
    out.put(
        "CONTENT_LENGTH",
        if *length == 0 && !headers.contains_key(CONTENT_LENGTH) {
            String::new()
        } else {
            length.to_string()
        },
    );
    out.put_fields(headers);
    for (name, value) in &*info.variables {
        out.parameters.put(name, value);
    }
    out.parameters
}

struct VariableWriter<'a> {
    parameters: Parameters,
    /// Variables of the configuration.
    own: &'a [(String, String)],
}

impl VariableWriter<'_> {
    fn put(&mut self, name: &str, value: impl AsRef<[u8]>) {
        if !self.own.iter().any(|(own, _)| own == name) {
            self.parameters.put(name, value);
        }
    }

    /// Adds each field as a variable, its name prefixed with `HTTP_`.
    fn put_fields(&mut self, headers: &HeaderMap) {
        for name in headers.keys() {
            // Several such names would become the same variable.
            let is_forbidden = matches!(
                identity_fields::kind(name.as_str()),
                Some(Kind::Unusual | Kind::Forbidden)
            );
            if is_forbidden || *name == CONTENT_TYPE || *name == CONTENT_LENGTH {
                continue;
            }
            let variable = format!("HTTP_{}", name.as_str().to_ascii_uppercase().replace('-', "_"));
            let separator: &[u8] = if *name == COOKIE { b"; " } else { b", " };
            let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
            let first = lines.next().unwrap_or_default();
            // Only the first `host` counts: the application must not see another one than the
            // router.
            if headers.get_all(name).iter().nth(1).is_none() || *name == HOST {
                self.put(&variable, first);
            } else {
                let value = lines.fold(first.to_vec(), |mut joined, line| {
                    joined.extend_from_slice(separator);
                    joined.extend_from_slice(line);
                    joined
                });
                self.put(&variable, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn info() -> RequestInfo {
        RequestInfo {
            script: Script {
                name: b"/shop/index.php".to_vec(),
                file: Some(b"/srv/www/index.php".to_vec()),
                root: Some(b"/srv/www".to_vec()),
                path_info: b"/a b".to_vec(),
            },
            target: Uri::from_static("https://example.org:8443/shop/index.php/a%20b?x=%41"),
            client: [192, 0, 2, 7].into(),
            peer: "[::ffff:192.0.2.7]:4000".parse().expect("an address"),
            protocol: Protocol::Http3,
            secure: true,
            is_trusted: false,
            length: 0,
            variables: [].into(),
        }
    }

    fn decode(mut bytes: &[u8]) -> BTreeMap<String, String> {
        use bytes::Buf;
        fn length(bytes: &mut &[u8]) -> usize {
            if bytes[0] < 0x80 {
                bytes.get_u8().into()
            } else {
                (bytes.get_u32() & 0x7FFF_FFFF) as usize
            }
        }
        let mut found = BTreeMap::new();
        while !bytes.is_empty() {
            let (name, value) = (length(&mut bytes), length(&mut bytes));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let before = found.insert(text(&bytes[..name]), text(&bytes[name..name + value]));
            assert_eq!(before, None, "each is there once");
            bytes = &bytes[name + value..];
        }
        found
    }

    fn told(
        info: &RequestInfo,
        lines: &[(&'static str, &'static str)],
    ) -> BTreeMap<String, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        decode(
            of(info, &Method::POST, &Uri::from_static("/index.php/a%20b?x=%41"), &headers)
                .encoded(),
        )
    }

    #[test]
    fn request_is_told_as_cgi_has_it() {
        let lines = [
            ("host", "example.org:8443"),
            ("content-type", "text/x"),
            ("content-length", "5"),
            ("user-agent", "u"),
        ];
        let told = told(&RequestInfo { length: 5, ..info() }, &lines);
        for (name, value) in [
            ("SERVER_PROTOCOL", "HTTP/3.0"),
            ("SERVER_NAME", "example.org"),
            ("SERVER_PORT", "8443"),
            ("HTTPS", "on"),
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_URI", "/shop/index.php/a%20b?x=%41"),
            ("QUERY_STRING", "x=%41"),
            ("SCRIPT_NAME", "/shop/index.php"),
            ("SCRIPT_FILENAME", "/srv/www/index.php"),
            ("DOCUMENT_ROOT", "/srv/www"),
            ("PATH_INFO", "/a b"),
            ("PATH_TRANSLATED", "/srv/www/a b"),
            ("DOCUMENT_URI", "/shop/index.php/a b"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_PORT", "4000"),
            ("CONTENT_TYPE", "text/x"),
            ("CONTENT_LENGTH", "5"),
            ("HTTP_HOST", "example.org:8443"),
            ("HTTP_USER_AGENT", "u"),
        ] {
            assert_eq!(told.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(
            !told.contains_key("HTTP_CONTENT_LENGTH") && !told.contains_key("HTTP_CONTENT_TYPE")
        );
    }

    #[test]
    fn client_sets_no_variable_of_the_machine() {
        let lines = [
            ("proxy", "http://evil"),
            ("x_forwarded_for", "1.2.3.4"),
            ("a.b", "x"),
            ("host", "a"),
            ("host", "b"),
        ];
        let told = told(&info(), &lines);
        let fields: Vec<_> = told.iter().filter(|(name, _)| name.starts_with("HTTP_")).collect();
        assert_eq!(fields, [(&"HTTP_HOST".to_owned(), &"a".to_owned())]);
        assert_eq!(told["CONTENT_LENGTH"], "");
    }

    #[test]
    fn lines_of_one_name_are_one_variable() {
        let told = told(
            &info(),
            &[("cookie", "a=b"), ("cookie", "c=d"), ("accept", "x"), ("accept", "y")],
        );
        assert_eq!(
            (told["HTTP_COOKIE"].as_str(), told["HTTP_ACCEPT"].as_str()),
            ("a=b; c=d", "x, y")
        );
    }

    #[test]
    fn proxy_that_is_trusted_says_how_the_client_came() {
        let lines = [("x-forwarded-proto", "http"), ("x-forwarded-port", "8080")];
        let trusting = RequestInfo { is_trusted: true, client: [203, 0, 113, 9].into(), ..info() };
        let told_to = told(&trusting, &lines);
        assert_eq!(
            (told_to["REQUEST_SCHEME"].as_str(), told_to["SERVER_PORT"].as_str()),
            ("http", "8080")
        );
        assert!(!told_to.contains_key("HTTPS") && !told_to.contains_key("REMOTE_PORT"));
        assert_eq!(told(&info(), &lines)["REQUEST_SCHEME"], "https");
        // Several proxies may each have added a value: the first proxy saw the client.
        for (line, scheme) in [
            ("https, http", "https"),
            ("HTTPS ,http", "https"),
            ("http, https", "http"),
            ("", "https"),
        ] {
            assert_eq!(
                told(&trusting, &[("x-forwarded-proto", line)])["REQUEST_SCHEME"],
                scheme,
                "{line}"
            );
        }
        assert_eq!(told(&trusting, &[("x-forwarded-port", "8443, 80")])["SERVER_PORT"], "8443");
    }

    #[test]
    fn configuration_has_the_last_word() {
        let variables =
            [("APP_ENV".to_owned(), "prod".to_owned()), ("HTTPS".to_owned(), "off".to_owned())];
        let told = told(&RequestInfo { variables: variables.into(), ..info() }, &[]);
        assert_eq!((told["APP_ENV"].as_str(), told["HTTPS"].as_str()), ("prod", "off"));
    }

    #[test]
    fn long_names_and_values_have_long_lengths() {
        let variables = [("N".repeat(128), "v".repeat(70_000)), ("M".repeat(127), "w".repeat(127))];
        let told = told(&RequestInfo { variables: variables.clone().into(), ..info() }, &[]);
        for (name, value) in &variables {
            assert_eq!(told.get(name), Some(value));
        }
    }
}
