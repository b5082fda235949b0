//! Redirects of `pronghorn get --location`: the target, and the request to send.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_LOCATION,
    CONTENT_RANGE, CONTENT_TYPE, COOKIE, EXPECT, HOST, HeaderName, LAST_MODIFIED, LOCATION,
    PROXY_AUTHORIZATION, TRAILER, TRANSFER_ENCODING,
};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use pronghorn_engine::Incoming;

use crate::failure::{Failure, Kind};

/// Fields that describe the content of a request, including its framing and digests.
const CONTENT_FIELDS: [HeaderName; 13] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    CONTENT_TYPE,
    EXPECT,
    LAST_MODIFIED,
    TRAILER,
    TRANSFER_ENCODING,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// Returns whether the request that follows a redirect with `status` is a GET without content.
pub(crate) fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status {
        //= RFC 9110 section 15.4.2
        //# For historical reasons, a user agent MAY change the request method from POST to GET for the subsequent request.
        //= RFC 9110 section 15.4.3
        //# For historical reasons, a user agent MAY change the request method from POST to GET for the subsequent request.
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method == Method::POST,
        // Section 15.4.4: a retrieval request, which a HEAD is too.
        StatusCode::SEE_OTHER => *method != Method::HEAD,
        _ => false,
    }
}

/// Removes the fields that describe content that is dropped (RFC 9110, section 15.4).
pub(crate) fn remove_content_fields(headers: &mut HeaderMap) {
    for name in &CONTENT_FIELDS {
        headers.remove(name);
    }
}

/// Removes fields meant only for the first origin: its credentials and its host name.
pub(crate) fn remove_fields_of_the_origin(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION] {
        headers.remove(name);
    }
}

/// Returns the target of `response` if it is a redirect.
pub(crate) fn target(response: &Response<Incoming>, base: &Uri) -> Option<Result<Uri, Failure>> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| is_redirect)?;
    let target = location.to_str().ok().and_then(|location| join(base, location));
    Some(target.ok_or_else(|| {
        Failure::new(Kind::Protocol, format_args!("cannot follow the redirect to {location:?}"))
    }))
}

/// Resolves a reference by RFC 3986, section 5.2, as far as servers use it: absolute URLs, absolute
/// paths, and names relative to the base.
fn join(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next()?;
    if let Ok(uri) = location.parse::<Uri>()
        && uri.scheme().is_some()
    {
        return Some(uri);
    }
    if let Some(rest) = location.strip_prefix("//") {
        return format!("{}://{rest}", base.scheme_str()?).parse().ok();
    }
    let path = if location.starts_with('/') {
        location.to_owned()
    } else if location.starts_with('?') || location.is_empty() {
        format!("{}{location}", base.path())
    } else {
        format!("{}/{location}", base.path().rsplit_once('/').map_or("", |(folder, _)| folder))
    };
    format!("{}://{}{path}", base.scheme_str()?, base.authority()?).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_is_joined_to_its_base() {
        let base: Uri = "https://a.test:8443/x/y?q".parse().unwrap();
        for (location, expected) in [
            ("https://b.test/z", "https://b.test/z"),
            ("//b.test/z", "https://b.test/z"),
            ("/z", "https://a.test:8443/z"),
            ("z#part", "https://a.test:8443/x/z"),
            ("?w", "https://a.test:8443/x/y?w"),
        ] {
            assert_eq!(
                join(&base, location).map(|uri| uri.to_string()).as_deref(),
                Some(expected),
                "{location}"
            );
        }
    }
}
