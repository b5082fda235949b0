//! Which requests reach a handler: the rules of the one request model, on top of what each protocol
//! checks.

mod authority_cache;

use http::header::{CONTENT_LENGTH, COOKIE, EXPECT, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, Parts, Scheme};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};

use crate::Upgrade;
use crate::message::Protocol;
pub(crate) use authority_cache::{AuthorityCache, NamedAuthority};

/// A request's head as its protocol delivered it.
pub(crate) struct Head<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) version: Version,
    pub(crate) secure: bool,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// The `:protocol` pseudo-header field of an extended CONNECT.
    pub(crate) upgrade: Option<Upgrade>,
    /// The authority of an earlier request of the connection that was admitted.
    pub(crate) latest: Option<&'a NamedAuthority>,
}

/// A head that follows the rules, so that it means the same to the next recipient, over any
/// protocol.
///
/// - The target is `/path`, `*` for OPTIONS, or an authority for CONNECT unless it is extended. It
///   is ASCII and has no fragment.
/// - The URI names an authority, and one `host` line has the same value, in the same spelling. The
///   authority has no user, and its port is a number.
/// - There is at most one `content-length` line, of digits alone, and none for CONNECT. Over HTTP/2
///   and HTTP/3 there is no `transfer-encoding`.
/// - No value begins or ends with white space. Over HTTP/2 and HTTP/3 there is at most one `cookie`
///   line.
/// - Over HTTP/1.1 a request with `upgrade` is a GET without content. Over any protocol `upgrade`
///   names one protocol.
///
/// Written out over HTTP/1.1, such a request is one request with the same method, target, host and
/// content, unless it is an extended CONNECT.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// The protocol that the request asks to switch to.
    pub(crate) upgrade: Option<Upgrade>,
    /// The client waits for 100 (Continue) before it sends content.
    pub(crate) expects_continue: bool,
}

/// Why a request is answered without a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// For tests and for readers of a trace. The client gets the status alone.
    pub(crate) reason: &'static str,
}

const fn malformed(reason: &'static str) -> Refusal {
    Refusal { status: StatusCode::BAD_REQUEST, reason }
}

/// The result of [`Head::admit_in_place`].
#[derive(Clone, Copy)]
pub(crate) struct AdmittedDetails {
    /// See [`Admitted::expects_continue`].
    pub(crate) expects_continue: bool,
    /// There is a `priority` field line (RFC 9218).
    pub(crate) has_priority: bool,
}

impl Head<'_> {
    pub(crate) fn admit(mut self) -> Result<Admitted, Refusal> {
        let AdmittedDetails { expects_continue, .. } = self.admit_in_place()?;
        let Self { method, uri, headers, upgrade, .. } = self;
        Ok(Admitted { method, uri, headers, upgrade, expects_continue })
    }

    /// Like [`Head::admit`], without moving the head. Its method, URI, field lines and upgrade are
    /// then those of an [`Admitted`].
    pub(crate) fn admit_in_place(&mut self) -> Result<AdmittedDetails, Refusal> {
        let present = PresentFields::of(&self.headers);
        check_target(self.protocol, &self.method, &self.uri, self.upgrade.is_some())?;
        if self.upgrade.as_ref().is_some_and(|upgrade| !upgrade.is_one_protocol()) {
            return Err(Refusal {
                status: StatusCode::NOT_IMPLEMENTED,
                reason: "`:protocol` does not name exactly one protocol",
            });
        }
        check_lines(self.protocol, present, &self.headers)?;
        if present.content_length || self.method == Method::CONNECT {
            check_length(&self.method, &mut self.headers)?;
        }
        let expects_continue = present.expect && expectation(self.version, &self.headers)?;
        let from_host =
            authority(self.version, &self.uri, present, self.latest, &mut self.headers)?;
        if self.method == Method::CONNECT && self.upgrade.is_none() {
            let named = from_host.as_ref().or(self.uri.authority());
            if named.and_then(Authority::port_u16).is_none() {
                return Err(malformed("missing port in the target of CONNECT"));
            }
        }
        if !is_complete(&self.uri) {
            self.uri = complete(std::mem::take(&mut self.uri), from_host, self.secure)?;
        }
        if present.cookie && self.protocol != Protocol::Http1 {
            join_cookies(&mut self.headers);
        }
        if present.upgrade && self.protocol == Protocol::Http1 {
            // Content would stand between the head and the other protocol.
            let has_content = present.transfer_encoding
                || self.headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
            self.upgrade = if has_content {
                None
            } else {
                Upgrade::from_http1(self.version, &self.method, &self.headers)
            };
        }
        Ok(AdmittedDetails { expects_continue, has_priority: present.priority })
    }
}

