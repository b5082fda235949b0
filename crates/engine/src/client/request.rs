//! Request heads in the form of each protocol.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use super::Error;
use crate::connection_fields::remove_connection_fields;
use crate::{Body, Upgrade};

/// Makes `content-length` and the body agree, as for responses: the recipient must not take part of
/// a body for the next request.
pub(crate) fn frame(request: &mut Request<Body>) -> Result<(), Error> {
    // One look at each name, instead of one map lookup for each of these fields.
    let (mut has_coding, mut has_length, mut has_trailer) = (false, false, false);
    for name in request.headers().keys() {
        has_coding |= *name == TRANSFER_ENCODING;
        has_trailer |= *name == TRAILER;
        has_length |= *name == CONTENT_LENGTH;
    }
    if has_coding {
        request.headers_mut().remove(TRANSFER_ENCODING);
    }
    let repeats_names = request.headers().len() > request.headers().keys_len();
    if repeats_names && request.headers().get_all(HOST).iter().nth(1).is_some() {
        return Err(Error::Exchange("duplicate `host` field".to_owned()));
    }
    if !has_length {
        if !has_trailer && request.extensions().get::<Upgrade>().is_none() {
            announce_length(request);
        }
        return Ok(());
    }
    let mut lines = request.headers().get_all(CONTENT_LENGTH).iter();
    let Some(first) = lines.next() else { return Ok(()) };
    let digits = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let announced =
        digits.and_then(|digits| digits.parse().ok()).filter(|_| lines.next().is_none());
    match (announced, request.body().size_hint().exact()) {
        (Some(announced), Some(size)) if announced == size => {}
        (Some(announced), None) => request.body_mut().expect_bytes(announced),
        _ => {
            return Err(Error::Exchange(
                "`content-length` differs from the size of the body".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Adds `content-length` if the size of the body is known, over all three protocols.
//= RFC 9110 section 8.6
//# A user agent SHOULD send Content-Length in a request when the method defines a meaning for enclosed content and it is not
//# sending Transfer-Encoding.
fn announce_length(request: &mut Request<Body>) {
    let Some(size) = request.body().size_hint().exact() else { return };
    let expects_content = || [Method::POST, Method::PUT, Method::PATCH].contains(request.method());
    if (size == 0 && !expects_content()) || *request.method() == Method::CONNECT {
        return;
    }
    if request.body().full_size().is_none() {
        request.body_mut().expect_bytes(size);
    }
    request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
}

/// RFC 9112, section 3.2.1: the target is the path alone, and the authority moves to `host`.
pub(crate) fn for_http1(request: &mut Request<Body>) {
    // One look at each name, as above.
    let (mut has_host, mut has_length, mut has_trailer) = (false, false, false);
    for name in request.headers().keys() {
        has_host |= *name == HOST;
        has_length |= *name == CONTENT_LENGTH;
        has_trailer |= *name == TRAILER;
    }
    if let Some(authority) = request.uri().authority()
        && !has_host
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    // A body of unknown size, or one with trailers, needs the chunked coding.
    let is_open_ended = request.body().size_hint().exact().is_none() || has_trailer;
    if is_open_ended && !has_length {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // The version is that of the connection, not that of a request that arrived over HTTP/3 and is
    // passed on.
    *request.version_mut() = Version::HTTP_11;
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
}

/// Prepares a request for HTTP/2 and HTTP/3: removes the fields of an HTTP/1.1 connection, and
/// moves `host` to the target. The `host` differs from the server's name if a proxy passes on the
/// original one.
pub(super) fn for_streams(request: &mut Request<Body>, secure: bool) -> Result<(), Error> {
    remove_named_fields(request.headers_mut());
    remove_connection_fields(request.headers_mut());
    //= RFC 9113 section 8.3.1
    //# Clients MUST NOT generate a request with a Host header field that differs from the ":authority" pseudo-header field.
    let host = request.headers_mut().remove(HOST);
    if request.uri().scheme().is_some()
        && host.as_ref().is_none_or(|host| is_authority(host, request.uri()))
    {
        return Ok(());
    }
    let mut parts = request.uri().clone().into_parts();
    if let Some(host) = host {
        let authority = Authority::try_from(host.as_bytes());
        parts.authority = Some(
            authority.map_err(|error| Error::Exchange(format!("invalid `host` field: {error}")))?,
        );
    }
    // The target of a CONNECT has neither path nor scheme.
    if parts.path_and_query.is_some() && parts.authority.is_some() {
        parts.scheme = parts.scheme.or(Some(if secure { Scheme::HTTPS } else { Scheme::HTTP }));
    }
    *request.uri_mut() =
        Uri::from_parts(parts).map_err(|error| Error::Exchange(error.to_string()))?;
    Ok(())
}

fn is_authority(host: &HeaderValue, uri: &Uri) -> bool {
    uri.authority().is_some_and(|authority| authority.as_str().as_bytes() == host.as_bytes())
}

/// RFC 9110, section 7.6.1: removes the fields that `connection` names, since they belong to the
/// connection. Of `te` it keeps `trailers`, which HTTP/2 and HTTP/3 have too.
fn remove_named_fields(headers: &mut HeaderMap) {
    let named: Vec<_> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .collect();
    let named: Vec<_> = named
        .into_iter()
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    // `te` is handled below.
    for name in named.iter().filter(|name| **name != TE) {
        headers.remove(name);
    }
    let Some(wanted) = headers.remove(TE) else { return };
    if wanted
        .as_bytes()
        .split(|byte| *byte == b',')
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}
