//! Redirects from cleartext HTTP to HTTPS.

use http::header::{CONTENT_TYPE, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Uri};
use pronghorn_engine::Response;

/// Returns a redirect to the same target over HTTPS on `port`. 308 preserves method and content.
pub(crate) fn to_https(uri: &Uri, port: u16) -> Response {
    let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let location = uri.host().map(|host| match port {
        443 => format!("https://{host}{target}"),
        port => format!("https://{host}:{port}{target}"),
    });
    let text = |status, text: &'static str| {
        Response::new(status)
            .with_header(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))
            .with_body(text)
    };
    match location.and_then(|location| HeaderValue::try_from(location).ok()) {
        Some(location) => text(StatusCode::PERMANENT_REDIRECT, "this site is served over HTTPS\n")
            .with_header(LOCATION, location),
        None => text(StatusCode::BAD_REQUEST, "the request has no host\n"),
    }
}