/// Which field lines that have rules a head contains. Found in one pass, since most heads have none
/// of them.
#[derive(Clone, Copy, Default)]
struct PresentFields {
    content_length: bool,
    cookie: bool,
    expect: bool,
    host: bool,
    priority: bool,
    transfer_encoding: bool,
    upgrade: bool,
}

impl PresentFields {
    fn of(headers: &HeaderMap) -> Self {
        let mut present = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "content-length" => present.content_length = true,
                "cookie" => present.cookie = true,
                "expect" => present.expect = true,
                "host" => present.host = true,
                "priority" => present.priority = true,
                "transfer-encoding" => present.transfer_encoding = true,
                "upgrade" => present.upgrade = true,
                _ => {}
            }
        }
        present
    }
}

/// RFC 9112, section 3.2: the method has to allow the target's form.
fn check_target(
    protocol: Protocol,
    method: &Method,
    uri: &Uri,
    is_extended: bool,
) -> Result<(), Refusal> {
    if uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return Err(malformed("invalid scheme in the target: neither http nor https"));
    }
    let allowed = match uri.path_and_query() {
        None => method == Method::CONNECT && uri.authority().is_some() && !is_extended,
        //= RFC 8441 section 4
        //# On requests that contain the :protocol pseudo-header field, the :scheme and :path pseudo-header fields of the target URI (see
        //# Section 5) MUST also be included.
        Some(_) if method == Method::CONNECT && !is_extended => false,
        // Conversely, `:protocol` is for CONNECT alone.
        Some(_) if method != Method::CONNECT && is_extended => false,
        Some(target) => {
            target.as_str().starts_with('/') || (target == "*" && method == Method::OPTIONS)
        }
    };
    // The `http` crate accepts such a target. Over HTTP/1.1 the reader has refused it.
    if protocol != Protocol::Http1
        && uri.path_and_query().is_some_and(|target| !target.as_str().is_ascii())
    {
        return Err(malformed("non-ASCII character in the target"));
    }
    if allowed { Ok(()) } else { Err(malformed("invalid form of target for the method")) }
}

/// Checks field lines as far as their types do not.
fn check_lines(
    protocol: Protocol,
    present: PresentFields,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    if protocol == Protocol::Http1 {
        // The reader has trimmed white space, and `transfer-encoding` tells how the content was
        // framed.
        return Ok(());
    }
    //= RFC 9113 section 8.2.1
    //# A field value MUST NOT start or end with an ASCII whitespace character (ASCII SP or HTAB, 0x20 or 0x09).
    // Over HTTP/3, `pronghorn_h3` has checked this.
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_space_around = |value: &HeaderValue| {
        is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
    };
    if protocol == Protocol::Http2 && headers.values().any(has_space_around) {
        return Err(malformed("white space around a field value"));
    }
    if present.transfer_encoding {
        return Err(malformed("`transfer-encoding` is not allowed"));
    }
    Ok(())
}

/// RFC 9110, section 8.6. Merges equal lines into one.
fn check_length(method: &Method, headers: &mut HeaderMap) -> Result<(), Refusal> {
    if method == Method::CONNECT && headers.contains_key(TRANSFER_ENCODING) {
        return Err(malformed("CONNECT with content"));
    }
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else { return Ok(()) };
    let repeated = match lines.next() {
        None => false,
        Some(second) if second == first && lines.all(|line| line == first) => true,
        Some(_) => return Err(malformed("conflicting `content-length` lines")),
    };
    // Twenty digits can exceed 64 bits, and some readers wrap around.
    if first.is_empty() || first.len() > 19 || !first.as_bytes().iter().all(u8::is_ascii_digit) {
        return Err(malformed("`content-length` is not a number"));
    }
    // RFC 9110, section 9.3.6: a CONNECT request has no content. Recipients differ in how they read
    // what follows it.
    if method == Method::CONNECT {
        return Err(malformed("CONNECT with content"));
    }
    if repeated {
        let first = first.clone();
        headers.insert(CONTENT_LENGTH, first);
    }
    Ok(())
}

/// Whether the client waits for 100 (Continue) (RFC 9110, section 10.1.1).
fn expectation(version: Version, headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut lines = headers.get_all(EXPECT).iter();
    let Some(first) = lines.next() else { return Ok(false) };
    //= RFC 9110 section 10.1.1
    //# A server that receives a 100-continue expectation in an HTTP/1.0 request MUST ignore that expectation.
    if version < Version::HTTP_11 {
        return Ok(false);
    }
    if lines.next().is_some() || !first.as_bytes().eq_ignore_ascii_case(b"100-continue") {
        return Err(Refusal {
            status: StatusCode::EXPECTATION_FAILED,
            reason: "`expect` is not `100-continue`",
        });
    }
    Ok(true)
}

/// Returns the authority from `host` if the target has none. If only the target has it, adds a
/// `host` line with the same value.
fn authority(
    version: Version,
    uri: &Uri,
    present: PresentFields,
    latest: Option<&NamedAuthority>,
    headers: &mut HeaderMap,
) -> Result<Option<Authority>, Refusal> {
    if let (false, Some(target), Some(latest)) = (present.host, uri.authority(), latest)
        && target.as_str() == latest.authority.as_str()
        && version != Version::HTTP_11
    {
        headers.insert(HOST, latest.host.clone());
        return Ok(None);
    }
    let mut lines = headers.get_all(HOST).iter();
    let host = lines.next();
    //= RFC 9112 section 3.2
    //# A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host header field and
    //# to any request message that contains more than one Host header field line or a Host header field with an invalid field value.
    if lines.next().is_some() {
        return Err(malformed("duplicate `host`"));
    }
    if let (None, Some(host), Some(latest)) = (uri.authority(), host, latest)
        && *host == latest.host
    {
        return Ok(Some(latest.authority.clone()));
    }
    if version == Version::HTTP_11 && host.is_none() {
        return Err(malformed("missing `host`"));
    }
    let host = host
        .map(|value| Authority::try_from(value.as_bytes()))
        .transpose()
        .map_err(|_| malformed("invalid `host`"))?;
    let from_host = match (uri.authority(), host) {
        (Some(target), Some(host)) if target.as_str() == host.as_str() => None,
        // One spelling from here on, so that it does not matter which of the two is read.
        (Some(target), Some(host)) if target.as_str().eq_ignore_ascii_case(host.as_str()) => {
            let value = HeaderValue::from_str(target.as_str())
                .map_err(|_| malformed("invalid authority"))?;
            headers.insert(HOST, value);
            None
        }
        // A proxy that reads one and a server that reads the other would not agree on the
        // authority.
        (Some(_), Some(_)) => return Err(malformed("`host` differs from the target's authority")),
        (Some(target), None) => {
            let value = HeaderValue::from_str(target.as_str())
                .map_err(|_| malformed("invalid authority"))?;
            headers.insert(HOST, value);
            None
        }
        (None, Some(host)) => Some(host),
        (None, None) => return Err(malformed("missing authority")),
    };
    let named = from_host.as_ref().or(uri.authority()).map_or("", Authority::as_str);
    if is_host_and_port(named) {
        Ok(from_host)
    } else {
        Err(malformed("the authority is not a host with an optional port"))
    }
}

/// RFC 3986, section 3.2, without the user: a name, an IPv4 address or an IPv6 address in brackets,
/// and an optional port.
fn is_host_and_port(authority: &str) -> bool {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(address) => {
            let Some((address, rest)) = address.split_once(']') else { return false };
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            (address, rest)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |port: &str| {
        port.len() <= 5
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok()
    };
    // The grammar allows a comma in a name, but DNS does not use it, and to some readers it
    // separates two hosts.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:".contains(&byte);
    !host.is_empty()
        && host.bytes().all(is_name)
        && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

fn is_complete(uri: &Uri) -> bool {
    uri.authority().is_some() && (uri.scheme().is_some() || uri.path_and_query().is_none())
}

fn complete(uri: Uri, authority: Option<Authority>, secure: bool) -> Result<Uri, Refusal> {
    let mut parts = Parts::default();
    parts.scheme = Some(if secure { Scheme::HTTPS } else { Scheme::HTTP });
    let target = uri.into_parts();
    parts.authority = authority.or(target.authority);
    parts.path_and_query = target.path_and_query;
    Uri::from_parts(parts).map_err(|_| malformed("invalid target"))
}

/// RFC 9113, section 8.2.3, and RFC 9114, section 4.2.1.
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    let mut sensitive = first.is_sensitive();
    for line in std::iter::once(second).chain(lines) {
        sensitive |= line.is_sensitive();
        // An empty crumb has no pair to add, and after the delimiter it would leave white space at
        // the end.
        if line.is_empty() {
            continue;
        }
        //= RFC 9114 section 4.2.1
        //# If a decompressed field section contains multiple cookie field lines, these MUST be concatenated into a single byte string
        //# using the two-byte delimiter of "; " (ASCII 0x3b, 0x20) before being passed into a context other than HTTP/2 or HTTP/3,
        //# such as an HTTP/1.1 connection, or a generic HTTP server application.
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    let mut value =
        HeaderValue::from_bytes(&joined).expect("invariant: valid values and a delimiter");
    value.set_sensitive(sensitive);
    headers.insert(COOKIE, value);
}

#[cfg(test)]
mod desync;
#[cfg(test)]
mod tests;
